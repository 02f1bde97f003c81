"""Prometheus' families of a broker as a whole, of its topics and partitions, and of its process."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from holdfast import __version__
from holdfast.broker.metrics_names import kafka_name

if TYPE_CHECKING:
    from holdfast.broker.metrics import BrokerReading, Reading
    from holdfast.broker.metrics_partitions import PartitionRow, TopicRow

_PURGATORY: Final = "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize"
_GROUPS: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="
_SOCKETS: Final = "kafka_server_socket_server_metrics_"
_SOCKET_MBEAN: Final = "kafka.server:type=socket-server-metrics,listener=NAME."
_STATS: Final = "kafka.controller:type=ControllerStats,name="
_OF_BROKER: Final = (
    ("kafka.server:type=KafkaServer,name=BrokerState", "state", "1 starting, 3 running, 6 and 7 stopping."),
    (
        "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
        "loop_idle",
        "Share of the last minute in which the event loop had nothing to do.",
    ),
    (
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
        "disks_idle",
        "Share of the last minute in which the log directories had nothing to write and to flush.",
    ),
)
_BY_PARTITION: Final[tuple[tuple[str, Callable[[PartitionRow], float], bool, str], ...]] = (
    ("kafka.log:type=Log,name=Size", lambda row: row.size, False, "Bytes of its segments here."),
    ("kafka.log:type=Log,name=LogStartOffset", lambda row: row.start_offset, False, "The first offset here."),
    ("kafka.log:type=Log,name=LogEndOffset", lambda row: row.end_offset, False, "The next offset here."),
    ("kafka.log:type=Log,name=NumLogSegments", lambda row: row.segments, False, "Segments here."),
    ("kafka.cluster:type=Partition,name=ReplicasCount", lambda row: row.replicas, True, "Replicas."),
    ("kafka.cluster:type=Partition,name=InSyncReplicasCount", lambda row: row.in_sync, True, "In sync."),
    (
        "kafka.cluster:type=Partition,name=UnderReplicated",
        lambda row: row.in_sync < row.replicas,
        True,
        "1 where some are not in sync.",
    ),
    (
        "kafka.cluster:type=Partition,name=UnderMinIsr",
        lambda row: row.in_sync < row.least,
        True,
        "1 where too few are in sync for acks=all.",
    ),
    (
        "kafka.cluster:type=Partition,name=AtMinIsr",
        lambda row: row.in_sync == row.least,
        True,
        "1 where just enough are in sync for acks=all.",
    ),
    (
        "kafka.cluster:type=Partition,name=LastStableOffsetLag",
        lambda row: row.stable_lag,
        True,
        "Records behind the oldest open transaction.",
    ),
)
"""Kafka's name, value, whether only its leader tells, meaning."""
_OF_TOPIC: Final[tuple[tuple[str, Callable[[TopicRow], int], str], ...]] = (
    ("partitions", lambda row: row.partitions, "Replicas of the topic on this broker."),
    ("leaders", lambda row: row.leaders, "Those of them that lead."),
    ("under_replicated_partitions", lambda row: row.under_replicated, "Led here, with replicas that are not in sync."),
    ("log_bytes", lambda row: row.size, "Bytes of its logs on this broker."),
)


def broker_families(reading: BrokerReading) -> Iterator[Any]:
    """What is not by topic, directory or API."""
    from prometheus_client.metrics_core import GaugeMetricFamily as Gauge
    from prometheus_client.metrics_core import Metric

    for mbean, attribute, meaning in _OF_BROKER:
        gauge = Gauge(kafka_name(mbean), f"{mbean}. {meaning}")
        gauge.add_metric([], float(getattr(reading, attribute)))
        yield gauge
    gauge = Gauge(
        kafka_name(_PURGATORY),
        f"{_PURGATORY},delayedOperation=API. Appends that wait for in-sync replicas, fetches that wait for records.",
        labels=["delayedOperation"],
    )
    gauge.add_metric(["Produce"], reading.waiting_appends)
    gauge.add_metric(["Fetch"], reading.waiting_fetches)
    yield gauge
    mbean = "kafka.server:type=ReplicaFetcherManager,name=MaxLag"
    gauge = Gauge(kafka_name(mbean), f"{mbean},clientId=Replica. Records.", labels=["clientId"])
    gauge.add_metric(["Replica"], reading.max_lag)
    yield gauge
    gauge = Gauge(
        f"{_SOCKETS}connection_count", f"{_SOCKET_MBEAN} Connections now.", labels=["listener", "networkProcessor"]
    )
    for listener, count in reading.connected.items():
        gauge.add_metric([listener, "0"], count)
    yield gauge
    created = Metric(f"{_SOCKETS}connection_creation", f"{_SOCKET_MBEAN} Connections since the start.", "counter")
    for listener, count in reading.accepted.items():
        created.add_sample(f"{created.name}_total", {"listener": listener, "networkProcessor": "0"}, count)
    yield created
    for name, value in (("", sum(reading.groups.values())), *sorted(reading.groups.items())):
        gauge = Gauge(kafka_name(f"{_GROUPS}NumGroups{name}"), f"{_GROUPS}NumGroups{name}. Coordinated here.")
        gauge.add_metric([], value)
        yield gauge
    for name, value, meaning in (
        ("UncleanLeaderElections", reading.unclean_elections, "To one that may not have everything; decided here."),
        ("LeaderElectionRateAndTimeMs", reading.elections, "Partitions that got another leader; decided here."),
    ):
        family = kafka_name(f"{_STATS}{name}")
        if name.endswith("Ms"):
            metric = Metric(family, f"{_STATS}{name}. {meaning}", "summary")
            metric.add_sample(f"{family}_count", {}, value)
        else:
            metric = Metric(family, f"{_STATS}{name}PerSec. {meaning}", "counter")
            metric.add_sample(f"{family}_total", {}, value)
        yield metric


def topic_families(rows: Iterable[tuple[str, TopicRow]]) -> Iterator[Any]:
    """Of the topics that have a replica here."""
    from prometheus_client.metrics_core import Metric

    every = list(rows)
    for name, value, meaning in _OF_TOPIC if every else ():
        metric = Metric(f"holdfast_topic_{name}", meaning, "gauge")
        for topic, row in every:
            metric.add_sample(metric.name, {"topic": topic}, value(row))
        yield metric


def partition_families(reading: Reading) -> Iterator[Any]:
    """Of each replica with a log; with metrics.level=partition."""
    from prometheus_client.metrics_core import Metric

    rows = reading.partition_rows
    labels = [{"topic": r.topic_partition.topic, "partition": str(r.topic_partition.partition)} for r in rows]
    for mbean, value, of_leader, meaning in _BY_PARTITION if rows else ():
        metric = Metric(kafka_name(mbean), f"{mbean},topic=T,partition=N. {meaning}", "gauge")
        for row, of_row in zip(rows, labels, strict=True):
            if row.is_leader or not of_leader:
                metric.add_sample(metric.name, of_row, float(value(row)))
        yield metric
    mbean = "kafka.server:type=FetcherLagMetrics,name=ConsumerLag"
    lags = () if reading.broker is None else reading.broker.lags
    lag = Metric(
        kafka_name(mbean), f"{mbean},clientId=Replica,topic=T,partition=N. Records behind its leader.", "gauge"
    )
    for tp, behind in lags:
        of_row = {"clientId": "Replica", "topic": tp.topic, "partition": str(tp.partition)}
        lag.add_sample(lag.name, of_row, behind)
    if lags:
        yield lag


def process_families() -> Iterator[Any]:
    """Of this process, and which build it is; read from /proc now."""
    from prometheus_client.metrics_core import GaugeMetricFamily as Gauge

    yield from _process().collect()
    build = Gauge("holdfast_build_info", "1; what runs here.", labels=["version", "python"])
    build.add_metric([__version__, platform.python_version()], 1)
    yield build
    for name in ("read", "write"):
        mbean = f"kafka.server:type=KafkaServer,name=linux-disk-{name}-bytes"
        gauge = Gauge(kafka_name(mbean), f"{mbean}. What this process had the system {name}, by /proc/self/io.")
        if (value := _io_bytes(f"{name}_bytes: ")) is not None:
            gauge.add_metric([], value)
        yield gauge


@cache
def _process() -> Any:
    from prometheus_client import ProcessCollector

    return ProcessCollector(registry=None)


def _io_bytes(field: str) -> int | None:
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            found = [line.removeprefix(field) for line in file if line.startswith(field)]
    except OSError:
        return None
    return int(found[0]) if found else None
