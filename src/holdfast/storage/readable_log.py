"""What a log is to who reads it: its picture, the files behind it, and whose fault an error of them is.

The half of Log that changes nothing. ``view`` is an immutable picture, replaced as a whole after each change; ``read``
works on one such picture, on the loop as far as it is in memory. What says ``blocking`` is for the dir's queue.
"""

import logging
from bisect import bisect_right
from contextlib import AbstractContextManager
from operator import attrgetter

from holdfast.model.errors import KafkaStorageError, LogReadError, OffsetOutOfRangeError
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs, TopicPartition
from holdfast.storage.leader_epochs import LeaderEpochs
from holdfast.storage.log_dir import Guard, LogDir
from holdfast.storage.log_times import TimestampOffset, first_at_or_after, newest
from holdfast.storage.log_view import FileSlice, LogView, read_view
from holdfast.storage.producer_replay import rebuild_aborts
from holdfast.storage.segment import ColdRead, Segment
from holdfast.storage.segment_list import SegmentList
from holdfast.storage.segment_names import TXN_INDEX
from holdfast.storage.txn_index import TxnIndex, read

log = logging.getLogger(__name__)


class ReadableLog:
    """See the module's docstring."""

    __slots__ = ("_guards", "_segments", "dir", "epochs", "failure", "path", "topic_partition", "view")

    view: LogView
    """Of who changes the log: there is none before it is published first."""

    def __init__(
        self, directory: LogDir, path: str, topic_partition: TopicPartition, segments: SegmentList, epochs: LeaderEpochs
    ) -> None:
        self.dir = directory
        self.path = path
        self.topic_partition = topic_partition
        self.failure: KafkaStorageError | None = None
        """Why it is not used any more though its directory works (K18-03)."""
        self.epochs = epochs
        self._guards: dict[type[KafkaStorageError], Guard] = {}
        self._segments = segments

    def __repr__(self) -> str:
        return f"Log({self.path!r}, {self.view.start_offset}..{self.view.end_offset})"

    @property
    def is_online(self) -> bool:
        """It and its directory work."""
        return self.failure is None and self.dir.failure is None

    def guard(self, error: type[KafkaStorageError] = KafkaStorageError) -> AbstractContextManager[None]:
        """As LogDir.guard, for work on this log's files: if it alone is to blame, only it goes offline."""
        found = self._guards.get(error)
        if found is None:
            found = self._guards[error] = Guard(self.dir, error, self)
        return found

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        limit_offset: Offset,
        *,
        min_one: bool = True,
        blocking: bool = False,
    ) -> FileSlice | None:
        """Whole batches from the one with ``offset`` on, all before ``limit_offset``; None if there are none.

        The first batch comes even if it is larger than ``max_bytes``, if ``min_one``. On the loop ColdRead says
        that the disk must be asked: repeat with ``blocking`` on the dir's queue. OffsetOutOfRangeError outside
        of start..end.
        """
        view = self.view
        if offset < view.start_offset or offset > view.end_offset:
            raise OffsetOutOfRangeError(
                f"{self.topic_partition}: offset {offset}: expected {view.start_offset} to {view.end_offset}"
            )
        if not blocking:
            failure = self.dir.failure or self.failure
            if failure is not None:
                raise LogReadError(f"{self.topic_partition} in log dir {self.dir.path} is offline: {failure}")
            try:
                return read_view(self, view, offset, max_bytes, limit_offset, min_one=min_one, nowait=True)
            except OSError as e:
                raise self.dir.suspect(e, LogReadError, self) from e
            except IndexError:  # a truncation on the disk's thread changed an index under us
                raise ColdRead from None
        with self.guard(LogReadError):
            found = read_view(self, view, offset, max_bytes, limit_offset, min_one=min_one, nowait=False)
            self._segments.touch(view.segment_for(offset))
            return found

    def aborted(self, data: FileSlice, limit: Offset, *, blocking: bool = False) -> list[tuple[int, Offset]]:
        """(producer id, first offset) of the aborted transactions that may have records in ``data``, which was read
        before ``limit``: for a reader of committed records. ColdRead as in ``read``."""
        view = self.view
        found: list[tuple[int, Offset]] = []
        if not view.aborting:
            return found
        start = data.base_offset
        segment = view.segment_for(start)
        end = min(limit, _end_of(view, segment, data.position + data.size))
        for each in view.aborting:
            if each.base_offset < segment.base_offset:
                continue
            index = each.aborts
            if index is None:
                if not blocking:
                    raise ColdRead
                index = self._load_aborts(each)
            try:
                if index.collect(start, end, found):
                    break
            except IndexError:  # it was cut under us
                raise ColdRead from None
        return found

    def _load_aborts(self, segment: Segment) -> TxnIndex:
        """The aborted transactions of a segment, from its file or, if that is damaged, from the batches. On the dir's
        thread."""
        if segment.aborts is None:
            segments = self.view.segments
            with self.guard(LogReadError):
                end = _next_base(self.view, segment)
                found = read(self.dir.files, segment.path(TXN_INDEX), segment.base_offset, end)
                if found is None:
                    log.warning("%s is damaged: it is made again", segment.path(TXN_INDEX))
                    found = rebuild_aborts(self.dir.files, self.path, segments, segment)
                segment.aborts = found
                self._segments.touch(segment)
        return segment.aborts

    def epoch_end_offset(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """Where ``epoch`` ends in this log, by the largest known epoch not above it (KIP-101, KIP-279)."""
        return self.epochs.end_offset(epoch, self.view.end_offset)

    def epoch_at(self, offset: Offset) -> LeaderEpoch | None:
        """The epoch that wrote ``offset``."""
        return self.epochs.epoch_at(offset)

    def offset_for_timestamp(self, timestamp: TimestampMs) -> TimestampOffset | None:
        """The first record that is not older than ``timestamp``; blocking."""
        with self.guard(LogReadError):
            return first_at_or_after(self.view, timestamp, self._segments.touch)

    def max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp; blocking."""
        with self.guard(LogReadError):
            return newest(self.view, self._segments.touch)


def _end_of(view: LogView, segment: Segment, position: int) -> Offset:
    """An offset that no batch of the segment before ``position`` reaches."""
    bound = segment.bound_after(position)
    return _next_base(view, segment) if bound is None else bound


def _next_base(view: LogView, segment: Segment) -> Offset:
    """Where the next segment begins, or the log ends."""
    i = bisect_right(view.segments, segment.base_offset, key=attrgetter("base_offset"))
    return view.segments[i].base_offset if i < len(view.segments) else view.end_offset
