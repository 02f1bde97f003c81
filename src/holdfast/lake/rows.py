"""A data file's rows in the schema that its table has now."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.lake.store import Store

ROWS_AT_ONCE: Final = 64_000


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
