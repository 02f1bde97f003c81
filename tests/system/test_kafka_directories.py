"""Partitions that Apache Kafka wrote, compacted and with open transactions, in the directories of a broker of ours:
they are served, their transactions end, their groups go on, and our cleaner goes on with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition

from holdfast.broker.entity import build
from holdfast.client.blocking import BlockingClient
from holdfast.client.cluster import KafkaClient
from holdfast.client.views import IsolationLevel, OffsetSpec
from holdfast.model.types import TopicPartition
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.testing import Cluster, wait_for
from tests.system.kafka_directories import folder_in, put_in_place, recorded
from tests.system.on_disks import QUIET, create

TIMEOUT_S = 60.0
ONE_EACH = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
SETTINGS = {**ONE_EACH, "log.cleaner.backoff.ms": "200", "log.segment.delete.delay.ms": "500"}
COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "1048576", "min_cleanable_dirty_ratio": "0.01"}
UNKNOWN = "hangs"
"""Has the same files as ``open``, and no coordinator knows of its transaction."""
PLACED = {
    "compacted": ("4.3.0", "compacted-0", 15),
    "txn": ("4.3.0", "txn-0", 10),
    "idem": ("4.3.0", "idem-0", 8),
    "old": ("3.9.1", "txn-0", 10),
    "open": ("4.3.0-open", "open-0", 12),
    UNKNOWN: ("4.3.0-open", "open-0", 12),
    "__transaction_state": ("4.3.0-open", "__transaction_state-0", 12),
    "__consumer_offsets": ("4.3.0-open", "__consumer_offsets-0", 8),
}
"""Topic -> recording, and where it ends."""
Pairs = list[tuple[int, Any, Any]]
TOMBSTONE = (6, b"k3", None)
"""Of the recording with the open transaction. Its delete horizon, a day after Kafka had cleaned the log, is over: it
goes with the first cleaning, whenever that is."""


def make_internal_topics(bootstrap: str) -> None:
    """As the first client that asks for a coordinator has them made."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "first", **QUIET})
    producer.init_transactions(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "first", **QUIET})
    consumer.committed([ConfluentPartition("none", 0)], TIMEOUT_S)
    consumer.close()


@pytest.fixture(scope="module")
def taken_over(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker with a single directory of ours, in which the recorded partitions are."""
    data: Path = tmp_path_factory.mktemp("kafka")
    with Cluster(brokers=1, log_dirs=2, data_dir=data, settings=SETTINGS) as cluster:
        for topic in PLACED:
            if not topic.startswith("__"):
                config = COMPACTED if topic in ("compacted", "open", UNKNOWN) else {"retention_ms": "-1"}
                create(cluster, topic, [[1]], **config)
        make_internal_topics(cluster.bootstrap)
        cluster.stop()
        dirs = [cluster.log_dir(1, number) for number in (1, 2)]
        for topic, (version, name, end) in PLACED.items():
            put_in_place(folder_in(dirs, f"{topic}-0"), recorded(version, name), end)
        cluster.start()
        cluster.wait_in_sync()
        yield cluster


def reads(cluster: Cluster, topic: str, isolation: str = "read_committed") -> Pairs:
    """All that a reader gets, but for the tombstone."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reads", "isolation.level": isolation,
         "enable.partition.eof": True, "enable.auto.commit": False, **QUIET}
    )  # fmt: skip
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    found: Pairs = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "no end of the partition"
        if message.error():
            break
        found.append((message.offset() or 0, message.key(), message.value()))
    consumer.close()
    return [each for each in found if each != TOMBSTONE]


def end_of(cluster: Cluster, topic: str) -> int:
    """The last stable offset."""
    tp = TopicPartition(topic, 0)
    with BlockingClient(cluster.bootstrap) as client:
        ends = client.list_offsets({tp: OffsetSpec.LATEST}, isolation=IsolationLevel.READ_COMMITTED)
    return ends[tp].offset or 0


def ask_leader(cluster: Cluster, topic: str, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
    async def ask() -> Any:
        async with KafkaClient(cluster.bootstrap) as client:
            leader = await client.leader(TopicPartition(topic, 0))
            return await client.ask_broker(leader, build(request_type(key, version), body))

    return asyncio.run(ask())


def producers_of(cluster: Cluster, topic: str) -> dict[int, Any]:
    topics = [{"name": topic, "partition_indexes": [0]}]
    answer = ask_leader(cluster, topic, ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics})
    return {each.producer_id: each for each in answer.topics[0].partitions[0].active_producers}


COMMITTED_BEFORE = [(1, b"k2", b"v1"), (3, b"k1", b"v2"), (8, b"k4", b"v1")]
OF_THE_OPEN_ONE = [(9, b"k1", b"v3"), (10, b"k5", b"v1")]
AFTER = (11, b"k6", b"v1")


def test_what_kafka_compacted_and_committed_is_read(taken_over: Cluster) -> None:
    once = [(2 * number + 1, b"only%d" % number, b"w") for number in range(5)]
    newest = [(10, b"k1", b"v5"), (11, b"only5", b"w"), (12, b"k0", None), (13, b"last", b"x"), (14, b"last", b"y")]
    assert reads(taken_over, "compacted") == once + newest
    for topic in ("txn", "old"):
        assert [value for _, _, value in reads(taken_over, topic)[:2]] == [b"committed 1", b"committed 2"]
        dirty = reads(taken_over, topic, "read_uncommitted")
        assert (3, b"a", b"aborted") in dirty
        assert (3, b"a", b"aborted") not in reads(taken_over, topic)
        assert end_of(taken_over, topic) == 10
    assert len(reads(taken_over, "idem")) == 8


def test_an_idempotent_producer_of_kafkas_time_is_known(taken_over: Cluster) -> None:
    found = producers_of(taken_over, "idem")
    assert {pid: (each.producer_epoch, each.last_sequence) for pid, each in found.items()} == {0: (1, 0)}
    assert all(each.current_txn_start_offset == -1 for each in found.values())


def test_a_transaction_whose_time_is_up_is_aborted(taken_over: Cluster) -> None:
    """Kafka's coordinator knew it; ours reads that, and ends it by its timeout, with the group's offset in it."""
    wait_for(lambda: end_of(taken_over, "open") == 13, "the end of the transaction", timeout_s=TIMEOUT_S)
    assert reads(taken_over, "open") == [*COMMITTED_BEFORE, AFTER]
    consumer = Consumer({"bootstrap.servers": taken_over.bootstrap, "group.id": "g", **QUIET})
    [offset] = consumer.committed([ConfluentPartition("open", 0)], TIMEOUT_S)
    consumer.close()
    assert offset.offset == 1  # of the one that was committed, not 2 (aborted) or 3 (open)


def test_its_transactional_id_goes_on(taken_over: Cluster) -> None:
    wait_for(lambda: end_of(taken_over, "open") >= 13, "the end of the transaction", timeout_s=TIMEOUT_S)
    before = end_of(taken_over, "open")
    settings = {"bootstrap.servers": taken_over.bootstrap, "transactional.id": "unfinished", **QUIET}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("open", b"v4", b"k1", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    wait_for(lambda: end_of(taken_over, "open") == before + 2, "it is committed", timeout_s=TIMEOUT_S)
    assert reads(taken_over, "open")[-1] == (before, b"k1", b"v4")
    assert 1 in producers_of(taken_over, "open")  # the producer id that Kafka gave


def test_an_operator_ends_one_that_no_coordinator_knows_and_the_log_is_cleaned(taken_over: Cluster) -> None:
    assert end_of(taken_over, UNKNOWN) == 9
    assert reads(taken_over, UNKNOWN) == COMMITTED_BEFORE
    assert reads(taken_over, UNKNOWN, "read_uncommitted") == [*COMMITTED_BEFORE, *OF_THE_OPEN_ONE, AFTER]
    hanging = producers_of(taken_over, UNKNOWN)[1]
    assert (hanging.producer_epoch, hanging.current_txn_start_offset) == (0, 9)
    marker = {
        "producer_id": 1, "producer_epoch": 0, "transaction_result": False, "coordinator_epoch": -1,
        "topics": [{"name": UNKNOWN, "partition_indexes": [0]}],
    }  # fmt: skip
    answer = ask_leader(taken_over, UNKNOWN, ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})
    assert answer.markers[0].topics[0].partitions[0].error_code.value == 0
    assert end_of(taken_over, UNKNOWN) == 13
    assert reads(taken_over, UNKNOWN) == [*COMMITTED_BEFORE, AFTER]

    producer = Producer({"bootstrap.servers": taken_over.bootstrap, "linger.ms": 5, **QUIET})
    for number in range(1500):  # more than a segment
        producer.produce(UNKNOWN, b"%d" % number + b"." * 1000, b"k4", partition=0)
    assert producer.flush(TIMEOUT_S) == 0

    def uncommitted() -> Pairs:
        return reads(taken_over, UNKNOWN, "read_uncommitted")

    aborted = {b"k5"}
    wait_for(lambda: aborted.isdisjoint(key for _, key, _ in uncommitted()), "a cleaning", timeout_s=TIMEOUT_S)
    kept = {key: (offset, value) for offset, key, value in uncommitted()}
    assert (kept[b"k1"], kept[b"k2"], kept[b"k6"]) == ((3, b"v2"), (1, b"v1"), (11, b"v1"))
    assert kept[b"k4"][0] == 13 + 1499
