"""Access control lists as values: an entry, the resources it is about, and filters that find some.

Principals, hosts and names are text here, as in Kafka: an entry may name whom nobody is. ``authorizer.py`` decides by
them. What may become one is checked by ``refusal`` and ``filter_refusal``, in Kafka's words.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from holdfast.security.resources import CLUSTER_NAME, Operation, PatternKind, Permission, ResourceKind

WILDCARD: Final = "*"
"""As the name of a LITERAL pattern: every resource of its kind. As a host: every host. It is no general pattern."""
EVERYBODY: Final = "User:*"
"""The principal of an entry that is meant for all users."""
MOST_IN_A_REQUEST: Final = 10_000
"""So many entries one request may make or take away, as in Kafka (MAX_RECORDS_PER_USER_OP)."""


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """The resources of a kind that have a name (LITERAL), that begin with one (PREFIXED), or all (LITERAL ``*``)."""

    kind: ResourceKind
    name: str
    pattern: PatternKind = PatternKind.LITERAL

    def __str__(self) -> str:
        """``Topic:LITERAL:t``, as audit lines write it."""
        return f"{self.kind.acl_name}:{self.pattern.log_name}:{self.name}"

    def covers(self, kind: ResourceKind, name: str) -> bool:
        """Whether the resource is among them."""
        if kind is not self.kind:
            return False
        if self.pattern is PatternKind.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)


@dataclass(frozen=True, slots=True, order=True)
class AclEntry:
    """Who may, or may not, do what, and from where."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """One access control entry with the resources that it is about. Two with the same fields are the same."""

    resource: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        """As Kafka's audit lines name the entry that decided."""
        resource, entry = self.resource, self.entry
        return (
            f"StandardAcl(resourceType={resource.kind.name}, resourceName={resource.name}, "
            f"patternType={resource.pattern.name}, principal={entry.principal}, host={entry.host}, "
            f"operation={entry.operation.name}, permissionType={entry.permission.name})"
        )

    def id(self) -> UUID:
        """The id of the record that makes it: of what it says alone, so that every store and every controller finds
        the same one. ZooKeeper's nodes have none."""
        resource, entry = self.resource, self.entry
        parts = (resource.name, entry.principal, entry.host)
        numbers = bytes((resource.kind, resource.pattern, entry.operation, entry.permission))
        text = b"".join(len(part := each.encode()).to_bytes(4, "big") + part for each in parts)
        return UUID(bytes=hashlib.sha256(numbers + text).digest()[:16])


@dataclass(frozen=True, slots=True)
class AclFilter:
    """What is asked of DescribeAcls and DeleteAcls: None and ANY take everything.

    ``pattern`` MATCH with a name finds each pattern that covers a resource of this name: the literal one, prefixes and
    ``*``. With LITERAL, PREFIXED or ANY the name must be that of the pattern.
    """

    kind: ResourceKind = ResourceKind.ANY
    name: str | None = None
    pattern: PatternKind = PatternKind.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def resource(self) -> ResourcePattern | None:
        """The one pattern that it can find; None: there may be more."""
        is_one = self.kind > ResourceKind.ANY and self.pattern > PatternKind.MATCH
        return ResourcePattern(self.kind, self.name, self.pattern) if is_one and self.name is not None else None

    def matches(self, binding: AclBinding) -> bool:
        """Whether the binding is one of those asked for."""
        entry = binding.entry
        return (
            self._matches_resource(binding.resource)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def _matches_resource(self, resource: ResourcePattern) -> bool:
        if self.kind not in (ResourceKind.ANY, resource.kind):
            return False
        if self.pattern not in (PatternKind.ANY, PatternKind.MATCH, resource.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is PatternKind.MATCH:
            return resource.covers(resource.kind, self.name)
        return self.name == resource.name


def is_entry(binding: AclBinding) -> bool:
    """Whether kind, pattern, operation and permission are those of an entry; a filter may have others."""
    resource, entry = binding.resource, binding.entry
    return (
        resource.kind > ResourceKind.ANY
        and resource.pattern > PatternKind.MATCH
        and entry.operation > Operation.ANY
        and entry.permission > Permission.ANY
    )


def refusal(binding: AclBinding) -> str | None:
    """Why this cannot become an entry; None when it can. Kafka's texts, in the order in which Kafka looks."""
    resource, entry = binding.resource, binding.entry
    if resource.kind is ResourceKind.CLUSTER and resource.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not resource.name:
        return "Invalid empty resource name"
    if resource.kind in (ResourceKind.UNKNOWN, ResourceKind.ANY):
        return f"Invalid resourceType {resource.kind.name}"
    if resource.pattern not in (PatternKind.LITERAL, PatternKind.PREFIXED):
        return f"Invalid patternType {resource.pattern.name}"
    if entry.operation in (Operation.UNKNOWN, Operation.ANY):
        return f"Invalid operation {entry.operation.name}"
    if entry.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {entry.permission.name}"
    if ":" not in entry.principal:
        return (
            f"Could not parse principal from `{entry.principal}` (no colon is present separating the principal type "
            f"from the principal name)"
        )
    return None


def filter_refusal(wanted: AclFilter) -> str | None:
    """Why nothing can be found by this filter; None when something may be."""
    if wanted.kind is ResourceKind.UNKNOWN or wanted.pattern is PatternKind.UNKNOWN:
        return "Unknown patternFilter."
    if wanted.operation is Operation.UNKNOWN or wanted.permission is Permission.UNKNOWN:
        return "Unknown entryFilter."
    return None
