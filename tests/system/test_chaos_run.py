"""A short ``make chaos`` of one seed: whatever happens to brokers, what was promised to clients holds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 300


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """In memory where that is possible: a machine whose disk is busy with something else for longer than the short
    session timeout is not what is tested here. What a failed run leaves is moved to the disk.
    """
    memory = "/dev/shm"
    made = Path(tempfile.mkdtemp(prefix="chaos-", dir=memory if os.access(memory, os.W_OK) else tmp_path))
    yield made
    if any(path.is_dir() for path in made.iterdir()):
        print(f"kept: {shutil.copytree(made, tmp_path / 'kept')}")
    shutil.rmtree(made)


def run(directory: Path, *options: str) -> dict[str, object]:
    """The report of a run that must have found nothing."""
    command = [sys.executable, "-m", "tests.chaos", "--short", "--dir", str(directory / "run"), *options]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    print(done.stdout, done.stderr)
    told = "\n".join([*done.stdout.splitlines()[-12:], *done.stderr.splitlines()[-12:]])
    assert done.returncode == 0, f"the last lines of its output say what is wrong, and where its logs are:\n{told}"
    assert not (directory / "run").exists(), "nothing to look at"
    report = json.loads((directory / "run.json").read_text())
    assert isinstance(report, dict)
    return report


def test_R_22_whatever_happens_to_brokers_nothing_acked_is_lost_or_written_twice(directory: Path) -> None:
    report = run(directory, "--minutes", "0.45", "--seed", "7")
    # How much of the schedule fits in depends on how long the machine takes to heal.
    assert report["kills"] >= 2, "brokers were killed"  # type: ignore[operator]
    assert len(report["faults"]) >= 2, "and more than killed"  # type: ignore[arg-type]
    totals = report["verdict"]["totals"]  # type: ignore[index]
    assert totals["acked"] > 1000 and totals["in_logs"] >= totals["acked"], "there was something to lose"
    assert totals["reads"] >= 3 * totals["acked"] and totals["ends"] > 0, "and somebody looked"


@pytest.mark.long("a shorter run of the same with the host's own means is in every run")
def test_R_22_the_same_where_the_network_is_cut_by_proxies(directory: Path) -> None:
    report = run(directory, "--minutes", "0.12", "--seed", "3", "--network", "proxy")
    assert "proxy" in str(report["network"])
    assert report["verdict"]["totals"]["acked"] > 300  # type: ignore[index]
