"""The checkpoint files of each log directory: what is written, when, and what they must not speak of any more.

Owns what the files say, so that one that would not change is not written. Everything that touches a file runs on its
directory's own thread.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from holdfast.model.errors import CheckpointError
from holdfast.model.types import Offset, TimestampMs, TopicPartition
from holdfast.storage import checkpoints, remembered
from holdfast.storage.dir_load import LoadedDir
from holdfast.storage.files import DiskSpace
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.log_table import FutureLogs, LogTable
from holdfast.storage.remembered import Note


class Checkpointed(Protocol):
    """The tables of logs that the files speak of."""

    dirs: list[LogDir]
    held: LogTable
    copies: FutureLogs

    def logs_in(self, directory: LogDir) -> list[Log]: ...

    def held_by(self, directory: LogDir) -> dict[TopicPartition, int]: ...

    def submit_quietly(self, directory: LogDir, work: Callable[[], object]) -> None: ...


class CheckpointWriter:
    """See the module's docstring. On the loop, but where it says otherwise."""

    def __init__(self, logs: Checkpointed) -> None:
        self._logs = logs
        self._written: dict[str, dict[str, dict[TopicPartition, Offset]]] = {}
        """Path -> file -> what it says: each directory's is changed on its own thread alone."""
        self._queued: dict[str, dict[str, dict[TopicPartition, Offset]]] = {}
        """Path -> file -> what it will say when the last that was queued is written."""
        self._stale: dict[str, dict[TopicPartition, None]] = {}
        """Path -> logs that are gone, of which its files may still speak. It is there while a rewrite is queued."""
        self._editions: dict[str, int] = {}
        """Path -> how often its files were written for a change of a log. Counted on its own thread."""
        self._space: dict[str, DiskSpace | None] = {}
        self._notes: dict[str, Note] = {}
        """What the directories remember of each other."""

    def found(self, one: LoadedDir) -> None:
        """What the files of a directory said when it was loaded."""
        path = one.directory.path
        self._written[path] = {name: offsets for name, offsets in one.checkpoints.items() if offsets}
        self._space[path] = one.space
        self._notes.pop(path, None)
        self._stale.pop(path, None)

    def forget(self, directory: LogDir) -> None:
        """The directory is no more of this broker."""
        self._written.pop(directory.path, None)
        self._notes.pop(directory.path, None)
        self._queued.pop(directory.path, None)
        self._space.pop(directory.path, None)

    def space_of(self, directory: LogDir) -> DiskSpace | None:
        """As of the last checkpoint."""
        return self._space.get(directory.path)

    def write_all(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        """Write the files of each directory that answers, and whose contents changed."""
        for directory in self._logs.dirs:
            if directory.answers:
                edition = self._editions.get(directory.path, 0)  # first: what changes while we look is another one
                self._queued[directory.path] = values = self.values(directory, high_watermarks)
                self._logs.submit_quietly(directory, partial(self._write_due, directory, values, edition))

    def _write_due(self, directory: LogDir, values: dict[str, dict[TopicPartition, Offset]], edition: int) -> None:
        """On the directory's thread. A cut that was in the queue when the values were read has had the files written
        since: these would raise its recovery point, and call synced what is written anew. The next turn has newer."""
        if edition == self._editions.get(directory.path, 0):
            self._put(directory, values)

    def write_notes(self, now_ms: TimestampMs) -> None:
        """Have every directory remember what all of them hold, where that has changed (remembered.py)."""
        dirs = self._logs.dirs
        note = Note(written_ms=now_ms, directories={d.path: self._logs.held_by(d) for d in dirs})
        for directory in dirs if len(dirs) > 1 else ():
            before = self._notes.get(directory.path)
            if directory.answers and (before is None or not note.says_as_much_as(before)):
                self._notes[directory.path] = note
                self._logs.submit_quietly(directory, partial(_write_note, directory, note))

    def values(
        self, directory: LogDir, high_watermarks: Mapping[TopicPartition, Offset]
    ) -> dict[str, dict[TopicPartition, Offset]]:
        """What the files of a directory are to say; also on its thread."""
        recovery_points: dict[TopicPartition, Offset] = {}
        starts: dict[TopicPartition, Offset] = {}
        marks: dict[TopicPartition, Offset] = {}
        for each in self._logs.logs_in(directory):
            tp, view = each.topic_partition, each.view
            recovery_points[tp] = each.recovery_point
            if view.start_offset > view.segments[0].base_offset:
                starts[tp] = view.start_offset
            mark = high_watermarks.get(tp, self._logs.held.mark_of(tp))
            if mark is not None:
                marks[tp] = mark
        for copy in self._logs.copies:
            view = copy.view
            if copy.dir is directory and view.start_offset > view.segments[0].base_offset:
                starts[copy.topic_partition] = view.start_offset
        return {
            checkpoints.RECOVERY_POINT: recovery_points,
            checkpoints.LOG_START: starts,
            checkpoints.HIGH_WATERMARK: marks,
        }

    def write(self, directory: LogDir, values: dict[str, dict[TopicPartition, Offset]]) -> None:
        """On the directory's thread."""
        self._editions[directory.path] = self._editions.get(directory.path, 0) + 1
        self._put(directory, values)

    def _put(self, directory: LogDir, values: dict[str, dict[TopicPartition, Offset]]) -> None:
        written = self._written.setdefault(directory.path, {})
        with directory.guard(CheckpointError):
            for name, offsets in values.items():
                if written.get(name) != offsets:
                    checkpoints.write_offsets(directory.files, f"{directory.path}/{name}", offsets)
                    written[name] = offsets
            self._space[directory.path] = directory.files.statvfs(directory.path)

    def note_starts(self, directory: LogDir) -> None:
        """On the dir's thread: the checkpoint of log starts as of now, also those of copies."""
        values = self.values(directory, {})
        self.write(directory, {checkpoints.LOG_START: values[checkpoints.LOG_START]})

    def write_recovery_points(self, directory: LogDir) -> None:
        """On the dir's thread: a log was cut below its recovery point."""
        points = {each.topic_partition: each.recovery_point for each in self._logs.logs_in(directory)}
        self.write(directory, {checkpoints.RECOVERY_POINT: points})

    def rewrite_soon(self, directory: LogDir, tp: TopicPartition) -> None:
        """The checkpoints must not speak of a log that is gone: a new one of that name would start from them. One
        rewrite serves all that are under way."""
        path = directory.path
        spoken = (*list(self._written.get(path, {}).values()), *self._queued.get(path, {}).values())
        if not any(tp in offsets for offsets in spoken):
            return
        waits = path in self._stale
        self._stale.setdefault(path, {})[tp] = None
        if not waits:
            self._logs.submit_quietly(directory, partial(self._rewrite, directory))

    def _rewrite(self, directory: LogDir) -> None:
        """On the directory's thread, after what was queued to be written before."""
        gone = self._stale.pop(directory.path, {})
        with directory.guard(CheckpointError):
            for name, offsets in self._written.get(directory.path, {}).items():
                if not gone.keys().isdisjoint(offsets):
                    left = {tp: offset for tp, offset in offsets.items() if tp not in gone}
                    checkpoints.write_offsets(directory.files, f"{directory.path}/{name}", left)
                    self._written[directory.path][name] = left


def _write_note(directory: LogDir, note: Note) -> None:
    with directory.guard(CheckpointError):
        directory.files.write_atomic(f"{directory.path}/{remembered.FILE_NAME}", note.encode(), durable=False)
