"""Offsets by time: which record was the first at or after a time, which one is the newest.

Owns the search for ListOffsets; reads batches and decodes the one that holds the answer. Blocking: on the dir's
queue, inside a guard.
"""

from collections.abc import Callable
from typing import NamedTuple

from holdfast.model.errors import RecordError
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs
from holdfast.records.batch import BatchHeader
from holdfast.records.record import iter_batch
from holdfast.storage.log_view import LogView
from holdfast.storage.segment import Segment


class TimestampOffset(NamedTuple):
    """A record's time and offset, and the epoch of the leader that took it."""

    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch | None


def first_at_or_after(
    view: LogView, timestamp: TimestampMs, touch: Callable[[Segment], None]
) -> TimestampOffset | None:
    """The first record, by offset, that is not older than ``timestamp``. ``touch``: called with segments read."""
    for segment, end in view.segments_from(view.start_offset):
        if not end or segment.largest_timestamp() < timestamp:
            continue
        touch(segment)
        start = max(segment.load_indexes()[1].offset_before(timestamp), view.start_offset)
        position, _ = segment.find(start, end, nowait=False)
        for at, header in segment.headers(position, end):
            if header.max_timestamp >= timestamp:
                found = _first_record(segment, at, header, timestamp, view.start_offset)
                if found is not None:
                    return found
    return None


def newest(view: LogView, touch: Callable[[Segment], None]) -> TimestampOffset | None:
    """The record with the largest timestamp, the first one of several; None when no record has one."""
    best: TimestampOffset | None = None
    for segment, end in view.segments_from(view.start_offset):
        if not end or (best is not None and segment.largest_timestamp() <= best.timestamp):
            continue
        first = max(segment.base_offset, view.start_offset)
        if segment.largest_timestamp() >= 0 and segment.max_timestamp_offset >= first:
            first = segment.max_timestamp_offset
        touch(segment)
        found = _newest_from(segment, first, end, view.start_offset)
        if found is not None and (best is None or found.timestamp > best.timestamp):
            best = found
    return best


def _newest_from(segment: Segment, offset: Offset, end: int, start_offset: Offset) -> TimestampOffset | None:
    """The newest record of the segment from the batch with ``offset`` on."""
    best: tuple[TimestampMs, int, BatchHeader] | None = None
    for at, header in segment.headers(segment.find(offset, end, nowait=False)[0], end):
        if header.max_timestamp >= 0 and (best is None or header.max_timestamp > best[0]):
            best = header.max_timestamp, at, header
    if best is None:
        return None
    timestamp, at, header = best
    found = _first_record(segment, at, header, timestamp, start_offset)
    # The newest record of a batch that the log's start cuts through may be on the far side.
    return found or _first_record(segment, at, header, 0, start_offset)


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp: TimestampMs, start_offset: Offset
) -> TimestampOffset | None:
    """The first record in the batch that is not older than ``timestamp`` nor before the log's start."""
    epoch = header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
    try:
        for record in iter_batch(segment.handle().pread(header.size, position)):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, epoch)
    except RecordError:  # a producer's nonsense, stored as it came: the header is all there is to go by
        return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), epoch)
    return None
