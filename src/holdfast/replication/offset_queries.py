"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords for one led partition.

Answers at once what the loop knows; searches by time run on the disk's thread, and what they find counts only as
far as it is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.model.errors import (
    HoldfastError,
    KafkaStorageError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
)
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs
from holdfast.replication.partition import Partition
from holdfast.replication.types import EpochEnd, Isolation, OffsetResult, SpecialTimestamp
from holdfast.storage.log import Log

Answer = Callable[[OffsetResult | HoldfastError], None]
Found = tuple[TimestampMs, Offset, LeaderEpoch | None] | None


def list_offset(
    partition: Partition,
    what: SpecialTimestamp | int,
    isolation: Isolation,
    current_leader_epoch: LeaderEpoch | None,
    done: Answer,
) -> None:
    """One partition of ListOffsets; an int is a timestamp."""
    error = partition.refusal(current_leader_epoch)
    if error is not None:
        done(error)
        return
    log = partition.log
    assert log is not None, "a leader has a log"
    match what:
        case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
            start = log.view.start_offset
            done(OffsetResult(start, None, log.epoch_at(start)))
        case SpecialTimestamp.LATEST:
            end = _readable_end(partition, isolation)
            done(_not_available(partition) or OffsetResult(end, None, _latest_epoch(partition, log)))
        case SpecialTimestamp.LATEST_TIERED | SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
            done(OffsetResult(None))  # nothing is tiered
        case SpecialTimestamp.MAX_TIMESTAMP:
            _search(partition, log, log.max_timestamp, isolation, done)
        case int():
            _search(partition, log, partial(log.offset_for_timestamp, what), isolation, done)


def _latest_epoch(partition: Partition, log: Log) -> LeaderEpoch | None:
    latest = log.view.last_epoch
    return partition.leader_epoch if latest is None else latest


def _not_available(partition: Partition) -> HoldfastError | None:
    """A new leader does not know yet what was committed before its epoch (KIP-207): it must not tell less than
    the old one did (H-13)."""
    start = partition.epoch_start
    if start is not None and partition.high_watermark < start:
        return OffsetNotAvailableError(
            f"{partition.topic_partition}: high watermark {partition.high_watermark} has not reached {start}, "
            f"where epoch {partition.leader_epoch} begins"
        )
    return None


def _readable_end(partition: Partition, isolation: Isolation) -> Offset:
    """Where a reader stops."""
    return partition.last_stable_offset if isolation is Isolation.READ_COMMITTED else partition.high_watermark


def _search(partition: Partition, log: Log, work: Callable[[], Found], isolation: Isolation, done: Answer) -> None:
    leader_epoch = partition.leader_epoch

    def found(result: Found, error: HoldfastError | None) -> None:
        if error is None and partition.leader_epoch != leader_epoch:
            error = partition.not_leader()
        error = error or partition.refusal()
        if error is not None:
            done(error)
        elif result is None or result[1] >= _readable_end(partition, isolation):
            # What lies beyond may be committed and we do not know it yet.
            done((_not_available(partition) if result is not None else None) or OffsetResult(None))
        else:
            done(OffsetResult(result[1], result[0], result[2]))

    log.dir.queue.submit(work, found)


def offset_for_leader_epoch(
    partition: Partition, epoch: LeaderEpoch, current_leader_epoch: LeaderEpoch | None
) -> EpochEnd | HoldfastError:
    """One partition of OffsetForLeaderEpoch."""
    error = partition.refusal(current_leader_epoch)
    if error is not None:
        return error
    assert partition.log is not None, "a leader has a log"
    found = None if epoch < 0 else partition.epoch_end(partition.log, epoch)
    return EpochEnd(None, None) if found is None else EpochEnd(*found)


class Deletion:
    """One partition of DeleteRecords: raise our log's start, then wait until the in-sync followers have too."""

    __slots__ = ("_done", "_offset", "_partition", "finished")

    def __init__(self, partition: Partition, offset: Offset, done: Callable[[Offset | HoldfastError], None]) -> None:
        self._partition = partition
        self._offset = offset
        self._done: Callable[[Offset | HoldfastError], None] = done
        self.finished = False

    def start(self, log: Log, deadline_ms: int) -> None:
        """Submit the work; answer when all have it."""
        self._partition.around.deadlines.add(deadline_ms, self)
        self._partition.disk_works += 1
        log.dir.queue.submit(partial(log.delete_records_before, self._offset), self._deleted)

    def _deleted(self, _: Offset | None, error: HoldfastError | None) -> None:
        partition = self._partition
        if error is not None:
            self._answer(error)
            partition.disk_work_done()
            return
        for wait in tuple(partition.consumer_waits):
            wait.on_progress(partition)
        if not self.check():
            partition.deletions.append(self.check)
            for entry in tuple(partition.entries.values()):
                entry.start_moved()
        partition.disk_work_done()

    def check(self) -> bool:
        """Answer if all are there, or none can be waited for any more. True: it is answered."""
        if self.finished:
            return True
        partition = self._partition
        error = partition.refusal()
        if error is not None:
            self._answer(error)
            return True
        starts = [f.log_start_offset for f in partition.hw_followers]
        if any(start is None or start < self._offset for start in starts):
            return False
        assert partition.log is not None, "a leader has a log"
        self._answer(min([partition.log.view.start_offset, *(s for s in starts if s is not None)]))
        return True

    def expire(self, now_ms: int) -> None:
        """The followers did not follow in time; our own log is cut all the same."""
        self.finished = True
        self._done(RequestTimedOutError(f"{self._partition.topic_partition}: not deleted on all replicas in time"))

    def _answer(self, result: Offset | HoldfastError) -> None:
        if not self.finished:
            self.finished = True
            self._partition.around.deadlines.finished()
            self._done(result)


def delete_records(
    partition: Partition,
    before: Offset | None,
    timeout_ms: int,
    now_ms: int,
    done: Callable[[Offset | HoldfastError], None],
) -> None:
    """One partition of DeleteRecords; None: all that is committed."""
    error = partition.refusal()
    if error is None and partition.log is None:
        error = KafkaStorageError(f"{partition.topic_partition}: no log")
    if error is not None or partition.log is None:
        done(error or partition.not_leader())
        return
    if partition.hold is not None:
        partition.hold.keep(partial(delete_records, partition, before, timeout_ms, now_ms, done))
        return
    offset = partition.high_watermark if before is None else before
    if offset > partition.high_watermark:
        done(
            OffsetOutOfRangeError(
                f"{partition.topic_partition}: delete before {offset}: expected at most the high watermark "
                f"{partition.high_watermark}"
            )
        )
        return
    Deletion(partition, offset, done).start(partition.log, now_ms + timeout_ms)
