"""What a broker tells Prometheus, read when it is asked and never before.

Owns the list of metrics: ``read`` takes the numbers from the broker's parts on the event loop, a piece at a time,
and ``text`` makes Prometheus' text of them, with prometheus_client, on any thread: a Reading never changes. Nothing
counts on the path of a record.

What Kafka has too is named as its JMX exporter names it by the rules that most dashboards go by (the MBean in lower
case, ``kafka_server_replicamanager_offlinereplicacount``); each help text begins with the MBean's own name. What only
we have begins with ``holdfast_``.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.metadata.store import CopyState, MetadataStore
from holdfast.model.types import TopicPartition
from holdfast.replication.types import Role
from holdfast.storage.dir_state import DirState

if TYPE_CHECKING:
    from holdfast.broker.cleaner import CleanerReading, LogCleaner
    from holdfast.broker.controller_loop import ControllerLoop
    from holdfast.broker.disks import Disks
    from holdfast.broker.metadata_cache import MetadataCache
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


# -- writing -------------------------------------------------------------------------------------------------------

_CLEANER, _CLEANERS = "kafka.log:type=LogCleaner,name=", "kafka.log:type=LogCleanerManager,name="
_MANAGER, _LOGS, _CONTROLLER, _SESSIONS = (
    "kafka.server:type=ReplicaManager,name=",
    "kafka.log:type=LogManager,name=",
    "kafka.controller:type=KafkaController,name=",
    "kafka.server:type=FetchSessionCache,name=",
)
_NUMBERS: Final = (
    (_MANAGER, "PartitionCount", "partitions", "Replicas on this broker, offline ones too."),
    (_MANAGER, "LeaderCount", "leaders", "Partitions that this broker leads."),
    (_MANAGER, "OfflineReplicaCount", "offline_replicas", "Replicas in bad log directories of this live broker."),
    (_MANAGER, "UnderReplicatedPartitions", "under_replicated", "Led here, with replicas that are not in sync."),
    (_MANAGER, "UnderMinIsrPartitionCount", "under_min_isr", "Led here, with too few in sync for acks=all."),
    (_MANAGER, "AtMinIsrPartitionCount", "at_min_isr", "Led here, with just enough in sync for acks=all."),
    (_MANAGER, "PartitionsWithLateTransactionsCount", "late_transactions", "Led here, with one that hangs."),
    (_CONTROLLER, "ActiveControllerCount", "is_controller", "1 on the broker that is the controller."),
    (_CONTROLLER, "OfflinePartitionsCount", "offline_partitions", "Partitions without a leader; 0 elsewhere."),
    (_CONTROLLER, "GlobalTopicCount", "topics", "Topics of the cluster; 0 elsewhere."),
    (_CONTROLLER, "GlobalPartitionCount", "all_partitions", "Partitions of the cluster; 0 elsewhere."),
    (_SESSIONS, "NumIncrementalFetchSessions", "fetch_sessions", "Fetch sessions of consumers."),
    (_SESSIONS, "NumIncrementalFetchPartitionsCached", "fetch_session_partitions", "Partitions in all of them."),
)
"""Where Kafka has it, its name there, attribute of Reading, meaning."""


def kafka_name(mbean: str) -> str:
    """``kafka.log:type=LogManager,name=X`` -> ``kafka_log_logmanager_x``."""
    domain, _, rest = mbean.partition(":")
    name = "_".join((*domain.split("."), *(part.partition("=")[2] for part in rest.split(","))))
    return name.lower().replace("-", "_")


def families(reading: Reading) -> Iterator[Any]:
    """Prometheus metric families of a reading, in a fixed order."""
    from prometheus_client.metrics_core import CounterMetricFamily as Counter
    from prometheus_client.metrics_core import GaugeMetricFamily as Gauge

    for where, name, attribute, meaning in _NUMBERS:
        gauge = Gauge(kafka_name(where + name), f"{where}{name}. {meaning}")
        gauge.add_metric([], float(getattr(reading, attribute)))
        yield gauge
    bad = [d for d in reading.dirs if d.state == "offline"]
    name = f"{_LOGS}OfflineLogDirectoryCount"
    gauge = Gauge(kafka_name(name), f"{name}. Log directories of this broker that are offline.")
    gauge.add_metric([], len(bad))
    yield gauge
    name = f"{_LOGS}LogDirectoryOffline"
    gauge = Gauge(kafka_name(name), f"{name},logDirectory=PATH. 1 while it is offline.", labels=["logDirectory"])
    for each in reading.dirs:
        gauge.add_metric([each.path], float(each.state == "offline"))
    yield gauge
    yield from _dir_families(reading.dirs)
    yield from _move_families(reading.moves)
    yield from _metadata_families(reading.metadata_copies)
    if reading.cleaner is not None:
        yield from _cleaner_families(reading.cleaner)
    name = f"{_SESSIONS}IncrementalFetchSessionEvictions"
    evictions = Counter(kafka_name(name), f"{name}PerSec. Fetch sessions that lost their slot to another one.")
    evictions.add_metric([], reading.fetch_session_evictions)
    yield evictions
    gauge = Gauge("holdfast_connections", "Connections to the listener, of clients and of brokers.")
    gauge.add_metric([], reading.connections)
    yield gauge


def _dir_families(dirs: Iterable[DirReading]) -> Iterator[Any]:
    from prometheus_client.metrics_core import GaugeMetricFamily as Gauge

    label = ["logDirectory"]
    states = Gauge(
        "holdfast_log_directory_state",
        "1 for the state of the log directory: online; full: no writes; degraded: slow; silent: no answer; offline.",
        labels=[*label, "state"],
    )
    since = Gauge("holdfast_log_directory_state_since_seconds", "When that state began (Unix time).", labels=label)
    probe = Gauge(
        "holdfast_log_directory_probe_seconds",
        "How long the last probe took: write, sync, read back and remove a small file.",
        labels=label,
    )
    total = Gauge("holdfast_log_directory_total_bytes", "Size of the file system.", labels=label)
    usable = Gauge("holdfast_log_directory_usable_bytes", "Room that is left on it.", labels=label)
    replicas = Gauge("holdfast_log_directory_replicas", "Replicas in it, also while it is offline.", labels=label)
    for each in dirs:
        for state in STATES:
            states.add_metric([each.path, state], float(each.state == state))
        if each.since_ms > 0:
            since.add_metric([each.path], each.since_ms / 1000)
        if each.probe_ms is not None:
            probe.add_metric([each.path], each.probe_ms / 1000)
        if each.total_bytes is not None:
            total.add_metric([each.path], each.total_bytes)
        if each.usable_bytes is not None:
            usable.add_metric([each.path], each.usable_bytes)
        replicas.add_metric([each.path], each.replicas)
    yield from (states, since, probe, total, usable, replicas)


def _move_families(moves: tuple[MoveReading, ...]) -> Iterator[Any]:
    from prometheus_client.metrics_core import GaugeMetricFamily as Gauge

    labels = ["topic", "partition", "from", "to"]
    count = Gauge("holdfast_moves", "Replicas on their way to another log directory of this broker.")
    count.add_metric([], len(moves))
    lag = Gauge("holdfast_move_lag", "Records that the moving copy has not got yet.", labels=labels)
    rate = Gauge("holdfast_move_bytes_per_second", "How fast it is copied.", labels=labels)
    for move in moves:
        values = [move.topic_partition.topic, str(move.topic_partition.partition), move.source, move.target]
        lag.add_metric(values, move.lag)
        rate.add_metric(values, move.bytes_per_s)
    yield from (count, lag, rate)


def _cleaner_families(reading: CleanerReading) -> Iterator[Any]:
    from prometheus_client.metrics_core import GaugeMetricFamily as Gauge

    for where, name, value, meaning in (
        (_CLEANER, "cleaner-recopy-percent", reading.recopy_percent, "What stayed of the bytes, last time."),
        (_CLEANER, "max-clean-time-secs", reading.last_clean_s, "How long the last cleaning of a log took."),
        (_CLEANER, "max-buffer-utilization-percent", reading.buffer_percent, "How full of keys its memory was."),
        (_CLEANERS, "max-dirty-percent", reading.max_dirty_percent, "Of the dirtiest compacted log, when last looked."),
    ):
        gauge = Gauge(kafka_name(where + name), f"{where}{name}. {meaning}")
        gauge.add_metric([], value)
        yield gauge
    for number, name, meaning in (
        (1, "uncleanable-partitions-count", "Logs that cannot be cleaned: their records are damaged."),
        (2, "uncleanable-bytes", "Their bytes that would be cleaned."),
    ):
        gauge = Gauge(
            kafka_name(_CLEANERS + name), f"{_CLEANERS}{name},logDirectory=PATH. {meaning}", labels=["logDirectory"]
        )
        for each in reading.uncleanable:
            gauge.add_metric([each[0]], float(each[number]))
        yield gauge


def _metadata_families(copies: tuple[CopyState, ...]) -> Iterator[Any]:
    """Why a copy is left out is in the controller's log: a reason has no place in a label, where each would be a series
    of its own."""
    from prometheus_client.metrics_core import GaugeMetricFamily as Gauge

    good = Gauge(
        "holdfast_metadata_copy_good",
        "1 for a copy of the metadata that every decision is on, 0 for one that is left out; from the controller only.",
        labels=["directory"],
    )
    for copy in copies:
        good.add_metric([copy.path], float(copy.is_good))
    waits = Gauge(
        "holdfast_metadata_decisions_wait",
        "1 while a decision waits since no copy of the metadata has answered for a while; 0 elsewhere.",
    )
    waits.add_metric([], float(any(not copy.answers for copy in copies)))
    yield from (good, waits)


class _Collector:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> Iterator[Any]:
        return families(self._reading)


def text(reading: Reading) -> bytes:
    """Prometheus' text format, version 0.0.4. Imports prometheus_client when first called, which takes its time: not
    for the event loop."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(reading))
    return generate_latest(registry)
