"""Small files into larger ones: which belong together, and how their rows are written anew.

Pure choice, and the copying of rows; what is replaced by what is committed by the table.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.lake.data_files import Attempt, FileRange, attempt_in, name_of, ranges_in, write_file
from holdfast.lake.store import Store

ROWS_AT_ONCE: Final = 64_000


def groups_of(sizes: Mapping[str, int], target_bytes: int) -> list[tuple[str, ...]]:
    """Files to be put together, in the order of their names: each group of two files or more.

    A group has at most ``target_bytes``; files of more than half of that stay as they are. Each pass at least halves
    the number of small files.
    """
    groups: list[tuple[str, ...]] = []
    group: list[str] = []
    total = 0
    for path in sorted(sizes):
        size = sizes[path]
        if size * 2 > target_bytes:
            continue
        if total + size > target_bytes:
            groups.append(tuple(group))
            group, total = [], 0
        group.append(path)
        total += size
    groups.append(tuple(group))
    return [each for each in groups if len(each) > 1]


def rewritten(
    store: Store,
    group: Sequence[str],
    attempt: Attempt,
    part: int,
    schema: pa.Schema,
    rows: Iterable[pa.RecordBatch],
) -> str:
    """Writes the rows of a group to a new file and answers its path. Its name is of the group's first range."""
    ranges = tuple(each for path in group if attempt_in(path) is not None for each in ranges_in(store, path))
    unknown = (FileRange(topic="", topic_id=None, partition=0, start=0, end=0),)
    path = name_of(ranges or unknown, attempt, part)
    write_file(store, path, schema, rows, ranges=ranges)
    return path


def rows_of(store: Store, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The file's rows in the table's schema: a column that the file has not is null."""
    with store.open(path) as file, pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(ROWS_AT_ONCE):
            columns = [
                batch.column(field.name).cast(field.type)
                if field.name in batch.schema.names
                else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
