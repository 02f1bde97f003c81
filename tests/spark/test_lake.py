"""``holdfast lake``: each committed record lands once, through kills, restarts, lost checkpoints; bad ones beside."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow.parquet as pq
import pytest

from holdfast.lake.columns import partition_column
from holdfast.lake.opening import open_table
from holdfast.records.typed.schema_error import SchemaError
from holdfast.spark import lake
from holdfast.spark.lake import LakeJob, LakeProgress, LakeResult, run
from holdfast.testing import wait_for
from tests.contracts.lake_tables import duckdb_rows, scan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.testing import Cluster

pytestmark = pytest.mark.spark

KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.spark.lake import LakeJob, run

bootstrap, topic, folder, form, at = sys.argv[1:]

def die(step, batch):
    if (step, batch) == (at, 1):
        os.killpg(0, signal.SIGKILL)

run(LakeJob(bootstrap=bootstrap, topic=topic, to=Path(folder, "table"), checkpoint=Path(folder, "checkpoint"),
            format=form, available_now=True, max_offsets_per_batch=300, on_step=die))
"""


class Crash(Exception):
    pass


Job = Callable[..., LakeJob]


@pytest.fixture
def job(cluster: Cluster, topic: str, tmp_path: Path) -> Job:
    """A job of this test's topic, table and checkpoint, that reads what there is."""

    def make(**given: Any) -> LakeJob:
        known = {"bootstrap": cluster.bootstrap, "topic": topic, "available_now": True, "format": "delta"}
        places = {"to": tmp_path / "table", "checkpoint": tmp_path / "checkpoint"}
        return LakeJob(**{**known, **places, **given})

    return make


def places(result: LakeResult) -> list[tuple[Any, ...]]:
    """Partition and offset of every row, as another engine reads the table."""
    table = open_table(result.to, result.format)
    assert table is not None
    return sorted(duckdb_rows(f"SELECT {partition_column(result.format)}, _offset FROM {scan_of(table)}"))


def values_of(result: LakeResult, columns: str, *, bad: bool = False) -> list[tuple[Any, ...]]:
    table = open_table(result.bad_to if bad else result.to, result.format)
    assert table is not None
    columns = columns.replace("_partition", partition_column(result.format))
    return duckdb_rows(f"SELECT {columns} FROM {scan_of(table)} ORDER BY {partition_column(result.format)}, _offset")


def crash_at(step: str, batch: int) -> Callable[[str, int], None]:
    def crash(name: str, number: int) -> None:
        if (name, number) == (step, batch):
            raise Crash

    return crash


def test_spark_D2_a_driver_that_finds_its_new_table_made_by_another_one_takes_it(
    spark: SparkSession, produced: Any, topic: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    produced(topic, [{"id": i} for i in range(20)], partitions=2)
    make = lake.make_table

    def overtaken(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(lake, "make_table", make)
        run(job(checkpoint=tmp_path / "other"), spark)
        return make(*given, **named)

    monkeypatch.setattr(lake, "make_table", overtaken)
    result = run(job(), spark)
    assert result.total_records == 20 and places(result) == sorted((i % 2, i // 2) for i in range(20))


@pytest.mark.parametrize(("form", "step"), [("iceberg", "committed"), ("parquet", "commit")])
def test_kills_and_crashes_within_batches_neither_repeat_nor_skip(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, job: Job, tmp_path: Path, form: str, step: str
) -> None:
    produced(topic, [{"id": i, "name": f"n{i}", "delay": i / 2 if i % 4 else None} for i in range(1000)], partitions=3)
    # Killed with all its processes right before or after the commit of batch 1, which Spark has not noted.
    command = [sys.executable, "-c", KILLED, cluster.bootstrap, topic, str(tmp_path), form, step]
    killed = subprocess.run(command, start_new_session=True, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    with pytest.raises(Exception, match="Crash"):
        run(job(format=form, max_offsets_per_batch=300, on_step=crash_at("written", 2)), spark)
    seen: list[LakeProgress] = []
    result = run(job(format=form, max_offsets_per_batch=300, on_progress=seen.append), spark)
    assert (result.total_records, result.total_bad) == (1000, 0)
    assert result.records == sum(each.records for each in seen) and seen[-1].behind == 0
    assert places(result) == sorted((i % 3, i // 3) for i in range(1000))
    assert values_of(result, "id, name, delay")[:2] == [(0, "n0", None), (3, "n3", 1.5)]
    again = run(job(format=form), spark)  # nothing is new
    assert (again.records, again.total_records) == (0, 1000)


def test_spark_D1_the_table_says_where_to_go_on_whatever_the_checkpoint_says(
    spark: SparkSession, produced: Any, topic: str, job: Job
) -> None:
    """Restored from before, cut short, damaged, deleted."""
    checkpoint = job().checkpoint
    backup = checkpoint.with_name("backup")

    def more(records: int) -> None:
        produced(topic, [{"id": i} for i in range(records)], partitions=2)

    def landed(records: int) -> None:
        result = run(job(), spark)
        assert result.total_records == records
        assert places(result) == sorted((p, o) for p in (0, 1) for o in range(records // 2))

    more(100)
    landed(100)
    shutil.copytree(checkpoint, backup)
    more(100)
    landed(200)
    shutil.rmtree(checkpoint)  # of ten batches ago: batch 1 is planned anew, with a wider range
    backup.rename(checkpoint)
    more(100)
    landed(300)
    # A power cut: Spark does not sync its offset log.
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    for lost in (checkpoint / "commits" / newest.name, newest):
        lost.unlink()
        lost.with_name(f".{lost.name}.crc").unlink()
    more(100)
    landed(400)
    shutil.rmtree(checkpoint)
    more(100)
    landed(500)


def test_spark_D1_a_checkpoint_that_is_cut_short_is_named(
    spark: SparkSession, produced: Any, topic: str, job: Job
) -> None:
    produced(topic, [{"id": 1}])
    run(job(), spark)
    (job().checkpoint / "commits/0").unlink()
    newest = job().checkpoint / "offsets/0"
    newest.with_name(".0.crc").unlink()
    newest.write_bytes(newest.read_bytes()[:-20])
    with pytest.raises(Exception, match=r"offsets.0 is damaged: .* delete the checkpoint to go on from there"):
        run(job(), spark)
    shutil.rmtree(job().checkpoint)
    assert run(job(), spark).total_records == 1


def test_spark_D1_a_checkpoint_that_lost_all_its_batches_is_begun_again(
    spark: SparkSession, produced: Any, topic: str, job: Job
) -> None:
    """As a power cut leaves it: Spark syncs neither, and refuses a commit of which it has no batch."""
    produced(topic, [{"id": i} for i in range(5)])
    run(job(), spark)
    for lost in (job().checkpoint / "offsets").iterdir():
        lost.unlink()
    (job().checkpoint / "commits/.1.half-made.tmp").touch()
    produced(topic, [{"id": i} for i in range(5, 9)])
    assert run(job(), spark).records == 4
    assert places(run(job(), spark)) == [(0, i) for i in range(9)]


def test_spark_D26_a_table_that_was_deleted_or_left_half_made_is_filled_from_the_start(
    spark: SparkSession, produced: Any, topic: str, job: Job
) -> None:
    produced(topic, [{"id": i} for i in range(20)], partitions=2)
    probe = Path(job().to, "_holdfast/probe-000000000000")  # killed while it tried the place
    probe.parent.mkdir(parents=True)
    probe.touch()
    run(job(), spark)
    shutil.rmtree(job().to)
    produced(topic, [{"id": i} for i in range(20, 30)], partitions=2)
    assert places(run(job(), spark)) == sorted((i % 2, i // 2) for i in range(30))


def test_spark_D2_of_two_drivers_the_one_that_comes_late_is_refused(
    spark: SparkSession, produced: Any, topic: str, job: Job, tmp_path: Path
) -> None:
    produced(topic, [{"id": i} for i in range(100)], partitions=2)

    written, landed = threading.Event(), threading.Event()

    def wait_for_the_other(step: str, _batch: int) -> None:
        if step == "written":
            written.set()
            assert landed.wait(60)

    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(run, job(on_step=wait_for_the_other), spark)
        assert written.wait(60)
        run(job(checkpoint=tmp_path / "other"), spark)
        landed.set()
        with pytest.raises(Exception, match=r"the table ends at 50 .leader epoch 0., the batch begins at nothing"):
            late.result()
    assert places(run(job(), spark)) == sorted((i % 2, i // 2) for i in range(100))


def test_spark_D18_bad_records_go_to_a_table_beside_with_the_reason_and_land_once(
    spark: SparkSession, produced: Any, topic: str, job: Job
) -> None:
    good = [{"id": 1, "name": "a"}, {"id": 2}, {"id": 3, "name": "c", "more": True}, {}, None]
    bad = [b'{"id": "x"}', b"nonsense", b"[1]", b"\xff", b"null", b'{"id": 9', b'{"id": 1}{"id": 2}']
    produced(topic, [*good, *bad])
    schema = "id BIGINT, name STRING"
    # Cut off between the commit of the bad records and that of the others: told then, landed once.
    with pytest.raises(Exception, match="Crash"):
        run(job(schema=schema, on_step=crash_at("side committed", 0)), spark)
    result = run(job(schema=schema), spark)
    assert (result.records, result.bad, result.dropped) == (5, 7, {"more": 1})
    rows = values_of(result, "id, name, _rest, _key, _topic")
    assert [row[:3] for row in rows] == [
        (1, "a", None), (2, None, None), (3, "c", '{"more":true}'), (None, None, None), (None, None, None),
    ]  # fmt: skip
    assert (bytes(rows[0][3]), rows[0][4]) == (b"k0", topic)
    sides = values_of(result, '"value", reason', bad=True)
    assert [bytes(value) for value, _ in sides] == bad
    assert [reason.split(":")[0] for _, reason in sides] == [
        "field id", "not a JSON object", "not a JSON object", "not UTF-8", "not a JSON object", "not JSON", "not JSON",
    ]  # fmt: skip


def test_spark_D12_D17_D18_names_and_types_of_columns(
    spark: SparkSession, produced: Any, topic: str, job: Job, tmp_path: Path
) -> None:
    produced(topic, [{"batch": 7, "at": "2024-07-01T12:00:00"}])
    schema = "batch INT, at TIMESTAMP"
    result = run(job(format="iceberg", schema=schema, headers=True, time_zone="Europe/Berlin"), spark)
    [row] = values_of(result, 'batch, epoch("at"), _timestampType, _headers[1]."key"')
    assert row == (7, 1719828000.0, 0, "n")
    with pytest.raises(SchemaError, match="was begun with time zone Europe/Berlin, not UTC"):
        run(job(format="iceberg", schema=schema, headers=True), spark)
    [file] = (tmp_path / "table").rglob("*.parquet")
    kinds = {each.name: str(each.logical_type) for each in map(pq.ParquetFile(file).schema.column, range(4))}
    assert "timeUnit=microseconds" in kinds["_timestamp"], "INT96 is read without its zone"
    raw = run(job(format="iceberg", values="raw", to=tmp_path / "raw", checkpoint=tmp_path / "c2", headers=True), spark)
    assert values_of(raw, '"value", _timestampType, len(_headers)') == [
        (b'{"batch": 7, "at": "2024-07-01T12:00:00"}', 0, 2)
    ]


def test_spark_D15_new_fields_are_kept_dropped_or_the_end(
    spark: SparkSession, produced: Any, topic: str, job: Job, tmp_path: Path
) -> None:
    produced(topic, [{"id": 1}])
    run(job(), spark)
    produced(topic, [{"id": 2, "new": [1]}])
    with pytest.raises(Exception, match=r"SchemaError: .* has no column for new list<item: int64> .of 1 records."):
        run(job(new_fields="fail"), spark)
    result = run(job(), spark)
    assert result.dropped == {"new": 1}
    assert values_of(result, "id, _rest") == [(1, None), (2, '{"new":[1]}')]
    produced(topic, [{"id": 3, "new": [3]}, {"id": 4, "newer": 0.5}])
    result = run(job(new_fields="add"), spark)
    assert not result.dropped
    assert values_of(result, "id, new, newer")[2:] == [(3, [3], None), (4, None, 0.5)]


def test_struct_and_avro_values_in_a_table_by_day(
    spark: SparkSession, produced: Any, topic: str, job: Job, tmp_path: Path
) -> None:
    produced(topic, [struct.pack(">qI", n, n * 3) for n in range(10)] + [b"short"])
    result = run(job(values="struct", schema="id:>i8, small:>u4", partition_by="day(_timestamp)"), spark)
    assert (result.records, result.bad) == (10, 1)
    assert values_of(result, "id, small") == [(n, n * 3) for n in range(10)]
    with pytest.raises(Exception, match=r"is partitioned by day._timestamp., expected id"):
        run(job(values="struct", schema="id:>i8, small:>u4", partition_by="id"), spark)
    with pytest.raises(SchemaError, match="values of format struct need a schema"):
        run(job(values="struct"), spark)
    avsc = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(avsc), {"id": 7, "s": "x"})
    other = f"{topic}-avro"
    produced(other, [written.getvalue(), b"\x0e\x10"])
    places = {"to": tmp_path / "avro", "checkpoint": tmp_path / "other"}
    landed = run(job(topic=other, values="avro", schema=json.dumps(avsc), **places), spark)
    assert (landed.bad, values_of(landed, "id, s")) == (1, [(7, "x")])


def test_spark_D4_a_topic_that_was_made_again_is_refused_or_noted_in_the_table(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, job: Job
) -> None:
    from confluent_kafka.admin import AdminClient

    produced(topic, [{"id": i} for i in range(10)])
    run(job(), spark)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.delete_topics([topic]).values():
        future.result()
    wait_for(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic to go")
    produced(topic, [{"id": i} for i in range(100, 125)])  # longer than before
    with pytest.raises(Exception, match=f"topic {topic} was deleted and made again: its id was"):
        run(job(), spark)
    shutil.rmtree(job().checkpoint)
    with pytest.raises(Exception, match=f"topic {topic} was deleted and made again: its id was"):
        run(job(), spark)
    result = run(job(fail_on_data_loss=False), spark)
    assert [row[0] for row in sorted(values_of(result, "id"))] == [*range(10), *range(100, 125)]
    table = open_table(result.to, result.format)
    assert table is not None
    [gap] = table.position().gaps
    assert (gap.partition, gap.start, gap.end, gap.reason) == (0, 10, 10, "the topic was made again")


def test_what_retention_took_is_named_or_noted_in_the_table(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, job: Job
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    produced(topic, [{"id": i} for i in range(10)])
    run(job(), spark)
    produced(topic, [{"id": i} for i in range(10, 30)])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 15)]).values():
        future.result()
    with pytest.raises(Exception, match=rf"topic {topic} .id .*, partition 0: offsets 10 to 15 are missing in the log"):
        run(job(), spark)
    result = run(job(fail_on_data_loss=False), spark)
    assert (result.gap_offsets, places(result)) == (5, [(0, o) for o in (*range(10), *range(15, 30))])


def lake_command(cluster: Cluster, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "holdfast.cli.main", "lake", *arguments, "--bootstrap-server", cluster.bootstrap]


def test_ctrl_c_ends_the_command_cleanly_and_status_says_what_is_there(
    cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    produced(topic, [{"id": i} for i in range(50)])
    to = str(tmp_path / "to")
    command = lake_command(cluster, "status", "--to", to, "--json")
    land = [*lake_command(cluster), "--topic", topic, "--to", to, "--checkpoint", str(tmp_path / "c"), "--json"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    running = subprocess.Popen(
        land, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    assert running.stdout is not None
    first = running.stdout.readline()
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
    out, errors = running.communicate(timeout=60)
    assert '"event": "batch"' in first, errors
    assert running.returncode == 0, errors
    assert '"event": "result"' in out and '"records": 50' in out
    assert "Traceback" not in errors
    status = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert '"rows": 50' in status and '"offset": 50' in status and '"lag": 0' in status
    maintained = subprocess.run(
        [*command[:3], "lake", "maintain", "--to", to], capture_output=True, text=True, check=True
    ).stdout
    assert maintained.startswith(f"{to}: 0 files became 0")
