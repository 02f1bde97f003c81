"""Replicas that move between the disks of real brokers, asked for by a stock client, under load and under kill -9."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.admin import KafkaAdminClient

from holdfast.testing import Cluster, wait_for
from holdfast.testing.disks import EioDisk
from tests.system.test_returning_brokers import assert_equal_replicas, create, folder_of, produce

pytestmark = pytest.mark.system

TIMEOUT_S = 30
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


def move(cluster: Cluster, wishes: dict[tuple[str, int, int], Path]) -> None:
    """(topic, partition, broker) -> the dir that it is to be on; Kafka's own client asks."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        answers = admin.alter_replica_log_dirs({wish: str(path) for wish, path in wishes.items()})
    finally:
        admin.close()
    assert all(answer.errno == 0 for answer in answers.values()), answers


def other_dir(cluster: Cluster, topic: str, partition: int, broker: int) -> Path:
    here = folder_of(cluster, broker, topic, partition).parent
    return next(d for n in (1, 2) if (d := cluster.log_dir(broker, n)) != here)


def described(cluster: Cluster) -> list[dict[str, Any]]:
    """Every log dir of every broker, as DescribeLogDirs tells it."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        found = admin.describe_log_dirs()
    finally:
        admin.close()
    return [d | {"broker": b["broker"]} for b in found for d in b["log_dirs"]]


@contextmanager
def load(cluster: Cluster, topic: str, partitions: int) -> Iterator[list[tuple[int, int, bytes]]]:
    """An idempotent producer writes until the end of the block; (partition, offset, key) of what was acked."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0}
    )
    acked: list[tuple[int, int, bytes]] = []
    failed: list[object] = []
    stop = threading.Event()

    def told(error: object, message: confluent_kafka.Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            acked.append((message.partition(), message.offset(), message.key()))

    def run() -> None:
        number = 0
        while not stop.is_set():
            if len(producer) < 2000:
                producer.produce(topic, b"v" * 300, b"%d" % number, number % partitions, on_delivery=told)
                number += 1
            producer.poll(0 if number % 20 else 0.005)
        producer.flush(TIMEOUT_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for(lambda: len(acked) > 100, "records to be acked", timeout_s=TIMEOUT_S)
        yield acked
    finally:
        stop.set()
        thread.join(TIMEOUT_S)
    assert failed == []
    assert len(producer) == 0


def read(cluster: Cluster, topic: str, partitions: int, count: int) -> dict[tuple[int, int], bytes]:
    """(partition, offset) -> key of the first ``count`` records that a consumer gets."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
    found: dict[tuple[int, int], bytes] = {}

    def enough() -> bool:
        for message in consumer.consume(5000, 0.2):
            assert message.error() is None, message.error()
            found[message.partition(), message.offset()] = message.key()
        return len(found) >= count

    wait_for(enough, f"{count} records", timeout_s=TIMEOUT_S)
    consumer.close()
    return found


def test_H_18_K113_01_two_hundred_replicas_move_under_load_and_no_disk_is_blamed(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    partitions = 68
    cluster = own_cluster(settings={"log.segment.delete.delay.ms": "200"})
    create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]] * (partitions // 4))
    produce(cluster, topic, partitions, 20)
    replicas = [(topic, p, b) for p in range(partitions) for b in (1, 2, 3)]
    with load(cluster, topic, partitions) as acked:
        wishes = {wish: other_dir(cluster, *wish) for wish in replicas}
        move(cluster, wishes)

        def moved() -> bool:
            return all(folders(cluster, *wish) == [path] for wish, path in wishes.items())

        wait_for(moved, f"{len(wishes)} moves", timeout_s=TIMEOUT_S)
    for directory in described(cluster):
        assert directory["error_code"] == 0
        assert not any(p["is_future_key"] for t in directory["topics"] for p in t["partitions"])
    held = read(cluster, topic, partitions, len(acked) + 20 * partitions)
    assert all(held[partition, offset] == key for partition, offset, key in acked)
    assert_equal_replicas(cluster, topic)
    log = "".join(path.read_text(errors="replace") for path in cluster.data_dir.glob("*.log"))
    assert "is offline" not in log


def folders(cluster: Cluster, topic: str, partition: int, broker: int) -> list[Path]:
    """The dirs that have the replica under its own name."""
    return [d for n in (1, 2) if (d := cluster.log_dir(broker, n)) and (d / f"{topic}-{partition}").exists()]


def futures(cluster: Cluster, topic: str) -> list[Path]:
    return list(cluster.data_dir.glob(f"broker-1/log-dir-*/{topic}-0.*-future"))


def size_of(folder: Path) -> int:
    try:
        return sum(file.stat().st_size for file in folder.glob("*.log"))
    except FileNotFoundError:
        return 0


def test_K113_07_killed_at_six_points_of_a_move_and_everything_is_there(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    """One replica, so that nobody else has what a crash would lose."""
    cluster = own_cluster(brokers=1, settings={THROTTLE: "1500000", "log.segment.delete.delay.ms": "1000"})
    create(cluster, topic, [[1]])
    count = len(produce(cluster, topic, 1, 2000))
    whole = size_of(folder_of(cluster, 1, topic, 0))

    def is_copied(share: float) -> Callable[[], bool]:
        return lambda: any(size_of(f) >= whole * share for f in futures(cluster, topic)) or is_renamed()

    def is_renamed() -> bool:
        return (target / f"{topic}-0").exists()

    def is_through() -> bool:
        return folders(cluster, topic, 0, 1) == [target]

    points: list[Callable[[], bool]] = [
        lambda: bool(futures(cluster, topic)), is_copied(0.2), is_copied(0.6), is_copied(0.999), is_renamed, is_through,
    ]  # fmt: skip
    for point in points:
        target = other_dir(cluster, topic, 0, 1)
        move(cluster, {(topic, 0, 1): target})
        wait_for(point, "the point of the move", timeout_s=TIMEOUT_S, interval_s=0.001)
        cluster.kill(1)
        cluster.revive()
        wait_for(is_through, "the move to go on", timeout_s=TIMEOUT_S)
        wait_for(lambda: not futures(cluster, topic), "no copies to be left", timeout_s=TIMEOUT_S)
        count += len(produce(cluster, topic, 1, 10))
    held = read(cluster, topic, 1, count)
    assert sorted(held) == [(0, offset) for offset in range(count)]


def test_F4_K113_05_a_throttle_that_is_set_on_the_running_broker_holds(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster(brokers=1)
    create(cluster, topic, [[1]])
    produce(cluster, topic, 1, 8000)
    whole, rate = size_of(folder_of(cluster, 1, topic, 0)), 2_000_000
    assert whole > 1.5 * rate
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    entry = ConfigEntry(THROTTLE, str(rate), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    target = other_dir(cluster, topic, 0, 1)
    lags: list[int] = []
    began_s = time.monotonic()
    move(cluster, {(topic, 0, 1): target})

    def is_through() -> bool:
        for directory in described(cluster):
            for t in directory["topics"]:
                for p in t["partitions"]:
                    if p["is_future_key"]:
                        assert directory["log_dir"] == str(target)
                        lags.append(p["offset_lag"])
        return folders(cluster, topic, 0, 1) == [target]

    wait_for(is_through, "the move", timeout_s=TIMEOUT_S, interval_s=0.02)
    took_s = time.monotonic() - began_s
    assert whole / took_s <= rate * 1.1
    assert lags == sorted(lags, reverse=True)
    assert lags[0] > lags[-1]


@pytest.mark.parametrize("dying", ["target", "source"])
def test_K113_06_a_disk_dies_for_real_in_the_middle_of_a_move(
    own_cluster: Callable[..., Cluster], topic: str, dying: str
) -> None:
    cluster = own_cluster(
        disks={(1, 1): EioDisk, (1, 2): EioDisk},
        data_dir=None,
        settings={THROTTLE: "1000000", "log.dir.probe.interval.ms": "500"},
    )
    create(cluster, topic, [[1, 2, 3], [1, 3, 2]])
    produce(cluster, topic, 2, 3000)
    with load(cluster, topic, 2) as acked:
        target = other_dir(cluster, topic, 0, 1)
        source = next(cluster.log_dir(1, n) for n in (1, 2) if cluster.log_dir(1, n) != target)
        move(cluster, {(topic, 0, 1): target})
        wait_for(lambda: any(map(size_of, futures(cluster, topic))), "a part of the copy", timeout_s=TIMEOUT_S)
        dead = target if dying == "target" else source
        next(disk for disk in cluster.disks.values() if disk.path == dead).fail()
        so_far = len(acked)
        wait_for(lambda: len(acked) > so_far + 2000, "records to be acked after it", timeout_s=TIMEOUT_S)

        def is_told() -> bool:
            errors = {d["log_dir"]: d["error_code"] for d in described(cluster) if d["broker"] == 1}
            return errors == {str(d): 56 if d == dead else 0 for d in (source, target)}

        wait_for(is_told, "one dead disk, and one that works", timeout_s=TIMEOUT_S)
    alive = source if dying == "target" else target
    wait_for(lambda: not list(alive.glob(f"{topic}-0.*-future")), "the copy to be gone", timeout_s=TIMEOUT_S)
    assert (alive / f"{topic}-0").exists() == (dying == "target")
    held = read(cluster, topic, 2, len(acked) + 6000)
    assert all(held[partition, offset] == key for partition, offset, key in acked)
