"""One damaged batch on a disk that works (K18-03): the replica is given up and made anew, the last copy is not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from holdfast.testing import Cluster, ClusterError, wait_for
from tests.system.on_disks import QUIET, TIMEOUT_S, create, read_all

pytestmark = pytest.mark.system

BATCHES = 5


def produce(cluster: Cluster, topic: str) -> list[bytes]:
    """Each record in a batch of its own."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "acks": "all", **QUIET}
    )
    values = [b"value %d" % number for number in range(BATCHES)]
    for value in values:
        producer.produce(topic, value, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    return values


def segment(cluster: Cluster, broker: int, topic: str) -> Path:
    (path,) = cluster.folder_of(broker, topic, 0).glob("*.log")
    return path


def copy_of(cluster: Cluster, broker: int, topic: str) -> bytes | None:
    """What a replica holds; None while it is made anew."""
    try:
        return segment(cluster, broker, topic).read_bytes()
    except (ClusterError, ValueError, FileNotFoundError):
        return None


def damage(cluster: Cluster, broker: int, topic: str) -> None:
    """One byte of the third value in the file."""
    with segment(cluster, broker, topic).open("r+b") as file:
        at = file.read().index(b"value 2")
        file.seek(at)
        file.write(b"V")


def is_online(cluster: Cluster, broker: int) -> bool:
    return all(view.error == 0 for view in cluster.describe_log_dirs(broker).values())


def test_K18_03_a_damaged_leader_is_given_up_and_made_anew_from_one_that_is_whole(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2, 3]], min_insync_replicas="1")
    values = produce(cluster, topic)
    cluster.kill(2)
    shutil.rmtree(cluster.folder_of(2, topic, 0))
    damage(cluster, 1, topic)
    cluster.revive()

    def whole() -> bool:
        seen = cluster.describe([topic]).partitions[topic, 0]
        files = [copy_of(cluster, broker, topic) for broker in (1, 2, 3)]
        return len(seen.isr) == 3 and None not in files and len(set(files)) == 1

    wait_for(whole, f"all replicas of {topic} to be whole", timeout_s=TIMEOUT_S)
    assert b"value 2" in segment(cluster, 1, topic).read_bytes()
    assert read_all(cluster, topic, 0) == values
    assert is_online(cluster, 1)


def test_K18_03_the_last_copy_is_led_with_as_it_is(own_cluster: Callable[..., Cluster], topic: str) -> None:
    """What is before the damaged batch can be read, what comes after it written; nobody else could take its place."""
    cluster = own_cluster(brokers=2)
    create(cluster, topic, [[1, 2]], min_insync_replicas="1")
    values = produce(cluster, topic)
    cluster.kill(2)
    shutil.rmtree(cluster.folder_of(2, topic, 0))
    damage(cluster, 1, topic)
    cluster.revive()
    log = cluster.data_dir / "broker-1.log"
    wait_for(lambda: "is damaged" in log.read_text(), "broker 1 to find it", timeout_s=TIMEOUT_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET})
    producer.produce(topic, b"later", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    seen = cluster.describe([topic]).partitions[topic, 0]
    assert (seen.leader, list(seen.isr)) == (1, [1])
    found = read_all(cluster, topic, 0)  # a client that does not look at checksums
    assert (found[:2], len(found)) == (values[:2], BATCHES + 1)
    assert is_online(cluster, 1)
