"""DescribeTopicPartitions (75): topics partition by partition, in pages, with the replicas that are eligible (KIP-966).

Version 0. The controller knows who is eligible; a broker that is not it asks it where an ISR is short, and answers
without where nobody tells it in time.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.forwarding import forward
from holdfast.broker.handlers.metadata import (
    FIRST_WITH_LISTENERS,
    NO_AUTHORIZED_OPERATIONS,
    View,
    legal_topic_name,
    partition_fields,
)
from holdfast.model.errors import HoldfastError, InvalidRequestError, InvalidTopicError, UnknownTopicOrPartitionError
from holdfast.model.internal_topics import INTERNAL_TOPICS
from holdfast.model.types import BrokerId
from holdfast.security.operations import refusal
from holdfast.security.resources import Operation, ResourceKind

MAX_PARTITIONS = 2000
"""In one answer, whatever was asked for (max.request.partition.size.limit)."""
ASK_S = 2.0


async def handle_describe_topic_partitions(ctx: RequestContext, request: Any) -> Any:
    """Topics by name, those that do not exist first; ``next_cursor`` is where the next page begins."""
    cache, cursor = ctx.broker.metadata, request.cursor
    first = ("", 0) if cursor is None else (str(cursor.topic_name), int(cursor.partition_index))
    named = sorted({str(t.name) for t in request.topics})
    if first[1] < 0 or (cursor is not None and named and first[0] not in named):
        return respond(ctx, topics=[_failed(name, InvalidRequestError()) for name in named], next_cursor=None)
    may_describe = ctx.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, named or cache.topics, is_filter=not named)
    wanted = sorted(may_describe)
    known = [name for name in wanted if name >= first[0] and name in cache.topics]
    if ctx.broker.controller is None and _is_short(ctx, known):
        try:
            answer = await forward(ctx, ASK_S)
            if answer is not None:
                return answer
        except HoldfastError:
            pass  # no controller just now
    topics = [_missing(ctx, name) for name in wanted if name >= first[0] and name not in cache.topics]
    room, more = max(1, min(request.response_partition_limit, MAX_PARTITIONS)), None
    for name in known:
        numbers = [n for n in sorted(cache.topics[name]) if name != first[0] or n >= first[1]]
        if room <= 0:
            more = {"topic_name": name, "partition_index": 0}
            break
        topics.append(_topic(ctx, name, numbers[:room]))
        if len(numbers) > room:
            more = {"topic_name": name, "partition_index": numbers[room]}
            break
        room -= len(numbers)
    topics += [_hidden(name) for name in named if name >= first[0] and name not in may_describe]
    return respond(ctx, topics=topics, next_cursor=more)


def _is_short(ctx: RequestContext, names: list[str]) -> bool:
    topics = ctx.broker.metadata.topics
    return any(len(info.isr) < len(info.replicas) for name in names for info in topics[name].values())


def _hidden(name: str) -> dict[str, Any]:
    """One that may not be described, whether it exists or not."""
    return _failed(name, refusal(ResourceKind.TOPIC))


def _failed(name: str, error: HoldfastError) -> dict[str, Any]:
    return {"error_code": error, "name": name, "topic_authorized_operations": NO_AUTHORIZED_OPERATIONS}


def _missing(ctx: RequestContext, name: str) -> dict[str, Any]:
    error = UnknownTopicOrPartitionError() if legal_topic_name(name) else InvalidTopicError()
    operations = ctx.operations(ResourceKind.TOPIC, name)
    return {"error_code": error, "name": name, "topic_authorized_operations": operations}


def _topic(ctx: RequestContext, name: str, numbers: list[int]) -> dict[str, Any]:
    cache = ctx.broker.metadata
    view = View.of(ctx, FIRST_WITH_LISTENERS)
    partitions = []
    for number in numbers:
        fields = partition_fields(view, number, cache.topics[name][number])
        eligible = _eligible(ctx, name, number)
        partitions.append(fields | {"eligible_leader_replicas": eligible, "last_known_elr": ()})
    return {
        "name": name,
        "topic_id": cache.topic_ids[name],
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": partitions,
        "topic_authorized_operations": ctx.operations(ResourceKind.TOPIC, name),
    }


def _eligible(ctx: RequestContext, name: str, number: int) -> tuple[BrokerId, ...]:
    controller = ctx.broker.controller
    topic = None if controller is None else controller.image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(number)
    return () if partition is None else partition.elr
