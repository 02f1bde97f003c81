"""Files of rows: their names, how they are written, and what their footers say.

A name says what is in the file and who made it:

    data/TOPICID-PARTITION-START-END-STARTED-RANDOM-PART.parquet

Topic id in hex, offsets of the first range that is in it, then the attempt: when it began (milliseconds) and a random
token. So two attempts never share a name, and clean-up tells from a name alone how old an attempt is. Files are written
by Arrow; timestamps are TIMESTAMP_MICROS, never INT96. Owns nothing of commits: a file counts once a table names it.
"""

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.lake.errors import TableError
from holdfast.lake.partitioning import Cell, Partitioning
from holdfast.lake.store import Store
from holdfast.model.types import Offset, TimestampMs, TopicId

FOLDER: Final = "data"
RANGES_KEY: Final = b"holdfast.ranges"
PARTITION_KEY: Final = b"holdfast.partition"
ROWS_PER_GROUP: Final = 1_000_000
NO_DICTIONARY: Final = frozenset(("_offset", "_timestamp", "_key"))
"""Of the place of a record: hardly any value is there twice, and to look for that costs as much as to write them."""
NAME: Final = re.compile(
    r"(?:.*/)?\.?(?P<topic>[0-9a-f]{32})-(?P<partition>\d+)-(?P<start>\d+)-(?P<end>\d+)"
    r"-(?P<started>\d{13})-(?P<token>[0-9a-f]{12})-(?P<part>\d+)\.parquet(?:\.[0-9a-f]+\.partial)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of one batch (or of one piece of upkeep): who wrote a file."""

    started_ms: TimestampMs
    token: str

    def __str__(self) -> str:
        return f"{self.started_ms:013d}-{self.token}"


def attempt_of(now_ms: TimestampMs) -> Attempt:
    """A new one, that begins now."""
    return Attempt(started_ms=now_ms, token=secrets.token_hex(6))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """Offsets ``start <= offset < end`` of a partition that rows of a file come from."""

    topic: str
    topic_id: TopicId | None
    partition: int
    start: Offset
    end: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file that is in its place, as its footer describes it."""

    path: str
    """Below the table's location."""
    rows: int
    size: int
    """In bytes."""
    nulls: dict[str, int] = field(default_factory=dict)
    """Column of a plain type -> how many of its values are null; only where all row groups say so."""
    least: dict[str, int] = field(default_factory=dict)
    """Column of whole numbers -> its smallest value."""
    greatest: dict[str, int] = field(default_factory=dict)
    columns: tuple[pa.Field, ...] = ()
    partition: Cell | None = None
    """As its writer noted it."""


def name_of(ranges: tuple[FileRange, ...], attempt: Attempt, part: int) -> str:
    """The path of a file. ``part`` tells apart the files of one attempt that begin with one range."""
    first = ranges[0]
    topic = first.topic_id.hex if first.topic_id is not None else "0" * 32
    return f"{FOLDER}/{topic}-{first.partition}-{first.start}-{first.end}-{attempt}-{part}.parquet"


def attempt_in(path: str) -> Attempt | None:
    """Whose file that is, also one that was left half made; None for a name that is not ours."""
    found = NAME.fullmatch(path)
    return Attempt(started_ms=int(found["started"]), token=found["token"]) if found else None


def check_schema(schema: pa.Schema, location: str) -> None:
    """TableError, naming the column, for a type that readers would take for another one."""
    for column in schema:
        kind = column.type
        if pa.types.is_timestamp(kind) and (kind.unit != "us" or kind.tz not in (None, "UTC")):
            raise TableError(
                f"{location}: column {column.name} is {kind}, expected timestamp[us] or timestamp[us, tz=UTC]"
            )
    names = [name.lower() for name in schema.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableError(
            f"{location}: columns named {', '.join(twice)} more than once (large and small letters are one)"
        )


def check_columns(file: DataFile, schema: pa.Schema, location: str, *, widens: bool = False) -> None:
    """TableError if the file has a column that the table has not, or as another type. One that it lacks is null.

    With ``widens`` a column of the file may be narrower than the table's: readers of the format make it wider.
    """
    for column in file.columns:
        wanted = schema.field(column.name).type if column.name in schema.names else None
        if wanted is None or not (plain(wanted) == plain(column.type) or (widens and holds(wanted, column.type))):
            raise TableError(
                f"{location}: {file.path} has column {column.name} as {column.type}, the table has "
                + (f"it as {wanted}" if wanted is not None else "no such column")
            )


def check_partition(file: DataFile, partitioning: Partitioning | None, location: str) -> None:
    """TableError if the file was written for another partitioning than the table has."""
    wanted = str(partitioning) if partitioning is not None else None
    found = file.partition.by if file.partition is not None else None
    if found != wanted:
        raise TableError(
            f"{location}: {file.path} was written for {_by(found)}, the table has {_by(wanted)}: begin the batch again"
        )


def _by(text: str | None) -> str:
    return f"partition by {text}" if text is not None else "no partitions"


def plain(kind: pa.DataType) -> pa.DataType:
    """A type without what differs between libraries and not in files: large offsets, the name of a list's element."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(pa.field("element", plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain(each.type)) for each in kind])
    return kind


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """True if each value of ``narrow`` is one of ``wide``, of the same kind: the two are equal, or it is wider."""
    if plain(wide) == plain(narrow):
        return True
    for kind in (pa.types.is_signed_integer, pa.types.is_unsigned_integer, pa.types.is_floating):
        if kind(wide) and kind(narrow):
            return bool(wide.bit_width > narrow.bit_width)
    if pa.types.is_decimal(wide) and pa.types.is_decimal(narrow):
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return False


def check_kept(kept: pa.Schema, change: Sequence[pa.Field], location: str) -> None:
    """TableError if a format would keep one of the columns as a type that does not hold its values."""
    for column in change:
        found = kept.field(column.name).type
        if not holds(found, column.type):
            raise TableError(
                f"{location}: column {column.name} cannot be {column.type}, this format has {plain(found)}"
            )


def write_file(
    store: Store,
    path: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch | pa.Table],
    *,
    ranges: tuple[FileRange, ...] = (),
    partition: Cell | None = None,
    compression: str = "zstd",
) -> int:
    """Makes the file, a row group of each batch, only if it is not there, and answers its rows. AlreadyThereError,
    TableError.

    Nothing is in place unless all batches were written. Memory: one row group, or the whole file in an object store.
    """
    rows = 0
    with parquet_sink(store, path, schema, ranges=ranges, partition=partition, compression=compression) as writer:
        for batch in batches:
            table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
            writer.write_table(table.cast(schema).replace_schema_metadata(writer.schema.metadata), ROWS_PER_GROUP)
            rows += batch.num_rows
    return rows


def _leaves(column: pa.Field, prefix: str = "") -> Iterator[str]:
    """Paths of a column's values in a Parquet file."""
    path, kind = f"{prefix}{column.name}", column.type
    if pa.types.is_struct(kind):
        for each in kind:
            yield from _leaves(each, f"{path}.")
    elif pa.types.is_list(kind):
        yield from _leaves(kind.value_field.with_name("element"), f"{path}.list.")
    elif pa.types.is_map(kind):
        yield from _leaves(kind.key_field.with_name("key"), f"{path}.key_value.")
        yield from _leaves(kind.item_field.with_name("value"), f"{path}.key_value.")
    else:
        yield path


@contextmanager
def parquet_sink(
    store: Store,
    path: str,
    schema: pa.Schema,
    *,
    ranges: tuple[FileRange, ...],
    partition: Cell | None,
    compression: str,
) -> Iterator[Any]:
    """Arrow's writer of a file that is in place when the body has ended well. AlreadyThereError, TableError."""
    check_schema(schema, f"{store.location}/{path}")
    noted = {RANGES_KEY: json.dumps([[r.topic, str(r.topic_id or ""), r.partition, r.start, r.end] for r in ranges])}
    if partition is not None:
        noted[PARTITION_KEY] = json.dumps([partition.by, partition.value])
    described = schema.with_metadata({**(schema.metadata or {}), **noted})
    with (
        store.creating(path) as sink,
        pq.ParquetWriter(
            sink,
            described,
            compression=compression,
            use_dictionary=[path for column in schema if column.name not in NO_DICTIONARY for path in _leaves(column)],
            coerce_timestamps="us",
            use_deprecated_int96_timestamps=False,
        ) as writer,
    ):
        yield writer


def described(store: Store, path: str) -> DataFile:
    """What the footer says. FileMissingError where this process does not see the file that another one wrote."""
    size = store.size(path)
    with store.open(path) as file, pq.ParquetFile(file) as parquet:
        metadata = parquet.metadata
        nulls, least, greatest = _statistics(metadata, parquet.schema_arrow)
        noted = (parquet.schema_arrow.metadata or {}).get(PARTITION_KEY)
        by, value = json.loads(noted) if noted is not None else (None, None)
        return DataFile(
            path=path,
            rows=metadata.num_rows,
            size=size,
            nulls=nulls,
            least=least,
            greatest=greatest,
            columns=tuple(parquet.schema_arrow.remove_metadata()),
            partition=Cell(by=by, value=value) if by is not None else None,
        )


def ranges_in(store: Store, path: str) -> tuple[FileRange, ...]:
    """The ranges that the file's rows come from, as its writer noted them."""
    with store.open(path) as file, pq.ParquetFile(file) as parquet:
        noted = (parquet.schema_arrow.metadata or {}).get(RANGES_KEY, b"[]")
    return tuple(
        FileRange(topic=topic, topic_id=TopicId(topic_id) if topic_id else None, partition=number, start=start, end=end)
        for topic, topic_id, number, start, end in json.loads(noted)
    )


def _statistics(metadata: Any, schema: pa.Schema) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Over all row groups; a column without statistics in one of them has none."""
    nulls: dict[str, int] = {}
    least: dict[str, int] = {}
    greatest: dict[str, int] = {}
    if not metadata.num_row_groups:
        return nulls, least, greatest
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for number in range(metadata.num_columns):
        name = groups[0].column(number).path_in_schema
        if name not in schema.names:  # a part of a nested column
            continue
        found = [group.column(number).statistics for group in groups]
        if any(each is None or not each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        valued = [each for each in found if each.num_values]
        if pa.types.is_integer(schema.field(name).type) and valued and all(each.has_min_max for each in valued):
            least[name] = min(each.min for each in valued)
            greatest[name] = max(each.max for each in valued)
    return nulls, least, greatest
