"""Reading one partition for a fetch: what may be read, and what the answer says beside the data.

Used by consumers' fetches (consumer_fetch.py) and followers' sessions (session.py). Never waits: a page that is
not in memory raises ColdRead, and ``read_cold`` repeats the read on the disk's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from holdfast.model.errors import CorruptRecordError, HoldfastError, OffsetOutOfRangeError
from holdfast.model.types import BrokerId, LeaderEpoch, Offset
from holdfast.replication import question
from holdfast.replication.partition import Partition
from holdfast.replication.types import FetchPartitionQuery, FetchResult
from holdfast.storage.log import FileSlice, Log


class CommittedRead(NamedTuple):
    """What a reader of committed records gets; ``aborted`` as in FetchResult."""

    data: FileSlice | None
    aborted: Sequence[tuple[int, Offset]]


def failed(query: FetchPartitionQuery, error: HoldfastError, partition: Partition | None = None) -> FetchResult:
    """The answer of a partition that cannot be read, with who leads it where we know."""
    leader: tuple[BrokerId | None, LeaderEpoch] | None = None
    start: Offset | None = None
    if partition is not None:
        if partition.traffic is not None:
            partition.traffic.fetch_failed(error)
        if isinstance(error, CorruptRecordError):
            question.ask(partition, query.offset, query.max_bytes)
        if partition.leader is not None:
            leader = (partition.leader, partition.leader_epoch)
        if partition.log is not None:
            start = partition.log.view.start_offset
    return FetchResult(query.topic_partition, error, log_start_offset=start, current_leader=leader)


def check(partition: Partition | None, query: FetchPartitionQuery, unknown: HoldfastError) -> FetchResult | None:
    """Why nothing can be read for this query (an error, or a diverging epoch); None when it can be."""
    if partition is None:
        return failed(query, unknown)
    error = partition.refusal(query.current_leader_epoch)
    if error is not None:
        return failed(query, error, partition)
    log = partition.log
    assert log is not None, "a leader has a log"
    view, offset = log.view, query.offset
    if query.last_fetched_epoch is not None:
        try:
            diverging = partition.divergence(log, query.last_fetched_epoch, offset)
        except OffsetOutOfRangeError as e:
            return failed(query, e, partition)
        if diverging is not None:
            mark = partition.high_watermark
            stable = view.last_stable(mark)
            return FetchResult(query.topic_partition, None, mark, stable, view.start_offset, diverging)
    if offset < view.start_offset or offset > view.end_offset:
        return failed(query, out_of_range(partition, log, offset), partition)
    return None


def out_of_range(partition: Partition, log: Log, offset: Offset) -> OffsetOutOfRangeError:
    """The error of an offset that the log does not have."""
    view = log.view
    return OffsetOutOfRangeError(
        f"{partition.topic_partition}: offset {offset}: expected {view.start_offset} to {view.end_offset}"
    )


def read_cold(
    log: Log,
    offset: Offset,
    max_bytes: int,
    limit: Offset,
    done: Callable[[FileSlice | None, HoldfastError | None], None],
) -> None:
    """Read on the disk's thread, at least one batch."""
    log.dir.queue.submit(partial(_read, log, offset, max_bytes, limit), done)


def read_cold_committed(
    log: Log,
    offset: Offset,
    max_bytes: int,
    limit: Offset,
    done: Callable[[CommittedRead | None, HoldfastError | None], None],
) -> None:
    """As ``read_cold``, with the aborted transactions in it."""
    log.dir.queue.submit(partial(_read_committed, log, offset, max_bytes, limit), done)


def _read_committed(log: Log, offset: Offset, max_bytes: int, limit: Offset) -> CommittedRead:
    data = _read(log, offset, max_bytes, limit)
    return CommittedRead(data, () if data is None else log.aborted(data, limit, blocking=True))


def _read(log: Log, offset: Offset, max_bytes: int, limit: Offset) -> FileSlice | None:
    return log.read(offset, max_bytes, limit, min_one=True, blocking=True)
