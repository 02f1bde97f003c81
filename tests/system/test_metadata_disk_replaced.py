"""A disk of the metadata dies, is unmounted while the cluster serves, and another one comes in its place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.testing import FAULTS, Cluster, mounts, wait_for
from tests.system.on_disks import SETTINGS, Load, create, read_all

pytestmark = [pytest.mark.system, pytest.mark.embedded_store("a directory of the metadata")]

NAMES = ("metadata", "metadata-2")


def unmounts(path: Path) -> bool:
    """Not lazily: refused while anybody has a file open there."""
    return subprocess.run(("umount", path), capture_output=True, check=False).returncode == 0


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "holdfast.cli.main", "metadata", "check", "--data-dir", str(folder))
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", ["eio", "read-only"])
def test_A5_K18_04_a_dead_metadata_disk_is_unmounted_and_replaced_while_the_cluster_serves(
    name: str, which: int
) -> None:
    folder = mounts.scratch()
    disks = []
    try:
        disks += [FAULTS[name](folder / each, folder) for each in NAMES]
        bad = disks[which]
        with Cluster(data_dir=folder, settings=SETTINGS) as cluster:
            create(cluster, "before", [[1, 2, 3]], min_insync_replicas="2")
            with Load(cluster, "before") as load:
                bad.fail()
                create(cluster, "during", [[1, 2, 3]])
                wait_for(lambda: unmounts(bad.path), "that nobody has a file open on the dead disk", timeout_s=10)
                assert not mounts.is_mounted(bad.path)
                load.progress()
                bad.replace()
                wait_for(lambda: check(folder).stdout.count(": good\n") == 2, "that the new disk is filled")
                assert mounts.is_mounted(bad.path) and (bad.path / "copy.id").exists()
                create(cluster, "after", [[1, 2, 3]])
                load.progress()
            cluster.kill_all()
        disks[1 - which].fail()  # the new one is enough
        with Cluster(data_dir=folder, settings=SETTINGS) as cluster:
            cluster.wait_in_sync(["before", "during", "after"])
            assert load.acked[0] <= {int(value) for value in read_all(cluster, "before", 0)}
    finally:
        for disk in disks:
            disk.close()
        mounts.remove(folder)
