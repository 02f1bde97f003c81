"""Which logs are cleaned, how far, and which of their segments become one. Kafka's rules; no disk.

    0 ......... cleaned .............. end ........... active segment ......
    [ no key twice ][ dirty, cleanable ][ not stable, too young, or written ]

A log is cleaned in whole segments. None of them is the active one, reaches beyond what is stable (the last stable
offset, the high watermark), or has a record younger than min.compaction.lag.ms.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeVar

from holdfast.model.config import LogConfig
from holdfast.model.types import Offset, TimestampMs
from holdfast.storage.segment_names import MAX_RELATIVE_OFFSET


class Sized(Protocol):
    """What the rules see of a segment."""

    base_offset: Offset
    size: int


S = TypeVar("S", bound=Sized)


class Cleanable(NamedTuple):
    """What there is to clean of a log. ``first_dirty``: all before it was cleaned. ``end``: where the first segment
    begins that stays as it is. Bytes before ``first_dirty``, and from there to ``end``."""

    first_dirty: Offset
    end: Offset
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """How much of the log is dirty, 0 to 1."""
        whole = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / whole if whole else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether it is worth a cleaning."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > config.min_cleanable_dirty_ratio)


def first_dirty_of(cleaned: Offset | None, start_offset: Offset, end_offset: Offset) -> Offset:
    """Where the dirty part begins. A checkpoint that speaks of offsets that the log has not counts for nothing."""
    if cleaned is None or not start_offset <= cleaned <= end_offset:
        return start_offset
    return cleaned


def cleanable(
    segments: Sequence[S],
    first_dirty: Offset,
    stable: Offset,
    config: LogConfig,
    now_ms: TimestampMs,
    newest_of: Callable[[S], TimestampMs],
    first_of: Callable[[S], TimestampMs],
) -> Cleanable:
    """What there is to clean of a log with these segments. ``newest_of``: time of a segment's newest record, asked only
    with min.compaction.lag.ms; ``first_of``: of its first batch, asked only with max.compaction.lag.ms."""
    end = segments[0].base_offset
    clean = dirty = 0
    is_overdue = False
    for each, following in pairwise(segments):
        is_dirty = following.base_offset > first_dirty
        if following.base_offset > stable:
            break
        if is_dirty and config.min_compaction_lag_ms > 0 and newest_of(each) > now_ms - config.min_compaction_lag_ms:
            break
        if is_dirty:
            dirty += each.size
            is_overdue = is_overdue or _is_overdue(each, config, now_ms, first_of)
        else:
            clean += each.size
        end = following.base_offset
    return Cleanable(first_dirty, end, clean, dirty, is_overdue)


def _is_overdue(segment: S, config: LogConfig, now_ms: TimestampMs, first_of: Callable[[S], TimestampMs]) -> bool:
    """A log is cleaned once its oldest dirty record has waited for max.compaction.lag.ms."""
    if config.max_compaction_lag_ms >= now_ms or not segment.size:
        return False
    return 0 < first_of(segment) < now_ms - config.max_compaction_lag_ms


class Source(NamedTuple):
    """A segment that is cleaned. ``index_bytes``: entries of both its indexes, as many bytes as the larger has."""

    base_offset: Offset
    size: int
    index_bytes: int = 0


class Made(NamedTuple):
    """A segment that is being written: where it begins, its bytes, and the index entries of the larger index."""

    base_offset: Offset
    size: int
    index_bytes: int


def fits(made: Made, each: Source, following: Offset, segment_bytes: int, index_bytes: int) -> bool:
    """Whether another segment can be cleaned into it, so that they do not get smaller and smaller: if all of it stayed
    it has to have room by segment.bytes, by segment.index.bytes, and by the offsets that an index can name.
    ``following``: where the segment after ``each`` begins."""
    return (
        made.size + each.size <= segment_bytes
        and made.index_bytes + each.index_bytes <= index_bytes
        and following - 1 - made.base_offset <= MAX_RELATIVE_OFFSET
    )
