"""``holdfast metadata check`` and ``recover``: every copy of the metadata is gone, and comes back from the logs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from holdfast.testing import Cluster, mounts, wait_for

pytestmark = pytest.mark.embedded_store("directories of the metadata")

RECORDS = 300


def holdfast(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def produce(cluster: Cluster, topic: str, start: int) -> list[str]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    values = [f"{topic}-{n}" for n in range(start, start + RECORDS)]
    for value in values:
        producer.produce(topic, value, key=value)
    assert producer.flush(30) == 0
    return values


def holds_nothing(cluster: Cluster, topic: str, partitions: int) -> bool:
    """Whether every partition begins where it ends; nothing is read, so retention may delete meanwhile."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    try:
        places = [TopicPartition(topic, n) for n in range(partitions)]
        return all(low == high for low, high in (consumer.get_watermark_offsets(p, timeout=20) for p in places))
    finally:
        consumer.close()


def everything(cluster: Cluster, topic: str, partitions: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
    found: list[str] = []
    try:
        places = [TopicPartition(topic, n) for n in range(partitions)]
        ends = [consumer.get_watermark_offsets(place, timeout=20) for place in places]
        consumer.assign([TopicPartition(topic, n, low) for n, (low, _) in enumerate(ends)])
        wanted = sum(high - low for low, high in ends)
        while len(found) < wanted:
            message = consumer.poll(20)
            assert message is not None, f"{len(found)} of {wanted} records of {topic}"
            assert message.error() is None, message.error()
            found.append(message.value().decode())
    finally:
        consumer.close()
    return found


def config_of(cluster: Cluster, topic: str, key: str) -> Any:
    resource, admin = ConfigResource(ResourceType.TOPIC, topic), AdminClient({"bootstrap.servers": cluster.bootstrap})
    return admin.describe_configs([resource])[resource].result(20)[key].value


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_A5_all_copies_wiped_recover_brings_back_every_record_of_every_topic(end: str) -> None:
    folder = mounts.scratch()
    try:
        topics = {"plain": (3, {}), "kept": (2, {"retention.ms": "86400000", "min.insync.replicas": "2"})}
        values: dict[str, list[str]] = {}
        with Cluster(data_dir=folder) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            made = admin.create_topics([NewTopic(t, n, 3, config=c) for t, (n, c) in topics.items()])
            for future in made.values():
                future.result(20)
            for topic in topics:
                values[topic] = produce(cluster, topic, 0)
            wait_for(lambda: len(list(folder.glob("broker-*/log-dir-*/holdfast.topics"))) == 6, "the configurations")
            running = holdfast("metadata", "check", "--data-dir", str(folder))
            assert running.returncode == 0, running.stdout + running.stderr
            assert running.stdout.count(": good\n") == 2
            refused = holdfast("metadata", "recover", "--data-dir", str(folder), "--execute")
            assert refused.returncode == 1 and "stop all of them first" in refused.stderr
            if end == "kill":
                for pid in cluster.live().values():
                    os.kill(pid, signal.SIGKILL)
        refused = holdfast("metadata", "recover", "--data-dir", str(folder), "--execute")
        assert refused.returncode == 1 and "is a good copy" in refused.stderr
        for name in ("metadata", "metadata-2"):
            shutil.rmtree(folder / name)
        checked = holdfast("metadata", "check", "--data-dir", str(folder))
        assert checked.returncode == 2
        shown = holdfast("metadata", "recover", "--data-dir", str(folder))
        assert shown.returncode == 0, shown.stdout + shown.stderr
        assert "plain-0: replicas" in shown.stdout and "Nothing was changed" in shown.stdout
        assert not list(folder.glob("metadata*/copy.id"))
        done = holdfast("metadata", "recover", "--data-dir", str(folder), "--execute")
        assert done.returncode == 0, done.stdout + done.stderr
        with Cluster(data_dir=folder) as cluster:
            cluster.wait_in_sync(list(topics))
            for topic, (partitions, configs) in topics.items():
                assert sorted(everything(cluster, topic, partitions)) == sorted(values[topic])
                for key, value in configs.items():
                    assert config_of(cluster, topic, key) == value
            for topic, (partitions, _) in topics.items():
                values[topic] += produce(cluster, topic, RECORDS)  # a producer id that nobody had
                assert sorted(everything(cluster, topic, partitions)) == sorted(values[topic])
            assert len(list(folder.glob("broker-*/log-dir-*/holdfast.recovered"))) == 6
            confirmed = holdfast("metadata", "confirm", "--data-dir", str(folder))
            assert confirmed.returncode == 0 and "6 log directories" in confirmed.stdout
            assert not list(folder.glob("broker-*/log-dir-*/holdfast.recovered"))
    finally:
        mounts.remove(folder)


def test_A5_a_start_with_the_copy_that_was_left_out_is_refused_and_force_goes_on() -> None:
    folder = mounts.scratch()
    try:
        with Cluster(data_dir=folder) as cluster:
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            admin.create_topics([NewTopic("both", 1, 3)])["both"].result(20)
            stale = Path(f"{folder}-{uuid.uuid4().hex}")
            shutil.copytree(folder / "metadata", stale)
            shutil.rmtree(folder / "metadata")
            (folder / "metadata").touch()  # nothing can be filled there
            admin.create_topics([NewTopic("one", 1, 3)])["one"].result(20)
        (folder / "metadata").unlink()
        shutil.rmtree(folder / "metadata-2")
        stale.rename(folder / "metadata")
        checked = holdfast("metadata", "check", "--data-dir", str(folder))
        assert checked.returncode == 2 and "left out: it lacks decisions" in checked.stdout
        forced = holdfast("metadata", "force", str(folder / "metadata"), "--data-dir", str(folder))
        assert forced.returncode == 0, forced.stderr
        with Cluster(data_dir=folder) as cluster:
            cluster.wait_in_sync(["both"])
            wait_for(
                lambda: holdfast("metadata", "check", "--data-dir", str(folder)).returncode == 0, "both copies good"
            )
    finally:
        mounts.remove(folder)
