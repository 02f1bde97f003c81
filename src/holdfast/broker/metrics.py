"""What a broker tells Prometheus, read when it is asked and never before.

``read`` takes the numbers from the broker's parts on the event loop, a piece at a time, and metrics_text.py makes
Prometheus' text of them: a Reading never changes. What is counted on the path of requests are integers of meters.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.broker.disk_io import DiskThread
from holdfast.broker.disk_status import held_on
from holdfast.broker.metrics_partitions import PartitionRow, Partitions, TopicRow, cluster_sums, pieces
from holdfast.broker.metrics_security import SecuredHost, SecurityReading, read_security
from holdfast.broker.request_times import ApiReading, RequestTimes
from holdfast.groups.states import GroupState
from holdfast.metadata.store import CopyState, MetadataStore
from holdfast.model.histogram import Observed
from holdfast.model.types import TopicPartition
from holdfast.replication.traffic import NO_COUNTS, TopicCounts, Traffic
from holdfast.storage.dir_meter import DirMeter
from holdfast.storage.dir_state import DirState

if TYPE_CHECKING:
    from holdfast.broker.admission import Admission
    from holdfast.broker.cleaner import CleanerReading, LogCleaner
    from holdfast.broker.controller_loop import ControllerLoop
    from holdfast.broker.disks import Disks
    from holdfast.broker.membership import Membership
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.broker.meters import Meters
    from holdfast.broker.moves import Moves
    from holdfast.groups.coordinator import GroupCoordinator
    from holdfast.model.config import BrokerConfig
    from holdfast.replication.fetch_sessions import FetchSessions
    from holdfast.replication.local_replicas import LocalReplicas
    from holdfast.storage.log_dir import LogDir
    from holdfast.storage.log_manager import LogManager

STATES: Final = tuple(state.value for state in DirState)
LATE_MS: Final = 300_000
"""So long after transaction.max.timeout.ms a transaction without a marker is late: its coordinator does not know it."""


class MeasuredHost(SecuredHost, Protocol):
    """The parts that the numbers are of."""

    replicas: LocalReplicas
    fetch_sessions: FetchSessions
    metadata: MetadataCache
    disks: Disks
    moves: Moves
    cleaner: LogCleaner
    store: MetadataStore
    controller: ControllerLoop | None
    config: BrokerConfig
    meters: Meters | None
    groups: GroupCoordinator
    logs: LogManager
    membership: Membership
    admission: Admission
    stopping: asyncio.Event

    def now_ms(self) -> int: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DirCounts:
    """What a log directory did since the broker started."""

    appended_bytes: int
    appends: Observed
    flushes: Observed
    errors: int


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
    log_bytes: int = 0
    cordoned: bool = False
    waiting: int = 0
    """Pieces of work that its foreground thread has not done."""
    counts: DirCounts | None = None


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
class BrokerReading:
    """What is not by topic, directory or API. ``connected`` and ``accepted``: connections now, and since the start, by
    listener; ``groups``: by state; shares of the last minute."""

    state: int = 3
    waiting_appends: int = 0
    waiting_fetches: int = 0
    max_lag: int = 0
    lags: tuple[tuple[TopicPartition, int], ...] = ()
    connected: Mapping[str, int] = dataclasses.field(default_factory=dict)
    accepted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    groups: Mapping[str, int] = dataclasses.field(default_factory=dict)
    loop_idle: float = 1.0
    disks_idle: float = 1.0
    elections: int = 0
    unclean_elections: int = 0


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
    """With the five below: of the whole cluster, 0 where the broker is not the controller."""
    all_partitions: int = 0
    offline_partitions: int = 0
    not_preferred: int = 0
    active: int = 0
    fenced: int = 0
    topic_rows: tuple[tuple[str, TopicRow], ...] = ()
    partition_rows: tuple[PartitionRow, ...] = ()
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
    broker: BrokerReading | None = None
    security: SecurityReading | None = None


# -- reading -------------------------------------------------------------------------------------------------------


async def read(broker: MeasuredHost) -> Reading:
    """The numbers now. On the event loop; lets others run between pieces."""
    config = broker.config
    late_ms = broker.now_ms() - config.int("transaction.max.timeout.ms") - LATE_MS
    found = Partitions(config.str("metrics.level"))
    await found.look(broker, late_ms)
    cluster: dict[str, Any] = {}
    if broker.controller is not None:
        cluster = dataclasses.asdict(await cluster_sums(broker))
    if (reign := broker.controller) is not None:
        brokers = reign.image.brokers.values()
        cluster |= {"fenced": sum(b.fenced for b in brokers), "active": sum(not b.fenced for b in brokers)}
    meters = broker.meters
    traffic = None if meters is None else await _traffic(meters.traffic, by_topic=found.by_topic)
    requests = None if meters is None else await _requests(meters.requests)
    whole = await _broker(broker, by_partition=found.by_partition)
    dirs = []
    for directory in tuple(broker.logs.dirs):
        dirs.append(_dir(broker, directory))
        await asyncio.sleep(0)
    return Reading(
        **dataclasses.asdict(found.sums),
        **cluster,
        is_controller=broker.controller is not None,
        topic_rows=tuple(sorted(found.topics.items())),
        partition_rows=tuple(found.rows),
        connections=len(broker.server.connections),
        fetch_sessions=len(broker.fetch_sessions),
        fetch_session_partitions=broker.fetch_sessions.partitions,
        fetch_session_evictions=broker.fetch_sessions.evictions,
        dirs=tuple(dirs),
        moves=tuple(_moves(broker)),
        cleaner=broker.cleaner.read(),
        metadata_copies=tuple(broker.store.copies()),
        traffic=traffic,
        requests=requests,
        broker=whole,
        security=read_security(broker),
    )


async def _broker(broker: MeasuredHost, *, by_partition: bool) -> BrokerReading:
    lags: list[tuple[TopicPartition, int]] = []
    for fetcher in list(broker.replicas.fetchers.values()):
        lags += fetcher.lags()
        await asyncio.sleep(0)
    appends, fetches = broker.replicas.waiting()
    connected = dict.fromkeys(broker.server.accepted, 0)
    for connection in broker.server.connections:
        connected[connection.listener.name] += 1
    states = Counter(group.state for group in broker.groups.list_groups().groups)
    meters = broker.meters
    idle = (1.0, 1.0) if meters is None else meters.idle()
    return BrokerReading(
        state=state_of(broker),
        waiting_appends=appends,
        waiting_fetches=fetches,
        max_lag=max((lag for _, lag in lags), default=0),
        lags=tuple(lags) if by_partition else (),
        connected=connected,
        accepted=dict(broker.server.accepted),
        groups={state.value: states[state.value] for state in GroupState},
        loop_idle=idle[0],
        disks_idle=idle[1],
        elections=0 if meters is None else meters.elections.leaders,
        unclean_elections=0 if meters is None else meters.elections.unclean,
    )


def state_of(broker: MeasuredHost) -> int:
    """As Kafka numbers them: 1 starting, 3 running, 6 handing over its leaders, 7 shutting down."""
    if broker.stopping.is_set():
        return 6 if broker.membership.is_leaving and not broker.membership.may_shut_down.is_set() else 7
    return 3 if broker.admission.is_open else 1


async def _requests(times: RequestTimes) -> RequestsReading:
    await asyncio.sleep(0)
    return RequestsReading(apis=tuple(times.read()), counts=times.requests(), errors=dict(times.errors))


async def _traffic(traffic: Traffic, *, by_topic: bool) -> TrafficReading:
    traffic.keep(set(traffic.hosted()))
    topics: list[tuple[str, TopicCounts]] = []
    for some in pieces(traffic.topics.items()):
        topics += [(name, each.now()) for name, each in some]
        await asyncio.sleep(0)
    every = [traffic.gone.now(), *(counts for _, counts in topics)]
    return TrafficReading(
        topics=tuple(sorted(topics)) if by_topic else (),
        total=TopicCounts(*map(sum, zip(*every, strict=True))),
        replication_bytes_in=traffic.replication_bytes_in,
        replication_bytes_out=traffic.replication_bytes_out,
        reassignment_bytes_in=traffic.reassignment_bytes_in,
        reassignment_bytes_out=traffic.reassignment_bytes_out,
        isr_shrinks=traffic.isr_shrinks,
        isr_expands=traffic.isr_expands,
        isr_updates_failed=traffic.isr_updates_failed,
    )


def _dir(broker: MeasuredHost, directory: LogDir) -> DirReading:
    meters, path = broker.meters, directory.path
    status = broker.disks.describe_one(directory)
    replicas, size = held_on(broker, directory)
    return DirReading(
        path=path,
        state=status.state,
        since_ms=status.since_ms,
        total_bytes=status.total_bytes if status.total_bytes >= 0 else None,
        usable_bytes=status.usable_bytes if status.usable_bytes >= 0 else None,
        probe_ms=status.probe_ms,
        replicas=replicas,
        log_bytes=size,
        cordoned=status.cordoned,
        waiting=directory.queue.waiting if isinstance(directory.queue, DiskThread) else 0,
        counts=None if meters is None else _counts(meters.of_dir(path)),
    )


def _counts(meter: DirMeter) -> DirCounts:
    return DirCounts(
        appended_bytes=meter.appended_bytes,
        appends=meter.append_times.now(),
        flushes=meter.flushes(),
        errors=meter.errors,
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
