"""Small Arrow record batches put together: each costs Spark as much as a thousand rows do.

A task that reads thousands of partitions with a few records each decodes each by itself. Order stays as it is.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

SMALL_ROWS: Final = 1_000
SMALL_BYTES: Final = 256 << 10
JOINED_ROWS: Final = 10_000
JOINED_BYTES: Final = 4 << 20


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: those that follow each other with less than SMALL_ROWS rows and SMALL_BYTES bytes
    are one, of at most JOINED_ROWS rows and JOINED_BYTES bytes more or less."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows >= SMALL_ROWS or batch.nbytes >= SMALL_BYTES:
            yield from _one(held)
            held, rows, size = [], 0, 0
            yield batch
            continue
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= JOINED_ROWS or size >= JOINED_BYTES:
            yield from _one(held)
            held, rows, size = [], 0, 0
    yield from _one(held)


def _one(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) < 2:
        yield from batches
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()
