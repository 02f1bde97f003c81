"""Access control lists as kafka-acls.sh has them: what its options ask for, and its lines. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cli.kafka_errors import Declined, DeclinedUse
from holdfast.security.acls import WILDCARD, AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast.security.principal import Principal
from holdfast.security.resources import CLUSTER_NAME, Operation, PatternKind, Permission, ResourceKind

_O = Operation
SUPPORTED: Final[Mapping[ResourceKind, tuple[Operation, ...]]] = {
    ResourceKind.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    ResourceKind.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceKind.CLUSTER: (
        _O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER,
        _O.DESCRIBE,
    ),
    ResourceKind.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT),
    ResourceKind.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceKind.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}  # fmt: skip
"""What can be allowed on each kind of resource, beside All (AclEntry.supportedOperations)."""
PRODUCERS: Final = (_O.WRITE, _O.DESCRIBE, _O.CREATE)
CONSUMERS: Final = (_O.READ, _O.DESCRIBE)
CLUSTER: Final = ResourcePattern(ResourceKind.CLUSTER, CLUSTER_NAME)
OPERATIONS: Final = {each.acl_name.lower(): each for each in Operation if each > Operation.ANY}
PATTERNS: Final = {each.name.lower(): each for each in PatternKind if each > PatternKind.UNKNOWN}
FILTERS_ONLY: Final = (PatternKind.ANY, PatternKind.MATCH)
Asked = Mapping[ResourcePattern, Sequence[AclEntry]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclOptions:
    """What the command line says of resources, and of who may do what on them."""

    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    delegation_tokens: tuple[str, ...] = ()
    user_principals: tuple[str, ...] = ()
    cluster: bool = False
    pattern: PatternKind = PatternKind.LITERAL
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    deny_hosts: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False


def resources_asked(options: AclOptions) -> list[ResourcePattern]:
    """In the order of the options; those of a filter, too: with ANY and MATCH."""
    found = [
        ResourcePattern(kind, name.strip(), options.pattern)
        for kind, names in (
            (ResourceKind.TOPIC, options.topics),
            (ResourceKind.GROUP, options.groups),
            (ResourceKind.TRANSACTIONAL_ID, options.transactional_ids),
            (ResourceKind.DELEGATION_TOKEN, options.delegation_tokens),
            (ResourceKind.USER, options.user_principals),
        )
        for name in names
    ]
    if options.pattern is PatternKind.LITERAL and (options.cluster or options.idempotent):
        found.append(CLUSTER)
    return list(dict.fromkeys(found))


def added(options: AclOptions) -> Asked:
    """What is to be made, by resource. Declined: it cannot be."""
    if options.pattern in FILTERS_ONLY:
        raise DeclinedUse(
            f"--resource-pattern-type {options.pattern.name.lower()}: expected literal or prefixed for what is added",
            f"A '--resource-pattern-type' value of '{options.pattern.name}' is not valid when adding acls.",
        )
    found = _asked(options)
    if not all(found.values()):
        raise DeclinedUse(
            "expected --allow-principal or --deny-principal, whom it is about",
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.",
        )
    return found


def removed(options: AclOptions) -> Asked:
    """What is to be taken away, by resource; no entry: all that the resource has. Declined."""
    return _asked(options)


def filters_of(resource: ResourcePattern, entries: Sequence[AclEntry]) -> list[AclFilter]:
    """Those that find these entries; all of the resource where there is none."""
    begin = AclFilter(resource.kind, resource.name, resource.pattern)
    if not entries:
        return [begin]
    return [
        AclFilter(
            resource.kind, resource.name, resource.pattern, each.principal, each.host, each.operation, each.permission
        )
        for each in entries
    ]


def filters_listed(options: AclOptions) -> list[AclFilter]:
    """What finds the entries that are to be listed; everything where no resource is named."""
    asked = resources_asked(options)
    return [AclFilter(each.kind, each.name, each.pattern) for each in asked] or [AclFilter()]


def principals_listed(names: Iterable[str]) -> list[str]:
    """Declined: one has another form."""
    return [_principal(name) for name in names]


def _asked(options: AclOptions) -> dict[ResourcePattern, list[AclEntry]]:
    _check_roles(options)
    resources = resources_asked(options)
    if not resources:
        raise DeclinedUse(
            "expected a resource: --topic, --group, --cluster, --transactional-id, --delegation-token or "
            "--user-principal",
            "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
            "--delegation-token <Delegation Token ID>",
        )
    found: dict[ResourcePattern, list[AclEntry]] = {}

    def about(kinds: Iterable[ResourceKind], operations: Iterable[Operation]) -> None:
        for each in resources:
            if each.kind in kinds:
                entries = found.setdefault(each, [])
                entries += [entry for entry in _entries(options, operations) if entry not in entries]

    if options.producer:
        about((ResourceKind.TOPIC,), PRODUCERS)
        about((ResourceKind.TRANSACTIONAL_ID,), (_O.WRITE, _O.DESCRIBE))
        if options.idempotent:
            found[CLUSTER] = _entries(options, (_O.IDEMPOTENT_WRITE,))
    if options.consumer:
        about((ResourceKind.TOPIC,), CONSUMERS)
        about((ResourceKind.GROUP,), (_O.READ,))
    if not (options.producer or options.consumer):
        about(SUPPORTED, [OPERATIONS.get(_word(name), _O.UNKNOWN) for name in options.operations or ("All",)])
    for resource, entries in found.items():
        _check_operations(resource, entries, options.operations)
    return found


def _check_roles(options: AclOptions) -> None:
    """What kafka-acls.sh wants beside its two shortcuts."""
    if options.producer and not options.topics:
        raise DeclinedUse("--producer: expected a --topic with it", "With --producer you must specify a --topic")
    if options.idempotent and not options.producer:
        raise DeclinedUse(
            "--idempotent: expected --producer with it",
            "The --idempotent option is only available if --producer is set",
        )
    alone = not options.producer and (options.cluster or bool(options.transactional_ids))
    if options.consumer and (not options.topics or not options.groups or alone):
        raise DeclinedUse(
            "--consumer: expected a --topic and a --group with it, and neither --cluster nor --transactional-id",
            "With --consumer you must specify a --topic and a --group and no --cluster or --transactional-id option "
            "should be specified.",
        )
    if (options.producer or options.consumer) and (options.operations or options.deny or options.deny_hosts):
        raise DeclinedUse(
            f"{'--producer' if options.producer else '--consumer'}: expected it without --operation, --deny-principal "
            "and --deny-host: it says what is allowed",
            'Option "[operation]" can\'t be used with option "[producer]"',
        )


def _check_operations(resource: ResourcePattern, entries: Iterable[AclEntry], names: Sequence[str]) -> None:
    there = (*SUPPORTED[resource.kind], _O.ALL)
    if all(entry.operation in there for entry in entries):
        return
    wrong = next((name for name in names if OPERATIONS.get(_word(name)) not in there), "")
    raise DeclinedUse(
        f"--operation {wrong}: expected some of {', '.join(each.acl_name for each in there)} for a "
        f"{resource.kind.name.lower().replace('_', ' ')}",
        f"ResourceType {resource.kind.name} only supports operations [{', '.join(each.name for each in there)}]",
    )


def _entries(options: AclOptions, operations: Iterable[Operation]) -> list[AclEntry]:
    operations = tuple(dict.fromkeys(operations))
    return [
        AclEntry(_principal(name), host.strip(), operation, permission)
        for permission, names, hosts in (
            (Permission.ALLOW, options.allow, options.allow_hosts),
            (Permission.DENY, options.deny, options.deny_hosts),
        )
        for name in dict.fromkeys(names)
        for operation in operations
        for host in dict.fromkeys(hosts or (WILDCARD,))
    ]


def _principal(name: str) -> str:
    try:
        return str(Principal.parse(name.strip()))
    except ValueError as e:
        raise Declined(
            str(e),
            "Error while executing ACL command: expected a string in format principalType:principalName but got "
            f"{name}",
        ) from None


def _word(name: str) -> str:
    """``describe-configs``, ``DescribeConfigs`` and ``DESCRIBE_CONFIGS`` are one."""
    return name.strip().replace("_", "").replace("-", "").lower()


# -- lines -----------------------------------------------------------------------------------------------------


def resource_text(resource: ResourcePattern) -> str:
    """``ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)``."""
    return (
        f"ResourcePattern(resourceType={resource.kind.name}, name={resource.name}, patternType={resource.pattern.name})"
    )


def entry_text(entry: AclEntry) -> str:
    """``(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)``."""
    return (
        f"(principal={entry.principal}, host={entry.host}, operation={entry.operation.name}, "
        f"permissionType={entry.permission.name})"
    )


def already_there_line(binding: AclBinding) -> str:
    return f"Acl (pattern={resource_text(binding.resource)}, entry={entry_text(binding.entry)}) already exists."


def adding_lines(resource: ResourcePattern, entries: Iterable[AclEntry]) -> Iterator[str]:
    yield f"Adding ACLs for resource `{resource_text(resource)}`: "
    for begin, entry in zip(_first_indented(), entries, strict=False):
        yield f"{begin}{entry_text(entry)}"
    yield ""


def question_lines(resource: ResourcePattern, entries: Sequence[AclEntry]) -> Iterator[str]:
    """What is asked before entries are taken away."""
    of = f"resource filter `{resource_text(resource)}`? (y/n)"
    if not entries:
        yield f"Are you sure you want to delete all ACLs for {of}"
        return
    yield "Are you sure you want to remove ACLs: "
    for begin, entry in zip(_first_indented(), entries, strict=False):
        yield f"{begin}{entry_text(entry)}"
    yield f" from {of}"


def _first_indented() -> Iterator[str]:
    yield " \t"
    while True:
        yield "\t"


def current_lines(found: Iterable[AclBinding], principals: Sequence[str] = ()) -> Iterator[str]:
    """By resource; with ``principals`` those of each of them, under a line that names it."""
    bindings = sorted(set(found))
    if not principals:
        yield from _by_resource(bindings)
    for name in principals:
        yield f"ACLs for principal `{name}`"
        yield from _by_resource([each for each in bindings if each.entry.principal == name])


def _by_resource(bindings: Sequence[AclBinding]) -> Iterator[str]:
    for resource in dict.fromkeys(each.resource for each in bindings):
        yield f"Current ACLs for resource `{resource_text(resource)}`:"
        yield from (f"\t{entry_text(each.entry)}" for each in bindings if each.resource == resource)
        yield ""


def acls_document(found: Iterable[AclBinding], principals: Sequence[str] = ()) -> str:
    """One JSON document, in Kafka's words."""
    bindings = [each for each in sorted(set(found)) if not principals or each.entry.principal in principals]
    return json.dumps({"version": 1, "acls": list(map(_as_json, bindings))}, ensure_ascii=False)


def _as_json(binding: AclBinding) -> dict[str, Any]:
    resource, entry = binding.resource, binding.entry
    return {
        "resource_type": resource.kind.name, "resource_name": resource.name, "pattern_type": resource.pattern.name,
        "principal": entry.principal, "host": entry.host, "operation": entry.operation.name,
        "permission_type": entry.permission.name,
    }  # fmt: skip
