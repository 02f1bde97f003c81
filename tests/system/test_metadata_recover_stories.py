"""Every copy of the metadata is wiped under three brokers whose replicas differ; groups and producers go on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.records.batch import iter_headers
from holdfast.records.record import BatchBuilder
from holdfast.testing import Cluster, mounts, wait_for
from tests.system.on_disks import log_of, read_all
from tests.system.test_metadata_recover import config_of, everything, holdfast, holds_nothing, produce

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("directories of the metadata")]
HOUR_MS = 3_600_000


@pytest.fixture
def folder() -> Iterator[Path]:
    made = mounts.scratch()
    yield made
    mounts.remove(made)


def wipe_and_recover(folder: Path) -> str:
    """What it said before it did it. Everything was ended by kill -9."""
    for name in ("metadata", "metadata-2"):
        shutil.rmtree(folder / name)
    shown = holdfast("metadata", "recover", "--data-dir", str(folder))
    assert shown.returncode == 0, shown.stdout + shown.stderr
    done = holdfast("metadata", "recover", "--data-dir", str(folder), "--execute")
    assert done.returncode == 0, done.stdout + done.stderr
    return shown.stdout


def segment_of(folder: Path, broker: int, topic: str) -> Path:
    """The active segment of partition 0 of a topic."""
    (replica,) = folder.glob(f"broker-{broker}/log-dir-*/{topic}-0")
    return max(replica.glob("*.log"))


def send(cluster: Cluster, topic: str, values: list[str]) -> list[str]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    return values


def test_A5_recover_where_one_replica_is_shorter_and_one_longer_of_an_older_leader_epoch(folder: Path) -> None:
    """3 was down for the second hundred, 1 for the third; and 1 has more than 2 of what it wrote as the leader before,
    which was never acknowledged."""
    with Cluster(data_dir=folder) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        new = NewTopic("t", 1, replica_assignment=[[1, 2, 3]], config={"min.insync.replicas": "1"})
        admin.create_topics([new])["t"].result(30)
        cluster.wait_in_sync(["t"])
        acked = send(cluster, "t", [f"all-{n}" for n in range(100)])
        cluster.kill(3)
        acked += send(cluster, "t", [f"two-{n}" for n in range(100)])
        cluster.kill(1)
        wait_for(lambda: cluster.describe(["t"], broker=2).partitions["t", 0].leader == 2, "that 2 leads")
        acked += send(cluster, "t", [f"one-{n}" for n in range(100)])
        cluster.kill_all()
    older = segment_of(folder, 1, "t")
    *_, (_, last) = iter_headers(older.read_bytes())
    builder = BatchBuilder(base_offset=last.next_offset, leader_epoch=last.partition_leader_epoch)
    for n in range(300):
        builder.append(None, b"never acknowledged %d" % n, int(time.time() * 1000))
    with older.open("ab") as file:
        file.write(bytes(builder.build()))
    ends = {n: [h for _, h in iter_headers(segment_of(folder, n, "t").read_bytes())][-1] for n in (1, 2, 3)}
    assert ends[3].next_offset < ends[2].next_offset < ends[1].next_offset
    assert ends[1].partition_leader_epoch < ends[2].partition_leader_epoch
    wipe_and_recover(folder)
    with Cluster(data_dir=folder) as cluster:
        cluster.wait_in_sync(["t"])
        assert [value.decode() for value in read_all(cluster, "t", 0)] == acked
        acked += send(cluster, "t", [f"after-{n}" for n in range(100)])
        assert [value.decode() for value in read_all(cluster, "t", 0)] == acked
        wait_for(lambda: len({segment_of(folder, n, "t").read_bytes() for n in (1, 2, 3)}) == 1, "three equal replicas")


def producer_ids(folder: Path) -> set[int]:
    """Of every batch of every log."""
    found = set()
    for path in folder.glob("broker-*/log-dir-*/*-*/*.log"):
        found |= {header.producer_id for _, header in iter_headers(path.read_bytes())}
    return found - {-1}


def committed(cluster: Cluster, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(30).topic_partitions
    return {(place.topic, place.partition): place.offset for place in found}


def test_A5_recover_brings_back_topics_configurations_commits_and_no_producer_id_comes_twice(folder: Path) -> None:
    topics = {"plain": (3, {}), "old": (2, {"retention.ms": str(HOUR_MS)}), "whole": (1, {"min.insync.replicas": "2"})}
    settings = {"log.initial.task.delay.ms": str(HOUR_MS), "log.retention.check.interval.ms": str(HOUR_MS)}
    values: dict[str, list[str]] = {}
    with Cluster(data_dir=folder, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        made = admin.create_topics([NewTopic(t, n, 3, config=c) for t, (n, c) in topics.items()])
        for future in made.values():
            future.result(30)
        for topic in ("plain", "whole"):
            values[topic] = produce(cluster, topic, 0)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
        long_ago_ms = int(time.time() * 1000) - 24 * HOUR_MS
        values["old"] = [f"old-{n}" for n in range(200)]
        for n, value in enumerate(values["old"]):
            producer.produce("old", value, partition=n % 2, timestamp=long_ago_ms)
        assert producer.flush(30) == 0
        commits = {("plain", n): 10 + n for n in range(3)} | {("whole", 0): 299}
        for group, more in (("g", 0), ("h", 1)):
            consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
            offsets = [TopicPartition(t, n, offset + more) for (t, n), offset in commits.items()]
            consumer.commit(offsets=offsets, asynchronous=False)
            consumer.close()
        wait_for(lambda: len(list(folder.glob("broker-*/log-dir-*/holdfast.topics"))) == 6, "the configurations")
        cluster.kill_all()
    before = producer_ids(folder)
    assert len(before) >= 3
    shown = wipe_and_recover(folder)
    assert "4 topics, 56 partitions" in shown  # with the one of the groups
    settings = {"log.initial.task.delay.ms": "200", "log.retention.check.interval.ms": "200"}
    with Cluster(data_dir=folder, settings=settings) as cluster:
        cluster.wait_in_sync([*topics, "__consumer_offsets"])
        for topic, (_, configs) in topics.items():
            for key, value in configs.items():
                assert config_of(cluster, topic, key) == value
        assert committed(cluster, "g") == commits
        assert committed(cluster, "h") == {place: offset + 1 for place, offset in commits.items()}
        for topic in ("plain", "whole"):
            values[topic] += produce(cluster, topic, 300)
        after = producer_ids(folder) - before
        assert after and min(after) > max(before), "ids that nobody had"
        held = "the metadata was rebuilt: retention deletes nothing"
        counts = {n: log_of(cluster, n).count(held) for n in (1, 2, 3)}
        wait_for(lambda: all(log_of(cluster, n).count(held) > c + 4 for n, c in counts.items()), "retention's rounds")
        for topic, (partitions, _) in topics.items():
            assert sorted(everything(cluster, topic, partitions)) == sorted(values[topic])
        assert holdfast("metadata", "confirm", "--data-dir", str(folder)).returncode == 0
        wait_for(lambda: holds_nothing(cluster, "old", 2), "that retention goes on", timeout_s=30)
        for topic in ("plain", "whole"):
            assert sorted(everything(cluster, topic, topics[topic][0])) == sorted(values[topic])
