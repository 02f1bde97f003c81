"""Who may do what, by reading every entry: StandardAuthorizer's rules as twenty lines, to hold the index against."""

import functools
import socket
from collections.abc import Collection

from holdfast.security.acls import EVERYBODY, WILDCARD, AclBinding
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind

_IMPLIES = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def may(
    acls: Collection[AclBinding],
    default: bool,
    who: str,
    host: str,
    operation: Operation,
    kind: ResourceKind,
    name: str,
) -> bool:
    there = [acl for acl in acls if acl.resource.kind is kind and _covers(acl, name)]
    allows = {operation, Operation.ALL} | _IMPLIES.get(operation, set())
    mine = [acl.entry for acl in there if acl.entry.principal in (who, EVERYBODY) and _is_from(acl, host)]
    if any(e.permission is Permission.DENY and e.operation in (operation, Operation.ALL) for e in mine):
        return False
    if any(e.permission is Permission.ALLOW and e.operation in allows for e in mine):
        return True
    return default and not there


def _is_from(acl: AclBinding, host: str) -> bool:
    return acl.entry.host == WILDCARD or _number(acl.entry.host) == _number(host)


@functools.cache
def _number(host: str) -> bytes | str:
    """Of an address, as its packet has it: 16 bytes, also of IPv4."""
    for family, before in ((socket.AF_INET, bytes(10) + b"\xff\xff"), (socket.AF_INET6, b"")):
        try:
            return before + socket.inet_pton(family, host)
        except OSError:
            continue
    return host


def _covers(acl: AclBinding, name: str) -> bool:
    if acl.resource.pattern is PatternKind.PREFIXED:
        return name.startswith(acl.resource.name)
    return acl.resource.name in (name, WILDCARD)


def may_any(
    acls: Collection[AclBinding], default: bool, who: str, host: str, operation: Operation, kind: ResourceKind
) -> bool:
    if may(acls, default, who, host, operation, kind, "hardcode"):
        return True
    mine = [
        (acl.resource.pattern, acl.resource.name, acl.entry.permission)
        for acl in acls
        if acl.resource.kind is kind
        and acl.entry.principal in (who, EVERYBODY)
        and _is_from(acl, host)
        and acl.entry.operation in (operation, Operation.ALL)
    ]
    denied = [(pattern, name) for pattern, name, permission in mine if permission is Permission.DENY]
    allowed = [(pattern, name) for pattern, name, permission in mine if permission is Permission.ALLOW]
    if (PatternKind.LITERAL, WILDCARD) in denied:
        return False
    return any(
        (pattern, name) == (PatternKind.LITERAL, WILDCARD)
        or not any(
            name.startswith(no) if how is PatternKind.PREFIXED else (how, no) == (pattern, name) for how, no in denied
        )
        for pattern, name in allowed
    )
