"""One partition's log: append, roll, truncate, retain, delete. Reading it is readable_log.py.

Owns the segments of one partition, its leader epochs, producer states and start offset. Never decides who leads
or what is committed. Reads no clock: every method that needs the time is told.

Threads: everything that changes the log runs on its dir's queue. What the loop may see is ``view``, an immutable
picture replaced as a whole after each change, and ``read``, which works on such a picture.

Invariants: start_offset <= end_offset; segments are contiguous in offsets, the last one is active; offsets below
``recovery_point`` are on the device; what is in ``view`` has been written to the file (not: synced).
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from holdfast.model.config import LogConfig
from holdfast.model.errors import KafkaStorageError, LogAppendError, OffsetOutOfRangeError
from holdfast.model.types import Offset, TimestampMs, TopicId, TopicPartition
from holdfast.storage import leader_epochs, partition_metadata
from holdfast.storage.cleaned_log import Planned
from holdfast.storage.dir_scan import DELETE_SUFFIX, marked_name
from holdfast.storage.files import Buffer
from holdfast.storage.growing_log import GrowingLog
from holdfast.storage.log_dir import Guard, LogDir, Suspect
from holdfast.storage.log_view import AppendInfo, FileSlice, LogView
from holdfast.storage.producer_replay import drop_snapshots_after, rebuild_producers
from holdfast.storage.recovery import forget_memory, load_parts, new_parts
from holdfast.storage.recovery_point import (
    RecoveryPointAhead,
    drop_older_snapshots,
    staged_snapshot,
    sync_point,
)
from holdfast.storage.retention import ANY, below_start, too_many_bytes, too_old
from holdfast.storage.segment import ColdRead, Segment
from holdfast.storage.segment_list import is_old
from holdfast.storage.segment_names import SNAPSHOT
from holdfast.storage.txn_index import NO_ABORTS
from holdfast.storage.validation import base_of_first, place_fetched

__all__ = ["AppendInfo", "ColdRead", "FileSlice", "Log", "LogView"]

log = logging.getLogger(__name__)


class Log(GrowingLog):
    """One replica on one disk. See the module for who may call what."""

    __slots__ = ()

    @classmethod
    def open(
        cls,
        directory: LogDir,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        *,
        clean_shutdown: bool,
        now_ms: TimestampMs,
        recovery_point: Offset = 0,
        log_start_offset: Offset | None = None,
        cleaned_offset: Offset | None = None,
        suspect: Suspect | None = None,
    ) -> "Log":
        """The log in its directory, made if it is missing, recovered if the last stop was not clean.

        ``suspect``: to whom errors are put down that are not the directory's; None: all are.
        """
        path = f"{directory.path}/{topic_partition}"
        files = directory.files
        is_new, is_torn = True, False
        with directory.guard():
            try:
                files.mkdir(path)
            except FileExistsError:
                is_new = False
        with Guard(directory, KafkaStorageError, suspect):
            if is_new:
                try:
                    if topic_id is not None:
                        partition_metadata.write(files, path, topic_id)
                    parts = new_parts(files, path, start_offset=log_start_offset or 0, now_ms=now_ms)
                except OSError:
                    with suppress(OSError):  # it is made elsewhere now, if it can be
                        files.rmtree(path)
                    raise
            else:
                if not clean_shutdown:
                    forget_memory(files, path, recovery_point)
                topic_id = partition_metadata.check(files, path, topic_id)
                is_torn = topic_id is None and files.exists(f"{path}/{partition_metadata.FILE_NAME}")
                parts = load_parts(
                    files,
                    path,
                    config,
                    clean=clean_shutdown,
                    now_ms=now_ms,
                    recovery_point=recovery_point,
                    log_start_offset=log_start_offset,
                    cleaned_offset=cleaned_offset,
                )
        log = cls(directory, path, topic_partition, topic_id, config, parts)
        log.is_torn, log.cleaned_offset = is_torn, cleaned_offset
        return log

    def release(self) -> None:
        """Give the files back as they are: the directory is offline."""
        self._segments.release()

    def adopt_topic_id(self, topic_id: TopicId) -> None:
        """The log had none (it was made by an older version, or a crash took the file)."""
        with self.guard():
            partition_metadata.write(self.dir.files, self.path, topic_id)
        self.topic_id = topic_id

    # -- append --------------------------------------------------------------------------------------------

    def append_as_follower(
        self, batches: Buffer, now_ms: TimestampMs, leader_start: Offset | None = None
    ) -> AppendInfo | None:
        """Write the leader's batches as they are; None if there is no whole one.

        OffsetsOutOfOrderError unless they follow the end of the log (a gap is fine: compaction leaves them). A log
        without a byte that ends within the first batch begins again where that batch does: the leader's log may begin
        within a batch. Once they are written this log begins at ``leader_start``, if that is later.
        """
        view = self.view
        end_offset = view.end_offset if view.size else base_of_first(batches, view.end_offset)
        fetched = place_fetched(batches, end_offset, view.last_epoch, self.topic_partition)
        placed = fetched.placed
        if not placed:
            return None
        if end_offset < view.end_offset:
            self.truncate_fully_and_start_at(end_offset, now_ms)
        with self.guard(LogAppendError):
            for epoch, start in fetched.epochs:
                self.epochs.assign(epoch, start)
            size = placed[-1].at + placed[-1].size
            data = batches if size == len(batches) else memoryview(batches)[:size]
            rolled = partial(self._rolled_within, fetched.producers)
            wrote = partial(self._wrote_within, fetched.producers)
            self._write(data, placed, end_offset, fetched.max_timestamp, now_ms, rolled, wrote)
        end_offset = placed[-1].last_offset + 1
        if leader_start is not None and leader_start > self.view.start_offset:
            self.delete_records_before(min(leader_start, end_offset))
        if end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()
        view = self.view
        return AppendInfo(placed[0].base_offset, end_offset - 1, None, view.start_offset, view.last_epoch, False)

    # -- roll, flush, close --------------------------------------------------------------------------------

    def roll_if_due(self, now_ms: TimestampMs, most: int | None = None) -> bool:
        """Begin a new segment if the active one is older than segment.ms by the clock, or has ``most`` bytes."""
        active = self._segments.active
        if not active.size:
            return False
        with self.guard():
            is_full = most is not None and active.size >= most
            if not is_full and not is_old(active, self.config, self.topic_partition, now_ms, now_ms):
                return False
            self._roll(self.view.end_offset, now_ms)
        self._publish(self.view.start_offset, self.view.end_offset)
        return True

    @property
    def has_retired(self) -> bool:
        """There are retired files: ``take_retired`` will have some."""
        return self._segments.has_retired

    @property
    def has_rolled(self) -> bool:
        """There are rolled segments that are not synced: ``flush_rolled`` has work."""
        return bool(self._segments.rolled)

    def rolled(self) -> list[Segment]:
        """The rolled segments that are not synced yet."""
        return list(self._segments.rolled)

    def sync_batches(self, segments: Sequence[Segment]) -> None:
        """Sync the batches of rolled segments, and nothing else: on any thread. It may take seconds, and appends
        need not wait for it."""
        meter = self.dir.meter
        with self.guard():
            for segment in segments:
                began = 0 if meter is None else meter.ticks()
                segment.sync_batches()
                if meter is not None:
                    meter.flushed(began, is_long=True)

    def flush_rolled(self, synced: Sequence[Segment] | None = None) -> None:
        """Sync the segments that were rolled and move the recovery point behind them. ``synced``: only these,
        for which ``sync_batches`` is done."""
        with self.guard():
            safe = self._flush_rolled(synced)
        self.recovery_point = max(self.recovery_point, safe)

    def begin_recovery_point(self) -> RecoveryPointAhead | None:
        """What a recovery point within the active segment needs is written, not synced; None while a rolled segment
        before it is not synced either, or there is nothing new. What is flushed already needs one, too: by it alone a
        start knows where to go on."""
        segment, offset = self._segments.active, self.view.end_offset
        if self.has_rolled or not segment.unchecked:
            return None
        with self.guard():
            segment.unchecked = 0
            segment.write_indexes(preallocate=self.config.segment_index_bytes)
            self.epochs.write_ahead()
        self.producers.end_offset = offset
        return RecoveryPointAhead(segment, offset, self.times_cut, self.producers.encode())

    def sync_recovery_point(self, point: RecoveryPointAhead) -> bool:
        """Bring it to the device: on any thread. It may take seconds, and appends need not wait for it."""
        meter = self.dir.meter
        began = 0 if meter is None else meter.ticks()
        with self.guard():
            is_synced = sync_point(self.dir.files, self.path, point, (f"{self.path}/{leader_epochs.FILE_NAME}",))
        if meter is not None:
            meter.flushed(began, is_long=True)
        return is_synced

    def take_recovery_point(self, point: RecoveryPointAhead) -> None:
        """It is synced: it counts, unless the log was cut meanwhile."""
        staged = staged_snapshot(self.path, point)
        rolled = self.rolled()
        with self.guard():
            if point.cuts != self.times_cut or (rolled and rolled[0] is not point.segment):
                self.dir.files.unlink(staged)
                return
            self._flush_rolled(())
            self.dir.files.rename(staged, f"{self.path}/{point.offset:020d}{SNAPSHOT}")
            drop_older_snapshots(self.dir.files, self.path, self._segments.all)
        point.segment.flushed = True
        self.recovery_point = max(self.recovery_point, point.offset)

    def note_cleaned(self, planned: Planned, end: Offset) -> None:
        """What a cleaning has written is on the device, and what that was made of needs no flush any more."""
        super().note_cleaned(planned, end)
        self.flush_rolled(())

    def flush_if_due(self, now_ms: TimestampMs) -> None:
        """flush.ms: sync when the last sync is that long ago."""
        if self.last_flush_ms is None or now_ms < self.last_flush_ms:
            self.last_flush_ms = now_ms
        if now_ms - self.last_flush_ms >= self.config.flush_ms:
            self.flush()
            self.last_flush_ms = now_ms

    def write_indexes(self) -> None:
        """Show in the active segment's index files what is in memory: for people who look at a running log."""
        active = self._segments.active
        if active.index_is_behind():
            with self.guard():
                active.write_indexes(preallocate=self.config.segment_index_bytes)

    def close(self, *, clean: bool, sync: bool = True) -> None:
        """Give the files back. ``clean``: all is as the next start need not look; on the device too, if ``sync``
        (else the caller brings it there, for many logs at once, before anybody is told)."""
        if clean:
            if sync:
                self.flush()
            with self.guard():
                active = self._segments.active
                if active.changed:
                    active.become_inactive()
                end_offset = self.view.end_offset
                if self._snapshot_offset != end_offset and end_offset > self._segments.all[0].base_offset:
                    self._rolled(end_offset)
                self.epochs.write_ahead()
            self.recovery_point = end_offset
        self._segments.release()

    # -- retention -----------------------------------------------------------------------------------------

    def delete_old_segments(self, now_ms: TimestampMs, high_watermark: Offset, most: int = ANY) -> int:
        """Retire segments by age, size and the log's start, at most so many; how many. Never one not committed."""
        config, segments, end = self.config, self._segments.rested(), self.view.end_offset
        with self.guard():
            count = self._retire_leading(min(most, below_start(segments.all, self.view.start_offset)), now_ms)
            if config.delete:
                rule = high_watermark, now_ms, config.retention_ms, most - count
                count += self._retire_leading(too_old(self.dir.files, segments.all, end, *rule), now_ms)
                large = too_many_bytes(segments.all, end, high_watermark, config.retention_bytes)
                count += self._retire_leading(min(most - count, large), now_ms)
        return count

    def _retire_leading(self, count: int, now_ms: TimestampMs) -> int:
        """The first ``count`` segments go; a new active one comes first if that is all of them."""
        if not count:
            return 0
        if count == len(self._segments.all):
            self._roll(self.view.end_offset, now_ms)
        going = self._segments.drop_first(count)
        start_offset = max(self.view.start_offset, self._segments.all[0].base_offset)
        self._publish(start_offset, self.view.end_offset)
        self._segments.retire(going, now_ms)  # first: on a full disk nothing can be written, and this makes room
        self.epochs.truncate_from_start(start_offset)
        log.info("%s: %d segments deleted, it starts at %d", self.topic_partition, count, start_offset)
        return count

    def take_retired(self, now_ms: TimestampMs) -> list[str]:
        """Files that were retired file.delete.delay.ms ago: they are to be removed, and are told once."""
        return self._segments.take_retired(now_ms - self.config.file_delete_delay_ms)

    def delete_records_before(self, offset: Offset) -> Offset:
        """Move the log's start (DeleteRecords, or a leader's start); the start then. Never backwards."""
        view = self.view
        if offset > view.end_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition}: new start {offset}: expected {view.start_offset} to {view.end_offset}"
            )
        if offset > view.start_offset:
            with self.guard():
                self.epochs.truncate_from_start(offset)
            self._publish(offset, view.end_offset)
        return self.view.start_offset

    # -- truncate ------------------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset, now_ms: TimestampMs) -> None:
        """Cut everything from ``offset`` on. In the middle of a batch the whole batch goes, and in a gap the gap, so
        that the end of the log is the end of its data. Before the log's start nothing is left."""
        view = self.view
        if offset >= view.end_offset:
            # A leader that wrote nothing may have left its epoch here; the next leader never heard of it.
            with self.guard():
                self.epochs.truncate_from_end(view.end_offset)
            if view.last_epoch != self.epochs.latest:  # or it was forgotten before, and the file could not be written
                self._publish(view.start_offset, view.end_offset)
            return
        segments = self._segments
        if offset < view.start_offset or offset <= segments.all[0].base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return
        with self.guard():
            position, base_offset, end_offset = view.segment_for(offset - 1).cut_point(offset)
        if end_offset < view.start_offset:
            self.truncate_fully_and_start_at(min(offset, base_offset), now_ms)
            return
        with self._all_or_failed():
            self._cut(offset, position, end_offset, now_ms)
        with self.guard():
            self.epochs.write_ahead()

    def _cut(self, offset: Offset, position: int, end_offset: Offset, now_ms: TimestampMs) -> None:
        view, segments = self.view, self._segments
        if self.cuts is not None:
            self.cuts.append((end_offset, False))
        going = segments.drop_from(offset)
        segment = segments.active
        self._load_aborts(segment)
        older_size = sum(s.size for s in segments.all[:-1])
        # Readers see the new end first, then the bytes go.
        self.view = view._replace(
            end_offset=end_offset,
            end_position=position,
            segments=segments.all,
            size=older_size + position,
            aborting=[s for s in segments.all if s.aborts is not NO_ABORTS],
        )
        self._lower_recovery_point(end_offset)
        # Durably, and names before bytes: what is cut off must not turn up between what is appended next.
        segments.retire(going[::-1], now_ms)
        if drop_snapshots_after(self.dir.files, self.path, end_offset) or going:
            segments.sync_names()
        segment.truncate(position, end_offset)
        segment.cut_aborts(end_offset)
        segment.flush()
        self.epochs.forget_from(end_offset)
        self._snapshot_offset = None
        committed = self.producers.committed
        self.producers = rebuild_producers(self.dir.files, self.path, segments.all, end_offset)
        self.producers.committed = committed
        self._publish(view.start_offset, end_offset)

    def truncate_fully_and_start_at(self, offset: Offset, now_ms: TimestampMs) -> None:
        """Nothing is kept; the next batch is at ``offset`` or later."""
        if self.cuts is not None:
            self.cuts.append((offset, True))
        with self._all_or_failed():
            self._lower_recovery_point(offset)
            self._segments.restart(offset, now_ms)
            self.epochs.forget_from(-1)
            drop_snapshots_after(self.dir.files, self.path, -1)
            self._segments.sync_names()
            self._snapshot_offset = None
            self.producers.clear(offset)
            lowered = offset < self.view.start_offset
            self._publish(offset, offset)
            if lowered and self.dir.on_log_start_lowered is not None:
                self.dir.on_log_start_lowered()
        self.recovery_point = offset
        with self.guard():
            self.epochs.write_ahead()

    def _lower_recovery_point(self, offset: Offset) -> None:
        """The checkpoint must not say that what will be written after ``offset`` is synced."""
        lowered, self.recovery_point = offset < self.recovery_point, min(offset, self.recovery_point)
        self._forget_cleaned(offset)
        if lowered and self.dir.on_recovery_points_lowered is not None:
            self.dir.on_recovery_points_lowered()

    # -- delete --------------------------------------------------------------------------------------------

    def rename_for_delete(self, unique: str) -> str:
        """Move the directory to ``<topic>-<partition>.<unique>-delete``; the new path. It is no log any more, and what
        is in it is removed later, aside (removal.py)."""
        path = f"{self.dir.path}/{marked_name(self.topic_partition, unique, DELETE_SUFFIX)}"
        with self.guard():
            self.dir.files.rename(self.path, path)
        self.path = path
        self.epochs.moved(path)
        self._segments.moved(path)
        return path
