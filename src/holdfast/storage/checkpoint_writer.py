"""The checkpoint files of each log directory: what is written, when, and what they must not speak of any more.

Owns what the files say, so that one that would not change is not written. What they say is changed on the directory's
own thread alone. What is written every few seconds is encoded and synced beside the file on the thread for long fsyncs,
and appends wait for its rename only:

    values, on the loop --> stage: synced under another name --> install: rename --> the rename is synced

A cut or a deletion may come in between, which has the files written at once. Each such write is another edition, and
what was staged before it is not installed: it may call synced what was cut and is written anew. Nor is it after a
newer turn, which is written in the foreground while another one is staged still.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from holdfast.model.errors import CheckpointError, HoldfastError
from holdfast.model.types import Offset, TimestampMs, TopicPartition
from holdfast.storage import checkpoints, remembered
from holdfast.storage.dir_load import LoadedDir
from holdfast.storage.files import DiskSpace
from holdfast.storage.log import Log
from holdfast.storage.log_dir import DiskQueue, LogDir
from holdfast.storage.log_table import FutureLogs, LogTable
from holdfast.storage.remembered import SizeNote

log = logging.getLogger(__name__)

Values = dict[str, dict[TopicPartition, Offset]]
"""File -> what it says."""


class Checkpointed(Protocol):
    """The tables of logs that the files speak of."""

    dirs: list[LogDir]
    held: LogTable
    copies: FutureLogs

    def logs_in(self, directory: LogDir) -> list[Log]: ...

    def held_by(self, directory: LogDir) -> dict[TopicPartition, int]: ...

    def submit_quietly(self, directory: LogDir, work: Callable[[], object]) -> None: ...


class _Due(NamedTuple):
    """What the files of a directory were to say at a turn of ``write_all``, as of which edition of them."""

    directory: LogDir
    values: Values
    edition: int
    turn: int


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
        """Path -> how often its files were written other than by ``write_all``. Counted on its own thread."""
        self._turn = 0
        """Of ``write_all``."""
        self._turns: dict[str, int] = {}
        """Path -> the turn that was written last. Changed on its own thread."""
        self._staging: set[LogDir] = set()
        self._is_closed = False
        self._space: dict[str, DiskSpace | None] = {}
        self._notes: dict[str, SizeNote] = {}
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
        self._turn += 1
        for directory in self._logs.dirs:
            if directory.answers:
                edition = self._editions.get(directory.path, 0)  # first: what changes while we look is another one
                self._queued[directory.path] = values = self.values(directory, high_watermarks)
                due = _Due(directory, values, edition, self._turn)
                if directory.sync_queue is None or directory in self._staging:  # it takes long: this is newer
                    self._logs.submit_quietly(directory, partial(self._write_due, due))
                else:
                    self._stage_aside(due, directory.sync_queue)

    def close(self) -> None:
        """Nothing that is staged by now is installed: the directories are closed next."""
        self._is_closed = True

    def _is_still(self, due: _Due) -> bool:
        """On the directory's thread: whether it is to be said. Else the next turn says what is so by then."""
        path = due.directory.path
        if due.edition != self._editions.get(path, 0) or due.turn <= self._turns.get(path, 0):
            return False
        self._turns[path] = due.turn
        return True

    def _write_due(self, due: _Due) -> None:
        """On the directory's thread."""
        if self._is_still(due):
            self._put(due.directory, due.values)

    def _stage_aside(self, due: _Due, queue: DiskQueue) -> None:
        directory = due.directory
        self._staging.add(directory)

        def staged(names: list[str] | None, error: HoldfastError | None) -> None:
            if names and not self._is_closed and directory in self._logs.dirs:
                directory.queue.submit(partial(self._install, due, names), installed)
            else:
                over(None, error)

        def installed(is_done: bool | None, error: HoldfastError | None) -> None:
            if is_done and not self._is_closed:
                queue.submit(partial(_sync_names, directory), over)
            else:
                over(None, error)

        def over(_: object, error: HoldfastError | None) -> None:
            self._staging.discard(directory)
            if error is not None and directory.is_online:
                log.warning("%s: its checkpoints are not written: %s", directory.path, error)

        queue.submit(partial(self._stage, due), staged)

    def _stage(self, due: _Due) -> list[str]:
        """On the thread for long fsyncs: which files change; beside each of them, synced, is what it is to say."""
        directory, values = due.directory, due.values
        written = self._written.get(directory.path, {})
        with directory.guard(CheckpointError):
            names = [name for name, offsets in values.items() if written.get(name) != offsets]
            if names:
                directory.refuse_beneath()
            for name in names:
                checkpoints.stage_offsets(directory.files, f"{directory.path}/{name}", values[name])
            self._space[directory.path] = directory.files.statvfs(directory.path)
        return names

    def _install(self, due: _Due, names: list[str]) -> bool:
        """On the directory's thread: whether what was staged is still to be said, and is by now."""
        if not self._is_still(due):
            return False
        directory, values = due.directory, due.values
        with directory.guard(CheckpointError):
            written = self._written.setdefault(directory.path, {})
            for name in names:
                checkpoints.install_offsets(directory.files, f"{directory.path}/{name}")
                written[name] = values[name]
        return True

    def write_notes(self, now_ms: TimestampMs) -> None:
        """Have every directory remember what all of them hold, where that has changed (remembered.py)."""
        dirs = self._logs.dirs
        note = SizeNote(written_ms=now_ms, directories={d.path: self._logs.held_by(d) for d in dirs})
        for directory in dirs if len(dirs) > 1 else ():
            before = self._notes.get(directory.path)
            if directory.answers and (before is None or not note.says_as_much_as(before)):
                self._notes[directory.path] = note
                self._logs.submit_quietly(directory, partial(_write_note, directory, note))

    def values(self, directory: LogDir, high_watermarks: Mapping[TopicPartition, Offset]) -> Values:
        """What the files of a directory are to say; also on its thread."""
        recovery_points: dict[TopicPartition, Offset] = {}
        starts: dict[TopicPartition, Offset] = {}
        marks: dict[TopicPartition, Offset] = {}
        cleaned: dict[TopicPartition, Offset] = {}
        for each in self._logs.logs_in(directory):
            tp, view = each.topic_partition, each.view
            recovery_points[tp] = each.recovery_point
            if each.cleaned_offset is not None and each.config.compact:
                # A segment of which all stays is not written again, and so not synced by a cleaning either: what a loss
                # of power takes of it must not look like the hole of a cleaning.
                cleaned[tp] = min(each.cleaned_offset, recovery_points[tp])
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
            checkpoints.CLEANER: cleaned,
        }

    def write(self, directory: LogDir, values: Values) -> None:
        """On the directory's thread."""
        self._editions[directory.path] = self._editions.get(directory.path, 0) + 1
        self._put(directory, values)

    def _put(self, directory: LogDir, values: Values) -> None:
        written = self._written.setdefault(directory.path, {})
        with directory.guard(CheckpointError):
            changed = {name: offsets for name, offsets in values.items() if written.get(name) != offsets}
            if changed:
                directory.refuse_beneath()
            for name, offsets in changed.items():
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
        self._editions[directory.path] = self._editions.get(directory.path, 0) + 1
        gone = self._stale.pop(directory.path, {})
        with directory.guard(CheckpointError):
            for name, offsets in self._written.get(directory.path, {}).items():
                if not gone.keys().isdisjoint(offsets):
                    directory.refuse_beneath()
                    left = {tp: offset for tp, offset in offsets.items() if tp not in gone}
                    checkpoints.write_offsets(directory.files, f"{directory.path}/{name}", left)
                    self._written[directory.path][name] = left


def _sync_names(directory: LogDir) -> None:
    with directory.guard(CheckpointError):
        directory.files.fsync_dir(directory.path)


def _write_note(directory: LogDir, note: SizeNote) -> None:
    with directory.guard(CheckpointError):
        directory.refuse_beneath()
        directory.files.write_atomic(f"{directory.path}/{remembered.FILE_NAME}", note.encode(), durable=False)
