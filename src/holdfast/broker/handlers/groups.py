"""Consumer groups of the classic protocol: the wire side of groups/coordinator.py.

JoinGroup (11) 0-9, SyncGroup (14) 0-5, Heartbeat (12) 0-4, LeaveGroup (13) 0-5, ListGroups (16) 0-5, DescribeGroups
(15) 0-6, DeleteGroups (42) 0-2. Offsets are group_offsets.py's and txn_offsets.py's.

Owns the translation between kio's entities and the coordinator's requests. Differences from Kafka: groups of the
consumer protocol (KIP-848) and share groups do not exist, so ListGroups with only those types is empty.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.broker.handlers.base import RequestContext, answered, respond
from holdfast.broker.handlers.group_offsets import coordinator_of
from holdfast.broker.large_requests import gathered, paced
from holdfast.groups.types import (
    DescribedGroup,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    Leaving,
    Left,
    Strategy,
    SyncRequest,
    SyncResult,
)
from holdfast.model.errors import HoldfastError
from holdfast.model.group_errors import GroupIdNotFoundError, UnknownMemberIdError
from holdfast.security.operations import refusal
from holdfast.security.resources import Operation, ResourceKind

_NONE = -1
"""No generation, offset, epoch or retention on the wire."""
_MILLISECOND = timedelta(milliseconds=1)
_JOIN_MUST_KNOW_ID, _JOIN_NULL_PROTOCOL, _JOIN_SKIP = 4, 7, 9
_LEAVE_MANY = 3
_FETCH_ERROR, _FETCH_MANY = 2, 8
_COMMIT_NOT_FOUND = 9
_DESCRIBE_NOT_FOUND = 6
_LIST_STATES = 4
_NOT_ASKED = -(1 << 31)


# -- members ---------------------------------------------------------------------------------------------------


def _unreadable(ctx: RequestContext, request: Any) -> HoldfastError | None:
    """The error of who may not be a member of the group."""
    return ctx.missing(Operation.READ, ResourceKind.GROUP, request.group_id)


async def handle_join_group(ctx: RequestContext, request: Any) -> Any:
    """Waits until the group's join phase ends."""
    denied = _unreadable(ctx, request)
    if denied is not None:
        name = None if ctx.version >= _JOIN_NULL_PROTOCOL else ""
        return respond(ctx, error_code=denied, generation_id=_NONE, protocol_name=name, leader="", member_id="")
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
    coordinator = coordinator_of(ctx)
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
    denied = _unreadable(ctx, request)
    if denied is not None:
        return respond(ctx, error_code=denied, assignment=b"")
    sync = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol_name=getattr(request, "protocol_name", None),
        assignments=[(a.member_id, a.assignment) for a in request.assignments],
    )
    coordinator = coordinator_of(ctx)
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
    denied = _unreadable(ctx, request)
    if denied is not None:
        return respond(ctx, error_code=denied)
    beat = HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
    )
    return respond(ctx, error_code=coordinator_of(ctx).heartbeat(beat, ctx.now_ms))


async def handle_leave_group(ctx: RequestContext, request: Any) -> Any:
    """One member before version 3, whose error is the answer's; several from then on."""
    denied = _unreadable(ctx, request)
    if denied is not None:
        return respond(ctx, error_code=denied, members=())
    if ctx.version < _LEAVE_MANY:
        leaving = [Leaving(request.member_id or None)]
    else:
        leaving = [Leaving(m.member_id or None, m.group_instance_id) for m in request.members]
    result = coordinator_of(ctx).leave(request.group_id, leaving, ctx.now_ms)
    if ctx.version < _LEAVE_MANY:
        return respond(ctx, error_code=result.error or result.members[0].error)
    left, error = result.members, result.error
    if isinstance(error, UnknownMemberIdError):  # there is no such group: each member is told, as in Kafka
        left, error = tuple(Left(each, error) for each in leaving), None
    members = [
        {
            "member_id": each.leaving.member_id or "",
            "group_instance_id": each.leaving.instance_id,
            "error_code": each.error,
        }
        for each in left
    ]
    return respond(ctx, error_code=error, members=members)


# -- administration --------------------------------------------------------------------------------------------


async def handle_list_groups(ctx: RequestContext, request: Any) -> Any:
    """The groups that this broker coordinates, without those that may not be described."""
    found = coordinator_of(ctx).list_groups(getattr(request, "states_filter", ()), getattr(request, "types_filter", ()))
    may_describe = {str(g.group_id) for g in found.groups}
    if not ctx.may(Operation.DESCRIBE, ResourceKind.CLUSTER):
        may_describe &= ctx.allowed(Operation.DESCRIBE, ResourceKind.GROUP, may_describe, is_filter=True)
    groups = [
        {
            "group_id": g.group_id,
            "protocol_type": g.protocol_type,
            "group_state": g.state,
            "group_type": g.group_type,
        }
        for g in found.groups
        if g.group_id in may_describe
    ]
    return respond(ctx, error_code=found.error, groups=groups)


async def handle_describe_groups(ctx: RequestContext, request: Any) -> Any:
    """A group that does not exist is Dead; from version 6 on that is an error too."""
    coordinator = coordinator_of(ctx)
    wants_operations = getattr(request, "include_authorized_operations", False)
    may_describe = ctx.allowed(Operation.DESCRIBE, ResourceKind.GROUP, set(request.groups))
    groups = []
    async for name in paced(request.groups):
        if name not in may_describe:
            groups.append(_hidden(name))
            continue
        described = _described(ctx, coordinator.describe_group(name, ctx.now_ms))
        is_told = wants_operations and described["error_code"] is None
        operations = ctx.operations(ResourceKind.GROUP, name) if is_told else _NOT_ASKED
        groups.append(described | {"authorized_operations": operations})
    return respond(ctx, groups=groups)


def _hidden(name: str) -> dict[str, Any]:
    """A group that may not be described, whether it exists or not."""
    error = refusal(ResourceKind.GROUP)
    return {
        "error_code": error, "error_message": None, "group_id": name, "group_state": "", "protocol_type": "",
        "protocol_data": "", "members": (), "authorized_operations": _NOT_ASKED,
    }  # fmt: skip


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
    coordinator = coordinator_of(ctx)
    may_delete = ctx.allowed(Operation.DELETE, ResourceKind.GROUP, set(request.groups_names))

    async def delete(group_id: str) -> dict[str, Any]:
        if group_id not in may_delete:
            return {"group_id": group_id, "error_code": refusal(ResourceKind.GROUP)}
        error: HoldfastError | None = await answered(lambda done: coordinator.delete_group(group_id, ctx.now_ms, done))
        return {"group_id": group_id, "error_code": error}

    return respond(ctx, results=await gathered(delete(g) for g in request.groups_names))
