"""R-08, R-09: a cluster that got more brokers is made even, under load, and what was begun is taken back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from math import ceil, floor
from pathlib import Path

import pytest

from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import TIMEOUT_S, Load, create

pytestmark = pytest.mark.system


def rebalance(cluster: Cluster, *words: str, code: int = 0) -> str:
    return run(cluster, "rebalance", *words, code=code)


def run(cluster: Cluster, *words: str, code: int = 0) -> str:
    command = (sys.executable, "-m", "holdfast.cli.main", "reassign", *words, "--bootstrap-server", cluster.bootstrap)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def replicas(cluster: Cluster) -> dict[tuple[str, int], tuple[int, ...]]:
    return {place: seen.replicas for place, seen in cluster.describe().partitions.items()}


def wanted_by(path: Path) -> dict[tuple[str, int], tuple[int, ...]]:
    entries = json.loads(path.read_text())["partitions"]
    return {(e["topic"], e["partition"]): tuple(e["replicas"]) for e in entries}


def test_R_08_R_09_brokers_that_are_added_get_their_share(tmp_path: Path, topic: str) -> None:
    home, plan = tmp_path / "data", tmp_path / "plan.json"
    other = f"{topic}-other"
    with Cluster(brokers=3, data_dir=home) as cluster:
        create(cluster, topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3]])
        create(cluster, other, [[1, 2], [2, 3], [3, 1]])
    with Cluster(brokers=5, data_dir=home) as cluster:
        cluster.wait_in_sync()
        before = replicas(cluster)
        total = sum(map(len, before.values()))
        shown = rebalance(cluster, "--plan", str(plan))
        assert "replicas are copied to another broker" in shown
        assert replicas(cluster) == before  # it was only written down
        assert "File exists: expected a new file" in rebalance(cluster, "--plan", str(plan), code=1)
        plan.unlink()
        with Load(cluster, topic, range(5)):
            rebalance(cluster, "--plan", str(plan), "--execute")
            wanted = before | wanted_by(plan)
            wait_for(lambda: replicas(cluster) == wanted, "the plan to be over", timeout_s=TIMEOUT_S)
            cluster.wait_in_sync(timeout_s=TIMEOUT_S)
        copied = sum(len(set(after) - set(before[place])) for place, after in wanted.items())
        assert 2 * floor(total / 5) <= copied <= 2 * ceil(total / 5)
        assert all(set(after) - set(before[place]) <= {4, 5} for place, after in wanted.items())
        held = Counter(broker for after in wanted.values() for broker in after)
        assert max(held.values()) - min(held.values()) <= 1
        assert "is completed." in run(cluster, "verify", "--reassignment-json-file", str(plan))
        again = tmp_path / "again.json"
        assert "The brokers are even: there is no plan to write." in rebalance(cluster, "--plan", str(again))

        # Everything anew, slowly: what is still under way is taken back.
        before, full = replicas(cluster), tmp_path / "full.json"
        rebalance(cluster, "--full", "--plan", str(full), "--execute", "--throttle", "1")
        assert "reassignments are under way" in rebalance(cluster, "--plan", str(again), code=1)
        assert not again.exists()
        said = run(cluster, "cancel", "--reassignment-json-file", str(full))
        [names] = re.findall(r"Successfully cancelled partition reassignments? for: (\S+)", said)
        for name in names.split(","):
            taken_back, partition = name.rsplit("-", 1)
            place = taken_back, int(partition)
            assert set(replicas(cluster)[place]) == set(before[place])
        assert "No partition reassignments found." in run(cluster, "list")
