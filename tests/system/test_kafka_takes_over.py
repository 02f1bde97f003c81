"""Apache Kafka takes over the partitions of a stopped broker of ours: serves them, ends what was open and goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers import kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.records.batch import iter_headers
from holdfast.testing.ports import free_port
from tests.system.kafka_directories import files_in, put_in_place
from tests.system.on_disks import QUIET, wait_ended
from tests.system.test_kafka_directories import ONE_EACH, TIMEOUT_S, make_internal_topics
from tests.system.test_kafka_reads_ours import KEYS, PAD, ROUNDS, Written
from tests.system.test_kafka_reads_ours import written as written

SETTINGS = {**ONE_EACH, "group.initial.rebalance.delay.ms": "0"}
CONFIG = {"t": {"retention.ms": "-1"}, "c": {"cleanup.policy": "compact", "segment.bytes": "1048576"}}


def end_of(files: dict[str, bytes]) -> int:
    """Where the partition ends."""
    return max(h.next_offset for name, data in files.items() if name.endswith(".log") for _, h in iter_headers(data))


@pytest.fixture
def taken_over(written: Written, tmp_path: Path) -> Iterator[kafka.Peer]:
    """A broker of Kafka 4.3.0 with our partitions in its directory."""
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    peer = kafka.Peer(
        jars=kafka.fetch(), data_dir=tmp_path, brokers=1, log_dirs=1, port=free_port(1), settings=settings
    )
    try:
        peer.format()
        peer.start_missing()
        peer.wait_ready()
        admin = AdminClient({"bootstrap.servers": peer.bootstrap, **QUIET})
        for made in admin.create_topics([NewTopic(t, 1, 1, config=config) for t, config in CONFIG.items()]).values():
            made.result(TIMEOUT_S)
        make_internal_topics(peer.bootstrap)
        peer.stop()
        for name in ("t-0", "c-0", "__consumer_offsets-0", "__transaction_state-0"):
            files = files_in(written.folder(name))
            put_in_place(tmp_path / "broker-1/log-dir-1" / name, files, end_of(files))
        peer.start_missing()
        peer.wait_ready()
        yield peer
    finally:
        peer.stop()


def reads(peer: kafka.Peer, topic: str) -> list[tuple[Any, Any]]:
    consumer = Consumer(
        {"bootstrap.servers": peer.bootstrap, "group.id": "reads", "enable.partition.eof": True,
         "enable.auto.commit": False, **QUIET}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[Any, Any]] = []
    while (message := consumer.poll(TIMEOUT_S)) is not None and not message.error():
        found.append((message.key(), message.value()))
    assert message is not None, "no end of the partition"
    consumer.close()
    return found


@pytest.mark.long("test_kafka_reads_ours.py has Kafka's tool read the same directories")
def test_kafka_goes_on_with_what_ours_left(taken_over: kafka.Peer, written: Written) -> None:
    assert reads(taken_over, "t") == written.committed
    newest = dict(reads(taken_over, "c"))
    assert newest == {b"dead": None, **{b"k%d" % key: b"%d" % (ROUNDS - 1) + PAD for key in range(KEYS)}}

    producer = Producer({"bootstrap.servers": taken_over.bootstrap, "transactional.id": "open", **QUIET})
    producer.init_transactions(TIMEOUT_S)  # Kafka's coordinator knows the one that is open, and aborts it
    producer.begin_transaction()
    producer.produce("t", b"goes on", b"k", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    wait_ended(taken_over.bootstrap, "open")
    assert reads(taken_over, "t") == [*written.committed, (b"k", b"goes on")]
    consumer = Consumer({"bootstrap.servers": taken_over.bootstrap, "group.id": "g", **QUIET})
    [offset] = consumer.committed([TopicPartition("t", 0)], TIMEOUT_S)
    consumer.close()
    assert offset.offset == 2  # not 3 (aborted), nor 9 (was open)
