"""The segments of one log: which there are, which are synced, which are on their way out, which are kept open.

Owns the rules when a segment is full, rolling, retiring and purging, and which older segments keep a file open.
Does not know of epochs, producers or offsets to serve: log.py does. On the dir's thread, inside a guard.
"""

from collections.abc import Callable, Sequence

from crc32c import crc32c

from holdfast.model.config import LogConfig
from holdfast.model.errors import RecordListTooLargeError
from holdfast.model.types import Offset, TimestampMs, TopicPartition
from holdfast.storage.files import Buffer, FileSystem
from holdfast.storage.segment import Placed, Segment
from holdfast.storage.segment_names import MAX_RELATIVE_OFFSET

_WARM = 2
"""Older segments of one log that keep their file and index open after a read."""


class SegmentList:
    """``all``: in offset order, the last one is active. Replaced on a change, never changed in place: pictures
    that the loop holds keep theirs. ``rolled``: inactive ones that are not known to be synced."""

    __slots__ = ("_files", "_new_names", "_path", "_retired", "_seen", "_tp", "_warm", "all", "rolled")

    def __init__(
        self, files: FileSystem, path: str, tp: TopicPartition, segments: list[Segment], rolled: list[Segment]
    ) -> None:
        self._files = files
        self._path = path
        self._tp = tp
        self.all: Sequence[Segment] = segments
        self.rolled = rolled
        self._retired: list[tuple[TimestampMs, list[str]]] = []  # renamed to .deleted: when, which
        self._warm: list[Segment] = []
        self._new_names = False  # in the directory, since it was last synced
        self._seen = (0, 0)  # the active segment when ``rested`` last looked: its offset and size

    @property
    def active(self) -> Segment:
        return self.all[-1]

    @property
    def has_retired(self) -> bool:
        return bool(self._retired)

    def rested(self) -> "SegmentList":
        """To be called now and then: an active segment that did not grow since gives its file back. Most logs are
        idle, and descriptors are few; whoever needs the file opens it again."""
        active = self.all[-1]
        seen, self._seen = self._seen, (active.base_offset, active.size)
        if seen == self._seen:
            active.close_file()
        return self

    def write(
        self,
        data: Buffer,
        placed: Sequence[Placed],
        end_offset: Offset,
        max_timestamp: TimestampMs,
        now_ms: TimestampMs,
        config: LogConfig,
        rolled: Callable[[Offset], None],
        wrote: Callable[[Offset], None],
    ) -> None:
        """Append to the active segment, which ends at ``end_offset``; to a new one if they do not belong there (then
        ``rolled`` is called). ``wrote`` is called with the new end, for each part of what is more than a segment takes:
        the next part may fail. The new one begins where the old one ends, also when the batches do not: a hole
        between two segments is a loss, and recovery takes it for one."""
        size = len(data)
        active = self.all[-1]
        too_far = placed[-1].last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        if (
            too_far
            or active.size + size > config.segment_bytes
            or (active.size and is_old(active, config, self._tp, max_timestamp, now_ms))
            or _index_is_full(active, config)
        ):
            if size > config.segment_bytes:
                self._write_in_parts(data, placed, end_offset, now_ms, config, rolled, wrote)
                return
            if active.size or too_far:
                active = self.roll(placed[0].base_offset if too_far else end_offset, now_ms)
                rolled(active.base_offset)
        if not active.size:
            active.first_timestamp = placed[0].max_timestamp
            active.created_ms = now_ms
        active.append(data, placed, config.index_interval_bytes)
        wrote(placed[-1].last_offset + 1)

    def _write_in_parts(
        self,
        data: Buffer,
        placed: Sequence[Placed],
        end_offset: Offset,
        now_ms: TimestampMs,
        config: LogConfig,
        rolled: Callable[[Offset], None],
        wrote: Callable[[Offset], None],
    ) -> None:
        """More than fits in one segment: as many batches at a time as do fit."""
        largest = max(p.size for p in placed)
        if largest > config.segment_bytes:
            raise RecordListTooLargeError(
                f"{self._tp}: batch of {largest} bytes: expected at most segment.bytes={config.segment_bytes}"
            )
        view = memoryview(data)
        start = 0
        while start < len(placed):
            first = placed[start].at
            stop = start + 1
            while stop < len(placed) and placed[stop].at + placed[stop].size - first <= config.segment_bytes:
                stop += 1
            part = [p._replace(at=p.at - first) for p in placed[start:stop]]
            end = placed[stop - 1].at + placed[stop - 1].size
            latest = max(p.max_timestamp for p in part)
            self.write(view[first:end], part, end_offset, latest, now_ms, config, rolled, wrote)
            end_offset = part[-1].last_offset + 1
            start = stop

    def roll(self, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        """A new active segment. The old one is not synced here: an append would wait for it."""
        old = self.all[-1]
        old.become_inactive()
        segment = Segment.create(self._files, self._path, base_offset, now_ms=now_ms)
        self._new_names = True
        self.all = [*self.all, segment]
        old.tail = None
        self.rolled.append(old)
        return segment

    def sync_rolled(self, synced: Sequence[Segment] | None = None) -> Offset:
        """Bring the rolled segments to the device, indexes and names too: those are believed at the next start. Only
        ``synced`` ones, if given: their batches are there already. The offset up to which all is on the device."""
        due = self.rolled if synced is None else [s for s in self.rolled if s in synced]
        for segment in due:
            if synced is None:
                segment.flush()
            segment.write_indexes(preallocate=None, durable=True)
            if segment not in self._warm:
                segment.release()
        self.rolled = [s for s in self.rolled if s not in due]
        if self._new_names:
            self.sync_names()
        return (self.rolled[0] if self.rolled else self.all[-1]).base_offset

    def sync_names(self) -> None:
        """Which files there are is on the device."""
        self._files.fsync_dir(self._path)
        self._new_names = False

    def drop_first(self, count: int) -> Sequence[Segment]:
        """Take the first ``count`` out of the list; ``retire`` them once the loop cannot find them any more."""
        going, self.all = self.all[:count], self.all[count:]
        return going

    def drop_from(self, offset: Offset) -> Sequence[Segment]:
        """Take out those that begin at ``offset`` or later, but never the first one."""
        keep = len(self.all)
        while keep > 1 and self.all[keep - 1].base_offset >= offset:
            keep -= 1
        going, self.all = self.all[keep:], self.all[:keep]
        self._forget(self.all[-1])
        return going

    def restart(self, base_offset: Offset, now_ms: TimestampMs) -> None:
        """Retire all; one empty segment at ``base_offset``."""
        # The old files make room first: the new segment may have the name of one of them.
        self.retire(self.all, now_ms)
        self.all = [Segment.create(self._files, self._path, base_offset, now_ms=now_ms)]
        self._new_names = True

    def retire(self, segments: Sequence[Segment], now_ms: TimestampMs) -> None:
        """Rename the files of segments that are in the list no more; ``take_retired`` tells them when it is time."""
        for segment in segments:
            self._forget(segment)
            self._retired.append((now_ms, segment.delete_files()))

    def exchange(self, at: int, going: Sequence[Segment], made: Segment, now_ms: TimestampMs) -> None:
        """``made`` takes the place of ``going``, which begin at number ``at``. What is known of the producers at its
        base stays. Its own files have their names when this list is looked at next."""
        for segment in going:
            self._forget(segment)
            keep_snapshot = segment.base_offset == made.base_offset
            self._retired.append((now_ms, segment.delete_files(keep_snapshot=keep_snapshot)))
        self.all = [*self.all[:at], made, *self.all[at + len(going) :]]
        self._new_names = True

    def _forget(self, segment: Segment) -> None:
        if segment in self._warm:
            self._warm.remove(segment)
        if segment in self.rolled:
            self.rolled.remove(segment)

    def take_retired(self, before_ms: TimestampMs) -> list[str]:
        """The files that were retired at ``before_ms`` or earlier, told once: they are to be removed (removal.py)."""
        due = [path for when_ms, paths in self._retired if when_ms <= before_ms for path in paths]
        self._retired = [r for r in self._retired if r[0] > before_ms]
        return due

    def touch(self, segment: Segment) -> None:
        """An older segment was read: keep it open, and let go of the one that was not read for longest."""
        if segment is self.all[-1]:
            return
        if segment in self._warm:
            self._warm.remove(segment)
        self._warm.append(segment)
        if len(self._warm) > _WARM:
            self._warm.pop(0).release()

    def moved(self, path: str) -> None:
        """The log's directory has another name now."""
        self._path = path
        for segment in self.all:
            segment.moved(path)

    def release(self) -> None:
        """Give all files back."""
        for segment in self.all:
            segment.tail = None
            segment.release()


def jitter_ms(config: LogConfig, tp: TopicPartition, base_offset: Offset) -> int:
    """What is taken off the age of one segment: by chance, up to segment.jitter.ms and segment.ms, and the same
    whenever asked, so that logs which began together do not roll together."""
    if not config.segment_jitter_ms:
        return 0
    drawn = crc32c(f"{config.jitter_seed}/{tp}/{base_offset}".encode())
    return (min(config.segment_jitter_ms, config.segment_ms) + 1) * drawn >> 32


def is_old(
    segment: Segment, config: LogConfig, tp: TopicPartition, timestamp: TimestampMs, now_ms: TimestampMs
) -> bool:
    """Older than segment.ms when a batch of time ``timestamp`` comes: by the records' own times where they have
    some, by the clock otherwise."""
    limit = config.oldest_segment_ms - jitter_ms(config, tp, segment.base_offset)
    first = segment.rolling_timestamp()
    if first >= 0 and timestamp >= 0:
        return timestamp - first > limit
    return now_ms - segment.created_ms > limit


def _index_is_full(segment: Segment, config: LogConfig) -> bool:
    offsets, times = segment.offsets, segment.times
    if offsets is None or times is None:
        return False
    # The time index keeps room for the entry of the roll.
    return (
        len(offsets) >= config.segment_index_bytes // offsets.ENTRY_SIZE
        or len(times) >= config.segment_index_bytes // times.ENTRY_SIZE - 1
    )
