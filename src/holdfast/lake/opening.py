"""Opens or makes the table at a location, in one of the three formats.

Owns which folder is a sign of which format, and the catalog of an Iceberg table that nobody names one for: a sqlite
file beside the table. Whatever is at the location and is not the table that was asked for is refused by name.
"""

import os
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from holdfast.lake.delta_table import DeltaTable
from holdfast.lake.errors import LakeError, StoreError, TableError
from holdfast.lake.iceberg_table import IcebergTable
from holdfast.lake.local_store import LocalStore
from holdfast.lake.parquet_log import LOG
from holdfast.lake.parquet_table import ParquetTable
from holdfast.lake.store import Store
from holdfast.lake.stores import prove, store_of
from holdfast.lake.table import Clock, Table, now_ms

FORMATS: Final = ("delta", "iceberg", "parquet")
SIGNS: Final = {"delta": "_delta_log", "iceberg": "metadata", "parquet": LOG}
CATALOG_FILE: Final = "iceberg-catalog.db"
NAMESPACE: Final = "lake"
OLD_LAKE: Final = "_lake.json"
"""The lake before it had tables: whose a directory is."""


def open_table(location: str, format: str, *, catalog: str | None = None, clock: Clock = now_ms) -> Table | None:
    """The table, or None where none is. TableError if something else is there, StoreError for a place of no use.

    ``catalog`` names one of pyiceberg's configuration; without it an Iceberg table has a sqlite file beside it.
    """
    store = _checked(location, format, catalog)
    if format == "delta":
        found: Table | None = DeltaTable.opened(store, clock=clock)
    elif format == "iceberg":
        found = _opened_iceberg(store, catalog, clock)
    else:
        found = ParquetTable.opened(store, clock=clock)
    other = sorted(each for each, folder in SIGNS.items() if each != format and _has(store, folder))
    if other:
        raise TableError(f"{store.location} is a table of format {other[0]}, expected {format}")
    return found


def make_table(
    location: str,
    format: str,
    schema: pa.Schema,
    *,
    partition_by: str | None = None,
    catalog: str | None = None,
    clock: Clock = now_ms,
) -> Table:
    """A new table, in a place that is proved to keep what the commits stand on. TableError if one is there.

    ``partition_by`` is ``COL`` or ``day(COL)``.
    """
    if open_table(location, format, catalog=catalog, clock=clock) is not None:
        raise TableError(f"{location} is a table already")
    store = store_of(location)
    if isinstance(store, LocalStore) and os.path.exists(os.path.join(store.location, OLD_LAKE)):
        raise TableError(
            f"{location} was filled by an earlier holdfast lake, which had no tables: take it over, which a "
            "lake of format parquet does, or use a new directory"
        )
    prove(store)
    if format == "delta":
        return DeltaTable.made(store, schema, partition_by=partition_by, clock=clock)
    if format == "iceberg":
        of = _catalog(store, catalog)
        return IcebergTable.made(store, of, _table_name(store), schema, partition_by=partition_by, clock=clock)
    return ParquetTable.made(store, schema, partition_by=partition_by, clock=clock)


def _checked(location: str, format: str, catalog: str | None) -> Store:
    if format not in FORMATS:
        raise LakeError(f"format {format!r}: expected one of {', '.join(FORMATS)}")
    if catalog is not None and format != "iceberg":
        raise LakeError(f"a catalog ({catalog!r}) is for tables of format iceberg, not {format}")
    store = store_of(location)
    if format == "iceberg" and catalog is None and not isinstance(store, LocalStore):
        raise StoreError(
            f"{location}: an Iceberg table in an object store needs a catalog of its own: name one of pyiceberg's "
            "configuration; a sqlite file cannot be kept there"
        )
    return store


def _has(store: Store, folder: str) -> bool:
    return next(iter(store.list(folder)), None) is not None


# -- Iceberg's catalog -------------------------------------------------------------------------------------------


def _opened_iceberg(store: Store, catalog: str | None, clock: Clock) -> Table | None:
    if catalog is None and not os.path.exists(_catalog_file(store)):
        if _has(store, SIGNS["iceberg"]):
            raise TableError(
                f"{store.location} has metadata of an Iceberg table, and {_catalog_file(store)} is not there: "
                "put it back, or register the newest metadata file in a catalog"
            )
        return None
    found = IcebergTable.opened(store, _catalog(store, catalog), _table_name(store), clock=clock)
    if found is None and _has(store, SIGNS["iceberg"]):
        raise TableError(f"{store.location} has metadata of an Iceberg table that its catalog does not know")
    return found


def _catalog(store: Store, name: str | None) -> Any:
    if name is not None:
        from pyiceberg.catalog import load_catalog

        return load_catalog(name)
    from pyiceberg.catalog.sql import SqlCatalog

    folder = os.path.dirname(store.location)
    os.makedirs(folder, exist_ok=True)
    return _twice(lambda: SqlCatalog("holdfast", uri=f"sqlite:///{_catalog_file(store)}", warehouse=f"file://{folder}"))


def _twice(make: Callable[[], Any]) -> Any:
    """Two who make the file's tables at one moment: the second finds them when it looks again."""
    from sqlalchemy.exc import OperationalError

    try:
        return make()
    except OperationalError:
        time.sleep(0.1)
        return make()


def _catalog_file(store: Store) -> str:
    return os.path.join(os.path.dirname(store.location), CATALOG_FILE)


def _table_name(store: Store) -> str:
    return f"{NAMESPACE}.{store.location.rstrip('/').rsplit('/', 1)[-1]}"
