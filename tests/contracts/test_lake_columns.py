"""A table gets more columns while it is written: position, rows, other writers stay; other engines read all of it."""

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.lake.data_files import FileRange, attempt_of, name_of, write_file
from holdfast.lake.errors import ConflictError, TableError
from holdfast.lake.evolution import change_of, evolve
from holdfast.lake.position import LandedRange, Position, advanced
from holdfast.lake.table import Batch, Table, land, now_ms
from holdfast.lake.upkeep import compact
from tests.contracts.lake_engines import by_engines
from tests.contracts.lake_tables import (
    FORMATS,
    SCHEMA,
    TOPIC,
    TOPIC_ID,
    batch_of,
    made,
    offsets,
    offsets_by_duckdb,
    opened,
    rows,
)

ADDED = pa.schema([("delay", pa.int32()), ("at", pa.timestamp("us")), ("price", pa.decimal128(10, 2))])
each_format = pytest.mark.parametrize("format", FORMATS)


def wide_batch(table: Table, before: Position, start: int, end: int) -> Batch:
    """As batch_of, in the table's schema of now, with values in the new columns."""
    schema = table.schema()
    attempt = attempt_of(now_ms())
    ranges = (FileRange(topic=TOPIC, topic_id=TOPIC_ID, partition=0, start=start, end=end),)
    given = rows(0, start, end)
    columns = {name: given.column(name) for name in given.schema.names}
    columns["delay"] = pa.array(range(start, end))
    columns["at"] = pa.array([1_700_000_000_000_000 + n for n in range(start, end)], pa.timestamp("us"))
    columns["price"] = pa.array([Decimal(n) / 4 for n in range(start, end)], pa.decimal128(10, 2))
    values = [columns[name].cast(schema.field(name).type) for name in schema.names]
    path = name_of(ranges, attempt, 0)
    write_file(table.store, path, schema, [pa.RecordBatch.from_arrays(values, schema=schema)], ranges=ranges)
    landed = LandedRange(topic=TOPIC, topic_id=TOPIC_ID, partition=0, start=start, end=end, epoch=1, rows=end - start)
    return Batch(attempt=attempt, before=before, after=advanced(before, [landed], attempt=str(attempt)), files=(path,))


@each_format
def test_columns_come_in_a_commit_of_their_own_and_all_engines_read_them(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    first = land(table, batch_of(table, Position(), (0, 0, 2)))
    late = opened(tmp_path, format)
    under_way = batch_of(late, first, (0, 2, 4))  # a writer that knows nothing of the new columns
    schema = evolve(table, ADDED)
    assert schema.names == [*SCHEMA.names, *ADDED.names] and schema.field("price").type == pa.decimal128(10, 2)
    assert table.position() == first == opened(tmp_path, format).position()
    number = table.snapshot()
    assert evolve(table, ADDED) == schema and table.snapshot() == number  # nothing to do: no commit
    second = land(late, under_way)
    table.refresh()
    land(table, wide_batch(table, second, 4, 6))
    expected = [(n, n if n >= 4 else None, Decimal(n) / 4 if n >= 4 else None) for n in range(6)]
    for _ in range(2):
        table = opened(tmp_path, format)
        for found in by_engines(table, ["_offset", "delay", "price"]):
            assert found == expected
        compact(table, attempt_of(now_ms()), target_bytes=1 << 20)
    assert len(opened(tmp_path, format).files()) == 1


@each_format
def test_a_batch_and_new_columns_at_one_moment_both_land(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    first = land(table, batch_of(table, Position(), (0, 0, 10)))
    done: list[Position] = []

    def overtaken(step: str) -> None:
        if not done:
            other = opened(tmp_path, format)
            done.append(land(other, batch_of(other, first, (0, 10, 20))))

    evolve(opened(tmp_path, format), ADDED, on_step=overtaken)
    table.refresh()
    assert table.position() == done[0] and table.schema().names[-1] == "price"
    more = [pa.field("more", pa.string())]
    landed = land(
        table,
        batch_of(table, done[0], (0, 20, 30)),
        on_step=lambda step: evolve(opened(tmp_path, format), more) if step == "commit" else None,
    )
    table = opened(tmp_path, format)
    assert table.position() == landed and table.schema().names[-1] == "more"
    assert offsets_by_duckdb(table) == offsets((0, 0, 30))


@each_format
def test_commits_that_never_stop_end_the_tries(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path, format)
    monkeypatch.setattr("holdfast.lake.evolution.TRIES", 2)
    numbers = iter(range(9))

    def overtaken(_step: str) -> None:
        other, number = opened(tmp_path, format), next(numbers)
        if format == "iceberg":  # compares columns with columns: only those of another one come between
            evolve(other, [pa.field(f"other{number}", pa.string())])
        else:
            land(other, batch_of(other, other.position(), (number, 0, 1)))

    with pytest.raises(ConflictError, match="2 commits of others came before"):
        evolve(table, ADDED, on_step=overtaken)
    assert "delay" not in opened(tmp_path, format).schema().names


@each_format
def test_a_column_becomes_wider_where_the_format_has_that(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    first = land(table, batch_of(table, Position(), (0, 0, 5)))
    late = opened(tmp_path, format)
    under_way = batch_of(late, first, (0, 5, 10))
    wider = [pa.field("_kafka_partition", pa.int64())]
    if format == "delta":
        with pytest.raises(
            TableError, match="column _kafka_partition is int32, wanted as int64: a Delta table's column keeps"
        ):
            evolve(table, wider)
        return
    assert evolve(table, wider).field("_kafka_partition").type == pa.int64()
    assert evolve(table, [pa.field("_kafka_partition", pa.int32())]).field("_kafka_partition").type == pa.int64()
    second = land(late, under_way)
    table.refresh()
    schema = table.schema()
    batch = batch_of(table, second, (0, 10, 11))
    table.store.remove(batch.files[0])
    large = rows(0, 10, 11).set_column(0, "_kafka_partition", pa.array([1 << 40])).cast(schema)
    write_file(table.store, batch.files[0], schema, [large])
    land(table, batch)
    expected = [(n, 0 if n < 10 else 1 << 40) for n in range(11)]
    for _ in range(2):
        table = opened(tmp_path, format)
        for found in by_engines(table, ["_offset", "_kafka_partition"]):
            assert found == expected
        compact(table, attempt_of(now_ms()), target_bytes=1 << 20)


@each_format
@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.field("name", pa.int64()), "column name is string, wanted as int64, which does not hold every value"),
        (pa.field("_offset", pa.float64()), "column _offset is int64, wanted as double"),
        (pa.field("new", pa.string(), nullable=False), "new column new must be nullable"),
        (pa.field("NAME", pa.string()), "columns named name more than once"),
        (pa.field("new", pa.timestamp("ns")), r"column new is timestamp\[ns\], expected timestamp\[us\]"),
    ],
)
def test_a_change_that_would_not_keep_what_is_there_is_refused(
    tmp_path: Path, format: str, column: pa.Field, words: str
) -> None:
    schema = pa.schema([("_kafka_partition", pa.int32()), ("_offset", pa.int64()), ("name", pa.string())])
    with pytest.raises(TableError, match=f"lake/t: .*{words}"):
        change_of(schema, [column], "lake/t", widens=format != "delta")


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_type_that_the_format_has_not_is_refused(tmp_path: Path, format: str) -> None:
    table = made(tmp_path, format)
    with pytest.raises(TableError, match="new"):
        evolve(table, [pa.field("new", pa.uint64())])
    with pytest.raises(TableError, match="new"):
        evolve(table, [pa.field("new", pa.duration("us"))])
    assert opened(tmp_path, format).schema().names == SCHEMA.names
