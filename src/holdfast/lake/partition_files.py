"""Writes the rows of a batch into one file per partition value.

All files of a batch are open at a time, so their number has a limit. Rows of a value are gathered into row groups of a
size, up to a limit over all values; then the largest are written out. Owns no names: the caller hands them out.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from holdfast.lake.data_files import FileRange, parquet_sink
from holdfast.lake.errors import TableError
from holdfast.lake.partitioning import Cell, Partitioning, in_folder, split
from holdfast.lake.store import Store

MOST_VALUES: Final = 100
"""Partition values in one batch of a task: each is an open file."""
GATHERED_BYTES: Final = 64 << 20


@dataclass(slots=True, kw_only=True)
class _Open:
    """One file that is being written."""

    path: str
    writer: Any
    rows: int = 0
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0

    def take(self, part: pa.RecordBatch) -> None:
        self.waiting.append(part)
        self.rows += part.num_rows
        self.bytes += part.nbytes

    def write_out(self) -> int:
        """A row group of what waits; answers its bytes."""
        size, self.bytes = self.bytes, 0
        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting).combine_chunks())
            self.waiting = []
        return size


def write_partitioned(
    store: Store,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    partitioning: Partitioning,
    *,
    new_path: Callable[[], str],
    ranges: tuple[FileRange, ...] = (),
    compression: str = "zstd",
) -> dict[str, int]:
    """Makes a file per value, and answers the rows of each; none for no rows.

    ``new_path`` names a file, which is put into the folder of its value where the table has those.
    ``schema`` is that of the batches and has the column. No file is in place unless all batches were written; a kill
    while they are put there leaves some, which nothing names. TableError for more than ``MOST_VALUES`` values.
    """
    where = f"{store.location}: partition by {partitioning}"
    kept = schema if partitioning.in_files else schema.remove(schema.get_field_index(partitioning.column))
    files: dict[str | None, _Open] = {}
    waiting = 0
    with ExitStack() as stack:
        for batch in batches:
            for value, part in split(batch.cast(schema), partitioning):
                file = files.get(value)
                if file is None:
                    _check(value, len(files), partitioning, where)
                    path, cell = in_folder(new_path(), partitioning, value), Cell(by=str(partitioning), value=value)
                    sink = parquet_sink(store, path, kept, ranges=ranges, partition=cell, compression=compression)
                    file = files[value] = _Open(path=path, writer=stack.enter_context(sink))
                before = file.bytes
                file.take(part.select(kept.names))
                waiting += file.bytes - before
            while waiting > GATHERED_BYTES:
                waiting -= max(files.values(), key=lambda each: each.bytes).write_out()
        for file in files.values():
            file.write_out()
    return {file.path: file.rows for file in files.values()}


def _check(value: str | None, open_files: int, partitioning: Partitioning, where: str) -> None:
    if open_files == MOST_VALUES:
        raise TableError(
            f"{where}: a batch has more than {MOST_VALUES} values, each of which is a file: partition by a column of "
            "fewer, or by day"
        )
    if value == "" and not partitioning.in_files:
        raise TableError(f"{where}: an empty text would be read as null, as Delta has it")
