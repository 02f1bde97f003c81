"""A table and the table of its bad records: kills, replays and two writers, and each record is in one of them, once."""

import multiprocessing
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast.lake.data_files import FileRange, attempt_of
from holdfast.lake.errors import PositionMovedError, TableError
from holdfast.lake.opening import make_table
from holdfast.lake.position import Position, restarted
from holdfast.lake.side import land_both, plan_side, side_location
from holdfast.lake.table import land, now_ms
from holdfast.lake.upkeep import compact
from tests.contracts.lake_sides import KILLS, both, side_made, side_opened, third, write_both
from tests.contracts.lake_tables import FORMATS, SCHEMA, TOPIC, TOPIC_ID, made, offsets_by_duckdb, opened

PROCESSES: Any = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.contracts.lake_sides", "pyiceberg.catalog.sql", "deltalake"])
each_format = pytest.mark.parametrize("format", FORMATS)


def started(*given: Any) -> Any:
    process = PROCESSES.Process(target=write_both, args=given)
    process.start()
    return process


def ended(process: Any) -> int:
    process.join(40)
    assert process.exitcode is not None, "the writer did not end in 40 s"
    return int(process.exitcode)


def in_both(folder: Path, format: str) -> tuple[list[int], list[int]]:
    """Offsets of the rows and of the bad records, as DuckDB sees them."""
    good, bad = offsets_by_duckdb(opened(folder, format)), offsets_by_duckdb(side_opened(folder, format))
    return [offset for _, offset in good], [offset for _, offset in bad]


def expected(end: int) -> tuple[list[int], list[int]]:
    return [n for n in range(end) if n % 3], [n for n in range(end) if not n % 3]


@pytest.mark.parametrize(("step", "format"), KILLS)
def test_a_kill_around_either_commit_leaves_each_record_once(tmp_path: Path, step: str, format: str) -> None:
    made(tmp_path, format)
    side_made(tmp_path, format)
    assert ended(started(tmp_path, format, f"{step}@1", 10, 2)) == -signal.SIGKILL
    main_end, side_end = 20 if step == "committed" else 10, 10 if step == "side inside" else 20
    ends = [
        table.position().topics[TOPIC].partitions[0].offset
        for table in (opened(tmp_path, format), side_opened(tmp_path, format))
    ]
    assert ends == [main_end, side_end]  # the side table a moment earlier, never later
    # The next writer cuts its batches otherwise: first within what the side table has, then beyond it.
    write_both(tmp_path, format, "", 7, 3)
    assert in_both(tmp_path, format) == expected(main_end + 21)
    position = opened(tmp_path, format).position()
    assert (position.rows, position.bad) == tuple(len(each) for each in expected(main_end + 21))
    assert side_opened(tmp_path, format).position().rows == position.bad


@each_format
def test_of_two_writers_one_lands_both_tables_and_the_other_one_neither(tmp_path: Path, format: str) -> None:
    main, side = made(tmp_path, format), side_made(tmp_path, format)
    late_main, late_side = opened(tmp_path, format), side_opened(tmp_path, format)
    late, late_bad = both(late_main, late_side, Position(), 0, 20)
    batch, bad = both(main, side, Position(), 0, 10)

    def overtaken(step: str) -> None:
        """Between the first one's two commits."""
        if step == "side committed":
            with pytest.raises(PositionMovedError):
                land_both(late_main, late, late_side, late_bad)

    first = land_both(main, batch, side, bad, on_step=overtaken)
    with pytest.raises(PositionMovedError):
        land_both(late_main, late, late_side, late_bad)
    assert in_both(tmp_path, format) == expected(10)
    assert land_both(main, batch, side, bad) == first  # an answer that was lost
    again, again_bad = both(late_main, late_side, first, 10, 20)
    land_both(late_main, again, late_side, again_bad)
    assert in_both(tmp_path, format) == expected(20)


def test_a_batch_that_was_cut_off_between_the_commits_is_finished(tmp_path: Path) -> None:
    main, side = made(tmp_path, "parquet"), side_made(tmp_path, "parquet")

    class CutOffError(Exception):
        pass

    def cut(step: str) -> None:
        if step.endswith("committed"):
            raise CutOffError

    with pytest.raises(CutOffError):
        land_both(main, *_both(main, side, Position(), 0, 10), on_step=cut)
    main.refresh()
    start = max((end.offset for ends in main.position().topics.values() for end in ends.partitions.values()), default=0)
    land_both(main, *_both(main, side, main.position(), start, start + 7))
    assert in_both(tmp_path, "parquet")[0] == expected(start + 7)[0]
    assert in_both(tmp_path, "parquet")[1] == expected(10)[1]


@each_format
def test_what_another_attempt_takes_for_bad_is_added(tmp_path: Path, format: str) -> None:
    """The first attempt ends between its commits; the next one has another schema, and finds more to be bad."""
    main, side = made(tmp_path, format), side_made(tmp_path, format)
    first = land_both(main, *_both(main, side, Position(), 0, 10))
    _batch, bad = both(main, side, first, 10, 20)
    land(side, bad)
    compact(side_opened(tmp_path, format), attempt_of(now_ms()), target_bytes=1 << 20)
    more = both(main, side, first, 10, 25, bad=lambda offset: third(offset) or offset == 13)
    land_both(main, more[0], side, more[1])
    good, bad_found = expected(25)
    assert in_both(tmp_path, format) == ([n for n in good if n != 13], sorted([*bad_found, 13]))


def _both(main: Any, side: Any, *given: Any, **named: Any) -> tuple[Any, Any, Any]:
    batch, bad = both(main, side, *given, **named)
    return batch, side, bad


def test_batches_without_bad_records_make_no_commit_in_the_side_table(tmp_path: Path) -> None:
    main, side = made(tmp_path, "parquet"), side_made(tmp_path, "parquet")
    position = Position()
    for start in range(0, 30, 10):
        batch, bad = both(main, side, position, start, start + 10, bad=lambda _offset: False)
        assert bad is None
        position = land_both(main, batch, None, None)
    batch, bad = both(main, side, position, 30, 40)
    with pytest.raises(TableError, match="there are bad records and no side table"):
        land_both(main, batch, None, bad)
    land_both(main, batch, side, bad)
    assert side.position().topics[TOPIC].partitions[0].offset == 40
    assert in_both(tmp_path, "parquet") == ([n for n in range(40) if n < 30 or n % 3], [30, 33, 36, 39])


@pytest.mark.parametrize("killed", [False, True])
def test_a_topic_that_was_made_again_has_its_bad_records_again(tmp_path: Path, killed: bool) -> None:
    main, side = made(tmp_path, "parquet"), side_made(tmp_path, "parquet")
    first = land_both(main, *_both(main, side, Position(), 0, 30))
    other = UUID(int=8)
    noted = restarted(first, TOPIC, other, "again")
    if killed:
        _batch, bad = both(main, side, first, 0, 10, topic_id=other, noted=noted)
        land(side, bad)
    land_both(main, *_both(main, side, first, 0, 20, topic_id=other, noted=noted))
    good, bad_found = in_both(tmp_path, "parquet")
    assert (good, bad_found) == tuple(sorted(a + b) for a, b in zip(expected(30), expected(20), strict=True))
    assert side.position().topics[TOPIC].topic_id == other


@pytest.mark.parametrize("killed", [False, True])
def test_a_log_that_was_cut_has_other_bad_records_from_there_on(tmp_path: Path, killed: bool) -> None:
    main, side = made(tmp_path, "parquet"), side_made(tmp_path, "parquet")
    first = land_both(main, *_both(main, side, Position(), 0, 30))
    ends = first.topics[TOPIC]
    back = replace(ends, partitions={0: replace(ends.partitions[0], offset=10)})
    noted = replace(first, topics={TOPIC: back})
    if killed:
        _batch, bad = both(main, side, first, 10, 20, noted=noted)
        land(side, bad)
    second = land_both(main, *_both(main, side, first, 10, 25, noted=noted))
    land_both(main, *_both(main, side, second, 25, 40))
    old, new = [n for n in range(30) if not n % 3], [n for n in range(10, 40) if not n % 3]
    assert in_both(tmp_path, "parquet")[1] == sorted(old + new)


def test_a_side_table_that_does_not_say_where_its_rows_come_from_is_refused(tmp_path: Path) -> None:
    location = str(tmp_path / "table")
    assert side_location(location + "/") == location + "_bad"
    main, side = made(tmp_path, "parquet"), side_made(tmp_path, "parquet")
    _batch, bad = both(main, side, Position(), 0, 10)
    other = make_table(str(tmp_path / "other"), "parquet", SCHEMA.remove(1))
    other.put((), bad.after)
    reading = FileRange(topic=TOPIC, topic_id=TOPIC_ID, partition=0, start=0, end=10)
    with pytest.raises(TableError, match="other: a table of bad records has no column _offset"):
        plan_side(other, Position(), [reading])
