"""What a broker tells Prometheus, read when it is asked and never before.

``read`` takes the numbers from the broker's parts on the event loop, a piece at a time, and metrics_text.py makes
Prometheus' text of them on any thread: a Reading never changes. What is counted on the path of requests are integers
of meters.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.broker.request_times import ApiReading, RequestTimes
from holdfast.metadata.store import CopyState, MetadataStore
from holdfast.model.types import TopicPartition
from holdfast.replication.traffic import NO_COUNTS, TopicCounts, Traffic
from holdfast.replication.types import Role
from holdfast.storage.dir_state import DirState

if TYPE_CHECKING:
    from holdfast.broker.cleaner import CleanerReading, LogCleaner
    from holdfast.broker.controller_loop import ControllerLoop
    from holdfast.broker.disks import Disks
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.broker.meters import Meters
    from holdfast.broker.moves import Moves
    from holdfast.broker.server import Server
    from holdfast.model.config import BrokerConfig
    from holdfast.replication.fetch_sessions import FetchSessions
    from holdfast.replication.local_replicas import LocalReplicas

STATES: Final = tuple(state.value for state in DirState)
_AT_ONCE = 500
"""Partitions looked at before the loop may do something else."""
LATE_MS: Final = 300_000
"""So long after transaction.max.timeout.ms a transaction without a marker is late: its coordinator does not know it."""


class MeasuredHost(Protocol):
    """The parts that the numbers are of."""

    replicas: LocalReplicas
    fetch_sessions: FetchSessions
    metadata: MetadataCache
    server: Server
    disks: Disks
    moves: Moves
    cleaner: LogCleaner
    store: MetadataStore
    controller: ControllerLoop | None
    config: BrokerConfig
    meters: Meters | None

    def now_ms(self) -> int: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DirReading:
    """One log directory. Bytes are None where the disk does not tell; ``probe_ms`` None before the first probe."""

    path: str
    state: str
    since_ms: int
    total_bytes: int | None
    usable_bytes: int | None
    probe_ms: float | None
    replicas: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MoveReading:
    """A replica on its way to another log directory of this broker."""

    topic_partition: TopicPartition
    source: str
    target: str
    lag: int
    bytes_per_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrafficReading:
    """What went in and out since the broker started: of topics that have a partition here, and of all there were."""

    topics: tuple[tuple[str, TopicCounts], ...] = ()
    total: TopicCounts = NO_COUNTS
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    reassignment_bytes_in: int = 0
    reassignment_bytes_out: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    isr_updates_failed: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestsReading:
    """What was asked and how long it took; see request_times.py."""

    apis: tuple[ApiReading, ...] = ()
    counts: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    """API and version -> requests."""
    errors: Mapping[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    """API and Kafka's number -> answers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All numbers of one scrape."""

    partitions: int = 0
    leaders: int = 0
    offline_replicas: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    late_transactions: int = 0
    is_controller: bool = False
    topics: int = 0
    """With the two below: of the whole cluster, 0 where the broker is not the controller."""
    all_partitions: int = 0
    offline_partitions: int = 0
    connections: int = 0
    fetch_sessions: int = 0
    fetch_session_partitions: int = 0
    fetch_session_evictions: int = 0
    """Since the broker started."""
    dirs: tuple[DirReading, ...] = ()
    moves: tuple[MoveReading, ...] = ()
    cleaner: CleanerReading | None = None
    metadata_copies: tuple[CopyState, ...] = ()
    """Empty where the broker is not the controller."""
    traffic: TrafficReading | None = None
    requests: RequestsReading | None = None


# -- reading -------------------------------------------------------------------------------------------------------


async def read(broker: MeasuredHost) -> Reading:
    """The numbers now. On the event loop; lets others run between pieces."""
    counts = dict.fromkeys(
        ("partitions", "leaders", "offline_replicas", "under_replicated", "under_min_isr", "at_min_isr",
         "late_transactions"),
        0,
    )  # fmt: skip
    late_ms = broker.now_ms() - broker.config.int("transaction.max.timeout.ms") - LATE_MS
    for some in _pieces(broker.replicas.partitions.values()):
        for partition in some:
            counts["partitions"] += 1
            if partition.role is Role.OFFLINE:
                counts["offline_replicas"] += 1
            elif partition.is_open and partition.log is not None:
                in_sync, replicas = len(partition.isr.committed), len(partition.replicas)
                least = min(partition.log.config.min_insync_replicas, replicas)
                counts["leaders"] += 1
                counts["under_replicated"] += in_sync < replicas
                counts["under_min_isr"] += in_sync < least
                counts["at_min_isr"] += in_sync == least
                if partition.log.view.unstable is not None:
                    counts["late_transactions"] += partition.log.producers.is_late(late_ms)
        await asyncio.sleep(0)
    cluster = {}
    if broker.controller is not None:
        cluster = dict.fromkeys(("topics", "all_partitions", "offline_partitions"), 0)
        for topics in _pieces(broker.metadata.topics.values()):
            for topic in topics:
                cluster["topics"] += 1
                cluster["all_partitions"] += len(topic)
                cluster["offline_partitions"] += sum(info.leader is None for info in topic.values())
            await asyncio.sleep(0)
    return Reading(
        **counts,
        **cluster,
        is_controller=broker.controller is not None,
        connections=len(broker.server.connections),
        fetch_sessions=len(broker.fetch_sessions),
        fetch_session_partitions=broker.fetch_sessions.partitions,
        fetch_session_evictions=broker.fetch_sessions.evictions,
        dirs=tuple(_dirs(broker)),
        moves=tuple(_moves(broker)),
        cleaner=broker.cleaner.read(),
        metadata_copies=tuple(broker.store.copies()),
        traffic=None if broker.meters is None else await _traffic(broker.meters.traffic),
        requests=None if broker.meters is None else _requests(broker.meters.requests),
    )


def _requests(times: RequestTimes) -> RequestsReading:
    return RequestsReading(apis=tuple(times.read()), counts=times.requests(), errors=dict(times.errors))


async def _traffic(traffic: Traffic) -> TrafficReading:
    traffic.keep(set(traffic.hosted()))
    topics: list[tuple[str, TopicCounts]] = []
    for some in _pieces(traffic.topics.items()):
        topics += [(name, each.now()) for name, each in some]
        await asyncio.sleep(0)
    every = [traffic.gone.now(), *(counts for _, counts in topics)]
    return TrafficReading(
        topics=tuple(sorted(topics)),
        total=TopicCounts(*map(sum, zip(*every, strict=True))),
        replication_bytes_in=traffic.replication_bytes_in,
        replication_bytes_out=traffic.replication_bytes_out,
        reassignment_bytes_in=traffic.reassignment_bytes_in,
        reassignment_bytes_out=traffic.reassignment_bytes_out,
        isr_shrinks=traffic.isr_shrinks,
        isr_expands=traffic.isr_expands,
        isr_updates_failed=traffic.isr_updates_failed,
    )


def _pieces(values: Iterable[Any]) -> Iterator[list[Any]]:
    every = list(values)
    for i in range(0, len(every), _AT_ONCE):
        yield every[i : i + _AT_ONCE]


def _dirs(broker: MeasuredHost) -> Iterator[DirReading]:
    for each in broker.disks.describe():
        yield DirReading(
            path=each.path,
            state=each.state,
            since_ms=each.since_ms,
            total_bytes=each.total_bytes if each.total_bytes >= 0 else None,
            usable_bytes=each.usable_bytes if each.usable_bytes >= 0 else None,
            probe_ms=each.probe_ms,
            replicas=len(each.replicas),
        )


def _moves(broker: MeasuredHost) -> Iterator[MoveReading]:
    for each in broker.moves.describe():
        yield MoveReading(
            topic_partition=each.topic_partition,
            source=each.from_path,
            target=each.to_path,
            lag=each.lag,
            bytes_per_s=each.bytes_per_s,
        )
