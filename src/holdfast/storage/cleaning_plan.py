"""From a log to the order for its cleaning: what there is to clean, and what the one who does it has to know.

``look`` reads a picture of the log and, if lags are configured, times of its segments, on any thread. ``plan`` runs on
the thread of the log's directory: there is what it knows of its producers and of aborted transactions.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from holdfast.model.types import Offset, TimestampMs
from holdfast.storage.cleaned_log import Planned
from holdfast.storage.cleaning_filter import KEY_BYTES
from holdfast.storage.cleaning_job import CleaningOrder
from holdfast.storage.cleaning_rules import Cleanable, cleanable, first_dirty_of
from holdfast.storage.files import FileSystem
from holdfast.storage.log import Log
from holdfast.storage.segment import Segment
from holdfast.storage.segment_names import LOG


class CleanerSettings(NamedTuple):
    """``buffer_bytes``: memory for keys, of which ``load_factor`` (0 to 1) is used; ``read_bytes``: read at a time."""

    buffer_bytes: int
    load_factor: float
    read_bytes: int

    @property
    def most_keys(self) -> int:
        """Keys that there is room for."""
        return max(1, int(self.buffer_bytes * self.load_factor) // KEY_BYTES)


def look(files: FileSystem, each: Log, high_watermark: Offset, now_ms: TimestampMs) -> Cleanable:
    """What there is to clean of it. OSError and CorruptRecordError, if lags are configured."""
    view = each.view

    def aside(segment: Segment, ask: Callable[[Segment], TimestampMs]) -> TimestampMs:
        """Ask a copy: the segment itself is its own thread's."""
        copy = Segment(files, os.path.dirname(segment.path(LOG)), segment.base_offset, created_ms=0)
        copy.size = segment.size
        found = ask(copy)
        copy.close_file()
        return found

    return cleanable(
        view.segments,
        first_dirty_of(each.cleaned_offset, view.start_offset, view.end_offset),
        view.last_stable(high_watermark),
        each.config,
        now_ms,
        newest_of=lambda segment: aside(segment, Segment.largest_timestamp),
        first_of=lambda segment: aside(segment, Segment.rolling_timestamp),
    )


def plan(
    each: Log, found: Cleanable, settings: CleanerSettings, now_ms: TimestampMs
) -> tuple[Planned, CleaningOrder] | None:
    """What is to be done; None if there is nothing any more: the log was cut, or lost its first segments."""
    view = each.view
    segments = [s for s in view.segments[:-1] if s.base_offset < found.end]
    if not segments or view.segments[len(segments)].base_offset != found.end:
        return None
    config, producers = each.config, each.producers.entries
    order = CleaningOrder(
        path=each.path,
        sources=[(s.base_offset, s.size) for s in segments],
        end=found.end,
        aborted=each.aborted_before(found.end),
        first_dirty=found.first_dirty,
        producers={
            pid: (entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
            for pid, entry in producers.items()
        },
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        most_keys=settings.most_keys,
        read_bytes=settings.read_bytes,
    )
    return Planned(segments, each.times_cut), order
