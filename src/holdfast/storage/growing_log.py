"""The half of a log that grows: appends, and what is published of them. The rest of what changes one is log.py.

Owns the order of things in an append: batches are checked, placed and written; then what they say of their producers is
noted, and only then does the loop see them. So a reader never finds a record whose transaction it does not know of.
"""

from collections.abc import Callable, Sequence
from functools import partial

from holdfast.model.config import LogConfig
from holdfast.model.errors import InvalidRecordError, LogAppendError
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition
from holdfast.records.markers import EndMarker, decode_marker
from holdfast.storage import partition_metadata
from holdfast.storage.cleaned_log import CleanedLog
from holdfast.storage.files import Buffer
from holdfast.storage.log_dir import LogDir
from holdfast.storage.log_view import AppendInfo, LogView
from holdfast.storage.recovery import LogParts
from holdfast.storage.segment import Placed, Segment
from holdfast.storage.segment_list import SegmentList
from holdfast.storage.segment_names import SNAPSHOT
from holdfast.storage.txn_index import NO_ABORTS
from holdfast.storage.validation import OfProducer, check_batches, place_produced


class GrowingLog(CleanedLog):
    """See the module's docstring."""

    __slots__ = (
        "_metadata_is_synced",
        "_snapshot_offset",
        "config",
        "cuts",
        "is_short",
        "is_torn",
        "last_flush_ms",
        "producers",
        "recovery_point",
        "topic_id",
    )

    def __init__(
        self,
        directory: LogDir,
        path: str,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        parts: LogParts,
    ) -> None:
        segments = SegmentList(directory.files, path, topic_partition, parts.segments, parts.rolled)
        super().__init__(directory, path, topic_partition, segments, parts.epochs)
        self.topic_id = topic_id
        self.is_torn = False
        """Its partition.metadata is there and says nothing: a crash took it before anything of the log was synced."""
        self.is_short = parts.is_short
        """Something that it had was not on the device when it was opened."""
        self.config = config
        self.producers = parts.producers
        self.recovery_point = parts.recovery_point
        self.last_flush_ms: TimestampMs | None = None
        self.cleaned_offset, self.times_cut = None, 0
        self.cuts: list[tuple[Offset, bool]] | None = None
        """Truncations, for who copies the log (future_log.py): the new end, and whether nothing before it was kept."""
        self._snapshot_offset = parts.snapshot_offset  # of a snapshot file that is known to be right
        self._metadata_is_synced = parts.clean
        self._publish(parts.start_offset, parts.end_offset)

    # -- append --------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        batches: bytearray | memoryview,
        leader_epoch: LeaderEpoch,
        now_ms: TimestampMs,
        *,
        trusted: bool = False,
        verified: bool = True,
        txn_version: int = 0,
        from_zero: bool = False,
    ) -> AppendInfo:
        """Check the batches, give them the next offsets (in place) and write them.

        ``trusted``: the broker made them itself. ``verified``: whether a batch of a transaction is known to be of one
        that has this partition; else it has to be open here. ``txn_version``: of a marker. ``from_zero``: a producer
        that is not known here begins with sequence 0. A duplicate of an idempotent producer's recent batch is not
        written: the answer names the first one.
        """
        config = self.config
        batches, checked = check_batches(batches, config, now_ms, self.topic_partition, trusted=trusted)
        view = self.view
        at, header = checked[0]
        has_producer = header.producer_id >= 0
        marker: EndMarker | None = None
        if has_producer:
            if header.is_control:
                marker = decode_marker(memoryview(batches)[at:], header)
                if marker is None:
                    raise InvalidRecordError(f"control batch of producer {header.producer_id}: expected a marker")
                self.producers.check_marker(header, marker, txn_version)
            else:
                written = self.producers.check(header, sequenced=not trusted, verified=verified, from_zero=from_zero)
                if written is not None:
                    return AppendInfo(
                        written.base_offset, written.last_offset, written.timestamp,
                        view.start_offset, leader_epoch, True,
                    )  # fmt: skip
        base_offset = view.end_offset
        placed, max_timestamp = place_produced(batches, checked, base_offset, leader_epoch)
        end = placed[-1].at + placed[-1].size
        offset = placed[-1].last_offset + 1
        with self.guard(LogAppendError):
            if leader_epoch != view.last_epoch or self.epochs.is_ahead:
                self.epochs.assign(leader_epoch, base_offset)
            data = batches if end == len(batches) else memoryview(batches)[:end]
            if has_producer:
                wrote = partial(self._wrote_within, [OfProducer(checked[0][1], base_offset, marker)])
            else:
                wrote = partial(self._publish, view.start_offset)
            self._write(data, placed, base_offset, max_timestamp, now_ms, self._rolled, wrote)
        if offset - self.recovery_point >= config.flush_messages:
            self.flush()
        time = now_ms if config.message_timestamp_type == "LogAppendTime" else None
        return AppendInfo(base_offset, offset - 1, time, view.start_offset, leader_epoch, False)

    def _write(
        self,
        data: Buffer,
        placed: Sequence[Placed],
        end_offset: Offset,
        max_timestamp: TimestampMs,
        now_ms: TimestampMs,
        rolled: Callable[[Offset], None],
        wrote: Callable[[Offset], None],
    ) -> None:
        """To the segments, counted."""
        meter, began = self.dir.meter, 0
        if meter is not None:
            meter.left -= 1
            if meter.left <= 0:
                began = meter.ticks()
        self._segments.write(data, placed, end_offset, max_timestamp, now_ms, self.config, rolled, wrote)
        if meter is not None:
            meter.appended_bytes += len(data)
            if began:
                meter.appended(began)

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """A leadership begins here: what comes next is of ``epoch``. Touches no file."""
        view = self.view
        if self.epochs.begin(epoch, view.end_offset):
            self.view = view._replace(last_epoch=self.epochs.latest)

    def _publish(self, start_offset: Offset, end_offset: Offset) -> None:
        """The new picture for the loop."""
        segments = self._segments.all
        active = segments[-1]
        old = getattr(self, "view", None)
        if old is not None and old.segments is segments:
            older_size, aborting = old.size - old.end_position, old.aborting
            if active.aborts and (not aborting or aborting[-1] is not active):
                aborting = (*aborting, active)
        else:
            older_size = sum(s.size for s in segments) - active.size
            aborting = [s for s in segments if s.aborts is not NO_ABORTS]
        self.view = LogView(
            start_offset, end_offset, active.size, segments, self.epochs.latest, older_size + active.size,
            self.producers.unstable, aborting,
        )  # fmt: skip

    def _roll(self, base_offset: Offset, now_ms: TimestampMs) -> None:
        """A new active segment. The old one is synced by ``flush`` or ``flush_rolled``, not here."""
        self._segments.roll(base_offset, now_ms)
        self._rolled(base_offset)

    def _rolled(self, offset: Offset) -> None:
        """A segment begins at ``offset``, or the log is closed there: keep what is known of the producers."""
        self.producers.end_offset = offset
        path = f"{self.path}/{offset:020d}{SNAPSHOT}"
        self.dir.files.write_atomic(path, self.producers.encode(), durable=False)
        self._snapshot_offset = offset

    def _rolled_within(self, producers: list[OfProducer], offset: Offset) -> None:
        """As ``_rolled``, within an append of batches of ``producers``: those before ``offset`` are written."""
        self._told_of(producers, offset)
        self._rolled(offset)

    def _wrote_within(self, producers: list[OfProducer], offset: Offset) -> None:
        """Batches of ``producers`` are written up to ``offset``, whatever becomes of the rest."""
        self._told_of(producers, offset)
        self._publish(self.view.start_offset, offset)

    def _told_of(self, producers: list[OfProducer], offset: Offset) -> None:
        """Of the batches that a write is about, those before ``offset`` are written, to the active segment."""
        told = 0
        for header, base_offset, marker in producers:
            if base_offset >= offset:
                break
            told += 1
            aborted = self.producers.update(header, base_offset, marker)
            if aborted is not None:
                self._segments.active.note_aborted(aborted)
        del producers[:told]

    # -- flush ---------------------------------------------------------------------------------------------

    def _flush_rolled(self, synced: Sequence[Segment] | None = None) -> Offset:
        if not self._metadata_is_synced:  # before the first data counts as safe, so must the directory
            partition_metadata.sync(self.dir.files, self.path, self.topic_id)
            self.dir.files.fsync_dir(self.dir.path)
            self._metadata_is_synced = True
        safe = self._segments.sync_rolled(synced)
        self.epochs.flush()
        return safe

    def flush(self) -> None:
        """All that was appended is on the device when this returns."""
        end_offset = self.view.end_offset
        if end_offset == self.recovery_point:
            return
        meter = self.dir.meter
        began = 0 if meter is None else meter.ticks()
        with self.guard():
            self._flush_rolled()
            self._segments.active.flush()
        if meter is not None:
            meter.flushed(began)
        self.recovery_point = end_offset
