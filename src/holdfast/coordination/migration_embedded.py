"""The embedded store as one side of a migration (migration.py).

The mark is a note (notes.py) of an epoch above all others, which names no copy as good: so the rule by which a start
believes the newest note holds for it too, and a copy that was away meanwhile does not count when it is back. All copies
get it, and all directories that keep notes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from holdfast.coordination import inspect, notes
from holdfast.coordination.inspect import CopyReport, Report
from holdfast.coordination.lanes import Lanes, ThreadLanes
from holdfast.coordination.metadata_copy import MetadataCopy
from holdfast.coordination.metadata_log import Contents, encode_snapshot
from holdfast.coordination.migration import MigrationError, StoreStanding
from holdfast.coordination.notes import Note
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.moved import Moved
from holdfast.model.errors import KafkaStorageError
from holdfast.model.types import ControllerEpoch, TimestampMs
from holdfast.storage.file_locks import LockFile
from holdfast.storage.files import FileSystem, OsFiles

_OS_FILES: Final = OsFiles()
_NOBODY: Final = -1
"""Who wrote a note that no broker wrote."""


def _wall_ms() -> TimestampMs:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Directories:
    """Absolute paths: of the copies, of what keeps notes, and of all logs of the cluster's brokers here."""

    copies: tuple[str, ...]
    witnesses: tuple[str, ...] = ()
    log_dirs: tuple[str, ...] = ()


class EmbeddedSide:
    """See the module's docstring (Side). ``lock`` comes before anything that writes."""

    def __init__(self, directories: Directories, *, files: FileSystem = _OS_FILES, lanes: Lanes | None = None) -> None:
        self._directories = directories
        self._files = files
        self._lanes = ThreadLanes("metadata") if lanes is None else lanes
        self._copies = {path: MetadataCopy(path, files, _wall_ms, uuid4) for path in directories.copies}
        self._filled: set[str] = set()
        """Ids of copies that were written by us: they are read though the mark says that they are not whole."""
        self._locks: list[LockFile] = []
        self._unlocked: list[str] = []
        """Copies that held nothing: a lock file is made in no directory that may lie beneath a disk."""

    @property
    def name(self) -> str:
        return f"the embedded store {', '.join(self._directories.copies)}"

    def lock(self) -> None:
        """Keep brokers from starting until ``close``. KafkaStorageError when one runs."""
        copies = self._directories.copies
        self._unlocked = [path for path in copies if not (self._files.exists(path) and self._files.listdir(path))]
        there = [path for path in copies if path not in self._unlocked]
        self._locks += inspect.take_locks(there, self._directories.log_dirs, self._files)

    def close(self) -> None:
        """Brokers may start."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()
        for copy in self._copies.values():
            copy.log.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    def _look(self) -> Report:
        return inspect.look(list(self._copies.values()), self._directories.witnesses, self._files, self._lanes)

    def standing(self) -> StoreStanding:
        report = self._look()
        newest = report.newest
        ids = {each.seen.cluster_id for each in report.copies if each.seen is not None and each.seen.cluster_id}
        if newest is not None:
            ids.add(newest.cluster_id)
        if len(ids) > 1:
            raise MigrationError(f"{self.name} is of clusters {', '.join(sorted(ids))}: expected one")
        is_empty = newest is None and not any(each.seen is not None and each.seen.has_log for each in report.copies)
        self._refuse_unreadable(report)
        return StoreStanding(
            cluster_id=next(iter(ids), None), is_empty=is_empty, moved=None if newest is None else newest.moved
        )

    def has_log(self) -> bool:
        """Whether any copy holds something, whatever notes elsewhere tell."""
        return any(each.seen is not None and each.seen.has_log for each in self._look().copies)

    def _refuse_unreadable(self, report: Report) -> None:
        """One that counts, or would have to be marked. A directory that is not there yet is empty."""
        for each in report.copies:
            if each.seen is None and self._files.exists(each.path):
                raise MigrationError(f"{each.path} cannot be read: {each.problem}. Bring its disk back first")

    def epoch(self) -> ControllerEpoch:
        report = self._look()
        logs = [each.contents.last_epoch for each in report.copies if each.contents is not None]
        return max([0, *logs, *([report.newest.epoch] if report.newest is not None else [])])

    def load(self) -> ClusterImage:
        report = self._look()
        contents = max(
            (each.contents for each in self._whole(report) if each.contents is not None),
            key=lambda each: (each.last_epoch, each.end_offset),
            default=None,
        )
        cluster_id = next((e.seen.cluster_id for e in report.copies if e.seen is not None and e.seen.cluster_id), None)
        if contents is None or cluster_id is None:
            raise KafkaStorageError(f"{self.name} holds no metadata of a cluster")
        if self._filled and len({each.contents for each in self._whole(report)}) > 1:
            raise KafkaStorageError(f"{self.name}: its copies read back differently")
        records = contents.records()
        image, _ = ClusterImage.empty(cluster_id).apply(records, contents.end_offset - len(records))
        return replace(image, offset=contents.end_offset - 1 if contents.end_offset else None)

    def _whole(self, report: Report) -> list[CopyReport]:
        """The copies that hold everything. All of them must be there: one that is away may have newer decisions."""
        newest = report.newest
        if newest is None:
            return report.good
        if self._filled:
            return [each for each in report.copies if each.seen is not None and each.seen.copy_id in self._filled]
        if newest.moved is not None and not newest.moved.is_whole:
            raise KafkaStorageError(str(newest.moved.refusal(self.name)))
        found = {each.seen.copy_id: each for each in report.copies if each.seen is not None and each.seen.copy_id}
        for copy_id, path in newest.copies.items():
            if copy_id not in found:
                raise KafkaStorageError(
                    f"{path} is missing, a good copy of the metadata: bring its disk back, or start the cluster, which "
                    "goes on without it if it can"
                )
            seen = found[copy_id].seen
            if found[copy_id].contents is None:
                raise KafkaStorageError(f"{path} cannot be read: {'no log' if seen is None else seen.problem}")
        return [found[copy_id] for copy_id in newest.copies]

    # -- writing -------------------------------------------------------------------------------------------------------

    def begin(self, mark: Moved, cluster_id: str, least_epoch: ControllerEpoch) -> None:
        epoch = max(self.epoch(), least_epoch) + 1
        for copy in self._copies.values():
            copy.prepare()
            self._files.write_atomic(f"{copy.path}/cluster.id", f"{cluster_id}\n".encode())
        self._lock_new()
        self._tell(
            Note(cluster_id=cluster_id, epoch=epoch, number=0, broker_id=_NOBODY, good=(), copies={}, moved=mark)
        )

    def _lock_new(self) -> None:
        """Those that held nothing when the others were locked."""
        while self._unlocked:
            self._locks += inspect.take_locks([self._unlocked.pop()], (), self._files)

    def empty(self) -> None:
        for copy in self._copies.values():
            copy.log.close()
            self._files.unlink(f"{copy.path}/copy.id")
            self._files.fsync_dir(copy.path)
            copy.remove_location()

    def fill(self, image: ClusterImage, told: Callable[[int, int], None]) -> None:
        note = self._newest()
        snapshot = encode_snapshot(image.to_records(), note.epoch, _wall_ms())
        contents = Contents(base=image.next_offset, snapshot_epoch=note.epoch, snapshot=snapshot)
        for done, copy in enumerate(self._copies.values()):
            told(done, len(self._copies))
            self._filled.add(copy.fill(contents, image.cluster_id, {}, note.epoch))
            copy.log.close()

    def mark(self, mark: Moved) -> None:
        report = self._look()
        newest = report.newest
        known: dict[str, str] = {
            each.seen.copy_id: each.path
            for each in report.copies
            if each.seen is not None and each.seen.copy_id is not None
        }
        if newest is None:  # of a cluster that was made before there were notes
            known |= {self._copies[each.path].name(): each.path for each in report.good}
            cluster_id = next(e.seen.cluster_id for e in report.copies if e.seen is not None and e.seen.cluster_id)
            newest = Note(cluster_id=cluster_id, epoch=0, number=0, broker_id=_NOBODY, good=tuple(known), copies=known)
        elif newest.moved is None or newest.moved.is_whole:
            known = dict(newest.copies)
        else:  # not one that could not be filled
            known = {copy_id: path for copy_id, path in known.items() if copy_id in self._filled}
        is_first = newest.moved is None
        epoch = self.epoch() + 1 if is_first else newest.epoch
        number = 0 if is_first else newest.number + 1
        self._tell(
            Note(
                cluster_id=newest.cluster_id, epoch=epoch, number=number, broker_id=_NOBODY, good=(), copies=known,
                moved=mark,
            )
        )  # fmt: skip

    def open(self) -> None:
        newest = self._newest()
        assert newest.moved is not None and newest.moved.is_whole, "only what is whole is opened"
        # The copies come first: brokers look at those before they look at what else keeps notes.
        places = self._places()
        note = replace(newest, number=newest.number + 1, good=tuple(sorted(newest.copies)), moved=None)
        for path in places:
            notes.write(self._files, path, note)
        for path in places:
            notes.remove_older(self._files, path, newest.epoch)

    def _newest(self) -> Note:
        newest = self._look().newest
        if newest is None:
            raise KafkaStorageError(f"{self.name} has lost the notes of its copies")
        return newest

    def _places(self) -> Sequence[str]:
        witnesses = [path for path in self._directories.witnesses if notes.is_place(self._files, path)]
        return list(dict.fromkeys((*self._directories.copies, *witnesses)))

    def _tell(self, note: Note) -> None:
        """Everywhere. The witnesses come first: a copy without its note may be believed as long as nothing newer is
        seen, and what is seen then stands in more places."""
        for path in reversed(self._places()):
            notes.write(self._files, path, note)
