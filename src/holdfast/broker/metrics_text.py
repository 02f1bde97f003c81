"""Prometheus' text of a Reading (metrics.py): names, labels, help.

Made with prometheus_client, on any thread but the event loop's.

What Kafka has too is named as its JMX exporter names it by the rules that most dashboards go by (the MBean in lower
case, ``kafka_server_replicamanager_offlinereplicacount``); each help text begins with the MBean's own name. What only
we have begins with ``holdfast_``. The counters of traffic are metrics_traffic.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.metrics import STATES, DirReading, MoveReading, Reading
from holdfast.broker.metrics_broker import broker_families, partition_families, process_families, topic_families
from holdfast.broker.metrics_dirs import dir_count_families
from holdfast.broker.metrics_names import kafka_name
from holdfast.broker.metrics_requests import request_families
from holdfast.broker.metrics_traffic import traffic_families
from holdfast.metadata.store import CopyState

if TYPE_CHECKING:
    from holdfast.broker.cleaner import CleanerReading

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
    (_CONTROLLER, "ActiveBrokerCount", "active", "Brokers that the controller counts as alive; 0 elsewhere."),
    (_CONTROLLER, "FencedBrokerCount", "fenced", "Registered brokers that it does not; 0 elsewhere."),
    (_CONTROLLER, "PreferredReplicaImbalanceCount", "not_preferred", "Not led by their first replica; 0 elsewhere."),
    (_CONTROLLER, "OfflinePartitionsCount", "offline_partitions", "Partitions without a leader; 0 elsewhere."),
    (_CONTROLLER, "GlobalTopicCount", "topics", "Topics of the cluster; 0 elsewhere."),
    (_CONTROLLER, "GlobalPartitionCount", "all_partitions", "Partitions of the cluster; 0 elsewhere."),
    (_SESSIONS, "NumIncrementalFetchSessions", "fetch_sessions", "Fetch sessions of consumers."),
    (_SESSIONS, "NumIncrementalFetchPartitionsCached", "fetch_session_partitions", "Partitions in all of them."),
)
"""Where Kafka has it, its name there, attribute of Reading, meaning."""


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
    if reading.traffic is not None:
        yield from traffic_families(reading.traffic)
    if reading.requests is not None:
        yield from request_families(reading.requests)
    if reading.broker is not None:
        yield from broker_families(reading.broker)
    yield from topic_families(reading.topic_rows)
    yield from partition_families(reading)
    yield from _dir_families(reading.dirs)
    yield from dir_count_families(reading.dirs)
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
    yield from process_families()


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
