"""Stock clients against a running cluster: each writes, each reads what each has written, contents compared.

Read back by assigned partitions; consumer groups have a module of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import Cluster, wait_for

pytestmark = pytest.mark.system

PARTITIONS = 3
TIMEOUT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Seen:
    """One record as a client shows it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def records() -> list[Seen]:
    """What is written: keys and values that are absent, empty, binary and large, several batches a
    partition.
    """
    base = 1_700_000_000_000
    values: list[bytes | None] = [b"", None, bytes(range(256)), "žluťoučký kůň".encode(), b"x" * 300_000]
    return [
        Seen(
            partition=partition,
            offset=offset,
            key=None if offset % 3 == 0 else f"key-{partition}-{offset}".encode(),
            value=values[offset] if offset < len(values) else f"value {partition}/{offset}".encode(),
            headers=(("trace", bytes([offset])), ("again", b"a"), ("again", b"b")) if offset % 2 else (),
            timestamp_ms=base + 1000 * offset + partition,
        )
        for partition in range(PARTITIONS)
        for offset in range(40)
    ]


def confluent_write(bootstrap: str, topic: str, compression: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "compression.type": compression, "linger.ms": 20}
    )
    failed = []
    for record in records():
        producer.produce(
            topic,
            record.value,
            record.key,
            record.partition,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
            on_delivery=lambda error, _message: failed.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def confluent_read(bootstrap: str, topic: str) -> list[Seen]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        seen: list[Seen] = []
        while len(seen) < len(records()):
            messages = consumer.consume(len(records()) - len(seen), TIMEOUT_S)
            assert messages, f"only {len(seen)} records came"
            for message in messages:
                assert message.error() is None
                seen.append(
                    Seen(
                        partition=message.partition(),
                        offset=message.offset(),
                        key=message.key(),
                        value=message.value(),
                        headers=tuple((name, value) for name, value in message.headers() or ()),
                        timestamp_ms=message.timestamp()[1],
                    )
                )
        return seen
    finally:
        consumer.close()


def kafka_python_write(bootstrap: str, topic: str, compression: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        compression_type=None if compression == "none" else compression,
        linger_ms=20,
    )
    try:
        sent = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records()
        ]
        written = [future.get(TIMEOUT_S) for future in sent]
        assert [(w.partition, w.offset) for w in written] == [(r.partition, r.offset) for r in records()]
    finally:
        producer.close()


def kafka_python_read(bootstrap: str, topic: str) -> list[Seen]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap.split(","), enable_auto_commit=False, group_id=None)
    try:
        places = [kafka.TopicPartition(topic, p) for p in range(PARTITIONS)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        seen: list[Seen] = []
        while len(seen) < len(records()):
            polled = wait_for(lambda: consumer.poll(timeout_ms=500), f"more than {len(seen)} records")
            seen += [of_python(record) for batch in polled.values() for record in batch]
        return seen
    finally:
        consumer.close()


def of_python(record: object) -> Seen:
    """kafka-python and aiokafka name the fields of a record alike."""
    return Seen(
        partition=record.partition,  # type: ignore[attr-defined]
        offset=record.offset,  # type: ignore[attr-defined]
        key=record.key,  # type: ignore[attr-defined]
        value=record.value,  # type: ignore[attr-defined]
        headers=tuple((name, value) for name, value in record.headers),  # type: ignore[attr-defined]
        timestamp_ms=record.timestamp,  # type: ignore[attr-defined]
    )


def aiokafka_write(bootstrap: str, topic: str, compression: str) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            compression_type=None if compression == "none" else compression,
            linger_ms=20,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records()
            ]
            written = await asyncio.gather(*sent)
        finally:
            await producer.stop()
        assert [(w.partition, w.offset) for w in written] == [(r.partition, r.offset) for r in records()]

    asyncio.run(asyncio.wait_for(write(), TIMEOUT_S * 2))


def aiokafka_read(bootstrap: str, topic: str) -> list[Seen]:
    async def read() -> list[Seen]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        await consumer.start()
        try:
            places = [aiokafka.TopicPartition(topic, p) for p in range(PARTITIONS)]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, 0)
            seen: list[Seen] = []
            while len(seen) < len(records()):
                polled = await consumer.getmany(timeout_ms=TIMEOUT_S * 1000)
                assert polled, f"only {len(seen)} records came"
                seen += [of_python(record) for batch in polled.values() for record in batch]
            return seen
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), TIMEOUT_S * 2))


WRITERS = {"confluent": confluent_write, "kafka-python": kafka_python_write, "aiokafka": aiokafka_write}
READERS = {"confluent": confluent_read, "kafka-python": kafka_python_read, "aiokafka": aiokafka_read}


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(TIMEOUT_S)
    cluster.wait_in_sync([topic])


@pytest.mark.parametrize("writer", WRITERS)
def test_what_one_client_writes_every_client_reads(cluster: Cluster, topic: str, writer: str) -> None:
    create(cluster, topic)
    WRITERS[writer](cluster.bootstrap, topic, "none")
    expected = records()
    for reader in READERS:
        assert sorted(READERS[reader](cluster.bootstrap, topic)) == expected, f"{writer} read by {reader}"


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_pass_through_unchanged(cluster: Cluster, topic: str, compression: str) -> None:
    create(cluster, topic)
    confluent_write(cluster.bootstrap, topic, compression)
    assert sorted(confluent_read(cluster.bootstrap, topic)) == records()
    assert sorted(aiokafka_read(cluster.bootstrap, topic)) == records()


def at_offset(partition: int, offset: int) -> Callable[[Seen], bool]:
    return lambda record: record.partition == partition and record.offset >= offset


def test_a_read_that_starts_inside_a_batch_gets_every_record_from_there(cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    confluent_write(cluster.bootstrap, topic, "none")
    expected = list(filter(at_offset(1, 17), records()))
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 1, 17)])
        got = []
        while len(got) < len(expected):
            messages = consumer.consume(len(expected) - len(got), TIMEOUT_S)
            assert messages
            got += [(message.offset(), message.value()) for message in messages]
    finally:
        consumer.close()
    assert got == [(record.offset, record.value) for record in expected]


def test_offsets_by_timestamp_and_watermarks(cluster: Cluster, topic: str) -> None:
    create(cluster, topic)
    confluent_write(cluster.bootstrap, topic, "none")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    try:
        stamp = next(r.timestamp_ms for r in records() if r.partition == 2 and r.offset == 11)
        asked = [confluent_kafka.TopicPartition(topic, 2, at) for at in (stamp, stamp + 1, stamp + 10**9)]
        assert [consumer.offsets_for_times([place], TIMEOUT_S)[0].offset for place in asked] == [
            11,
            12,
            confluent_kafka.OFFSET_END,
        ]
        place = confluent_kafka.TopicPartition(topic, 2)
        assert consumer.get_watermark_offsets(place, TIMEOUT_S) == (0, 40)
    finally:
        consumer.close()


def test_a_topic_is_made_by_its_first_record(cluster: Cluster, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce(topic, b"first")
    assert producer.flush(TIMEOUT_S) == 0
    view = cluster.describe([topic])
    assert {place for place in view.partitions if place[0] == topic} == {(topic, 0)}
