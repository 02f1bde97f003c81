"""kio entities <-> the client's values. Pure; one function per message; nothing here sends."""

from collections.abc import Mapping
from typing import Any

from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.types import BrokerId as KioBrokerId
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32, i64

from holdfast.client.refused import refusal
from holdfast.client.views import (
    BrokerNode,
    ClusterMetadata,
    IsolationLevel,
    OffsetAt,
    OffsetSpec,
    PartitionMetadata,
    TopicView,
)
from holdfast.model.errors import HoldfastError
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs, TopicPartition


def none_if_negative(number: int) -> int | None:
    """The wire's -1 becomes absence."""
    return None if number < 0 else int(number)


def cluster_view(answer: Any) -> ClusterMetadata:
    """Metadata v12."""
    brokers = {
        int(b.node_id): BrokerNode(broker_id=int(b.node_id), host=b.host, port=int(b.port), rack=b.rack)
        for b in answer.brokers
    }
    return ClusterMetadata(
        cluster_id=answer.cluster_id,
        controller_id=none_if_negative(answer.controller_id),
        brokers=brokers,
        topics={str(t.name): _topic_view(t) for t in answer.topics},
    )


def _topic_view(topic: Any) -> TopicView:
    return TopicView(
        name=str(topic.name),
        topic_id=topic.topic_id,
        internal=topic.is_internal,
        partitions=tuple(
            PartitionMetadata(
                partition=int(p.partition_index),
                leader=none_if_negative(p.leader_id),
                leader_epoch=none_if_negative(p.leader_epoch),
                replicas=tuple(map(int, p.replica_nodes)),
                isr=tuple(map(int, p.isr_nodes)),
                offline=tuple(map(int, p.offline_replicas)),
                error=refusal(p.error_code.value, None, f"partition {topic.name}-{p.partition_index}"),
            )
            for p in sorted(topic.partitions, key=lambda p: int(p.partition_index))
        ),
        error=refusal(topic.error_code.value, None, f"topic {topic.name!r}"),
    )


def list_offsets_request(
    specs: Mapping[TopicPartition, OffsetSpec | TimestampMs], isolation: IsolationLevel
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for tp, spec in specs.items():
        number = spec.value if isinstance(spec, OffsetSpec) else spec
        by_topic.setdefault(tp.topic, []).append(
            ListOffsetsPartition(partition_index=i32(tp.partition), timestamp=i64(number))
        )
    return ListOffsetsRequest(
        replica_id=KioBrokerId(-1),
        isolation_level=i8(isolation.value),
        topics=tuple(ListOffsetsTopic(name=TopicName(t), partitions=tuple(ps)) for t, ps in by_topic.items()),
    )


def listed_offsets(answer: Any) -> dict[TopicPartition, OffsetAt | HoldfastError]:
    found: dict[TopicPartition, OffsetAt | HoldfastError] = {}
    for topic in answer.topics:
        for p in topic.partitions:
            tp = TopicPartition(str(topic.name), int(p.partition_index))
            found[tp] = refusal(p.error_code.value, None, f"offsets of {tp}") or OffsetAt(
                offset=none_if_negative(p.offset),
                timestamp_ms=none_if_negative(p.timestamp),
                leader_epoch=none_if_negative(p.leader_epoch),
            )
    return found


def epoch_ends_request(epochs: Mapping[TopicPartition, LeaderEpoch]) -> OffsetForLeaderEpochRequest:
    by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
    for tp, epoch in epochs.items():
        by_topic.setdefault(tp.topic, []).append(
            OffsetForLeaderPartition(partition=i32(tp.partition), leader_epoch=i32(epoch))
        )
    return OffsetForLeaderEpochRequest(
        replica_id=KioBrokerId(-1),
        topics=tuple(OffsetForLeaderTopic(topic=TopicName(t), partitions=tuple(ps)) for t, ps in by_topic.items()),
    )


def found_epoch_ends(
    answer: Any,
) -> dict[TopicPartition, tuple[LeaderEpoch | None, Offset | None] | HoldfastError]:
    found: dict[TopicPartition, tuple[LeaderEpoch | None, Offset | None] | HoldfastError] = {}
    for topic in answer.topics:
        for p in topic.partitions:
            tp = TopicPartition(str(topic.topic), int(p.partition))
            found[tp] = refusal(p.error_code.value, None, f"epochs of {tp}") or (
                none_if_negative(p.leader_epoch),
                none_if_negative(p.end_offset),
            )
    return found
