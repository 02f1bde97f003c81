"""Makes lake tables of each format, and reads them by engines that are not ours."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from holdfast.lake.data_files import Attempt, FileRange, attempt_of, name_of, write_file
from holdfast.lake.opening import make_table, open_table
from holdfast.lake.position import LandedRange, Position, advanced
from holdfast.lake.table import Batch, Table, now_ms
from holdfast.lake.upkeep import compact

FORMATS = ("delta", "iceberg", "parquet")
TOPIC, TOPIC_ID = "t", UUID(int=7)
SCHEMA = pa.schema(
    [
        ("_kafka_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
    ]
)


def made(folder: Path, format: str) -> Table:
    return make_table(str(folder / "table"), format, SCHEMA)


def opened(folder: Path, format: str) -> Table:
    """Another writer's handle of the same table."""
    found = open_table(str(folder / "table"), format)
    assert found is not None
    return found


def rows(partition: int, start: int, end: int) -> pa.RecordBatch:
    offsets = list(range(start, end))
    columns = [
        pa.array([partition] * len(offsets), pa.int32()),
        pa.array(offsets, pa.int64()),
        pa.array([1_700_000_000_000_000 + offset for offset in offsets], pa.timestamp("us", tz="UTC")),
        pa.array([f"n{offset}" for offset in offsets]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def written(table: Table, attempt: Attempt, partition: int, start: int, end: int) -> str:
    ranges = (FileRange(topic=TOPIC, topic_id=TOPIC_ID, partition=partition, start=start, end=end),)
    path = name_of(ranges, attempt, 0)
    write_file(table.store, path, SCHEMA, [rows(partition, start, end)], ranges=ranges)
    return path


def batch_of(
    table: Table, before: Position, *ranges: tuple[int, int, int], attempt: Attempt | None = None, bad: int = 0
) -> Batch:
    """Writes a file for each (partition, start, end), and answers what lands them."""
    attempt = attempt or attempt_of(now_ms())
    files = tuple(written(table, attempt, *each) for each in ranges)
    landed = [
        LandedRange(
            topic=TOPIC,
            topic_id=TOPIC_ID,
            partition=partition,
            start=start,
            end=end,
            epoch=1,
            rows=end - start,
            bad=bad,
        )
        for partition, start, end in ranges
    ]
    return Batch(attempt=attempt, before=before, after=advanced(before, landed, attempt=str(attempt)), files=files)


def offsets_by_duckdb(table: Table) -> list[tuple[int, int]]:
    """(partition, offset) of all rows, sorted, as DuckDB sees them."""
    query = f"SELECT _kafka_partition, _offset FROM {scan_of(table)} ORDER BY 1, 2"
    return [(int(partition), int(offset)) for partition, offset in duckdb_rows(query)]


@contextmanager
def duckdb_connection() -> Iterator[Any]:
    """DuckDB with what reads lakes."""
    import duckdb
    import duckdb_extension_delta

    wheels = Path(duckdb_extension_delta.__file__).parent.parent
    with duckdb.connect() as connection:
        for name in ("avro", "iceberg", "delta"):
            file = wheels / f"duckdb_extension_{name}/extensions/v{duckdb.__version__}/{name}.duckdb_extension"
            connection.execute(f"LOAD '{file}'")
        yield connection


def duckdb_rows(query: str) -> list[tuple[Any, ...]]:
    with duckdb_connection() as connection:
        return rows_by(connection, query)


def rows_by(connection: Any, query: str) -> list[tuple[Any, ...]]:
    found = connection.execute(query).to_arrow_table()  # by Arrow, which needs no pytz for times of a zone
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def scan_of(table: Table) -> str:
    location = table.store.location
    if table.format == "delta":
        return f"delta_scan('{location}')"
    table.refresh()
    if table.format == "iceberg":
        return f"iceberg_scan('{table.snapshot()[1].removeprefix('file://')}')"
    files = parquet_files(location)
    if not files:
        return "(SELECT 0 AS _kafka_partition, 0 AS _offset WHERE false)"
    return f"read_parquet({files!r})"


def parquet_files(location: str) -> list[str]:
    """Live files of a Parquet table by nothing but its JSON, so that no reader of ours is in it."""
    live: dict[str, None] = {}
    log = os.path.join(location, "_holdfast/log")
    snapshots = sorted(name for name in os.listdir(log) if name.endswith(".snapshot.json"))
    begin = ""
    if snapshots:
        content = json.loads(Path(log, snapshots[-1]).read_text())
        live.update(dict.fromkeys(each[0] for each in content["files"]))
        begin = snapshots[-1].replace(".snapshot", "")
    for name in sorted(name for name in os.listdir(log) if name.count(".") == 1 and name.endswith(".json")):
        if name > begin:
            content = json.loads(Path(log, name).read_text())
            for path in content["removed"]:
                live.pop(path)
            live.update(dict.fromkeys(each[0] for each in content["added"]))
    return [os.path.join(location, path) for path in live]


def offsets(*ranges: tuple[int, int, int]) -> list[tuple[int, int]]:
    """What a table holds after these ranges."""
    return sorted((partition, offset) for partition, start, end in ranges for offset in range(start, end))


def count_by_own_library(table: Table) -> int:
    """Rows by the format's own library, which is no part of ours."""
    if table.format == "delta":
        import deltalake

        return int(deltalake.DeltaTable(table.store.location).to_pyarrow_dataset().count_rows())
    if table.format == "iceberg":
        from pyiceberg.table import StaticTable

        table.refresh()
        return len(StaticTable.from_metadata(table.snapshot()[1]).scan().to_arrow())
    import pyarrow.dataset

    return int(pyarrow.dataset.dataset(parquet_files(table.store.location), format="parquet").count_rows())


def all_files(folder: Path, suffixes: Sequence[str] = (".parquet", ".partial")) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.name.endswith(tuple(suffixes)))


def by_another_engine(table: Table, number: int) -> None:
    """What others do to a table while we land in it: turn by turn compaction, another column, expiry."""
    location = table.store.location
    if table.format == "delta":
        import deltalake

        other = deltalake.DeltaTable(location)
        if number % 3 == 0:
            other.optimize.compact()
        elif number % 3 == 1:
            other.alter.add_columns(deltalake.Schema.from_arrow(pa.schema([(f"new{number}", pa.string())])).fields)
        else:
            other.create_checkpoint()
            other.vacuum(0, dry_run=False, enforce_retention_duration=False)
    elif table.format == "iceberg":
        foreign = library_table(table)
        if number % 3 == 0:
            foreign.append(SCHEMA.empty_table())  # pyiceberg has no compaction: a snapshot of somebody else
        elif number % 3 == 1:
            from pyiceberg.types import StringType

            with foreign.update_schema() as change:
                change.add_column(f"new{number}", StringType())
        else:
            foreign.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    else:
        compact(table, attempt_of(now_ms()), target_bytes=1 << 20)


def made_by_others(folder: Path, format: str) -> Table:
    """A table that its own library has made, with that library's settings."""
    location = folder / "table"
    if format == "delta":
        import deltalake

        deltalake.DeltaTable.create(str(location), schema=SCHEMA)
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("holdfast", uri=f"sqlite:///{folder}/iceberg-catalog.db", warehouse=f"file://{folder}")
        catalog.create_namespace("lake")
        catalog.create_table("lake.table", schema=SCHEMA, location=f"file://{location}")
    return opened(folder, format)


def library_table(table: Any) -> Any:
    """pyiceberg's or deltalake's own object of the same table."""
    return table._table
