"""One partition on this broker: its role, its high watermark, its in-sync replicas, and who waits for it.

Owns what a leader needs; what is so in any role is hosted_replica.py. The bytes are the log's, the roles are the
controller's. Changes on the loop only. Disk work goes through the queue of the log's directory and comes back later,
when everything may be different: each completion checks the leader epoch that it was started in.

    CREATING --(log made)--> FOLLOWER <--(LeaderAndIsr)--> LEADER        any --(disk died)--> OFFLINE

The table of these is REPLICA (transitions.py). What nothing acked is ever lost rests on:
* the high watermark of a leader is at most the end of every member of the maximal ISR (isr.py), and never moves
  back while it leads; nor does it move while the ISR is below min.insync.replicas, so that those that left it then
  still have all that is committed, and may be elected (KIP-966);
* an acks=all append is answered without error only when the high watermark has passed it, while we still lead in
  the epoch in which it was appended;
* work of an earlier role is finished (``settled``) before the new role reads the end of the log: a leader's epoch
  starts, and a follower's first fetch begins, at an end that nothing old can move;
* an append whose epoch is over does not touch the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from holdfast.model.errors import (
    HoldfastError,
    KafkaStorageError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
)
from holdfast.model.types import BrokerEpoch, BrokerId, Offset, TopicId, TopicPartition
from holdfast.replication import isr_changes
from holdfast.replication.append_call import AppendCall
from holdfast.replication.hold import OfLog
from holdfast.replication.hosted_replica import HostedReplica
from holdfast.replication.isr import FollowerProgress, IsrState
from holdfast.replication.refused import RefusedBatches
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.transitions import REPLICA, Turn
from holdfast.replication.types import OF_CLIENT, AppendTerms, PartitionState, ProduceResult, Role
from holdfast.storage.log import AppendInfo, Log

JOINING_LAG_MS = 500
"""A replica outside of the ISR that has been behind for longer than this is not about to join it."""


class ConsumerWait(Protocol):
    """A consumer's fetch that waits for news of the partition."""

    def on_progress(self, partition: Partition) -> None:
        """The high watermark has moved, or the log's start."""

    def lost(self, partition: Partition, error: HoldfastError) -> None:
        """The partition does not lead here any more."""


class FollowerEntry(OfLog, Protocol):
    """The partition in a follower's fetch session."""

    @property
    def asked_ms(self) -> int:
        """When its follower asked last."""

    def on_append(self, end_offset: Offset, now_ms: int) -> None:
        """The log has grown."""

    def high_watermark_moved(self) -> None:
        """The next answer tells it."""

    def start_moved(self) -> None:
        """The log begins later."""

    def lost(self, error: HoldfastError) -> None:
        """The partition does not lead here any more, or not in this epoch."""


class Partition(HostedReplica):
    """See the module's docstring."""

    __slots__ = (
        "appends",
        "consumer_waits",
        "deletions",
        "entries",
        "followers",
        "hw_followers",
        "last_read",
        "questioned",
        "reads",
        "refused",
        "waiting",
    )

    def __init__(self, around: Surroundings, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        super().__init__(around, topic_partition, topic_id)
        self.followers: dict[BrokerId, FollowerProgress] = {}
        self.hw_followers: tuple[FollowerProgress, ...] = ()
        """The followers in the maximal ISR."""
        self.appends: dict[AppendCall, None] = {}
        """Appends that the disk has not answered, in order."""
        self.waiting: deque[AppendCall] = deque()
        """Appends that wait for the high watermark, by ``required``."""
        self.consumer_waits: dict[ConsumerWait, None] = {}
        self.entries: dict[BrokerId, FollowerEntry] = {}
        """Followers' fetch sessions that have this partition."""
        self.deletions: list[Callable[[], bool]] = []
        """DeleteRecords that wait for the followers; each tells if it is through."""
        self.refused = RefusedBatches()
        self.last_read: Offset | None = None
        self.reads = 0
        """How often consumers were sent what is at ``last_read``, in a row."""
        self.questioned: Offset | None = None
        """What was read again last, because somebody could not take it (question.py)."""

    # -- roles ---------------------------------------------------------------------------------------------------

    def is_followed_since(self, moment_ms: int) -> bool:
        """Whether it leads, and every other in-sync replica has asked it for more later than that: nobody else led it
        then, since whoever is elected has been in sync, and follows nobody."""
        own = self.around.broker_id
        others = [self.entries.get(broker) for broker in self.isr.committed if broker != own]
        return self.is_open and all(entry is not None and entry.asked_ms > moment_ms for entry in others)

    def become_leader(self, state: PartitionState, now_ms: int, opened: Callable[[], None]) -> None:
        """Lead from now on; ``opened`` is called when the partition can serve."""
        standing = REPLICA.after(self.standing, Turn.LEAD)
        self._leave_role(self.not_leader(), state)
        self.role = standing.role
        self.epoch_start = None
        self.isr = IsrState(state.isr, state.partition_epoch, state.eligible, state.recovering)
        self.followers = {}
        self._update_followers(now_ms)

        def settled() -> None:
            assert self.log is not None, "a leader has a log"
            REPLICA.after(self.standing, Turn.SETTLED)
            # Never raised to the end of the log (H-13): only the in-sync replicas can do that.
            self.clamp_high_watermark()
            self.epoch_start = self.log.view.end_offset
            assert self.high_watermark <= self.epoch_start, f"{self}: {self.high_watermark} is beyond the end"
            self._begin_epoch(self.log)
            if self.followers:
                self.around.watched[self] = None
            opened()
            if self.is_open:
                isr_changes.recovered(self)
            self.advance(self.around.clock())

        self.when_settled(settled)

    def _begin_epoch(self, log: Log) -> None:
        """Our log shall know where our epoch begins before anything is written in it, as followers ask for it
        (KIP-101). In the turn of the disk's thread: the first append comes behind it."""
        epoch = self.leader_epoch

        def begin() -> None:
            if self.leader_epoch == epoch:
                log.assign_epoch(epoch)

        self.disk_works += 1
        log.dir.queue.submit(begin, lambda *_: self.disk_work_done())

    def become_follower(self, state: PartitionState, settled: Callable[[], None]) -> None:
        """Follow ``state.leader``; ``settled`` is called when the log stands still and may be fetched into."""
        standing = REPLICA.after(self.standing, Turn.FOLLOW)
        self._leave_role(self.not_leader(), state)
        self.role = standing.role
        self.isr = IsrState(state.isr, state.partition_epoch, state.eligible)
        self.when_settled(settled)

    def refresh(self, state: PartitionState, now_ms: int) -> None:
        """The same leadership with another ISR or other replicas."""
        self._take(state)
        dropped = [b for b in self.isr.committed if b not in state.isr]
        if self.role is Role.LEADER and self.around.traffic is not None:
            self.around.traffic.isr_changed(len(self.isr.committed), len(state.isr))
        self.isr.commit(state.isr, state.partition_epoch, state.eligible, state.recovering)
        if self.role is Role.LEADER:
            self._update_followers(now_ms)
            if dropped:  # the controller had a reason
                isr_changes.refused(self, dropped, now_ms)
            isr_changes.changed(self, now_ms)

    def go_offline(self, error: HoldfastError, *, disk_is_dead: bool) -> None:
        """Serve nothing more; everybody who waits is told ``error`` now."""
        standing = REPLICA.after(self.standing, Turn.DISK_DIED if disk_is_dead else Turn.CLOSE)
        self._leave_role(error)
        self.role = standing.role
        self.on_settled = None

    def resign(self) -> None:
        """The broker is stopping: neither lead nor follow, until the next epoch."""
        standing = REPLICA.after(self.standing, Turn.RESIGN)
        self._leave_role(self.not_leader())
        self.role = standing.role
        self.on_settled = None

    def _leave_role(self, error: HoldfastError, state: PartitionState | None = None) -> None:
        """Whoever waits for the old role hears of its end, and who leads by ``state``; what the disk still does is
        told by its epoch."""
        self.around.watched.pop(self, None)
        self.around.retrying.pop(self, None)
        self.role = Role.FOLLOWER  # callers that come back from the answers below are not served by the old role
        if state is None:
            self.leader = None
        else:
            self._take(state)
        self.epoch_start = None
        self.questioned = self.last_read = None
        self.followers = {}
        self.hw_followers = ()
        waiting, self.waiting = self.waiting, deque()
        for call in waiting:
            call.fail(error)
        for call in list(self.appends):  # whoever waits for a disk that hangs shall ask the next leader now
            if not call.finished:
                call.refuse(error)
        for wait in list(self.consumer_waits):
            wait.lost(self, error)
        for entry in list(self.entries.values()):
            entry.lost(error)
        self.entries.clear()
        deletions, self.deletions = self.deletions, []
        for check in deletions:
            check()

    def _update_followers(self, now_ms: int) -> None:
        me, known, isr = self.around.broker_id, self.followers, self.isr
        self.followers = {
            b: known.get(b) or FollowerProgress(b, now_ms if b in isr.committed else 0)
            for b in self.replicas
            if b != me
        }
        for broker_id in isr.maximal:
            # A member that is no replica any more still holds the high watermark until the controller says so.
            if broker_id != me and broker_id not in self.followers:
                self.followers[broker_id] = known.get(broker_id) or FollowerProgress(broker_id, now_ms)
        self.choose_hw_followers()

    def choose_hw_followers(self) -> None:
        """The ISR changed."""
        maximal = self.isr.maximal
        self.hw_followers = tuple(f for b, f in self.followers.items() if b in maximal)

    # -- appending -----------------------------------------------------------------------------------------------

    def append(
        self,
        batches: bytearray | memoryview,
        acks: int,
        timeout_ms: int,
        now_ms: int,
        done: Callable[[ProduceResult], None],
        terms: AppendTerms = OF_CLIENT,
    ) -> None:
        """Append as leader; see LocalReplicas.append."""
        log = self.log
        if self.traffic is not None:
            self.traffic.produces += 1
        if self.epoch_start is None or log is None:
            error = self.refusal() or self.not_leader()
            self._refuse_at_once(batches, error, now_ms, done)
            return
        if acks == -1 and not self.has_enough_replicas(log):
            error = NotEnoughReplicasError(
                f"{self.topic_partition}: {len(self.isr.committed)} in sync, expected "
                f"min.insync.replicas={log.config.min_insync_replicas}"
            )
            self._refuse_at_once(batches, error, now_ms, done)
            return
        if not self.hw_followers and not log.dir.answers:
            # Nobody else is about to lead, whose becoming the leader would answer what waits for the disk.
            error = KafkaStorageError(f"{self.topic_partition}: log dir {log.dir.path} does not answer")
            self._refuse_at_once(batches, error, now_ms, done)
            return
        call = AppendCall(self, log, batches, acks, timeout_ms, now_ms, done, terms)
        self.appends[call] = None
        if self.hold is not None:
            self.hold.keep(partial(self.submit, call))
            return
        self.submit(call)

    def _refuse_at_once(
        self,
        batches: bytearray | memoryview,
        error: HoldfastError,
        now_ms: int,
        done: Callable[[ProduceResult], None],
    ) -> None:
        if self.traffic is not None:
            self.traffic.produce_failed(error, len(batches))
        self.refused.add(batches, error, now_ms)
        done(ProduceResult(error, error_message=error.message))

    def submit(self, call: AppendCall) -> None:
        """To the disk, of the log that there is now."""
        self.disk_works += 1
        if self.log is None or self.role is not Role.LEADER:
            call.completed(None, self.refusal() or self.not_leader())
            return
        call.log = self.log
        self.log.dir.queue.submit(call.run, call.completed)

    def appended(self, call: AppendCall, info: AppendInfo) -> None:
        """An append of this epoch is in the log: wake the followers, answer or wait."""
        now_ms = self.around.clock()
        if self.followers:
            self.around.watched[self] = None
            for follower in self.followers.values():
                if follower.behind_since_ms is None:
                    follower.behind_since_ms = now_ms
        if call.acks != -1:
            call.succeed()
        else:
            self._wait_for_commit(call, info.last_offset + 1)
        if not self.hw_followers:
            self.advance(now_ms)
        if call.acks == -1 and not call.finished:
            call.park(self.around.deadlines, now_ms)
        if self.entries:
            end_offset = info.last_offset + 1
            for entry in tuple(self.entries.values()):
                entry.on_append(end_offset, now_ms)

    def _wait_for_commit(self, call: AppendCall, required: Offset) -> None:
        if self.high_watermark >= required:
            self._committed(call)
            return
        call.required = required
        waiting = self.waiting
        if not waiting or waiting[-1].required <= required:
            waiting.append(call)
            return
        # A duplicate of an earlier batch waits for that one, not for what came since.
        at = len(waiting)
        while at and waiting[at - 1].required > required:
            at -= 1
        waiting.insert(at, call)

    def _committed(self, call: AppendCall) -> None:
        log = self.log
        assert log is not None, "a leader has a log"
        if self.has_enough_replicas(log):
            call.succeed()
        else:
            call.fail(self._too_few_after(log))

    def _refuse_to_commit(self, log: Log, end: Offset) -> None:
        """All that is left of the ISR has what is before ``end``, but that is not enough to commit it."""
        waiting = self.waiting
        while waiting and waiting[0].required <= end and not self.has_enough_replicas(log):
            waiting.popleft().fail(self._too_few_after(log))
            waiting = self.waiting  # the answer may have led to another role

    def _too_few_after(self, log: Log) -> HoldfastError:
        return NotEnoughReplicasAfterAppendError(
            f"{self.topic_partition}: only {len(self.isr.committed)} in sync after the append, expected "
            f"min.insync.replicas={log.config.min_insync_replicas}"
        )

    # -- the high watermark --------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Raise the high watermark to what every member of the maximal ISR has; answer who waited for that."""
        log = self.log
        if self.epoch_start is None or log is None:
            return
        new = log.view.end_offset
        assert self.epoch_start <= new, f"{self}: its epoch begins at {self.epoch_start}, beyond the end {new}"
        for follower in self.hw_followers:
            end_offset = follower.end_offset
            if end_offset is None:
                return
            if end_offset < new:
                new = end_offset
        if new <= self.high_watermark:
            return
        if self.isr.eligible or not self.has_enough_replicas(log):
            self._refuse_to_commit(log, new)
            return
        if len(self.hw_followers) != len(self.followers):
            new = self._not_past_joining(new, now_ms)
            if new <= self.high_watermark:
                return
        self.high_watermark = new
        if log.view.unstable is not None:
            log.producers.committed = new
        for entry in self.entries.values():
            entry.high_watermark_moved()
        waiting = self.waiting
        while waiting and waiting[0].required <= self.high_watermark:
            self._committed(waiting.popleft())
            waiting = self.waiting  # the answer may have led to another role
        if self.consumer_waits:
            for wait in tuple(self.consumer_waits):
                wait.on_progress(self)

    def _not_past_joining(self, new: Offset, now_ms: int) -> Offset:
        """A replica that keeps up but is not in the ISR yet could never join if we ran away from it. One that has
        stopped to keep up, on a full disk say, is not waited for as long as a member is."""
        limit = min(JOINING_LAG_MS, self.around.settings.replica_lag_time_max_ms)
        for broker_id, follower in self.followers.items():
            if (
                broker_id in self.entries
                and broker_id not in self.isr.maximal
                and follower.end_offset is not None
                and follower.end_offset < new
                and follower.refused_until_ms <= now_ms
                and not follower.lags(now_ms, limit)
            ):
                new = follower.end_offset
        return new

    # -- followers and the ISR -----------------------------------------------------------------------------------

    def follower_fetched(
        self,
        follower: FollowerProgress,
        offset: Offset,
        log_start_offset: Offset | None,
        broker_epoch: BrokerEpoch | None,
        now_ms: int,
    ) -> None:
        """A follower asked for ``offset``, in this leader epoch and without divergence: it has all before."""
        log = self.log
        assert log is not None, "a leader has a log"
        follower.fetched(offset, log.view.end_offset, log_start_offset, broker_epoch, now_ms)
        if follower.broker_id not in self.isr.maximal:
            isr_changes.maybe_expand(self, follower, now_ms)
        self.advance(now_ms)
        self.check_deletions()

    def check_deletions(self) -> None:
        """DeleteRecords that waited for a follower: it has followed, or is not waited for any more."""
        if self.deletions:
            self.deletions = [check for check in self.deletions if not check()]
