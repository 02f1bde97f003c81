"""What a log knows of its producers, found again: from the latest snapshot and the batches after it.

Owns which snapshot files are believed, and how batches are gone through. At a start, after a truncation, and for one
segment whose file of aborted transactions is damaged. Runs on the dir's queue, inside a guard.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from holdfast.model.types import Offset
from holdfast.records.batch import BatchHeader, Buffer
from holdfast.records.markers import EndMarker, decode_marker
from holdfast.storage.files import FileSystem
from holdfast.storage.producer_state import ProducerStates
from holdfast.storage.segment import Segment
from holdfast.storage.segment_names import SNAPSHOT, offset_of
from holdfast.storage.txn_index import NO_ABORTS, AbortedTxn, TxnIndex

log = logging.getLogger(__name__)

_MARKER_BYTES: Final = 4096
"""No marker's batch is larger."""
_Batches: TypeAlias = Iterable[tuple[BatchHeader, EndMarker | None]]


@dataclass(slots=True)
class SeenBatches:
    """The headers of batches that were gone through anyway, and what the markers among them say, by offset."""

    headers: list[BatchHeader] = field(default_factory=list)
    markers: dict[Offset, EndMarker] = field(default_factory=dict)

    def add(self, header: BatchHeader, batch: Buffer) -> None:
        """One batch; ``batch`` begins with it."""
        self.headers.append(header)
        if header.is_control and header.producer_id >= 0:
            marker = decode_marker(batch, header)
            if marker is not None:
                self.markers[header.base_offset] = marker

    def __iter__(self) -> Iterator[tuple[BatchHeader, EndMarker | None]]:
        markers = self.markers
        return ((header, markers.get(header.base_offset)) for header in self.headers)


def load_producers(
    files: FileSystem,
    path: str,
    names: Iterable[str],
    segments: list[Segment],
    end_offset: Offset,
    first_base: Offset,
    seen: SeenBatches,
) -> tuple[ProducerStates, Offset | None]:
    """The producers at ``end_offset``, and the offset of the snapshot if one says just that.

    From ``first_base`` on all batches were ``seen``; what was aborted from there on is put into the segments.
    """
    snapshots = _snapshot_offsets(names)
    bases = {s.base_offset for s in segments}
    bases.update([o for o in snapshots if o <= end_offset][-1:])  # of a clean stop
    usable = [o for o in snapshots if o <= end_offset and o in bases]
    for offset in snapshots:
        if offset not in usable:
            files.unlink(f"{path}/{offset:020d}{SNAPSHOT}")
    if snapshots and snapshots[-1] > end_offset:  # the log may get there again, by another way
        files.fsync_dir(path)
    if seen.markers:  # what they ended is asked for, too
        usable = [o for o in usable if o <= first_base]
    producers = _read_snapshot(files, path, usable, segments[0].base_offset)
    snapshot = producers.end_offset if producers.end_offset in usable else None
    if producers.end_offset < end_offset:
        snapshot = None
        batches: _Batches = seen
        if producers.end_offset < first_base:
            batches = _from_log(segments, producers.end_offset)
        replay(producers, batches, end_offset, _noting(segments, first_base))
    return producers, snapshot


def _noting(segments: Sequence[Segment], first_base: Offset) -> Callable[[AbortedTxn], None]:
    """Puts aborted transactions with markers from ``first_base`` on into their segments; they come in that order."""
    left = list(segments)

    def note(txn: AbortedTxn) -> None:
        while len(left) > 1 and left[1].base_offset <= txn.last_offset:
            del left[0]
        if txn.last_offset >= first_base:
            left[0].note_aborted(txn)

    return note


def rebuild_producers(files: FileSystem, path: str, segments: Sequence[Segment], end_offset: Offset) -> ProducerStates:
    """The producers at ``end_offset`` of a log that was cut there, or rolled."""
    usable = [o for o in _snapshot_offsets(files.listdir(path)) if o <= end_offset]
    producers = _read_snapshot(files, path, usable, segments[0].base_offset)
    if producers.end_offset < end_offset:
        before = [s for s in segments if s.base_offset < end_offset]
        replay(producers, _from_log(before, producers.end_offset), end_offset)
    return producers


def rebuild_aborts(files: FileSystem, path: str, segments: Sequence[Segment], segment: Segment) -> TxnIndex:
    """The aborted transactions of a segment, by its batches."""
    producers = rebuild_producers(files, path, segments, segment.base_offset)
    index = TxnIndex()
    replay(producers, _from_log([segment], segment.base_offset), segment.base_offset, index.append)
    return index if index else NO_ABORTS


def replay(
    producers: ProducerStates,
    batches: _Batches,
    end_offset: Offset,
    note: Callable[[AbortedTxn], None] | None = None,
) -> None:
    """Take the batches from where the producers are; they are at ``end_offset`` then. ``note`` gets what they abort."""
    start = producers.end_offset
    for header, marker in batches:
        if header.producer_id >= 0 and header.base_offset >= start:
            aborted = producers.update(header, header.base_offset, marker)
            if aborted is not None and note is not None:
                note(aborted)
    producers.end_offset = end_offset


def _from_log(segments: Sequence[Segment], offset: Offset) -> Iterator[tuple[BatchHeader, EndMarker | None]]:
    for segment, position, header in batches_from(segments, offset):
        marker = None
        if header.is_control and header.producer_id >= 0:
            marker = decode_marker(segment.handle().pread(min(header.size, _MARKER_BYTES), position), header)
        yield header, marker


def batches_from(segments: Sequence[Segment], offset: Offset) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Segment, position and header of each batch from the one with ``offset`` on."""
    for i, segment in enumerate(segments):
        if i + 1 < len(segments) and segments[i + 1].base_offset <= offset:
            continue
        position = segment.find(offset, segment.size, nowait=False)[0]
        for at, header in segment.headers(position, segment.size):
            yield segment, at, header


def _snapshot_offsets(names: Iterable[str]) -> list[Offset]:
    return sorted(found for name in names if (found := offset_of(name, SNAPSHOT)) is not None)


def _read_snapshot(files: FileSystem, path: str, offsets: list[Offset], start: Offset) -> ProducerStates:
    """The latest snapshot that is whole; else nobody is known, at the log's start."""
    for offset in reversed(offsets):
        name = f"{path}/{offset:020d}{SNAPSHOT}"
        found = ProducerStates.decode(files.read_bytes(name), offset)
        if found is not None:
            return found
        log.warning("%s is torn: it is removed, producers are read from the log", name)
        files.unlink(name)
        offsets.remove(offset)
    return ProducerStates(start)


def drop_snapshots_after(files: FileSystem, path: str, offset: Offset) -> bool:
    """Remove what was known of producers beyond ``offset``; whether there was something."""
    dropped = [found for found in _snapshot_offsets(files.listdir(path)) if found > offset]
    for found in dropped:
        files.unlink(f"{path}/{found:020d}{SNAPSHOT}")
    return bool(dropped)
