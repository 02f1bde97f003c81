"""The index of the authorizer answers as reading every entry does; entries that come and go leave nothing behind."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.addresses import plain_address
from holdfast.security.acls import AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast.security.authorizer import Authorizer
from holdfast.security.principal import Principal
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind
from tests import brute_acls

KINDS = [ResourceKind.TOPIC, ResourceKind.GROUP]
NAMES = ["a", "ab", "abc", "abd", "b", "ba", "*", "*a", "hardcode", "hard", "é", "ab.c"]
WHO = ["User:a", "User:b", "User:*", "Group:a", "User:a:b"]
HOSTS = ["1.1.1.1", "1.1.1.2", "::ffff:1.1.1.1", "::1", "0:0:0:0:0:0:0:1", "2001:DB8::1", "2001:db8::0001", "*"]
OPERATIONS = [each for each in Operation if each not in (Operation.UNKNOWN, Operation.ANY)]

bindings = st.builds(
    AclBinding,
    st.builds(
        ResourcePattern,
        st.sampled_from(KINDS),
        st.sampled_from(NAMES),
        st.sampled_from([PatternKind.LITERAL, PatternKind.PREFIXED]),
    ),
    st.builds(
        AclEntry,
        st.sampled_from(WHO),
        st.sampled_from(HOSTS),
        st.sampled_from(OPERATIONS),
        st.sampled_from([Permission.DENY, Permission.ALLOW]),
    ),
)


def some_binding(chance: random.Random) -> AclBinding:
    pattern = chance.choice([PatternKind.LITERAL, PatternKind.PREFIXED])
    permission = chance.choice([Permission.DENY, Permission.ALLOW, Permission.ALLOW])
    return AclBinding(
        ResourcePattern(chance.choice(KINDS), chance.choice(NAMES), pattern),
        AclEntry(chance.choice(WHO), chance.choice(HOSTS), chance.choice(OPERATIONS), permission),
    )


def ask(chance: random.Random, questions: int) -> None:
    acls: set[AclBinding] = set()
    authorizer = Authorizer()
    answers = set()
    for number in range(questions):
        if number % 10 == 0:
            gone = set(chance.sample(sorted(acls), min(len(acls), chance.randrange(len(acls) + 2)))) if acls else set()
            new = {some_binding(chance) for _ in range(chance.choice([0, 1, 3, 12]))}
            acls = acls - gone | new
            authorizer = authorizer.with_changes(new, gone)
        if number % 1000 == 0:
            authorizer = Authorizer(allow_if_no_acl=chance.random() < 0.5).with_all(acls)
        who, host, operation = chance.choice(WHO), chance.choice(HOSTS), chance.choice(OPERATIONS)
        kind, name, default = chance.choice(KINDS), chance.choice(NAMES), authorizer.allow_if_no_acl
        question = (who, host, operation, kind)
        principal = Principal.parse(who)
        at = plain_address(host)
        decision = authorizer.decide(principal, at, operation, kind, name)
        assert decision.allowed is brute_acls.may(acls, default, *question, name), (sorted(acls), question, name)
        assert decision.acl is None or decision.acl in acls, decision
        any_of_them = authorizer.may_any(principal, at, operation, kind)
        assert any_of_them is brute_acls.may_any(acls, default, *question), (sorted(acls), question)
        answers.add((decision.allowed, any_of_them))
    assert len(answers) == 4, f"some answer was never given: {answers}"


def test_it_answers_as_reading_every_entry_does() -> None:
    ask(random.Random(7), 30_000)


@pytest.mark.long(reason="the same 30,000 times: test_it_answers_as_reading_every_entry_does")
def test_it_answers_a_million_questions_likewise() -> None:
    ask(random.Random(8), 1_000_000)


@given(st.lists(bindings), st.lists(bindings))
def test_what_came_and_went_leaves_nothing_behind(kept: list[AclBinding], passing: list[AclBinding]) -> None:
    straight = Authorizer().with_all(kept)
    gone = set(passing) - set(kept)
    assert straight.with_changes(passing).with_changes([], gone).with_changes(
        [*passing, *kept], gone - set(passing)
    ) == (straight.with_changes(passing))
    assert straight.with_changes(gone).with_changes([], gone) == straight
    assert Authorizer().with_changes(gone).with_changes([], [*gone, *kept]) == Authorizer()


@given(st.sets(bindings), st.sampled_from(NAMES), st.sampled_from(KINDS))
def test_a_filter_that_matches_finds_what_decides(acls: set[AclBinding], name: str, kind: ResourceKind) -> None:
    found = {acl for acl in acls if AclFilter(kind=kind, name=name, pattern=PatternKind.MATCH).matches(acl)}
    assert found == {acl for acl in acls if acl.resource.covers(kind, name)}
