"""Disks that are not dead: one that is full, one that hangs for a while, one that was mended. The brokers run on all
the time; what other disks have is not touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import confluent_kafka
import pytest

from holdfast.testing import FAULTS, Cluster, wait_for
from holdfast.testing.disks import FrozenDisk, FullDisk, ReadOnlyDisk
from holdfast.testing.users import NOBODY
from tests.system.on_disks import (
    QUIET,
    SETTINGS,
    STORAGE_ERROR,
    TIMEOUT_S,
    Load,
    create,
    errors_of_dirs,
    fetch_and_stay,
    log_of,
    on_disk,
    produce_error,
    wait_equal,
    wait_offline,
)

pytestmark = pytest.mark.system

ALL = (1, 2, 3)


def number_of(cluster: Cluster, topic: str, partition: int) -> int:
    """Of the log directory of broker 1 that has the replica."""
    return next(number for number in (1, 2) if (topic, partition) in on_disk(cluster, 1, number))


def test_a_full_disk_is_not_a_dead_one(topic: str) -> None:
    """Others lead what it has, it is offline nowhere, and with room it joins in again by itself."""
    disks = {(1, number): FullDisk for number in (1, 2)}
    with Cluster(disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[1, 2, 3]] * 2, min_insync_replicas="2")
        full = number_of(cluster, topic, 0)
        assert number_of(cluster, topic, 1) == 3 - full
        with Load(cluster, topic, range(2)) as load:
            cluster.disks[1, full].fail()

            def moved() -> bool:
                return cluster.describe([topic]).partitions[topic, 0].leader not in (None, 1)

            wait_for(moved, "a leader that has room", timeout_s=TIMEOUT_S)
            load.progress(20)
            view = cluster.describe([topic]).partitions
            assert view[topic, 1].leader == 1 and set(view[topic, 1].isr) == {1, 2, 3}, (
                "the other disk has nothing to do with it"
            )
            assert errors_of_dirs(cluster, 1) == {1: 0, 2: 0} and not view[topic, 0].offline
            cluster.disks[1, full].heal()
            cluster.wait_in_sync([topic])
        for partition in (0, 1):
            wait_equal(cluster, topic, partition)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_disk_that_is_full_at_a_start_is_no_dead_one_either(how: str, topic: str) -> None:
    """What is on it is used again, at once or when there is room, and nobody has to ask for it."""
    disks = {(1, number): FullDisk for number in (1, 2)}
    with Cluster(disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[1, 2, 3]] * 2, min_insync_replicas="2")
        full = number_of(cluster, topic, 0)
        with Load(cluster, topic, range(2)) as load:
            cluster.disks[1, full].fail()
            if how == "killed":
                cluster.kill(1)
            else:
                os.kill(cluster.pids()[1], signal.SIGTERM)
                wait_for(lambda: 1 not in cluster.live(), "broker 1 to stop", timeout_s=TIMEOUT_S)
            load.progress(20)
            cluster.revive()
            load.progress(20)
            cluster.disks[1, full].heal()
            cluster.wait_in_sync([topic])
            load.progress(20)
            assert errors_of_dirs(cluster, 1) == {1: 0, 2: 0}
        for partition in (0, 1):
            wait_equal(cluster, topic, partition)


def test_a_disk_that_hangs_holds_up_nobody_else(topic: str) -> None:
    disks = {(1, number): FrozenDisk for number in (1, 2)}
    with Cluster(disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[1, 2, 3]] * 2, min_insync_replicas="2")
        hung = number_of(cluster, topic, 0)
        with Load(cluster, topic, (1,)) as load, Load(cluster, topic, (0,)) as behind:
            cluster.disks[1, hung].fail()
            for _ in range(3):
                load.progress(20)
                assert set(cluster.describe_log_dirs(1)) == {str(cluster.log_dir(1, n)) for n in (1, 2)}
            assert set(cluster.describe([topic]).partitions[topic, 1].isr) == {1, 2, 3}
            cluster.disks[1, hung].heal()
            behind.progress(20)
            cluster.wait_in_sync([topic])
        assert len(cluster.live()) == 3 and errors_of_dirs(cluster, 1) == {1: 0, 2: 0}


@pytest.mark.parametrize("name", ["eio", "unmounted"])
def test_a_disk_that_was_mended_is_used_again_without_a_restart_K18_12_K112_44(name: str, topic: str) -> None:
    disks = {(1, number): FAULTS[name] for number in (1, 2)}
    with Cluster(disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[1, 2, 3]] * 2, min_insync_replicas="2")
        bad, pids = number_of(cluster, topic, 0), cluster.pids()
        disk, lost = cluster.disks[1, bad], on_disk(cluster, 1, bad)
        with Load(cluster, topic, range(2)) as load:
            load.progress(20)
            disk.fail()
            wait_offline(cluster, 1, lost, at=ALL)
            if name == "eio":
                assert online(cluster, disk.path).returncode != 0, "it is still bad"
            wait_for(lambda: mended(cluster, bad), "the disk to be free", timeout_s=TIMEOUT_S)
            assert produce_error(cluster, 1, topic, 0) == STORAGE_ERROR, "not by itself"
            done = online(cluster, disk.path)
            assert done.returncode == 0, done.stderr
            wait_offline(cluster, 1, (), at=ALL)
            cluster.wait_in_sync([topic])
        assert cluster.pids() == pids and errors_of_dirs(cluster, 1) == {1: 0, 2: 0}
        assert lost <= on_disk(cluster, 1, bad)
        wait_equal(cluster, topic, 0)


def test_the_only_copy_leads_again_when_its_disk_is_back(topic: str) -> None:
    """Nobody has more than what is there: it leads at once, and goes on leading."""
    disks = {(1, number): FAULTS["unmounted"] for number in (1, 2)}
    with Cluster(disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[1]])
        bad = number_of(cluster, topic, 0)
        with Load(cluster, topic) as load:
            load.progress(20)
            cluster.disks[1, bad].fail()
            wait_offline(cluster, 1, on_disk(cluster, 1, bad) or {(topic, 0)}, at=ALL)
            wait_for(lambda: mended(cluster, bad), "the disk to be free", timeout_s=TIMEOUT_S)
            done = online(cluster, cluster.disks[1, bad].path)
            assert done.returncode == 0, done.stderr
            load.progress(200)
        assert cluster.describe([topic]).partitions[topic, 0].leader == 1
        assert log_of(cluster, 1).count("is offline: ") == 1


def test_clients_that_do_not_take_their_answers_keep_no_dead_disk_mounted_K112_44(topic: str) -> None:
    """One leaves 32 MiB where they are; another took what it waited for, and has asked for nothing since."""
    disks = {(1, number): ReadOnlyDisk for number in (1, 2)}
    with Cluster(disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, [[1, 2, 3]], min_insync_replicas="2")
        bad = number_of(cluster, topic, 0)
        end = fill(cluster, topic, 32 << 20)
        lost = on_disk(cluster, 1, bad)
        with (
            fetch_and_stay(cluster, 1, topic, 0, 0, max_bytes=64 << 20) as slow,
            fetch_and_stay(cluster, 1, topic, 0, end, wait_ms=60_000) as idle,
            Load(cluster, topic) as load,
        ):
            assert len(slow.recv(1000)) == 1000 and idle.recv(4)
            cluster.disks[1, bad].fail()
            wait_offline(cluster, 1, lost, at=ALL)
            wait_for(lambda: mended(cluster, bad), "the disk to be free", timeout_s=TIMEOUT_S)
            done = online(cluster, cluster.disks[1, bad].path)
            assert done.returncode == 0, done.stderr
            load.progress(20)
            cluster.wait_in_sync([topic])


def fill(cluster: Cluster, topic: str, size: int) -> int:
    """The offset at the end of so many bytes."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET})
    offsets: list[int] = []
    for number in range(size >> 16):
        value = (b"-%d" % (number + 1)).ljust(1 << 16)
        producer.produce(topic, value, partition=0, on_delivery=lambda e, m: offsets.append(m.offset() or 0))
    assert producer.flush(TIMEOUT_S) == 0
    return max(offsets) + 1


def mended(cluster: Cluster, number: int) -> bool:
    """False while the broker still holds files of it."""
    try:
        cluster.disks[1, number].heal()
    except OSError:
        return False
    return True


def online(cluster: Cluster, path: object) -> subprocess.CompletedProcess[str]:
    command = ("log-dirs", "online", "--bootstrap-server", cluster.bootstrap, "--broker", "1", str(path))
    return subprocess.run(
        (sys.executable, "-m", "holdfast.cli.main", *command), capture_output=True, text=True, check=False
    )
