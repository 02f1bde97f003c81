"""A recovery point within a segment: how it is made while the log grows, and how a start goes on from there.

A log of many small batches may write for days to one segment, and to check all of it after every kill -9 takes
seconds for each million of batches. So what a clean stop leaves is left now and then by a log that goes on: the
batches up to an offset, the index entries and the aborted transactions before it, the leader epochs, all of it on the
device; and then a snapshot of the producers, which says so. A later start believes these up to the latest such
snapshot that the recovery point covers, and checks the batches from there on. Where anything does not fit, it checks
the segment from its beginning.

    begin (dir's thread) --> sync (the thread for long fsyncs) --> take: the snapshot gets its name (dir's thread)

A cut of the log in between has the point dropped; one after it lowers the recovery point first, on the device
(``Log._lower_recovery_point``), and takes the snapshots behind the cut away.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import Offset
from holdfast.storage.files import FileSystem
from holdfast.storage.index import read_offsets, read_times
from holdfast.storage.segment import NO_TIMESTAMP, Segment
from holdfast.storage.segment_names import INDEX, LOG, SNAPSHOT, TIME_INDEX, TXN_INDEX, offset_of
from holdfast.storage.txn_index import read_before

log = logging.getLogger(__name__)

KEPT_SNAPSHOTS: Final = 2
"""Within segments: the checkpoint on the device may speak of the one before the last."""


class RecoveryPointAhead(NamedTuple):
    """A recovery point that is to be: all before ``offset`` of ``segment`` is written. ``cuts``: of the log by then;
    ``producers``: the snapshot."""

    segment: Segment
    offset: Offset
    cuts: int
    producers: bytes


def sync_point(files: FileSystem, path: str, point: RecoveryPointAhead, also: Iterable[str]) -> bool:
    """All that the point stands for is on the device when this returns, the snapshot under another name; on any thread.
    ``also``: more files of the log. False: the log was deleted."""
    point.segment.sync_batches()
    stem = f"{path}/{point.segment.base_offset:020d}"
    for name in (stem + INDEX, stem + TIME_INDEX, stem + TXN_INDEX, *also):
        try:
            handle = files.open(name)
        except FileNotFoundError:
            continue
        handle.fsync()
        handle.close()
    try:
        handle = files.open(staged_snapshot(path, point), create=True)
        handle.truncate(0)
        handle.pwritev((point.producers,), 0)
        handle.fsync()
        handle.close()
        files.fsync_dir(path)
    except FileNotFoundError:
        return False
    return True


def staged_snapshot(path: str, point: RecoveryPointAhead) -> str:
    """What a start finds of it is garbage. No other file is ever written by that name: what is lost of one that becomes
    the snapshot of a roll must not show as this, which a cut may have made wrong."""
    return f"{path}/{point.offset:020d}.point.tmp"


def drop_older_snapshots(files: FileSystem, path: str, segments: Sequence[Segment]) -> None:
    """Of the snapshots within segments the last ones stay; those within segments that are deleted count with them."""
    for offset in _within(files.listdir(path), segments, -1)[:-KEPT_SNAPSHOTS]:
        files.unlink(f"{path}/{offset:020d}{SNAPSHOT}")


def drop_snapshots_within(files: FileSystem, path: str, names: Iterable[str], segments: Sequence[Segment]) -> None:
    """Before ``segments`` are checked from the beginning of the first on: their index files are made again, so that no
    later start may believe what these speak of."""
    within = _within(names, segments, segments[0].base_offset)
    for offset in within:
        files.unlink(f"{path}/{offset:020d}{SNAPSHOT}")
    if within:
        files.fsync_dir(path)


def _within(names: Iterable[str], segments: Sequence[Segment], after: Offset) -> list[Offset]:
    """Offsets above ``after`` of the snapshots which begin none of these segments, in order."""
    bases = {each.base_offset for each in segments}
    found = {offset_of(name, SNAPSHOT) for name in names} - bases
    return sorted(offset for offset in found if offset is not None and offset > after)


def resume(
    files: FileSystem, names: Iterable[str], segment: Segment, recovery_point: Offset
) -> tuple[int, Offset] | None:
    """Position and offset up to which a segment needs no check; what is known of the batches before is in it then.
    None: it has to be checked from its beginning, and nothing was changed."""
    offset = max(
        (each for each in _within(names, [segment], segment.base_offset) if each <= recovery_point), default=None
    )
    if offset is None:
        return None
    offsets = read_offsets(files, segment.path(INDEX), segment.base_offset, segment.size)
    times = read_times(files, segment.path(TIME_INDEX), segment.base_offset, segment.size)
    aborts = read_before(files, segment.path(TXN_INDEX), segment.base_offset, offset)
    if offsets is None or times is None or aborts is None:
        return None
    times.truncate_to_offset(offset)
    newest, newest_offset = times.last() or (NO_TIMESTAMP, segment.base_offset)
    position, end_offset = offsets.position_for(offset - 1), segment.base_offset
    try:
        for at, header in segment.headers(position, segment.size, checked=True):
            if header.base_offset >= offset:
                break
            position, end_offset = at + header.size, header.next_offset
            if header.max_timestamp > newest:
                newest, newest_offset = header.max_timestamp, header.last_offset
            if end_offset >= offset:
                break
    except CorruptRecordError as e:
        if end_offset != offset:
            log.warning("%s is checked from its beginning: %s", segment.path(LOG), e)
    if end_offset != offset:
        return None
    offsets.truncate_to_position(position)
    segment.offsets, segment.times, segment.aborts = offsets, times, aborts
    segment.max_timestamp, segment.max_timestamp_offset = newest, newest_offset
    segment.bytes_since_index = position - offsets.position_at_most(position)
    segment.first_timestamp, segment.changed = None, True
    return position, offset
