"""Prometheus' lines of a broker as a whole, and of its topics and partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.broker.metrics_lines import gauge, head, labels, line, of_listener
from holdfast.broker.metrics_names import SOCKET_MBEAN, SOCKETS, kafka_name

if TYPE_CHECKING:
    from holdfast.broker.metrics import BrokerReading, Reading
    from holdfast.broker.metrics_partitions import PartitionRow, TopicRow

_PURGATORY: Final = "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize"
_GROUPS: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="
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


def broker_lines(reading: BrokerReading) -> Iterator[str]:
    """What is not by topic, directory or API."""
    for mbean, attribute, meaning in _OF_BROKER:
        yield from gauge(kafka_name(mbean), f"{mbean}. {meaning}", [("", getattr(reading, attribute))])
    waiting = (("Produce", reading.waiting_appends), ("Fetch", reading.waiting_fetches))
    yield from gauge(
        kafka_name(_PURGATORY),
        f"{_PURGATORY},delayedOperation=API. Appends that wait for in-sync replicas, fetches that wait for records.",
        [(labels({"delayedOperation": api}), count) for api, count in waiting],
    )
    mbean = "kafka.server:type=ReplicaFetcherManager,name=MaxLag"
    replica = labels({"clientId": "Replica"})
    yield from gauge(kafka_name(mbean), f"{mbean},clientId=Replica. Records.", [(replica, reading.max_lag)])
    yield from gauge(
        f"{SOCKETS}connection_count",
        f"{SOCKET_MBEAN} Connections now.",
        [(of_listener(listener), count) for listener, count in reading.connected.items()],
    )
    created = f"{SOCKETS}connection_creation_total"
    yield head(created, "counter", f"{SOCKET_MBEAN} Connections since the start.")
    for listener, count in reading.accepted.items():
        yield line(created, of_listener(listener), count)
    for name, value in (("", sum(reading.groups.values())), *sorted(reading.groups.items())):
        mbean = f"{_GROUPS}NumGroups{name}"
        yield from gauge(kafka_name(mbean), f"{mbean}. Coordinated here.", [("", value)])
    mbean = f"{_STATS}UncleanLeaderElections"
    family = f"{kafka_name(mbean)}_total"
    yield head(family, "counter", f"{mbean}PerSec. To one that may not have everything; decided here.")
    yield line(family, "", reading.unclean_elections)
    mbean = f"{_STATS}LeaderElectionRateAndTimeMs"
    yield head(kafka_name(mbean), "summary", f"{mbean}. Partitions that got another leader; decided here.")
    yield line(f"{kafka_name(mbean)}_count", "", reading.elections)


def topic_lines(rows: Sequence[tuple[str, TopicRow]]) -> Iterator[str]:
    """Of the topics that have a replica here."""
    marks: list[str] = []
    for topic, _ in rows:
        marks.append(labels({"topic": topic}))
        yield ""
    for name, value, meaning in _OF_TOPIC if rows else ():
        family = f"holdfast_topic_{name}"
        yield head(family, "gauge", meaning)
        for marked, (_, row) in zip(marks, rows, strict=True):
            yield line(family, marked, value(row))


def partition_lines(reading: Reading) -> Iterator[str]:
    """Of each replica with a log; with metrics.level=partition."""
    rows, marks = reading.partition_rows, list[str]()
    for row in rows:
        topic, partition = row.topic_partition
        marks.append(labels({"topic": topic, "partition": str(partition)}))
        yield ""
    for mbean, value, of_leader, meaning in _BY_PARTITION if rows else ():
        family = kafka_name(mbean)
        yield head(family, "gauge", f"{mbean},topic=T,partition=N. {meaning}")
        for marked, row in zip(marks, rows, strict=True):
            yield line(family, marked, value(row)) if row.is_leader or not of_leader else ""
    lags = () if reading.broker is None else reading.broker.lags
    mbean = "kafka.server:type=FetcherLagMetrics,name=ConsumerLag"
    if lags:
        told = f"{mbean},clientId=Replica,topic=T,partition=N. Records behind its leader."
        yield head(kafka_name(mbean), "gauge", told)
    for (topic, partition), behind in lags:
        of_row = {"clientId": "Replica", "topic": topic, "partition": str(partition)}
        yield line(kafka_name(mbean), labels(of_row), behind)
