"""Consumer groups of the classic protocol: the wire side of groups/coordinator.py.

JoinGroup (11) 0-9, SyncGroup (14) 0-5, Heartbeat (12) 0-4, LeaveGroup (13) 0-5, OffsetCommit (8) 2-10, OffsetFetch
(9) 1-10, ListGroups (16) 0-5, DescribeGroups (15) 0-6, DeleteGroups (42) 0-2, OffsetDelete (47) 0.

Owns the translation between kio's entities and the coordinator's requests, and the one check the coordinator
cannot make: whether a topic exists. Differences from Kafka: groups of the consumer protocol (KIP-848) and share
groups do not exist, so ListGroups with only those types is empty; every offset is stable, since no transaction is
coordinated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from holdfast.broker.handlers.base import RequestContext, answered, respond
from holdfast.broker.handlers.leaders import is_led_here
from holdfast.coordinators.partitioning import partition_for
from holdfast.groups.types import (
    CommitRequest,
    CommitResult,
    CommittedOffset,
    DescribedGroup,
    FetchedOffsets,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    Leaving,
    OffsetDeleteResult,
    OffsetToCommit,
    Strategy,
    SyncRequest,
    SyncResult,
)
from holdfast.model.errors import HoldfastError, UnknownTopicIdError, UnknownTopicOrPartitionError
from holdfast.model.group_errors import GroupIdNotFoundError, NotCoordinatorError
from holdfast.model.types import TopicPartition

if TYPE_CHECKING:
    from holdfast.groups.coordinator import GroupCoordinator

OFFSETS_TOPIC = "__consumer_offsets"

_NONE = -1
"""No generation, offset, epoch or retention on the wire."""
_MILLISECOND = timedelta(milliseconds=1)
_JOIN_MUST_KNOW_ID, _JOIN_NULL_PROTOCOL, _JOIN_SKIP = 4, 7, 9
_LEAVE_MANY = 3
_FETCH_ERROR, _FETCH_MANY = 2, 8
_COMMIT_NOT_FOUND = 9
_DESCRIBE_NOT_FOUND = 6
_LIST_STATES = 4
_ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""Read, delete, describe, describe configs, alter configs: what can be done with a group."""
_NOT_ASKED = -(1 << 31)


def _coordinator(ctx: RequestContext) -> GroupCoordinator:
    coordinator = ctx.broker.groups
    partitions = ctx.broker.metadata.topics.get(OFFSETS_TOPIC)
    if partitions:
        coordinator.partition_count = len(partitions)
    return coordinator


# -- members ---------------------------------------------------------------------------------------------------


async def handle_join_group(ctx: RequestContext, request: Any) -> Any:
    """Waits until the group's join phase ends."""
    session_ms = request.session_timeout // _MILLISECOND
    rebalance = getattr(request, "rebalance_timeout", None)
    join = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id or None,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=ctx.client_id or "",
        client_host=ctx.client_host,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms if rebalance is None else rebalance // _MILLISECOND,
        protocol_type=request.protocol_type,
        protocols=tuple(Strategy(p.name, p.metadata) for p in request.protocols),
        must_know_id=ctx.version >= _JOIN_MUST_KNOW_ID,
        may_skip_assignment=ctx.version >= _JOIN_SKIP,
    )
    coordinator = _coordinator(ctx)
    result: JoinResult = await answered(lambda reply: coordinator.join(join, ctx.now_ms, reply))
    no_name = None if ctx.version >= _JOIN_NULL_PROTOCOL else ""
    return respond(
        ctx,
        error_code=result.error,
        generation_id=_NONE if result.generation is None else result.generation,
        protocol_type=result.protocol_type,
        protocol_name=no_name if result.protocol_name is None else result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            {"member_id": m.member_id, "group_instance_id": m.instance_id, "metadata": m.metadata}
            for m in result.members
        ],
    )


async def handle_sync_group(ctx: RequestContext, request: Any) -> Any:
    """Waits until the leader has assigned."""
    sync = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol_name=getattr(request, "protocol_name", None),
        assignments=[(a.member_id, a.assignment) for a in request.assignments],
    )
    coordinator = _coordinator(ctx)
    result: SyncResult = await answered(lambda reply: coordinator.sync(sync, ctx.now_ms, reply))
    return respond(
        ctx,
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


async def handle_heartbeat(ctx: RequestContext, request: Any) -> Any:
    """Answers at once."""
    beat = HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
    )
    return respond(ctx, error_code=_coordinator(ctx).heartbeat(beat, ctx.now_ms))


async def handle_leave_group(ctx: RequestContext, request: Any) -> Any:
    """One member before version 3, whose error is the answer's; several from then on."""
    if ctx.version < _LEAVE_MANY:
        leaving = [Leaving(request.member_id or None)]
    else:
        leaving = [Leaving(m.member_id or None, m.group_instance_id) for m in request.members]
    result = _coordinator(ctx).leave(request.group_id, leaving, ctx.now_ms)
    if ctx.version < _LEAVE_MANY:
        return respond(ctx, error_code=result.error or result.members[0].error)
    members = [
        {
            "member_id": left.leaving.member_id or "",
            "group_instance_id": left.leaving.instance_id,
            "error_code": left.error,
        }
        for left in result.members
    ]
    return respond(ctx, error_code=result.error, members=members)


# -- offsets ---------------------------------------------------------------------------------------------------


def _name_of(ctx: RequestContext, topic: Any) -> str | None:
    """The topic's name; from version 10 of OffsetCommit and OffsetFetch on topics come by id."""
    if hasattr(topic, "topic_id"):
        return None if topic.topic_id is None else ctx.broker.metadata.topic_names.get(topic.topic_id)
    name: str = topic.name
    return name


def _same_topic(topic: Any) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if hasattr(topic, "topic_id") else {"name": topic.name}


def _missing(ctx: RequestContext, name: str | None, partition: int) -> HoldfastError | None:
    if name is None:
        return UnknownTopicIdError("no topic has this id")
    tp = TopicPartition(name, partition)
    if ctx.broker.metadata.partition(tp) is None:
        return UnknownTopicOrPartitionError(f"there is no partition {tp}")
    return None


async def handle_offset_commit(ctx: RequestContext, request: Any) -> Any:
    """Waits until the offsets are written to all in-sync replicas."""
    generation = request.generation_id_or_member_epoch
    retention = getattr(request, "retention_time", -_MILLISECOND)
    topic_ids = ctx.broker.metadata.topic_ids
    offsets = []
    for topic in request.topics:
        name = _name_of(ctx, topic)
        for p in topic.partitions:
            if _missing(ctx, name, p.partition_index) is None and name is not None:
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
    result: CommitResult = {}
    if offsets:
        commit = CommitRequest(
            group_id=request.group_id,
            member_id=request.member_id or None,
            instance_id=getattr(request, "group_instance_id", None),
            generation=None if generation < 0 else generation,
            retention_ms=None if retention < timedelta(0) else retention // _MILLISECOND,
            offsets=tuple(offsets),
            knows_group_not_found=ctx.version >= _COMMIT_NOT_FOUND,
        )
        coordinator = _coordinator(ctx)
        result = await answered(lambda reply: coordinator.commit(commit, ctx.now_ms, reply))
    return respond(ctx, topics=_per_partition(ctx, request.topics, result))


def _per_partition(ctx: RequestContext, topics: Iterable[Any], result: CommitResult) -> list[dict[str, Any]]:
    """The request's topics again with an error code each; those that were not tried do not exist."""
    answers = []
    for topic in topics:
        name = _name_of(ctx, topic)
        partitions = []
        for p in topic.partitions:
            tp = TopicPartition(name or "", p.partition_index)
            tried = name is not None and tp in result
            error = result[tp] if tried else _missing(ctx, name, tp.partition)
            partitions.append({"partition_index": tp.partition, "error_code": error})
        answers.append(_same_topic(topic) | {"partitions": partitions})
    return answers


async def handle_offset_fetch(ctx: RequestContext, request: Any) -> Any:
    """One group before version 8, several from then on."""
    if ctx.version >= _FETCH_MANY:
        return respond(ctx, groups=await asyncio.gather(*(_fetch_group(ctx, group) for group in request.groups)))
    answer = await _fetch_group(ctx, request)
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


async def _fetch_group(ctx: RequestContext, group: Any) -> dict[str, Any]:
    coordinator = _coordinator(ctx)
    of_group = TopicPartition(OFFSETS_TOPIC, partition_for(group.group_id, coordinator.partition_count))
    if not await is_led_here(ctx.broker, of_group):
        # The next coordinator may have taken a commit: what is known here would send a consumer back.
        error = NotCoordinatorError("the session is over: another broker may coordinate the group")
        return {"group_id": group.group_id, "topics": [], "error_code": error}
    if group.topics is None:
        found = coordinator.fetch_offsets(group.group_id, None, ctx.now_ms)
        return {"group_id": group.group_id, "topics": _all_topics(ctx, found), "error_code": found.error}
    asked = [(topic, _name_of(ctx, topic)) for topic in group.topics]
    partitions = [TopicPartition(name, i) for t, name in asked if name is not None for i in t.partition_indexes]
    found = coordinator.fetch_offsets(group.group_id, partitions, ctx.now_ms)
    topics = []
    if found.error is None:
        for topic, name in asked:
            answers = [
                _fetched(i, None) | {"error_code": UnknownTopicIdError()}
                if name is None
                else _fetched(i, found.offsets[TopicPartition(name, i)])
                for i in topic.partition_indexes
            ]
            topics.append(_same_topic(topic) | {"partitions": answers})
    return {"group_id": group.group_id, "topics": topics, "error_code": found.error}


def _all_topics(ctx: RequestContext, found: FetchedOffsets) -> list[dict[str, Any]]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for tp, committed in found.offsets.items():
        by_topic.setdefault(tp.topic, []).append(_fetched(tp.partition, committed))
    ids = ctx.broker.metadata.topic_ids
    return [{"name": t, "topic_id": ids.get(t), "partitions": answers} for t, answers in by_topic.items()]


def _fetched(partition: int, committed: CommittedOffset | None) -> dict[str, Any]:
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
    asked = [TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions]
    known = [tp for tp in asked if _missing(ctx, tp.topic, tp.partition) is None]
    coordinator = _coordinator(ctx)
    result: OffsetDeleteResult = await answered(
        lambda reply: coordinator.delete_offsets(request.group_id, known, ctx.now_ms, reply)
    )
    if result.error is not None:
        return respond(ctx, error_code=result.error)
    return respond(ctx, error_code=None, topics=_per_partition(ctx, request.topics, result.partitions))


# -- administration --------------------------------------------------------------------------------------------


async def handle_list_groups(ctx: RequestContext, request: Any) -> Any:
    """The groups that this broker coordinates."""
    found = _coordinator(ctx).list_groups(getattr(request, "states_filter", ()), getattr(request, "types_filter", ()))
    groups = [
        {
            "group_id": g.group_id,
            "protocol_type": g.protocol_type,
            "group_state": g.state,
            "group_type": g.group_type,
        }
        for g in found.groups
    ]
    return respond(ctx, error_code=found.error, groups=groups)


async def handle_describe_groups(ctx: RequestContext, request: Any) -> Any:
    """A group that does not exist is Dead; from version 6 on that is an error too."""
    operations = _ALL_OPERATIONS if getattr(request, "include_authorized_operations", False) else _NOT_ASKED
    coordinator = _coordinator(ctx)
    described = [coordinator.describe_group(g, ctx.now_ms) for g in request.groups]
    return respond(ctx, groups=[_described(ctx, g) | {"authorized_operations": operations} for g in described])


def _described(ctx: RequestContext, group: DescribedGroup) -> dict[str, Any]:
    error = group.error
    if isinstance(error, GroupIdNotFoundError) and ctx.version < _DESCRIBE_NOT_FOUND:
        error = None
    return {
        "error_code": error,
        "error_message": None if error is None else str(error),
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol_name,
        "members": [
            {
                "member_id": m.member_id,
                "group_instance_id": m.instance_id,
                "client_id": m.client_id,
                "client_host": m.client_host,
                "member_metadata": m.metadata,
                "member_assignment": m.assignment,
            }
            for m in group.members
        ],
    }


async def handle_delete_groups(ctx: RequestContext, request: Any) -> Any:
    """Waits until the tombstones of all of them are written."""
    coordinator = _coordinator(ctx)

    async def delete(group_id: str) -> dict[str, Any]:
        error: HoldfastError | None = await answered(lambda done: coordinator.delete_group(group_id, ctx.now_ms, done))
        return {"group_id": group_id, "error_code": error}

    return respond(ctx, results=await asyncio.gather(*(delete(g) for g in request.groups_names)))
