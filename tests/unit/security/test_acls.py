"""What may become an access control entry, and what filters find."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern, filter_refusal, refusal
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind

LITERAL, PREFIXED = PatternKind.LITERAL, PatternKind.PREFIXED
GOOD = AclBinding(
    ResourcePattern(ResourceKind.TOPIC, "t", LITERAL), AclEntry("User:a", "*", Operation.READ, Permission.ALLOW)
)


def acl(**fields: Any) -> AclBinding:
    resource = {key: value for key, value in fields.items() if key in ("kind", "name", "pattern")}
    entry = {key: value for key, value in fields.items() if key not in resource}
    return AclBinding(replace(GOOD.resource, **resource), replace(GOOD.entry, **entry))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, None),
        ({"name": "*"}, None),
        ({"pattern": PREFIXED}, None),
        ({"host": ""}, None),
        ({"kind": ResourceKind.CLUSTER, "name": "kafka-cluster"}, None),
        ({"kind": ResourceKind.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"name": ""}, "Invalid empty resource name"),
        ({"kind": ResourceKind.ANY}, "Invalid resourceType ANY"),
        ({"kind": ResourceKind.UNKNOWN}, "Invalid resourceType UNKNOWN"),
        ({"pattern": PatternKind.MATCH}, "Invalid patternType MATCH"),
        ({"pattern": PatternKind.ANY}, "Invalid patternType ANY"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"operation": Operation.UNKNOWN}, "Invalid operation UNKNOWN"),
        ({"permission": Permission.ANY}, "Invalid permissionType ANY"),
        (
            {"principal": "a"},
            "Could not parse principal from `a` (no colon is present separating the principal type from the principal "
            "name)",
        ),
    ],
)
def test_what_may_become_an_entry(fields: dict[str, Any], text: str | None) -> None:
    assert refusal(acl(**fields)) == text


def test_a_filter_with_something_unknown_finds_nothing() -> None:
    assert filter_refusal(AclFilter()) is None
    assert filter_refusal(AclFilter(kind=ResourceKind.UNKNOWN)) == "Unknown patternFilter."
    assert filter_refusal(AclFilter(pattern=PatternKind.UNKNOWN)) == "Unknown patternFilter."
    assert filter_refusal(AclFilter(operation=Operation.UNKNOWN)) == "Unknown entryFilter."
    assert filter_refusal(AclFilter(permission=Permission.UNKNOWN)) == "Unknown entryFilter."


def found(wanted: AclFilter, *bindings: AclBinding) -> list[str]:
    return [str(each.resource) for each in bindings if wanted.matches(each)]


def test_a_filter_of_names() -> None:
    there = (acl(name="team"), acl(name="te", pattern=PREFIXED), acl(name="*"), acl(name="other"), acl(name="team2"))
    names = ["Topic:LITERAL:team", "Topic:PREFIXED:te", "Topic:LITERAL:*"]
    assert found(AclFilter(name="team", pattern=PatternKind.MATCH), *there) == names
    assert found(AclFilter(name="team", pattern=PatternKind.ANY), *there) == names[:1]
    assert found(AclFilter(name="te", pattern=PREFIXED), *there) == names[1:2]
    assert found(AclFilter(name="te", pattern=LITERAL), *there) == []
    assert len(found(AclFilter(pattern=PatternKind.MATCH), *there)) == 5
    assert len(found(AclFilter(pattern=LITERAL), *there)) == 4


@pytest.mark.parametrize(
    "wanted",
    [
        AclFilter(kind=ResourceKind.GROUP),
        AclFilter(principal="User:b"),
        AclFilter(host="1.1.1.1"),
        AclFilter(operation=Operation.WRITE),
        AclFilter(operation=Operation.ALL),
        AclFilter(permission=Permission.DENY),
    ],
)
def test_a_filter_of_anything_else(wanted: AclFilter) -> None:
    assert found(AclFilter(), GOOD) == ["Topic:LITERAL:t"]
    assert found(wanted, GOOD) == []


def test_an_id_is_of_what_an_entry_says() -> None:
    assert GOOD.id() == acl().id()
    others = [
        acl(name="u"),
        acl(kind=ResourceKind.GROUP),
        acl(pattern=PREFIXED),
        acl(principal="User:", host="a*"),
        acl(principal="User:a*", host=""),
        acl(operation=Operation.WRITE),
        acl(permission=Permission.DENY),
    ]
    assert len({each.id() for each in [GOOD, *others]}) == 8
