"""A disk dies under a running cluster: every call on it is EIO from one moment on. One story per test, and what KIP-112
says of each of its moments."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.types import TopicName

from holdfast.coordination.notes import DIRECTORY
from holdfast.testing import FAULTS, Cluster, mounts, wait_for
from holdfast.testing.disks import EioDisk
from holdfast.testing.processes import children, has_gone
from holdfast.testing.users import NOBODY
from tests.system.on_disks import (
    NOT_LEADER,
    SETTINGS,
    STORAGE_ERROR,
    TIMEOUT_S,
    Load,
    ask,
    create,
    errors_of,
    errors_of_dirs,
    fetch_error,
    log_of,
    offline,
    on_disk,
    produce_error,
    wait_equal,
    wait_offline,
    wait_probed,
)

pytestmark = pytest.mark.system

ALL = (1, 2, 3)
DISKS = {(broker, number): EioDisk for broker in ALL for number in (1, 2)}
IN_TURN = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(disks=DISKS, user=NOBODY, settings=SETTINGS) as running:
        yield running
        running.print_logs()


def controller_of(cluster: Cluster, *, at: int) -> int:
    found = cluster.describe([], broker=at).controller_id
    assert found is not None
    return found


def number_of(cluster: Cluster, broker: int, topic: str, partition: int) -> int:
    """Of the log directory that a replica is in."""
    return int(cluster.folder_of(broker, topic, partition).parent.name.rpartition("-")[2])


def test_the_leaders_disk_dies_K112_03_K112_24_K112_25_K112_26_K112_27_K112_50_K112_94_K18_12_C17_C27(
    cluster: Cluster, topic: str
) -> None:
    create(cluster, topic, IN_TURN * 4, min_insync_replicas="2")
    places = range(12)
    victim = 1
    bad = number_of(cluster, victim, topic, 0)
    lost, kept = on_disk(cluster, victim, bad), on_disk(cluster, victim, 3 - bad)
    assert lost and kept and lost | kept == {(topic, partition) for partition in places}
    before = cluster.describe([topic]).partitions
    with Load(cluster, topic, places) as load:  # no acknowledged record is lost, no client has an error
        cluster.disks[victim, bad].fail()
        wait_offline(cluster, victim, lost, at=ALL)  # K112-24, K112-26, K112-50: those and no others, everywhere

        def moved() -> bool:
            now = cluster.describe([topic]).partitions
            return all(now[place].leader not in (None, victim) and victim not in now[place].isr for place in lost)

        wait_for(moved, "leaders and ISR without the dead disk")  # K112-25
        load.progress()
        after = cluster.describe([topic]).partitions
        for place in kept:  # K112-27
            assert (after[place].leader, set(after[place].isr)) == (before[place].leader, {1, 2, 3}), place
    dead, well = next(iter(sorted(lost))), next(place for place in sorted(kept) if before[place].leader == victim)
    assert errors_of(cluster, victim, *dead) == [STORAGE_ERROR] * 4  # K112-03
    assert errors_of(cluster, victim, *well) == [0] * 4
    for version in (3, 4):  # C17, K112-94
        assert produce_error(cluster, victim, *dead, version=version) == STORAGE_ERROR
    assert fetch_error(cluster, victim, *dead, version=6) == STORAGE_ERROR
    assert fetch_error(cluster, victim, *dead, version=5) == NOT_LEADER
    assert errors_of_dirs(cluster, victim) == {bad: STORAGE_ERROR, 3 - bad: 0}
    dirs = cluster.describe_log_dirs(victim)
    shown = dirs[str(cluster.log_dir(victim, bad))]
    assert (shown.total_bytes, shown.usable_bytes) == (-1, -1) and not shown.replicas  # C27
    assert all(not any(errors_of_dirs(cluster, other).values()) for other in (2, 3))
    # K18-12: the same process goes on, with the disk that it has left, and takes new topics on it.
    assert len(cluster.live()) == 3
    create(cluster, f"{topic}-new", [[1, 2, 3]] * 6)  # K112-04, below, says where
    assert {(f"{topic}-new", p) for p in range(6)} <= on_disk(cluster, victim, 3 - bad)
    with Load(cluster, f"{topic}-new", range(6)):
        pass


def test_a_followers_disk_dies_K112_06_K112_04_K112_09(cluster: Cluster, topic: str) -> None:
    """Its other replicas of the same leader are copied on: the fetcher lives."""
    create(cluster, topic, [[1, 2, 3]] * 4, min_insync_replicas="2")
    follower = 2
    bad = number_of(cluster, follower, topic, 0)
    lost, kept = on_disk(cluster, follower, bad), on_disk(cluster, follower, 3 - bad)
    assert lost and kept
    with Load(cluster, topic, range(4)) as load:
        cluster.disks[follower, bad].fail()
        wait_offline(cluster, follower, lost, at=ALL)
        load.progress()
    view = cluster.describe([topic]).partitions
    assert {seen.leader for seen in view.values()} == {1}, "no leader changed"
    assert all(set(view[place].isr) == {1, 3} for place in lost)
    assert all(set(view[place].isr) == {1, 2, 3} for place in kept)

    def copied() -> bool:
        ends = {place: cluster.folder_of(follower, *place) for place in kept}
        return all(
            sum(f.stat().st_size for f in folder.glob("*.log"))
            == sum(f.stat().st_size for f in cluster.folder_of(1, *place).glob("*.log"))
            for place, folder in ends.items()
        )

    wait_for(copied, "the replicas on the good disk to have everything")
    create(cluster, f"{topic}-new", [[2, 3, 1]] * 20)
    assert {(f"{topic}-new", p) for p in range(20)} <= on_disk(cluster, follower, 3 - bad)
    assert on_disk(cluster, follower, bad) <= lost


def test_before_the_controller_acts_nothing_is_acknowledged_K112_21(cluster: Cluster, topic: str) -> None:
    controller = controller_of(cluster, at=1)
    victim = next(broker for broker in ALL if broker != controller)
    create(cluster, topic, [[victim, *(b for b in ALL if b != victim)]] * 2)
    dead, well = (topic, 0), (topic, 1)
    os.kill(cluster.pids()[controller], signal.SIGSTOP)
    try:
        cluster.disk_of(victim, *dead).fail()
        assert produce_error(cluster, victim, *dead) == STORAGE_ERROR
        assert errors_of(cluster, victim, *dead) == [STORAGE_ERROR] * 4
        assert produce_error(cluster, victim, *well) == 0
    finally:
        os.kill(cluster.pids()[controller], signal.SIGCONT)
    wait_offline(cluster, victim, [dead], at=ALL)


def test_two_disks_of_two_brokers_and_a_dead_broker_K112_28_K112_51_K112_60(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, IN_TURN * 4)
    controller = controller_of(cluster, at=1)
    first, second = (broker for broker in ALL if broker != controller)
    lost = {first: on_disk(cluster, first, 1), second: on_disk(cluster, second, 2)}
    assert all(lost.values())
    cluster.disks[first, 1].fail()
    cluster.disks[second, 2].fail()
    for broker in (first, second):
        wait_offline(cluster, broker, lost[broker], at=ALL)
    for broker, number in ((first, 1), (second, 2)):
        assert errors_of_dirs(cluster, broker) == {number: STORAGE_ERROR, 3 - number: 0}
    sets = offline(cluster, [topic], at=first)
    # K112-60: a new controller finds out the same, by asking; nobody leads from a bad disk.
    cluster.kill(controller)
    wait_for(lambda: controller_of(cluster, at=first) not in (None, controller), "a new controller")
    wanted = {(topic, p): tuple(sorted({controller, *sets.get((topic, p), ())})) for p in range(12)}
    for asked in (first, second):  # K112-51: dead brokers' replicas and those on bad disks, the same everywhere
        wait_for(lambda a=asked: offline(cluster, [topic], at=a) == wanted, f"{wanted} at {asked}")  # type: ignore[misc]
    for place, seen in cluster.describe([topic], broker=first).partitions.items():
        assert seen.leader not in wanted[place], (place, seen)
    for version in range(14):
        answer = metadata_of(cluster, first, topic, version)
        for partition in answer.topics[0].partitions:
            assert {1, 2, 3} == set(partition.replica_nodes)
            if version >= 5:
                assert tuple(sorted(partition.offline_replicas)) == wanted[topic, partition.partition_index]


def metadata_of(cluster: Cluster, broker: int, topic: str, version: int) -> Any:
    by_id = {"topic_id": None} if version >= 10 else {}
    parts = import_module(f"kio.schema.metadata.v{version}.request")
    wanted = parts.MetadataRequestTopic(name=TopicName(topic), **by_id)
    more = {"allow_auto_topic_creation": False} if version >= 4 else {}
    if 8 <= version <= 10:
        more["include_cluster_authorized_operations"] = False
    if version >= 8:
        more["include_topic_authorized_operations"] = False
    return ask(cluster, broker, "metadata", version, "Metadata", topics=(wanted,), **more)


def test_a_broker_whose_disks_all_died_ends_K112_02_K112_30(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, IN_TURN, min_insync_replicas="2")
    with Load(cluster, topic, range(3)) as load:
        for number in (1, 2):
            cluster.disks[3, number].fail()
        wait_for(lambda: 3 not in cluster.live(), "the end of a broker without disks")
        load.progress()
    assert "Shutdown broker because all log dirs in" in log_of(cluster, 3)
    wait_for(lambda: 3 not in cluster.describe([], broker=1).brokers, "a cluster without that broker")
    # At a start: the same, said before it is a member again.
    os.kill(cluster.pid, signal.SIGUSR1)
    wait_for(lambda: "none of the specified log dirs" in log_of(cluster, 3), "the reason why it does not start")
    wait_for(lambda: 3 not in cluster.live(), "its end")
    wait_for(
        lambda: "broker 3" in cluster.log_tail() and "ended with exit code 1" in cluster.log_tail(), "that `up` says it"
    )


@pytest.mark.embedded_store("directories of the metadata")
@pytest.mark.parametrize("name", ["eio", "read-only"])
def test_H_23_both_metadata_directories_die_and_the_processes_end(name: str, topic: str) -> None:
    """One of them dies: decisions go on. Both: nothing can be decided any more; the logs are whole, and the next start
    has everything."""
    folder = mounts.scratch()
    first = FAULTS[name](folder / "metadata", folder)
    try:
        second = FAULTS[name](folder / "metadata-2", folder)
        with Cluster(data_dir=folder, settings=SETTINGS) as cluster:
            create(cluster, topic, IN_TURN, min_insync_replicas="2")
            with Load(cluster, topic, range(3)) as load:
                load.progress()
                first.fail()
                create(cluster, f"{topic}-one", [[1, 2, 3]])
                load.progress()
            assert set(cluster.live()) == {1, 2, 3}
            helpers = {pid: children(pid) for pid in cluster.live().values()}
            second.fail()
            asking = AdminClient({"bootstrap.servers": cluster.bootstrap})
            asking.create_topics([NewTopic(f"{topic}-more", 1)])  # something to decide, and nobody to answer
            wait_for(
                lambda: all(has_gone(pid, closers) for pid, closers in helpers.items()),
                "the end of all that share the directories, and of all that they had open",
                timeout_s=TIMEOUT_S,
            )
            for broker in ALL:
                assert "Shutdown broker because all metadata log dirs have failed" in log_of(cluster, broker)
            wait_for(lambda: cluster.log_tail(4000).count("ended with exit code 1") == 3, "that `up` says it of each")
            first.heal()
            second.heal()
            os.kill(cluster.pid, signal.SIGUSR1)
            cluster.wait_in_sync([topic, f"{topic}-one"])
            for partition in range(3):
                wait_equal(cluster, topic, partition)
        second.close()
    finally:
        first.close()
        mounts.remove(folder)


def test_a_dead_disk_is_left_alone_until_the_restart_K112_44_K18_04_K112_42(topic: str) -> None:
    """No file of it stays open and none is made: it can be unmounted while the broker runs; and coming back by itself
    does not make it good. After a restart its old data is used, and what diverges or is missing comes from others."""
    settings = {
        "default.replication.factor": "1",
        **SETTINGS,
        "replica.high.watermark.checkpoint.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
    }
    with Cluster(disks=DISKS, user=NOBODY, settings=settings) as cluster:
        create(cluster, topic, IN_TURN * 2, min_insync_replicas="2")
        bad = number_of(cluster, 1, topic, 0)
        disk, lost = cluster.disks[1, bad], on_disk(cluster, 1, bad)
        with Load(cluster, topic, range(6)) as load:
            load.progress(50)
            disk.fail()
            wait_offline(cluster, 1, lost, at=ALL)
            wait_for(lambda: not open_files(cluster, 1, bad), "no open file on the dead disk")  # K18-04
            disk.heal()  # unmounts and mounts it: nobody holds it
            there = content(cluster, 1, bad)
            wait_probed(cluster, 1, 3 - bad)
            load.progress(50)
        assert content(cluster, 1, bad) == there, "nothing was written to it"
        assert errors_of_dirs(cluster, 1)[bad] == STORAGE_ERROR  # K112-44
        wait_offline(cluster, 1, lost, at=ALL)
        cluster.kill(1)
        cluster.revive()
        wait_offline(cluster, 1, (), at=ALL)
        for partition in range(6):  # K112-42
            wait_equal(cluster, topic, partition)
        assert on_disk(cluster, 1, bad) == lost, "its data was used again, where it was"


def open_files(cluster: Cluster, broker: int, number: int) -> list[str]:
    """Of the broker's process, on that disk."""
    root, found = str(cluster.log_dir(broker, number)), []
    base = f"/proc/{cluster.pids()[broker]}/fd"
    for fd in os.listdir(base):
        try:
            target = os.readlink(f"{base}/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith(root):
            found.append(target)
    return found


def content(cluster: Cluster, broker: int, number: int) -> dict[str, tuple[int, int]]:
    """Size and time of every file and directory on that disk, but for the notes of the embedded store: whoever finds an
    old one there would take it for the last word on which copies of the metadata are good, so a disk that is back is
    told. Their directory is made by the first that is told, and with it the time of the disk's own."""
    root = cluster.log_dir(broker, number)
    found = {path: path.stat() for path in root.rglob("*") if DIRECTORY not in path.parts}
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


@pytest.mark.parametrize("name", ["read-only", "immutable", "mode-000", "replaced", "unmounted"])
def test_every_other_way_to_die_is_the_same_to_clients_K112_05_K112_27(name: str, topic: str) -> None:
    disks = {(broker, number): FAULTS[name] for broker in ALL for number in (1, 2)}
    with Cluster(disks=disks, user=NOBODY, settings=SETTINGS) as cluster:
        create(cluster, topic, IN_TURN * 2, min_insync_replicas="2")
        bad = number_of(cluster, 1, topic, 0)
        lost = on_disk(cluster, 1, bad)
        with Load(cluster, topic, range(6)) as load:
            cluster.disks[1, bad].fail()
            wait_offline(cluster, 1, lost, at=ALL)
            load.progress()
        view = cluster.describe([topic]).partitions
        assert all(seen.leader != 1 and 1 not in seen.isr for place, seen in view.items() if place in lost)
        assert all(seen.is_full for place, seen in view.items() if place not in lost)
        assert errors_of_dirs(cluster, 1) == {bad: STORAGE_ERROR, 3 - bad: 0}
        assert not any(error for other in (2, 3) for error in errors_of_dirs(cluster, other).values())
        assert len(cluster.live()) == 3
        if name == "unmounted":
            beneath = [path for path in cluster.log_dir(1, bad).rglob("*") if path.name != ".probe"]
            assert not beneath, "nothing went to the directory underneath"
