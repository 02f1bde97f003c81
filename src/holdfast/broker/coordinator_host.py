"""The disk, the log and the clock of coordinators: reads what one needs when this broker comes to lead, appends what it
says, tells it when its time has come.

A ``CoordinatorHost`` has one tenant (coordinators/tenant.py says what a tenant gives and gets) and owns which
partitions of its topic are being loaded (coordinator_loading.py); ``Coordinators`` has all hosts of this broker and
owns the places for processes that read large partitions, which they share. On the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from holdfast.broker.coordinator_loading import CoordinatorLoad, LoadingHost, LoadPlaces
from holdfast.coordinators.journal import CoordinatorLog
from holdfast.coordinators.tenant import Tenant
from holdfast.model.errors import HoldfastError
from holdfast.model.log_events import LogEvent, told
from holdfast.model.types import TopicPartition
from holdfast.replication.types import ProduceResult

if TYPE_CHECKING:
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.replication.local_replicas import LocalReplicas

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Tenant[Any])
COMMITTED_LOOK_S: Final = 0.005
"""How often a partition that was read is looked at until all of it is committed: mostly it is already."""


class CoordinatorsHost(LoadingHost, Protocol):
    """What hosting a coordinator asks of the broker."""

    metadata: MetadataCache
    replicas: LocalReplicas

    def now_ms(self) -> int: ...


class CoordinatorHost(Generic[T]):
    """See the module's docstring; also its tenant's CoordinatorLog. ``make`` gets it and makes the tenant.
    ``timeout_ms``: how long an append may wait for replicas."""

    def __init__(
        self,
        broker: CoordinatorsHost,
        places: LoadPlaces,
        make: Callable[[CoordinatorLog], T],
        *,
        timeout_ms: int,
    ) -> None:
        self._broker = broker
        self._places = places
        self._timeout_ms = timeout_ms
        self._loads: dict[TopicPartition, CoordinatorLoad] = {}
        self.tenant: T = make(self)

    def append(self, partition: int, batch: bytearray, done: Callable[[HoldfastError | None], None]) -> None:
        """Append to the partition's log with acks=all."""

        def appended(result: ProduceResult) -> None:
            done(result.error)

        self._broker.replicas.append(
            TopicPartition(self.tenant.topic, partition),
            batch,
            acks=-1,
            timeout_ms=self._timeout_ms,
            now_ms=self._broker.now_ms(),
            done=appended,
        )

    def metadata_changed(self, deleted: Collection[str]) -> None:
        """The topic has the partitions that it has; what is about deleted topics goes."""
        partitions = self._broker.metadata.topics.get(self.tenant.topic)
        if partitions is not None:
            self.tenant.partition_count = len(partitions)
        if deleted:
            self.tenant.on_topics_deleted(deleted, self._broker.now_ms())

    def leadership_changed(self, tp: TopicPartition, is_leader: bool, leader_epoch: int) -> None:
        """A partition of the topic came to this broker or went: load it or drop it."""
        before = self._loads.pop(tp, None)
        if before is not None:
            before.abandon()
        if not is_leader:
            self.tenant.on_resigned(tp.partition)
            fields = told(LogEvent.COORDINATOR_LEFT, topic=tp.topic, partition=tp.partition)
            log.info("%s is coordinated elsewhere from now on", tp, extra=fields)
            return
        self.tenant.on_elected(tp.partition, leader_epoch)
        self._load(tp, leader_epoch)

    def _load(self, tp: TopicPartition, leader_epoch: int) -> None:
        broker, tenant, partition = self._broker, self.tenant, tp.partition

        def add(piece: Any) -> None:
            tenant.add(partition, leader_epoch, piece, broker.now_ms())

        def ready() -> None:
            end = broker.replicas.log_end(tp)
            serve_from(0 if end is None else end.end_offset)

        def serve_from(end_offset: int) -> None:
            """What was read may be behind the high watermark, and gone with the next leader: nobody is told of it, and
            nothing is begun by it, until every replica in sync has it."""
            if load.is_abandoned or not is_wanted():
                return
            if (broker.replicas.high_watermark(tp) or 0) < end_offset:
                broker.loop.call_later(COMMITTED_LOOK_S, serve_from, end_offset)
                return
            self._loads.pop(tp, None)
            tenant.serve(partition, leader_epoch, broker.now_ms())

        def is_wanted() -> bool:
            return broker.replicas.leader_epoch(tp) == leader_epoch

        load = self._loads[tp] = CoordinatorLoad(
            broker, self._places, tp,
            replay=tenant.replay, kind=tenant.reader, is_wanted=is_wanted, add=add, ready=ready,
        )  # fmt: skip
        load.start()

    def tick(self, now_ms: int) -> None:
        """Let the tenant do what is due."""
        due_ms = self.tenant.next_deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            self.tenant.tick(now_ms)


class Coordinators:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.places = LoadPlaces()
        self._hosts: dict[str, CoordinatorHost[Any]] = {}

    def add(self, host: CoordinatorHost[Any]) -> None:
        """One for each topic."""
        assert host.tenant.topic not in self._hosts, f"{host.tenant.topic} has a coordinator"
        self._hosts[host.tenant.topic] = host

    @property
    def topics(self) -> Collection[str]:
        """Whose partitions make their leaders coordinators."""
        return self._hosts.keys()

    def metadata_changed(self, deleted: Collection[str]) -> None:
        """The broker was told new metadata, in which the topics ``deleted`` are no more."""
        for host in self._hosts.values():
            host.metadata_changed(deleted)

    def leadership_changed(self, tp: TopicPartition, is_leader: bool, leader_epoch: int) -> None:
        """This broker leads a partition now, or does not any more; of any topic."""
        host = self._hosts.get(tp.topic)
        if host is not None:
            host.leadership_changed(tp, is_leader, leader_epoch)

    def tick(self, now_ms: int) -> None:
        """One that fails keeps no other from its deadlines."""
        for host in self._hosts.values():
            try:
                host.tick(now_ms)
            except Exception:
                log.exception("the tick of the coordinator of %s failed", host.tenant.topic)
