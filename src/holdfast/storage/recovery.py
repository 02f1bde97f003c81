"""Opening a log that is on disk: after a clean stop with as little reading as possible, else by recovery.

Owns what is believed of the files: which segments there are, where the data ends, and the leader epochs and
producers that go with it. A clean stop is believed (only the part of the last segment that its index does not
cover is read); after any other stop, every batch from the recovery point on is checked: of the whole segment in which
it lies, unless a snapshot was left for going on within it (recovery_point.py). The first one that is torn or wrong is
where the log ends: it and all after it are cut off. Nothing that was written whole is lost, synced or not, unless the
machine itself went down or its disk has failed.

What is checked is read from the device. An earlier process may have met a flush that failed, and could leave no word of
it: the system calls what it could not write clean, shows it for as long as it is in memory, and calls the next flush a
success (H-28). What such a log has lost shows when it is cut (``LogParts.is_short``).

Runs on the dir's queue, inside a guard.
"""

import logging
from bisect import bisect_right
from dataclasses import dataclass, field

from holdfast.model.config import LogConfig
from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import Offset, TimestampMs
from holdfast.records.batch import HEADER_SIZE, BatchHeader, crc_ok, parse_header
from holdfast.storage import leader_epochs
from holdfast.storage.epoch_recovery import fit_epochs
from holdfast.storage.files import FileSystem
from holdfast.storage.leader_epochs import LeaderEpochs
from holdfast.storage.producer_replay import SeenBatches, load_producers, rebuild_aborts
from holdfast.storage.producer_state import ProducerStates
from holdfast.storage.recovery_point import drop_snapshots_within, resume
from holdfast.storage.segment import Segment
from holdfast.storage.segment_names import (
    DELETED,
    INDEX,
    LOG,
    MAX_RELATIVE_OFFSET,
    TIME_INDEX,
    TXN_INDEX,
    offset_of,
)
from holdfast.storage.swap_recovery import complete_swaps
from holdfast.storage.txn_index import read

log = logging.getLogger(__name__)

_READ_BYTES = 1 << 20
_GARBAGE = (DELETED, ".tmp")
_OF_SEGMENTS = (LOG, INDEX, TIME_INDEX, TXN_INDEX)


@dataclass(slots=True, kw_only=True)
class LogParts:
    """What a log is made of.

    ``clean``: it was on the device when it was last closed. ``rolled``: inactive segments that are not
    known to be synced. ``is_short``: more was cut off than the one write in which a process can be killed."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    start_offset: Offset
    end_offset: Offset
    recovery_point: Offset
    clean: bool
    snapshot_offset: Offset | None = None
    is_short: bool = False
    rolled: list[Segment] = field(default_factory=list)


def forget_memory(files: FileSystem, path: str, recovery_point: Offset) -> None:
    """Before a log that was not closed clean is read: of what is not known to be synced let the system forget what it
    has in memory. It keeps what it is still going to write."""
    names = files.listdir(path)
    bases = sorted(found for name in names if (found := offset_of(name, LOG)) is not None)
    first = bases[max(0, bisect_right(bases, recovery_point) - 1)] if bases else 0
    for name in names:
        if name.endswith(_GARBAGE) or files.is_dir(f"{path}/{name}"):
            continue
        base = next((found for each in _OF_SEGMENTS if (found := offset_of(name, each)) is not None), None)
        # The indexes of later segments are made again.
        if base is not None and (base < first or (base > first and not name.endswith(LOG))):
            continue
        handle = files.open(f"{path}/{name}", readonly=True)
        handle.drop_cache()
        handle.close()


def new_parts(files: FileSystem, path: str, *, start_offset: Offset, now_ms: TimestampMs) -> LogParts:
    """A log that was not there: one empty segment in the (existing) directory."""
    return LogParts(
        segments=[Segment.create(files, path, start_offset, now_ms=now_ms)],
        epochs=LeaderEpochs(files, f"{path}/{leader_epochs.FILE_NAME}"),
        producers=ProducerStates(start_offset),
        start_offset=start_offset,
        end_offset=start_offset,
        recovery_point=start_offset,
        clean=False,
    )


def load_parts(
    files: FileSystem,
    path: str,
    config: LogConfig,
    *,
    clean: bool,
    now_ms: TimestampMs,
    recovery_point: Offset,
    log_start_offset: Offset | None,
    cleaned_offset: Offset | None = None,
) -> LogParts:
    """The log in the directory at ``path``. ``cleaned_offset``: before it a cleaning may have left holes."""
    names = _without_garbage(files, path)
    segments = _segments(files, path, names, now_ms)
    epochs = LeaderEpochs.load(files, f"{path}/{leader_epochs.FILE_NAME}")
    if not segments:
        segments = [Segment.create(files, path, log_start_offset or 0, now_ms=now_ms)]
    first_checked = len(segments) - 1
    seen, is_short = SeenBatches(), False
    end_offset: Offset | None = None
    if clean:
        end_offset = _restore(segments[-1], now_ms)
    if end_offset is None:
        if not clean:
            first_checked = _first_unsynced(segments, recovery_point)
        checked = segments[first_checked]
        believed = None if clean else resume(files, names, checked, recovery_point)
        if believed is None:
            drop_snapshots_within(files, path, names, segments[first_checked:])
        first_base = checked.base_offset if believed is None else believed[1]
        end_offset, is_short = _recover(
            files, path, segments, first_checked, config, now_ms, seen, cleaned_offset, believed
        )
        names = set(files.listdir(path))
    else:
        first_base = end_offset
        recovery_point = end_offset
    if (start_offset := max(log_start_offset or 0, segments[0].base_offset)) > end_offset:
        log.warning("%s ends at %d, before its start %d: it starts again there", path, end_offset, start_offset)
        for segment in segments:
            segment.unlink_files()
        names = _without_garbage(files, path)
        segments = [Segment.create(files, path, start_offset, now_ms=now_ms)]
        files.fsync_dir(path)
        end_offset, recovery_point, first_base, seen = start_offset, start_offset, start_offset, SeenBatches()
        is_short = True
    fit_epochs(epochs, segments, seen.headers, first_base, start_offset, end_offset, clean=clean)
    producers, snapshot = load_producers(files, path, names, segments, end_offset, first_base, seen)
    active = segments[-1]
    for segment in segments[first_checked:-1]:  # their other index files are written
        if segment.index_is_behind():
            segment.write_indexes(preallocate=None)
    if active.aborts is None:  # appends count on it
        found = read(files, active.path(TXN_INDEX), active.base_offset, end_offset)
        active.aborts = rebuild_aborts(files, path, segments, active) if found is None else found
    active.flushed = recovery_point > active.base_offset
    for segment in segments:
        segment.close_file()  # most logs are idle, and descriptors are few
    return LogParts(
        segments=segments,
        epochs=epochs,
        producers=producers,
        start_offset=start_offset,
        end_offset=end_offset,
        recovery_point=min(recovery_point, end_offset),
        clean=clean,
        snapshot_offset=snapshot,
        is_short=is_short,
        rolled=[s for s in segments[:-1] if s.offsets is not None],
    )


def _without_garbage(files: FileSystem, path: str) -> set[str]:
    """The names in the directory, after what a crash or a deletion left was removed."""
    names = complete_swaps(files, path)
    was_cut = any(name.endswith(LOG + DELETED) for name in names)
    for name in sorted(names):
        stem, dot, suffix = name.rpartition(".")
        orphan = dot + suffix in (INDEX, TIME_INDEX, TXN_INDEX) and stem + LOG not in names
        if orphan or name.endswith(_GARBAGE):
            files.unlink(f"{path}/{name}")
            names.discard(name)
    if was_cut:  # perhaps not on the device: a loss of power must not bring back what this start does not see
        files.fsync_dir(path)
    return names


def _segments(files: FileSystem, path: str, names: set[str], now_ms: TimestampMs) -> list[Segment]:
    segments = []
    for base_offset in sorted(found for name in names if (found := offset_of(name, LOG)) is not None):
        segment = Segment(files, path, base_offset, created_ms=now_ms)
        segment.size = files.file_size(segment.path(LOG))
        if f"{base_offset:020d}{TXN_INDEX}" in names:
            segment.aborts = None
        segments.append(segment)
    return segments


def _restore(active: Segment, now_ms: TimestampMs) -> Offset | None:
    """The end of the log after a clean stop; None if the active segment is not as a clean stop leaves it."""
    try:
        return active.restore(size=active.size, now_ms=now_ms)
    except CorruptRecordError as e:
        log.warning("%r is damaged in spite of a clean stop, it is recovered: %s", active, e)
        return None


def _first_unsynced(segments: list[Segment], recovery_point: Offset) -> int:
    """Number of the first segment that may hold something unsynced."""
    i = len(segments) - 1
    while i and segments[i].base_offset > recovery_point:
        i -= 1
    return i


def _recover(
    files: FileSystem,
    path: str,
    segments: list[Segment],
    first: int,
    config: LogConfig,
    now_ms: TimestampMs,
    seen: SeenBatches,
    cleaned_offset: Offset | None,
    believed: tuple[int, Offset] | None,
) -> tuple[Offset, bool]:
    """Check the segments from number ``first`` on, and that from the position that ``believed`` has; cut the log at the
    first bad batch. The end offset, and whether what was cut off is more than one torn write."""
    end_offset, is_short = segments[first].base_offset, False
    for i in range(first, len(segments)):
        segment = segments[i]
        size = segment.size
        resumed = believed if i == first else None
        good, end_offset = _check_segment(segment, now_ms, config.index_interval_bytes, seen, resumed)
        later = segments[i + 1 :]
        # A segment that lost its end, but not within a batch, shows only by the hole before the next one.
        following = later[0].base_offset if later else end_offset
        is_hole = following != end_offset and (cleaned_offset is None or following > cleaned_offset)
        if good < size or is_hole:
            is_short = bool(later) or not _is_torn_write(segment, good)
            log.warning(
                "%s: %d bytes from position %d (offset %d) on are no whole batches%s: cut off, with %d later segments",
                segment.path(LOG), size - good, good, end_offset, ", or missing" if good == size else "", len(later),
            )  # fmt: skip
            for lost in reversed(later):
                lost.unlink_files()
            # Durably, and in this order: nothing of it may turn up between what is appended next.
            files.fsync_dir(path)
            segment.truncate(good, end_offset)
            segment.flush()
            del segments[i + 1 :]
            break
        if i + 1 < len(segments):
            segment.become_inactive()
    return end_offset, is_short


def _is_torn_write(segment: Segment, position: int) -> bool:
    """Whether a segment ends within the batch at ``position``, and not with what no broker has written."""
    left = segment.size - position
    data = segment.handle().pread(min(HEADER_SIZE, left), position)
    if len(data) < HEADER_SIZE:
        return True
    try:
        return parse_header(data).size > left
    except CorruptRecordError:
        return False


def _check_segment(
    segment: Segment, now_ms: TimestampMs, interval: int, seen: SeenBatches, resumed: tuple[int, Offset] | None
) -> tuple[int, Offset]:
    """Check every batch of a segment and make its indexes again; with ``resumed``, from that position and offset on.

    Stops at the first batch that is torn, fails its CRC or does not follow the one before, and goes on doing so when
    it is read again, from the device: what is cut off for one bit that a read got wrong is lost for good. The position
    and the offset up to which all is good; ``seen`` gets the headers of the good ones.
    """
    segment.created_ms = now_ms
    if resumed is None:
        segment.forget()
        if segment.aborts is None:
            segment.forget_aborts()  # what they are is found by the batches (producer_replay.py)
    good, end_offset = (0, segment.base_offset) if resumed is None else resumed
    doubted = -1
    while True:
        good, end_offset = _check_from(segment, good, end_offset, interval, seen)
        if good == segment.size or good == doubted:
            return good, end_offset
        doubted = good
        segment.handle().drop_cache()


def _check_from(
    segment: Segment, good: int, end_offset: Offset, interval: int, seen: SeenBatches
) -> tuple[int, Offset]:
    """From position ``good`` on, where ``end_offset`` is the next one."""
    size, handle = segment.size, segment.handle()
    while good < size:
        data = handle.pread(min(_READ_BYTES, size - good), good)
        used = 0
        while (header := _following(data, used, end_offset, size - good)) is not None:
            if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                return good + used, end_offset  # no index could name it
            if used + header.size > len(data):
                if used:
                    break  # the next read begins with it
                data = handle.pread(header.size, good)
            if not crc_ok(data, used, header):
                return good + used, end_offset
            segment.note(good + used, header.size, header.last_offset, header.max_timestamp, interval)
            seen.add(header, memoryview(data)[used : used + header.size] if header.is_control else b"")
            used += header.size
            end_offset = header.next_offset
        if not used:
            return good, end_offset
        good += used
    return good, end_offset


def _following(data: bytes, at: int, end_offset: Offset, available: int) -> BatchHeader | None:
    """The header at ``at`` if its batch may follow ``end_offset`` and be whole in ``available`` bytes from the
    start of ``data``; also None when ``data`` ends before the header does."""
    if len(data) - at < HEADER_SIZE:
        return None
    try:
        header = parse_header(data, at)
    except CorruptRecordError:
        return None
    if at + header.size > available or header.base_offset < end_offset or header.last_offset_delta < 0:
        return None
    return header
