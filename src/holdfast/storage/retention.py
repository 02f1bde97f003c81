"""How many of a log's oldest segments may go: by age, by size, by the log's start.

Owns the rules; retires nothing itself. Kafka's: segments go from the oldest on, in one run without gaps, and
never one that ends above the high watermark.

The times of older segments are in their time indexes. ``times_of`` reads them on any thread and keeps nothing; ``note``
keeps them, on the thread of the log. So the rules themselves need not read (retention_run.py).
"""

import os
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.model.types import Offset, TimestampMs
from holdfast.storage.files import FileSystem
from holdfast.storage.log_view import LogView
from holdfast.storage.segment import Segment
from holdfast.storage.segment_names import LOG

ANY: Final = 1 << 62
"""No limit to how many segments."""
Times = dict[Segment, tuple[TimestampMs, Offset]]
"""Of older segments: the time of the newest record, and its offset."""


def times_of(
    files: FileSystem, view: LogView, high_watermark: Offset, now_ms: TimestampMs, retention_ms: int, most: int
) -> tuple[Times, int]:
    """Those that ``too_old`` will ask for, if it is to find ``most``; and how many segments were read or are old."""
    found: Times = {}
    count = 0
    for segment, following in _with_ends(view.segments[:-1], view.segments[-1].base_offset):
        if count >= most or not segment.size or following > high_watermark:
            break
        newest = segment.max_timestamp
        if newest is None:
            aside = Segment(files, os.path.dirname(segment.path(LOG)), segment.base_offset, created_ms=0)
            aside.size = segment.size
            newest = aside.largest_timestamp()
            found[segment] = newest, aside.max_timestamp_offset
        elif newest >= 0 and now_ms - newest <= retention_ms:
            break
        count += 1
        if newest >= 0 and now_ms - newest <= retention_ms:
            break
    return found, count


def note(times: Times) -> None:
    """Have the segments know their times."""
    for segment, (newest, offset) in times.items():
        if segment.max_timestamp is None:
            segment.max_timestamp, segment.max_timestamp_offset = newest, offset


def below_start(segments: Sequence[Segment], start_offset: Offset) -> int:
    """Those that end before the log's start. Never the active one."""
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= start_offset:
        count += 1
    return count


def too_old(
    files: FileSystem,
    segments: Sequence[Segment],
    end_offset: Offset,
    high_watermark: Offset,
    now_ms: TimestampMs,
    retention_ms: int | None,
    most: int = ANY,
) -> int:
    """Those whose newest record is older than ``retention_ms``; without times in the records, the file's age."""
    if retention_ms is None:
        return 0
    count = 0
    for segment, following in _with_ends(segments, end_offset):
        if count >= most or not segment.size or following > high_watermark:
            break
        newest = segment.largest_timestamp()
        if newest < 0:
            newest = files.modified_ms(segment.path(LOG))
        if now_ms - newest <= retention_ms:
            break
        count += 1
    return count


def too_many_bytes(
    segments: Sequence[Segment], end_offset: Offset, high_watermark: Offset, retention_bytes: int | None
) -> int:
    """Those without which the log still has ``retention_bytes``."""
    if retention_bytes is None:
        return 0
    excess = sum(s.size for s in segments) - retention_bytes
    count = 0
    for segment, following in _with_ends(segments, end_offset):
        if not segment.size or following > high_watermark or excess < segment.size:
            break
        excess -= segment.size
        count += 1
    return count


def _with_ends(segments: Sequence[Segment], end_offset: Offset) -> Iterator[tuple[Segment, Offset]]:
    for i, segment in enumerate(segments):
        yield segment, segments[i + 1].base_offset if i + 1 < len(segments) else end_offset
