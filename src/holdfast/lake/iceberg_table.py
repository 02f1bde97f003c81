"""An Iceberg table, by pyiceberg: files and position in one commit of its catalog.

The position is a table property and stands in the summary of each snapshot of ours as well. As a property it stays what
it is through commits of others: compaction, expiry of snapshots, a new column. Every change of the position makes a
snapshot, also one without files: what pyiceberg checks against the catalog is the snapshot that a commit was made on.

pyiceberg repeats an append on the new head by itself, which would let a late writer's batch in twice: it does not with
``commit.retry.num-retries=0``, and no commit is made to a table that says otherwise.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import pyarrow as pa

from holdfast.lake.columns import check_reserved
from holdfast.lake.data_files import DataFile, check_kept, check_schema, plain
from holdfast.lake.errors import ConflictError, FileMissingError, TableError
from holdfast.lake.iceberg_metadata import NamedFiles, transaction
from holdfast.lake.partitioning import Partitioning, day_text, partitioning_of, text_of, value_of
from holdfast.lake.position import Position
from holdfast.lake.store import Store
from holdfast.lake.table import MOST_AGE_MS, TRIES, Clock, CommitConflict, now_ms, pause
from holdfast.model.types import TimestampMs

T = TypeVar("T")

KEY: Final = "holdfast.position"
SUMMARY_KEY: Final = "holdfast.sequence"
RETRIES: Final = "commit.retry.num-retries"
SETTINGS: Final = {
    RETRIES: "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
}
METADATA: Final = "metadata"
NAME_MAPPING: Final = "schema.name-mapping.default"
PARTITION: Final = 3
"""Place of the partition in pyiceberg's record of a data file."""


class IcebergTable:
    """See ``Table``."""

    format = "iceberg"
    widens = True

    def __init__(self, store: Store, table: Any, *, clock: Clock = now_ms) -> None:
        self._store = store
        self._table = table
        self._clock = clock
        self._named = NamedFiles(self._path)
        if table.metadata.location.rstrip("/") != store.url("").rstrip("/"):
            raise TableError(
                f"Iceberg table {'.'.join(table.name())} is at {table.metadata.location}, expected {store.url('')}"
            )
        _ = self.partitioning  # fails here for one that is not ours to split by

    @staticmethod
    def opened(store: Store, catalog: Any, name: str, *, clock: Clock = now_ms) -> "IcebergTable | None":
        """None where the catalog has no such table. A table of others is taken: its position is the empty one."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return IcebergTable(store, catalog.load_table(name), clock=clock)
        except NoSuchTableError:
            return None

    @staticmethod
    def made(
        store: Store,
        catalog: Any,
        name: str,
        schema: pa.Schema,
        *,
        partition_by: str | None = None,
        clock: Clock = now_ms,
    ) -> "IcebergTable":
        """A new and empty one. TableError if one is there, or the schema cannot be kept."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        check_schema(schema, store.location)
        check_reserved(schema.names, "iceberg", store.location)
        by = partitioning_of(partition_by, schema, store.location) if partition_by is not None else None
        catalog.create_namespace_if_not_exists(name.rsplit(".", 1)[0])
        try:
            change = catalog.create_table_transaction(
                name, schema=schema, location=store.url("").rstrip("/"), properties=SETTINGS
            )
            if by is not None:
                with change.update_spec() as spec:
                    if by.by_day:
                        spec.add_field(by.column, "day", f"{by.column}_day")
                    else:
                        spec.add_identity(by.column)
            change.commit_transaction()
        except TableAlreadyExistsError:
            raise TableError(f"the catalog has a table {name} already") from None
        return IcebergTable(store, catalog.load_table(name), clock=clock)

    @property
    def store(self) -> Store:
        return self._store

    def refresh(self) -> None:
        self._table.refresh()

    def schema(self) -> pa.Schema:
        return _plain_schema(self._table.schema())

    @property
    def partitioning(self) -> Partitioning | None:
        spec = self._table.spec()
        if not spec.fields:
            return None
        names = {"identity": "{}", "day": "day({})"}
        if len(spec.fields) > 1 or str(spec.fields[0].transform) not in names:
            raise TableError(
                f"{self._store.location} is partitioned by {spec}: expected one column at most, as it is or by its day"
            )
        column = self._table.schema().find_column_name(spec.fields[0].source_id)
        return partitioning_of(names[str(spec.fields[0].transform)].format(column), self.schema(), self._store.location)

    def files(self) -> tuple[str, ...]:
        return tuple(sorted(self._tasks()))

    def rows(self) -> int:
        return int(self._steady(lambda: self._table.scan().count()))

    def snapshot(self) -> tuple[str, str]:
        snapshot = self._table.current_snapshot()
        return str(snapshot.snapshot_id if snapshot is not None else -1), self._table.metadata_location

    def position(self) -> Position:
        text = self._table.properties.get(KEY)
        return Position.from_text(text, self._store.location) if text is not None else Position()

    # -- commits ---------------------------------------------------------------------------------------------

    def put(self, files: Sequence[DataFile], after: Position) -> None:
        self._refuse_retries()
        change = transaction(self._table)
        summary = {SUMMARY_KEY: str(after.sequence)}
        if files:
            if change.table_metadata.name_mapping() is None:  # of columns that files have no ids of
                mapping = change.table_metadata.schema().name_mapping.model_dump_json()
                change.set_properties({NAME_MAPPING: mapping})
            try:
                with self._not_under_us(), change._append_snapshot_producer(summary) as added:
                    for file in files:
                        added.append_data_file(self._data_file(file))
            except FileNotFoundError as error:
                raise FileMissingError(f"{self._store.location}: {error}") from error
        else:
            with self._not_under_us(), change.update_snapshot(snapshot_properties=summary).fast_append():
                pass
        change.set_properties({KEY: after.to_text()})
        self._commit(change)

    def _data_file(self, file: DataFile) -> Any:
        """By its footer; its partition is what its writer noted, as long texts have no bounds to guess from."""
        from pyiceberg.io.pyarrow import parquet_file_to_data_file
        from pyiceberg.partitioning import PartitionSpec
        from pyiceberg.typedef import Record

        metadata, by = self._table.metadata, self.partitioning
        apart = metadata.model_copy(update={"partition_specs": [PartitionSpec(spec_id=metadata.default_spec_id)]})
        found = parquet_file_to_data_file(self._table.io, apart, self._store.url(file.path))
        if by is not None and file.partition is not None:
            kind = pa.date32() if by.by_day else self.schema().field(by.column).type
            found[PARTITION] = Record(value_of(file.partition.value, kind))
        return found

    def _refuse_retries(self) -> None:
        """Sets the property where it is not; a table of others has it not."""
        if self._table.properties.get(RETRIES) == "0":
            return
        change = transaction(self._table)
        change.set_properties({RETRIES: "0"})
        self._commit(change)
        raise CommitConflict  # what was read is not the newest any more

    def change_columns(self, added: Sequence[pa.Field], widened: Sequence[pa.Field]) -> None:
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

        self._refuse_retries()
        check_reserved([each.name for each in added], "iceberg", self._store.location)
        change = transaction(self._table)
        columns = pa.schema([*added, *widened])
        try:
            with change.update_schema() as update:
                update.union_by_name(columns)
        except (
            UnsupportedPyArrowTypeException,
            TypeError,
            ValueError,
            ValidationError,
        ) as error:  # a type that Iceberg has not
            raise TableError(f"{self._store.location}: columns {', '.join(columns.names)}: {error}") from error
        check_kept(_plain_schema(change.table_metadata.schema()), columns, self._store.location)
        self._commit(change)

    @contextmanager
    def _not_under_us(self) -> Iterator[None]:
        """CommitConflict where a file is missing because the table has moved on: upkeep of others took what it was."""
        at = self._table.metadata_location
        try:
            yield
        except FileNotFoundError as error:
            self.refresh()
            if self._table.metadata_location != at:
                raise CommitConflict from error
            raise

    def _steady(self, look: Callable[[], T]) -> T:
        """What ``look`` finds in one state of the table, the newest if the one it began with was taken away."""
        for tried in range(TRIES):
            try:
                with self._not_under_us():
                    return look()
            except CommitConflict:
                pause(tried)
        raise ConflictError(f"{self._store.location}: {TRIES} commits of others came while it was read")

    def _commit(self, change: Any) -> None:
        from pyiceberg.exceptions import CommitFailedException

        try:
            change.commit_transaction()
        except CommitFailedException as error:
            raise CommitConflict from error

    # -- upkeep ----------------------------------------------------------------------------------------------

    def whole(self) -> dict[str, tuple[int, int]]:
        return {
            path: (task.file.file_size_in_bytes, task.file.record_count)
            for path, task in self._tasks().items()
            if not task.delete_files
        }

    def values(self) -> dict[str, str | None]:
        by, spec = self.partitioning, self._table.spec()
        if by is None:
            return {}
        dates = by.by_day or pa.types.is_date(self.schema().field(by.column).type)
        found = {}
        for path, task in self._tasks().items():
            if task.file.spec_id == spec.spec_id:  # not of a partitioning that it had before
                value = task.file.partition[0]
                found[path] = day_text(value) if dates and value is not None else text_of(value)
        return found

    def _tasks(self) -> dict[str, Any]:
        return self._steady(self._planned)

    def _planned(self) -> dict[str, Any]:
        return {self._path(task.file.file_path): task for task in self._table.scan().plan_files()}

    def read(self, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """By pyiceberg, which knows columns by their ids: a column may have been renamed since a file was written."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        tasks = self._tasks()
        for path in paths:
            scan = ArrowScan(self._table.metadata, self._table.io, self._table.schema(), AlwaysTrue())
            for batch in scan.to_record_batches([tasks[path]]):
                yield batch.select(schema.names).cast(schema)

    def replace(self, removed: Sequence[str], added: Sequence[DataFile]) -> None:
        self._refuse_retries()
        with self._not_under_us():
            tasks = self._planned()
            change = transaction(self._table)
            with change.update_snapshot().overwrite() as snapshot:
                for path in removed:
                    snapshot.delete_data_file(tasks[path].file)
                for file in added:
                    snapshot.append_data_file(self._data_file(file))
        self._commit(change)

    def expire(self, *, older_than_ms: TimestampMs) -> int:
        """Forgets old snapshots, then removes the files of the metadata folder that only those named."""
        from pyiceberg.exceptions import CommitFailedException

        self.refresh()
        before = len(self._table.metadata.snapshots)
        with self._not_under_us():
            known = self._metadata_files()
        limit = datetime.fromtimestamp(older_than_ms / 1000, UTC)
        change = self._table.maintenance.expire_snapshots().older_than(limit)
        if change._snapshot_ids_to_expire:
            try:
                change.commit()
            except CommitFailedException as error:
                raise CommitConflict from error
            self.refresh()
        with self._not_under_us():
            self._sweep_metadata(older_than_ms, known)
        return before - len(self._table.metadata.snapshots)

    def _sweep_metadata(self, older_than_ms: TimestampMs, known: set[str]) -> None:
        """Only files that are older. What nothing has named yet may be of a commit under way, of ours or of an engine
        that tries again with the manifests that it has: it stays as long as an attempt may last."""
        begun_ms = min(older_than_ms, self._clock() - MOST_AGE_MS)
        old = [
            entry.path
            for entry in self._store.list(METADATA)
            if entry.changed_ms < (older_than_ms if entry.path in known else begun_ms)
        ]
        self.refresh()
        named = self._metadata_files()
        for path in old:
            if path not in named and path.endswith((".avro", ".metadata.json", ".gz.metadata.json")):
                self._store.remove(path)

    def _metadata_files(self) -> set[str]:
        """What the table of now names."""
        metadata = self._table.metadata
        named = self._named.metadata_files(metadata.snapshots, self._table.io)
        named.add(self._path(self._table.metadata_location))
        named.update(self._path(each.metadata_file) for each in metadata.metadata_log)
        named.update(self._path(each.statistics_path) for each in metadata.statistics)
        return named

    def referenced(self) -> frozenset[str]:
        """Data files of all snapshots that are not expired."""
        return self._steady(lambda: self._named.data_files(self._table.metadata.snapshots, self._table.io))

    def _path(self, url: str) -> str:
        """Below the location; the whole name of a file that is elsewhere."""
        root = self._store.url("").rstrip("/") + "/"
        return url[len(root) :] if url.startswith(root) else url


def _plain_schema(schema: Any) -> pa.Schema:
    arrow: pa.Schema = schema.as_arrow()
    return pa.schema([pa.field(column.name, plain(column.type), column.nullable) for column in arrow])
