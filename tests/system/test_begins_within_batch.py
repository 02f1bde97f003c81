"""Real brokers and stock clients: replicas of a log that begins within a batch (DeleteRecords), made anew."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from holdfast.records.batch import iter_headers
from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import QUIET, TIMEOUT_S, create

pytestmark = pytest.mark.system

RECORDS, START, WHOLE_S = 20, 5, 5.0


def one_batch(cluster: Cluster, topic: str, codec: str) -> None:
    """All records in one batch of partition 0."""
    settings = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 60_000, "compression.type": codec, "acks": "all"}
    producer = confluent_kafka.Producer({**settings, **QUIET})
    # What is written before the client knows the partition is moved to it later, and may be sent in two halves.
    assert producer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def delete_before(cluster: Cluster, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    [future] = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    assert future.result(TIMEOUT_S).low_watermark == offset


def begun_within_a_batch(cluster: Cluster, topic: str, codec: str) -> None:
    one_batch(cluster, topic, codec)
    (segment,) = cluster.folder_of(1, topic, 0).glob("*.log")
    assert [h.next_offset for _, h in iter_headers(segment.read_bytes())] == [RECORDS]
    delete_before(cluster, topic, START)


def reassign(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    path = cluster.data_dir / f"plan-{topic}.json"
    entry = {"topic": topic, "partition": 0, "replicas": replicas}
    path.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    words = ("reassign", "execute", "--reassignment-json-file", str(path), "--bootstrap-server", cluster.bootstrap)
    done = subprocess.run((sys.executable, "-m", "holdfast.cli.main", *words), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def read(cluster: Cluster, topic: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "any", "enable.partition.eof": True, **QUIET}
    )
    consumer.assign([TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found = []
    try:
        while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
            found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


def is_as_good(cluster: Cluster, topic: str, new: int, other: int) -> None:
    """The replica that was made has all that the one had that it was made from: it leads alone."""
    expected = read(cluster, topic)
    cluster.kill(other)

    def leads() -> bool:
        return cluster.describe([topic], broker=new).partitions[topic, 0].leader == new

    wait_for(leads, f"broker {new} to lead", timeout_s=TIMEOUT_S)
    assert read(cluster, topic) == expected


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_C_1_a_replica_comes_by_reassignment(own_cluster: Callable[..., Cluster], topic: str, codec: str) -> None:
    cluster = own_cluster(brokers=2)
    create(cluster, topic, [[1]])
    begun_within_a_batch(cluster, topic, codec)
    assert read(cluster, topic) == [b"%d" % n for n in range(START, RECORDS)]
    reassign(cluster, topic, [1, 2])
    cluster.wait_in_sync([topic], timeout_s=WHOLE_S)
    assert len(cluster.describe([topic]).partitions[topic, 0].isr) == 2
    is_as_good(cluster, topic, new=2, other=1)


def test_C_1_a_lost_copy_and_a_replaced_disk_are_filled_again(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(brokers=2)
    create(cluster, topic, [[1, 2]])
    begun_within_a_batch(cluster, topic, "zstd")
    cluster.kill(2)
    shutil.rmtree(cluster.folder_of(2, topic, 0))
    cluster.revive()
    cluster.wait_in_sync([topic], timeout_s=WHOLE_S)
    cluster.kill(2)
    disk = cluster.folder_of(2, topic, 0).parent
    shutil.rmtree(disk)
    disk.mkdir()
    cluster.revive()
    cluster.wait_in_sync([topic], timeout_s=WHOLE_S)
    is_as_good(cluster, topic, new=2, other=1)


def test_C_1_a_follower_behind_the_leaders_start(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(brokers=2)
    create(cluster, topic, [[1, 2]])
    one_batch(cluster, topic, "none")
    cluster.kill(2)
    one_batch(cluster, topic, "gzip")
    delete_before(cluster, topic, RECORDS + START)
    cluster.revive()
    cluster.wait_in_sync([topic], timeout_s=WHOLE_S)
    is_as_good(cluster, topic, new=2, other=1)
