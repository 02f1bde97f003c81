"""kill -9 of a broker with a thread that waits, in the kernel, for a frozen file system.

Such a process does not end before the disk answers. What it held must be free all the same: its connections (others
hear of the death and elect), its port, the election of the controller, and the directories whose disks are well.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from holdfast.broker.listening import PortTakenError, listen
from holdfast.testing import Cluster, wait_for
from holdfast.testing.disks import FrozenDisk
from holdfast.testing.processes import waiting_threads
from tests.system.on_disks import SETTINGS, TIMEOUT_S, Load, create, log_of, on_disk, wait_equal

pytestmark = pytest.mark.system

HUNG, WELL = 1, 2
PARTITIONS = 4
SERVES_S = 5.0
ELECTED_S = 3.0
"""Tens of milliseconds on a quiet machine. Half a second more for each step that has to wait for a copy of the metadata
whose disk is busy, before that is left out; 9 s when the broker's session has to end."""


def frozen(cluster: Cluster, broker: int) -> None:
    """The disk hangs, and a thread of the broker waits for it."""
    cluster.disks[broker, HUNG].fail()
    pid = cluster.pids()[broker]
    wait_for(lambda: waiting_threads(pid), "a thread that waits for the disk", timeout_s=TIMEOUT_S)


def port_is_had(port: int) -> bool:
    try:
        listen("127.0.0.1", port).close()
    except PortTakenError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether somebody has the lock of a log directory."""
    with (path / ".lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.mark.parametrize("victim", ["controller", "plain"])
def test_a_killed_broker_whose_disk_hangs_is_dead_for_everybody(victim: str) -> None:
    disks = {(broker, HUNG): FrozenDisk for broker in (1, 2, 3)}
    with Cluster(disks=disks, settings=SETTINGS) as cluster:
        controller = cluster.describe([]).controller_id
        broker = controller if victim == "controller" else controller % 3 + 1
        others = [one for one in (1, 2, 3) if one != broker]
        create(cluster, "t", [[broker, *others]] * PARTITIONS, min_insync_replicas="2")
        hung = {partition for topic, partition in on_disk(cluster, broker, HUNG) if topic == "t"}
        assert hung
        assert len(hung) < PARTITIONS, "both directories have some"
        with Load(cluster, "t", range(PARTITIONS)) as load:
            frozen(cluster, broker)
            pid, port = cluster.pids()[broker], cluster.addresses()[broker - 1][1]
            began = time.monotonic()
            cluster.kill(broker)
            assert waiting_threads(pid), "the process has not ended"

            def moved() -> bool:
                seen = [cluster.describe(["t"], broker=one).partitions.values() for one in others]
                return all(each.leader in others for partitions in seen for each in partitions)

            wait_for(moved, "other leaders", timeout_s=TIMEOUT_S, interval_s=0.005)
            took_s = time.monotonic() - began
            assert took_s < ELECTED_S
            wait_for(lambda: port_is_had(port), "the port to be free", timeout_s=2, interval_s=0.005)
            assert not is_locked(cluster.log_dir(broker, WELL))
            assert is_locked(cluster.log_dir(broker, HUNG)), "a late write must not meet a log that was recovered"
            load.progress()
            others_lead = cluster.describe([], broker=others[0]).controller_id
            assert others_lead in others
            assert waiting_threads(pid), "the disk still hangs"
            said = f"broker {broker} (process {pid}) was killed by SIGKILL; a thread of it waits for a disk"
            wait_for(lambda: said in cluster.log_tail(), said, timeout_s=TIMEOUT_S)

            cluster.disks[broker, HUNG].heal()
            wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the process", timeout_s=TIMEOUT_S)
            wait_for(lambda: not is_locked(cluster.log_dir(broker, HUNG)), "its lock", timeout_s=TIMEOUT_S)
            cluster.revive()
            load.progress()
        for partition in range(PARTITIONS):
            wait_equal(cluster, "t", partition)
        assert "closer" not in log_of(cluster, broker)


def test_a_killed_broker_starts_again_while_its_disk_hangs() -> None:
    with Cluster(disks={(1, HUNG): FrozenDisk}, settings=SETTINGS) as cluster:
        create(cluster, "t", [[1, 2, 3]] * PARTITIONS, min_insync_replicas="2")
        hung = {partition for topic, partition in on_disk(cluster, 1, HUNG) if topic == "t"}
        well = set(range(PARTITIONS)) - hung
        assert hung
        assert well
        with Load(cluster, "t", range(PARTITIONS)) as load:
            frozen(cluster, 1)
            pid = cluster.pids()[1]
            cluster.kill(1)
            load.progress()
            began = time.monotonic()
            cluster.revive()

            def serves() -> bool:
                seen = cluster.describe(["t"], broker=1).partitions
                return all(1 in seen["t", partition].isr for partition in well)

            wait_for(serves, "the well directory to serve", timeout_s=TIMEOUT_S, interval_s=0.01)
            took_s = time.monotonic() - began
            assert took_s < SERVES_S
            assert waiting_threads(pid), "the one that was killed waits for the disk"
            load.progress()
            assert all(1 not in cluster.describe(["t"]).partitions["t", partition].isr for partition in hung)

            cluster.disks[1, HUNG].heal()
            wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the process", timeout_s=TIMEOUT_S)
            cluster.wait_in_sync(["t"])
            load.progress()
        for partition in range(PARTITIONS):
            wait_equal(cluster, "t", partition)


@pytest.mark.embedded_store("a directory of the metadata")
def test_the_controller_is_killed_while_a_disk_of_the_metadata_hangs(tmp_path: Path) -> None:
    hangs = FrozenDisk(tmp_path / "metadata", tmp_path)
    try:
        with Cluster(data_dir=tmp_path, settings=SETTINGS) as cluster:
            create(cluster, "before", [[1, 2, 3]])
            controller = cluster.describe([]).controller_id
            others = [one for one in (1, 2, 3) if one != controller]
            hangs.fail()
            pid = cluster.pids()[controller]
            create(cluster, "meanwhile", [[1, 2, 3]])
            wait_for(lambda: waiting_threads(pid), "a thread that waits for the disk", timeout_s=TIMEOUT_S)
            cluster.kill(controller)
            began = time.monotonic()

            def elected() -> bool:
                return cluster.describe([], broker=others[0]).controller_id in others

            wait_for(elected, "another controller", timeout_s=TIMEOUT_S, interval_s=0.005)
            assert time.monotonic() - began < ELECTED_S
            cluster.revive()
            create(cluster, "after", [[1, 2, 3]])
            assert waiting_threads(pid), "the disk still hangs"
            hangs.heal()
            wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the process", timeout_s=TIMEOUT_S)
            cluster.wait_in_sync(["before", "meanwhile", "after"])
    finally:
        hangs.close()
