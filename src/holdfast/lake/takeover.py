"""Makes a Parquet table of a directory that ``holdfast lake`` filled before it had tables.

    TO/_lake.json                     which topic fills it
    TO/_batches/7.json                batch 7 is whole: records, bad ones, where it ended. Written last
    TO/batch=7/part-*.parquet         its records
    TO/_bad/batch=7/part-*.parquet    its bad ones

All is read and counted first. Then each file gets a second name in the table's ``data`` folder, without being copied;
one with INT96 times is written anew, as times of a zone. One commit makes the table, the side table's one before it;
where it ends is what the newest batch noted. Only then the folders ``batch=N`` go, which readers of directories would
take for a column. Killed anywhere it goes on when it is run again.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.lake.data_files import (
    Attempt,
    DataFile,
    FileRange,
    attempt_of,
    check_schema,
    described,
    holds,
    name_of,
    write_file,
)
from holdfast.lake.errors import TableError
from holdfast.lake.local_store import LocalStore
from holdfast.lake.opening import OLD_LAKE, open_table
from holdfast.lake.parquet_log import CommitEntry, ParquetLog, live, schema_text
from holdfast.lake.parquet_table import ParquetTable
from holdfast.lake.position import End, Position, TopicEnds
from holdfast.lake.rows import ROWS_AT_ONCE
from holdfast.lake.side import side_location
from holdfast.lake.stores import prove, store_of
from holdfast.lake.table import Clock, Steps, Table, now_ms

BATCHES: Final = "_batches"
BAD: Final = "_bad"
TAKEN: Final = "_holdfast/taken"
"""Notes of the old lake are kept here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OldBatch:
    number: int
    records: int
    bad: int
    ends: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OldFiles:
    """What is to be of one table."""

    files: tuple[Path, ...]
    schema: pa.Schema
    rows: int


def takeover(location: str, *, clock: Clock = now_ms, on_step: Steps = lambda _step: None) -> Table:
    """The table; there is one for its bad records as well if it had any. ``on_step`` is told "side" and "committed".

    TableError, with the reason, for a directory that is no such one, or is not what its notes say; nothing has been
    changed then. No job may fill the directory meanwhile; what one did is not in the table, and is landed again.
    """
    store = store_of(location)
    root = Path(store.location)
    if not isinstance(store, LocalStore) or not (root / OLD_LAKE).is_file():
        raise TableError(f"{location} was not filled by an earlier holdfast lake: {OLD_LAKE} is not there")
    table = open_table(location, "parquet", clock=clock)
    if table is None:
        batches = _batches(root)
        position = _position(root, batches, attempt_of(clock()))
        good = _found(root, batches, "records")
        bad = _found(root / BAD, batches, "bad")
        if good is None:
            raise TableError(f"{location} has no records of {len(batches)} batches: use a new directory")
        if bad is not None:
            _made_side(location, bad, position, clock)
        on_step("side")
        table = _made(store, good, replace(position, rows=good.rows, bad=bad.rows if bad is not None else 0), clock)
    on_step("committed")
    _clear(root)
    return table


# -- what is there -----------------------------------------------------------------------------------------------


def _batches(root: Path) -> list[_OldBatch]:
    found = []
    for note in (root / BATCHES).glob("*.json"):
        try:
            content = json.loads(note.read_text())
            found.append(
                _OldBatch(**{"number": content["batch"], **{k: content[k] for k in ("records", "bad", "ends")}})
            )
        except (ValueError, KeyError, TypeError):
            raise TableError(f"{note} is no note of a batch: its table cannot be made") from None
    found.sort(key=lambda each: each.number)
    numbers = [each.number for each in found]
    if not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise TableError(f"{root / BATCHES} has notes of batches {numbers[:20]}, expected one or more in sequence")
    return found


def _position(root: Path, batches: Sequence[_OldBatch], attempt: Attempt) -> Position:
    """Where the newest batch ended; ids and epochs where its Holdfast knew them."""
    try:
        topic = json.loads((root / OLD_LAKE).read_text())["topic"]
        ends = batches[-1].ends
        own = ends.get("@holdfast", {})
        topic_id = own.get("topics", {}).get(topic)
        epochs = own.get("epochs", {}).get(topic, {})
        partitions = {
            int(number): End(offset=int(end), epoch=epochs.get(number)) for number, end in ends[topic].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TableError(f"{root / BATCHES}/{batches[-1].number}.json does not say where its topic ended") from None
    known = TopicEnds(topic_id=UUID(topic_id) if topic_id else None, partitions=partitions)
    return Position(sequence=1, attempt=str(attempt), topics={topic: known})


def _found(folder: Path, batches: Sequence[_OldBatch], kind: str) -> _OldFiles | None:
    """TableError if a batch has not the rows that it says, or two have a column in types of which none holds both."""
    columns: dict[str, pa.Field] = {}
    files: list[Path] = []
    rows = 0
    for batch in batches:
        counted = 0
        for path in sorted((folder / f"batch={batch.number}").glob("[!._]*.parquet")):
            with pq.ParquetFile(path) as parquet:
                found = parquet.metadata.num_rows
            if not found:
                continue
            counted += found
            for column in _schema(path):
                known = columns.setdefault(column.name, column)
                if holds(column.type, known.type):
                    columns[column.name] = column
                elif not holds(known.type, column.type):
                    raise TableError(f"{path} has column {column.name} as {column.type}, others have {known.type}")
            files.append(path)
        said = getattr(batch, kind)
        if counted != said:
            raise TableError(f"{folder}/batch={batch.number} has {counted} rows, its note says {said}: not taken over")
        rows += counted
    schema = pa.schema(columns.values())
    check_schema(schema, str(folder))
    return _OldFiles(files=tuple(files), schema=schema, rows=rows) if rows else None


def _schema(path: Path) -> pa.Schema:
    """Of the table that the file is to be in: Spark's INT96 are times in UTC, which the type does not say."""
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as parquet:
        old = _int96(parquet)
        return pa.schema(
            [
                pa.field(each.name, _in_utc(each.type) if each.name in old else each.type)
                for each in parquet.schema_arrow
            ]
        )


def _int96(parquet: pq.ParquetFile) -> set[str]:
    leaves = [parquet.schema.column(number) for number in range(len(parquet.schema))]
    return {leaf.path.split(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(kind):
        return pa.list_(_in_utc(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_in_utc(kind.key_type), _in_utc(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _in_utc(each.type)) for each in kind])
    return kind


# -- the tables --------------------------------------------------------------------------------------------------


def _made_side(location: str, bad: _OldFiles, position: Position, clock: Clock) -> None:
    there = open_table(side_location(location), "parquet", clock=clock)
    if there is None:
        _made(store_of(side_location(location)), bad, replace(position, rows=bad.rows), clock)
    elif there.position().topics != position.topics:
        raise TableError(f"{side_location(location)} is a table of other records: move it away")


def _made(store: Any, old: _OldFiles, position: Position, clock: Clock) -> Table:
    """One commit makes the table, its files and its position."""
    prove(store)
    attempt = attempt_of(clock())
    files = [_taken(store, path, attempt, part) for part, path in enumerate(old.files)]
    first = CommitEntry(
        number=0,
        time_ms=clock(),
        position=position.to_text(),
        added=live(files),
        schema=schema_text(old.schema),
    )
    if not ParquetLog(store).append(first):
        raise TableError(f"{store.location} is a table already: another one takes it over")
    made = ParquetTable.opened(store, clock=clock)
    assert made is not None
    return made


def _taken(store: LocalStore, path: Path, attempt: Attempt, part: int) -> DataFile:
    ranges = (FileRange(topic="", topic_id=None, partition=0, start=0, end=0),)
    name = name_of(ranges, attempt, part)
    with pq.ParquetFile(path) as parquet:
        old = _int96(parquet)
    if old:
        write_file(store, name, _schema(path), _converted(path))
    else:
        store.link(str(path), name)
    return described(store, name)


def _converted(path: Path) -> Iterator[pa.RecordBatch]:
    schema = _schema(path)
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as parquet:
        for batch in parquet.iter_batches(ROWS_AT_ONCE):
            columns = [batch.column(each.name).cast(each.type) for each in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _clear(root: Path) -> None:
    """What the old lake had; its notes are kept elsewhere, that of whose the directory was last of all."""
    for folder in (root, root / BAD):
        for old in folder.glob("batch=*"):
            shutil.rmtree(old)
    shutil.rmtree(root / "_staging", ignore_errors=True)
    with suppress(OSError):  # something else is in it
        (root / BAD).rmdir()
    taken = root / TAKEN
    taken.mkdir(parents=True, exist_ok=True)
    for name in (BATCHES, OLD_LAKE):
        if (root / name).exists():
            os.rename(root / name, taken / name)
