"""A quota of 1 MB/s on a real broker, with clients that do not mind what they are told of it: librdkafka (#5592) and
kafka-python (#2506). Each of Kafka's eight levels; all but one of them take minutes, and are long."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.client.admin import AdminClient
from holdfast.client.quotas import alter_quotas
from holdfast.client.views import NewTopic
from holdfast.testing.cluster import Cluster
from tests.system.test_metrics import page_of, values

pytestmark = [pytest.mark.system]

RATE = 1_000_000
WINDOWS_S = 11
"""As the defaults have it: after a pause a client may have at once what it was given for so long."""
VALUE = os.urandom(10_000)
CLIENT, USER = "loader", "ANONYMOUS"
LEVELS: list[dict[str, str | None]] = [
    {"user": USER, "client-id": CLIENT}, {"user": USER, "client-id": None}, {"user": USER},
    {"user": None, "client-id": CLIENT}, {"user": None, "client-id": None}, {"user": None},
    {"client-id": CLIENT}, {"client-id": None},
]  # fmt: skip
GATE_LEVEL = 2


Clients = tuple[Callable[[Cluster, float], "Counted"], ...]


def address(cluster: Cluster) -> str:
    host, port = cluster.addresses()[0]
    return f"{host}:{port}"


def set_up(cluster: Cluster, level: dict[str, str | None] | None, **quotas: float) -> None:
    async def run() -> None:
        async with AdminClient([address(cluster)], client_id="setter") as client:
            if level is None:
                await client.create_topic(NewTopic(name="t", partitions=1, replication_factor=1))
            else:
                await alter_quotas(client, level, quotas)

    asyncio.run(run())


class Counted:
    """Bytes by when they were there."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.times: list[tuple[float, int]] = []

    def add(self, size: int) -> None:
        self.times.append((time.monotonic() - self.began_s, size))

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self.began_s

    def rate(self, after_s: float, until_s: float) -> float:
        """From one arrival to another, since they come in lumps."""
        inside = [(at, size) for at, size in self.times if after_s <= at <= until_s]
        return sum(size for _, size in inside[1:]) / (inside[-1][0] - inside[0][0])


def produce_by_librdkafka(cluster: Cluster, seconds: float, client: str = CLIENT) -> Counted:
    from confluent_kafka import Producer

    counted = Counted()
    producer = Producer(
        {"bootstrap.servers": address(cluster), "client.id": client, "linger.ms": 5, "batch.size": 60_000,
         "queue.buffering.max.kbytes": 2_000, "enable.idempotence": False}
    )  # fmt: skip

    def done(error: Any, message: Any) -> None:
        assert error is None, error
        counted.add(len(message.value()))

    while counted.passed_s < seconds:
        try:
            producer.produce("t", VALUE, partition=0, on_delivery=done)
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)
    producer.flush(30)
    return counted


def produce_by_kafka_python(cluster: Cluster, seconds: float) -> Counted:
    from kafka import KafkaProducer

    counted = Counted()
    producer = KafkaProducer(
        bootstrap_servers=address(cluster), client_id=CLIENT, batch_size=60_000, linger_ms=5, acks="all",
        enable_idempotence=False,
    )  # fmt: skip
    waiting: list[Any] = []
    while counted.passed_s < seconds:
        waiting.append(producer.send("t", VALUE, partition=0))
        if len(waiting) >= 200:
            waiting.pop(0).get(30)
            counted.add(len(VALUE))
    producer.close(30)
    return counted


def consume_by_librdkafka(cluster: Cluster, seconds: float) -> Counted:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": address(cluster), "client.id": CLIENT, "group.id": "g", "enable.auto.commit": False,
         "fetch.message.max.bytes": 200_000}
    )  # fmt: skip
    consumer.assign([TopicPartition("t", 0, 0)])
    counted = Counted()
    while counted.passed_s < seconds:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            counted.add(len(message.value()))
    consumer.close()
    return counted


def consume_by_kafka_python(cluster: Cluster, seconds: float) -> Counted:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=address(cluster), client_id=CLIENT, enable_auto_commit=False, group_id=None,
        auto_offset_reset="earliest", max_partition_fetch_bytes=200_000,
    )  # fmt: skip
    consumer.assign([TopicPartition("t", 0)])
    consumer.seek(TopicPartition("t", 0), 0)
    counted = Counted()
    while counted.passed_s < seconds:
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                counted.add(len(record.value))
    consumer.close()
    return counted


def checked(cluster: Cluster, level: dict[str, str | None], first_s: float, seconds: float, clients: Clients) -> None:
    """Both at once, each with a quota of its own: between ``first_s`` and as many seconds later."""
    set_up(cluster, None)
    filled = 0
    while filled <= (2 * first_s + seconds + 2) * RATE:  # as fast as it can without a quota
        filled += sum(size for _, size in produce_by_librdkafka(cluster, 1, client="filler").times)
    set_up(cluster, level, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    with ThreadPoolExecutor(len(clients)) as threads:
        counted = list(threads.map(lambda client: client(cluster, first_s + seconds), clients))
    for client, each in zip(clients, counted, strict=True):
        rate = each.rate(first_s, first_s + seconds)
        assert 0.9 * RATE <= rate <= 1.1 * RATE, f"{client.__name__}: {rate:.0f} bytes a second"


def test_a_quota_holds_for_clients_that_do_not_mind_it() -> None:
    """``quota.window.num=2``: what a client may have at once after a pause is soon used up."""
    with Cluster(brokers=1, settings={"quota.window.num": "2"}) as cluster:
        checked(cluster, LEVELS[GATE_LEVEL], 2, 6, (produce_by_librdkafka, consume_by_librdkafka))
        found = values(page_of(cluster))
        for quota in ("producer_byte_rate", "consumer_byte_rate"):
            assert found[f'holdfast_throttled_requests_total{{quota="{quota}"}}'] > 0
            assert found[f'holdfast_throttle_seconds_total{{quota="{quota}"}}'] > 1


@pytest.mark.long
@pytest.mark.parametrize(
    "level", LEVELS, ids=["-".join(f"{kind}={name}" for kind, name in each.items()) for each in LEVELS]
)
@pytest.mark.parametrize(
    "clients",
    [(produce_by_librdkafka, consume_by_librdkafka), (produce_by_kafka_python, consume_by_kafka_python)],
    ids=["librdkafka", "kafka-python"],
)
def test_a_quota_holds_at_each_level(level: dict[str, str | None], clients: Clients) -> None:
    """In less: test_a_quota_holds_for_clients_that_do_not_mind_it; the levels: tests/unit/security/test_quotas.py."""
    with Cluster(brokers=1) as cluster:
        checked(cluster, level, WINDOWS_S, 30, clients)
