"""A directory that the lake filled before it had tables becomes one: its rows, its bad records, where it ended."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.lake.data_files import FileRange, attempt_of, name_of, write_file
from holdfast.lake.errors import TableError
from holdfast.lake.opening import make_table, open_table
from holdfast.lake.position import LandedRange, advanced
from holdfast.lake.side import side_location
from holdfast.lake.table import Batch, Table, land, now_ms
from holdfast.lake.takeover import takeover
from holdfast.lake.upkeep import compact, sweep
from tests.contracts.lake_engines import by_engines
from tests.contracts.lake_tables import SCHEMA, TOPIC, TOPIC_ID, all_files

FAR = datetime(3000, 1, 1, tzinfo=UTC)
"""Beyond what nanoseconds reach."""


def old_file(place: Path, columns: dict[str, Any], *, int96: bool = True) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), place, use_deprecated_int96_timestamps=int96)


def old_rows(start: int, end: int) -> dict[str, Any]:
    return {
        "_topic": pa.array([TOPIC] * (end - start), pa.string()),
        "_partition": pa.array([0] * (end - start), pa.int32()),
        "_offset": pa.array(range(start, end), pa.int64()),
        "_timestamp": pa.array([FAR] * (end - start), pa.timestamp("us", tz="UTC")),
    }


def note(to: Path, number: int, records: int, bad: int, ends: dict[str, Any]) -> None:
    (to / "_batches").mkdir(exist_ok=True)
    (to / f"_batches/{number}.json").write_text(
        json.dumps({"batch": number, "records": records, "bad": bad, "ends": ends})
    )


def old_lake(folder: Path) -> Path:
    """Ten records, batch 0 with a field of the name batch (D12), batch 1 with one column more; one bad record."""
    to = folder / "table"
    old_file(to / "batch=0/part-0.snappy.parquet", {**old_rows(0, 4), "batch": [f"b{n}" for n in range(4)]})
    old_file(to / "batch=0/part-1.snappy.parquet", {**old_rows(4, 4), "batch": pa.array([], pa.string())})
    (to / "batch=0/_SUCCESS").touch()
    plain = {**old_rows(5, 10), "batch": ["x"] * 5, "delay": pa.array(range(5), pa.int32())}
    old_file(to / "batch=1/part-0.snappy.parquet", plain, int96=False)
    old_file(to / "_bad/batch=1/part-0.snappy.parquet", {**old_rows(4, 5), "value": [b"{"], "reason": ["no JSON"]})
    old_file(to / "batch=2/part-0.snappy.parquet", {**old_rows(10, 12)})  # was never finished
    note(to, 0, 4, 0, {TOPIC: {"0": 4}})
    note(to, 1, 5, 1, {TOPIC: {"0": 10, "1": 0}, "@holdfast": {"topics": {}, "epochs": {TOPIC: {"0": 3}}}})
    (to / "_lake.json").write_text(json.dumps({"checkpoint": "c", "topic": TOPIC}))
    (to / "_staging/2-good").mkdir(parents=True)
    return to


def judged(to: Path) -> Table:
    table = open_table(str(to), "parquet")
    assert table is not None
    delays = [None] * 4 + list(range(5))
    expected = [(n, f"b{n}" if n < 4 else "x", FAR, d) for n, d in zip([*range(4), *range(5, 10)], delays, strict=True)]
    found = by_engines(table, ["_offset", "batch", "_timestamp", "delay"])
    assert [[(*row[:2], row[2].astimezone(UTC), row[3]) for row in rows] for rows in found] == [expected] * 3
    side = open_table(side_location(str(to)), "parquet")
    assert side is not None
    assert by_engines(side, ["_offset", "value", "reason"])[0] == [(4, b"{", "no JSON")]
    ends = table.position().topics[TOPIC]
    assert {number: (end.offset, end.epoch) for number, end in ends.partitions.items()} == {0: (10, 3), 1: (0, None)}
    assert (table.position().rows, table.position().bad, side.position().rows) == (9, 1, 1)
    return table


def test_spark_D12_an_old_directory_becomes_a_table_and_goes_on(tmp_path: Path) -> None:
    to = old_lake(tmp_path)
    for format in ("parquet", "delta"):
        with pytest.raises(TableError, match=r"filled by an earlier holdfast lake, .*: take it over"):
            make_table(str(to), format, SCHEMA)
    inode = (to / "batch=1/part-0.snappy.parquet").stat().st_ino
    takeover(str(to))
    table = judged(to)
    assert inode in {(to / path).stat().st_ino for path in table.files()}  # not copied
    assert table.schema().field("_timestamp").type == pa.timestamp("us", tz="UTC")
    assert sorted(path.name for path in to.iterdir()) == ["_holdfast", "data"]
    assert sorted(path.name for path in (to / "_holdfast/taken").iterdir()) == ["_batches", "_lake.json"]
    before, attempt = table.position(), attempt_of(now_ms())
    ranges = (FileRange(topic=TOPIC, topic_id=TOPIC_ID, partition=0, start=10, end=12),)
    path = name_of(ranges, attempt, 0)
    fresh = pa.record_batch(old_rows(10, 12))
    write_file(table.store, path, fresh.schema, [fresh], ranges=ranges)
    landed = LandedRange(topic=TOPIC, topic_id=TOPIC_ID, partition=0, start=10, end=12, epoch=4, rows=2)
    after = advanced(before, [landed], attempt=str(attempt))
    land(table, Batch(attempt=attempt, before=before, after=after, files=(path,)))
    assert table.position().topics[TOPIC].topic_id == TOPIC_ID  # the old lake did not know it
    table.refresh()
    compact(table, attempt_of(now_ms()), target_bytes=1 << 20)
    table.refresh()
    assert len(table.files()) == 1 and table.rows() == 11


def test_an_id_that_the_old_lake_knew_is_kept(tmp_path: Path) -> None:
    to = old_lake(tmp_path)
    other = UUID(int=9)
    note(to, 1, 5, 1, {TOPIC: {"0": 10}, "@holdfast": {"topics": {TOPIC: str(other)}}})
    assert takeover(str(to)).position().topics[TOPIC].topic_id == other


@pytest.mark.parametrize("step", ["side", "committed"])
def test_a_takeover_that_was_cut_off_goes_on(tmp_path: Path, step: str) -> None:
    to = old_lake(tmp_path)

    class CutOffError(Exception):
        pass

    def cut(name: str) -> None:
        if name == step:
            raise CutOffError

    with pytest.raises(CutOffError):
        takeover(str(to), on_step=cut)
    takeover(str(to))
    table = judged(to)
    sweep(table, clock=lambda: now_ms() + 7_200_000)
    table.refresh()
    assert all_files(to / "data") == sorted(path.removeprefix("data/") for path in table.files())
    with pytest.raises(TableError, match=r"was not filled by an earlier holdfast lake: _lake\.json is not there"):
        takeover(str(to))


@pytest.mark.parametrize(
    ("number", "records", "ends", "words"),
    [
        (1, 6, {TOPIC: {"0": 10}}, "batch=1 has 5 rows, its note says 6: not taken over"),
        (3, 0, {TOPIC: {"0": 10}}, r"has notes of batches \[0, 1, 3\], expected one or more in sequence"),
        (1, 5, {}, "1.json does not say where its topic ended"),
    ],
)
def test_a_directory_that_is_not_what_its_notes_say_is_left_as_it_is(
    tmp_path: Path, number: int, records: int, ends: dict[str, Any], words: str
) -> None:
    to = old_lake(tmp_path)
    note(to, number, records, 1, ends)
    before = sorted(to.rglob("*"))
    with pytest.raises(TableError, match=words):
        takeover(str(to))
    assert sorted(to.rglob("*")) == before
    (to / "_batches/1.json").write_text("{}")
    with pytest.raises(TableError, match=r"1.json is no note of a batch"):
        takeover(str(to))


def test_batches_of_types_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    to = old_lake(tmp_path)
    old_file(to / "batch=2/part-0.snappy.parquet", {**old_rows(10, 12), "batch": [1, 2]})
    note(to, 2, 2, 0, {TOPIC: {"0": 12}})
    with pytest.raises(TableError, match="has column batch as int64, others have string"):
        takeover(str(to))
