"""Transactions with stock librdkafka, which adds partitions first (transaction version 1), under kills and without."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import QUIET, TIMEOUT_S, create

pytestmark = pytest.mark.system
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers for the tests of this module that kill none."""
    with Cluster(brokers=3, settings=SETTINGS) as running:
        yield running


def producing(cluster: Cluster, name: str, **settings: Any) -> confluent_kafka.Producer:
    """A transactional producer that has begun."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, **QUIET, **settings}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: confluent_kafka.Producer, topic: str, values: list[str], partitions: int = 1) -> None:
    for at, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=at % partitions)


def read(cluster: Cluster, topic: str, partitions: int, expected: int, level: str = "read_committed") -> list[str]:
    """What there is to be read from the start up to the end, once it is as many."""
    found: list[str] = []

    def all_of_it() -> bool:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "isolation.level": level,
             "enable.partition.eof": True, "enable.auto.commit": False, **QUIET}
        )  # fmt: skip
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
        found.clear()
        ends: set[int] = set()
        deadline = time.monotonic() + TIMEOUT_S
        while len(ends) < partitions and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message.value().decode())
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ends.add(message.partition())
        consumer.close()
        return len(found) == expected

    wait_for(all_of_it, f"{expected} records to be read ({level})", timeout_s=TIMEOUT_S)
    return sorted(found)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    producer = producing(cluster, f"{topic}-tx")
    for round_, commit in enumerate([True, False, True, False]):
        producer.begin_transaction()
        write(producer, topic, [f"{round_}-{i}" for i in range(30)], partitions=3)
        if commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
    committed = sorted(f"{round_}-{i}" for round_ in (0, 2) for i in range(30))
    assert read(cluster, topic, 3, 60) == committed
    assert len(read(cluster, topic, 3, 120, "read_uncommitted")) == 120


def test_an_open_transaction_holds_up_readers_and_a_newer_instance_aborts_it(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, [[1, 2, 3]])
    old = producing(cluster, f"{topic}-tx")
    old.begin_transaction()
    write(old, topic, ["lost"])
    assert old.flush(TIMEOUT_S) == 0
    assert read(cluster, topic, 1, 0) == []
    new = producing(cluster, f"{topic}-tx")
    new.begin_transaction()
    write(new, topic, ["kept"])
    new.commit_transaction(TIMEOUT_S)
    assert read(cluster, topic, 1, 1) == ["kept"]
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        old.commit_transaction(TIMEOUT_S)
    assert fenced.value.args[0].fatal()


def test_a_transaction_past_its_timeout_is_aborted(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, [[2, 3, 1]])
    silent = producing(cluster, f"{topic}-tx", **{"transaction.timeout.ms": 1500})
    silent.begin_transaction()
    write(silent, topic, ["lost"])
    assert silent.flush(TIMEOUT_S) == 0
    other = producing(cluster, f"{topic}-other")
    other.begin_transaction()
    write(other, topic, ["kept"])
    other.commit_transaction(TIMEOUT_S)
    began = time.monotonic()
    assert read(cluster, topic, 1, 1) == ["kept"]
    assert time.monotonic() - began < 8
    with pytest.raises(confluent_kafka.KafkaException):
        silent.commit_transaction(TIMEOUT_S)


def test_read_process_write_moves_each_record_once(cluster: Cluster, topic: str) -> None:
    """Offsets of the input go with the transaction: an aborted round is read again."""
    out = f"{topic}-out"
    create(cluster, topic, [[1, 2, 3]])
    create(cluster, out, [[2, 1, 3]])
    source = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    write(source, topic, [f"in-{i:03}" for i in range(40)])
    assert source.flush(TIMEOUT_S) == 0
    producer = producing(cluster, f"{topic}-tx")
    for round_ in range(8):
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": f"{topic}-g", "enable.auto.commit": False,
             "auto.offset.reset": "earliest", "isolation.level": "read_committed", **QUIET}
        )  # fmt: skip
        consumer.subscribe([topic])
        batch: list[Any] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(batch) < 10 and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                batch.append(message)
        producer.begin_transaction()
        write(producer, out, [m.value().decode() for m in batch])
        after = [confluent_kafka.TopicPartition(topic, 0, batch[-1].offset() + 1)]
        producer.send_offsets_to_transaction(after, consumer.consumer_group_metadata(), TIMEOUT_S)
        if round_ % 2:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        consumer.close()
    assert read(cluster, out, 1, 40) == [f"in-{i:03}" for i in range(40)]


def leader_of_the_only_partition(cluster: Cluster) -> int:
    leader = cluster.describe(["__transaction_state"]).partitions["__transaction_state", 0].leader
    assert leader is not None
    return int(leader)


def test_the_coordinator_is_killed_between_transactions_and_in_them(topic: str) -> None:
    settings = SETTINGS | {"transaction.state.log.num.partitions": "1"}
    with Cluster(brokers=3, settings=settings) as cluster:
        create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
        producer = producing(cluster, "tx")
        committed: list[str] = []
        for round_ in range(3):
            values = [f"{round_}-{i}" for i in range(9)]
            producer.begin_transaction()
            write(producer, topic, values, partitions=3)
            assert producer.flush(TIMEOUT_S) == 0
            victim = leader_of_the_only_partition(cluster)
            cluster.kill(victim)
            try:
                producer.commit_transaction(TIMEOUT_S)
                committed += values
            except confluent_kafka.KafkaException as e:
                assert e.args[0].txn_requires_abort(), e
                producer.abort_transaction(TIMEOUT_S)
            cluster.revive()
            cluster.wait_in_sync()
        assert read(cluster, topic, 3, len(committed)) == sorted(committed)
        assert committed, "no round was committed"


def test_offsets_are_committed_while_partitions_are_added(cluster: Cluster) -> None:
    """librdkafka asks for both at once, and comes back after half a second when one is refused for the other."""
    create(cluster, "at-once", [[1, 2, 3]])
    producer = producing(cluster, "at-once")
    group = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "at-once", **QUIET})
    took = []
    for offset in range(20):
        producer.begin_transaction()
        write(producer, "at-once", ["x"])
        began = time.monotonic()
        at = confluent_kafka.TopicPartition("at-once", 0, offset)
        producer.send_offsets_to_transaction([at], group.consumer_group_metadata(), TIMEOUT_S)
        took.append(time.monotonic() - began)
        producer.commit_transaction(TIMEOUT_S)
    assert sum(each > 0.45 for each in took) <= 2, took
    [committed] = group.committed([confluent_kafka.TopicPartition("at-once", 0)], TIMEOUT_S)
    assert committed.offset == 19
    group.close()
