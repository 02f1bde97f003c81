"""How the rows of a table are kept apart: by the value of a column, or by the day (UTC) of one.

Each file has rows of one value, whose text stands in its footer and in the table's metadata. Only Delta has folders
``COL=value`` as well, since some of its readers take the value from there; elsewhere they would hide the column that is
in the file. Owns which columns can be partitioned by, and how a batch of rows is split; whole columns at a time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from holdfast.lake.errors import TableError

DAY_MICROS: Final = 86_400_000_000
EPOCH: Final = date(1970, 1, 1)
FIRST_DAY: Final = (date.min - EPOCH).days
LAST_DAY: Final = (date.max - EPOCH).days
HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
LONGEST_NAME: Final = 255
"""Of a folder, in bytes; the name is ASCII."""
BY_DAY: Final = re.compile(r"day\((.+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitioning:
    """What a table is partitioned by."""

    column: str
    by_day: bool = False
    in_files: bool = True
    """False where the column is in the table's metadata alone, as with Delta."""
    folder: str | None = None
    """Column that folders are named by, where there are some."""

    def __str__(self) -> str:
        return f"day({self.column})" if self.by_day else self.column


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The partition that all rows of one file are in."""

    by: str
    """Text of the partitioning."""
    value: str | None
    """As text: a whole number, a date as 2026-11-23, true or false. None is the partition of nulls."""


def partitioning_of(text: str, schema: pa.Schema, location: str) -> Partitioning:
    """From ``COL`` or ``day(COL)``. TableError if the table has no such column, or not of a type that can be."""
    found = BY_DAY.fullmatch(text)
    made = Partitioning(column=found[1] if found else text, by_day=found is not None)
    if made.column not in schema.names:
        raise TableError(
            f"{location}: partition by {text}: no column {made.column}, expected {', '.join(schema.names)}"
        )
    kind = schema.field(made.column).type
    if made.by_day:
        if not (pa.types.is_timestamp(kind) or pa.types.is_date32(kind)):
            raise TableError(
                f"{location}: partition by {text}: column {made.column} is {kind}, expected a time or date"
            )
    elif not _has_values(kind):
        raise TableError(
            f"{location}: partition by {text}: column {made.column} is {kind}, expected text, whole numbers, dates or "
            f"booleans{', or day(' + made.column + ')' if pa.types.is_timestamp(kind) else ''}"
        )
    return made


def split(batch: pa.RecordBatch, partitioning: Partitioning) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """The batch's rows by value, each value once, rows in order. TableError for a time beyond the years 1 to 9999."""
    if not batch.num_rows:
        return
    encoded = _keys(batch, partitioning).dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    if len(values) == 1:
        yield text_of(values[0]), batch
        return
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    ordered = batch.take(pa.array(np.argsort(indices, kind="stable")))
    ends = np.cumsum(np.bincount(indices, minlength=len(values)))
    for value, start, end in zip(values, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        yield text_of(value), ordered.slice(start, end - start)


def in_folder(path: str, partitioning: Partitioning, value: str | None) -> str:
    """``data/NAME`` as a file of this value has it. TableError for a value that no folder can be named by."""
    if partitioning.folder is None:
        return path
    name = f"{partitioning.folder}={HIVE_NULL if value is None else quote(value, safe='')}"
    if len(name) > LONGEST_NAME:
        raise TableError(
            f"partition by {partitioning}: a folder is named by the value, which has at most {LONGEST_NAME} letters, "
            f"not {len(name)}: {value!r:.80}"
        )
    above, _, last = path.rpartition("/")
    return f"{above}/{name}/{last}"


def text_of(value: Any) -> str | None:
    """Of a value of a column that can be partitioned by."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def value_of(text: str | None, kind: pa.DataType) -> Any:
    """The other way, as Iceberg's manifests have it: days since 1970 for a date."""
    if text is None or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text
    if pa.types.is_boolean(kind):
        return text == "true"
    return (date.fromisoformat(text) - EPOCH).days if pa.types.is_temporal(kind) else int(text)


def day_text(days: int) -> str:
    """Of days since 1970."""
    return (EPOCH + timedelta(days=days)).isoformat()


def _has_values(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_date32,
    )
    return any(check(kind) for check in checks)


def _keys(batch: pa.RecordBatch, partitioning: Partitioning) -> pa.Array:
    column = batch.column(partitioning.column)
    if not pa.types.is_temporal(column.type):
        return column
    if pa.types.is_date32(column.type):
        days = column.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    else:
        # Down, also before 1970: a cast to dates would do so as well, and wrap around far away.
        days = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // DAY_MICROS
    if int(days.min()) < FIRST_DAY or int(days.max()) > LAST_DAY:
        raise TableError(f"partition by {partitioning}: a time beyond the years 1 to 9999 has no day")
    nulls = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(days.astype(np.int32), pa.int32(), mask=nulls).cast(pa.date32())
