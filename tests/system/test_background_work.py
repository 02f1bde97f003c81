"""What the background lane of a disk does, on a real broker: groups are loaded by another process, deleted files go."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.broker.coordinator_loading import PROCESS_BYTES
from holdfast.groups.offset_records import encode_offset, encode_offset_key
from holdfast.groups.types import OffsetAndMetadata
from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.storage.files import OsFiles
from holdfast.storage.log import Log
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.removal import CUT_BYTES
from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import Load, create, log_of

pytestmark = pytest.mark.system

OFFSETS = TopicPartition("__consumer_offsets", 0)
GROUPS, COMMITS = 3, 6_000
NOTE = "n" * 1000
"""What clients may keep with an offset: commits of this size make a large partition of a few of them."""
TIMEOUT_S = 60.0


def add_commits(path: Path, batches: Sequence[bytearray]) -> int:
    """To the log of a broker that is stopped; its size in bytes."""
    directory = LogDir(str(path), OsFiles(), InlineQueue())
    now_ms = int(time.time() * 1000)
    log = Log.open(directory, OFFSETS, None, LogConfig(), clean_shutdown=True, now_ms=now_ms)
    for batch in batches:
        log.append_as_leader(batch, log.view.last_epoch or 0, now_ms, trusted=True)
    log.close(clean=True)
    return log.view.size


def commits() -> list[bytearray]:
    """Of three groups in turn, each in ten partitions, with growing offsets."""
    found = []
    for i in range(COMMITS):
        key = encode_offset_key(f"consumers-of-it-{i % GROUPS}", TopicPartition("t", i // GROUPS % 10))
        value = encode_offset(OffsetAndMetadata(i, 0, NOTE, int(time.time() * 1000)))
        found.append(encode_batch([Record(0, 1, key, value)], base_sequence=0))
    return found


def committed(cluster: Cluster, group: str, partitions: int) -> list[int] | None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        wanted = [confluent_kafka.TopicPartition("t", p) for p in range(partitions)]
        return [each.offset for each in consumer.committed(wanted, timeout=10.0)]
    except confluent_kafka.KafkaException:
        return None
    finally:
        consumer.close()


def test_D1_the_next_coordinator_has_a_large_partition_read_by_another_process() -> None:
    settings = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "2"}
    with Cluster(brokers=2, log_dirs=1, settings=settings) as cluster:
        create(cluster, "t", [[1, 2]] * 10)
        wait_for(lambda: committed(cluster, "first", 1) == [-1001], "a coordinator", timeout_s=TIMEOUT_S)
        cluster.wait_in_sync()
        cluster.stop()
        batches = commits()
        for broker in (1, 2):
            assert add_commits(cluster.log_dir(broker, 1), batches) > PROCESS_BYTES
        cluster.start()
        cluster.wait_in_sync()
        leader = cluster.describe([OFFSETS.topic]).partitions[OFFSETS.topic, 0].leader
        assert leader is not None
        cluster.kill(leader)
        last = COMMITS - 10 * GROUPS
        for group in range(GROUPS):
            newest = [last + GROUPS * partition + group for partition in range(10)]
            name = f"consumers-of-it-{group}"
            wait_for(lambda name=name, newest=newest: committed(cluster, name, 10) == newest, name, timeout_s=TIMEOUT_S)  # type: ignore[misc]
        said = log_of(cluster, 3 - leader)
        assert "__consumer_offsets-0 is read: " in said
        assert "read by the broker itself" not in said


def test_D8_a_partition_of_several_segments_goes_while_others_are_written() -> None:
    settings = {"log.segment.delete.delay.ms": "500"}
    with Cluster(brokers=1, log_dirs=1, settings=settings) as cluster:
        create(cluster, "big", [[1]], segment_bytes=str(3 * CUT_BYTES))
        create(cluster, "t", [[1]])
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        value = os.urandom(900_000)
        for _ in range(8 * CUT_BYTES // len(value)):
            producer.produce("big", value, partition=0)
            producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        folder = cluster.folder_of(1, "big", 0)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        assert len(list(folder.glob("*.log"))) == 3
        with Load(cluster, "t") as load:
            admin.delete_topics(["big"])["big"].result(TIMEOUT_S)
            wait_for(lambda: not list(folder.parent.glob("big-0*")), "the files to be gone", timeout_s=TIMEOUT_S)
            load.progress()
        assert "is degraded" not in log_of(cluster, 1)
        assert "housekeeping failed" not in log_of(cluster, 1)
        admin.create_topics([NewTopic("big", 1, 1)])["big"].result(TIMEOUT_S)
