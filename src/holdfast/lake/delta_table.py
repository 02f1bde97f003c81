"""A Delta table, by deltalake: files and position in one commit of its log.

The commit has two transactions of ours (``txn`` actions, which no checkpoint and no clean-up of the log forgets): the
number of the position, and the token of the attempt that made it. The text of the position stands in a small file whose
name is made of these two, written before the commit, and again in the commit's info. So whoever compacts, cuts the log
or changes the schema leaves the position as it is, and no commit of ours changes the table's metadata, with which other
engines' commits would collide.

A commit is asked for on top of one version (``max_commit_retries=0``): deltalake's own tries would put it on top of a
version that nobody has looked at.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.lake.data_files import PARTITION_KEY, DataFile, check_kept, check_schema
from holdfast.lake.errors import AlreadyThereError, FileMissingError, PositionError, TableError
from holdfast.lake.partitioning import Partitioning, partitioning_of, text_of
from holdfast.lake.position import Position
from holdfast.lake.rows import rows_of
from holdfast.lake.store import Store
from holdfast.lake.table import Clock, CommitConflict, now_ms
from holdfast.model.types import TimestampMs

NUMBER_APP: Final = "holdfast-lake"
TOKEN_APP: Final = "holdfast-lake-token"
KEY: Final = "holdfast.position"
POSITIONS: Final = "_holdfast/position"
KEPT_POSITIONS: Final = 10
LOG: Final = "_delta_log"
LOG_NAME: Final = re.compile(r"(\d{20})\.(.+)")
RETENTION: Final = "delta.deletedFileRetentionDuration"
SETTINGS: Final = {
    # A checkpoint each 100 commits, as Delta has it; what lies before one and is a day old may go.
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 1 days",
    RETENTION: "interval 1 days",  # for VACUUM of other engines; upkeep of ours goes by the states that are kept
}


class DeltaTable:
    """See ``Table``."""

    format = "delta"
    widens = False

    def __init__(self, store: Store, table: Any, *, clock: Clock = now_ms) -> None:
        self._store = store
        self._table = table
        self._clock = clock
        self._by = table.metadata().partition_columns
        if len(self._by) > 1:
            raise TableError(f"{store.location} is partitioned by {', '.join(self._by)}: expected one column at most")
        _ = self.partitioning  # fails here for a column that cannot be split by

    @staticmethod
    def opened(store: Store, *, clock: Clock = now_ms) -> "DeltaTable | None":
        """None where no Delta table is. A table of others is taken as it is: its position is the empty one."""
        import deltalake

        options = _options()
        url = _url(store)
        if not deltalake.DeltaTable.is_deltatable(url, options):
            return None
        return DeltaTable(store, deltalake.DeltaTable(url, storage_options=options), clock=clock)

    @staticmethod
    def made(
        store: Store, schema: pa.Schema, *, partition_by: str | None = None, clock: Clock = now_ms
    ) -> "DeltaTable":
        """A new and empty one. TableError if one is there, or the schema cannot be kept."""
        import deltalake

        by = []
        if partition_by is not None:
            column = partitioning_of(partition_by, schema, store.location)
            by = [column.column]
            if column.by_day:  # Delta knows columns only: one of the day, which the files do not have
                by = [f"{column.column}_day"]
                schema = schema.append(pa.field(by[0], pa.date32(), metadata={PARTITION_KEY: partition_by}))
        check_schema(schema, store.location)
        try:
            table = deltalake.DeltaTable.create(
                _url(store),
                schema=schema,
                mode="error",
                partition_by=by,
                configuration=SETTINGS,
                storage_options=_options(),
            )
        except deltalake.exceptions.DeltaError as error:
            raise TableError(f"{store.location}: no Delta table can be made: {error}") from error
        return DeltaTable(store, table, clock=clock)

    @property
    def store(self) -> Store:
        return self._store

    def refresh(self) -> None:
        import deltalake

        try:
            self._table.update_incremental()
        except deltalake.exceptions.DeltaError:  # the log was cut beyond where we were
            self._table = deltalake.DeltaTable(_url(self._store), storage_options=_options())

    def schema(self) -> pa.Schema:
        schema = pa.schema(self._table.schema().to_arrow())
        derived = [name for name in self._by if _derived(schema.field(name)) is not None]
        return pa.schema([column for column in schema if column.name not in derived])

    @property
    def partitioning(self) -> Partitioning | None:
        if not self._by:
            return None
        schema = pa.schema(self._table.schema().to_arrow())
        derived = _derived(schema.field(self._by[0]))
        found = partitioning_of(derived or self._by[0], schema, self._store.location)
        return replace(found, in_files=found.by_day, folder=self._by[0])

    def files(self) -> tuple[str, ...]:
        return tuple(sorted(self._live()))

    def rows(self) -> int:
        return int(self._table.count())

    def snapshot(self) -> tuple[str, str]:
        version = self._table.version()
        return str(version), self._store.url(f"{LOG}/{version:020d}.json")

    # -- position --------------------------------------------------------------------------------------------

    def position(self) -> Position:
        number = self._table.transaction_version(NUMBER_APP)
        if number is None:
            return Position()
        token = self._table.transaction_version(TOKEN_APP)
        where = self._store.location
        text = self._text(number, token)
        if text is None:
            raise PositionError(
                f"{where}: commit {number} of the lake is in the log, and its text is neither at "
                f"{self._store.url(_position_path(number, token or 0))} nor in the commit's info: put that file back"
            )
        found = Position.from_text(text, where)
        if found.sequence != number:
            raise PositionError(f"{where}: the text of commit {number} is one of commit {found.sequence}")
        return found

    def _text(self, number: int, token: int | None) -> str | None:
        if token is not None:
            try:
                return self._store.read(_position_path(number, token)).decode()
            except FileMissingError:
                pass
        for info in self._table.history():
            text = info.get(KEY)
            if isinstance(text, str) and Position.from_text(text, self._store.location).sequence == number:
                return text
        return None

    # -- commits ---------------------------------------------------------------------------------------------

    def put(self, files: Sequence[DataFile], after: Position) -> None:
        from deltalake import Transaction

        assert after.attempt is not None
        text, token = after.to_text(), int(after.attempt.rsplit("-", 1)[1], 16)
        try:
            self._store.create(_position_path(after.sequence, token), text.encode())
        except AlreadyThereError:
            if self._store.read(_position_path(after.sequence, token)).decode() != text:
                raise TableError(f"{self._store.location}: attempt {after.attempt} has made two positions") from None
        transactions = [Transaction(NUMBER_APP, after.sequence), Transaction(TOKEN_APP, token)]
        self._commit([self._add(file, data_change=True) for file in files], {KEY: text}, transactions)

    def _commit(self, actions: list[Any], info: dict[str, str], transactions: list[Any]) -> None:
        import deltalake

        version = self._table.version()
        try:
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                partition_by=self._by or None,
                commit_properties=deltalake.CommitProperties(
                    custom_metadata=info, max_commit_retries=0, app_transactions=transactions
                ),
                post_commithook_properties=deltalake.PostCommitHookProperties(cleanup_expired_logs=False),
            )
        except deltalake.exceptions.CommitFailedError as error:
            self._failed(version, error)

    def change_columns(self, added: Sequence[pa.Field], widened: Sequence[pa.Field]) -> None:
        import deltalake

        assert not widened, "asked of a table that does not widen"
        columns = _delta_schema(pa.schema(added), self._store.location)
        check_kept(pa.schema(columns.to_arrow()), added, self._store.location)
        version = self._table.version()
        try:
            self._table.alter.add_columns(
                columns.fields,
                commit_properties=deltalake.CommitProperties(
                    custom_metadata={"holdfast": "columns"}, max_commit_retries=0
                ),
            )
        except deltalake.exceptions.CommitFailedError as error:
            self._failed(version, error)

    def _failed(self, version: int, error: Exception) -> NoReturn:
        """CommitConflict if the log has gone on beyond ``version``."""
        self.refresh()
        if self._table.version() > version:
            raise CommitConflict from error
        raise TableError(f"{self._store.location}: Delta's log refuses the commit: {error}") from error

    def _add(self, file: DataFile, *, data_change: bool) -> Any:
        from deltalake.transaction import AddAction

        statistics = {
            "numRecords": file.rows,
            "minValues": file.least,
            "maxValues": file.greatest,
            "nullCount": file.nulls,
        }
        values = {self._by[0]: file.partition.value} if self._by and file.partition is not None else {}
        return AddAction(file.path, file.size, values, self._clock(), data_change, json.dumps(statistics))

    def _values(self, value: str | None) -> dict[str, str | None]:
        return dict.fromkeys(self._by, value)

    # -- upkeep ----------------------------------------------------------------------------------------------

    def whole(self) -> dict[str, tuple[int, int]]:
        if set(self._table.protocol().reader_features or ()) & {"deletionVectors", "columnMapping"}:
            return {}  # for the engine that does this
        return self._live()

    def values(self) -> dict[str, str | None]:
        if not self._by:
            return {}
        actions = pa.table(self._table.get_add_actions(flatten=True))
        paths, values = (actions.column(name).to_pylist() for name in ("path", f"partition.{self._by[0]}"))
        return {unquote(path): text_of(value) for path, value in zip(paths, values, strict=True)}

    def read(self, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for path in paths:
            yield from rows_of(self._store, path, schema)

    def replace(self, removed: Sequence[str], added: Sequence[DataFile]) -> None:
        from deltalake.transaction import RemoveAction

        live, values = self._live(), self.values()
        gone = [
            RemoveAction(path, False, self._clock(), live[path][0], self._values(values.get(path))) for path in removed
        ]
        self._commit([*(self._add(file, data_change=False) for file in added), *gone], {"holdfast": "compaction"}, [])

    def _live(self) -> dict[str, tuple[int, int]]:
        """Path -> bytes and rows."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        columns = [actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")]
        return {unquote(path): (size, rows or 0) for path, size, rows in zip(*columns, strict=True)}

    def expire(self, *, older_than_ms: TimestampMs) -> int:
        """Cuts the log at the newest checkpoint that is older, and removes what other engines' compactions left."""
        self.refresh()
        entries = [(entry, found) for entry in self._store.list(LOG) if (found := _log_entry(entry.path)) is not None]
        checkpoints = {number for entry, (number, kind) in entries if kind.startswith("checkpoint")}
        if self._table.version() not in checkpoints:
            self._table.create_checkpoint()
        aged = [
            number
            for entry, (number, kind) in entries
            if kind == "checkpoint.parquet" and entry.changed_ms < older_than_ms
        ]
        gone = 0
        for entry, (number, kind) in sorted(entries, key=lambda each: each[1]):
            if aged and number < max(aged):
                self._store.remove(entry.path)
                gone += kind == "json"
        if self._table.vacuum(dry_run=True):
            self._table.vacuum(dry_run=False)
            self.refresh()
        self._forget_positions(older_than_ms)
        return gone

    def _forget_positions(self, older_than_ms: TimestampMs) -> None:
        newest = self._table.transaction_version(NUMBER_APP) or 0
        for entry in self._store.list(POSITIONS):
            number = entry.path.rsplit("/", 1)[-1].split("-", 1)[0]
            if number.isdigit() and int(number) < newest - KEPT_POSITIONS and entry.changed_ms < older_than_ms:
                self._store.remove(entry.path)

    def referenced(self) -> frozenset[str]:
        """Files of all states that the log still tells. A table that others made keeps what left it for as long as it
        says, and in one with checkpoints of other kinds all of them stay."""
        entries = [(found, entry.path) for entry in self._store.list(LOG) if (found := _log_entry(entry.path))]
        checkpoints = {number: path for (number, kind), path in entries if kind == "checkpoint.parquet"}
        others = any(kind.startswith("checkpoint") and number not in checkpoints for (number, kind), _ in entries)
        ours = self._table.metadata().configuration.get(RETENTION) == SETTINGS[RETENTION] and not others
        at = (min if ours else max)(checkpoints, default=-1)
        named = set(self._live())
        if at >= 0:
            named |= self._named_by(checkpoints[at], "add" if ours else "remove")
        for (number, kind), path in entries:
            if number > at and kind == "json":
                for line in self._store.read(path).decode().splitlines():
                    action = json.loads(line)
                    named.update(unquote(action[each]["path"]) for each in ("remove", "add") if action.get(each))
        return frozenset(named)

    def _named_by(self, checkpoint: str, action: str) -> set[str]:
        with self._store.open(checkpoint) as file, pq.ParquetFile(file) as found:
            rows = found.read(columns=[f"{action}.path"]).column(action).to_pylist()
        return {unquote(each["path"]) for each in rows if each and each["path"]}


def _derived(column: pa.Field) -> str | None:
    """What a partition column is made of, if it is one that ``made`` has added."""
    noted = (column.metadata or {}).get(PARTITION_KEY)
    return noted.decode() if noted is not None else None


def _delta_schema(schema: pa.Schema, location: str) -> Any:
    """TableError for a type that Delta has not."""
    import deltalake

    try:
        return deltalake.Schema.from_arrow(schema)
    except Exception as error:  # deltalake raises just that; its text ends in a trace of its own
        raise TableError(f"{location}: columns {', '.join(schema.names)}: {str(error).splitlines()[0]}") from error


def _log_entry(path: str) -> tuple[int, str] | None:
    found = LOG_NAME.fullmatch(path.rsplit("/", 1)[-1])
    return (int(found[1]), found[2]) if found else None


def _position_path(number: int, token: int) -> str:
    return f"{POSITIONS}/{number:020d}-{token:012x}.json"


def _url(store: Store) -> str:
    return store.location


def _options() -> dict[str, str]:
    """Beside the AWS_... variables, which deltalake reads by itself."""
    return {"AWS_ALLOW_HTTP": "true"} if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://") else {}
