"""``holdfast lake``: each record lands once, through kills and restarts; bad ones beside, with the reason."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.spark.lake import LakeJob, LakeProgress, run
from holdfast.spark.landing import LandingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.testing import Cluster

pytestmark = pytest.mark.spark

KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.spark.lake import LakeJob, run

def die(step, batch):
    if (step, batch) == ("placed", 1):
        os.killpg(0, signal.SIGKILL)

bootstrap, topic, folder = sys.argv[1:]
run(LakeJob(bootstrap=bootstrap, topic=topic, to=Path(folder, "to"), checkpoint=Path(folder, "checkpoint"),
            available_now=True, max_offsets_per_batch=300, on_step=die))
"""


class Crash(Exception):
    pass


def test_kills_between_and_within_batches_neither_repeat_nor_skip(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    produced(topic, [{"id": i, "name": f"n{i}", "delay": i / 2 if i % 4 else None} for i in range(1000)], partitions=3)
    # Killed with all its processes when batch 1 is in place and neither our mark nor Spark's says so.
    command = [sys.executable, "-c", KILLED, cluster.bootstrap, topic, str(tmp_path)]
    killed = subprocess.run(command, start_new_session=True, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert (tmp_path / "to/batch=1").is_dir() and not (tmp_path / "to/_batches/1.json").exists()

    def crash(step: str, batch: int) -> None:
        if (step, batch) == ("staged", 2):
            raise Crash

    job: dict[str, Any] = {"bootstrap": cluster.bootstrap, "topic": topic, "available_now": True}
    job |= {"to": tmp_path / "to", "checkpoint": tmp_path / "checkpoint", "max_offsets_per_batch": 300}
    with pytest.raises(Exception, match="Crash"):
        run(LakeJob(**job, on_step=crash), spark)
    seen: list[LakeProgress] = []
    result = run(LakeJob(**job, on_progress=seen.append), spark)
    assert (result.total_records, result.total_bad) == (1000, 0)
    assert result.records == sum(each.records for each in seen) and seen[-1].behind == 0
    landed = spark.read.parquet(str(tmp_path / "to"))
    assert landed.schema["id"].dataType.typeName() == "long" and landed.schema["delay"].dataType.typeName() == "double"
    rows = landed.orderBy("id").collect()
    assert [row.id for row in rows] == list(range(1000))
    assert [row.delay for row in rows[:5]] == [None, 0.5, 1.0, 1.5, None]
    places = sorted((row["_partition"], row["_offset"]) for row in rows)
    assert places == sorted((i % 3, i // 3) for i in range(1000))
    again = run(LakeJob(**job), spark)  # nothing is new
    assert (again.records, again.total_records) == (0, 1000)
    with pytest.raises(LandingError, match="with another checkpoint"):
        run(LakeJob(**{**job, "checkpoint": tmp_path / "other"}), spark)


def test_bad_records_go_to_a_side_table_with_the_reason(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    good = [{"id": 1, "name": "a"}, {"id": 2}, {"id": 3, "name": "c", "more": True}, {}]
    bad = [b'{"id": "x"}', b"nonsense", b"[1]", None, b"\xff", b"null", b'{"id": 9']
    produced(topic, [*good, *bad])
    job = LakeJob(
        bootstrap=cluster.bootstrap,
        topic=topic,
        to=tmp_path / "to",
        checkpoint=tmp_path / "checkpoint",
        available_now=True,
        schema="id BIGINT, name STRING",
    )
    result = run(job, spark)
    assert (result.records, result.bad) == (4, 7)
    rows = spark.read.parquet(str(result.to)).orderBy("_offset").collect()
    assert [(row.id, row.name) for row in rows] == [(1, "a"), (2, None), (3, "c"), (None, None)]
    assert bytes(rows[0]["_key"]) == b"k0" and rows[0]["_topic"] == topic
    sides = spark.read.parquet(str(result.bad_path)).orderBy("_offset").collect()
    assert [row.value and bytes(row.value) for row in sides] == bad
    reasons = [row.reason.split(":")[0] for row in sides]
    assert reasons == [
        "field id", "not JSON", "not a JSON object but an array", "the value is null", "not UTF-8",
        "not a JSON object but null", "not JSON",
    ]  # fmt: skip


def test_ctrl_c_ends_the_command_cleanly(cluster: Cluster, produced: Any, topic: str, tmp_path: Path) -> None:
    produced(topic, [{"id": i} for i in range(50)])
    command = [sys.executable, "-m", "holdfast.cli.main", "lake", "--bootstrap-server", cluster.bootstrap]
    command += ["--topic", topic, "--to", str(tmp_path / "to"), "--checkpoint", str(tmp_path / "c"), "--json"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert running.stdout is not None
    first = running.stdout.readline()
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
    out, errors = running.communicate(timeout=60)
    assert '"event": "batch"' in first, errors
    assert running.returncode == 0, errors
    assert '"event": "result"' in out and '"records": 50' in out
    assert "Traceback" not in errors
