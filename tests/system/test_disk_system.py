"""Kafka's own system test of failing log directories, and what KIP-112 asked of it: ST-2 to ST-4.

Three brokers with two directories each, as an unprivileged user; the second directory of a leader or of a follower of
topic 2 loses its permission to be written, with or without a restart of that broker after it. Topic 1 and the offsets
of the group lie in the first one. The clients of topic 2 go on; then the broker with one good directory is alone, and
has to serve topic 1.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import confluent_kafka
import pytest

from holdfast.testing import Cluster, wait_for
from holdfast.testing.disks import EioDisk, ModeDisk
from holdfast.testing.users import NOBODY
from tests.system.on_disks import (
    QUIET,
    STORAGE_ERROR,
    TIMEOUT_S,
    Load,
    create,
    errors_of_dirs,
    fetch_error,
    log_of,
    on_disk,
    produce_error,
    wait_offline,
    wait_told,
)

pytestmark = pytest.mark.system

ALL = (1, 2, 3)
NEVER = "3600000"
KAFKAS = {
    "default.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "log.dir.probe.interval.ms": NEVER,
    "replica.high.watermark.checkpoint.interval.ms": "60000",
    "group.initial.rebalance.delay.ms": "0",
}
"""As Kafka's test has them. Without probes: only what the broker does anyway may find the bad directory."""


class NotWritableDisk(ModeDisk):
    """``chmod -R a-w``, Kafka's own fault: open files work on until the next roll."""

    name = "not writable (EACCES)"

    def _fail(self) -> None:
        subprocess.run(("chmod", "-R", "a-w", self.path), check=True)

    def _heal(self) -> None:
        subprocess.run(("chmod", "-R", "u+w", self.path), check=True)


class Group:
    """A consumer of a group that reads all of a topic and commits, in a thread; a context manager."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        self._consumer = confluent_kafka.Consumer({**settings, **QUIET, "session.timeout.ms": 30_000})
        self._consumer.subscribe([topic])
        self.read: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.1):
                if message.error() is None:
                    self.read.add(int(message.value() or b""))

    def __enter__(self) -> Group:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def wait_for_all(self, load: Load) -> None:
        acked = set().union(*load.acked.values())
        wait_for(lambda: acked <= self.read, "the group to read everything acknowledged", timeout_s=60)


def roles(cluster: Cluster, topic: str) -> tuple[int, tuple[int, ...]]:
    """Leader and ISR of partition 0, as a live broker has it."""
    seen = cluster.describe([topic]).partitions[topic, 0]
    return seen.leader or -1, seen.isr


def in_directory(cluster: Cluster, topic: str, number: int) -> bool:
    return all((topic, 0) in on_disk(cluster, broker, number) for broker in ALL)


def started(topic: str) -> Cluster:
    return Cluster(disks={(b, n): NotWritableDisk for b in ALL for n in (1, 2)}, user=NOBODY, settings=KAFKAS)


@pytest.mark.parametrize("bounce", [False, True], ids=["running", "bounced"])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_directory_of_a_broker_fails_ST_2_ST_3_ST_4(role: str, bounce: bool, topic: str) -> None:
    one, two = f"{topic}-1", f"{topic}-2"
    with started(topic) as cluster:
        create(cluster, one, [[1, 2, 3]], min_insync_replicas="1", segment_ms="500")
        create(cluster, two, [[1, 2, 3]], min_insync_replicas="2", segment_ms="500")
        with Group(cluster, two) as group, Load(cluster, two) as load:
            wait_for(lambda: group.read, "the first record read", timeout_s=TIMEOUT_S)
            leader, isr = roles(cluster, two)
            victim = leader if role == "leader" else next(broker for broker in ALL if broker != leader)
            assert victim in isr
            assert in_directory(cluster, one, 1) and in_directory(cluster, two, 2)
            assert in_directory(cluster, "__consumer_offsets", 1)
            cluster.disks[victim, 2].fail()
            if bounce:
                os.kill(cluster.pids()[victim], signal.SIGTERM)
                wait_for(lambda: victim not in cluster.live(), f"the end of broker {victim}", timeout_s=TIMEOUT_S)
                cluster.revive()
            wait_offline(cluster, victim, [(two, 0)], at=ALL)
            wait_told(cluster, victim, 2, "Permission denied")
            now, isr = roles(cluster, two)
            assert now != victim and victim not in isr and victim in cluster.live()
            if role == "follower" and not bounce:
                assert now == leader, "no other leader was needed"
            load.progress(20)
            group.wait_for_all(load)
        assert roles(cluster, one)[1] != () and errors_of_dirs(cluster, victim) == {1: 0, 2: STORAGE_ERROR}
        # The others go. Whoever is left has one good directory, and serves topic 1 and its group from it.
        cluster.wait_in_sync([one, "__consumer_offsets"])
        for other in ALL:
            if other != victim:
                os.kill(cluster.pids()[other], signal.SIGTERM)
                wait_for(lambda o=other: o not in cluster.live(), f"the end of broker {other}", timeout_s=TIMEOUT_S)  # type: ignore[misc]
        wait_for(lambda: roles(cluster, one) == (victim, (victim,)), "topic 1 on one broker", timeout_s=TIMEOUT_S)
        with Group(cluster, one) as group, Load(cluster, one) as load:
            load.progress(20)
            group.wait_for_all(load)


@pytest.mark.parametrize("when", ["roll", "checkpoint"])
def test_ST_4_failure_at_a_roll_and_at_a_checkpoint(when: str, topic: str) -> None:
    """Kafka's LogDirFailureTest: the leader's directory fails, found by the next roll or checkpoint."""
    settings = {**KAFKAS, **({} if when == "roll" else {"replica.high.watermark.checkpoint.interval.ms": "300"})}
    disks = {(b, n): NotWritableDisk for b in ALL for n in (1, 2)}
    with Cluster(disks=disks, user=NOBODY, settings=settings) as cluster:
        create(cluster, topic, [[1, 2, 3]], min_insync_replicas="2", segment_ms="500" if when == "roll" else NEVER)
        with Load(cluster, topic) as load:
            cluster.disk_of(1, topic, 0).fail()
            wait_offline(cluster, 1, [(topic, 0)], at=ALL)
            load.progress(20)
        assert produce_error(cluster, 1, topic, 0) == STORAGE_ERROR  # from its former leader
        assert roles(cluster, topic)[0] != 1 and 1 in cluster.live()


def test_ST_4_a_controller_that_cannot_be_told_K18_11(topic: str) -> None:
    """A broker that cannot report its dead directory ends, after log.dir.failure.timeout.ms and not before. The error
    that it found it by was one EIO: nothing is tried again on a dead disk."""
    settings = {
        "default.replication.factor": "1",
        "log.dir.failure.timeout.ms": "1500",
        "log.dir.probe.interval.ms": NEVER,
    }
    with Cluster(disks={(b, n): EioDisk for b in ALL for n in (1, 2)}, user=NOBODY, settings=settings) as cluster:
        controller = cluster.describe([]).controller_id
        assert controller is not None
        told, silent = (broker for broker in ALL if broker != controller)
        create(cluster, topic, [[told, silent, controller], [silent, told, controller]])
        cluster.disk_of(told, topic, 0).fail()
        assert produce_error(cluster, told, topic, 0) == STORAGE_ERROR
        wait_for(lambda: told in cluster.describe([topic], broker=controller).partitions[topic, 0].offline, "news")
        os.kill(cluster.pids()[controller], signal.SIGSTOP)
        try:
            cluster.disk_of(silent, topic, 1).fail()
            assert produce_error(cluster, silent, topic, 1) == STORAGE_ERROR
            assert silent in cluster.live()
            wait_for(lambda: silent not in cluster.live(), f"the end of broker {silent}", timeout_s=TIMEOUT_S)
        finally:
            os.kill(cluster.pids()[controller], signal.SIGCONT)
        assert told in cluster.live() and "could not be told" not in log_of(cluster, told)
        assert "could not be told" in log_of(cluster, silent)


def test_a_read_finds_the_dead_disk_K18_10(topic: str) -> None:
    """Nobody writes and nothing is probed: what a consumer reads goes out by sendfile, whose error is the disk's."""
    settings = {
        "default.replication.factor": "1",
        "log.dir.probe.interval.ms": NEVER,
        "replica.high.watermark.checkpoint.interval.ms": NEVER,
    }
    with Cluster(disks={(b, n): EioDisk for b in ALL for n in (1, 2)}, user=NOBODY, settings=settings) as cluster:
        create(cluster, topic, [[1, 2, 3], [1, 3, 2]])
        with Load(cluster, topic, range(2)):
            pass
        disk = cluster.disk_of(1, topic, 0)
        lost = on_disk(cluster, 1, int(disk.path.name[-1]))
        disk.fail()

        def answered() -> bool:
            """56; or before that a closed connection, where half of the answer was out already."""
            try:
                return fetch_error(cluster, 1, topic, 0) == STORAGE_ERROR
            except ConnectionError:
                return False

        wait_for(answered, "56 for the partition", timeout_s=TIMEOUT_S)
        wait_offline(cluster, 1, lost, at=ALL)
        assert fetch_error(cluster, 1, topic, 1) == 0, "the other disk is read on"
