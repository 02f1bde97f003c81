"""All partitions that this broker holds: the one door to them.

Owns nothing itself but the way to the parts: orders of the controller (orders.py), appends and high watermarks
(partition.py), reads (consumer_fetch.py, session.py), following (follower.py). Synchronous, on the loop thread;
answers come by callbacks, at once or later, exactly once. The shell calls ``tick`` when ``next_deadline_ms`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.model.config import LogConfig
from holdfast.model.errors import HoldfastError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from holdfast.model.fates import LogEnd
from holdfast.model.types import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from holdfast.replication import isr_changes, offset_queries
from holdfast.replication.append_call import AppendCall
from holdfast.replication.consumer_fetch import FetchWait
from holdfast.replication.consumer_session import Served, Topic
from holdfast.replication.fetch_sessions import FetchSessions
from holdfast.replication.follower import FetcherState
from holdfast.replication.orders import Orders
from holdfast.replication.partition import Partition
from holdfast.replication.session import FollowerSession, ParkedFetch, SingleFetch
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.throttle import ThrottleSide
from holdfast.replication.traffic import Traffic
from holdfast.replication.types import (
    OF_CLIENT,
    AppendTerms,
    EpochEnd,
    FetchQuery,
    FetchResult,
    Isolation,
    IsrOutcome,
    IsrProposal,
    OffsetResult,
    OrderDone,
    Outbox,
    PartitionState,
    ProduceResult,
    ReplicationSettings,
    Role,
    SpecialTimestamp,
    StopReplica,
)

if TYPE_CHECKING:
    from holdfast.replication.hold import Hold
    from holdfast.storage.log import Log
    from holdfast.storage.log_dir import LogDir
    from holdfast.storage.log_manager import LogManager

__all__ = ["FetchSessions", "FetchWait", "FollowerSession", "LocalReplicas", "SingleFetch"]

LAG_CHECKS = 4
"""Lagging followers are looked for this many times per replica.lag.time.max.ms."""


class LocalReplicas:
    """See the module's docstring."""

    def __init__(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        settings: ReplicationSettings,
        outbox: Outbox,
        *,
        log_config: Callable[[str], LogConfig],
        is_known: Callable[[TopicPartition], bool],
        clock: Callable[[], int],
        traffic: Traffic | None = None,
    ) -> None:
        """``log_config`` tells the configuration of a topic's logs when one is created; ``is_known`` whether the
        metadata has a partition that is not here (6 instead of 3); ``clock`` is read when a disk has finished, in
        the milliseconds of ``now_ms``; ``traffic`` counts what goes in and out."""
        self.settings = settings
        self._around = Surroundings(broker_id, settings, outbox, clock, traffic)
        self._orders = Orders(self._around, logs, log_config)
        self._partitions = self._orders.partitions
        if traffic is not None:
            traffic.hosted = lambda: (tp.topic for tp in self._partitions)
        self._is_known = is_known
        self._next_lag_check_ms: int | None = None
        # Followers that come back to a restarted leader must not find the session of another one.
        self._next_session = clock() & 0x3FFFFFFF | 1

    # -- orders of the controller --------------------------------------------------------------------------------

    def apply_leader_and_isr(
        self,
        partitions: Sequence[PartitionState],
        *,
        controller_epoch: ControllerEpoch,
        now_ms: int,
        done: OrderDone,
    ) -> None:
        """Make the replicas what the controller says. Per partition: None (also for a repeated order, C16),
        StaleControllerEpochError for an older one, KafkaStorageError where there is no disk for it."""
        self._orders.apply(partitions, controller_epoch, now_ms, done)

    def stop_replicas(
        self,
        replicas: Sequence[StopReplica],
        *,
        controller_epoch: ControllerEpoch | None = None,
        now_ms: int,
        done: OrderDone,
    ) -> None:
        """Stop serving; with ``delete`` also delete the log. KafkaStorageError where it is offline (K112-71)."""
        self._orders.stop(replicas, controller_epoch, now_ms, done)

    def remove_strays(
        self, is_hosted: Callable[[TopicPartition], bool], *, controller_epoch: ControllerEpoch, now_ms: int
    ) -> None:
        """Delete the replicas that the controller, which has just told all there is, does not have here."""
        self._orders.remove_strays(is_hosted, controller_epoch, now_ms)

    def forget_offline(self, is_hosted: Callable[[TopicPartition], bool]) -> None:
        """What directories have is known again: replicas that were to go, and were on none of them, are gone."""
        self._orders.forget_offline(is_hosted)

    def hold(self, tp: TopicPartition, held: Log, quiet: Callable[[], None]) -> Hold | None:
        """Write nothing to the log ``held`` from now on; ``quiet`` is called when nothing is under way. To be released.
        None if the replica is not served from that log, or not now."""
        return self._orders.hold(tp, held, quiet)

    def log_dir_failed(self, log_dir: LogDir, now_ms: int) -> None:
        """A log directory died: its replicas are offline, and whoever waits for them is answered now."""
        self._orders.log_dir_failed(log_dir)

    def log_failed(self, tp: TopicPartition) -> None:
        """One log cannot be used any more though its directory can (K18-03)."""
        self._orders.log_failed(tp)

    def give_way(self, tp: TopicPartition) -> bool:
        """A better copy of it is back, with its disk: serve this one no more, until the controller says so again.
        False, and nothing happens, while others may count on this one: it leads, is in the ISR or eligible, or is about
        to be made or moved."""
        return self._orders.give_way(tp)

    def resign(self, now_ms: int) -> None:
        """The broker is stopping: stop leading and following everything, answer every waiter."""
        self._orders.resign()

    # -- clients and followers -----------------------------------------------------------------------------------

    def unknown(self, tp: TopicPartition) -> HoldfastError:
        """What is answered for a partition that is not here."""
        if self._is_known(tp):
            return NotLeaderOrFollowerError(f"{tp}: broker {self._around.broker_id} has no replica of it")
        return UnknownTopicOrPartitionError(f"{tp}: no such partition is known")

    def append(
        self,
        tp: TopicPartition,
        batches: bytearray | memoryview,
        *,
        acks: int,
        timeout_ms: int,
        now_ms: int,
        done: Callable[[ProduceResult], None],
        terms: AppendTerms = OF_CLIENT,
    ) -> None:
        """Append as leader. ``batches`` is stamped in place and belongs to us until ``done``.

        acks 0 and 1: done when it is in our log. acks -1: done when the high watermark has passed it while we
        still lead in the same epoch; NotEnoughReplicasError before the append, NotEnoughReplicasAfterAppendError
        and RequestTimedOutError after it (the records may be committed all the same).
        """
        partition = self._partitions.get(tp)
        if partition is None:
            error = self.unknown(tp)
            done(ProduceResult(error, error_message=error.message))
            return
        partition.append(batches, acks, timeout_ms, now_ms, done, terms)

    def fetch(
        self, query: FetchQuery, now_ms: int, done: Callable[[list[FetchResult]], None]
    ) -> FetchWait | SingleFetch | None:
        """Read; results in the order of the query. None when ``done`` has been called already."""
        if query.replica is not None:
            single = SingleFetch(self.open_session(query.replica), query, done)
            single.start(query, now_ms)
            return None if single.finished else single
        wait = FetchWait(self._around, query, done)
        return None if wait.start(self._partitions, self.unknown, query.max_wait_ms, now_ms) else wait

    def open_session(self, replica: tuple[BrokerId, BrokerEpoch | None]) -> FollowerSession:
        """A new fetch session for a follower's connection."""
        self._next_session = self._next_session % 0x7FFFFFFF + 1
        broker_id, epoch = replica
        if epoch is not None and epoch < 0:  # as the wire says that there is none
            epoch = None
        return FollowerSession(self._next_session, self._around, (broker_id, epoch), self._partitions, self.unknown)

    def consumer_sessions(
        self, *, slots: int, new_id: Callable[[], int], resolve: Callable[[Topic], str | None]
    ) -> FetchSessions:
        """The fetch sessions of consumers, at most ``slots``. ``new_id`` gives random numbers of 31 bits, ``resolve`` a
        topic's name by its id."""
        served = Served(self._around, self._partitions, self.unknown, resolve)
        return FetchSessions(served, slots=slots, new_id=new_id)

    def list_offset(
        self,
        tp: TopicPartition,
        what: SpecialTimestamp | int,
        *,
        isolation: Isolation,
        current_leader_epoch: LeaderEpoch | None,
        done: Callable[[OffsetResult | HoldfastError], None],
    ) -> None:
        """ListOffsets for one partition; an int is a timestamp."""
        partition = self._partitions.get(tp)
        if partition is None:
            done(self.unknown(tp))
        else:
            offset_queries.list_offset(partition, what, isolation, current_leader_epoch, done)

    def offset_for_leader_epoch(
        self, tp: TopicPartition, epoch: LeaderEpoch, *, current_leader_epoch: LeaderEpoch | None
    ) -> EpochEnd | HoldfastError:
        """The end offset of a leader epoch."""
        partition = self._partitions.get(tp)
        if partition is None:
            return self.unknown(tp)
        return offset_queries.offset_for_leader_epoch(partition, epoch, current_leader_epoch)

    def delete_records(
        self,
        tp: TopicPartition,
        before: Offset | None,
        *,
        timeout_ms: int,
        now_ms: int,
        done: Callable[[Offset | HoldfastError], None],
    ) -> None:
        """Raise the log start offset (None: to the high watermark); done gets the new low watermark."""
        partition = self._partitions.get(tp)
        if partition is None:
            done(self.unknown(tp))
        else:
            offset_queries.delete_records(partition, before, timeout_ms, now_ms, done)

    def throttle(
        self, side: ThrottleSide, rate: int, topics: Mapping[str, Collection[int] | None], now_ms: int
    ) -> None:
        """Limit replication of replicas that are out of sync to ``rate`` bytes per second, on one side, for these
        partitions of these topics (None: all of a topic)."""
        limit = self._around.sending if side is ThrottleSide.LEADER else self._around.fetching
        limit.configure(rate, topics, now_ms)

    # -- the controller's answers and the clock ------------------------------------------------------------------

    def alter_partition_result(self, proposal: IsrProposal, outcome: IsrOutcome | HoldfastError, now_ms: int) -> None:
        """The answer to a proposal that went out by the outbox. Every proposal needs one: an error if none came."""
        partition = self._partitions.get(proposal.topic_partition)
        if partition is not None and partition.topic_id == proposal.topic_id:
            isr_changes.on_result(partition, proposal, outcome, now_ms)

    def brokers_are_back(self, brokers: Iterable[BrokerId], now_ms: int) -> None:
        """The controller counts these as alive again: what it refused for their sake may be proposed now."""
        back = set(brokers)
        for partition in tuple(self._around.retrying):
            isr_changes.welcome(partition, back, now_ms)

    def tick(self, now_ms: int) -> None:
        """Do what is due: expire waiters, check lagging followers, retry. Costs nothing for idle partitions."""
        around = self._around
        around.deadlines.expire(now_ms)
        for fetcher in self._orders.fetchers.values():
            fetcher.tick(now_ms)
        if around.retrying:
            for partition in tuple(around.retrying):
                if isr_changes.retry(partition, now_ms):
                    around.retrying.pop(partition, None)
        if not around.watched:
            self._next_lag_check_ms = None
        elif self._next_lag_check_ms is None:
            self._next_lag_check_ms = now_ms + self._lag_check_interval_ms
        elif now_ms >= self._next_lag_check_ms:
            self._next_lag_check_ms = now_ms + self._lag_check_interval_ms
            for partition in tuple(around.watched):
                if not isr_changes.check_followers(partition, now_ms):
                    around.watched.pop(partition, None)

    @property
    def _lag_check_interval_ms(self) -> int:
        return max(1, self.settings.replica_lag_time_max_ms // LAG_CHECKS)

    def next_deadline_ms(self) -> int | None:
        """When ``tick`` has something to do; None: not before something else happens."""
        around = self._around
        times = [around.deadlines.next_ms()]
        times += [fetcher.next_deadline_ms() for fetcher in self._orders.fetchers.values()]
        times += [partition.isr.retry_at_ms for partition in around.retrying]
        if around.watched:
            times.append(self._next_lag_check_ms or around.clock())
        return min((t for t in times if t is not None), default=None)

    # -- what others want to know --------------------------------------------------------------------------------

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """All partitions that are here, offline ones too."""
        return self._partitions

    @property
    def traffic(self) -> Traffic | None:
        """What went in and out; None: nobody counts."""
        return self._around.traffic

    @property
    def fetchers(self) -> Mapping[tuple[BrokerId, str], FetcherState]:
        """By source broker and path of the local log directory."""
        return self._orders.fetchers

    def high_watermarks(self) -> dict[TopicPartition, Offset]:
        """For the checkpoint: of every partition with a log that is online."""
        return {
            tp: p.high_watermark
            for tp, p in self._partitions.items()
            if p.role is Role.LEADER or p.role is Role.FOLLOWER
        }

    def is_leader(self, tp: TopicPartition) -> bool:
        """True while this broker leads the partition and serves it."""
        partition = self._partitions.get(tp)
        return partition is not None and partition.is_open

    def leader_epoch(self, tp: TopicPartition) -> LeaderEpoch | None:
        """The epoch in which this broker leads the partition."""
        partition = self._partitions.get(tp)
        return partition.leader_epoch if partition is not None and partition.is_open else None

    def high_watermark(self, tp: TopicPartition) -> Offset | None:
        """The high watermark as far as it is known here."""
        partition = self._partitions.get(tp)
        return None if partition is None or partition.log is None else partition.high_watermark

    def last_stable_offset(self, tp: TopicPartition) -> Offset | None:
        """Where readers of committed records stop, as far as it is known here."""
        partition = self._partitions.get(tp)
        return None if partition is None or partition.log is None else partition.last_stable_offset

    def has_open_transaction(self, tp: TopicPartition, producer_id: int, epoch: int) -> bool:
        """Whether the producer has written in the transaction of this epoch that is open there. It may be over at
        once: the append looks again."""
        partition = self._partitions.get(tp)
        log = None if partition is None else partition.log
        return log is not None and log.producers.is_open(producer_id, epoch)

    def has_written(self, tp: TopicPartition, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether the log has the producer's batches of this epoch up to ``sequence``."""
        partition = self._partitions.get(tp)
        log = None if partition is None else partition.log
        return log is not None and log.producers.has_written(producer_id, epoch, sequence)

    def log_end(self, tp: TopicPartition) -> LogEnd | None:
        """How far the log goes; None when there is none that can be read."""
        partition = self._partitions.get(tp)
        if partition is None or partition.log is None or partition.role is Role.OFFLINE:
            return None
        view = partition.log.view
        return LogEnd(view.last_epoch, view.end_offset)

    def offset_lag(self, tp: TopicPartition) -> int:
        """How far the local log is behind the high watermark (DescribeLogDirs); never negative."""
        partition = self._partitions.get(tp)
        if partition is None or partition.log is None:
            return -1
        return max(0, partition.high_watermark - partition.log.view.end_offset)

    def waiting(self) -> tuple[int, int]:
        """Appends that wait for in-sync replicas, and fetches that wait for something to send."""
        waiters = [waiter for waiter in self._around.deadlines if not waiter.finished]
        appends = sum(isinstance(waiter, AppendCall) for waiter in waiters)
        return appends, sum(isinstance(waiter, (FetchWait, ParkedFetch)) for waiter in waiters)

    def offline_count(self) -> int:
        """Partitions whose log is on a dead directory (K112-95)."""
        return sum(p.role is Role.OFFLINE for p in self._partitions.values())
