"""Transactions of a stock client in real logs: through kill -9 of all brokers, a change of leaders, and an operator who
ends one that its coordinator does not know."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.broker.entity import build
from holdfast.client.blocking import BlockingClient
from holdfast.client.cluster import KafkaClient
from holdfast.client.views import IsolationLevel, OffsetSpec
from holdfast.model.types import TopicPartition
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.records.markers import decode_committed
from holdfast.testing import Cluster
from tests.system.on_disks import wait_ended

PARTITIONS = 3
TRANSACTIONS = 8
EACH = 6


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(brokers=3, data_dir=tmp_path / "data") as running:
        yield running


def make_topic(cluster: Cluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 3)]).values():
        made.result(30)


def producer(cluster: Cluster, transactional_id: str) -> Any:
    made = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id, "linger.ms": 0,
         "transaction.timeout.ms": 60_000}
    )  # fmt: skip
    made.init_transactions(60)
    return made


def write(made: Any, topic: str, first: int, count: int = EACH) -> list[bytes]:
    """In the open transaction; all are in the log when this returns."""
    values = [b"%d" % number for number in range(first, first + count)]
    for number, value in enumerate(values):
        made.produce(topic, value, partition=number % PARTITIONS)
    assert made.flush(30) == 0
    return values


def stock_reads(cluster: Cluster, topic: str, isolation: str) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "isolation.level": isolation,
         "enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )  # fmt: skip
    consumer.assign([ConfluentPartition(topic, p, 0) for p in range(PARTITIONS)])
    found, ends = [], set()
    while len(ends) < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, "nothing within 30 s"
        if message.error():
            ends.add(message.partition())
        else:
            found.append(message.value())
    consumer.close()
    return sorted(found)


def ours_reads(cluster: Cluster, topic: str) -> list[bytes]:
    """As our own client and Spark see it."""
    found = []
    with BlockingClient(cluster.bootstrap) as client:
        parts = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        ends = client.list_offsets(dict.fromkeys(parts, OffsetSpec.LATEST), isolation=IsolationLevel.READ_COMMITTED)
        for tp in parts:
            offset = 0
            while offset < (ends[tp].offset or 0):
                answer = client.fetch_raw(tp, offset, isolation=IsolationLevel.READ_COMMITTED)
                records = list(decode_committed(answer.records, answer.aborted))
                found += [record.value or b"" for record in records if record.offset >= offset]
                offset = max(offset, next_offset(answer.records))
    return sorted(found)


def next_offset(records: Any) -> int:
    from holdfast.records.batch import iter_headers

    return max(header.next_offset for _, header in iter_headers(records))


def consumed(cluster: Cluster, topic: str) -> list[bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli.main", "consume", topic, "--bootstrap-server", cluster.bootstrap,
         "--from-beginning", "--timeout-ms", "3000", "--isolation-level", "read_committed"],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    return sorted(done.stdout.split())


def check_all(cluster: Cluster, topic: str, committed: list[bytes]) -> None:
    readers: list[Callable[[], list[bytes]]] = [
        lambda: stock_reads(cluster, topic, "read_committed"),
        lambda: ours_reads(cluster, topic),
        lambda: consumed(cluster, topic),
    ]
    for reads in readers:
        assert reads() == sorted(committed)


def test_what_was_committed_is_read_after_all_brokers_were_killed(cluster: Cluster) -> None:
    make_topic(cluster, "t")
    made = producer(cluster, "tx")
    committed: list[bytes] = []
    for number in range(TRANSACTIONS):
        made.begin_transaction()
        values = write(made, "t", number * EACH)
        if number % 3 == 1:
            made.abort_transaction(30)
        else:
            made.commit_transaction(30)
            committed += values
    made.begin_transaction()
    late = write(made, "t", 1000)
    check_all(cluster, "t", committed)
    assert len(stock_reads(cluster, "t", "read_uncommitted")) == (TRANSACTIONS + 1) * EACH
    cluster.kill_all()
    cluster.start()
    cluster.wait_in_sync()
    check_all(cluster, "t", committed)
    made.commit_transaction(60)
    wait_ended(cluster.bootstrap, "tx")
    check_all(cluster, "t", committed + late)


def test_another_leader_goes_on_with_the_transaction(cluster: Cluster) -> None:
    make_topic(cluster, "t")
    made = producer(cluster, "tx")
    made.begin_transaction()
    dropped = write(made, "t", 0)
    made.abort_transaction(30)
    made.begin_transaction()
    values = write(made, "t", 100)
    leader = cluster.describe(["t"]).partitions["t", 0].leader
    assert leader is not None
    cluster.kill(leader)
    values += write(made, "t", 200)
    made.commit_transaction(60)
    wait_ended(cluster.bootstrap, "tx")
    check_all(cluster, "t", values)
    assert not set(dropped) & set(values)


def test_an_operator_ends_a_transaction_that_hangs(cluster: Cluster) -> None:
    """As kafka-transactions does it: DescribeProducers tells what is open, WriteTxnMarkers aborts it."""
    make_topic(cluster, "t")
    made = producer(cluster, "tx")
    made.begin_transaction()
    made.produce("t", b"hangs", partition=0)
    assert made.flush(30) == 0

    async def end() -> tuple[Any, list[Any]]:
        async with KafkaClient(cluster.bootstrap) as client:
            tp = TopicPartition("t", 0)
            leader = await client.leader(tp)
            topics = [{"name": "t", "partition_indexes": [0]}]
            describe = build(request_type(ApiKey.DESCRIBE_PRODUCERS, 0), {"topics": topics})
            answer = await client.ask_broker(leader, describe)
            [found] = answer.topics[0].partitions[0].active_producers
            marker = {
                "producer_id": found.producer_id, "producer_epoch": found.producer_epoch, "transaction_result": False,
                "coordinator_epoch": found.coordinator_epoch, "topics": topics,
            }  # fmt: skip
            answer = await client.ask_broker(
                leader, build(request_type(ApiKey.WRITE_TXN_MARKERS, 1), {"markers": [marker]})
            )
            after = (await client.ask_broker(leader, describe)).topics[0].partitions[0].active_producers
            return found, [answer.markers[0].topics[0].partitions[0].error_code.value, after[0]]

    found, (code, after) = asyncio.run(end())
    assert (found.current_txn_start_offset, code, after.current_txn_start_offset) == (0, 0, -1)
    assert stock_reads(cluster, "t", "read_committed") == []
