"""What keeps a table small and clean while it grows: compaction, expiry of old states, the sweep of orphans.

Each may run beside writers, in their process or another one, be killed anywhere and be run again: rows and position
stay what they are. A writer who is met looks at the position again and goes on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.lake.data_files import (
    Attempt,
    DataFile,
    FileRange,
    attempt_in,
    attempt_of,
    check_columns,
    described,
    name_of,
    ranges_in,
    write_file,
)
from holdfast.lake.errors import ConflictError, TableError
from holdfast.lake.partitioning import Cell, in_folder
from holdfast.lake.table import MOST_AGE_MS, TRIES, Clock, CommitConflict, Steps, Table, check_age, fence, now_ms, pause
from holdfast.model.types import TimestampMs

TARGET_BYTES: Final = 128 * 1024 * 1024
KEEP_MS: Final = 24 * 3_600_000
"""States of the table that are younger can be read by whoever began with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What one pass of compaction did."""

    files_before: int = 0
    files_after: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRound:
    """What one round did."""

    compaction: Compaction
    expired: int
    """States of the table that were forgotten."""
    swept: tuple[str, ...]
    """Files that no commit named."""


def maintain(
    table: Table,
    *,
    target_bytes: int = TARGET_BYTES,
    keep_ms: int = KEEP_MS,
    most_age_ms: int = MOST_AGE_MS,
    clock: Clock = now_ms,
    on_step: Steps = lambda _step: None,
) -> UpkeepRound:
    """One round of all three. ConflictError if commits of others never stop; what was done until then is done.
    ``on_step`` is told "rewritten" and "replaced" where files were put together, and "expired"."""
    compaction = compact(
        table,
        attempt_of(clock()),
        target_bytes=target_bytes,
        most_age_ms=most_age_ms,
        clock=clock,
        on_step=on_step,
    )
    expired = expire(table, older_than_ms=clock() - keep_ms)
    on_step("expired")
    return UpkeepRound(compaction=compaction, expired=expired, swept=sweep(table, clock=clock, most_age_ms=most_age_ms))


# -- compaction --------------------------------------------------------------------------------------------------


def compact(
    table: Table,
    attempt: Attempt,
    *,
    target_bytes: int,
    most_age_ms: int = MOST_AGE_MS,
    clock: Clock = now_ms,
    on_step: Steps = lambda _step: None,
) -> Compaction:
    """Rewrites small files into larger ones, then puts those in their place, however many batches have landed since.

    Nothing is done if one of the small ones has left the table meanwhile. AttemptTooOldError where rewriting took
    longer than an attempt may last: use a smaller ``target_bytes``.
    """
    table.refresh()
    check_age(table, attempt, clock=clock, most_age_ms=most_age_ms)
    whole, schema = table.whole(), table.schema()
    by = table.partitioning
    if by is not None and not by.in_files:
        schema = schema.remove(schema.get_field_index(by.column))
    found = list(_groups(table, whole, target_bytes))
    groups = [group for _, group in found]
    added: list[DataFile] = []
    for part, (cell, group) in enumerate(found):
        ranges = tuple(_ranges(table, group))
        path = name_of(ranges, attempt, part)
        if by is not None and cell is not None:
            path = in_folder(path, by, cell.value)
        write_file(table.store, path, schema, table.read(group, schema), ranges=ranges, partition=cell)
        added.append(described(table.store, path))
        before, after = sum(whole[each][1] for each in group), added[-1].rows
        if before != after:
            raise TableError(f"{table.store.location}: compaction read {after} rows of files that have {before}")
    if not added:
        return Compaction()
    removed = [path for group in groups for path in group]
    on_step("rewritten")
    if not _replaced(table, attempt, removed, added, most_age_ms, clock):
        return Compaction()
    on_step("replaced")
    return Compaction(files_before=len(removed), files_after=len(added), rows=sum(file.rows for file in added))


def _groups(
    table: Table, whole: Mapping[str, tuple[int, int]], target_bytes: int
) -> Iterator[tuple[Cell | None, tuple[str, ...]]]:
    """Files to be put together, and their partition: never two of those in one file."""
    by = table.partitioning
    if by is None:
        for group in groups_of({path: size for path, (size, _) in whole.items()}, target_bytes):
            yield None, group
        return
    apart: dict[str | None, dict[str, int]] = {}
    for path, value in table.values().items():
        if path in whole:
            apart.setdefault(value, {})[path] = whole[path][0]
    for value, sizes in apart.items():
        for group in groups_of(sizes, target_bytes):
            yield Cell(by=str(by), value=value), group


def _replaced(
    table: Table,
    attempt: Attempt,
    removed: Sequence[str],
    added: Sequence[DataFile],
    most_age_ms: int,
    clock: Clock,
) -> bool:
    """False if what was read is not what the table has any more."""
    for tried in range(TRIES):
        table.refresh()
        check_age(table, attempt, clock=clock, most_age_ms=most_age_ms)
        if not table.whole().keys() >= set(removed):
            return False
        schema = table.schema()
        for file in added:
            check_columns(file, schema, table.store.location, widens=table.widens)
        try:
            table.replace(removed, added)
        except CommitConflict:
            pause(tried)
            continue
        return True
    raise ConflictError(f"{table.store.location}: {TRIES} commits of others came before compaction: run it again")


def _ranges(table: Table, group: Sequence[str]) -> Iterator[FileRange]:
    """Those of the group's files; a file of another engine has none, and a group of such files one of no offsets."""
    found = False
    for path in group:
        if attempt_in(path) is not None:
            for each in ranges_in(table.store, path):
                found = True
                yield each
    if not found:
        yield FileRange(topic="", topic_id=None, partition=0, start=0, end=0)


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


# -- expiry and sweep --------------------------------------------------------------------------------------------


def expire(table: Table, *, older_than_ms: TimestampMs) -> int:
    """Forgets states that are older; answers how many. ConflictError."""
    for tried in range(TRIES):
        table.refresh()
        try:
            return table.expire(older_than_ms=older_than_ms)
        except CommitConflict:
            pause(tried)
    raise ConflictError(f"{table.store.location}: {TRIES} commits of others came before expiry: run it again")


def sweep(table: Table, *, clock: Clock = now_ms, most_age_ms: int = MOST_AGE_MS) -> tuple[str, ...]:
    """Removes files that no commit names nor can name any more; answers their paths.

    Only files with our names, of attempts older than ``most_age_ms``, and only after the table itself has been told to
    refuse those: a writer that stands still between its last check and its commit is refused when it goes on.
    """
    limit = clock() - most_age_ms
    old = {path for path, started_ms in _begun(table) if started_ms < limit}
    table.refresh()
    if not old - table.referenced():
        return ()
    fence(table, older_than_ms=limit, clock=clock)
    table.refresh()
    orphans = sorted(old - table.referenced())
    for path in orphans:
        table.store.remove(path)
    return tuple(orphans)


def _begun(table: Table) -> Iterator[tuple[str, TimestampMs]]:
    """Files with our names, also half made ones, and when their attempts began."""
    for entry in table.store.list("data"):
        attempt = attempt_in(entry.path)
        if attempt is not None:
            yield entry.path, attempt.started_ms
