"""Log compaction on real brokers, with stock clients: what is superseded goes, what a reader sees is the newest of each
key, and no kill, move or change of policy alters that."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import QUIET, create
from tests.system.test_background_work import committed
from tests.system.test_moves import move, other_dir

pytestmark = pytest.mark.system

SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "500",
}
COMPACTED = {"cleanup_policy": "compact", "segment_bytes": "1048576"}
KEYS, PAD = 100, b"." * 1000
NOTE = "n" * 1000
"""What a client keeps with an offset."""
MIB = 1 << 20
TIMEOUT_S = 60.0


def put(cluster: Cluster, topic: str, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
    """In this order, all of them acknowledged."""
    errors: list[object] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5, **QUIET}
    producer = confluent_kafka.Producer(settings)
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0, on_delivery=lambda e, m: errors.append(e) if e else None)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert not errors, errors[:3]


def rounds(first: int, count: int) -> Iterable[tuple[bytes, bytes]]:
    return ((b"k%d" % key, b"%d" % number + PAD) for number in range(first, first + count) for key in range(KEYS))


def newest(cluster: Cluster, topic: str) -> tuple[dict[bytes, bytes | None], int]:
    """The newest value of each key as a reader finds it, tombstones too; and how many records there are."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "reads", "enable.auto.commit": False, **QUIET}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True})
    found: dict[bytes, bytes | None] = {}
    count = 0
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while (message := consumer.poll(TIMEOUT_S)) is not None:
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                return found, count
            key = message.key()
            assert isinstance(key, bytes)
            value = message.value()
            found[key] = value if value is None or isinstance(value, bytes) else value.encode()
            count += 1
    finally:
        consumer.close()
    raise AssertionError("no end of the partition")


def size_of(cluster: Cluster, broker: int, topic: str) -> int:
    """Bytes of the batches that the log has."""
    while True:
        try:
            return sum(path.stat().st_size for path in cluster.folder_of(broker, topic, 0).glob("*.log"))
        except FileNotFoundError:  # one was replaced meanwhile
            continue


def wait_small(cluster: Cluster, topic: str, brokers: Iterable[int] = (1, 2), most: int = 2 * MIB) -> None:
    for broker in brokers:
        wait_for(
            lambda b=broker: size_of(cluster, b, topic) < most,
            f"{topic} is cleaned on broker {broker}",
            timeout_s=TIMEOUT_S,
        )


def test_a_log_keeps_the_newest_of_each_key_whatever_happens_to_its_brokers() -> None:
    with Cluster(brokers=2, settings=SETTINGS) as cluster:
        create(cluster, "t", [[1, 2]], **COMPACTED)
        put(cluster, "t", rounds(0, 50))
        wait_small(cluster, "t")
        found, count = newest(cluster, "t")
        assert found == dict(rounds(49, 1))
        assert count < 25 * KEYS
        for path in (cluster.log_dir(broker, number) for broker in (1, 2) for number in (1, 2)):
            assert "cleaner-offset-checkpoint" in [p.name for p in Path(path).iterdir()]

        for broker in (1, 2):  # killed while it is written and cleaned
            put(cluster, "t", rounds(50 * broker, 40))
            cluster.kill(broker)
            put(cluster, "t", rounds(50 * broker + 40, 10))
            cluster.revive()
            cluster.wait_in_sync(["t"])
        wait_small(cluster, "t")
        assert newest(cluster, "t")[0] == dict(rounds(109 + 40, 1)) or newest(cluster, "t")[0] == dict(rounds(149, 1))

        there = other_dir(cluster, "t", 0, 1)
        move(cluster, {("t", 0, 1): there})
        wait_for(lambda: (there / "t-0").is_dir(), "the replica has moved", timeout_s=TIMEOUT_S)
        put(cluster, "t", rounds(150, 30))
        wait_small(cluster, "t")
        assert newest(cluster, "t")[0] == dict(rounds(179, 1))


def test_what_was_deleted_is_gone_after_its_time() -> None:
    with Cluster(brokers=1, log_dirs=1, settings=SETTINGS) as cluster:
        create(cluster, "t", [[1]], delete_retention_ms="1", **COMPACTED)
        put(cluster, "t", rounds(0, 5))
        put(cluster, "t", ((b"k%d" % key, None) for key in range(0, KEYS, 2)))
        rest = {key: value for key, value in rounds(4, 1) if int(key[1:]) % 2}

        def gone() -> bool:
            put(cluster, "t", ((b"more", PAD) for _ in range(1100)))  # a segment more
            found, _ = newest(cluster, "t")
            return {key: value for key, value in found.items() if key != b"more"} == rest

        wait_for(gone, "no tombstone is left", timeout_s=TIMEOUT_S)


def test_a_policy_that_changes_at_run_time_is_followed() -> None:
    with Cluster(brokers=1, log_dirs=1, settings={**SETTINGS, "log.cleaner.backoff.ms": "600000"}) as cluster:
        create(cluster, "t", [[1]], segment_bytes="1048576")
        put(cluster, "t", rounds(0, 40))
        assert size_of(cluster, 1, "t") > 3 * MIB
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[change])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(TIMEOUT_S)
        wait_small(cluster, "t", [1])
        assert newest(cluster, "t")[0] == dict(rounds(39, 1))
        with pytest.raises(AssertionError, match="INVALID_RECORD"):
            put(cluster, "t", [(None, b"x")])  # type: ignore[list-item]


def test_group_offsets_shrink_and_are_there() -> None:
    settings = {
        **SETTINGS, "offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1",
        "offsets.topic.segment.bytes": str(MIB),
    }  # fmt: skip
    with Cluster(brokers=1, log_dirs=1, settings=settings) as cluster:
        create(cluster, "t", [[1]] * 3)
        wait_for(lambda: committed(cluster, "g", 1) == [-1001], "a coordinator", timeout_s=TIMEOUT_S)
        consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", **QUIET})
        for number in range(1000):
            wanted = [confluent_kafka.TopicPartition("t", p, number, NOTE) for p in range(3)]
            consumer.commit(offsets=wanted, asynchronous=False)
        consumer.close()
        wait_for(
            lambda: size_of(cluster, 1, "__consumer_offsets") < 3 * MIB // 2, "offsets are cleaned", timeout_s=TIMEOUT_S
        )
        cluster.kill(1)
        cluster.revive()
        cluster.wait_in_sync()
        wait_for(lambda: committed(cluster, "g", 3) == [999] * 3, "the offsets are loaded", timeout_s=TIMEOUT_S)
