"""Spark's own JVM connector on these brokers: batch, stream, sink, and real-time mode."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.connector_job import LATER, LIVE
from tests.unit.spark.test_option_page import ROWS, places

if TYPE_CHECKING:
    from holdfast.testing import Cluster

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parent.parent.parent
RECORDS = 1000


def on_the_page(place: str, name: str) -> bool:
    """Whether docs/spark-options.md has the option, by its own name or with others that begin alike."""
    for row in ROWS:
        begins = row.name.endswith(".*") and name.startswith(row.name[:-1])
        if (begins or row.name.lower() == name.lower()) and place in ("options", *places(row)):
            return True
    return False


def test_sparks_own_connector_reads_streams_and_writes_here_as_our_source_does(
    cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    """Its jars come by Maven: without them this fails."""
    produced(topic, [b"%d" % number for number in range(RECORDS)], partitions=2)
    command = [sys.executable, "-m", "tests.spark.connector_job", cluster.bootstrap, topic, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    ours, theirs = found["batch"]
    assert ours == theirs and ours[:2] == [RECORDS, 2 * sum(range(RECORDS // 2))]
    assert found["headers"] == len(range(0, RECORDS, 3))
    assert found["from"] == 2 * (30 - 10)
    missing = {
        (place, name)
        for place, names in found["names"].items()
        for name in names
        if not name.startswith("org.") and not on_the_page(place, name)
    }
    assert not missing, "docs/spark-options.md says nothing of these"
    assert {place: len(names) > 5 for place, names in found["names"].items()} == dict.fromkeys(found["names"], True)
    assert found["streamed"] == RECORDS + LATER
    assert found["real_time"] == [f"live-{number}" for number in range(LIVE)], "in order, each once"
