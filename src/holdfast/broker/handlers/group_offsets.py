"""Offsets of groups: OffsetCommit (8) 2-10, OffsetFetch (9) 1-10, OffsetDelete (47) 0; the wire side of
groups/offsets.py.

Owns the one check that the coordinator cannot make: whether a topic exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.handlers.base import RequestContext, answered, respond
from holdfast.broker.handlers.leaders import is_led_here
from holdfast.broker.large_requests import gathered
from holdfast.coordinators.partitioning import partition_for
from holdfast.groups.types import (
    CommitRequest,
    CommitResult,
    FetchedOffsets,
    OffsetAndMetadata,
    OffsetDeleteResult,
    OffsetToCommit,
)
from holdfast.model.errors import (
    HoldfastError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from holdfast.model.group_errors import NotCoordinatorError
from holdfast.model.internal_topics import OFFSETS_TOPIC
from holdfast.model.types import TopicPartition
from holdfast.security.operations import refusal
from holdfast.security.resources import Operation, ResourceKind

if TYPE_CHECKING:
    from holdfast.groups.coordinator import GroupCoordinator

_NONE: Final = -1
"""No generation, offset, epoch or retention on the wire."""
_MILLISECOND: Final = timedelta(milliseconds=1)
_FETCH_ERROR, _FETCH_MANY = 2, 8
_COMMIT_NOT_FOUND: Final = 9


def coordinator_of(ctx: RequestContext) -> GroupCoordinator:
    """This broker's, which knows how many partitions there are."""
    coordinator = ctx.broker.groups
    partitions = ctx.broker.metadata.topics.get(OFFSETS_TOPIC)
    if partitions:
        coordinator.partition_count = len(partitions)
    return coordinator


def _name_of(ctx: RequestContext, topic: Any) -> str | None:
    """The topic's name; from version 10 of OffsetCommit and OffsetFetch on topics come by id."""
    if hasattr(topic, "topic_id"):
        return None if topic.topic_id is None else ctx.broker.metadata.topic_names.get(topic.topic_id)
    name: str = topic.name
    return name


def _same_topic(topic: Any) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if hasattr(topic, "topic_id") else {"name": topic.name}


def allowed_topics(ctx: RequestContext, operation: Operation, topics: Iterable[Any]) -> frozenset[str]:
    """Those of a request's topics, whose names are known, on which who asks may do this."""
    names = {name for topic in topics if (name := _name_of(ctx, topic)) is not None}
    return ctx.allowed(operation, ResourceKind.TOPIC, names)


def _missing(ctx: RequestContext, allowed: frozenset[str], name: str | None, partition: int) -> HoldfastError | None:
    if name is None:
        return UnknownTopicIdError("no topic has this id")
    if name not in allowed:
        return refusal(ResourceKind.TOPIC)
    tp = TopicPartition(name, partition)
    if ctx.broker.metadata.partition(tp) is None:
        return UnknownTopicOrPartitionError(f"there is no partition {tp}")
    return None


def offsets_to_commit(
    ctx: RequestContext, allowed: frozenset[str], topics: Iterable[Any]
) -> tuple[OffsetToCommit, ...]:
    """Those in partitions that exist, of topics that are allowed."""
    topic_ids = ctx.broker.metadata.topic_ids
    offsets = []
    for topic in topics:
        name = _name_of(ctx, topic)
        for p in topic.partitions:
            if name is not None and _missing(ctx, allowed, name, p.partition_index) is None:
                epoch = getattr(p, "committed_leader_epoch", _NONE)
                offsets.append(
                    OffsetToCommit(
                        TopicPartition(name, p.partition_index),
                        p.committed_offset,
                        None if epoch < 0 else epoch,
                        p.committed_metadata or "",
                        topic_ids.get(name),
                    )
                )
    return tuple(offsets)


async def handle_offset_commit(ctx: RequestContext, request: Any) -> Any:
    """Waits until the offsets are written to all in-sync replicas."""
    denied = ctx.missing(Operation.READ, ResourceKind.GROUP, request.group_id)
    if denied is not None:
        return respond(ctx, topics=all_refused(request.topics, denied))
    generation = request.generation_id_or_member_epoch
    retention = getattr(request, "retention_time", -_MILLISECOND)
    allowed = allowed_topics(ctx, Operation.READ, request.topics)
    offsets = offsets_to_commit(ctx, allowed, request.topics)
    result: CommitResult = {}
    if offsets:
        commit = CommitRequest(
            group_id=request.group_id,
            member_id=request.member_id or None,
            instance_id=getattr(request, "group_instance_id", None),
            generation=None if generation < 0 else generation,
            retention_ms=None if retention < timedelta(0) else retention // _MILLISECOND,
            offsets=offsets,
            knows_group_not_found=ctx.version >= _COMMIT_NOT_FOUND,
        )
        coordinator = coordinator_of(ctx)
        result = await answered(lambda reply: coordinator.commit(commit, ctx.now_ms, reply))
    return respond(ctx, topics=per_partition(ctx, allowed, request.topics, result))


def all_refused(topics: Iterable[Any], error: HoldfastError) -> list[dict[str, Any]]:
    """The request's topics again with one error for all."""
    return [
        _same_topic(topic)
        | {"partitions": [{"partition_index": p.partition_index, "error_code": error} for p in topic.partitions]}
        for topic in topics
    ]


def per_partition(
    ctx: RequestContext, allowed: frozenset[str], topics: Iterable[Any], result: CommitResult
) -> list[dict[str, Any]]:
    """The request's topics again with an error code each; those that were not tried are not allowed, or do not
    exist."""
    answers = []
    for topic in topics:
        name = _name_of(ctx, topic)
        partitions = []
        for p in topic.partitions:
            tp = TopicPartition(name or "", p.partition_index)
            tried = name is not None and tp in result
            error = result[tp] if tried else _missing(ctx, allowed, name, tp.partition)
            partitions.append({"partition_index": tp.partition, "error_code": error})
        answers.append(_same_topic(topic) | {"partitions": partitions})
    return answers


async def handle_offset_fetch(ctx: RequestContext, request: Any) -> Any:
    """One group before version 8, several from then on. Who requires stable offsets (KIP-447) is told which are not."""
    stable = getattr(request, "require_stable", False)
    if ctx.version >= _FETCH_MANY:
        return respond(ctx, groups=await gathered(_fetch_group(ctx, group, stable) for group in request.groups))
    answer = await _fetch_group(ctx, request, stable)
    if ctx.version < _FETCH_ERROR and answer["error_code"] is not None:
        answer["topics"] = [
            {
                "name": topic.name,
                "partitions": [
                    _fetched(i, None) | {"error_code": answer["error_code"]} for i in topic.partition_indexes
                ],
            }
            for topic in request.topics or ()
        ]
    return respond(ctx, topics=answer["topics"], error_code=answer["error_code"])


async def _fetch_group(ctx: RequestContext, group: Any, stable: bool) -> dict[str, Any]:
    denied = ctx.missing(Operation.DESCRIBE, ResourceKind.GROUP, group.group_id)
    if denied is not None:
        return {"group_id": group.group_id, "topics": [], "error_code": denied}
    coordinator = coordinator_of(ctx)
    of_group = TopicPartition(OFFSETS_TOPIC, partition_for(group.group_id, coordinator.partition_count))
    if not await is_led_here(ctx.broker, of_group):
        # The next coordinator may have taken a commit: what is known here would send a consumer back.
        error = NotCoordinatorError("the session is over: another broker may coordinate the group")
        return {"group_id": group.group_id, "topics": [], "error_code": error}
    if group.topics is None:
        found = coordinator.fetch_offsets(group.group_id, None, ctx.now_ms, require_stable=stable)
        return {"group_id": group.group_id, "topics": _all_topics(ctx, found), "error_code": found.error}
    asked = [(topic, _name_of(ctx, topic)) for topic in group.topics]
    allowed = allowed_topics(ctx, Operation.DESCRIBE, group.topics)
    partitions = [TopicPartition(name, i) for t, name in asked if name in allowed for i in t.partition_indexes]
    found = coordinator.fetch_offsets(group.group_id, partitions, ctx.now_ms, require_stable=stable)
    topics = []
    if found.error is None:
        for topic, name in asked:
            answers = [
                _fetched(i, None)
                | {"error_code": UnknownTopicIdError() if name is None else refusal(ResourceKind.TOPIC)}
                if name is None or name not in allowed
                else _found(found, TopicPartition(name, i))
                for i in topic.partition_indexes
            ]
            topics.append(_same_topic(topic) | {"partitions": answers})
    return {"group_id": group.group_id, "topics": topics, "error_code": found.error}


def _all_topics(ctx: RequestContext, found: FetchedOffsets) -> list[dict[str, Any]]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for tp in found.offsets:
        by_topic.setdefault(tp.topic, []).append(_found(found, tp))
    ids = ctx.broker.metadata.topic_ids
    allowed = ctx.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, by_topic, is_filter=True)
    return [
        {"name": t, "topic_id": ids.get(t), "partitions": answers} for t, answers in by_topic.items() if t in allowed
    ]


def _found(found: FetchedOffsets, tp: TopicPartition) -> dict[str, Any]:
    if tp in found.unstable:
        return _fetched(tp.partition, None) | {"error_code": UnstableOffsetCommitError()}
    return _fetched(tp.partition, found.offsets[tp])


def _fetched(partition: int, committed: OffsetAndMetadata | None) -> dict[str, Any]:
    epoch = None if committed is None else committed.leader_epoch
    return {
        "partition_index": partition,
        "committed_offset": _NONE if committed is None else committed.offset,
        "committed_leader_epoch": _NONE if epoch is None else epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": None,
    }


async def handle_offset_delete(ctx: RequestContext, request: Any) -> Any:
    """Waits until the tombstones are written."""
    denied = ctx.missing(Operation.DELETE, ResourceKind.GROUP, request.group_id)
    if denied is not None:
        return respond(ctx, error_code=denied)
    allowed = allowed_topics(ctx, Operation.READ, request.topics)
    asked = [TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions]
    known = [tp for tp in asked if _missing(ctx, allowed, tp.topic, tp.partition) is None]
    coordinator = coordinator_of(ctx)
    result: OffsetDeleteResult = await answered(
        lambda reply: coordinator.delete_offsets(request.group_id, known, ctx.now_ms, reply)
    )
    if result.error is not None:
        return respond(ctx, error_code=result.error)
    return respond(ctx, error_code=None, topics=per_partition(ctx, allowed, request.topics, result.partitions))
