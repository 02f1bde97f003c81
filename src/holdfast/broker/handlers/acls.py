"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): access control lists (security/acls.py).

Versions 1-3. Any broker describes what it goes by itself; the controller creates and deletes, and answers once live
brokers know. Each entry and each filter has an error of its own. Without an authorizer SECURITY_DISABLED, as Kafka
answers. A request with a number that is no operation, kind, pattern or permission: Kafka closes the connection, here it
is INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, TypeVar

from holdfast.broker.handlers.base import RequestContext, older_protocol, respond
from holdfast.broker.handlers.forwarding import TELL_TIMEOUT_S, at_controller
from holdfast.broker.handlers.topics import tell
from holdfast.controller.acl_events import CreateAcls, CreateAclsReply, DeleteAcls, DeleteAclsReply, DeletedAcls
from holdfast.model.errors import InvalidRequestError, SecurityDisabledError
from holdfast.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern, filter_refusal
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind

_REFUSED = SecurityDisabledError("No Authorizer is configured on the broker")
_FIELDS = {"error_code": _REFUSED, "error_message": _REFUSED.message}
_TELL_MS = int(TELL_TIMEOUT_S * 1000)
_T = TypeVar("_T", Operation, PatternKind, Permission, ResourceKind)


async def handle_describe_acls(ctx: RequestContext, request: Any) -> Any:
    """The entries that a filter finds, by the resources that they are about."""
    view = ctx.broker.access.acls
    if view is None:
        return respond(ctx, **_FIELDS, resources=[])
    asked = wanted(request)
    reason = filter_refusal(asked)
    if reason is not None:
        raise InvalidRequestError(reason)
    found = groupby(view.matching(asked), key=lambda acl: acl.resource)
    return respond(
        ctx,
        error_code=None,
        error_message=None,
        resources=[{**_resource(resource), "acls": [_entry(acl.entry) for acl in acls]} for resource, acls in found],
    )


@at_controller
async def handle_create_acls(ctx: RequestContext, request: Any) -> Any:
    """One result per entry; one that is there already is a success."""
    if ctx.broker.access.acls is None:
        return respond(ctx, results=[_FIELDS for _ in request.creations])
    if (older := older_protocol(ctx)) is not None:
        told = {"error_code": older, "error_message": older.message}
        return respond(ctx, results=[told for _ in request.creations])
    reply: CreateAclsReply = await ctx.submit(CreateAcls(acls=bindings(request)))
    await tell(ctx, _TELL_MS)
    results = [{"error_code": e, "error_message": None if e is None else e.message} for e in reply.errors]
    return respond(ctx, results=results)


@at_controller
async def handle_delete_acls(ctx: RequestContext, request: Any) -> Any:
    """What each filter has found, which is gone."""
    if ctx.broker.access.acls is None:
        return respond(ctx, filter_results=[{**_FIELDS, "matching_acls": []} for _ in request.filters])
    reply: DeleteAclsReply = await ctx.submit(DeleteAcls(filters=filters(request)))
    await tell(ctx, _TELL_MS)
    return respond(ctx, filter_results=[_deleted(result) for result in reply.results])


def bindings(request: Any) -> tuple[AclBinding, ...]:
    """What CreateAcls asks for, also where it cannot become an entry (security.acls.refusal)."""
    return tuple(
        AclBinding(
            ResourcePattern(
                _of(ResourceKind, each.resource_type),
                each.resource_name,
                _of(PatternKind, each.resource_pattern_type),
            ),
            AclEntry(each.principal, each.host, _of(Operation, each.operation), _of(Permission, each.permission_type)),
        )
        for each in request.creations
    )


def filters(request: Any) -> tuple[AclFilter, ...]:
    """Those of DeleteAcls."""
    return tuple(map(wanted, request.filters))


def wanted(each: Any) -> AclFilter:
    """That of DescribeAcls, or one of DeleteAcls: their fields have the same names."""
    return AclFilter(
        kind=_of(ResourceKind, each.resource_type_filter),
        name=each.resource_name_filter,
        pattern=_of(PatternKind, each.pattern_type_filter),
        principal=each.principal_filter,
        host=each.host_filter,
        operation=_of(Operation, each.operation),
        permission=_of(Permission, each.permission_type),
    )


def _of(kind: type[_T], number: int) -> _T:
    """The value of a number; UNKNOWN of one that nobody knows."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def _deleted(result: DeletedAcls) -> dict[str, Any]:
    error = result.error
    return {
        "error_code": error,
        "error_message": None if error is None else error.message,
        "matching_acls": list(_matching(result.acls)),
    }


def _matching(acls: Iterable[AclBinding]) -> Iterable[dict[str, Any]]:
    for acl in acls:
        yield {"error_code": None, "error_message": None, **_resource(acl.resource), **_entry(acl.entry)}


def _resource(resource: ResourcePattern) -> dict[str, Any]:
    return {
        "resource_type": int(resource.kind),
        "resource_name": resource.name,
        "pattern_type": int(resource.pattern),
    }


def _entry(entry: AclEntry) -> dict[str, Any]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": int(entry.operation),
        "permission_type": int(entry.permission),
    }
