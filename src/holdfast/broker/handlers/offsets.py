"""ListOffsets (API 2), OffsetForLeaderEpoch (API 23) and DeleteRecords (API 21).

ListOffsets 1-11: earliest (-2), latest (-1), max timestamp (-3, from version 7), local log start (-4, 8), last
tiered (-5, 9) and earliest pending upload (-6, 11); without tiered storage -5 and -6 answer "none". A timestamp
that a version does not know answers UNSUPPORTED_VERSION for that partition, as Kafka does.

The end of a log includes every record that was acknowledged before it was asked for. So a leader that has not heard of
its session in time, and may have been replaced, does not tell one (H-13). Nor does it say of an epoch later than its
own that it never was: whoever asks may have read what the next leader wrote.
"""

from __future__ import annotations

import asyncio
import datetime
from functools import partial
from typing import Any

from holdfast.broker.handlers.base import RequestContext, answered, respond
from holdfast.broker.handlers.fetch import refuse_follower
from holdfast.broker.large_requests import gathered, paced
from holdfast.model.config import LogConfig
from holdfast.model.errors import (
    HoldfastError,
    InvalidTopicError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from holdfast.model.internal_topics import INTERNAL_TOPICS
from holdfast.model.types import TopicPartition
from holdfast.replication.types import EpochEnd, Isolation, OffsetResult, SpecialTimestamp
from holdfast.security.operations import refusal
from holdfast.security.resources import Operation, ResourceKind

_SINCE = {
    SpecialTimestamp.MAX_TIMESTAMP.value: 7,
    SpecialTimestamp.EARLIEST_LOCAL.value: 8,
    SpecialTimestamp.LATEST_TIERED.value: 9,
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD.value: 11,
}
_LOWEST = min(_SINCE)
_OF_THE_END = (SpecialTimestamp.LATEST.value, SpecialTimestamp.MAX_TIMESTAMP.value)


def _wire_epoch(request_partition: Any) -> int | None:
    epoch = getattr(request_partition, "current_leader_epoch", -1)
    return None if epoch < 0 else epoch


async def handle_list_offsets(ctx: RequestContext, request: Any) -> Any:
    """One answer per partition; those that need the disk are asked for at once and awaited together."""
    isolation = getattr(request, "isolation_level", 0)
    may_describe = ctx.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, {str(t.name) for t in request.topics})
    topics: list[dict[str, Any]] = []
    async for topic in paced(request.topics):
        if topic.name not in may_describe:
            topics.append({"name": topic.name, "partitions": [_undescribed(p) for p in topic.partitions]})
            continue
        answers = (_list_offset(ctx, topic.name, p, isolation) for p in topic.partitions)
        topics.append({"name": topic.name, "partitions": await gathered(answers)})
    return respond(ctx, topics=topics)


_NO_OFFSET = {"timestamp": -1, "offset": -1, "leader_epoch": -1}


def _undescribed(p: Any) -> dict[str, Any]:
    return _NO_OFFSET | {"partition_index": p.partition_index, "error_code": refusal(ResourceKind.TOPIC)}


async def _list_offset(ctx: RequestContext, topic: str, p: Any, isolation: int) -> dict[str, Any]:
    none = _NO_OFFSET | {"partition_index": p.partition_index}
    # kio has the timestamp as a number of milliseconds
    timestamp = p.timestamp
    if timestamp < _LOWEST or ctx.version < _SINCE.get(timestamp, 1):
        return none | {"error_code": UnsupportedVersionError()}
    if timestamp in _OF_THE_END and not ctx.broker.membership.is_current:
        return none | {"error_code": NotLeaderOrFollowerError("the session is over: another broker may lead")}
    list_offset = partial(
        ctx.broker.replicas.list_offset,
        TopicPartition(topic, p.partition_index),
        timestamp if timestamp >= 0 else SpecialTimestamp(timestamp),
        isolation=Isolation.READ_COMMITTED if isolation else Isolation.READ_UNCOMMITTED,
        current_leader_epoch=_wire_epoch(p),
    )
    result: OffsetResult | HoldfastError = await answered(lambda done: list_offset(done=done))
    if isinstance(result, HoldfastError):
        return none | {"error_code": result}
    return {
        "partition_index": p.partition_index,
        "timestamp": _wire(result.timestamp_ms),
        "offset": _wire(result.offset),
        "leader_epoch": _wire(result.leader_epoch),
    }


def _wire(number: int | None) -> int:
    return -1 if number is None else number


async def handle_offset_for_leader_epoch(ctx: RequestContext, request: Any) -> Any:
    """Where each asked epoch ends in the leader's log (KIP-101, KIP-279)."""
    replica_id = getattr(request, "replica_id", -1)
    if replica_id >= 0 and not ctx.connection.listener.for_brokers:
        refuse_follower(ctx.connection, "OffsetForLeaderEpoch", replica_id)
        return None
    may_all = ctx.is_judged and ctx.may(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
    named = {str(topic.topic) for topic in request.topics}
    may_describe = named if may_all else ctx.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, named)
    topics = []
    for topic in request.topics:
        partitions = []
        for p in topic.partitions:
            if topic.topic not in may_describe:
                denied = {"error_code": refusal(ResourceKind.TOPIC), "leader_epoch": -1, "end_offset": -1}
                partitions.append(denied | {"partition": p.partition})
                continue
            found = ctx.broker.replicas.offset_for_leader_epoch(
                TopicPartition(topic.topic, p.partition), p.leader_epoch, current_leader_epoch=_wire_epoch(p)
            )
            if isinstance(found, EpochEnd) and found.end_offset is None and not ctx.broker.membership.is_current:
                found = NotLeaderOrFollowerError("the session is over: another broker may lead, in that epoch")
            answer: dict[str, Any] = {"partition": p.partition, "leader_epoch": -1, "end_offset": -1}
            if isinstance(found, HoldfastError):
                answer["error_code"] = found
            else:
                answer |= {"leader_epoch": _wire(found.leader_epoch), "end_offset": _wire(found.end_offset)}
            partitions.append(answer)
        topics.append({"topic": topic.topic, "partitions": partitions})
    return respond(ctx, topics=topics)


async def handle_delete_records(ctx: RequestContext, request: Any) -> Any:
    """Raise the log start of each partition; -1 means up to the high watermark."""
    timeout_ms = _milliseconds(request.timeout)
    may_delete = ctx.allowed(Operation.DELETE, ResourceKind.TOPIC, {str(t.name) for t in request.topics})
    topics: list[dict[str, Any]] = []
    for topic in request.topics:
        name = topic.name
        if name not in may_delete:
            denied = {"low_watermark": -1, "error_code": refusal(ResourceKind.TOPIC)}
            refused = [denied | {"partition_index": p.partition_index} for p in topic.partitions]
            topics.append({"name": name, "partitions": refused})
            continue
        answers = [
            _delete(ctx, TopicPartition(name, p.partition_index), p.offset, timeout_ms) for p in topic.partitions
        ]
        topics.append({"name": topic.name, "partitions": await asyncio.gather(*answers)})
    return respond(ctx, topics=topics)


async def _delete(ctx: RequestContext, tp: TopicPartition, offset: int, timeout_ms: int) -> dict[str, Any]:
    answer: dict[str, Any] = {"partition_index": tp.partition, "low_watermark": -1}
    is_known = ctx.broker.metadata.partition(tp) is not None
    if is_known and tp.topic in INTERNAL_TOPICS:
        return answer | {"error_code": InvalidTopicError()}
    if offset < -1:
        return answer | {"error_code": OffsetOutOfRangeError() if is_known else UnknownTopicOrPartitionError()}
    if _is_kept_by_key(ctx, tp):
        return answer | {"error_code": PolicyViolationError()}
    before, now_ms, replicas = None if offset == -1 else offset, ctx.now_ms, ctx.broker.replicas
    result: int | HoldfastError = await answered(
        lambda done: replicas.delete_records(tp, before, timeout_ms=timeout_ms, now_ms=now_ms, done=done)
    )
    if isinstance(result, HoldfastError):
        return answer | {"error_code": result}
    return answer | {"low_watermark": result}


def _is_kept_by_key(ctx: RequestContext, tp: TopicPartition) -> bool:
    """True when we lead a topic whose cleanup.policy lacks "delete"."""
    metadata = ctx.broker.metadata
    info = metadata.partition(tp)
    if info is None or info.leader != ctx.broker.broker_id:
        return False  # that is the error to tell
    config = LogConfig.of(ctx.broker.config, metadata.topic_configs.get(tp.topic, {}))
    return "delete" not in config.cleanup_policy


def _milliseconds(value: datetime.timedelta) -> int:
    return int(value.total_seconds() * 1000)
