"""Access control lists as nodes, as Kafka 3.9's AclAuthorizer keeps them: a node for each pattern of resources.

    /kafka-acl/Topic/orders                      {"version":1,"acls":[{"principal":"User:a","permissionType":"Allow",
    /kafka-acl-extended/prefixed/Topic/team-      "operation":"Read","host":"*"}]}
    /kafka-acl-changes/acl_changes_0000000000    TOPIC:orders
    /kafka-acl-extended-changes/acl_changes_...  {"version":1,"resourceType":"TOPIC","name":"team-",...}
    /holdfast/acls/LITERAL:Group:a%2Fb           of a name that no node can have, which Kafka has no place for

Entries have no ids there: theirs are of what they say (AclBinding.id). A node without entries is not there. What cannot
be understood is a MetadataError: it may be an entry that denies.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from holdfast.metadata.records import AccessControlEntryRecord
from holdfast.metadata.znode_json import Fields, encode
from holdfast.metadata.znode_writes import CreateNode
from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind

LITERAL_ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES: Final = "/kafka-acl-changes"
PREFIXED_CHANGES: Final = "/kafka-acl-extended-changes"
CHANGE: Final = "acl_changes_"
"""A sequence below each of these: ZooKeeper appends ten digits."""
OUR_ACLS: Final = "/holdfast/acls"

_KINDS: Final = tuple(kind for kind in ResourceKind if kind not in (ResourceKind.UNKNOWN, ResourceKind.ANY))
_STORES: Final = {PatternKind.LITERAL: LITERAL_ACLS, PatternKind.PREFIXED: PREFIXED_ACLS}
_PARENTS: Final = {f"{store}/{kind.acl_name}": (kind, pattern) for pattern, store in _STORES.items() for kind in _KINDS}
LISTED: Final = (*_PARENTS, OUR_ACLS)
"""The nodes whose children have entries."""
BASE: Final = (
    LITERAL_ACLS, "/kafka-acl-extended", PREFIXED_ACLS, *_PARENTS, LITERAL_CHANGES, PREFIXED_CHANGES, OUR_ACLS,
)  # fmt: skip
"""Kafka makes all but the last when its authorizer starts; parents before their children."""

_T = TypeVar("_T", Operation, Permission, ResourceKind, PatternKind)


def _by_name(values: Iterable[_T]) -> dict[str, _T]:
    return {value.acl_name: value for value in values}


_OPERATIONS: Final = _by_name(Operation)
_PERMISSIONS: Final = _by_name((Permission.ALLOW, Permission.DENY))
_KIND_NAMES: Final = _by_name(_KINDS)


def path(resource: ResourcePattern) -> str:
    """The node of a pattern."""
    if _is_node_name(resource.name):
        return f"{_STORES[resource.pattern]}/{resource.kind.acl_name}/{resource.name}"
    # A name of dots alone is one that quote leaves as it is; here it stands behind colons.
    return f"{OUR_ACLS}/{resource.pattern.name}:{resource.kind.acl_name}:{quote(resource.name, safe='')}"


def resource_of(node_path: str) -> ResourcePattern | None:
    """The pattern of a node below one of LISTED; None: it is not written as ``path`` writes it."""
    parent, _, name = node_path.rpartition("/")
    found: ResourcePattern | None = None
    if parent in _PARENTS:
        kind, pattern = _PARENTS[parent]
        found = ResourcePattern(kind, name, pattern)
    elif parent == OUR_ACLS:
        words = name.split(":", 2)
        if len(words) == 3 and words[0] in ("LITERAL", "PREFIXED") and words[1] in _KIND_NAMES:
            found = ResourcePattern(_KIND_NAMES[words[1]], unquote(words[2]), PatternKind[words[0]])
    return found if found is not None and path(found) == node_path else None


def _is_node_name(name: str) -> bool:
    """Whether ZooKeeper takes it as a part of a path."""
    return name not in ("", ".", "..") and not any(map(_is_refused, name))


def _is_refused(character: str) -> bool:
    code = ord(character)
    return character == "/" or code < 0x20 or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or code >= 0xFFF0


def node(entries: Iterable[AclEntry]) -> bytes:
    """The text of a pattern's node."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.acl_name,
            "operation": entry.operation.acl_name,
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return encode({"version": 1, "acls": acls})


def read_node(node_path: str, data: bytes) -> list[AccessControlEntryRecord]:
    """The entries of a node, as records, each once. None of a node that is not one of a pattern, or has no data."""
    resource = resource_of(node_path)
    if resource is None or not data:
        return []
    fields = Fields.of(node_path, data)
    fields.integer("version", low=1, high=1)
    found = dict.fromkeys(AclBinding(resource, _entry(each)) for each in fields.objects("acls"))
    return [AccessControlEntryRecord(id=acl.id(), acl=acl) for acl in found]


def _entry(fields: Fields) -> AclEntry:
    principal = fields.text("principal")
    if ":" not in principal:
        raise fields.wrong("principal", "Type:name")
    return AclEntry(
        principal=principal,
        host=fields.text("host"),
        operation=_named(fields, "operation", _OPERATIONS),
        permission=_named(fields, "permissionType", _PERMISSIONS),
    )


def _named(fields: Fields, key: str, known: Mapping[str, Any]) -> Any:
    value = known.get(fields.text(key))
    if value is None:
        raise fields.wrong(key, f"one of {', '.join(known)}")
    return value


def change(resource: ResourcePattern) -> CreateNode:
    """The news that the entries of a pattern changed."""
    if resource.pattern is PatternKind.LITERAL:
        data = f"{resource.kind.name}:{resource.name}".encode()
        return CreateNode(path=f"{LITERAL_CHANGES}/{CHANGE}", data=data, sequence=True)
    data = encode(
        {
            "version": 1,
            "resourceType": resource.kind.name,
            "name": resource.name,
            "patternType": resource.pattern.name,
        }
    )
    return CreateNode(path=f"{PREFIXED_CHANGES}/{CHANGE}", data=data, sequence=True)
