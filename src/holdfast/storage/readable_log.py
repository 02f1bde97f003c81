"""What a log is to who reads it: its picture, the files behind it, and whose fault an error of them is.

The half of Log that changes nothing. ``view`` is an immutable picture, replaced as a whole after each change; ``read``
works on one such picture, on the loop as far as it is in memory. What says ``blocking`` is for the dir's queue.
"""

from contextlib import AbstractContextManager

from holdfast.model.errors import KafkaStorageError, LogReadError, OffsetOutOfRangeError
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs, TopicPartition
from holdfast.storage.leader_epochs import LeaderEpochs
from holdfast.storage.log_dir import Guard, LogDir
from holdfast.storage.log_times import TimestampOffset, first_at_or_after, newest
from holdfast.storage.log_view import FileSlice, LogView, read_view
from holdfast.storage.segment import ColdRead
from holdfast.storage.segment_list import SegmentList


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
