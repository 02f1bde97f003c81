"""SCRAM users and quotas as the controller decides them, and what brokers are told and make of that."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from holdfast.broker.quota_view import QuotaView
from holdfast.broker.user_view import UserView
from holdfast.controller import broadcast
from holdfast.controller.controller import Controller
from holdfast.controller.quotas import MOST_IN_A_REQUEST
from holdfast.controller.settings import ControllerSettings
from holdfast.controller.user_events import AlterQuotas, AlterScramUsers, QuotaChange, ScramUpsertion
from holdfast.metadata.codec_news import changed_quotas, changed_users, decode_news, encode_news
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import ClientQuotaRecord, ScramSecretRecord, UserScramCredentialRecord
from holdfast.model.errors import (
    CorruptRecordError,
    DuplicateResourceError,
    HoldfastError,
    InvalidRequestError,
    PolicyViolationError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnsupportedSaslMechanismError,
)
from holdfast.protocol.error_codes import code_of
from holdfast.protocol.framing import decode_request
from holdfast.protocol.interbroker import TYPE_FULL, TYPE_INCREMENTAL
from holdfast.protocol.orders_codec import encode_order
from holdfast.security.quota_entities import EntityFilter, QuotaEntity
from holdfast.security.scram_credential import ScramCredential, ScramMechanism
from tests.unit.controller.test_broadcast import Cluster

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALTED = b"p" * 32
ALICE: QuotaEntity = (("user", "alice"),)


def upsertion(
    name: str = "alice", mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt", salted: bytes = SALTED
) -> ScramUpsertion:
    return ScramUpsertion(name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def alter(
    cluster: Cluster, *upsertions: ScramUpsertion, delete: Iterable[tuple[str, int]] = ()
) -> dict[str, HoldfastError | None]:
    reply, _ = cluster.ask(AlterScramUsers(deletions=tuple(delete), upsertions=upsertions))
    return dict(reply.users)


def quota(cluster: Cluster, *changes: tuple[QuotaEntity, dict[str, float | None]], **how: Any) -> list[Any]:
    asked = tuple(QuotaChange(entity=entity, values=tuple(values.items())) for entity, values in changes)
    reply, _ = cluster.ask(AlterQuotas(changes=asked, **how))
    return [None if error is None else (code_of(error), error.message) for error in reply.errors]


# -- users -----------------------------------------------------------------------------------------------------


def test_a_user_comes_with_keys_and_the_first_one_with_the_secret(cluster: Cluster) -> None:
    assert alter(cluster, upsertion(), upsertion("bob", 2)) == {"alice": None, "bob": None}
    users = cluster.image.users
    assert users.credentials["alice", SHA_256] == ScramCredential.of_salted(SHA_256, b"salt", SALTED, 4096)
    assert len(users.secret) == 32
    alter(cluster, upsertion(salt=b"other"))
    assert cluster.image.users.secret == users.secret
    assert alter(cluster, delete=[("alice", 1), ("bob", 2)]) == {"alice": None, "bob": None}
    assert not cluster.image.users.credentials
    assert cluster.image.users.secret == users.secret, "salts of unknown users stay what they are"


def test_each_reign_has_a_secret_of_its_own_until_there_is_one() -> None:
    def made(chance: bytes, image: ClusterImage) -> ClusterImage:
        controller = Controller(image, ControllerSettings(scram_secret=chance), random.Random(1))
        decision = controller.handle(AlterScramUsers(upsertions=(upsertion(),)), 0)
        controller.replay(decision.records, image.next_offset)
        return controller.image

    first = made(b"1" * 32, ClusterImage.empty("c"))
    assert first.users.secret == b"1" * 32
    assert made(b"2" * 32, first).users.secret == b"1" * 32


def test_users_of_a_tree_of_kafkas_get_a_secret_at_once() -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    record = UserScramCredentialRecord(name="a", mechanism=SHA_256, credential=credential)
    image, _ = ClusterImage.empty("c").apply([record], 0)
    controller = Controller(image, ControllerSettings(scram_secret=b"3" * 32), random.Random(1))
    controller.begin(0)
    assert controller.next_deadline_ms() == 0
    (event,) = controller.due(0)
    decision = controller.handle(event, 0)
    assert decision.records == (ScramSecretRecord(secret=b"3" * 32),)
    controller.replay(decision.records, 1)
    assert controller.next_deadline_ms() != 0


@pytest.mark.parametrize(
    ("wanted", "kind", "text"),
    [
        (upsertion(iterations=4095), UnacceptableCredentialError, "Too few iterations"),
        (upsertion(iterations=16385), UnacceptableCredentialError, "Too many iterations"),
        (upsertion(""), UnacceptableCredentialError, "Username must not be empty"),
        (upsertion(mechanism=3), UnsupportedSaslMechanismError, "Unknown SCRAM mechanism"),
        (upsertion("a" * 1025), UnacceptableCredentialError, "Username must have at most 1024 bytes"),
        (upsertion(salted=b""), UnacceptableCredentialError, "Expected a salted password"),
        (upsertion(salt=bytes(1025)), UnacceptableCredentialError, "a salt of at most 1024 bytes"),
    ],
)
def test_what_nobody_should_log_in_with_is_refused(
    cluster: Cluster, wanted: ScramUpsertion, kind: type[HoldfastError], text: str
) -> None:
    error = alter(cluster, wanted, upsertion("bob"))[wanted.name]
    assert type(error) is kind
    assert error is not None
    assert text in error.message
    assert cluster.image.users.names() == ["bob"]


def test_who_is_named_twice_keeps_what_it_had(cluster: Cluster) -> None:
    alter(cluster, upsertion("a"), upsertion("b"))
    before = cluster.image.users
    found = alter(
        cluster, upsertion("a", salt=b"x"), upsertion("b", 1), upsertion("b", 2), upsertion("c"), delete=[("a", 1)]
    )
    assert {name: type(error) for name, error in found.items()} == {
        "a": DuplicateResourceError, "b": DuplicateResourceError, "c": type(None),
    }  # fmt: skip
    assert {name: cluster.image.users.of(name) for name in "ab"} == {name: before.of(name) for name in "ab"}
    assert found["a"] is not None
    assert found["a"].message == "A user credential cannot be altered twice in the same request"


def test_who_is_not_there_cannot_be_removed(cluster: Cluster) -> None:
    alter(cluster, upsertion("a"))
    found = alter(cluster, delete=[("a", 2), ("nobody", 1), ("", 1), ("b", 0)])
    assert isinstance(found["a"], ResourceNotFoundError)
    assert found["a"].message == "Attempt to delete a user credential that does not exist"
    assert isinstance(found["nobody"], ResourceNotFoundError)
    assert isinstance(found[""], UnacceptableCredentialError)
    assert isinstance(found["b"], UnsupportedSaslMechanismError)


# -- quotas ----------------------------------------------------------------------------------------------------


def test_quotas_come_change_and_go(cluster: Cluster) -> None:
    assert quota(cluster, (ALICE, {"producer_byte_rate": 1000.0000001, "request_percentage": 12.5})) == [None]
    assert dict(cluster.image.quotas.of(ALICE)) == {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    offset = cluster.image.offset
    assert quota(cluster, (ALICE, {"producer_byte_rate": 1000.0, "consumer_byte_rate": None})) == [None]
    assert cluster.image.offset == offset, "what is so already is not recorded"
    assert quota(cluster, (ALICE, {"producer_byte_rate": None, "nope": None, "request_percentage": None})) == [None]
    assert len(cluster.image.quotas) == 0


def test_quotas_are_only_looked_at_when_asked_so(cluster: Cluster) -> None:
    assert quota(cluster, (ALICE, {"producer_byte_rate": 1.0}), (ALICE, {}), validate_only=True) == [
        None, (42, "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"),
    ]  # fmt: skip
    assert len(cluster.image.quotas) == 0


def test_what_is_wrong_with_one_entry_is_of_no_account_to_others(cluster: Cluster) -> None:
    both: QuotaEntity = (("user", "a"), ("client-id", None))
    assert quota(
        cluster, ((), {"producer_byte_rate": 1.0}), ((("planet", "x"),), {}), (both, {"producer_byte_rate": 1.0}),
        (ALICE, {"producer_byte_rate": 1.0, "nope": 1.0}), (((("ip", "not-an-ip-$")),), {}),
        ((("user", "a" * 1025),), {}),
        unknown_hosts=frozenset(["not-an-ip-$"]),
    ) == [
        (42, "Invalid empty client quota entity"), (42, "Unhandled client quota entity type: planet"), None,
        (42, "Invalid configuration key nope"), (42, "not-an-ip-$ is not a valid IP or resolvable host."),
        (42, "The name of a user must have at most 1024 bytes"),
    ]  # fmt: skip
    assert list(cluster.image.quotas) == [both]


def test_a_key_that_comes_twice_is_refused(cluster: Cluster) -> None:
    change = QuotaChange(entity=(("user", None),), values=(("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)))
    reply, _ = cluster.ask(AlterQuotas(changes=(change,)))
    (error,) = reply.errors
    assert isinstance(error, InvalidRequestError)
    assert error.message == "Ignoring duplicate entity ClientQuotaEntity(entries={user=null})"


def test_so_many_quotas_at_once_are_refused(cluster: Cluster) -> None:
    changes = [((("user", f"u{n}"),), {"producer_byte_rate": 1.0}) for n in range(MOST_IN_A_REQUEST + 1)]
    reply, _ = cluster.ask(
        AlterQuotas(changes=tuple(QuotaChange(entity=e, values=tuple(v.items())) for e, v in changes))
    )
    assert {type(error) for error in reply.errors} == {PolicyViolationError}
    assert len(cluster.image.quotas) == 0


# -- brokers ---------------------------------------------------------------------------------------------------


def on_the_wire(request: Any) -> Any:
    """As a broker gets it."""
    return decode_request(6, 8, encode_order(request))


class Told:
    """A broker's views, told as a broker is."""

    def __init__(self) -> None:
        self.users, self.quotas = UserView("c"), QuotaView()

    def full(self, image: ClusterImage) -> None:
        states = broadcast.FullStates(image, {}, 1, 1)
        for request in states.requests(1):
            if hasattr(request, "scram_users"):
                self.tell(on_the_wire(request))

    def change(self, image: ClusterImage, delta: Any) -> None:
        planned = broadcast.plan(image, delta, offline={})
        for request in broadcast.build_requests(image, planned, 1, 1)[1]:
            if hasattr(request, "scram_users"):
                self.tell(on_the_wire(request))

    def tell(self, request: Any) -> None:
        self.users.update(request)
        self.quotas.update(request)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told) and (self.users.__dict__, self.quotas.by_entity) == (
            other.users.__dict__, other.quotas.by_entity,
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]


def test_brokers_know_what_they_were_told_in_full_or_by_changes(cluster: Cluster) -> None:
    slow = Told()
    slow.full(cluster.image)
    for event in (
        AlterScramUsers(upsertions=(upsertion("a"), upsertion("b", 2))),
        AlterScramUsers(upsertions=(upsertion("a", 2),), deletions=(("b", 2),)),
        AlterQuotas(changes=(QuotaChange(entity=ALICE, values=(("producer_byte_rate", 5.0),)),)),
        AlterQuotas(changes=(QuotaChange(entity=(("ip", None),), values=(("connection_creation_rate", 3.0),)),)),
        AlterQuotas(changes=(QuotaChange(entity=ALICE, values=(("producer_byte_rate", None),)),)),
    ):
        _, delta = cluster.ask(event)
        slow.change(cluster.image, delta)
        quick = Told()
        quick.full(cluster.image)
        assert slow == quick
    assert slow.users.names == ["a"]
    assert slow.users.iterations("a") == {SHA_256: 4096, SHA_512: 4096}
    assert slow.users.scram("a", SHA_512) == cluster.image.users.credentials["a", SHA_512]
    assert slow.users.scram("b", SHA_512) is None
    assert slow.users.scram("a", SHA_256) is not None
    assert slow.users.secret == cluster.image.users.secret
    assert slow.quotas.ip_rate("1.2.3.4") == 3
    assert not slow.quotas.limits_clients
    slow.full(ClusterImage.empty("c").apply(cluster.image.to_records(), 0)[0])
    assert slow == quick


def test_before_there_are_users_all_brokers_have_one_secret() -> None:
    assert UserView("c").secret == UserView("c").secret != UserView("d").secret


def test_an_address_has_its_quota_however_the_quota_spells_it() -> None:
    view = QuotaView()
    rates = {"::1": 7.0, "2001:DB8::1": 5.0, "2001:db8:0:0:0:0:0:1": 4.0, "::ffff:10.0.0.1": 3.0, None: 2.0}
    key = "connection_creation_rate"
    records = [ClientQuotaRecord(entity=(("ip", name),), key=key, value=rate) for name, rate in rates.items()]
    view.update(Request(quotas=encode_news(records)))
    asked = ("0:0:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:1", "10.0.0.1", "10.0.0.2")
    assert [view.ip_rate(host) for host in asked] == [7, 4, 3, 2]
    gone = [ClientQuotaRecord(entity=(("ip", name),), key=key, value=None) for name in ("2001:db8:0:0:0:0:0:1", None)]
    view.update(Request(quotas=encode_news(gone), type=TYPE_INCREMENTAL))
    assert [view.ip_rate(host) for host in asked] == [7, 5, 3, None]


def test_which_quotas_a_view_finds() -> None:
    view = QuotaView()
    assert view.ip_rate("::1") is None
    records = [
        ClientQuotaRecord(entity=(("ip", "10.0.0.1"),), key="connection_creation_rate", value=7.0),
        ClientQuotaRecord(entity=ALICE, key="request_percentage", value=0.5),
    ]
    view.update(Request(quotas=encode_news(records)))
    assert (view.ip_rate("10.0.0.1"), view.ip_rate("10.0.0.2"), view.limits_clients) == (7, None, True)
    wanted = EntityFilter([("user", EntityFilter.SPECIFIED, None)], strict=True)
    assert list(view.matching(wanted)) == [(ALICE, {"request_percentage": 0.5})]


class Request:
    """What is looked at of an UpdateMetadata."""

    def __init__(self, *, users: bytes = b"", quotas: bytes = b"", type: int = TYPE_FULL) -> None:
        self.scram_users, self.client_quotas, self.type = users, quotas, type


def test_news_that_cannot_be_read_let_nobody_log_in_and_limit_as_before(caplog: pytest.LogCaptureFixture) -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    user = UserScramCredentialRecord(name="a", mechanism=SHA_256, credential=credential)
    users, quotas = encode_news([user]), encode_news([ClientQuotaRecord(entity=ALICE, key="x", value=1.0)])
    told = Told()
    told.tell(Request(users=users, quotas=quotas))
    assert told.users.scram("a", SHA_256) == credential
    told.tell(Request(users=users[:-1], quotas=quotas[:-1]))
    assert told.users.scram("a", SHA_256) is None
    assert told.quotas.by_entity == {ALICE: {"x": 1.0}}
    assert len(caplog.records) == 2
    assert "stored" not in caplog.text


@pytest.mark.parametrize("damage", [b"", b"\x02\x00", b"\x01\x01", b"\x01\x00\x00", b"\x01\x01\x03abc"])
def test_damaged_news_are_refused(damage: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_news(damage)


def test_nothing_is_said_where_nothing_changed(cluster: Cluster) -> None:
    _, delta = cluster.ask(AlterQuotas(changes=(QuotaChange(entity=ALICE, values=(("producer_byte_rate", 5.0),)),)))
    assert changed_users(cluster.image, delta) == b""
    _, delta = cluster.ask(AlterScramUsers(upsertions=(upsertion(),)))
    assert changed_quotas(cluster.image, delta) == b""
    assert [type(record) for record in decode_news(changed_users(cluster.image, delta))] == [
        ScramSecretRecord, UserScramCredentialRecord,
    ]  # fmt: skip
