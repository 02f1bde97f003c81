"""The two sparse indexes of a segment, in memory; their files are written in batches.

Owns the entries: offset -> position in the segment, and timestamp -> offset. Never reads the segment. Kafka
maps these files and writes each entry at once; here the entries in memory are the truth while the segment is
active, and files are brought up to date on roll, close and housekeeping. A crash costs nothing: recovery makes
the indexes of the segments past the recovery point again from the batches, as in Kafka.

On disk, big-endian: offset index entries are (offset - base: u32, position: u32), time index entries are
(timestamp: i64, offset - base: u32). The active segment's files are preallocated (sparse) to
segment.index.bytes and hold zeros after the last entry; they are cut to their entries on roll and close.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from struct import Struct
from typing import ClassVar

from holdfast.model.types import Offset, TimestampMs
from holdfast.storage.files import FileSystem
from holdfast.storage.txn_index import TxnIndex

_OFFSET_ENTRY = Struct(">II")
_TIME_ENTRY = Struct(">qI")


class OffsetIndex:
    """offset -> position. Offsets and positions grow from entry to entry.

    ``written``: how many entries the file has. Entries are only appended, so the loop may look up while the
    disk's thread appends.
    """

    ENTRY_SIZE: ClassVar[int] = 8
    __slots__ = ("base_offset", "offsets", "positions", "written")

    def __init__(self, base_offset: Offset) -> None:
        self.base_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")
        self.written = 0

    def __len__(self) -> int:
        return len(self.positions)

    def append(self, last_offset: Offset, position: int) -> None:
        """The batch that ends with ``last_offset`` starts at ``position``."""
        # The position first: a reader that sees an offset finds its position.
        self.positions.append(position)
        self.offsets.append(last_offset - self.base_offset)

    def position_for(self, offset: Offset) -> int:
        """Where to start looking for the batch with ``offset``: never behind it."""
        i = bisect_right(self.offsets, offset - self.base_offset) - 1
        return self.positions[i] if i >= 0 else 0

    def position_at_most(self, position: int) -> int:
        """The last known start of a batch at or before ``position``."""
        i = bisect_right(self.positions, position) - 1
        return self.positions[i] if i >= 0 else 0

    def truncate_to_position(self, position: int) -> None:
        """Forget the batches from ``position`` on."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:]
        del self.positions[keep:]
        self.written = min(self.written, keep)

    def encode(self, start: int = 0) -> bytes:
        """The entries from number ``start`` on, as in the file."""
        if sys.byteorder == "little" and len(self.positions) - start > 16:
            both = array("I", bytes(self.ENTRY_SIZE * (len(self.positions) - start)))
            both[0::2] = self.offsets[start:]
            both[1::2] = self.positions[start:]
            both.byteswap()
            return both.tobytes()
        pack = _OFFSET_ENTRY.pack
        return b"".join(map(pack, self.offsets[start:], self.positions[start:]))

    @classmethod
    def decode(cls, base_offset: Offset, data: bytes) -> "OffsetIndex | None":
        """The index in a file's bytes; None if it is not one (then it is made again from the segment).

        Trailing zeros are preallocation: an entry cannot be zero, since the first batch gets none.
        """
        index = cls(base_offset)
        usable = len(data.rstrip(b"\0")) + cls.ENTRY_SIZE - 1
        usable -= usable % cls.ENTRY_SIZE
        if usable > len(data):
            return None
        both = array("I", data[:usable])
        if sys.byteorder == "little":
            both.byteswap()
        index.offsets, index.positions = both[0::2], both[1::2]
        index.written = len(index)
        if not _grows(index.offsets, strictly=False) or not _grows(index.positions, strictly=True):
            return None
        return index


class TimeIndex:
    """timestamp -> offset: up to that offset no record is newer. Both grow from entry to entry."""

    ENTRY_SIZE: ClassVar[int] = 12
    __slots__ = ("base_offset", "offsets", "timestamps", "written")

    def __init__(self, base_offset: Offset) -> None:
        self.base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("I")
        self.written = 0

    def __len__(self) -> int:
        return len(self.timestamps)

    def maybe_append(self, timestamp: TimestampMs, offset: Offset) -> None:
        """Note the largest timestamp so far and the last offset of its batch; nothing if it is no news."""
        if not self.timestamps or timestamp > self.timestamps[-1]:
            self.timestamps.append(timestamp)
            self.offsets.append(offset - self.base_offset)

    def last(self) -> tuple[TimestampMs, Offset] | None:
        """The largest timestamp and its offset."""
        if not self.timestamps:
            return None
        return self.timestamps[-1], self.base_offset + self.offsets[-1]

    def offset_before(self, timestamp: TimestampMs) -> Offset:
        """Where to start looking for the first record that is not older than ``timestamp``."""
        i = bisect_left(self.timestamps, timestamp) - 1
        return self.base_offset + self.offsets[i] if i >= 0 else self.base_offset

    def truncate_to_offset(self, offset: Offset) -> None:
        """Forget entries that speak of ``offset`` or later ones."""
        keep = bisect_left(self.offsets, max(0, offset - self.base_offset))
        del self.timestamps[keep:]
        del self.offsets[keep:]
        self.written = min(self.written, keep)

    def encode(self, start: int = 0) -> bytes:
        """The entries from number ``start`` on, as in the file."""
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps[start:], self.offsets[start:]))

    @classmethod
    def decode(cls, base_offset: Offset, data: bytes) -> "TimeIndex | None":
        """The index in a file's bytes; None if it is not one."""
        index = cls(base_offset)
        usable = len(data.rstrip(b"\0")) + cls.ENTRY_SIZE - 1
        usable -= usable % cls.ENTRY_SIZE
        if usable > len(data):
            return None
        for timestamp, relative in _TIME_ENTRY.iter_unpack(data[:usable]):
            index.timestamps.append(timestamp)
            index.offsets.append(relative)
        index.written = len(index)
        if not _grows(index.timestamps, strictly=True) or not _grows(index.offsets, strictly=False):
            return None
        return index


def read_offsets(files: FileSystem, path: str, base_offset: Offset, size: int) -> OffsetIndex | None:
    """The offset index of a segment of ``size`` bytes from its file; None if that is missing or wrong."""
    try:
        index = OffsetIndex.decode(base_offset, files.read_bytes(path))
    except FileNotFoundError:
        return None if size else OffsetIndex(base_offset)
    if index is None or (len(index) and index.positions[-1] >= size):
        return None
    return index


def read_times(files: FileSystem, path: str, base_offset: Offset, size: int) -> TimeIndex | None:
    """The time index likewise."""
    try:
        return TimeIndex.decode(base_offset, files.read_bytes(path))
    except FileNotFoundError:
        return None if size else TimeIndex(base_offset)


def last_time_entry(files: FileSystem, path: str, base_offset: Offset) -> tuple[TimestampMs, Offset] | None:
    """The last entry of the time index file of an older segment, without loading the rest."""
    try:
        handle = files.open(path, readonly=True)
    except FileNotFoundError:
        return None
    size = handle.size()
    data = handle.pread(TimeIndex.ENTRY_SIZE, max(0, size - TimeIndex.ENTRY_SIZE))
    handle.close()
    index = TimeIndex.decode(base_offset, data) if size % TimeIndex.ENTRY_SIZE == 0 else None
    return index.last() if index is not None else None


def _grows(values: "array[int]", *, strictly: bool) -> bool:
    if strictly:
        return all(a < b for a, b in pairwise(values))
    return all(a <= b for a, b in pairwise(values))


def write_index(
    files: FileSystem,
    path: str,
    index: OffsetIndex | TimeIndex | TxnIndex,
    *,
    max_bytes: int | None,
    durable: bool = False,
) -> None:
    """Bring the file up to the index. ``max_bytes`` preallocates it (sparse); None cuts it to its entries.

    No handle stays open: idle logs are many, and this is rare.
    """
    handle = files.open(path, create=True)
    try:
        entry = index.ENTRY_SIZE
        if handle.size() < index.written * entry:  # the file is not the one we wrote: all of it again
            index.written = 0
        # What stood behind our entries goes: preallocation, or entries of before a truncation or a crash.
        handle.truncate(index.written * entry)
        pending = index.encode(index.written)
        end = len(index) * entry
        if pending:
            handle.pwritev((pending,), end - len(pending))
        wanted = end if max_bytes is None else max(end, max_bytes - max_bytes % entry)
        if wanted != end:
            handle.truncate(wanted)
        index.written = len(index)
        if durable:
            handle.fsync()
    finally:
        handle.close()
