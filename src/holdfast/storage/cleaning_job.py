"""One cleaning of one log, as far as it only reads the log: the segments without what is superseded, written beside it.

Owns the order of the steps and the ``.cleaned`` files. Needs paths and no lock: the files of a log below its active
segment never change, they are renamed and removed at most. So it runs anywhere: in a process of its own
(broker/cleaner_process.py), or in the background lane of the directory where there is none. What it has written takes
the place of what it was made of by ``cleaned_log.py``, group by group.

    dirty segments --> keys --> all segments up to the last key --> ``.cleaned`` segments, each of as many as fit
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import Offset, TimestampMs
from holdfast.records.batch import HEADER_SIZE, BatchHeader, parse_header
from holdfast.storage.aborted import Transactions
from holdfast.storage.cleaning_filter import WHOLE, BatchFilter, Keys, LastOfProducer, emptied
from holdfast.storage.cleaning_rules import Made, Source, fits
from holdfast.storage.files import FileHandle, FileSystem
from holdfast.storage.segment import Placed, Segment
from holdfast.storage.segment_names import CLEANED, DELETED, INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_name
from holdfast.storage.txn_index import AbortedTxn, TxnIndex

WRITE_BYTES: Final = 1 << 20
SUFFIXES: Final = (INDEX, TIME_INDEX, TXN_INDEX, LOG)
"""Of the files of a cleaned segment, the batches last: where they are, all is."""
_MAX_BATCH: Final = 1 << 30

Pace = Callable[[int], None]
"""Told of so many bytes read or written; takes its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningOrder:
    """What is to be cleaned, and how.

    ``sources``: (base offset, bytes) of the log's segments up to ``end``, where the first one begins that stays as it
    is. ``aborted``: all transactions of the log that were aborted, also those that end after it. ``producers``: id ->
    (offset of its last record or None, epoch). ``most_keys``: that may be remembered.
    """

    path: str
    sources: list[tuple[Offset, int]]
    end: Offset
    aborted: list[AbortedTxn]
    first_dirty: Offset
    producers: dict[int, tuple[Offset | None, int]]
    now_ms: TimestampMs
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    most_keys: int
    read_bytes: int

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> "CleaningOrder":
        """What ``encode`` made."""
        told: dict[str, Any] = json.loads(data)
        told["sources"] = [tuple(each) for each in told["sources"]]
        told["aborted"] = [AbortedTxn(*each) for each in told["aborted"]]
        told["producers"] = {int(pid): tuple(last) for pid, last in told["producers"].items()}
        return cls(**told)


class CleanedSegment(NamedTuple):
    """A segment that was written. ``sources``: base offsets of those that it is made of. ``is_same``: it is what it was
    made of, and there are no files of it."""

    base_offset: Offset
    size: int
    max_timestamp: TimestampMs
    max_timestamp_offset: Offset
    sources: list[Offset]
    suffixes: list[str]
    is_same: bool


class CleaningStats(NamedTuple):
    """A cleaning that is over. ``end``: all before it is clean now. Bytes and records that were read for the second
    time, and those of them that stay."""

    end: Offset
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    keys: int


class _CleanedFile(Segment):
    __slots__ = ()

    def path(self, suffix: str) -> str:
        return super().path(suffix) + CLEANED


def clean(files: FileSystem, order: CleaningOrder, made: Callable[[CleanedSegment], None], pace: Pace) -> CleaningStats:
    """Do it. ``made`` is called with each segment that was written, which is on the device by then. OSError,
    CorruptRecordError, InvalidRecordError."""
    keys = Keys(order.first_dirty, order.most_keys, Transactions(order.aborted))
    end = _remember(files, order, keys, pace)
    transactions = Transactions(order.aborted)
    producers = {pid: LastOfProducer(*last) for pid, last in order.producers.items()}
    judge = BatchFilter(keys, transactions, producers, order.now_ms, order.delete_retention_ms)
    read = written = 0
    out: _Out | None = None
    for number, (base, size) in enumerate(order.sources):
        if base >= end:
            break
        each = Source(base, size, _index_bytes(files, order.path, base))
        if out is not None and not fits(
            out.made, each, _following(order, number), order.segment_bytes, order.segment_index_bytes
        ):
            written += out.finish(transactions.take_kept(), made)
            out = None
        if out is None:
            out = _Out(files, order, base, pace)
        for data, at, header in _batches(files, order, base, size, pace):
            out.take(judge.filter(data, at, header), data, at, header)
        out.sources.append(base)
        read += size
    if out is not None:
        written += out.finish(transactions.take_kept(), made)
    return CleaningStats(end, read, written, judge.read, judge.kept, len(keys.latest))


def _following(order: CleaningOrder, number: int) -> Offset:
    """Where the segment after this one begins."""
    return order.sources[number + 1][0] if number + 1 < len(order.sources) else order.end


def _remember(files: FileSystem, order: CleaningOrder, keys: Keys, pace: Pace) -> Offset:
    """Fill the keys from the dirty segments; the offset up to which that went."""
    for number, (base, size) in enumerate(order.sources):
        following = _following(order, number)
        if following <= order.first_dirty:
            continue
        for data, at, header in _batches(files, order, base, size, pace):
            if not keys.take(data, at, header):
                return keys.latest_offset + 1
        keys.latest_offset = max(keys.latest_offset, following - 1)
    return keys.latest_offset + 1


def _batches(
    files: FileSystem, order: CleaningOrder, base_offset: Offset, size: int, pace: Pace
) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Each batch of a segment: bytes, its position in them, its header. CorruptRecordError if one is torn."""
    path = f"{order.path}/{segment_name(base_offset)}{LOG}"
    handle = files.open(path, readonly=True)
    try:
        position, wanted = 0, order.read_bytes
        while position < size:
            wanted = min(wanted, size - position)
            data = handle.pread(wanted, position)
            if len(data) < wanted:
                raise CorruptRecordError(f"{path} ends at {position + len(data)}: expected {size} bytes")
            pace(wanted)
            at, end = 0, len(data)
            while end - at >= HEADER_SIZE:
                header = parse_header(data, at)
                if at + header.size > end:
                    break
                yield data, at, header
                at += header.size
            wanted = order.read_bytes
            if not at:
                wanted = parse_header(data).size if end >= HEADER_SIZE else HEADER_SIZE
                if wanted <= end or position + wanted > size or wanted > _MAX_BATCH:
                    raise CorruptRecordError(f"{path}: the batch at {position} is torn")
            position += at
    finally:
        handle.close()


class _Out:
    """The segment that is being written. ``sources``: base offsets of those that it is made of.

    The last batch of its last source keeps at least its header: the next segment begins where this one ends, and a hole
    between two is taken for a loss (recovery.py).
    """

    def __init__(self, files: FileSystem, order: CleaningOrder, base_offset: Offset, pace: Pace) -> None:
        discard(files, order.path, base_offset)
        self.sources: list[Offset] = []
        self._files = files
        self._order = order
        self._pace = pace
        self._segment = _CleanedFile.create(files, order.path, base_offset, now_ms=order.now_ms)
        self._waiting = bytearray()
        self._placed: list[Placed] = []
        self._dropped: BatchHeader | None = None
        """The last batch, if nothing of it stays."""
        self._is_same = True

    @property
    def made(self) -> Made:
        """How large it is, and what is not written yet."""
        segment = self._segment
        assert segment.offsets is not None and segment.times is not None
        entries = max(len(segment.offsets) * segment.offsets.ENTRY_SIZE, len(segment.times) * segment.times.ENTRY_SIZE)
        return Made(segment.base_offset, segment.size + len(self._waiting), entries)

    def take(self, found: bytes | None, data: bytes, at: int, header: BatchHeader) -> None:
        """What stays of a batch."""
        if found is None:
            self._is_same, self._dropped = False, header
            return
        self._dropped = None
        if found is WHOLE:
            self._put(memoryview(data)[at : at + header.size], header)
        else:
            self._is_same = False
            self._put(found, parse_header(found))

    def _put(self, batch: bytes | memoryview, header: BatchHeader) -> None:
        waiting = self._waiting
        self._placed.append(
            Placed(len(waiting), len(batch), header.base_offset, header.last_offset, header.max_timestamp)
        )
        waiting += batch
        if len(waiting) >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._placed:
            self._segment.append(bytes(self._waiting), self._placed, self._order.index_interval_bytes)
            self._pace(len(self._waiting))
        self._waiting.clear()
        self._placed.clear()

    def finish(self, kept: Sequence[AbortedTxn], made: Callable[[CleanedSegment], None]) -> int:
        """All is in it; tell, once it is on the device. Its bytes."""
        if self._dropped is not None:
            header = emptied(self._dropped)
            self._put(header, parse_header(header))
        self._write()
        files, order, segment = self._files, self._order, self._segment
        is_same = self._is_same and len(self.sources) == 1
        suffixes: list[str] = []
        newest = segment.largest_timestamp(), segment.max_timestamp_offset
        if is_same:
            segment.release()
            discard(files, order.path, segment.base_offset)
        else:
            segment.flush()
            segment.become_inactive()
            suffixes = [suffix for suffix in SUFFIXES if kept or suffix != TXN_INDEX]
            if kept:
                index = TxnIndex()
                for txn in kept:
                    index.append(txn)
                _put(files.open(segment.path(TXN_INDEX), create=True), index.encode())
            files.fsync_dir(order.path)
        made(CleanedSegment(segment.base_offset, segment.size, *newest, self.sources, suffixes, is_same))
        return segment.size


def _put(handle: FileHandle, data: bytes) -> None:
    try:
        handle.pwritev((data,), 0)
        handle.fsync()
    finally:
        handle.close()


def discard(files: FileSystem, path: str, base_offset: Offset) -> None:
    """Remove what a cleaning has written of a segment and is of no use."""
    for suffix in SUFFIXES:
        files.unlink(f"{path}/{segment_name(base_offset)}{suffix}{CLEANED}")


def set_aside(files: FileSystem, path: str) -> list[str]:
    """Give all that a cleaning of the log at ``path`` has left another name, by which every start takes it for garbage;
    the paths, to be removed: not at once, for a large file takes its time."""
    paths = []
    for name in files.listdir(path):
        if name.endswith(CLEANED):
            paths.append(f"{path}/{name}{DELETED}")
            files.rename(f"{path}/{name}", paths[-1])
    return paths


def _index_bytes(files: FileSystem, path: str, base_offset: Offset) -> int:
    sizes = [0]
    for suffix in (INDEX, TIME_INDEX):
        try:
            sizes.append(files.file_size(f"{path}/{segment_name(base_offset)}{suffix}"))
        except FileNotFoundError:
            continue
    return max(sizes)
