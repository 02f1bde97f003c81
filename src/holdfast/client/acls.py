"""Access control lists of a cluster: what there is, one more, one less (APIs 29 to 31).

Functions over an AdminClient, with the values of security/acls.py. Removing is not retried: an answer may be lost
although it was done, and the next one would name nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.client.admin import AdminClient
from holdfast.client.refused import raise_for, refusal
from holdfast.model.errors import HoldfastError
from holdfast.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind


class RemovedAcls(NamedTuple):
    """What one filter has taken away, or why nothing."""

    acls: tuple[AclBinding, ...]
    error: HoldfastError | None


async def describe_acls(client: AdminClient, wanted: AclFilter | None = None) -> list[AclBinding]:
    """The entries that a filter finds, sorted; all without one. Raises the broker's error: SecurityDisabledError where
    there is no authorizer, ClusterAuthorizationFailedError to who may not Describe the cluster."""
    from kio.schema.describe_acls.v2.request import DescribeAclsRequest

    answer = await client.ask_any(DescribeAclsRequest(**_filter(wanted or AclFilter())))
    raise_for(answer.error_code.value, answer.error_message, "access control lists")
    return sorted(_binding(resource, acl) for resource in answer.resources for acl in resource.acls)


async def create_acls(client: AdminClient, acls: Sequence[AclBinding]) -> list[HoldfastError | None]:
    """None, or why not, per entry, in their order. One that is there already is made."""
    from kio.schema.create_acls.v2.request import AclCreation, CreateAclsRequest
    from kio.static.primitive import i8

    creations = tuple(
        AclCreation(
            resource_type=i8(acl.resource.kind),
            resource_name=acl.resource.name,
            resource_pattern_type=i8(acl.resource.pattern),
            principal=acl.entry.principal,
            host=acl.entry.host,
            operation=i8(acl.entry.operation),
            permission_type=i8(acl.entry.permission),
        )
        for acl in acls
    )
    answer = await client.ask_controller(CreateAclsRequest(creations=creations))
    return [refusal(result.error_code.value, result.error_message) for result in answer.results]


async def delete_acls(client: AdminClient, filters: Sequence[AclFilter]) -> list[RemovedAcls]:
    """What each filter has taken away, in their order."""
    from kio.schema.delete_acls.v2.request import DeleteAclsFilter, DeleteAclsRequest

    asked = tuple(DeleteAclsFilter(**_filter(wanted)) for wanted in filters)
    answer = await client.ask_controller(DeleteAclsRequest(filters=asked))
    return [
        RemovedAcls(
            tuple(sorted(_binding(acl, acl) for acl in result.matching_acls)),
            refusal(result.error_code.value, result.error_message),
        )
        for result in answer.filter_results
    ]


def _filter(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.kind),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.pattern),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }


def _binding(resource: Any, entry: Any) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            ResourceKind(resource.resource_type), resource.resource_name, PatternKind(resource.pattern_type)
        ),
        AclEntry(entry.principal, entry.host, Operation(entry.operation), Permission(entry.permission_type)),
    )
