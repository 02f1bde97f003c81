"""A table of plain Parquet files: the manifest chain says which files it has and where it ends.

Other engines read the files that ``files`` names; a folder's listing has those of batches under way as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from holdfast.lake.data_files import DataFile, check_schema
from holdfast.lake.errors import TableError
from holdfast.lake.parquet_log import (
    SNAPSHOT_EVERY,
    CommitEntry,
    LiveFile,
    ParquetLog,
    State,
    live,
    path_of,
    schema_of,
    schema_text,
)
from holdfast.lake.partitioning import Partitioning, partitioning_of
from holdfast.lake.position import Position
from holdfast.lake.rows import rows_of
from holdfast.lake.store import Store
from holdfast.lake.table import Clock, CommitConflict, now_ms
from holdfast.model.types import TimestampMs

KEEP_LOG_MS: Final = 600_000
"""Commits before a snapshot of this age are forgotten; who reads one meanwhile looks again."""


class ParquetTable:
    """See ``Table``."""

    format = "parquet"
    widens = True

    def __init__(self, store: Store, state: State, *, clock: Clock = now_ms) -> None:
        self._store = store
        self._log = ParquetLog(store)
        self._state = state
        self._clock = clock

    @staticmethod
    def opened(store: Store, *, clock: Clock = now_ms) -> "ParquetTable | None":
        """None where no such table is."""
        state = ParquetLog(store).state()
        return ParquetTable(store, state, clock=clock) if state is not None else None

    @staticmethod
    def made(
        store: Store, schema: pa.Schema, *, partition_by: str | None = None, clock: Clock = now_ms
    ) -> "ParquetTable":
        """A new and empty one. TableError if one is there, or the schema cannot be kept."""
        check_schema(schema, store.location)
        if partition_by is not None:
            partitioning_of(partition_by, schema, store.location)
        first = CommitEntry(
            number=0,
            time_ms=clock(),
            position=Position().to_text(),
            schema=schema_text(schema),
            partition_by=partition_by,
        )
        log = ParquetLog(store)
        if log.state() is not None or not log.append(first):
            raise TableError(f"{store.location} is a Parquet table already")
        made = ParquetTable.opened(store, clock=clock)
        assert made is not None
        return made

    @property
    def store(self) -> Store:
        return self._store

    @property
    def partitioning(self) -> Partitioning | None:
        by = self._state.partition_by
        return partitioning_of(by, self.schema(), self._store.location) if by is not None else None

    def refresh(self) -> None:
        state = self._log.state(self._state)
        assert state is not None
        self._state = state

    def position(self) -> Position:
        return Position.from_text(self._state.position, self._store.location)

    def schema(self) -> pa.Schema:
        return schema_of(self._state.schema)

    def files(self) -> tuple[str, ...]:
        return tuple(sorted(self._state.files))

    def rows(self) -> int:
        return sum(file.rows for file in self._state.files.values())

    def snapshot(self) -> tuple[str, str]:
        return str(self._state.number), self._store.url(path_of(self._state.number))

    def referenced(self) -> frozenset[str]:
        return self._log.referenced() | frozenset(self._state.files) | frozenset(self._state.left)

    # -- commits ---------------------------------------------------------------------------------------------

    def put(self, files: Sequence[DataFile], after: Position) -> None:
        self._append(live(files), (), after.to_text())

    def change_columns(self, added: Sequence[pa.Field], widened: Sequence[pa.Field]) -> None:
        wider = {column.name: column for column in widened}
        columns = [wider.get(column.name, column) for column in self.schema()]
        self._append((), (), self._state.position, schema_text(pa.schema([*columns, *added])))

    def _append(
        self, added: tuple[LiveFile, ...], removed: tuple[str, ...], position: str, schema: str | None = None
    ) -> None:
        entry = CommitEntry(
            number=self._state.number + 1,
            # Time does not go back in a chain, whatever the clocks of its writers say.
            time_ms=max(self._clock(), self._state.time_ms),
            position=position,
            added=added,
            removed=removed,
            schema=schema,
        )
        if not self._log.append(entry):
            raise CommitConflict
        self._state = self._state.after(entry)
        if entry.number % SNAPSHOT_EVERY == 0:
            self._log.write_snapshot(self._state)

    # -- upkeep ----------------------------------------------------------------------------------------------

    def whole(self) -> dict[str, tuple[int, int]]:
        return {path: (file.size, file.rows) for path, file in self._state.files.items()}

    def values(self) -> dict[str, str | None]:
        if self._state.partition_by is None:
            return {}
        return {path: file.value for path, file in self._state.files.items()}

    def read(self, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for path in paths:
            yield from rows_of(self._store, path, schema)

    def replace(self, removed: Sequence[str], added: Sequence[DataFile]) -> None:
        self._append(live(added), tuple(removed), self._state.position)

    def expire(self, *, older_than_ms: TimestampMs) -> int:
        """Files that left the table before that may go; commits need not stay even so long once a snapshot has them."""
        left = {path: when for path, when in self._state.left.items() if when >= older_than_ms}
        self._state = replace(self._state, left=left)
        if self._state.number % SNAPSHOT_EVERY:
            self._log.write_snapshot(self._state)
        return self._log.forget(older_than_ms=max(older_than_ms, self._clock() - KEEP_LOG_MS))
