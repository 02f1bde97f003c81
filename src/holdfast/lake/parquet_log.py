"""The manifest chain of a Parquet table: one file per commit, each made only if absent.

    _holdfast/log/00000000000000000007.json            commit 7: files that came and went, the position after it
    _holdfast/log/00000000000000000050.snapshot.json   all that commits 0 to 50 add up to

Who makes the next number has committed; everybody else is told that it is there. Every ``SNAPSHOT_EVERY`` commits a
snapshot is written, so that a reader begins there, and what lies before the oldest snapshot that is kept can go. A
writer that stood still while its number went finds the snapshot that came over it, and knows that its entry counts for
nothing: nobody reads an entry at or below the newest snapshot. Owns these names and their JSON.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from holdfast.lake.data_files import DataFile
from holdfast.lake.errors import AlreadyThereError, FileMissingError, TableError
from holdfast.lake.store import Store
from holdfast.model.types import TimestampMs

LOG: Final = "_holdfast/log"
SNAPSHOT_EVERY: Final = 50
FORMAT_VERSION: Final = 1
LOOKS: Final = 5
"""Listings that may be out of date when what they name is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A data file of the table."""

    path: str
    rows: int
    size: int
    value: str | None = None
    """Of its partition, in a table that has partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """One commit."""

    number: int
    time_ms: TimestampMs
    position: str
    """Text of the position after it."""
    added: tuple[LiveFile, ...] = ()
    removed: tuple[str, ...] = ()
    schema: str | None = None
    """Where it changes: Arrow's form, in base64."""
    partition_by: str | None = None
    """In the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the commits up to one number add up to."""

    number: int
    time_ms: TimestampMs
    position: str
    schema: str
    partition_by: str | None = None
    files: Mapping[str, LiveFile] = field(default_factory=dict)
    left: Mapping[str, TimestampMs] = field(default_factory=dict)
    """Files that have left the table -> when; until ``expire`` forgets them, they stay for whoever reads them still."""

    def after(self, entry: CommitEntry) -> "State":
        files = dict(self.files)
        for path in entry.removed:
            files.pop(path, None)
        files.update({file.path: file for file in entry.added})
        left = {**self.left, **dict.fromkeys(entry.removed, entry.time_ms)} if entry.removed else self.left
        return State(
            number=entry.number,
            time_ms=entry.time_ms,
            position=entry.position,
            schema=entry.schema or self.schema,
            partition_by=entry.partition_by or self.partition_by,
            files=files,
            left=left,
        )


def schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


class ParquetLog:
    """The chain of one table. Keeps nothing: each call asks the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # -- reading ---------------------------------------------------------------------------------------------

    def numbers(self) -> tuple[list[int], list[int]]:
        """Of commits and of snapshots, each in order."""
        commits, snapshots = [], []
        for name in self._store.names(LOG):
            stem, _, kind = name.partition(".")
            if stem.isdigit() and kind == "json":
                commits.append(int(stem))
            elif stem.isdigit() and kind == "snapshot.json":
                snapshots.append(int(stem))
        return sorted(commits), sorted(snapshots)

    def state(self, known: State | None = None) -> State | None:
        """The newest; None where no table is. Goes on from ``known`` if nothing was forgotten since."""
        for _ in range(LOOKS):
            try:
                return self._state(known)
            except FileMissingError:  # forgotten between the listing and the reading: a newer snapshot is there
                continue
        return self._state(known)

    def _state(self, known: State | None) -> State | None:
        commits, snapshots = self.numbers()
        newest = snapshots[-1] if snapshots else None
        if newest is not None and (known is None or known.number < newest):
            known = self.snapshot(newest)
        wanted = [number for number in commits if known is None or number > known.number]
        for number in wanted:
            known = self._next(known, number)
        return known

    def _next(self, known: State | None, number: int) -> State:
        expected = known.number + 1 if known is not None else 0
        if number != expected:
            raise TableError(f"{self._store.location}: {path_of(expected)} is missing, {path_of(number)} is there")
        entry = self.entry(number)
        if known is not None:
            return known.after(entry)
        if entry.schema is None:
            raise TableError(f"{self._store.location}: {path_of(0)} has no schema")
        begun = State(number=-1, time_ms=0, position=entry.position, schema=entry.schema)
        return begun.after(entry)

    def entry(self, number: int) -> CommitEntry:
        content = self._content(path_of(number))
        return CommitEntry(
            number=content["number"],
            time_ms=content["time_ms"],
            position=content["position"],
            added=tuple(_live(each) for each in content["added"]),
            removed=tuple(content["removed"]),
            schema=content["schema"],
            partition_by=content.get("partition_by"),
        )

    def snapshot(self, number: int) -> State:
        content = self._content(snapshot_path(number))
        files = [_live(each) for each in content["files"]]
        return State(
            number=content["number"],
            time_ms=content["time_ms"],
            position=content["position"],
            schema=content["schema"],
            partition_by=content.get("partition_by"),
            files={file.path: file for file in files},
            left=content["left"],
        )

    def _content(self, path: str) -> dict[str, Any]:
        text = self._store.read(path)
        try:
            content: dict[str, Any] = json.loads(text)
            version = content["version"]
        except (ValueError, KeyError, TypeError):
            raise TableError(f"{self._store.url(path)} is no commit of a Holdfast table: {text[:80]!r}") from None
        if version != FORMAT_VERSION:
            raise TableError(f"{self._store.url(path)} has format version {version}, expected {FORMAT_VERSION}")
        return content

    # -- writing ---------------------------------------------------------------------------------------------

    def append(self, entry: CommitEntry) -> bool:
        """Commits. False if that number is there already, or its place was forgotten long ago."""
        content = {
            "version": FORMAT_VERSION,
            "number": entry.number,
            "time_ms": entry.time_ms,
            "position": entry.position,
            "added": [_text(file) for file in entry.added],
            "removed": entry.removed,
            "schema": entry.schema,
            "partition_by": entry.partition_by,
        }
        try:
            self._store.create(path_of(entry.number), _bytes(content))
        except AlreadyThereError:
            return False
        _, snapshots = self.numbers()
        return not snapshots or snapshots[-1] < entry.number

    def write_snapshot(self, state: State) -> None:
        """A hint: whoever writes it first has written what all others would."""
        content = {
            "version": FORMAT_VERSION,
            "number": state.number,
            "time_ms": state.time_ms,
            "position": state.position,
            "schema": state.schema,
            "partition_by": state.partition_by,
            "files": [_text(file) for _, file in sorted(state.files.items())],
            "left": state.left,
        }
        try:
            self._store.create(snapshot_path(state.number), _bytes(content))
        except AlreadyThereError:
            return

    def forget(self, *, older_than_ms: TimestampMs) -> int:
        """Removes commits and snapshots before the newest snapshot that is older; answers how many commits."""
        commits, snapshots = self.numbers()
        kept = None
        for number in reversed(snapshots):
            if self.snapshot(number).time_ms < older_than_ms:
                kept = number
                break
        if kept is None:
            return 0
        gone = [number for number in commits if number <= kept]
        for number in gone:
            self._store.remove(path_of(number))
        for number in snapshots:
            if number < kept:
                self._store.remove(snapshot_path(number))
        return len(gone)

    def referenced(self) -> frozenset[str]:
        """Data files that anything names that is still there."""
        for _ in range(LOOKS):
            try:
                return self._referenced()
            except FileMissingError:  # as in ``state``
                continue
        return self._referenced()

    def _referenced(self) -> frozenset[str]:
        commits, snapshots = self.numbers()
        found: set[str] = set()
        for number in snapshots:
            snapshot = self.snapshot(number)
            found.update(snapshot.files, snapshot.left if number == snapshots[-1] else ())
        for number in commits:
            found.update(file.path for file in self.entry(number).added)
        return frozenset(found)


def path_of(number: int) -> str:
    return f"{LOG}/{number:020d}.json"


def snapshot_path(number: int) -> str:
    return f"{LOG}/{number:020d}.snapshot.json"


def live(files: Iterable[DataFile]) -> tuple[LiveFile, ...]:
    """As the chain names them."""
    return tuple(
        LiveFile(
            path=file.path,
            rows=file.rows,
            size=file.size,
            value=file.partition.value if file.partition is not None else None,
        )
        for file in files
    )


def _bytes(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _text(file: LiveFile) -> list[Any]:
    return [file.path, file.rows, file.size, *([file.value] if file.value is not None else [])]


def _live(text: list[Any]) -> LiveFile:
    path, rows, size, *value = text
    return LiveFile(path=path, rows=rows, size=size, value=value[0] if value else None)
