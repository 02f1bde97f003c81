"""Apache Kafka 4.3.0's recorded answers against ours: every difference stands in a table, with its reason.

The recordings are replayed once, in order, by the ``replay`` fixture (conftest.py). A difference without a row fails,
and so does a row without a difference.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.system


class Row(NamedTuple):
    """A difference that stays. ``case`` and ``path`` may have ``*``; paths are without indexes; ``...`` is any value.
    ``may``: depends on timing, so it need not be there."""

    case: str
    path: str
    kafka: Any
    ours: Any
    why: str
    may: bool = False


OTHER_FEATURES = "decision: only features that something here goes by have levels (model/features.py)"
NOT_DECODED = "decision: a batch's records are not decoded on append (storage/validation.py), whoever reads finds it"
NO_FOLLOWER_READS = "not built: reading from a follower (KIP-392); the consumer is sent to the leader"
MARKERS = "the markers may be written already; there they never are so soon"
NO_LOGGERS = "not built: levels of loggers as configuration"
NO_GROUP_CONFIGS = "not built: configuration of groups and client metrics"
NO_SUCH_KEY = (
    "decision: a key that no broker has is refused with 40, and only then the value or the broker is looked at"
)
NO_QUORUM = "decision: brokers are not a quorum: they are named as voters, with what they were told as their log"
NO_THREADS = "decision: taken and without effect, one event loop serves (model/config_inert.py)"
ANY_BROKER = "any broker takes it: the controller decides"
CLUSTER_DEFAULT = "Kafka 4 keeps min.insync.replicas as a cluster-wide dynamic default (ELR), here it is the default"
START_WITH_ERROR = "with an error there is no offset at all, so no log start offset either; no client looks at it"
AT_ONCE = "ours is there sooner"
FOR_BROKERS = "decision: what brokers say to each other is taken on their own listener only (docs/decisions/0018)"

TABLE = [
    Row("api_versions: ApiVersions v[34]", "*_features*", ..., ..., OTHER_FEATURES),
    Row("create_topics: *", "topics.configs.config_source", 3, 5, CLUSTER_DEFAULT),
    Row("create_partitions: huge", "results.error_code", -1, 44, "an internal error there; CreateTopics' limit here"),
    Row("metadata: zero id and null name", "topics.error_code", -1, 17, "an internal error there"),
    Row("metadata: zero id and null name", "brokers", [], ..., "an internal error there"),
    # -- produce
    Row("produce: *", "responses.partition_responses.log_start_offset", 0, -1, START_WITH_ERROR),
    Row("produce: compression type 7", "responses.partition_responses.error_code", -1, 76, "an internal error there"),
    Row("produce: compression gzip but plain bytes", "*.error_code", -1, 0, NOT_DECODED),
    Row("produce: compression gzip but plain bytes", "*.base_offset", -1, ..., NOT_DECODED),
    *(
        Row(f"produce: {case}", f"responses.partition_responses.{field}", kafka, ours, NOT_DECODED)
        for case in ("count larger than records", "count smaller than records", "record length wrong",
                     "header with null key")
        for field, kafka, ours in (("error_code", 87, 0), ("base_offset", -1, ...))
    ),
    Row("produce: InitProducerId", "error_code", 14, 0, "the first block of ids is waited for"),
    Row("produce: InitProducerId", "producer_*", ..., ..., "the first block of ids is waited for"),
    Row("produce: mixed good, unknown topic, same partition twice", "responses.partition_responses", ..., ...,
        "both batches are appended and answered, there the second replaces the first"),
    Row("produce: null records", "", "no answer", "connection closed by broker",
        "decision: a connection that is never answered would keep what it sent (D9)"),
    # -- fetch
    *(
        Row(f"fetch: not leader v1{version}", f"responses.partitions.{field}", ..., ours, NO_FOLLOWER_READS)
        for version in ("1: a follower may serve v11+", "2 (broker 3 follows t1-0)")
        for field, ours in (("error_code", 6), ("high_watermark", -1), ("last_stable_offset", -1),
                            ("log_start_offset", -1), ("records", []))
    ),
    Row("fetch: isolation level 5", "*", ..., ..., "an internal error there; here all but 0 is read_committed"),
    Row("list_offsets: v* timestamp -3", "topics.partitions.offset", 0, 15,
        "the batch of 'max timestamp wrong' is believed; " + NOT_DECODED),
    # -- configs
    Row("configs: empty keys list", "results.configs.config_source", 3, 5, CLUSTER_DEFAULT),
    Row("configs: empty keys list", "results.configs.synonyms", ..., ..., CLUSTER_DEFAULT),
    Row("configs: broker logger *", "responses.error_code", 40, 42, NO_LOGGERS),
    Row("configs: ListConfigResources v1", "config_resources.*", ..., ..., NO_GROUP_CONFIGS),
    Row("configs: group set", "responses.error_code", 0, 42, NO_GROUP_CONFIGS),
    Row("configs: group bad", "responses.error_code", 40, 42, NO_GROUP_CONFIGS),
    Row("configs: operation 9", "responses.error_code", -1, 42, "an internal error there"),
    *(
        Row(f"configs: {case}", "responses.error_code", kafka, 40, NO_SUCH_KEY)
        for case, kafka in (("broker unknown key", 0),)
    ),
    Row("configs: threads more than double", "responses.error_*", ..., ..., NO_THREADS),
    Row("configs: broker 9 unknown", "responses.error_*", ..., ..., ANY_BROKER),
    Row("configs: broker 2 through broker 1", "responses.error_*", ..., ..., ANY_BROKER),
    Row("configs: broker 2 undo", "responses.error_*", ..., ..., ANY_BROKER),
    # -- the rest
    *(
        Row(case, "", "an answer", "connection closed by broker", FOR_BROKERS)
        for case in ("fetch: as replica *", "list_offsets: as replica 2",
                     "cluster_security: BrokerRegistration wrong cluster id")
    ),
    Row("log_dirs: during or after the move", "t1-0.*", ..., ..., "whether the move is over", may=True),
    Row("log_dirs: 1.5 s later", "t1-0.*", ..., ..., "not as much later here", may=True),
    Row("groups: FindCoordinator v? group", "*", ..., ..., AT_ONCE, may=True),
    Row("reassign_elect: all (null)", "replica_election_results", ..., [], "topics without a result are left out"),
    Row("transactions: ok", "error_code", 14, 0, "the first block of ids is waited for"),
    Row("transactions: ok", "producer_*", ..., ..., "the first block of ids is waited for"),
    Row("transactions: *after abort", "error_code", 51, 48, MARKERS, may=True),
    Row("transactions: abort again", "error_code", 51, 0, MARKERS, may=True),
    Row("cluster_security: DescribeQuorum", "topics.partitions.current_voters.*", ..., ..., NO_QUORUM),
    Row("cluster_security: DescribeQuorum", "topics.partitions.high_watermark", ..., ..., NO_QUORUM),
    Row("cluster_security: DescribeQuorum", "topics.partitions.leader_*", ..., ..., "who is controller", may=True),
]  # fmt: skip

OTHER_TEXTS = {
    "groups: *": "Kafka says what the code means, ours says which value and what was expected",
    "produce: *": "as for groups",
    "cluster_security: UpdateFeatures unknown feature": "the number of the controller",
    "cluster_security: UpdateFeatures metadata.version too high": OTHER_FEATURES,
    "configs: resource type 99": "ours says which and what was expected",
    "configs: threads more than double": NO_THREADS,
    "configs: broker [29] *": ANY_BROKER,
    "configs: broker per-broker config on default": "decision: listeners are bound once, so they are refused for any",
    "configs: broker logger *": NO_LOGGERS,
    "configs: group bad": NO_GROUP_CONFIGS,
}
"""Cases whose texts differ, and why."""
NEITHER = {"?", "envelope", "controlled_shutdown"}
"""Kafka closes the connection too."""
NOT_ADVERTISED = {
    "delegation tokens": {38, 39, 40, 41},
    "not built: KIP-848 groups": {68, 69},
    "not built: share groups (KIP-932)": {76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92},
    NO_QUORUM: {80, 81},
    "not built: streams groups (KIP-1071)": {88, 89},
}


def matches(row: Row, case: str, path: str, kafka: Any, ours: Any) -> bool:
    return (
        fnmatchcase(case, row.case)
        and fnmatchcase(re.sub(r"\[[^]]*]", "", path), row.path)
        and (row.kafka is ... or row.kafka == kafka)
        and (row.ours is ... or row.ours == ours)
    )


@pytest.mark.parametrize(
    "file",
    ["api_versions", "protocol_errors", "create_topics", "create_partitions", "delete_topics", "metadata", "produce",
     "fetch", "list_offsets", "configs", "log_dirs", "groups", "delete_records", "reassign_elect", "transactions",
     "cluster_security"],
)  # fmt: skip
def test_answers_are_kafkas_but_for_the_table(replay: Any, file: str) -> None:
    unknown = [
        f"{case} | {path} | Kafka {kafka!r} | ours {ours!r}"
        for (case, path), (kafka, ours) in replay.differences.items()
        if case.startswith(f"{file}: ") and not any(matches(row, case, path, kafka, ours) for row in TABLE)
    ]
    assert not unknown, "\n".join(unknown)
    assert replay.compared[file] > 1


def test_C_5_error_texts_are_kafkas_but_for_the_table(replay: Any) -> None:
    unknown = [
        f"{case} | Kafka {sorted(theirs)} | ours {sorted(ours)}"
        for case, (theirs, ours) in replay.texts.items()
        if not any(fnmatchcase(case, pattern) for pattern in OTHER_TEXTS)
    ]
    assert not unknown, "\n".join(unknown)


def test_the_table_has_no_row_that_is_not_true_any_more(replay: Any) -> None:
    idle = [
        row
        for row in TABLE
        if not row.may and not any(matches(row, *found, *pair) for found, pair in replay.differences.items())
    ]
    assert not idle
    assert sum(replay.compared.values()) > 550


def test_what_is_not_spoken_closes_the_connection_and_is_not_advertised(replay: Any) -> None:
    assert replay.unspoken.keys() <= NEITHER
    assert set().union(*replay.unspoken.values()) == {"connection closed by broker"}
    assert replay.not_advertised == set().union(*NOT_ADVERTISED.values())


def test_raw_bytes_are_treated_as_kafka_treats_them(replay: Any, recorded: Callable[[str], list[Any]]) -> None:
    """Impossible sizes, garbage, half frames: closed or left open, and the same number of answers."""
    cases = [case for case in recorded("protocol_errors") if "sent_hex" in case]
    for case in cases:
        connection = replay.connect()
        connection.send(bytes.fromhex(case["sent_hex"]))
        if case["name"] == "half a frame then FIN":
            connection.finish()
        for answer in frames(bytes.fromhex(case["answer_hex"])):
            ours = connection.receive()
            assert ours[:6] == answer[:6], case["name"]  # correlation id and error code
        closed = case["outcome"] == "connection closed by broker"
        assert connection.receive(5.0 if closed else 0.1) == (case["outcome"] if closed else "no answer"), case["name"]
        connection.close()
    assert len(cases) > 10


def frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        (size,) = struct.unpack_from(">i", data)
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found
