"""What a table is to its writers, and the one way in which a batch gets into any of them.

``Table`` is the protocol, of three implementations (Delta, Iceberg, Parquet) that pass one contract suite. A table is a
value at one moment: ``refresh`` reads it anew. ``land`` is the commit: it asks, checks, and puts, and what it was that
came between decides whether it tries again.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import pyarrow as pa

from holdfast.lake.data_files import (
    Attempt,
    DataFile,
    attempt_in,
    attempt_of,
    check_columns,
    check_partition,
    described,
)
from holdfast.lake.errors import (
    AttemptTooOldError,
    ConflictError,
    CountError,
    FileMissingError,
    PositionMovedError,
    TableError,
)
from holdfast.lake.partitioning import Partitioning
from holdfast.lake.position import Position, difference
from holdfast.lake.store import Store
from holdfast.model.types import TimestampMs

MOST_AGE_MS: Final = 3_600_000
"""An attempt that began longer ago than this is not committed, and only files of older attempts are swept."""
TRIES: Final = 20
"""Commits of others (compaction, expiry) that may come between before a batch gives up."""

Clock = Callable[[], TimestampMs]
Steps = Callable[[str], None]


class CommitConflict(Exception):
    """Somebody else's commit came first. Nothing was written; whether to try again is for the caller to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Files, and from where to where they move the table."""

    attempt: Attempt
    before: Position
    after: Position
    """Made by ``advanced`` with the attempt's name."""
    files: tuple[str, ...]
    """Paths below the table's location."""


class Table(Protocol):
    """One table at one location."""

    @property
    def store(self) -> Store: ...

    @property
    def format(self) -> str:
        """``delta``, ``iceberg`` or ``parquet``."""
        ...

    @property
    def widens(self) -> bool:
        """True if a column can become wider, and files of before then still count."""
        ...

    @property
    def partitioning(self) -> Partitioning | None:
        """None where files may have any rows."""
        ...

    def refresh(self) -> None:
        """Reads the newest committed state."""
        ...

    def position(self) -> Position:
        """Of the state that was read last. PositionError if the table's word cannot be used."""
        ...

    def schema(self) -> pa.Schema:
        """Of rows that are landed, of the state that was read last."""
        ...

    def files(self) -> tuple[str, ...]:
        """Live data files below the location, of the state that was read last."""
        ...

    def rows(self) -> int:
        """That the table has in that state, whoever put them there."""
        ...

    def snapshot(self) -> tuple[str, str]:
        """Number of the state that was read last, and the whole name of the file that another engine opens it by."""
        ...

    def put(self, files: Sequence[DataFile], after: Position) -> None:
        """Adds the files and sets the position in one atomic commit on top of the state that was read last.

        CommitConflict if any commit has come since. ``land`` is what calls this.
        """
        ...

    def change_columns(self, added: Sequence[pa.Field], widened: Sequence[pa.Field]) -> None:
        """Adds columns at the end and gives others a wider type, in one commit on top of the state read last.

        The position stays. CommitConflict as with ``put``; TableError for a type that the format has not. ``evolve``
        is what calls this.
        """
        ...

    def whole(self) -> dict[str, tuple[int, int]]:
        """Live files whose rows are all rows of the table (none is deleted by another file) -> bytes, rows."""
        ...

    def values(self) -> dict[str, str | None]:
        """Live file -> its partition's value as text, where that is known; empty for a table without partitions."""
        ...

    def read(self, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of some live files, in ``schema``."""
        ...

    def replace(self, removed: Sequence[str], added: Sequence[DataFile]) -> None:
        """Puts files in the place of others that have the same rows, on top of the state that was read last.

        The position stays. CommitConflict as with ``put``.
        """
        ...

    def expire(self, *, older_than_ms: TimestampMs) -> int:
        """Forgets states that are older, and their metadata files; answers how many. The position stays."""
        ...

    def referenced(self) -> frozenset[str]:
        """Data files that any state names that has not been expired."""
        ...


def now_ms() -> TimestampMs:
    return time.time_ns() // 1_000_000


def land(
    table: Table,
    batch: Batch,
    *,
    clock: Clock = now_ms,
    most_age_ms: int = MOST_AGE_MS,
    on_step: Steps = lambda _step: None,
) -> Position:
    """Commits a batch, once, or raises and has written nothing.

    PositionMovedError if the table does not end where the batch begins; CountError if the files have other rows than
    the batch says, by their footers; FileMissingError if this process does not see one; AttemptTooOldError if clean-up
    may have taken them; ConflictError if others' commits never stop. A commit whose answer was lost is found in place.
    """
    files: tuple[DataFile, ...] | None = None
    for tried in range(TRIES):
        table.refresh()
        position = table.position()
        if position == batch.after:
            return position
        if position != batch.before:
            raise PositionMovedError(f"{table.store.location}: {difference(position, batch.before)}")
        _check_age(table, batch.attempt, position, clock(), most_age_ms)
        files = _footers(table, batch) if files is None else files
        schema = table.schema()
        for file in files:
            check_columns(file, schema, table.store.location, widens=table.widens)
            check_partition(file, table.partitioning, table.store.location)
        on_step("commit")
        try:
            table.put(files, batch.after)
        except CommitConflict:
            pause(tried)
            continue
        except FileMissingError:  # swept, if the table has moved on meanwhile
            table.refresh()
            if table.position() == batch.before:
                raise
            continue
        on_step("committed")
        return batch.after
    raise ConflictError(f"{table.store.location}: {TRIES} commits of others came before this one: stop some of them")


def fence(table: Table, *, older_than_ms: TimestampMs, clock: Clock = now_ms) -> Position:
    """From now on no attempt that began earlier is committed, not even one that has passed all its checks already."""
    for tried in range(TRIES):
        table.refresh()
        position = table.position()
        if position.not_before_ms >= older_than_ms:
            return position
        after = replace(
            position,
            sequence=position.sequence + 1,
            attempt=str(attempt_of(clock())),
            not_before_ms=older_than_ms,
        )
        try:
            table.put((), after)
        except CommitConflict:
            pause(tried)
            continue
        return after
    raise ConflictError(f"{table.store.location}: {TRIES} commits of others came before this one: stop some of them")


def check_age(table: Table, attempt: Attempt, *, clock: Clock = now_ms, most_age_ms: int = MOST_AGE_MS) -> None:
    """AttemptTooOldError if files of the attempt may be swept."""
    _check_age(table, attempt, table.position(), clock(), most_age_ms)


# -- what land asks ----------------------------------------------------------------------------------------------


def _footers(table: Table, batch: Batch) -> tuple[DataFile, ...]:
    where = table.store.location
    if batch.after.sequence != batch.before.sequence + 1 or batch.after.attempt != str(batch.attempt):
        raise TableError(f"{where}: a batch leads from commit {batch.before.sequence} to {batch.after.sequence}")
    if len(set(batch.files)) != len(batch.files):
        raise CountError(f"{where}: a file is named twice in one batch: {sorted(batch.files)[:5]}")
    for path in batch.files:
        if attempt_in(path) != batch.attempt:
            raise TableError(f"{where}: {path} is not a file of attempt {batch.attempt}")
    files = tuple(described(table.store, path) for path in batch.files)
    found, said = sum(file.rows for file in files), batch.after.rows - batch.before.rows
    if found != said:
        raise CountError(f"{where}: the batch says {said} rows, the footers of its {len(files)} files say {found}")
    return files


def _check_age(table: Table, attempt: Attempt, position: Position, now: TimestampMs, most_age_ms: int) -> None:
    oldest = max(now - most_age_ms, position.not_before_ms)
    if attempt.started_ms < oldest:
        raise AttemptTooOldError(
            f"{table.store.location}: attempt {attempt} began {(now - attempt.started_ms) / 1000:.0f} s ago, expected "
            f"{most_age_ms / 1000:.0f} s at most: its files may have been swept; begin the batch again"
        )


def pause(tried: int) -> None:
    """Longer each time and never the same, so that two who collide do not go on colliding."""
    time.sleep(random.uniform(0, min(1.0, 0.01 * 2**tried)))
