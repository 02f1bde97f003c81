"""Reads a table by engines that are not ours: DuckDB, Polars, and the format's own library."""

from collections.abc import Sequence
from typing import Any

from holdfast.lake.table import Table
from tests.contracts.lake_tables import duckdb_rows, parquet_files


def by_engines(
    table: Table, columns: Sequence[str], *, where: str = "true", library_only: bool = False
) -> list[list[tuple[Any, ...]]]:
    """Rows in order of offset as DuckDB, Polars and the format's own library see them; ``where`` is DuckDB's alone."""
    import polars as pl
    import pyarrow.dataset

    location, names = table.store.location, ", ".join(f'"{name}"' for name in columns)
    if table.format == "delta":
        import deltalake

        source, frame = f"delta_scan('{location}')", pl.scan_delta(location).collect()
        own = deltalake.DeltaTable(location).to_pyarrow_dataset().to_table()
    elif table.format == "iceberg":
        from pyiceberg.table import StaticTable

        metadata = table.snapshot()[1]
        static = StaticTable.from_metadata(metadata)
        source = f"iceberg_scan('{metadata.removeprefix('file://')}')"
        frame = pl.scan_iceberg(static, reader_override="pyiceberg").collect()
        own = static.scan().to_arrow()
    else:
        files = parquet_files(location)
        source = f"read_parquet({files!r}, union_by_name=true)"
        frame = pl.concat([pl.read_parquet(file) for file in files], how="diagonal_relaxed")
        own = pyarrow.dataset.dataset(files, schema=table.schema(), format="parquet").to_table()
    library = [tuple(row[name] for name in columns) for row in own.sort_by("_offset").to_pylist()]
    if library_only:
        return [library]
    return [
        duckdb_rows(f"SELECT {names} FROM {source} WHERE {where} ORDER BY _offset"),
        frame.sort("_offset").select(columns).rows(),
        library,
    ]
