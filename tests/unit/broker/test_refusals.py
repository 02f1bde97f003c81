"""Requests of which the whole right is one of the cluster: refused before any handler, in the form of their API."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.broker.access import Access
from holdfast.broker.handlers.refusals import ROWS
from holdfast.protocol.apis import INTERNAL, SPOKEN, ApiKey
from holdfast.security.operations import Asked
from holdfast.security.principal import ANONYMOUS
from holdfast.security.resources import Operation
from tests.unit.broker.rights import CLUSTER, TOPIC, Granted, granted
from tests.unit.broker.test_dispatch import on_a_loop, served

_BEFORE = sorted(
    key for key in SPOKEN.keys() | INTERNAL.keys() if ROWS[key].asked is Asked.BEFORE and key != ApiKey.API_VERSIONS
)
_TOPIC = [{"name": "t", "partitions": [3]}]
_NAMED: dict[int, dict[str, Any]] = {
    ApiKey.CREATE_ACLS: {"creations": [{}, {}]},
    ApiKey.DELETE_ACLS: {"filters": [{}]},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/d", "topics": _TOPIC}]},
    ApiKey.ELECT_LEADERS: {"topic_partitions": [{"topic": "t", "partitions": [3]}]},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {"topics": [{"name": "t", "partitions": [{"partition_index": 3}]}]},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {"topics": [{"name": "t", "partition_indexes": [3]}]},
    ApiKey.WRITE_TXN_MARKERS: {"markers": [{"producer_id": 7, "topics": [{"name": "t", "partition_indexes": [3]}]}]},
    49: {"entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}]}]},
    51: {"deletions": [{"name": "b"}], "upsertions": [{"name": "a"}]},
}


def codes_of(answer: Any) -> list[int]:
    """All error codes in an answer, from its top down."""
    found: list[int] = []
    for name in answer.__dataclass_fields__:
        value = getattr(answer, name)
        if name == "error_code":
            found.append(int(value))
        elif isinstance(value, tuple):
            for each in value:
                if hasattr(each, "__dataclass_fields__"):
                    found += codes_of(each)
    return found


@pytest.mark.parametrize("key", _BEFORE, ids=lambda key: key.name.lower())
@on_a_loop
async def test_who_has_another_right_is_refused_and_no_handler_runs(key: ApiKey) -> None:
    """The broker of this test has none of the parts that a handler asks."""
    spoken = (SPOKEN | INTERNAL)[key]
    other = granted((Operation.ALL, CLUSTER), (Operation.READ, TOPIC, "t"))
    for version in sorted({spoken.min, spoken.max}):
        async with served(access=Access(other)) as client:
            answer = await client.ask(key, version, _NAMED.get(key, {}))
            if key == ApiKey.DESCRIBE_LOG_DIRS and version < 3:
                assert answer.results == ()
                continue
            codes = codes_of(answer)
            assert codes, answer
            assert set(codes) == {31}
            assert getattr(answer, "error_message", None) in (None, "Cluster authorization failed.")


@on_a_loop
async def test_each_thing_that_was_named_has_the_error() -> None:
    async with served(access=Access(granted())) as client:
        marked = await client.ask(ApiKey.WRITE_TXN_MARKERS, 1, _NAMED[ApiKey.WRITE_TXN_MARKERS])
        (marker,) = marked.markers
        assert (marker.producer_id, marker.topics[0].name, marker.topics[0].partitions[0].partition_index) == (
            7,
            "t",
            3,
        )
        elected = await client.ask(ApiKey.ELECT_LEADERS, 2, _NAMED[ApiKey.ELECT_LEADERS])
        (result,) = elected.replica_election_results
        assert (result.topic, int(result.partition_result[0].error_code)) == ("t", 31)
        created = await client.ask(ApiKey.CREATE_ACLS, 3, _NAMED[ApiKey.CREATE_ACLS])
        assert len(created.results) == 2


@on_a_loop
async def test_one_of_two_rights_is_enough_and_the_answer_is_the_handlers() -> None:
    for operation in (Operation.ALTER, Operation.CLUSTER_ACTION):
        may = granted((operation, CLUSTER))
        async with served(access=Access(may)) as client:
            answer = await client.ask(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": []})
            assert answer.markers == ()
        assert may.hosts == {"127.0.0.1"}


@on_a_loop
async def test_the_right_is_the_principals_of_the_connection() -> None:
    describe = {(Operation.DESCRIBE, CLUSTER, "kafka-cluster")}
    async with served(access=Access(Granted(to={ANONYMOUS: describe}))) as client:
        answer = await client.ask(ApiKey.DESCRIBE_ACLS, 3, {"pattern_type_filter": 3})
        assert int(answer.error_code) != 31
