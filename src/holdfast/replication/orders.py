"""Obeying the controller: LeaderAndIsr and StopReplica for the partitions of this broker.

Owns the way from "what the controller wants" to roles: checks epochs, has logs made and deleted, moves partitions
between leading and following. Requests are desired state: repeating one is success (C16), an older one changes
nothing. The answer to a request comes when every log that it needs is made, cannot be, or is not waited for any more
(order_waits.py); roles are taken on the way and do not wait for each other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from holdfast.model.config import LogConfig
from holdfast.model.errors import (
    BrokerUnavailableError,
    HoldfastError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    StaleControllerEpochError,
)
from holdfast.model.fates import ReplicaFate
from holdfast.model.types import BrokerId, ControllerEpoch, TopicPartition
from holdfast.replication.follower import FetcherState
from holdfast.replication.hold import Hold
from holdfast.replication.order_waits import Creation, OrderResults, Result
from holdfast.replication.partition import Partition
from holdfast.replication.remembered_stops import RememberedStops
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.types import OrderDone, PartitionState, Role, StopReplica
from holdfast.storage.log import Log
from holdfast.storage.standings import ReplicaState

if TYPE_CHECKING:
    from holdfast.storage.log_dir import LogDir
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)


class Orders:
    """See the module's docstring. Owns the table of partitions and the fetchers."""

    def __init__(self, around: Surroundings, logs: LogManager, log_config: Callable[[str], LogConfig]) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self.fetchers: dict[tuple[BrokerId, str], FetcherState] = {}
        self.controller_epoch: ControllerEpoch = -1
        self._around = around
        self._logs = logs
        self._log_config = log_config
        self._creations: dict[TopicPartition, Creation] = {}
        self._followed: dict[TopicPartition, FetcherState] = {}
        self._stops = RememberedStops()
        self._resigned = False

    def _stale(self, controller_epoch: ControllerEpoch | None) -> HoldfastError | None:
        if controller_epoch is None:
            return None
        if controller_epoch < self.controller_epoch:
            return StaleControllerEpochError(
                f"controller epoch {controller_epoch}: expected {self.controller_epoch} or later"
            )
        self.controller_epoch = controller_epoch
        return None

    # -- LeaderAndIsr --------------------------------------------------------------------------------------------

    def apply(
        self,
        states: Sequence[PartitionState],
        controller_epoch: ControllerEpoch,
        now_ms: int,
        done: OrderDone,
    ) -> None:
        """See LocalReplicas.apply_leader_and_isr."""
        stale = self._stale(controller_epoch)
        if stale is None and self._resigned:
            stale = BrokerUnavailableError(f"broker {self._around.broker_id} is stopping")
        if stale is not None or not states:
            done({state.topic_partition: stale for state in states})
            return
        answer = OrderResults([state.topic_partition for state in states], done)
        for state in states:
            tp = state.topic_partition
            self._apply_one(state, now_ms, partial(answer.put, tp))
            answer.limit(tp, self._around, now_ms, self._logs.waits_on, self._overdue)

    def _overdue(self, tp: TopicPartition, directory: LogDir | None) -> HoldfastError | None:
        """The disk has done nothing for this order for too long. A new log is made on another directory, if there is
        one that may have it (K112-09); for everything else the answer is that it did not answer."""
        creation = self._creations.get(tp)
        if directory is not None:
            directory.give_up_on()
        if creation is not None and creation.stopped is None and self._logs.new.elsewhere(tp):
            return None
        if creation is not None:
            creation.is_overdue = True
        return _no_answer(tp, directory)

    def _apply_one(self, state: PartitionState, now_ms: int, result: Result) -> None:
        tp = state.topic_partition
        partition = self.partitions.get(tp)
        gone_in = self._stops.after(state)
        if gone_in is not None:
            result(StaleControllerEpochError(f"{tp}: leader epoch {state.leader_epoch}: it had to go in {gone_in}"))
            return
        if partition is not None and partition.topic_id != state.topic_id:
            self._replace(partition, state, now_ms, result)
        elif partition is None:
            self._create(state, now_ms, result)
        elif partition.role is Role.CREATING:
            creation = self._creations[tp]
            creation.stopped = None  # an order that is older than that one did not get here
            if _is_newer(state, creation.state):
                creation.state = state
            if creation.is_overdue:
                result(_no_answer(tp, self._logs.waits_on(tp)))
            else:
                creation.wait(result)
        elif partition.role is Role.OFFLINE:
            if partition.log is None or self._may_return(state) or self._may_be_made_anew(state):
                del self.partitions[tp]
                self._create(state, now_ms, result)
            else:
                result(KafkaStorageError(f"{tp}: its log directory is offline"))
        else:
            result(self._take_role(partition, state, now_ms))

    def _may_return(self, state: PartitionState) -> bool:
        me, known = self._around.broker_id, self.partitions.get(state.topic_partition)
        is_later = known is None or state.leader_epoch > known.leader_epoch
        return self._logs.standings.may_return(
            state.topic_partition,
            leads=state.leader == me,
            recovers=state.recovering and is_later,
            counts=me in state.isr or me in state.eligible,
        )

    def _may_be_made_anew(self, state: PartitionState) -> bool:
        me, tp = self._around.broker_id, state.topic_partition
        counts = state.leader == me or me in state.isr or me in state.eligible
        is_coming = state.is_new and me in state.adding_replicas
        if not self._logs.standings.may_be_made_anew(tp, is_coming=is_coming, counts=counts):
            return False
        if self._logs.standings.of(tp) is ReplicaState.AWAY:
            self._logs.held.forget(tp)
        return True

    def _replace(self, partition: Partition, state: PartitionState, now_ms: int, result: Result) -> None:
        """The topic was deleted and made again while we did not hear of it: the old replica goes (H-24)."""
        if partition.role is Role.CREATING:
            # Its disk will answer sooner or later; until then there is nothing that could be deleted.
            creation = self._creations[partition.topic_partition]
            waiting = creation.successor[1] if creation.successor is not None else []
            waiting.append(result)
            creation.successor = (state, waiting)
            if creation.is_overdue:
                result(_no_answer(partition.topic_partition, self._logs.waits_on(partition.topic_partition)))
            return
        self._drop(partition, partition.not_leader())
        self._delete_and_create(state, now_ms, result)

    def _delete_and_create(self, state: PartitionState, now_ms: int, result: Result) -> None:
        def deleted(error: HoldfastError | None) -> None:
            if error is not None:
                result(error)
            else:
                self._apply_one(state, now_ms, result)

        existing = self._logs.get(state.topic_partition)
        if existing is not None and not existing.dir.is_online:
            # What it has is out of date when it comes back (K112-80); the new topic need not wait for that.
            self._logs.held.forget(state.topic_partition)
        self._logs.delete(state.topic_partition, now_ms=now_ms, done=deleted)

    def _create(self, state: PartitionState, now_ms: int, result: Result) -> None:
        tp = state.topic_partition
        self._logs.settle(tp, state.topic_id, now_ms)
        if self._logs.standings.fate(tp) is not None and not self._may_return(state):
            error = KafkaStorageError(f"{tp}: its log directory is back, and the controller has not heard of it")
            self.partitions[tp] = Partition(self._around, tp, state.topic_id)
            self.partitions[tp].go_offline(error, disk_is_dead=True)
            result(error)
            return
        existing = self._logs.get(tp)
        if existing is not None and existing.topic_id not in (None, state.topic_id):
            self._delete_and_create(state, now_ms, result)
            return
        self.partitions[tp] = Partition(self._around, tp, state.topic_id)
        creation = self._creations[tp] = Creation(state)
        creation.wait(result)
        self._logs.new.create(
            tp,
            state.topic_id,
            self._log_config(tp.topic),
            is_new=state.is_new,
            now_ms=now_ms,
            done=partial(self._created, tp),
        )

    def _created(self, tp: TopicPartition, made: Log | None, error: HoldfastError | None) -> None:
        creation, partition = self._creations.pop(tp), self.partitions[tp]
        now_ms = self._around.clock()
        if made is None:
            if isinstance(error, KafkaStorageError) and creation.stopped is None and creation.successor is None:
                # It is on a directory that cannot be used, or may be: clients hear 56, and it is counted (K112-21).
                partition.go_offline(error, disk_is_dead=True)
            else:
                del self.partitions[tp]
            if creation.is_overdue and creation.state.is_new:
                self._logs.standings.refused(tp)
            creation.end(error or KafkaStorageError(f"{tp}: its log was not made"))
            self._succeed(creation, now_ms)
            return
        partition.attach(made, self._logs.held.mark_of(tp))
        stopped = creation.stopped
        if stopped is not None or creation.successor is not None or self._resigned:
            self._drop(partition, partition.not_leader())
            creation.end(partition.not_leader())
            if stopped is not None and stopped.delete and creation.successor is None:
                self._logs.delete(tp, now_ms=now_ms, done=lambda _: None)
            self._succeed(creation, now_ms)
            return
        if creation.is_overdue:
            # The controller counts it as offline, and may have decided more by that: it is told that it is back.
            self._drop(partition, partition.not_leader())
            # Not as lost: it never had more, and may lead where nobody else can.
            self._logs.standings.back(tp, ReplicaFate.DAMAGED)
            return
        if not made.is_online:
            self._drop_offline(partition, KafkaStorageError(f"{tp}: its log directory is offline"))
            creation.end(KafkaStorageError(f"{tp}: its log directory is offline"))
            return
        creation.end(self._take_role(partition, creation.state, now_ms))

    def _succeed(self, creation: Creation, now_ms: int) -> None:
        """The log of an earlier topic was made or not: now the one that is wanted since."""
        if creation.successor is None:
            return
        state, waiting = creation.successor

        def tell(error: HoldfastError | None) -> None:
            for result in waiting:
                result(error)

        self._apply_one(state, now_ms, tell)

    def _take_role(self, partition: Partition, state: PartitionState, now_ms: int) -> HoldfastError | None:
        if state.leader_epoch < partition.leader_epoch:
            return StaleControllerEpochError(
                f"{partition.topic_partition}: leader epoch {state.leader_epoch}: expected {partition.leader_epoch} "
                "or later"
            )
        if state.leader_epoch == partition.leader_epoch and partition.leader == state.leader:
            if state.partition_epoch > partition.isr.partition_epoch:
                partition.refresh(state, now_ms)
            return None
        was_leader = partition.role is Role.LEADER
        self._unfollow(partition.topic_partition)
        if state.leader == self._around.broker_id:
            partition.become_leader(state, now_ms, partial(self._leads, partition, state.leader_epoch))
        else:
            partition.become_follower(state, partial(self._follow, partition))
            if was_leader:
                self._around.outbox.leadership_changed(partition.topic_partition, False, state.leader_epoch)
        return None

    def _leads(self, partition: Partition, leader_epoch: int) -> None:
        self._around.outbox.leadership_changed(partition.topic_partition, True, leader_epoch)

    def _follow(self, partition: Partition) -> None:
        """The log stands still: fetch from the leader, if there is one."""
        if partition.leader is None or partition.log is None or partition.role is not Role.FOLLOWER:
            return
        directory = partition.log.dir.path
        key = (partition.leader, directory)
        fetcher = self.fetchers.get(key)
        if fetcher is None:
            fetcher = self.fetchers[key] = FetcherState(self._around, partition.leader, directory)
        self._followed[partition.topic_partition] = fetcher
        fetcher.add(partition)

    def _unfollow(self, tp: TopicPartition) -> None:
        fetcher = self._followed.pop(tp, None)
        if fetcher is not None:
            fetcher.remove(tp)

    # -- StopReplica ---------------------------------------------------------------------------------------------

    def stop(
        self,
        replicas: Sequence[StopReplica],
        controller_epoch: ControllerEpoch | None,
        now_ms: int,
        done: OrderDone,
    ) -> None:
        """See LocalReplicas.stop_replicas."""
        stale = self._stale(controller_epoch)
        if stale is not None or not replicas:
            done({order[0]: stale for order in replicas})
            return
        answer = OrderResults([order[0] for order in replicas], done)
        for order in replicas:
            tp = order.topic_partition
            self._stop_one(order, now_ms, partial(answer.put, tp))
            answer.limit(tp, self._around, now_ms, self._logs.waits_on, self._overdue)

    def _stop_one(self, order: StopReplica, now_ms: int, result: Result) -> None:
        tp = order.topic_partition
        if self._meant_for_another(order):
            result(None)
            return
        partition = self.partitions.get(tp)
        creation = self._creations.get(tp)
        newest = creation.state.leader_epoch if creation is not None else partition.leader_epoch if partition else -1
        if order.leader_epoch is not None and 0 <= order.leader_epoch < newest:
            result(StaleControllerEpochError(f"{tp}: leader epoch {order.leader_epoch}: expected {newest} or later"))
            return
        if order.delete and order.topic_id is not None:
            self._stops.remember(tp, order.topic_id, order.leader_epoch)
        if creation is not None:
            if creation.successor is not None:
                self._stop_successor(creation, order, result)
                return
            creation.stopped = order
            if creation.is_overdue:
                result(_no_answer(tp, self._logs.waits_on(tp)))
            else:
                creation.wait(lambda error: result(error if isinstance(error, KafkaStorageError) else None))
            return
        if partition is not None and partition.role is Role.OFFLINE:
            existing = self._logs.get(tp)
            if self._logs.may_be_on_unread(tp) or (existing is not None and not existing.is_online):
                result(KafkaStorageError(f"{tp}: its log directory is offline"))  # K112-71
                return
            # Its disk is back, and no order has come to serve it again; or it is gone with its disk.
            del self.partitions[tp]
        elif partition is not None:
            # A log that is opened again in this process begins where it was, not at the start's checkpoint.
            self._logs.held.note_marks({tp: partition.high_watermark})
            self._drop(partition, partition.not_leader())
        if order.delete:
            self._logs.held.forget_mark(tp)
            existing = self._logs.get(tp)
            is_mute = existing is not None and existing.dir.is_online and not existing.dir.answers
            self._logs.delete(tp, now_ms=now_ms, done=result)
            if existing is not None and is_mute:  # it goes when its disk answers
                result(_no_answer(tp, existing.dir))
        else:
            result(None)

    def forget_offline(self, is_hosted: Callable[[TopicPartition], bool]) -> None:
        """See LocalReplicas.forget_offline."""
        for tp, partition in list(self.partitions.items()):
            gone = partition.role is Role.OFFLINE and partition.log is None and not is_hosted(tp)
            if gone and not self._logs.may_be_on_unread(tp):
                del self.partitions[tp]

    @staticmethod
    def _stop_successor(creation: Creation, order: StopReplica, result: Result) -> None:
        """What was to come after the log that is being made shall not come either."""
        assert creation.successor is not None, "the caller looked"
        state, waiting = creation.successor
        creation.successor, creation.stopped = None, order
        error = NotLeaderOrFollowerError(f"{state.topic_partition}: stopped before its log was made")
        for waiter in waiting:
            waiter(error)
        result(None)

    def _meant_for_another(self, order: StopReplica) -> bool:
        """The topic of that name is not the one that was deleted: it has been made again since (H-24)."""
        if order.topic_id is None:
            return False
        tp = order.topic_partition
        creation, partition, found = self._creations.get(tp), self.partitions.get(tp), self._logs.get(tp)
        if creation is not None:
            newest = creation.state if creation.successor is None else creation.successor[0]
            return newest.topic_id != order.topic_id
        if partition is not None:
            return partition.topic_id != order.topic_id
        return found is not None and found.topic_id not in (None, order.topic_id)

    def remove_strays(
        self, is_hosted: Callable[[TopicPartition], bool], controller_epoch: ControllerEpoch, now_ms: int
    ) -> None:
        """See LocalReplicas.remove_strays. What no partition.metadata calls ours is left alone, but for torn ones."""
        if self._stale(controller_epoch) is not None or self._resigned:
            return
        logs = self._logs.logs()
        ours = {e.topic_partition for e in logs if e.topic_id is not None or (e.is_torn and not e.view.size)}
        for tp in sorted(ours.union(self.partitions)):
            if not is_hosted(tp):
                log.warning("%s: the cluster does not have it here any more: deleted", tp)
                partition = self.partitions.get(tp)
                if partition is not None:
                    creation = self._creations.get(tp)
                    ordered = -1 if creation is None else creation.state.leader_epoch
                    self._stops.remember(tp, partition.topic_id, max(partition.leader_epoch, ordered))
                self._stop_one(StopReplica(tp, None, True), now_ms, lambda _: None)

    def _drop(self, partition: Partition, error: HoldfastError) -> None:
        tp = partition.topic_partition
        was_leader = partition.role is Role.LEADER
        self._unfollow(tp)
        if self.partitions.get(tp) is partition:
            del self.partitions[tp]
        partition.go_offline(error, disk_is_dead=False)
        if was_leader:
            self._around.outbox.leadership_changed(tp, False, partition.leader_epoch)

    # -- moves between directories ---------------------------------------------------------------------------------

    def hold(self, tp: TopicPartition, held: Log, quiet: Callable[[], None]) -> Hold | None:
        """See LocalReplicas.hold."""
        partition = self.partitions.get(tp)
        if (
            partition is None
            or partition.log is not held
            or partition.hold is not None
            or partition.role not in (Role.LEADER, Role.FOLLOWER)
            or self._resigned
        ):
            return None
        self._unfollow(tp)

        def resume() -> None:
            if (
                self.partitions.get(tp) is partition
                and partition.role is Role.FOLLOWER
                and partition.on_settled is None
            ):
                partition.when_settled(partial(self._follow, partition))

        return Hold(partition, quiet, resume)

    # -- what goes wrong -----------------------------------------------------------------------------------------

    def log_dir_failed(self, log_dir: LogDir) -> None:
        """See LocalReplicas.log_dir_failed."""
        error = KafkaStorageError(f"log directory {log_dir.path} is offline")
        for partition in list(self.partitions.values()):
            if partition.log is not None and partition.log.dir is log_dir and partition.role is not Role.OFFLINE:
                self._drop_offline(partition, error)

    def log_failed(self, tp: TopicPartition) -> None:
        """See LocalReplicas.log_failed."""
        partition = self.partitions.get(tp)
        if partition is not None and partition.log is not None and partition.role is not Role.OFFLINE:
            self._drop_offline(partition, KafkaStorageError(f"{tp}: {partition.log.failure}"))

    def give_way(self, tp: TopicPartition) -> bool:
        """See LocalReplicas.give_way."""
        if (partition := self.partitions.get(tp)) is None:
            return True
        counts = self._around.broker_id in (*partition.isr.committed, *partition.isr.eligible)
        if counts or partition.role in (Role.CREATING, Role.LEADER) or partition.hold is not None:
            return False
        if partition.role is Role.FOLLOWER:
            self._drop_offline(partition, KafkaStorageError(f"{tp}: another copy of it is back"))
        return True

    def _drop_offline(self, partition: Partition, error: HoldfastError) -> None:
        """It stays in the table: clients must hear 56, not 6 (K112-21)."""
        was_leader = partition.role is Role.LEADER
        self._unfollow(partition.topic_partition)
        partition.go_offline(error, disk_is_dead=True)
        if was_leader:
            self._around.outbox.leadership_changed(partition.topic_partition, False, partition.leader_epoch)

    def resign(self) -> None:
        """Stop leading and following everything, for good."""
        self._resigned = True
        for partition in list(self.partitions.values()):
            if partition.role in (Role.LEADER, Role.FOLLOWER):
                was_leader = partition.role is Role.LEADER
                self._unfollow(partition.topic_partition)
                partition.resign()
                if was_leader:
                    self._around.outbox.leadership_changed(partition.topic_partition, False, partition.leader_epoch)


def _no_answer(tp: TopicPartition, directory: LogDir | None) -> HoldfastError:
    where = "its log directory" if directory is None else f"log dir {directory.path}"
    return KafkaStorageError(f"{tp}: {where} does not answer")


def _is_newer(state: PartitionState, than: PartitionState) -> bool:
    return (state.leader_epoch, state.partition_epoch) >= (than.leader_epoch, than.partition_epoch)
