"""A replica on this broker, in whatever role: its log, what the controller has said of it, and the work of its disk.

The half of Partition that nobody waits for: how far its log is committed and where the epochs of it end, who may be
served from it, and when all work that changes the log has come back. partition.py is the leader's half.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.errors import (
    FencedLeaderEpochError,
    HoldfastError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from holdfast.model.types import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from holdfast.replication.hold import Hold
from holdfast.replication.isr import IsrState
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.traffic import TopicTraffic
from holdfast.replication.transitions import REPLICA, Standing, Turn
from holdfast.replication.types import PartitionState, Role
from holdfast.storage.log import Log


class HostedReplica:
    """See the module's docstring."""

    __slots__ = (
        "adding",
        "around",
        "disk_works",
        "epoch_start",
        "high_watermark",
        "hold",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "on_settled",
        "replicas",
        "role",
        "topic_id",
        "topic_partition",
        "traffic",
    )

    def __init__(self, around: Surroundings, topic_partition: TopicPartition, topic_id: TopicId) -> None:
        self.around = around
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.role = Role.CREATING
        self.log: Log | None = None
        self.leader: BrokerId | None = None
        self.leader_epoch: LeaderEpoch = -1
        """The epoch of the last order that was obeyed; below any real one before the first."""
        self.replicas: tuple[BrokerId, ...] = ()
        self.adding: tuple[BrokerId, ...] = ()
        """Those of them that a reassignment adds."""
        self.isr = IsrState((), -1)
        self.high_watermark: Offset = 0
        self.epoch_start: Offset | None = None
        """Leader: where its epoch begins. None until the work of the role before is settled: no service yet."""
        self.disk_works = 0
        self.on_settled: Callable[[], None] | None = None
        self.hold: Hold | None = None
        """The log is about to be exchanged for its copy: nothing new is written to it."""
        self.traffic: TopicTraffic | None = None if around.traffic is None else around.traffic.of(topic_partition.topic)

    def __repr__(self) -> str:
        return f"Partition({self.topic_partition} {self.role.value} epoch {self.leader_epoch})"

    # -- disk work -----------------------------------------------------------------------------------------------

    def disk_work_done(self) -> None:
        """One piece of work that changes the log has come back."""
        self.disk_works -= 1
        assert self.disk_works >= 0, f"{self}: more work came back than was given"
        if self.hold is not None:
            self.hold.look()
        if not self.disk_works and self.on_settled is not None:
            go_on, self.on_settled = self.on_settled, None
            go_on()

    def when_settled(self, go_on: Callable[[], None]) -> None:
        """Call when no work on the log is under way; replaces what was to be called before."""
        if self.disk_works:
            self.on_settled = go_on
        else:
            self.on_settled = None
            go_on()

    # -- roles ---------------------------------------------------------------------------------------------------

    @property
    def standing(self) -> Standing:
        """The role, and whether it is served in."""
        return Standing((self.role, self.epoch_start is not None))

    def attach(self, log: Log, high_watermark: Offset | None) -> None:
        """The log is there. Its high watermark is the checkpointed one, as far as the log goes."""
        standing = REPLICA.after(self.standing, Turn.LOG_MADE)
        self.log = log
        view = log.view
        self.high_watermark = min(max(high_watermark or 0, view.start_offset), view.end_offset)
        self.role = standing.role

    def _take(self, state: PartitionState) -> None:
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.replicas = state.replicas
        self.adding = state.adding_replicas

    # -- checks --------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """It leads and serves."""
        return self.epoch_start is not None

    def not_leader(self) -> HoldfastError:
        """What a client hears that should ask somebody else."""
        return NotLeaderOrFollowerError(f"{self.topic_partition}: broker {self.around.broker_id} does not lead it")

    def refusal(self, current_leader_epoch: LeaderEpoch | None = None) -> HoldfastError | None:
        """Why a request for the leader cannot be served here; None when it can."""
        if self.role is Role.OFFLINE:
            return KafkaStorageError(f"{self.topic_partition}: its log directory is offline")
        if current_leader_epoch is not None and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                return FencedLeaderEpochError(
                    f"{self.topic_partition}: leader epoch {current_leader_epoch}: expected {self.leader_epoch}"
                )
            return UnknownLeaderEpochError(
                f"{self.topic_partition}: leader epoch {current_leader_epoch}: {self.leader_epoch} is the newest here"
            )
        return None if self.epoch_start is not None else self.not_leader()

    def has_enough_replicas(self, log: Log) -> bool:
        """The stored ISR is large enough for acks=all: min.insync.replicas, but never more than there are (C23)."""
        in_sync = len(self.isr.committed)
        return in_sync >= log.config.min_insync_replicas or in_sync >= len(self.replicas)

    def epoch_end(self, log: Log, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset] | None:
        """Where ``epoch`` ends in the leader's log, by the largest epoch not above it; None: no such epoch yet.

        Our own epoch counts from ``epoch_start`` on, also while nothing has been written in it.
        """
        start = self.epoch_start
        if start is None or epoch > self.leader_epoch:
            return None
        view = log.view
        if epoch == self.leader_epoch:
            return epoch, view.end_offset
        latest = view.last_epoch
        if latest is None:
            return epoch, start
        if epoch > latest:
            return latest, start
        return log.epoch_end_offset(epoch)

    def divergence(
        self, log: Log, last_fetched_epoch: LeaderEpoch, offset: Offset
    ) -> tuple[LeaderEpoch, Offset] | None:
        """Where a log that has ``last_fetched_epoch`` before ``offset`` must look for the common point with ours;
        None when it agrees with ours so far. OffsetOutOfRangeError: its epoch is not known here."""
        view = log.view
        if last_fetched_epoch == view.last_epoch and offset <= view.end_offset:
            return None
        found = self.epoch_end(log, last_fetched_epoch)
        if found is None:
            raise OffsetOutOfRangeError(f"{self.topic_partition}: epoch {last_fetched_epoch} is not known here")
        return found if found[0] < last_fetched_epoch or found[1] < offset else None

    # -- the high watermark --------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> Offset:
        """Where a reader of committed records stops; never beyond the high watermark."""
        mark, log = self.high_watermark, self.log
        return mark if log is None else log.view.last_stable(mark)

    def follow_marks(self, high_watermark: Offset | None) -> None:
        """The leader's high watermark, as far as our log goes (R-14)."""
        log = self.log
        if high_watermark is not None and log is not None:
            end_offset = log.view.end_offset
            if high_watermark > end_offset:
                high_watermark = end_offset
            if high_watermark > self.high_watermark:
                self.high_watermark = high_watermark
                if log.view.unstable is not None:
                    log.producers.committed = high_watermark

    def clamp_high_watermark(self) -> None:
        """A follower's log was cut, or begins later: the high watermark stays within it."""
        log = self.log
        if log is not None:
            view = log.view
            self.high_watermark = max(min(self.high_watermark, view.end_offset), view.start_offset)
