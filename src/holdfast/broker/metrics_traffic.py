"""Prometheus' lines of what went in and out: Kafka's BrokerTopicMetrics and the rates of ReplicaManager."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from holdfast.broker.metrics_lines import head, labels, line
from holdfast.broker.metrics_names import kafka_name

if TYPE_CHECKING:
    from holdfast.broker.metrics import TrafficReading

_TOPICS, _MANAGER = "kafka.server:type=BrokerTopicMetrics,name=", "kafka.server:type=ReplicaManager,name="
_BY_TOPIC: Final = (
    ("BytesIn", "bytes_in", "Bytes of batches that were appended here as leader."),
    ("BytesOut", "bytes_out", "Bytes of batches that were sent to consumers."),
    ("MessagesIn", "messages_in", "Records in those that came in, by the headers of their batches."),
    ("BytesRejected", "bytes_rejected", "Bytes of batches that were larger than the topic allows."),
    ("TotalProduceRequests", "produces", "Partitions of Produce requests, and what coordinators write."),
    ("TotalFetchRequests", "fetches", "Partitions of Fetch requests that were looked at, of followers too."),
    ("FailedProduceRequests", "failed_produces", "Refused or late, but for those that belong to another broker."),
    ("FailedFetchRequests", "failed_fetches", "Not read, but for those that belong to another broker."),
)
"""Kafka's name without PerSec, field of TopicCounts, meaning."""
_IN_ALL: Final = (
    (_TOPICS, "ReplicationBytesIn", "replication_bytes_in", "Bytes of batches that were appended here as follower."),
    (_TOPICS, "ReplicationBytesOut", "replication_bytes_out", "Bytes of batches that were sent to followers."),
    (_TOPICS, "ReassignmentBytesIn", "reassignment_bytes_in", "Those of them that a reassignment moves here."),
    (_TOPICS, "ReassignmentBytesOut", "reassignment_bytes_out", "Those of them that a reassignment moves away."),
    (_MANAGER, "IsrShrinks", "isr_shrinks", "Led here: replicas left the ISR."),
    (_MANAGER, "IsrExpands", "isr_expands", "Led here: replicas joined the ISR."),
    (_MANAGER, "FailedIsrUpdates", "isr_updates_failed", "Led here: the controller refused to change the ISR."),
)


def traffic_lines(reading: TrafficReading) -> Iterator[str]:
    """Counters. As Kafka's: one without a label that is of all topics, and one for each topic here."""
    marks: list[str] = []
    for topic, _ in reading.topics:
        marks.append(labels({"topic": topic}))
        yield ""
    for name, attribute, meaning in _BY_TOPIC:
        value, family = attrgetter(attribute), f"{kafka_name(_TOPICS + name)}_total"
        yield head(family, "counter", f"{_TOPICS}{name}PerSec. {meaning}")
        yield line(family, "", value(reading.total))
        for marked, (_, counts) in zip(marks, reading.topics, strict=True):
            yield line(family, marked, value(counts))
    for where, name, attribute, meaning in _IN_ALL:
        family = f"{kafka_name(where + name)}_total"
        yield head(family, "counter", f"{where}{name}PerSec. {meaning}")
        yield line(family, "", getattr(reading, attribute))
