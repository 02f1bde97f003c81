"""One contract for the tables of the lake: Delta, Iceberg and Parquet. What is true is read by other engines."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.lake.data_files import attempt_in, attempt_of
from holdfast.lake.errors import (
    AttemptTooOldError,
    CountError,
    FileMissingError,
    PositionMovedError,
    TableError,
)
from holdfast.lake.opening import open_table
from holdfast.lake.position import Position
from holdfast.lake.status import status
from holdfast.lake.table import Batch, CommitConflict, fence, land, now_ms
from holdfast.lake.upkeep import compact, maintain, sweep
from holdfast.model.types import TopicPartition
from tests.contracts.lake_tables import (
    FORMATS,
    SCHEMA,
    TOPIC,
    TOPIC_ID,
    all_files,
    batch_of,
    by_another_engine,
    count_by_own_library,
    made,
    made_by_others,
    offsets,
    offsets_by_duckdb,
    opened,
)

pytestmark = pytest.mark.parametrize("format", FORMATS)


def test_a_new_table_is_empty_and_ends_nowhere(tmp_path: Path, format: str) -> None:
    assert open_table(str(tmp_path / "table"), format) is None
    made(tmp_path, format)
    table = opened(tmp_path, format)
    assert table.position() == Position() and table.files() == () and table.format == format
    assert table.schema().equals(SCHEMA)
    with pytest.raises(TableError, match="is a table already"):
        made(tmp_path, format)
    other = next(each for each in FORMATS if each != format)
    with pytest.raises(TableError, match=f"is a table of format {format}, expected {other}"):
        open_table(str(tmp_path / "table"), other)


def test_batches_land_with_the_position_in_one_commit(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    first = land(table, batch_of(table, table.position(), (0, 0, 100), (1, 5, 9), bad=2))
    second = land(table, batch_of(table, first, (0, 100, 130)))
    assert offsets_by_duckdb(table) == offsets((0, 0, 130), (1, 5, 9))
    assert count_by_own_library(table) == 134
    again = opened(tmp_path, format)
    assert again.position() == second and (second.rows, second.bad, second.sequence) == (134, 4, 2)
    assert {number: end.offset for number, end in second.topics[TOPIC].partitions.items()} == {0: 130, 1: 9}
    assert len(again.files()) == 3 and again.snapshot()[1]


def test_spark_D1_a_batch_planned_anew_and_wider_is_refused_whatever_its_number(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    first = land(table, batch_of(table, Position(), (0, 0, 100)))
    land(table, batch_of(table, first, (0, 100, 200)))
    # A checkpoint from before the second batch plans it again, as 100 to 900.
    with pytest.raises(PositionMovedError, match=r"partition 0: the table ends at 200 .* the batch begins at 100"):
        land(table, batch_of(table, first, (0, 100, 900)))
    assert offsets_by_duckdb(table) == offsets((0, 0, 200))


def test_spark_D2_of_two_writers_that_saw_one_position_exactly_one_wins(tmp_path: Path, format: str) -> None:
    start = land(made(tmp_path, format), batch_of(opened(tmp_path, format), Position(), (0, 0, 10)))
    one, other = opened(tmp_path, format), opened(tmp_path, format)
    ours, theirs = batch_of(one, start, (0, 10, 20)), batch_of(other, start, (0, 10, 15))

    def overtaken(step: str) -> None:
        """All checks have passed, and the other one commits in between."""
        if step == "commit" and one.position() == start:
            land(opened(tmp_path, format), theirs)

    with pytest.raises(PositionMovedError, match="the table ends at 15"):
        land(one, ours, on_step=overtaken)
    assert offsets_by_duckdb(one) == offsets((0, 0, 15))
    with pytest.raises(PositionMovedError):
        land(one, ours)


def test_spark_D2_a_batch_without_files_fences_as_well(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    late = opened(tmp_path, format)
    batch, empty = batch_of(late, Position(), (0, 0, 5)), batch_of(table, Position(), (0, 0, 0), bad=3)
    empty = Batch(attempt=empty.attempt, before=empty.before, after=empty.after, files=())
    land(table, empty)
    with pytest.raises(CommitConflict):  # on the state that it has read, which is the one before
        late.put((), batch.after)
    assert opened(tmp_path, format).position() == empty.after


def test_a_commit_whose_answer_was_lost_is_found(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    batch = batch_of(table, Position(), (0, 0, 10))
    assert land(table, batch) == land(opened(tmp_path, format), batch) == batch.after
    assert offsets_by_duckdb(table) == offsets((0, 0, 10))


def test_spark_D16_rows_are_counted_by_the_footers(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    batch = batch_of(table, Position(), (0, 0, 10), (1, 0, 10))
    with pytest.raises(CountError, match="the batch says 20 rows, the footers of its 1 files say 10"):
        land(table, Batch(attempt=batch.attempt, before=batch.before, after=batch.after, files=batch.files[:1]))
    with pytest.raises(CountError, match="twice"):
        land(table, Batch(attempt=batch.attempt, before=batch.before, after=batch.after, files=batch.files[:1] * 2))
    table.store.remove(batch.files[1])  # as on a disk of a machine that the committer does not see
    with pytest.raises(FileMissingError, match=r"1-0-10-.* is not there"):
        land(table, batch)
    assert opened(tmp_path, format).position() == Position()


def test_a_file_of_another_attempt_is_refused(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    batch, other = batch_of(table, Position(), (0, 0, 10)), batch_of(table, Position(), (0, 0, 10))
    with pytest.raises(TableError, match="is not a file of attempt"):
        land(table, Batch(attempt=batch.attempt, before=batch.before, after=batch.after, files=other.files))


def test_two_attempts_of_one_range_share_no_file(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    batch, other = batch_of(table, Position(), (0, 0, 10)), batch_of(table, Position(), (0, 0, 10))
    assert not set(batch.files) & set(other.files)
    land(table, batch)
    for path in other.files:
        table.store.remove(path)
    assert offsets_by_duckdb(table) == offsets((0, 0, 10))


def test_compaction_keeps_rows_and_position_and_stops_nobody(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    position = Position()
    for number in range(6):
        position = land(table, batch_of(table, position, (0, number * 10, number * 10 + 10)))
    writer = opened(tmp_path, format)
    batch = batch_of(writer, position, (0, 60, 70))

    def compacted(step: str) -> None:
        other = opened(tmp_path, format)
        if step == "commit" and len(other.files()) == 6:
            done = compact(other, attempt_of(now_ms()), target_bytes=1 << 20)
            assert (done.files_before, done.files_after, done.rows) == (6, 1, 60)

    after = land(writer, batch, on_step=compacted)
    table = opened(tmp_path, format)
    assert table.position() == after and len(table.files()) == 2
    assert offsets_by_duckdb(table) == offsets((0, 0, 70)) and count_by_own_library(table) == 70


def test_a_slow_compaction_lands_on_top_of_batches_that_came_meanwhile(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    first = land(table, batch_of(table, Position(), (0, 0, 10), (1, 0, 10)))
    slow = opened(tmp_path, format)
    read = slow.read

    def overtaken(paths: Any, schema: Any) -> Any:
        yield from read(paths, schema)
        land(table, batch_of(table, first, (0, 10, 20)))

    slow.read = overtaken
    assert compact(slow, attempt_of(now_ms()), target_bytes=1 << 20).files_before == 2
    table = opened(tmp_path, format)
    assert len(table.files()) == 2 and table.position().rows == 30
    assert offsets_by_duckdb(table) == offsets((0, 0, 20), (1, 0, 10))


def test_of_two_compactions_of_the_same_files_one_does_nothing(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    position = land(table, batch_of(table, Position(), (0, 0, 10), (1, 0, 10)))
    slow = opened(tmp_path, format)
    read = slow.read

    def overtaken(paths: Any, schema: Any) -> Any:
        yield from read(paths, schema)
        compact(table, attempt_of(now_ms()), target_bytes=1 << 20)

    slow.read = overtaken
    assert compact(slow, attempt_of(now_ms()), target_bytes=1 << 20).files_before == 0
    table = opened(tmp_path, format)
    assert len(table.files()) == 1 and table.position() == position
    assert offsets_by_duckdb(table) == offsets((0, 0, 10), (1, 0, 10))


def test_commits_of_other_engines_keep_the_position_and_stop_nobody(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    position = Position()
    done: list[int] = []
    for number in range(6):

        def others(step: str, number: int = number) -> None:
            if step == "commit" and number not in done:
                done.append(number)
                by_another_engine(opened(tmp_path, format), number)

        position = land(table, batch_of(table, position, (0, number * 5, number * 5 + 5)), on_step=others)
        assert opened(tmp_path, format).position() == position and done[-1] == number
    maintain(table, keep_ms=-1_000)
    table = opened(tmp_path, format)
    assert table.position().topics == position.topics and table.position().rows == 30
    assert offsets_by_duckdb(table) == offsets((0, 0, 30)) and count_by_own_library(table) == 30


def test_a_table_says_what_it_has_and_where_it_ends(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    land(table, batch_of(table, Position(), (0, 0, 10), (1, 3, 5), bad=1))
    found = json.loads(json.dumps(status(opened(tmp_path, format), {TopicPartition(TOPIC, 0): 25})))
    assert found["topics"] == {
        TOPIC: {
            "id": str(TOPIC_ID),
            "partitions": {"0": {"offset": 10, "epoch": 1, "lag": 15}, "1": {"offset": 5, "epoch": 1, "lag": None}},
        }
    }
    assert (found["rows"], found["landed"], found["bad"], found["files"]) == (12, 12, 2, 2)
    assert (found["format"], found["commits"], found["gaps"]) == (format, 1, [])
    assert Path(found["metadata"].removeprefix("file://")).is_file() and int(found["snapshot"]) >= 1


def test_a_table_of_others_is_landed_in(tmp_path: Path, format: str) -> None:
    if format == "parquet":  # nobody else makes these
        table = made(tmp_path, format)
    else:
        table = made_by_others(tmp_path, format)
        assert table.position() == Position()
    late = opened(tmp_path, format)
    land(table, batch_of(table, Position(), (0, 0, 10)))
    with pytest.raises(PositionMovedError):
        land(late, batch_of(late, Position(), (0, 0, 20)))
    table.refresh()
    assert table.position().rows == 10 and offsets_by_duckdb(table) == offsets((0, 0, 10))


def test_a_round_of_upkeep_says_what_it_did_and_bounds_the_files(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    position = Position()
    for number in range(4):
        position = land(table, batch_of(table, position, (0, number, number + 1)))
    batch_of(table, position, (0, 4, 9))  # written and never committed
    later = now_ms() + 7_200_000
    first = maintain(table, clock=lambda: later, keep_ms=-1_000)
    assert (first.compaction.files_before, first.compaction.files_after, first.compaction.rows) == (4, 1, 4)
    assert len(first.swept) >= 1 and table.position().rows == 4
    second = maintain(table, clock=lambda: later, keep_ms=-1_000)
    assert second.compaction.files_before == 0 and offsets_by_duckdb(table) == offsets((0, 0, 4))


def test_the_position_survives_expiry_of_everything_old(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    position = Position()
    for number in range(12):
        position = land(table, batch_of(table, position, (0, number, number + 1)))
    table.refresh()
    compact(table, attempt_of(now_ms()), target_bytes=1 << 20)
    for _ in range(2):  # the first leaves a state to go on from, the second what lies before it
        table = opened(tmp_path, format)
        table.expire(older_than_ms=now_ms() + 1_000)
    table = opened(tmp_path, format)
    assert table.position() == position and len(table.files()) == 1
    after = land(table, batch_of(table, position, (0, 12, 20)))
    assert opened(tmp_path, format).position() == after
    assert offsets_by_duckdb(table) == offsets((0, 0, 20))


def test_the_sweep_takes_what_no_commit_can_name_any_more(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    clock = [1_700_000_000_000]
    old = attempt_of(clock[0])
    first = land(table, batch_of(table, Position(), (0, 0, 10), attempt=old), clock=lambda: clock[0])
    abandoned = batch_of(table, first, (0, 10, 20), attempt=attempt_of(clock[0]))
    table.store.create(f"data/.{abandoned.files[0].removeprefix('data/')}.0a.partial", b"half")
    clock[0] += 100_000
    under_way = batch_of(table, first, (0, 10, 30), attempt=attempt_of(clock[0]))
    clock[0] += 50_000
    assert len(all_files(tmp_path / "table/data")) == 4
    swept = sweep(opened(tmp_path, format), clock=lambda: clock[0], most_age_ms=120_000)
    assert {attempt_in(path) for path in swept} == {abandoned.attempt}
    assert len(swept) == 2 and len(all_files(tmp_path / "table/data")) == 2
    with pytest.raises(PositionMovedError):
        land(table, abandoned)
    # The sweep has moved the number and no offset: the batch under way is planned again on top and lands.
    table.refresh()
    again = batch_of(table, table.position(), (0, 10, 30), attempt=attempt_of(clock[0]))
    land(table, again, clock=lambda: clock[0])
    assert offsets_by_duckdb(table) == offsets((0, 0, 30))
    assert under_way.files[0].split("/")[-1] in all_files(tmp_path / "table/data")
    assert sweep(table, clock=lambda: clock[0], most_age_ms=120_000) == ()


def test_files_of_states_that_are_kept_stay(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    position = Position()
    for number in range(3):
        position = land(table, batch_of(table, position, (0, number, number + 1)))
    table.refresh()
    compact(table, attempt_of(now_ms()), target_bytes=1 << 20)
    assert sweep(table, clock=lambda: now_ms() + 1_000, most_age_ms=0) == ()
    for _ in range(2):
        table.refresh()
        table.expire(older_than_ms=now_ms() + 1_000)
    table = opened(tmp_path, format)
    gone = sweep(table, clock=lambda: now_ms() + 1_000, most_age_ms=0)
    assert len(gone) == 3
    assert len(all_files(tmp_path / "table/data")) == 1
    assert offsets_by_duckdb(table) == offsets((0, 0, 3))


def test_an_attempt_that_stood_still_is_refused_though_it_had_passed_its_checks(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    batch = batch_of(table, Position(), (0, 0, 10))

    def swept(step: str) -> None:
        """The writer stands still here for longer than an attempt may last, and its files go."""
        if step == "commit":
            gone = sweep(opened(tmp_path, format), clock=lambda: now_ms() + 7_200_000)
            assert gone == batch.files

    with pytest.raises(PositionMovedError):
        land(table, batch, on_step=swept)
    assert offsets_by_duckdb(table) == []


def test_an_old_attempt_is_refused(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    batch = batch_of(table, Position(), (0, 0, 10))
    with pytest.raises(AttemptTooOldError, match=r"began 3[67]\d\d s ago, expected 3600 s at most"):
        land(table, batch, clock=lambda: now_ms() + 3_700_000)
    fenced = fence(table, older_than_ms=now_ms() + 1_000)
    late = batch_of(table, fenced, (0, 0, 10))
    with pytest.raises(AttemptTooOldError):
        land(table, late)
    with pytest.raises(AttemptTooOldError):
        compact(table, late.attempt, target_bytes=1 << 20)


def test_a_file_with_other_columns_is_refused_by_name(tmp_path: Path, format: str) -> None:
    import pyarrow as pa

    from holdfast.lake.data_files import write_file

    table = made(tmp_path, format)
    batch = batch_of(table, Position(), (0, 0, 10))
    table.store.remove(batch.files[0])
    other = pa.record_batch({"_offset": [str(number) for number in range(10)]})
    write_file(table.store, batch.files[0], other.schema, [other])
    with pytest.raises(TableError, match="has column _offset as string, the table has it as int64"):
        land(table, batch)
