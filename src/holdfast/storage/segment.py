"""One segment: a file of batches, its two indexes, and how to find a batch in it.

Owns the file ``<base offset>.log`` and its indexes. Appends and truncates on the dir's thread only; the loop looks
up and reads up to the end that the log has published. Never decides when to roll or what to keep: log.py does.

Looking up goes from cheap to dear: the last batches of the active segment by a table in memory (``Tail``), then
the sparse offset index, then headers of batches in the file. The loop asks with ``nowait``: what is not in memory
(a file that is not open, an index that is not loaded, a page that is not cached) raises ColdRead, and the caller
asks again on the dir's queue.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import Offset, TimestampMs
from holdfast.records.batch import HEADER_SIZE, BatchHeader, crc_ok, parse_header
from holdfast.storage.files import Buffer, FileHandle, FileSystem
from holdfast.storage.index import OffsetIndex, TimeIndex, last_time_entry, read_offsets, read_times, write_index
from holdfast.storage.segment_names import (
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
)
from holdfast.storage.segment_tail import TAIL_LIMIT, Tail
from holdfast.storage.txn_index import NO_ABORTS, AbortedTxn, TxnIndex

_PLACE = Struct(">qi11xi")  # base offset, length, last offset delta
_PLACE_SIZE = 27
_OVERHEAD = 12
_SCAN_BYTES = 8192
NO_TIMESTAMP: Final = -1
"""As in a batch's header: its records carry no time."""


class ColdRead(Exception):
    """What is needed is not in memory: not an error, the answer is on the disk; ask on its queue."""


class Placed(NamedTuple):
    """A batch and where it goes: ``at`` is its position in the bytes that are appended."""

    at: int
    size: int
    base_offset: Offset
    last_offset: Offset
    max_timestamp: TimestampMs


class Segment:
    """Batches from ``base_offset`` on.

    ``size``: bytes that hold batches. ``max_timestamp``: of all batches, None when not looked up yet (an older
    segment after a start). ``tail``: of the active segment once it was written to. ``changed``: the index files
    are not as ``become_inactive`` leaves them. ``flushed``: there is, or was, a recovery point within it.
    ``aborts``: its aborted transactions, None when there is a file of them that was not looked at yet. ``unchecked``:
    batches that were appended since it was opened, or since the last recovery point within it was begun.
    """

    __slots__ = (
        "_files",
        "_handle",
        "_stem",
        "aborts",
        "base_offset",
        "bytes_since_index",
        "changed",
        "created_ms",
        "first_timestamp",
        "flushed",
        "max_timestamp",
        "max_timestamp_offset",
        "offsets",
        "size",
        "tail",
        "times",
        "unchecked",
    )

    def __init__(self, files: FileSystem, directory: str, base_offset: Offset, *, created_ms: TimestampMs) -> None:
        self._files = files
        self._stem = f"{directory}/{base_offset:020d}"
        self._handle: FileHandle | None = None
        self.base_offset = base_offset
        self.size = 0
        self.created_ms = created_ms
        self.first_timestamp: TimestampMs | None = None
        self.max_timestamp: TimestampMs | None = None
        self.max_timestamp_offset: Offset = base_offset
        self.bytes_since_index = 0
        self.changed = False
        self.flushed = False
        self.unchecked = 0
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self.tail: Tail | None = None
        self.aborts: TxnIndex | None = NO_ABORTS

    @classmethod
    def create(cls, files: FileSystem, directory: str, base_offset: Offset, *, now_ms: TimestampMs) -> "Segment":
        """A new, empty segment. Index files come with their first entries, on roll or on close."""
        segment = cls(files, directory, base_offset, created_ms=now_ms)
        segment.max_timestamp = NO_TIMESTAMP
        segment.offsets, segment.times = OffsetIndex(base_offset), TimeIndex(base_offset)
        segment.changed = True
        files.open(segment.path(LOG), create=True).close()
        return segment

    def path(self, suffix: str) -> str:
        return self._stem + suffix

    def moved(self, directory: str) -> None:
        """The log's directory has another name now. Open files stay open."""
        self._stem = f"{directory}/{self.base_offset:020d}"

    def __repr__(self) -> str:
        return f"Segment({self._stem!r}, size={self.size})"

    # -- files ---------------------------------------------------------------------------------------------

    def handle(self) -> FileHandle:
        """The open file; opens it: not on the loop."""
        handle = self._handle
        if handle is None:
            handle = self._handle = self._files.open(self.path(LOG))
        return handle

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    def close_file(self) -> None:
        """Drop the file, keep the indexes: an active segment that nobody uses."""
        self._handle = None

    def release(self) -> None:
        """Drop the file and, of an older segment, the indexes. Answers that are being sent keep the file open."""
        self._handle = None
        if self.tail is None and self.offsets is not None and self.offsets.written == len(self.offsets):
            self.offsets = None
            self.times = None
            if self.aborts and self.aborts.written == len(self.aborts):
                self.aborts = None

    def load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """The indexes, from their files if they are not in memory; made again from the batches if those are
        missing or wrong."""
        offsets, times = self.offsets, self.times
        if offsets is None or times is None:
            offsets = read_offsets(self._files, self.path(INDEX), self.base_offset, self.size)
            times = read_times(self._files, self.path(TIME_INDEX), self.base_offset, self.size)
            if offsets is None or times is None:
                self.rebuild_indexes(interval=4096)
                assert self.offsets is not None and self.times is not None
                return self.offsets, self.times
            self.times = times
            self.offsets = offsets
        return offsets, times

    def rebuild_indexes(self, *, interval: int) -> None:
        """Make both indexes again from the batches, which are taken as they are."""
        self.forget()
        for position, header in self.headers(0, self.size):
            self.note(position, header.size, header.last_offset, header.max_timestamp, interval)

    def forget(self) -> None:
        """Empty indexes, as if no batch were known; ``note`` fills them."""
        self.offsets, self.times = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        self.bytes_since_index = 0
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self.first_timestamp = None
        self.changed = True

    def write_indexes(self, *, preallocate: int | None, durable: bool = False) -> None:
        """Bring the index files up to what is in memory. ``preallocate``: bytes, while the segment is active."""
        offsets, times = self.load_indexes()
        write_index(self._files, self.path(INDEX), offsets, max_bytes=preallocate, durable=durable)
        write_index(self._files, self.path(TIME_INDEX), times, max_bytes=preallocate, durable=durable)
        if self.aborts:
            write_index(self._files, self.path(TXN_INDEX), self.aborts, max_bytes=None, durable=durable)

    def index_is_behind(self) -> bool:
        """There are entries that the files do not have."""
        indexes = self.offsets, self.times, self.aborts
        return any(index is not None and index.written < len(index) for index in indexes)

    def become_inactive(self) -> None:
        """No more appends: the last time index entry, and index files without preallocation."""
        times = self.load_indexes()[1]
        if self.largest_timestamp() >= 0:
            times.maybe_append(self.largest_timestamp(), self.max_timestamp_offset)
        # A recovery point within the segment, as soon as the next one begins, has recovery believe the index files.
        self.write_indexes(preallocate=None, durable=self.flushed)
        self.changed = False

    def flush(self) -> None:
        """The batches are on the device when this returns."""
        self.handle().fsync()
        self.flushed = True

    def sync_batches(self) -> None:
        """As ``flush``, by a descriptor of its own: on any thread. A segment that was deleted meanwhile is fine."""
        try:
            handle = self._files.open(self.path(LOG))
        except FileNotFoundError:
            return
        handle.fsync()
        handle.close()

    def delete_files(self, *, keep_snapshot: bool = False) -> list[str]:
        """Rename the files to ``.deleted``, so that a crash finds them as garbage; the new names."""
        self._handle = None
        renamed = []
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX, *(() if keep_snapshot else (SNAPSHOT,))):
            path = self.path(suffix)
            try:
                self._files.rename(path, path + DELETED)
            except FileNotFoundError:
                continue
            renamed.append(path + DELETED)
        return renamed

    def unlink_files(self) -> None:
        """Remove the files at once: what recovery found to be of no use."""
        self._handle = None
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT):
            self._files.unlink(self.path(suffix))

    # -- append and truncate -------------------------------------------------------------------------------

    def append(self, data: Buffer, batches: Sequence[Placed], index_interval: int) -> None:
        """Write ``data``, which is exactly ``batches``, to the end."""
        handle = self._handle
        if handle is None:
            handle = self.handle()
        if self.offsets is None:
            self.load_indexes()
        position = self.size
        handle.pwritev((data,), position)
        tail = self.tail
        if tail is None:
            tail = self.tail = Tail(batches[0].base_offset)
            self.changed = True
        for at, size, _, last_offset, max_timestamp in batches:
            start = position + at
            tail.positions.append(start)
            tail.last_offsets.append(last_offset)
            self.note(start, size, last_offset, max_timestamp, index_interval)
        self.size = position + len(data)
        self.unchecked += len(batches)
        if len(tail.positions) >= TAIL_LIMIT:
            self.tail = tail.younger_half()

    def note(
        self, position: int, size: int, last_offset: Offset, max_timestamp: TimestampMs, index_interval: int
    ) -> None:
        """Index entries for a batch, as Kafka puts them."""
        assert self.max_timestamp is not None
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index > index_interval:
            assert self.offsets is not None and self.times is not None
            self.offsets.append(last_offset, position)
            if self.max_timestamp >= 0:
                self.times.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += size

    def note_aborted(self, txn: AbortedTxn) -> None:
        """An abort marker was written here; the index is loaded."""
        if self.aborts is NO_ABORTS:
            self.aborts = TxnIndex()
        assert self.aborts is not None, "loaded before anything is appended"
        self.aborts.append(txn)

    def forget_aborts(self) -> None:
        """As if it had no abort marker, in the file too."""
        self.aborts = NO_ABORTS
        self._files.unlink(self.path(TXN_INDEX))

    def cut_point(self, offset: Offset) -> tuple[int, Offset, Offset]:
        """Position and base offset of the first batch that reaches ``offset``, and where the ones before it end;
        (size, offset, end) if none does."""
        end_offset = self.base_offset
        for at, header in self.headers(self.load_indexes()[0].position_for(offset - 1), self.size):
            if header.last_offset >= offset:
                return at, header.base_offset, end_offset
            end_offset = header.next_offset
        return self.size, offset, end_offset

    def truncate(self, position: int, end_offset: Offset) -> None:
        """Cut the file at ``position``, the start of a batch; the segment ends at ``end_offset`` then."""
        offsets, times = self.load_indexes()
        self.tail = None
        self.changed = True
        offsets.truncate_to_position(position)
        times.truncate_to_offset(end_offset)
        self.handle().truncate(position)
        self.size = position
        if position == 0:
            self.forget()
            return
        self.bytes_since_index = position - offsets.position_at_most(position)
        self._find_max_timestamp(offsets, times)

    def cut_aborts(self, end_offset: Offset) -> None:
        """Forget abort markers from ``end_offset`` on; the index is loaded."""
        assert self.aborts is not None, "loaded before the segment is cut"
        kept = self.aborts.cut(end_offset)
        if kept is not self.aborts:
            self.aborts = kept
            if kept:
                write_index(self._files, self.path(TXN_INDEX), kept, max_bytes=None)
            else:
                self._files.unlink(self.path(TXN_INDEX))

    def _find_max_timestamp(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        last = times.last()
        self.max_timestamp, self.max_timestamp_offset = last or (NO_TIMESTAMP, self.base_offset)
        for _, header in self.headers(offsets.position_at_most(self.size), self.size):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset

    def restore(self, *, size: int, now_ms: TimestampMs) -> Offset:
        """Make the last segment after a clean stop ready for appends; the offset after its last batch.

        Reads only what comes after the last index entry.
        """
        self.size, self.created_ms = size, now_ms
        if not size:
            self.forget()
            self.changed = False
            return self.base_offset
        offsets, times = self.load_indexes()
        position = offsets.position_at_most(size)
        end_offset = self.base_offset
        newest, newest_offset = times.last() or (NO_TIMESTAMP, self.base_offset)
        for _, header in self.headers(position, size, checked=True):
            end_offset = header.next_offset
            if header.max_timestamp > newest:
                newest, newest_offset = header.max_timestamp, header.last_offset
        self.max_timestamp, self.max_timestamp_offset = newest, newest_offset
        self.bytes_since_index = size - position
        return end_offset

    # -- find ----------------------------------------------------------------------------------------------

    def headers(self, position: int, end: int, *, checked: bool = False) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from ``position`` on, ``checked`` by its CRC or not; blocking.
        CorruptRecordError at a bad one."""
        handle = self.handle()
        while position < end:
            data = handle.pread(min(_SCAN_BYTES, end - position), position)
            at = 0
            while len(data) - at >= HEADER_SIZE:
                header = parse_header(data, at)
                if position + at + header.size > end:
                    raise CorruptRecordError(f"{self.path(LOG)}: the batch at {position + at} is torn")
                if checked and at + header.size > len(data):
                    if at:
                        break  # the next read begins with it
                    data = handle.pread(header.size, position)
                if checked and not crc_ok(data, at, header):
                    raise CorruptRecordError(f"{self.path(LOG)}: the batch at {position + at} fails its CRC")
                yield position + at, header
                at += header.size
            if not at:
                raise CorruptRecordError(f"{self.path(LOG)}: {len(data)} bytes at {position} are no batch")
            position += at

    def find(self, offset: Offset, end: int, *, nowait: bool) -> tuple[int, Offset]:
        """Position and base offset of the first batch that ends at or after ``offset``; (end, offset) if none.

        With the table of the tail the base offset is the lowest that the batch can have.
        """
        tail = self.tail
        if tail is not None and offset >= tail.first_offset:
            i = bisect_left(tail.last_offsets, offset)
            if i < len(tail.positions):
                return tail.positions[i], tail.last_offsets[i - 1] + 1 if i else tail.first_offset
            return end, offset
        position, base_offset, _ = self._scan(self._indexed(offset, nowait=nowait), end, offset, nowait=nowait)
        return position, base_offset

    def _indexed(self, offset: Offset, *, nowait: bool) -> int:
        index = self.offsets
        if index is None:
            if nowait:
                raise ColdRead
            index = self.load_indexes()[0]
        return index.position_for(offset)

    def _scan(self, position: int, end: int, offset: Offset, *, nowait: bool) -> tuple[int, Offset, int]:
        """Position, base offset and size of the first batch from ``position`` on that ends at or after ``offset``."""
        handle = self._handle
        if handle is None:
            if nowait:
                raise ColdRead
            handle = self.handle()
        while position < end:
            data: Buffer | None
            wanted = min(_SCAN_BYTES, end - position)
            data = handle.preadv_nowait(wanted, position) if nowait else handle.pread(wanted, position)
            if data is None:
                raise ColdRead
            at = 0
            while len(data) - at >= _PLACE_SIZE:
                base_offset, length, delta = _PLACE.unpack_from(data, at)
                if base_offset + delta >= offset:
                    return position + at, base_offset, length + _OVERHEAD
                if length < HEADER_SIZE - _OVERHEAD:
                    raise CorruptRecordError(f"{self.path(LOG)}: batch length {length} at {position + at}")
                at += length + _OVERHEAD
            if not at:
                raise CorruptRecordError(f"{self.path(LOG)}: {len(data)} bytes at {position} are no batch")
            position += at
        return end, offset, 0

    def cut(self, start: int, end: int, max_bytes: int, *, min_one: bool, nowait: bool) -> int:
        """The end of the last whole batch within ``max_bytes`` of ``start`` and before ``end``.

        ``start`` when there is none and not ``min_one``, else the end of the first batch. With the sparse index
        it may be a little less than what would fit.
        """
        limit = start + max_bytes
        tail = self.tail
        if tail is not None and tail.positions and limit >= tail.positions[0]:
            i = bisect_right(tail.positions, limit) - 1
            position = tail.positions[i]
            if position > start:
                return min(position, end)
            if position == start:
                following = tail.positions[i + 1] if i + 1 < len(tail.positions) else end
                return min(following, end) if min_one else start
        index = self.offsets
        if index is None:
            if nowait:
                raise ColdRead
            index = self.load_indexes()[0]
        position = index.position_at_most(limit)
        if position > start:
            return min(position, end)
        return self._cut_by_scan(start, end, limit, min_one=min_one, nowait=nowait)

    def _cut_by_scan(self, start: int, end: int, limit: int, *, min_one: bool, nowait: bool) -> int:
        """As ``cut``, from the headers: ``limit`` lies before the next index entry."""
        position = start
        while position < end:
            _, _, size = self._scan(position, end, 0, nowait=nowait)
            if position + size > limit:
                return position + size if position == start and min_one else position
            position += size
        return end

    def bound_after(self, position: int) -> Offset | None:
        """An offset that no batch before ``position`` reaches, and hardly more; None if only the end is known."""
        tail, index = self.tail, self.offsets
        if tail is not None and tail.positions and tail.positions[0] < position:
            return tail.last_offsets[bisect_left(tail.positions, position) - 1] + 1
        if index is None:
            return None
        i = bisect_left(index.positions, position)
        return index.base_offset + index.offsets[i] if i < len(index.offsets) else None

    # -- times ---------------------------------------------------------------------------------------------

    def largest_timestamp(self) -> TimestampMs:
        """Of all batches, NO_TIMESTAMP if none has one; blocking for an older segment."""
        if self.max_timestamp is None:
            if self.offsets is None:
                last = last_time_entry(self._files, self.path(TIME_INDEX), self.base_offset)
                if last is not None:
                    self.max_timestamp, self.max_timestamp_offset = last
                    return self.max_timestamp
            offsets, times = self.load_indexes()
            self._find_max_timestamp(offsets, times)
            assert self.max_timestamp is not None
        return self.max_timestamp

    def rolling_timestamp(self) -> TimestampMs:
        """The time of the first batch, by which the age of the segment counts; NO_TIMESTAMP for none."""
        if self.first_timestamp is None:
            if not self.size:
                return NO_TIMESTAMP
            self.first_timestamp = parse_header(self.handle().pread(HEADER_SIZE, 0)).max_timestamp
        return self.first_timestamp
