"""How many of a log's oldest segments may go: by age, by size, by the log's start.

Owns the rules; retires nothing itself. Kafka's: segments go from the oldest on, in one run without gaps, and
never one that ends above the high watermark.
"""

from collections.abc import Iterator, Sequence

from holdfast.model.types import Offset, TimestampMs
from holdfast.storage.files import FileSystem
from holdfast.storage.segment import Segment
from holdfast.storage.segment_names import LOG


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
) -> int:
    """Those whose newest record is older than ``retention_ms``; without times in the records, the file's age."""
    if retention_ms is None:
        return 0
    count = 0
    for segment, following in _with_ends(segments, end_offset):
        if not segment.size or following > high_watermark:
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
