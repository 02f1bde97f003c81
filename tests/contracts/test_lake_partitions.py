"""Tables with partitions: every row in the file of its value, right for other engines too, also for nulls and zones."""

from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from holdfast.lake.data_files import FileRange, attempt_of, name_of
from holdfast.lake.errors import TableError
from holdfast.lake.opening import make_table
from holdfast.lake.partition_files import MOST_VALUES, write_partitioned
from holdfast.lake.position import LandedRange, Position, advanced
from holdfast.lake.table import Batch, Table, land, now_ms
from holdfast.lake.upkeep import compact, maintain
from tests.contracts.lake_engines import by_engines
from tests.contracts.lake_tables import FORMATS, SCHEMA, TOPIC, TOPIC_ID, batch_of, duckdb_rows, made, opened

SCHEMA_OF_FLIGHTS = pa.schema(
    [
        ("_offset", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("carrier", pa.string()),
        ("number", pa.int32()),
        ("late", pa.bool_()),
    ]
)
LONG = "a carrier whose name is longer than a bound / has = and % and ' in it"
TIMES = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime(2026, 11, 22, 23, 59, 59, 999_999, UTC),
    datetime(2026, 11, 23, 0, 0, tzinfo=UTC),
    None,
]
DAYS = [date(1969, 12, 31), date(2026, 11, 22), date(2026, 11, 23), None]
each_format = pytest.mark.parametrize("format", FORMATS)


def flights(start: int, end: int) -> pa.RecordBatch:
    numbers = range(start, end)
    times = [TIMES[n % 4] for n in numbers]
    columns = [
        pa.array(numbers, pa.int64()),
        pa.array(times, SCHEMA_OF_FLIGHTS.field("at").type),
        pa.array([each and each.replace(tzinfo=None) for each in times], pa.timestamp("us")),
        pa.array([DAYS[n % 4] for n in numbers], pa.date32()),
        pa.array([[LONG, "ÖS", None][n % 3] for n in numbers], pa.string()),
        pa.array([[7, -7, None][n % 3] for n in numbers], pa.int32()),
        pa.array([[True, False, None][n % 3] for n in numbers], pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_OF_FLIGHTS)


def flights_batch(table: Table, before: Position, start: int, end: int) -> Batch:
    attempt, parts = attempt_of(now_ms()), count()
    ranges = (FileRange(topic=TOPIC, topic_id=TOPIC_ID, partition=0, start=start, end=end),)
    assert table.partitioning is not None
    middle = (start + end) // 2
    files = write_partitioned(
        table.store,
        table.schema(),
        [flights(start, middle), flights(middle, end)],
        table.partitioning,
        new_path=lambda: name_of(ranges, attempt, next(parts)),
        ranges=ranges,
    )
    assert sum(files.values()) == end - start
    landed = LandedRange(topic=TOPIC, topic_id=TOPIC_ID, partition=0, start=start, end=end, epoch=1, rows=end - start)
    after = advanced(before, [landed], attempt=str(attempt))
    return Batch(attempt=attempt, before=before, after=after, files=tuple(files))


def value_rows(table: Table) -> dict[str | None, list[int]]:
    """Offsets by partition value, each file read for itself."""
    found: dict[str | None, list[int]] = {}
    for path, value in table.values().items():
        for batch in table.read([path], pa.schema([SCHEMA_OF_FLIGHTS.field("_offset")])):
            found.setdefault(value, []).extend(batch.column("_offset").to_pylist())
    return {value: sorted(offsets) for value, offsets in found.items()}


def texts(by: str) -> list[str | None]:
    found: dict[str, list[str | None]] = {
        "day(at)": [day and day.isoformat() for day in DAYS],
        "day(local)": [day and day.isoformat() for day in DAYS],
        "day(day)": [day and day.isoformat() for day in DAYS],
        "day": [day and day.isoformat() for day in DAYS],
        "carrier": [LONG, "ÖS", None],
        "number": ["7", "-7", None],
        "late": ["true", "false", None],
    }
    return found[by]


@each_format
@pytest.mark.parametrize("by", ["day(at)", "carrier"])
def test_rows_are_in_the_file_of_their_value_and_all_engines_read_them(tmp_path: Path, format: str, by: str) -> None:
    table = make_table(str(tmp_path / "table"), format, SCHEMA_OF_FLIGHTS, partition_by=by)
    position = Position()
    for start in range(0, 36, 12):
        table.refresh()
        position = land(table, flights_batch(table, position, start, start + 12))
    values = texts(by)
    placed = {value: [n for n in range(36) if values[n % len(values)] == value] for value in values}
    expected = [tuple(row.values()) for row in flights(0, 36).to_pylist()]
    for files in (3 * len(values), len(values)):
        table = opened(tmp_path, format)
        assert str(table.partitioning) == by and table.schema().names == SCHEMA_OF_FLIGHTS.names
        assert value_rows(table) == placed and len(table.files()) == files
        for found in by_engines(table, SCHEMA_OF_FLIGHTS.names):
            assert [_plain(row) for row in found] == [_plain(row) for row in expected]
        done = compact(table, attempt_of(now_ms()), target_bytes=1 << 20)
        assert done.files_after == (len(values) if files > len(values) else 0)
    assert opened(tmp_path, format).position() == position
    wanted = {"day(at)": "\"at\" >= '2026-11-23 00:00:00+00'", "carrier": "carrier = 'ÖS'"}[by]
    chosen = [n for n in range(36) if (n % 4 == 2 if by == "day(at)" else n % 3 == 1)]
    assert [n for (n,) in by_engines(table, ["_offset"], where=wanted)[0]] == chosen
    assert maintain(opened(tmp_path, format), keep_ms=-1_000).compaction.files_before == 0


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.astimezone(UTC) if isinstance(each, datetime) and each.tzinfo else each for each in row)


@each_format
@pytest.mark.parametrize("by", ["day(local)", "day(day)", "day", "number", "late"])
def test_each_type_has_its_values(tmp_path: Path, format: str, by: str) -> None:
    table = make_table(str(tmp_path / "table"), format, SCHEMA_OF_FLIGHTS, partition_by=by)
    land(table, flights_batch(table, Position(), 0, 12))
    values = texts(by)
    table = opened(tmp_path, format)
    assert value_rows(table) == {v: [n for n in range(12) if values[n % len(values)] == v] for v in values}
    column = "day" if by.startswith("day") else by
    expected = [(n, DAYS[n % 4] if column == "day" else flights(n, n + 1).column(column)[0].as_py()) for n in range(12)]
    assert by_engines(table, ["_offset", column], library_only=True) == [expected]


@pytest.mark.parametrize("format", ["iceberg", "parquet"])
def test_a_text_beyond_what_statistics_have_is_a_value(tmp_path: Path, format: str) -> None:
    long = "x" * 5_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.contracts.test_lake_partitions.LONG", long)
        table = make_table(str(tmp_path / "table"), format, SCHEMA_OF_FLIGHTS, partition_by="carrier")
        land(table, flights_batch(table, Position(), 0, 3))
    assert value_rows(opened(tmp_path, format)) == {long: [0], "ÖS": [1], None: [2]}


def test_delta_has_the_day_as_a_column_of_its_own(tmp_path: Path) -> None:
    table = make_table(str(tmp_path / "table"), "delta", SCHEMA_OF_FLIGHTS, partition_by="day(at)")
    land(table, flights_batch(table, Position(), 0, 4))
    found = duckdb_rows(f"SELECT at_day FROM delta_scan('{tmp_path}/table') ORDER BY _offset")
    assert [day for (day,) in found] == DAYS
    with pytest.raises(TableError, match="columns named at_day more than once"):
        schema = SCHEMA_OF_FLIGHTS.append(pa.field("at_day", pa.date32()))
        make_table(str(tmp_path / "other"), "delta", schema, partition_by="day(at)")


@each_format
def test_files_of_another_partitioning_are_refused(tmp_path: Path, format: str) -> None:
    table = make_table(str(tmp_path / "table"), format, SCHEMA_OF_FLIGHTS, partition_by="number")
    other = make_table(str(tmp_path / "table2"), format, SCHEMA_OF_FLIGHTS, partition_by="day(at)")
    batch = flights_batch(other, Position(), 0, 4)
    for path in batch.files:
        Path(table.store.location, path).parent.mkdir(exist_ok=True, parents=True)
        Path(other.store.location, path).rename(Path(table.store.location, path))
    with pytest.raises(TableError, match=r"written for partition by day\(at\), the table has partition by number"):
        land(table, batch)
    (tmp_path / "plain").mkdir()
    plain = made(tmp_path / "plain", format)
    assert plain.partitioning is None and plain.values() == {}


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("day(x)", "no column x, expected _offset, at"),
        ("at", r"column at is timestamp.*, expected text, whole numbers, dates or booleans, or day\(at\)"),
        ("day(carrier)", "column carrier is string, expected a time or date"),
    ],
)
@each_format
def test_what_cannot_be_partitioned_by_is_refused_and_nothing_made(
    tmp_path: Path, format: str, by: str, words: str
) -> None:
    with pytest.raises(TableError, match=words):
        make_table(str(tmp_path / "table"), format, SCHEMA_OF_FLIGHTS, partition_by=by)
    make_table(str(tmp_path / "table"), format, SCHEMA_OF_FLIGHTS)


def test_a_batch_has_a_limit_of_values_and_leaves_nothing_beyond_it(tmp_path: Path) -> None:
    table = make_table(str(tmp_path / "table"), "parquet", SCHEMA_OF_FLIGHTS.remove(1), partition_by="_offset")
    names = count()
    given = flights(0, MOST_VALUES + 1).drop_columns(["at"])

    def write(batch: pa.RecordBatch) -> dict[str, int]:
        return write_partitioned(
            table.store, table.schema(), [batch], table.partitioning, new_path=lambda: f"data/{next(names)}.parquet"
        )

    with pytest.raises(TableError, match=f"by _offset: a batch has more than {MOST_VALUES} values"):
        write(given)
    assert list(table.store.list("data")) == []
    assert write(given.slice(0, 0)) == {}
    assert len(write(given.slice(0, MOST_VALUES))) == MOST_VALUES


def test_an_empty_text_and_a_day_without_a_year_are_refused(tmp_path: Path) -> None:
    table = delta = make_table(str(tmp_path / "table"), "delta", SCHEMA_OF_FLIGHTS, partition_by="carrier")
    empty = flights(0, 1).set_column(4, "carrier", pa.array([""]))
    with pytest.raises(TableError, match="an empty text would be read as null"):
        write_partitioned(table.store, table.schema(), [empty], table.partitioning, new_path=lambda: "data/a.parquet")
    table = make_table(str(tmp_path / "days"), "parquet", SCHEMA_OF_FLIGHTS, partition_by="day(local)")
    with pytest.raises(TableError, match="a folder is named by the value, which has at most 255 letters, not 308"):
        long = flights(0, 1).set_column(4, "carrier", pa.array(["x" * 300]))
        write_partitioned(delta.store, delta.schema(), [long], delta.partitioning, new_path=lambda: "data/a.parquet")
    far = flights(0, 1).set_column(2, "local", pa.array([1 << 61], pa.timestamp("us")))
    with pytest.raises(TableError, match="a time beyond the years 1 to 9999 has no day"):
        write_partitioned(table.store, table.schema(), [far], table.partitioning, new_path=lambda: "data/a.parquet")


def test_a_table_of_others_with_partitions_is_landed_in_if_it_has_one_column(tmp_path: Path) -> None:
    deltalake.DeltaTable.create(str(tmp_path / "table"), schema=SCHEMA_OF_FLIGHTS, partition_by=["number"])
    table = opened(tmp_path, "delta")
    land(table, flights_batch(table, Position(), 0, 12))
    assert sorted(value_rows(opened(tmp_path, "delta")), key=str) == ["-7", "7", None]
    deltalake.DeltaTable.create(
        str(tmp_path / "two" / "table"), schema=SCHEMA, partition_by=["name", "_kafka_partition"]
    )
    with pytest.raises(TableError, match="is partitioned by name, _kafka_partition: expected one column at most"):
        opened(tmp_path / "two", "delta")
    table.refresh()
    unpartitioned = batch_of(table, table.position(), (0, 12, 13))
    with pytest.raises(TableError, match="has column"):
        land(table, unpartitioned)
