"""One append as leader, from the disk's queue to the answer.

Owns the order of things of a single Produce partition: written by the disk's thread, then (acks=all) waiting for
the high watermark, then answered, exactly once. Decides nothing about replicas; partition.py does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from holdfast.model.errors import (
    HoldfastError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
)
from holdfast.model.types import LeaderEpoch, TopicPartition
from holdfast.replication.refused import RefusedBatches
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.traffic import TopicTraffic
from holdfast.replication.types import OF_CLIENT, AppendTerms, ProduceResult, Role
from holdfast.replication.waiters import WaiterDeadlines
from holdfast.storage.log import AppendInfo, Log


class AppendedTo(Protocol):
    """The partition of an append, as far as the append has to know it."""

    topic_partition: TopicPartition
    leader_epoch: LeaderEpoch
    role: Role
    around: Surroundings
    refused: RefusedBatches
    appends: dict[AppendCall, None]
    waiting: deque[AppendCall]
    traffic: TopicTraffic | None

    def not_leader(self) -> HoldfastError: ...

    def appended(self, call: AppendCall, info: AppendInfo) -> None: ...

    def disk_work_done(self) -> None: ...


class AppendCall:
    """One append as leader: the work for the disk, its completion, and then the wait for the high watermark.

    The buffer belongs to the caller again when ``done`` is called. That may be before the disk's thread is through
    with it, when the role ends: then a view of it is still alive (broker/connection.py forgets such a buffer).
    """

    __slots__ = (
        "_batches",
        "_began_at",
        "_deadline_ms",
        "_done",
        "_now_ms",
        "_parked",
        "_parked_at",
        "_size",
        "_terms",
        "acks",
        "finished",
        "info",
        "leader_epoch",
        "log",
        "partition",
        "required",
    )

    def __init__(
        self,
        partition: AppendedTo,
        log: Log,
        batches: bytearray | memoryview,
        acks: int,
        timeout_ms: int,
        now_ms: int,
        done: Callable[[ProduceResult], None],
        terms: AppendTerms = OF_CLIENT,
    ) -> None:
        self.partition = partition
        self.log = log
        self.leader_epoch = partition.leader_epoch
        self.acks = acks
        self.finished = False
        self.info: AppendInfo | None = None
        self.required = 0
        """The high watermark that it waits for."""
        self._batches: bytearray | memoryview | None = batches
        self._began_at = 0
        """With _parked_at in ticks of the traffic; 0: not yet, or nobody counts."""
        self._now_ms = now_ms
        self._deadline_ms = now_ms + timeout_ms
        self._done: Callable[[ProduceResult], None] | None = done
        self._parked = False
        self._parked_at = 0
        self._size = len(batches)
        self._terms = terms

    def run(self) -> AppendInfo:
        """On the disk's thread. Reads the partition's epoch without a lock: it only has to be not older than
        what the loop had decided when this began; whatever comes later waits for us to be settled."""
        batches, traffic = self._batches, self.partition.around.traffic
        if traffic is not None:
            self._began_at = traffic.ticks()
        if batches is None or self.partition.leader_epoch != self.leader_epoch:
            raise NotLeaderOrFollowerError(
                f"{self.partition.topic_partition}: leader epoch {self.leader_epoch} is over"
            )
        if self._terms is OF_CLIENT:
            return self.log.append_as_leader(batches, self.leader_epoch, self._now_ms)
        return self.log.append_as_leader(batches, self.leader_epoch, self._now_ms, **self._terms._asdict())

    def completed(self, info: AppendInfo | None, error: HoldfastError | None) -> None:
        """On the loop, when the disk is through."""
        partition = self.partition
        del partition.appends[self]
        try:
            if self.finished:
                return
            if error is not None or info is None:
                self.refuse(error or KafkaStorageError(f"{partition.topic_partition}: the append has no result"))
            elif partition.leader_epoch != self.leader_epoch or partition.role is not Role.LEADER:
                self.refuse(partition.not_leader())  # it may be cut again
            else:
                if partition.refused and self._batches is not None:
                    partition.refused.appended(self._batches)
                self._batches = None
                self.info = info
                traffic = partition.traffic
                if traffic is not None:
                    traffic.bytes_in += self._size
                    traffic.messages_in += info.last_offset - info.base_offset + 1
                partition.appended(self, info)
        finally:
            partition.disk_work_done()

    def refuse(self, error: HoldfastError) -> None:
        """Answer with an error, and remember it: what the producer sends next may be out of order because of it."""
        refused, batches, now_ms = self.partition.refused, self._batches, self.partition.around.clock()
        if batches is not None:
            error = refused.explain(batches, error, now_ms)
            refused.add(batches, error, now_ms)
        self.fail(error)

    def park(self, deadlines: WaiterDeadlines, now_ms: int) -> None:
        """It is in the log and waits for the in-sync replicas."""
        if now_ms >= self._deadline_ms:
            self.expire(now_ms)
            return
        self._parked = True
        traffic = self.partition.around.traffic
        if traffic is not None:
            self._parked_at = traffic.ticks()
        deadlines.add(self._deadline_ms, self)

    def succeed(self) -> None:
        """Answer with where it is."""
        info = self.info
        assert info is not None, "succeeds only after its append"
        waited_ns, parked_at = 0, self._parked_at
        if parked_at and (traffic := self.partition.around.traffic) is not None:
            waited_ns = traffic.ticks() - parked_at
        time_ms, start = info.log_append_time_ms, info.log_start_offset
        self._finish(ProduceResult(None, info.base_offset, time_ms, start, None, waited_ns, self._began_at))

    def fail(self, error: HoldfastError) -> None:
        """Answer with an error."""
        if self.partition.traffic is not None:
            self.partition.traffic.produce_failed(error, self._size)
        self._finish(ProduceResult(error, error_message=error.message or None))

    def expire(self, now_ms: int) -> None:
        """The request's time is over: the records may still be replicated, or not."""
        self._parked = False
        waiting = self.partition.waiting
        if self in waiting:
            waiting.remove(self)
        self.fail(RequestTimedOutError(f"{self.partition.topic_partition}: not on all in-sync replicas in time"))

    def _finish(self, result: ProduceResult) -> None:
        done = self._done
        assert done is not None, "answered twice"
        self.finished = True
        self._batches = self._done = None
        if self._parked:
            self._parked = False
            self.partition.around.deadlines.finished()
        done(result)
