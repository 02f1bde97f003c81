"""What people ordinarily do with a cluster's directories and commands, and every record is there afterwards."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterable

import pytest

from holdfast.testing import Cluster, ClusterError

pytestmark = pytest.mark.system

HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]


def run(cluster: Cluster, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    return subprocess.run([*HOLDFAST, *args], input=stdin, capture_output=True, text=True, timeout=60, env=environment)


def ok(cluster: Cluster, *args: str, stdin: str = "") -> str:
    """Standard output of a command that has to end with 0."""
    done = run(cluster, *args, stdin=stdin)
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return done.stdout


def produce(cluster: Cluster, topic: str, lines: Iterable[object]) -> None:
    ok(cluster, "produce", topic, stdin="".join(f"{line}\n" for line in lines))


def records(cluster: Cluster, topic: str, expected: int) -> list[str]:
    """All of the topic, sorted; reads on for a while to find more than ``expected``."""
    args = ["consume", topic, "--from-beginning", "--max-messages", str(expected + 1), "--timeout-ms", "3000"]
    return sorted(ok(cluster, *args).splitlines())


def numbers(count: int) -> list[str]:
    return sorted(map(str, range(count)))


def test_A1_a_copy_works_on_the_copy_alone(tmp_path: pathlib.Path) -> None:
    orig, copy = tmp_path / "orig", tmp_path / "copy"
    with Cluster(brokers=1, data_dir=orig) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "4")
        produce(cluster, "t", range(1000))
        cluster.stop()
    shutil.copytree(orig, copy)
    with Cluster(brokers=1, data_dir=copy) as other, Cluster(brokers=1, data_dir=orig) as cluster:
        assert records(other, "t", 1000) == numbers(1000)  # both run at once
        ok(other, "topics", "delete", "t")
        assert records(cluster, "t", 1000) == numbers(1000)
        produce(cluster, "t", range(1000, 1500))
    with Cluster(brokers=1, data_dir=orig) as cluster:
        assert records(cluster, "t", 1500) == numbers(1500)


def test_A1_a_copy_that_shares_a_disk_with_the_original_does_not_start(tmp_path: pathlib.Path) -> None:
    orig, copy, disk = tmp_path / "orig", tmp_path / "copy", tmp_path / "disk"
    disk.mkdir()
    (orig / "broker-1").mkdir(parents=True)
    (orig / "broker-1/log-dir-2").symlink_to(disk)
    with Cluster(brokers=1, data_dir=orig) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "4")
        produce(cluster, "t", range(1000))
        cluster.stop()
        shutil.copytree(orig, copy, symlinks=True)
        with pytest.raises(ClusterError, match=f"{copy} is a copy of {orig}"):
            Cluster(brokers=1, data_dir=copy).start()
        cluster.start()
        assert records(cluster, "t", 1000) == numbers(1000)


def test_A2_a_cluster_that_was_moved_and_moved_back_has_everything(tmp_path: pathlib.Path) -> None:
    orig, moved = tmp_path / "orig", tmp_path / "moved"
    with Cluster(data_dir=orig) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "6", "--replication-factor", "3")
        produce(cluster, "t", range(1000))
        cluster.stop()
    orig.rename(moved)
    with Cluster(data_dir=moved) as cluster:
        cluster.wait_in_sync(["t"])
        assert records(cluster, "t", 1000) == numbers(1000)
        produce(cluster, "t", range(1000, 2000))
        cluster.stop()
    assert not orig.exists()
    moved.rename(orig)
    with Cluster(data_dir=orig) as cluster:
        cluster.wait_in_sync(["t"])
        assert records(cluster, "t", 2000) == numbers(2000)


def test_A2_a_cluster_without_any_of_its_records_does_not_start(tmp_path: pathlib.Path) -> None:
    orig, away = tmp_path / "orig", tmp_path / "away"
    with Cluster(brokers=1, data_dir=orig) as cluster:
        ok(cluster, "topics", "create", "t", "--partitions", "4")
        produce(cluster, "t", range(1000))
        cluster.stop()
        (orig / "broker-1").rename(away)
        with pytest.raises(ClusterError, match="no log directory of its brokers holds anything"):
            cluster.start()
        away.rename(orig / "broker-1")
        cluster.start()
        assert records(cluster, "t", 1000) == numbers(1000)
