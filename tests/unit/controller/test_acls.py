"""Access control lists as the controller decides them, and what brokers are told and make of that."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast.broker.acl_view import AclView
from holdfast.controller import broadcast
from holdfast.controller.acl_events import CreateAcls, DeleteAcls
from holdfast.controller.acls import MOST_BYTES
from holdfast.metadata.codec_acls import AclNews, decode_acl_news, encode_acl_news
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import HoldfastError, InvalidRequestError, PolicyViolationError
from holdfast.protocol.framing import decode_request
from holdfast.protocol.interbroker import TYPE_FULL
from holdfast.protocol.orders_codec import encode_order
from holdfast.security.acls import MOST_IN_A_REQUEST, AclBinding, AclEntry, AclFilter, ResourcePattern
from holdfast.security.principal import Principal
from holdfast.security.resources import Operation, PatternKind, Permission, ResourceKind
from tests.unit.controller.test_broadcast import Cluster

ALICE, ROOT = Principal.user("alice"), Principal.user("root")
CONFIG = BrokerConfig.parse(
    {
        "node.id": "1",
        "log.dirs": "/d",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
    }
)


def acl(name: str = "t", operation: Operation = Operation.READ, *, who: str = "User:alice") -> AclBinding:
    return AclBinding(ResourcePattern(ResourceKind.TOPIC, name), AclEntry(who, "*", operation, Permission.ALLOW))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def create(cluster: Cluster, *acls: AclBinding) -> list[HoldfastError | None]:
    reply, _ = cluster.ask(CreateAcls(acls=acls))
    return list(reply.errors)


def delete(cluster: Cluster, *filters: AclFilter) -> list[Any]:
    reply, _ = cluster.ask(DeleteAcls(filters=filters))
    return [result.error or list(result.acls) for result in reply.results]


def test_entries_come_once_and_go(cluster: Cluster) -> None:
    assert create(cluster, acl(), acl("u"), acl()) == [None, None, None]
    offset = cluster.image.offset
    assert create(cluster, acl()) == [None]
    assert cluster.image.offset == offset, "what is there is not made again"
    assert delete(cluster, AclFilter(name="t"), AclFilter(), AclFilter(name="x")) == [[acl()], [acl(), acl("u")], []]
    assert len(cluster.image.acls) == 0


def test_each_entry_and_each_filter_has_an_error_of_its_own(cluster: Cluster) -> None:
    errors = create(cluster, acl(), acl(""), acl(who="alice"))
    assert [error if error is None else (type(error), error.message) for error in errors] == [
        None,
        (InvalidRequestError, "Invalid empty resource name"),
        (
            InvalidRequestError,
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    ]
    bad, good = delete(cluster, AclFilter(pattern=PatternKind.UNKNOWN), AclFilter())
    assert (bad.message, good) == ("Unknown patternFilter.", [acl()])


def test_one_request_makes_and_takes_away_as_many_as_kafkas(cluster: Cluster) -> None:
    many = [acl(f"t{number}") for number in range(MOST_IN_A_REQUEST + 1)]
    errors = create(cluster, *many)
    assert {type(error) for error in errors} == {PolicyViolationError}
    assert len(cluster.image.acls) == 0
    assert set(create(cluster, *many[:-1])) == {None}
    assert create(cluster, many[-1]) == [None]
    [error, found] = delete(cluster, AclFilter(), AclFilter(name="t7"))
    assert error.message == "Cannot remove more than 10000 acls in a single delete operation."
    assert found == [acl("t7")]
    assert len(cluster.image.acls) == MOST_IN_A_REQUEST


def test_entries_about_one_pattern_fit_in_a_node_of_zookeeper(cluster: Cluster) -> None:
    long = "x" * 1000
    many = [acl(who=f"User:{long}{number}") for number in range(400)]
    errors = create(cluster, *many)
    refused = sum(isinstance(error, PolicyViolationError) for error in errors)
    assert 0 < refused < 100
    assert len(cluster.image.acls) == 400 - refused
    assert isinstance(create(cluster, acl(who=f"User:{long}"))[0], PolicyViolationError)
    assert create(cluster, acl("u", who=f"User:{long}")) == [None]
    assert MOST_BYTES < 512 << 10


# -- brokers -----------------------------------------------------------------------------------------------------------


def view() -> AclView:
    found = AclView.of(CONFIG)
    assert found is not None
    return found


def told(request: Any) -> Any:
    """As the broker reads it."""
    return decode_request(6, 8, encode_order(request))


def may(view: AclView, who: Principal = ALICE, name: str = "t") -> bool:
    return view.may(who, "h", Operation.READ, ResourceKind.TOPIC, name)


def full(cluster: Cluster) -> Any:
    return told(broadcast.full_state_requests(cluster.image, 1, {}, 1, 5)[-1])


def test_a_broker_goes_by_what_it_was_told(cluster: Cluster) -> None:
    known = view()
    assert (may(known), may(known, ROOT)) == (False, True)
    create(cluster, acl())
    delta_before_all = [told(r) for r in cluster.told(cluster.ask(CreateAcls(acls=(acl("v"),)))[1])[1]]
    known.update(delta_before_all[-1])
    assert not known.ready, "what was before is not known"
    assert not may(known, name="v")
    assert full(cluster).type == TYPE_FULL
    known.update(full(cluster))
    assert (may(known), may(known, name="v"), may(known, name="w")) == (True, True, False)
    version = known.version
    known.update(full(cluster))
    assert known.version == version, "the same again costs nothing"

    _, delta = cluster.ask(CreateAcls(acls=(acl("w"), acl("*", Operation.WRITE))))
    for request in cluster.told(delta)[1]:
        known.update(told(request))
    assert may(known, name="w")
    assert known.may_any(ALICE, "h", Operation.WRITE, ResourceKind.TOPIC)
    _, delta = cluster.ask(DeleteAcls(filters=(AclFilter(name="t"), AclFilter(name="*"))))
    for request in cluster.told(delta)[1]:
        known.update(told(request))
    assert (may(known), may(known, name="w")) == (False, True)
    assert not known.may_any(ALICE, "h", Operation.WRITE, ResourceKind.TOPIC)
    assert [acl.resource.name for acl in known.matching(AclFilter())] == ["v", "w"]
    assert list(known.matching(AclFilter())) == sorted(cluster.image.acls)


def test_other_news_say_nothing_of_entries(cluster: Cluster) -> None:
    known = view()
    known.update(full(cluster))
    assert known.ready
    version = known.version
    for request in cluster.told(cluster.create("t", (1, 2)))[1]:
        if hasattr(request, "acls"):
            assert told(request).acls == b""
            known.update(told(request))
    assert known.version == version


def test_news_that_are_not_understood_close_a_broker(cluster: Cluster) -> None:
    create(cluster, acl())
    known = view()
    known.update(full(cluster))
    assert may(known)
    request = full(cluster)
    object.__setattr__(request, "acls", b"\x02\x00\x00")
    known.update(request)
    assert (may(known), may(known, ROOT), known.ready) == (False, True, False)
    known.update(full(cluster))
    assert may(known)


def test_decisions_are_kept_and_not_for_ever(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> None:
    monkeypatch.setattr("holdfast.broker.acl_view.MOST_KEPT", 100)
    create(cluster, acl("t7"))
    known = view()
    known.update(full(cluster))
    for number in range(350):
        assert may(known, name=f"t{number}") is (number == 7)
        assert known.may_any(Principal.user(str(number)), "h", Operation.READ, ResourceKind.TOPIC) is False
    assert len(known._kept) <= 100
    assert len(known._any_kept) <= 100


def test_without_an_authorizer_there_is_no_view() -> None:
    assert AclView.of(BrokerConfig.parse({"node.id": "1", "log.dirs": "/d"})) is None


def test_what_brokers_are_told_goes_there_and_back() -> None:
    chance = random.Random(3)
    acls = [acl(f"t{chance.random()}é", who=f"User:{chance.random()}") for _ in range(50)]
    assert decode_acl_news(encode_acl_news(acls[:30], acls[30:])) == AclNews(tuple(acls[:30]), tuple(acls[30:]))
    data = encode_acl_news(acls[:2])
    for end in range(len(data)):
        with pytest.raises(ValueError):
            decode_acl_news(data[:end])
    with pytest.raises(ValueError, match="end at byte"):
        decode_acl_news(data + b"\0")
