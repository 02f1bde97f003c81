"""What the event loop sees of a log: an immutable picture, and reads that work on it.

Owns the picture (``LogView``), the answer of a read (``FileSlice``: a piece of a file, not its bytes) and how a
read finds it. Never changes anything of the log. A read works on one picture from start to end; whatever the
dir's thread appends, rolls or retires meanwhile does not disturb it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import NamedTuple, Protocol

from holdfast.model.errors import KafkaStorageError, LogReadError
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs
from holdfast.storage.files import FileHandle
from holdfast.storage.log_dir import LogDir, Suspect
from holdfast.storage.producer_state import Unstable
from holdfast.storage.segment import ColdRead, Segment

_base_offset = attrgetter("base_offset")


class AppendInfo(NamedTuple):
    """Where an append went. ``log_append_time_ms``: the broker's time if the topic uses it; for a duplicate the
    time of the batch that was written before."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: TimestampMs | None
    log_start_offset: Offset
    leader_epoch: LeaderEpoch | None
    duplicate: bool


class LogView(NamedTuple):
    """One state of a log.

    ``end_position``: bytes of the active segment (the last one) that are written and published; its file may be
    longer. ``segments`` is never changed, only replaced. ``unstable``: transactions that are not decided for readers
    of committed records; None: there are none. ``aborting``: the segments that have abort markers.
    """

    start_offset: Offset
    end_offset: Offset
    end_position: int
    segments: Sequence[Segment]
    last_epoch: LeaderEpoch | None
    size: int
    unstable: Unstable | None = None
    aborting: Sequence[Segment] = ()

    def last_stable(self, high_watermark: Offset) -> Offset:
        """Where a reader of committed records stops: at the high watermark, or before that where the oldest transaction
        begins that is open, or whose marker is not committed."""
        unstable = self.unstable
        if unstable is None:
            return high_watermark
        first, ended = unstable
        stable = high_watermark if first is None or first > high_watermark else first
        for txn in ended:
            if txn.last_offset >= high_watermark and txn.first_offset < stable:
                stable = txn.first_offset
        return max(stable, min(high_watermark, self.start_offset))

    def segment_for(self, offset: Offset) -> Segment:
        """The segment that has ``offset``, or the one before the gap that it lies in."""
        active = self.segments[-1]
        if offset >= active.base_offset:
            return active
        return self.segments[max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)]

    def segments_from(self, offset: Offset) -> Iterator[tuple[Segment, int]]:
        """Each segment from the one with ``offset`` on, and how many of its bytes are published."""
        first = self.segment_for(offset)
        found = False
        for segment in self.segments:
            found = found or segment is first
            if found:
                yield segment, self.end_position if segment is self.segments[-1] else segment.size


class Owner(Suspect, Protocol):
    """The log that a piece is of."""

    dir: LogDir

    def guard(self, error: type[KafkaStorageError] = KafkaStorageError) -> AbstractContextManager[None]:
        """Around work on its files."""


class FileSlice:
    """Whole batches as they lie in a segment's file.

    ``len()`` is their size in bytes. ``handle`` stays open as long as the slice lives. ``base_offset``: no batch
    in it begins before that.
    """

    __slots__ = ("base_offset", "handle", "owner", "position", "size")

    def __init__(self, owner: Owner, handle: FileHandle, position: int, size: int, base_offset: Offset) -> None:
        self.owner = owner
        self.handle = handle
        self.position = position
        self.size = size
        self.base_offset = base_offset

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileSlice({self.handle.path!r}, {self.position}+{self.size})"

    def read_nowait(self) -> bytearray | None:
        """The bytes if they are in memory, else None: on the loop."""
        try:
            return self.handle.preadv_nowait(self.size, self.position)
        except OSError as e:
            raise self.owner.dir.suspect(e, LogReadError, self.owner) from e

    def read(self) -> bytes:
        """The bytes; blocking: on the dir's queue. Fewer if the log was truncated meanwhile."""
        with self.owner.guard(LogReadError):
            return self.handle.pread(self.size, self.position)


def read_view(
    owner: Owner,
    view: LogView,
    offset: Offset,
    max_bytes: int,
    limit_offset: Offset,
    *,
    min_one: bool,
    nowait: bool,
) -> FileSlice | None:
    """See Log.read. ``offset`` lies within the view."""
    end_offset = view.end_offset
    if limit_offset > end_offset:
        limit_offset = end_offset
    if offset >= limit_offset:
        return None
    segments = view.segments
    last = len(segments) - 1
    i = last
    if offset < segments[last].base_offset:
        i = max(0, bisect_right(segments, offset, key=_base_offset) - 1)
    while True:
        segment = segments[i]
        if i == last:
            end, following = view.end_position, end_offset
        else:
            end, following = segment.size, segments[i + 1].base_offset
        start, base_offset = segment.find(offset, end, nowait=nowait)
        if start < end:
            break
        if i == last:
            return None
        i += 1  # compaction left nothing of this segment from the offset on
    if limit_offset < following:
        end = min(end, segment.find(limit_offset, end, nowait=nowait)[0])
        if end <= start:
            return None
    if end - start > max_bytes:
        end = segment.cut(start, end, max_bytes, min_one=min_one, nowait=nowait)
        if end == start:
            return None
    if nowait and not segment.is_open:
        raise ColdRead
    return FileSlice(owner, segment.handle(), start, end - start, base_offset)
