"""Brokers that go and come back, with their disks, with other disks, or too late: what the cluster makes of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import Cluster, wait_for
from holdfast.testing.view import ask

pytestmark = pytest.mark.system

TIMEOUT_S = 30
VALUE = b"v" * 500


def create(cluster: Cluster, topic: str, assignment: list[list[int]], **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=config)
    admin.create_topics([new])[topic].result(TIMEOUT_S)


def produce(cluster: Cluster, topic: str, partitions: int, count: int, acks: str = "all") -> list[int]:
    """Writes ``count`` records to each partition; the offsets that were acknowledged, of all of them."""
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": acks, "retry.backoff.ms": 20, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    acked: list[int] = []

    def report(error: object, message: confluent_kafka.Message) -> None:
        assert error is None, error
        acked.append(message.offset())

    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, VALUE, b"%d" % number, partition, on_delivery=report)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return acked


def segments(cluster: Cluster, broker: int, topic: str, partition: int) -> bytes:
    """Everything that the broker has of the partition, in whichever of its log directories."""
    folders = list(cluster.data_dir.glob(f"broker-{broker}/log-dir-*/{topic}-{partition}"))
    assert len(folders) == 1, f"{topic}-{partition} on broker {broker}: {folders}"
    return b"".join(path.read_bytes() for path in sorted(folders[0].glob("*.log")))


def assert_equal_replicas(cluster: Cluster, topic: str) -> None:
    """Every replica's segments have the same bytes; nothing may be on its way."""
    view = cluster.wait_in_sync([topic])
    for (_, partition), seen in view.partitions.items():

        def equal(partition: int = partition, replicas: tuple[int, ...] = seen.replicas) -> bool:
            return len({segments(cluster, broker, topic, partition) for broker in replicas}) == 1

        wait_for(equal, f"equal replicas of {topic}-{partition}", timeout_s=TIMEOUT_S)
        assert segments(cluster, seen.replicas[0], topic, partition)


@contextmanager
def single_broker(cluster: Cluster, broker: int) -> Iterator[None]:
    """Runs one broker of the cluster apart from ``up``, until the end of the block."""
    command = [
        sys.executable,
        "-m",
        "holdfast.cli.main",
        "broker",
        str(cluster.data_dir / f"broker-{broker}.properties"),
    ]
    with open(os.devnull, "w") as nothing:
        process = subprocess.Popen(command, stderr=nothing, stdout=nothing)
    try:
        wait_for(lambda: broker in cluster.describe([]).brokers, f"broker {broker} by itself", timeout_s=TIMEOUT_S)
        yield
    finally:
        process.kill()
        process.wait()


def folder_of(cluster: Cluster, broker: int, topic: str, partition: int) -> Path:
    (folder,) = cluster.data_dir.glob(f"broker-{broker}/log-dir-*/{topic}-{partition}")
    return folder


def test_R_12_replicas_are_equal_byte_for_byte(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    produce(cluster, topic, 3, 500)
    assert_equal_replicas(cluster, topic)


def test_K112_07_a_replica_whose_directory_is_gone_is_made_again_and_filled(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2, 3], [2, 3, 1]])
    produce(cluster, topic, 2, 200)
    cluster.kill(3)
    shutil.rmtree(folder_of(cluster, 3, topic, 0))
    cluster.revive()
    assert_equal_replicas(cluster, topic)


@pytest.mark.either_store
def test_K112_40_an_empty_disk_is_filled_again(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]])
    produce(cluster, topic, 4, 200)
    cluster.kill(2)
    disk = folder_of(cluster, 2, topic, 0).parent
    shutil.rmtree(disk)
    disk.mkdir()
    produce(cluster, topic, 4, 100)
    cluster.revive()
    assert_equal_replicas(cluster, topic)


def test_K112_42_a_disk_that_returns_with_old_data_catches_up(
    own_cluster: Callable[..., Cluster], topic: str, tmp_path: Path
) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    produce(cluster, topic, 3, 100)
    cluster.kill(3)
    shutil.copytree(cluster.data_dir / "broker-3", tmp_path / "old")
    cluster.revive()
    cluster.wait_in_sync([topic])
    produce(cluster, topic, 3, 100)
    cluster.kill(1)
    produce(cluster, topic, 3, 100)
    cluster.kill(3)
    for disk in sorted((tmp_path / "old").glob("log-dir-*")):
        shutil.rmtree(cluster.data_dir / "broker-3" / disk.name)
        shutil.copytree(disk, cluster.data_dir / "broker-3" / disk.name)
    cluster.revive()
    assert_equal_replicas(cluster, topic)


def test_R_19_R_27_acks_1_may_lose_at_a_kill_but_never_diverges(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    for broker in (1, 2, 3):
        produce(cluster, topic, 3, 300, acks="1")
        cluster.kill(broker)
        produce(cluster, topic, 3, 300, acks="1")
        cluster.revive()
        cluster.wait_in_sync([topic])
    assert_equal_replicas(cluster, topic)


@pytest.mark.either_store
def test_R_39_a_replica_outside_the_isr_does_not_lead(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 2]])
    produce(cluster, topic, 1, 10)
    cluster.kill(2)
    acked = produce(cluster, topic, 1, 10)
    assert cluster.describe([topic]).partitions[topic, 0].isr == (1,)
    cluster.kill(1)
    with single_broker(cluster, 2):
        seen = cluster.describe([topic], broker=3).partitions[topic, 0]
        assert (seen.leader, seen.isr) == (None, (1,))
    cluster.revive()
    cluster.wait_in_sync([topic])
    assert produce(cluster, topic, 1, 1) == [acked[-1] + 1]
    assert_equal_replicas(cluster, topic)


def test_R_42_leadership_returns_to_the_preferred_replica(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(settings={"leader.imbalance.check.interval.seconds": "1"})
    create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    cluster.kill(2)
    wait_for(
        lambda: cluster.describe([topic], broker=1).partitions[topic, 1].leader not in (2, None),
        "another leader",
        timeout_s=TIMEOUT_S,
    )
    cluster.revive()

    def preferred() -> bool:
        partitions = cluster.describe([topic]).partitions.values()
        return all(seen.leader == seen.replicas[0] for seen in partitions)

    wait_for(preferred, "every partition to be led by its preferred replica", timeout_s=TIMEOUT_S)


def test_R_07_topics_are_made_on_the_brokers_that_live_or_where_they_are_told(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    cluster.kill(3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wait_for(lambda: set(cluster.describe([]).brokers) == {1, 2}, "broker 3 to be missed", timeout_s=TIMEOUT_S)
    admin.create_topics([NewTopic(f"{topic}-two", 4, 2)])[f"{topic}-two"].result(TIMEOUT_S)
    create(cluster, f"{topic}-told", [[2, 1], [1, 2]])
    partitions = cluster.describe([f"{topic}-two", f"{topic}-told"]).partitions
    assert all(set(partitions[f"{topic}-two", p].replicas) == {1, 2} for p in range(4))
    assert [partitions[f"{topic}-told", p].replicas for p in range(2)] == [(2, 1), (1, 2)]
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.create_topics([NewTopic(f"{topic}-three", 1, 3)])[f"{topic}-three"].result(TIMEOUT_S)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.INVALID_REPLICATION_FACTOR


def test_K112_93_every_broker_lists_the_replicas_of_a_dead_one(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster()
    create(cluster, topic, [[1, 3], [3, 1], [2, 1]])
    cluster.kill(3)
    for broker in (1, 2):

        def offline(broker: int = broker) -> bool:
            partitions = cluster.describe([topic], broker=broker).partitions
            return [partitions[topic, p].offline for p in range(3)] == [(3,), (3,), ()]

        wait_for(offline, f"the offline replicas as broker {broker} sees them", timeout_s=TIMEOUT_S)


def test_R_15_the_high_watermark_is_checkpointed_in_every_directory(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster(settings={"replica.high.watermark.checkpoint.interval.ms": "200"})
    create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]])
    produce(cluster, topic, 4, 25)

    def checkpointed() -> bool:
        for broker in (1, 2, 3):
            lines = [
                line
                for file in cluster.data_dir.glob(f"broker-{broker}/log-dir-*/replication-offset-checkpoint")
                for line in file.read_text().splitlines()
            ]
            if not {f"{topic} {partition} 25" for partition in range(4)} <= set(lines):
                return False
        return True

    wait_for(checkpointed, "the high watermarks on disk", timeout_s=TIMEOUT_S)


def test_coordinators_topics_made_while_a_broker_is_down_have_their_replicas_when_it_is_back() -> None:
    """With two replicas of three, all in sync that there have to be, they would stop with the next broker that dies."""
    settings = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
    with Cluster(brokers=3, settings=settings) as cluster:
        cluster.kill(1)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        wait_for(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "the death of broker 1", timeout_s=TIMEOUT_S)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": "late", "log_level": 0}
        )
        producer.init_transactions(TIMEOUT_S)
        group = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "late", "log_level": 0})
        group.committed([confluent_kafka.TopicPartition("late", 0)], TIMEOUT_S)
        group.close()
        cluster.revive()
        cluster.wait_in_sync(["__consumer_offsets", "__transaction_state"])
        topics = admin.list_topics(timeout=TIMEOUT_S).topics
        found = [sorted(p.isrs) for topic in topics.values() for p in topic.partitions.values()]
        assert found == [[1, 2, 3]] * 4


class Asked(threading.Thread):
    """Asks one broker for the metadata all the time; a context manager. ``told``: brokers in each answer."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(daemon=True)
        self._address = host, port
        self._over = threading.Event()
        self.told: list[set[int]] = []

    def run(self) -> None:
        while not self._over.is_set():
            with suppress(OSError):  # it is away
                self.told.append(set(ask(*self._address, timeout_s=2).brokers))

    def __enter__(self) -> Asked:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def test_no_client_is_told_that_there_is_no_broker_when_all_come_back() -> None:
    """librdkafka that was told so left all of them and read nothing any more (docs/reliability.md)."""
    with Cluster(brokers=3) as cluster, ExitStack() as asking:
        cluster.create_topic("t", partitions=3, replication_factor=3)
        cluster.wait_in_sync(["t"])
        all_of_them = [asking.enter_context(Asked(*address)) for address in cluster.addresses()]
        for _ in range(3):
            for broker in (1, 2, 3):
                cluster.kill(broker)
            before = [len(each.told) for each in all_of_them]
            cluster.revive()
            cluster.wait_in_sync(["t"])
            for each, known in zip(all_of_them, before, strict=True):
                wait_for(lambda e=each, k=known: {1, 2, 3} in e.told[k:], "every broker to tell of all", timeout_s=30)  # type: ignore[misc]
        assert all(brokers for each in all_of_them for brokers in each.told)
