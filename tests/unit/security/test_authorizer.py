"""Who may do what, and by which rule; more of it in tests/property/test_authorizer.py."""

from holdfast.security.acls import AclBinding, AclEntry, ResourcePattern
from holdfast.security.authorizer import Authorizer
from holdfast.security.principal import Principal
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind

ALICE, ROOT = Principal.user("alice"), Principal.user("root")
HOST = "10.0.0.1"
TOPIC = ResourceKind.TOPIC


def acl(
    name: str,
    operation: Operation = Operation.READ,
    *,
    who: str = "User:alice",
    host: str = "*",
    deny: bool = False,
    prefix: bool = False,
) -> AclBinding:
    permission = Permission.DENY if deny else Permission.ALLOW
    pattern = PatternKind.PREFIXED if prefix else PatternKind.LITERAL
    return AclBinding(ResourcePattern(TOPIC, name, pattern), AclEntry(who, host, operation, permission))


def with_acls(*acls: AclBinding, allow_if_no_acl: bool = False) -> Authorizer:
    return Authorizer(frozenset({"User:root"}), allow_if_no_acl).with_all(acls)


def rule(authorizer: Authorizer, who: Principal = ALICE, operation: Operation = Operation.READ, name: str = "t") -> str:
    decision = authorizer.decide(who, HOST, operation, TOPIC, name)
    return f"{'may' if decision.allowed else 'may not'}: {decision.rule}"


def test_rules_as_audit_lines_name_them() -> None:
    assert rule(with_acls()) == "may not: DefaultDeny"
    assert rule(with_acls(allow_if_no_acl=True)) == "may: DefaultAllow"
    assert rule(with_acls(), ROOT) == "may: SuperUser"
    assert rule(with_acls(acl("t", deny=True, who="User:*")), ROOT) == "may: SuperUser"
    assert rule(with_acls(acl("t"))) == (
        "may: MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=t, patternType=LITERAL, "
        "principal=User:alice, host=*, operation=READ, permissionType=ALLOW))"
    )
    assert rule(with_acls(acl("t"), acl("", Operation.ALL, prefix=True, who="User:*", host=HOST, deny=True))) == (
        "may not: MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=, patternType=PREFIXED, "
        "principal=User:*, host=10.0.0.1, operation=ALL, permissionType=DENY))"
    )


def test_an_entry_of_somebody_else_ends_the_default_of_that_resource() -> None:
    there = with_acls(acl("t", who="User:bob"), allow_if_no_acl=True)
    assert rule(there) == "may not: DefaultDeny"
    assert rule(there, name="u") == "may: DefaultAllow"
    assert rule(with_acls(acl("*", who="User:bob"), allow_if_no_acl=True), name="u") == "may not: DefaultDeny"


def test_who_heard_of_no_entries_yet_lets_super_users_only() -> None:
    closed = Authorizer.closed(["User:root"], allow_if_no_acl=True)
    assert rule(closed) == "may not: NotReady"
    assert rule(closed, ROOT) == "may: SuperUser"
    assert not closed.may_any(ALICE, HOST, Operation.WRITE, TOPIC)
    assert closed.may_any(ROOT, HOST, Operation.WRITE, TOPIC)
    assert rule(closed.with_all([])) == "may: DefaultAllow"


def test_denying_one_operation_does_not_deny_what_it_implies() -> None:
    there = with_acls(acl("t", Operation.READ, deny=True), acl("t", Operation.WRITE))
    assert not there.may(ALICE, HOST, Operation.READ, TOPIC, "t")
    assert there.may(ALICE, HOST, Operation.DESCRIBE, TOPIC, "t")
    assert not there.may(ALICE, HOST, Operation.DESCRIBE_CONFIGS, TOPIC, "t")
    assert with_acls(acl("t", Operation.ALTER_CONFIGS)).may(ALICE, HOST, Operation.DESCRIBE_CONFIGS, TOPIC, "t")


def test_an_address_is_the_same_however_an_entry_spells_it() -> None:
    here, other = "0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:2"
    for spelling in ("::1", here, "0::0:0001", "::1%lo"):
        there = with_acls(acl("t"), acl("t", host=spelling, deny=True))
        decision = there.decide(ALICE, here, Operation.READ, TOPIC, "t")
        assert (decision.allowed, decision.acl) == (False, acl("t", host=spelling, deny=True))
        assert there.may(ALICE, other, Operation.READ, TOPIC, "t")
        assert with_acls(acl("t", host=spelling)).may_any(ALICE, here, Operation.READ, TOPIC)
    assert with_acls(acl("t", host="::ffff:10.0.0.1")).may(ALICE, HOST, Operation.READ, TOPIC, "t")
    assert not with_acls(acl("t", host="/10.0.0.1")).may(ALICE, HOST, Operation.READ, TOPIC, "t")


def test_of_two_spellings_the_one_that_stays_goes_on_to_count() -> None:
    here = "0:0:0:0:0:0:0:1"
    short, long = acl("t", host="::1", deny=True), acl("t", host=here, deny=True)
    there = with_acls(acl("t"), short, long)
    assert there.with_changes((), [short]).decide(ALICE, here, Operation.READ, TOPIC, "t").acl == long
    assert there.with_changes((), [long]).decide(ALICE, here, Operation.READ, TOPIC, "t").acl == short
    assert there.with_changes((), [short, long]).may(ALICE, here, Operation.READ, TOPIC, "t")
    assert there.with_changes((), [short, long]) == with_acls(acl("t"))


def test_types_of_principals_and_case_are_told_apart() -> None:
    there = with_acls(acl("t"))
    assert not there.may(Principal("user", "alice"), HOST, Operation.READ, TOPIC, "t")
    assert not there.may(Principal.user("Alice"), HOST, Operation.READ, TOPIC, "t")
    assert not there.may(ALICE, HOST, Operation.READ, TOPIC, "T")
    assert not there.may(ALICE, HOST, Operation.READ, ResourceKind.GROUP, "t")


def test_any_resource_of_a_kind() -> None:
    def may_any(*acls: AclBinding) -> bool:
        return with_acls(*acls).may_any(ALICE, HOST, Operation.READ, TOPIC)

    assert may_any(acl("t"))
    assert not may_any(acl("t", Operation.WRITE))
    assert not may_any(acl("t"), acl("t", deny=True))
    assert not may_any(acl("team.t"), acl("team.", deny=True, prefix=True))
    assert not may_any(acl("team.", prefix=True), acl("t", deny=True, prefix=True))
    assert may_any(acl("team.", prefix=True), acl("team.", deny=True))
    assert not may_any(acl("t"), acl("*", deny=True, who="User:*"))
    assert may_any(acl("*"), acl("t", deny=True, prefix=True))
    assert not may_any(acl("*", Operation.DESCRIBE))
