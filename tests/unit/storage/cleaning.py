"""Cleaning a log at once, as a broker has it done piece by piece."""

from collections.abc import Sequence

from holdfast.records.batch import iter_headers
from holdfast.records.record import decode_batches
from holdfast.storage.cleaning_job import CleanedSegment, CleaningStats, clean
from holdfast.storage.cleaning_plan import CleanerSettings, look, plan
from holdfast.storage.log import Log

SETTINGS = CleanerSettings(1 << 20, 0.9, 1 << 16)


def clean_log(
    log: Log, now_ms: int, high_watermark: int | None = None, settings: CleanerSettings = SETTINGS
) -> CleaningStats | None:
    """None if there is nothing to clean, whatever is due."""
    mark = log.view.end_offset if high_watermark is None else high_watermark
    files = log.dir.files
    found = look(files, log, mark, now_ms)
    planned = plan(log, found, settings, now_ms) if found.dirty_bytes else None
    if planned is None:
        return None

    def made(one: CleanedSegment) -> None:
        assert log.swap(planned[0], one, now_ms)

    stats = clean(files, planned[1], made, lambda size: None)
    log.note_cleaned(planned[0], stats.end)
    return stats


def pairs(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of each record that is no marker."""
    return [(r.offset, r.key, r.value) for r in decode_batches(data)]


def batches(data: bytes) -> Sequence[tuple[int, int, int]]:
    """(base offset, last offset, records) of each batch."""
    return [(h.base_offset, h.last_offset, h.record_count) for _, h in iter_headers(data)]
