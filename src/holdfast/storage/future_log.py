"""The copy of a log on another dir, from its first byte until it takes the log's place (KIP-113).

Owns what is done with the files of the copy, on the threads of its dir: making it, writing what was read of the
log, bringing it to the device, and the one rename that makes it the log. ``look`` is the other half, on the thread
of the log's dir: the next piece of it, and what happened to it since the last look. Who does what when: move.py.

The copy is at all times what the log was at the moment of the last look that was written: cuts are repeated in the
order in which they happened, then batches follow, byte for byte.

    <topic>-<partition>.<32 hex>-future  --(everything synced, moved-from too)-->  renamed to <topic>-<partition>

``moved-from`` names the dir that the log came from. As long as the old directory is there as well, which a crash
may leave so, this tells a finished move from a copy that somebody made by hand (``loser``).
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from holdfast.model.config import LogConfig
from holdfast.model.errors import CorruptRecordError, HoldfastError, KafkaStorageError
from holdfast.model.types import DirectoryId, LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition
from holdfast.records.batch import HEADER_SIZE, iter_headers, parse_header
from holdfast.storage import partition_metadata
from holdfast.storage.dir_scan import DELETE_SUFFIX, FUTURE_SUFFIX, marked_name
from holdfast.storage.files import FileSystem
from holdfast.storage.log import Log
from holdfast.storage.log_dir import Guard, LogDir
from holdfast.storage.producer_state import ProducerStates
from holdfast.storage.recovery import forget_memory, load_parts, new_parts

log = logging.getLogger(__name__)

MOVED_FROM = "moved-from"
NOWHERE: Offset = -1
"""Where a copy ends that has nothing yet: it begins where the log begins."""
PIECE_BATCHES = 250
"""In one piece: what small batches cost is CPU for each of them, and appends of the copy's disk wait for it."""


class Once:
    """A right that one of several threads takes. ``list.pop`` is one step for all of them."""

    __slots__ = ("_rights",)

    def __init__(self) -> None:
        self._rights = [None]

    def take(self) -> bool:
        """True for the first who asks."""
        try:
            self._rights.pop()
        except IndexError:
            return False
        return True


class CopiedPiece(NamedTuple):
    """What one look at the log brought. ``cuts``: (new end, whether nothing before it was kept), in order.
    ``restart``: the copy begins anew at this offset. ``at``: where it must end for ``data`` to follow."""

    cuts: tuple[tuple[Offset, bool], ...]
    restart: Offset | None
    at: Offset
    data: bytes
    start_offset: Offset
    end_offset: Offset

    @property
    def is_news(self) -> bool:
        """The copy has to change for it."""
        return bool(self.cuts or self.data) or self.restart is not None


class LastPiece(NamedTuple):
    """The last piece of a log that stands still, and what its batches alone do not tell."""

    piece: CopiedPiece
    topic_id: TopicId | None
    epochs: list[tuple[LeaderEpoch, Offset]]
    producers: ProducerStates


class FutureLogState(NamedTuple):
    """The copy after a piece."""

    end_offset: Offset
    has_rolled: bool


class CopyTail(NamedTuple):
    """What a copy that was begun in an earlier life has: from where on, and its last batch."""

    topic_id: TopicId | None
    start_offset: Offset
    base_offset: Offset
    header: bytes
    end_offset: Offset


def look(source: Log, at: Offset, max_bytes: int, max_batches: int | None = PIECE_BATCHES) -> CopiedPiece:
    """On the thread of the log's dir: what comes after ``at``, where the copy ends by what was read before."""
    cuts = tuple(source.cuts or ())
    for offset, everything in cuts:
        at = offset if everything else min(at, offset)
    view = source.view
    begin, restart = at, None
    if at < view.start_offset or at > view.end_offset:
        begin, restart = view.start_offset, view.start_offset
    data = b""
    if begin < view.end_offset:
        found = source.read(begin, max_bytes, view.end_offset, blocking=True)
        if found is not None:
            data = found.read()
            if restart is not None:  # the batch with the first offset may begin before it; after it, in a cleaned log
                first = min(parse_header(data).base_offset, view.start_offset)
                restart = None if first == at else first
            if max_batches is not None:
                data = _first_of(data, max_batches)
    source.cuts = []  # not before the read, which may fail
    return CopiedPiece(cuts, restart, at if restart is None else restart, data, view.start_offset, view.end_offset)


def _first_of(data: bytes, most: int) -> bytes:
    """The first whole batches. From a damaged one on it stays as it is: writing it tells what is wrong."""
    try:
        for number, (at, _) in enumerate(iter_headers(data)):
            if number == most:
                return data[:at]
    except CorruptRecordError:
        pass
    return data


def last_look(source: Log, at: Offset, max_bytes: int) -> LastPiece:
    """As ``look``, while nothing is written to the log: all that is left, in batches of any number."""
    piece = look(source, at, max_bytes, max_batches=None)
    return LastPiece(piece, source.topic_id, source.epochs.entries(), source.producers.copy())


def agrees(source: Log, tail: CopyTail) -> Offset:
    """On the thread of the log's dir: where a copy of an earlier life may go on: at its end if the log has its last
    batch as well, else nowhere. The batch carries its leader epoch, so then all before it is the same, too."""
    source.cuts = []
    view = source.view
    if tail.topic_id is None or tail.topic_id != source.topic_id:
        return NOWHERE
    if source.config.compact:  # cleaned since, it may have lost a tombstone of what the copy has still
        return NOWHERE
    if tail.start_offset > view.start_offset:  # a crash took the log's start back
        return NOWHERE
    if tail.base_offset < view.start_offset or tail.end_offset > view.end_offset:
        return NOWHERE
    found = source.read(tail.base_offset, 1, view.end_offset, blocking=True)
    if found is None or found.handle.pread(HEADER_SIZE, found.position) != tail.header:
        return NOWHERE
    return tail.end_offset


class _Copy:
    """A copy that is not loaded yet: errors are put down to it first, not to its dir."""

    def __init__(self, tp: TopicPartition) -> None:
        self.topic_partition = tp
        self.failure: KafkaStorageError | None = None


class FutureLog(Log):
    """See the module's docstring. A log in every respect once ``commit`` is through."""

    __slots__ = ()

    @classmethod
    def make(
        cls,
        directory: LogDir,
        tp: TopicPartition,
        unique: str,
        topic_id: TopicId | None,
        config: LogConfig,
        now_ms: TimestampMs,
    ) -> "FutureLog":
        """An empty one; ``unique``: 32 hex digits."""
        path = f"{directory.path}/{marked_name(tp, unique, FUTURE_SUFFIX)}"
        files = directory.files
        with directory.guard():
            files.mkdir(path)
            if topic_id is not None:
                partition_metadata.write(files, path, topic_id)
            parts = new_parts(files, path, start_offset=0, now_ms=now_ms)
        return cls(directory, path, tp, topic_id, config, parts)

    @classmethod
    def load(
        cls, directory: LogDir, path: str, tp: TopicPartition, config: LogConfig, now_ms: TimestampMs
    ) -> "FutureLog":
        """One of an earlier life, as far as its batches are whole. Reads all of it: not on the dir's first queue."""
        with Guard(directory, KafkaStorageError, _Copy(tp)):
            forget_memory(directory.files, path, 0)
            topic_id = partition_metadata.check(directory.files, path, None)
            parts = load_parts(
                directory.files, path, config, clean=False, now_ms=now_ms, recovery_point=0, log_start_offset=None
            )
        return cls(directory, path, tp, topic_id, config, parts)

    def tail(self) -> CopyTail:
        """Its last batch; an empty one has none, and agrees with nothing."""
        end = self.view.end_offset
        if end == self.view.start_offset:
            return CopyTail(None, end, end, b"", end)
        with self.guard():
            segment = next(s for s in reversed(self.view.segments) if s.size)
            at, _ = segment.find(end - 1, segment.size, nowait=False)
            header = segment.handle().pread(HEADER_SIZE, at)
        return CopyTail(self.topic_id, self.view.start_offset, parse_header(header).base_offset, header, end)

    # -- copying -------------------------------------------------------------------------------------------

    def apply(self, piece: CopiedPiece, now_ms: TimestampMs) -> FutureLogState:
        """Do what was done to the log, then write what follows. A piece that does not follow (because an earlier one
        was not written) changes nothing but the cuts: the next look is at where the copy really ends."""
        for offset, everything in piece.cuts:
            if everything:
                self.truncate_fully_and_start_at(offset, now_ms)
            else:
                self.truncate_to(offset, now_ms)
        view = self.view
        if piece.restart is not None and (view.size or view.end_offset != piece.restart):
            self.truncate_fully_and_start_at(piece.restart, now_ms)
        if piece.data and self.view.end_offset == piece.at:
            self.append_as_follower(piece.data, now_ms)
        start = min(piece.start_offset, self.view.end_offset)
        if start > self.view.start_offset:
            self.delete_records_before(start)
            self._retire_below_start(now_ms)
        return FutureLogState(self.view.end_offset, self.has_rolled)

    def _retire_below_start(self, now_ms: TimestampMs) -> None:
        segments, start = self.view.segments, self.view.start_offset
        count = sum(1 for following in segments[1:] if following.base_offset <= start)
        with self.guard():
            self._retire_leading(count, now_ms)

    # -- becoming the log ----------------------------------------------------------------------------------

    def sync_ahead(self) -> None:
        """All batches are on the device when this returns; takes long, on any thread."""
        segments = [*self.rolled(), self.view.segments[-1]]
        self.sync_batches(segments)

    def seal(self, moved_from: DirectoryId | None, note_start: Callable[[], None]) -> None:
        """All that can be done before the log stands still: everything is on the device, and the names are."""
        with self.guard():
            self._flush_rolled()
            note_origin(self, moved_from)
        self.flush()
        if self._starts_late():
            note_start()

    def _starts_late(self) -> bool:
        return self.view.start_offset > self.view.segments[0].base_offset

    def commit(self, last: LastPiece, right: Once, now_ms: TimestampMs, note_start: Callable[[], None]) -> bool:
        """Write the last piece and become the log: one rename, of something that is on the device. False, and still
        a copy, if the last piece was not the last or somebody else has taken the ``right``."""
        start = self.view.start_offset
        end = self.apply(last.piece, now_ms).end_offset
        if end != last.piece.end_offset:
            return False
        files, home = self.dir.files, self.dir.path
        with self.guard():
            if self.topic_id != last.topic_id:  # the log did not know when the move began
                self.topic_id, self._metadata_is_synced = last.topic_id, False
            self.producers = last.producers
            self.producers.end_offset = end
            if self.epochs.entries() != last.epochs:
                self.epochs.forget_from(0)
                for epoch, first in last.epochs:
                    self.epochs.assign_in_memory(epoch, first)
                self.epochs.rewrite()
            self._flush_rolled()
            self._segments.active.flush()
            self.recovery_point = end
            if end > self.view.segments[0].base_offset:
                self._rolled(end)
        self._publish(self.view.start_offset, end)
        if self._starts_late() and self.view.start_offset != start:
            note_start()
        path = f"{home}/{self.topic_partition}"
        with self.dir.guard():
            if files.exists(path):  # of a move that was undone after its rename
                self._set_aside(path)
            if not right.take():
                return False
            files.rename(self.path, path)
            self._is_at(path)
            files.fsync_dir(home)
        return True

    def _set_aside(self, path: str) -> None:
        """What has our name and is not in the broker's table gives way."""
        old = marked_name(self.topic_partition, self.path.rpartition(".")[2][:32], DELETE_SUFFIX)
        log.warning("%s is no replica that is served here: it becomes %s", path, old)
        self.dir.files.rename(path, f"{self.dir.path}/{old}")

    def _is_at(self, path: str) -> None:
        self.path = path
        self.epochs.moved(path)
        self._segments.moved(path)

    def discard(self, unique: str) -> str:
        """Give the copy, whatever it is called by now, a name on its way out; the path of what is to be removed."""
        away = f"{self.dir.path}/{marked_name(self.topic_partition, unique, DELETE_SUFFIX)}"
        self.release()
        with self.dir.guard():
            self.dir.files.rename(self.path, away)
            self._is_at(away)
        return away


def moved_from(files: FileSystem, path: str) -> str | None:
    """The text of the id of the dir that the log at ``path`` was moved from; None if it was not, or is done with."""
    try:
        data = files.read_bytes(f"{path}/{MOVED_FROM}")
    except FileNotFoundError:
        return None
    for line in data.decode(errors="replace").splitlines():
        key, _, value = line.partition(": ")
        if key == "directory_id":
            return value
    return None


def leave(old: Log, unique: str) -> str:
    """On the dir's thread: the directory of the log that was moved away, or of a copy that lost, gets a name on its way
    out. On the device: before it is, nobody may forget which one counts. The new path."""
    path = old.rename_for_delete(unique)
    with old.dir.guard():
        old.dir.files.fsync_dir(old.dir.path)
    return path


def note_origin(at: Log, directory_id: DirectoryId | None) -> None:
    """On the dir's thread: of two copies of a replica this one counts, and not that of the other directory."""
    text = f"version: 0\ndirectory_id: {directory_id}\n".encode()
    with at.dir.guard():
        at.dir.files.write_atomic(f"{at.path}/{MOVED_FROM}", text)


def forget_origin(moved: Log) -> None:
    """On the dir's thread: the old directory is gone, nobody has to know where this log came from."""
    with moved.dir.guard():
        moved.dir.files.unlink(f"{moved.path}/{MOVED_FROM}")


def loser(one: Log, one_from: str | None, other: Log, other_from: str | None) -> Log | None:
    """Of two copies of a replica the one that gives way: a crash came between the rename of a move and the removal of
    the old directory. None if neither was moved from the other's dir: that is nothing that we made.

    After the rename only the new one was written to, unless the rename was told as failed: then only the old one
    was. So the one with more has everything; with as much in both, the move counts.
    """
    if one.topic_id != other.topic_id:
        return None
    one_moved = one_from is not None and one_from == str(other.dir.directory_id)
    other_moved = other_from is not None and other_from == str(one.dir.directory_id)
    if not one_moved and not other_moved:
        return None
    ranks = [(-1 if v.last_epoch is None else v.last_epoch, v.end_offset) for v in (one.view, other.view)]
    if ranks[0] != ranks[1]:
        return one if ranks[0] < ranks[1] else other
    return other if one_moved else one


def promote(
    directory: LogDir,
    path: str,
    tp: TopicPartition,
    topic_id: TopicId | None,
    config: LogConfig,
    now_ms: TimestampMs,
) -> Log | None:
    """An abandoned copy becomes the log: for a replica that is hosted here and of which nothing else is left. None,
    and it is removed, if it is another topic's or of no use."""
    files, final = directory.files, f"{directory.path}/{tp}"
    with directory.guard():
        try:
            stored = partition_metadata.check(files, path, None)
        except HoldfastError:
            stored = None
        if stored is None or (topic_id is not None and stored != topic_id) or files.exists(final):
            files.rmtree(path)
            return None
        log.warning("%s is all that is left of the replica: it becomes %s", path, final)
        files.rename(path, final)
        files.fsync_dir(directory.path)
    return Log.open(directory, tp, topic_id, config, clean_shutdown=False, now_ms=now_ms)
