"""Topics as lines of text, the way kafka-topics.sh prints them, with a column of offline replicas. Pure."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from holdfast.client.views import ConfigValue, PartitionMetadata, TopicView
from holdfast.model.types import BrokerId

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which lines ``describe`` prints; the first four select partitions, the fifth topics."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    with_overrides: bool = False

    @property
    def of_partitions(self) -> bool:
        return self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr


def describe_lines(
    topics: Iterable[TopicView],
    configs: Mapping[str, Iterable[ConfigValue]],
    live: Iterable[BrokerId],
    chosen: Filter,
) -> Iterator[str]:
    """One line per topic and one per partition, as far as ``chosen`` lets them through."""
    alive = frozenset(live)
    for topic in sorted(topics, key=lambda t: t.name):
        values = tuple(configs.get(topic.name, ()))
        set_ones = sorted((c for c in values if c.source != "DEFAULT_CONFIG"), key=lambda c: c.name)
        if not chosen.of_partitions and (set_ones or not chosen.with_overrides):
            yield topic_line(topic, set_ones)
        if chosen.with_overrides and not chosen.of_partitions:
            continue
        for partition in passing(topic, values, alive, chosen):
            yield partition_line(topic.name, partition)


def passing(
    topic: TopicView, configs: Iterable[ConfigValue], alive: frozenset[BrokerId], chosen: Filter
) -> Iterator[PartitionMetadata]:
    """The partitions that ``chosen`` lets through."""
    min_isr = next((int(c.value) for c in configs if c.name == MIN_ISR and c.value), 1)
    for partition in topic.partitions:
        if not chosen.of_partitions or _passes(partition, alive, min_isr, chosen):
            yield partition


def topic_line(topic: TopicView, configs: Iterable[ConfigValue]) -> str:
    columns = {
        "Topic": topic.name,
        "TopicId": base64_id(topic.topic_id),
        "PartitionCount": len(topic.partitions),
        "ReplicationFactor": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "Configs": ",".join(f"{c.name}={c.value}" for c in configs),
    }
    return "\t".join(f"{name}: {value}" for name, value in columns.items())


def partition_line(topic: str, partition: PartitionMetadata) -> str:
    columns = {
        "Topic": topic,
        "Partition": partition.partition,
        "Leader": "none" if partition.leader is None else partition.leader,
        "Replicas": _ids(partition.replicas),
        "Isr": _ids(partition.isr),
        "Offline": _ids(partition.offline),
        "Elr": "",
        "LastKnownElr": "",
    }
    return "\t" + "\t".join(f"{name}: {value}" for name, value in columns.items())


def base64_id(topic_id: UUID | None) -> str:
    """Kafka's way to print a UUID: base64 for URLs without padding."""
    return "" if topic_id is None else base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _ids(ids: Iterable[BrokerId]) -> str:
    return ",".join(map(str, ids))


def _passes(partition: PartitionMetadata, alive: frozenset[BrokerId], min_isr: int, chosen: Filter) -> bool:
    min_isr = min(min_isr, len(partition.replicas))  # as the leader goes by it
    return (
        (chosen.under_replicated and len(partition.isr) < len(partition.replicas))
        or (chosen.unavailable and (partition.leader is None or partition.leader not in alive))
        or (chosen.under_min_isr and len(partition.isr) < min_isr)
        or (chosen.at_min_isr and len(partition.isr) == min_isr)
    )
