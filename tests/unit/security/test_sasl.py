"""Logins on a broker's side: PLAIN, SCRAM beside the client's half, and the order of it (CVEs by their numbers)."""

from __future__ import annotations

import base64
import hashlib
import statistics
import time
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.scram import ScramClient, ScramError
from holdfast.security.plain import PlainServer
from holdfast.security.principal import ANONYMOUS, Principal
from holdfast.security.sasl_mechanism import Challenge, Proved, Refused, SaslMechanism, SaslStep
from holdfast.security.sasl_server import LEAST_BETWEEN_MS, LoginState, SaslListener, SaslServer
from holdfast.security.scram_credential import ScramCredential, ScramMechanism
from holdfast.security.scram_forms import CredentialForms
from holdfast.security.scram_server import MOST_BYTES, ScramServer, credential_of_nobody

SECRET = b"s" * 32
ALICE = Principal.user("alice")
MECHANISMS = list(ScramMechanism)


def credential(mechanism: ScramMechanism, password: str = "secret", iterations: int = 4096) -> ScramCredential:
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), b"salt", iterations)
    return ScramCredential.of_salted(mechanism, b"salt", salted, iterations)


KEPT = {mechanism: credential(mechanism) for mechanism in ScramMechanism}


def server(
    mechanism: ScramMechanism, nonce: str = "theirs", users: tuple[str, ...] = ("alice", "a,b=c")
) -> ScramServer:
    return ScramServer(
        mechanism, lambda user: KEPT[mechanism] if user in users else None, SECRET, nonce, CredentialForms()
    )


def told(step: SaslStep) -> bytes:
    assert isinstance(step, Challenge), step
    return step.token


def refused(step: SaslStep) -> str:
    assert isinstance(step, Refused), step
    return step.reason


# -- PLAIN -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_plain(token: bytes) -> None:
    assert PlainServer({"alice": b"secret"}).answer(token, 0) == Proved(b"", ALICE)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"", "1 parts"),
        (b"alice\0secret", "2 parts"),
        (b"\0alice\0secret\0more", "4 parts"),
        (b"\0\0secret", "empty"),
        (b"\0alice\0", "empty"),
        (b"\0alice\0wrong", "another password"),
        (b"\0bob\0secret", "unknown"),
        (b"\0\xff\0secret", "not UTF-8"),
        (b"\0alice\0" + b"x" * 70_000, "at most"),
        (b"bob\0alice\0secret", "another one"),
    ],
)
def test_plain_is_refused(token: bytes, reason: str) -> None:
    assert reason in refused(PlainServer({"alice": b"secret"}).answer(token, 0))


def test_CVE_2017_12610_with_plain_nobody_acts_for_another_one() -> None:
    users = {"alice": b"secret", "bob": b"other"}
    assert "another one" in refused(PlainServer(users).answer(b"bob\0alice\0secret", 0))


def median_ns(run: Callable[[], object]) -> float:
    took = []
    for _ in range(2000):
        began = time.perf_counter_ns()
        run()
        took.append(time.perf_counter_ns() - began)
    return statistics.median(took)


def test_CVE_2021_38153_a_password_is_compared_in_constant_time() -> None:
    """A wrong first letter takes as long as a wrong last one, within what the clock of a busy machine can tell."""
    users = {"alice": b"x" * 30_000}
    first, last = b"\0alice\0" + b"y" + b"x" * 29_999, b"\0alice\0" + b"x" * 29_999 + b"y"
    ratios = [
        median_ns(partial(PlainServer(users).answer, first, 0)) / median_ns(partial(PlainServer(users).answer, last, 0))
        for _ in range(3)
    ]
    assert 0.8 < statistics.median(ratios) < 1.25


# -- SCRAM -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "a,b=c"])
def test_scram_with_the_clients_half(mechanism: ScramMechanism, user: str) -> None:
    client, broker = ScramClient(mechanism.sasl_name, user, "secret", "ours"), server(mechanism)
    end = broker.answer(client.final(told(broker.answer(client.first(), 0))), 0)
    assert isinstance(end, Proved)
    assert end.principal == Principal.user(user)
    client.check(end.token)  # the broker has proved that it knows the password, too


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("bob", "secret")])
def test_an_unknown_user_fails_where_a_wrong_password_does(mechanism: ScramMechanism, user: str, password: str) -> None:
    client, broker = ScramClient(mechanism.sasl_name, user, password, "ours"), server(mechanism)
    assert "unknown, or another password" in refused(
        broker.answer(client.final(told(broker.answer(client.first(), 0))), 0)
    )


def test_the_salt_of_nobody_is_the_same_everywhere_and_of_each_name_another() -> None:
    forms = CredentialForms()
    first, again = (credential_of_nobody(SECRET, ScramMechanism.SCRAM_SHA_512, "bob", forms) for _ in range(2))
    assert first == again
    assert first.salt != credential_of_nobody(SECRET, ScramMechanism.SCRAM_SHA_512, "bo", forms).salt
    assert first.salt != credential_of_nobody(SECRET, ScramMechanism.SCRAM_SHA_256, "bob", forms).salt
    assert first.salt != credential_of_nobody(b"t" * 32, ScramMechanism.SCRAM_SHA_512, "bob", forms).salt


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_keys_of_nobody_are_as_long_as_those_of_a_user_and_are_not_told(mechanism: ScramMechanism) -> None:
    nobody = credential_of_nobody(SECRET, mechanism, "bob", CredentialForms())
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, b"secret", nobody.salt, 4096)
    user = ScramCredential.of_salted(mechanism, nobody.salt, salted, 4096)
    assert [len(nobody.stored_key)] * 2 == [len(user.stored_key), len(user.server_key)], "a proof takes as long"
    assert nobody.salt not in nobody.stored_key


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"", "expected n,"),
        (b"y,,n=alice,r=ours", "channel binding"),
        (b"p=tls-unique,,n=alice,r=ours", "channel binding"),
        (b"n,,n=alice", "another form"),
        (b"n,,r=ours,n=alice", "another form"),
        (b"n,x=1,n=alice,r=ours", "another form"),
        (b"n,,n=,r=ours", "cannot be read"),
        (b"n,,n=al=ice,r=ours", "cannot be read"),
        (b"n,,n=\xff,r=ours", "cannot be read"),
        (b"n,,n=alice,r=", "cannot be read"),
        (b"n,,n=alice,r=a b", "cannot be read"),
        (b"n,a=\xff,n=alice,r=ours", "cannot be read"),
        (b"n,,n=alice,r=ours,tokenauth=true", "delegation token"),
        (b"n,,n=alice,r=" + b"x" * MOST_BYTES, "at most"),
    ],
)
def test_first_messages_that_are_refused(token: bytes, reason: str) -> None:
    assert reason in refused(server(ScramMechanism.SCRAM_SHA_256).answer(token, 0))


def test_CVE_2017_12610_with_scram_nobody_acts_for_another_one() -> None:
    broker = server(ScramMechanism.SCRAM_SHA_256)
    assert "another one" in refused(broker.answer(b"n,a=bob,n=alice,r=ours", 0))
    assert isinstance(server(ScramMechanism.SCRAM_SHA_256).answer(b"n,a=alice,n=alice,r=ours", 0), Challenge)


def final_of(change: Callable[[bytes], bytes]) -> str:
    mechanism = ScramMechanism.SCRAM_SHA_256
    client, broker = ScramClient(mechanism.sasl_name, "alice", "secret", "ours"), server(mechanism)
    return refused(broker.answer(change(client.final(told(broker.answer(client.first(), 0)))), 0))


def test_CVE_2024_56128_the_nonce_is_that_of_this_login() -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    client = ScramClient(mechanism.sasl_name, "alice", "secret", "ours")
    old = client.final(told(server(mechanism, "old").answer(client.first(), 0)))
    broker = server(mechanism, "new")
    broker.answer(client.first(), 0)
    assert "another nonce" in refused(broker.answer(old, 0))
    assert "another nonce" in final_of(lambda final: final.replace(b"r=ourstheirs", b"r=ours"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda final: b"", "another form"),
        (lambda final: final.replace(b"c=biws", b"c=eSws"), "another header"),
        (lambda final: final.replace(b"c=biws", b"c=!"), "another header"),
        (lambda final: final[: final.index(b",p=")], "another form"),
        (lambda final: final[: final.index(b",p=")] + b",p=" + base64.b64encode(b"x"), "another length"),
        (lambda final: final[: final.index(b",p=")] + b",p=!!", "another length"),
        (lambda final: final + b"x" * MOST_BYTES, "at most"),
    ],
)
def test_last_messages_that_are_refused(change: Callable[[bytes], bytes], reason: str) -> None:
    assert reason in final_of(change)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_whatever_is_said_nobody_is_let_in(first: bytes, last: bytes) -> None:
    broker = server(ScramMechanism.SCRAM_SHA_256)
    if isinstance(broker.answer(first, 0), Challenge):
        assert isinstance(broker.answer(last, 0), Refused)
    assert isinstance(PlainServer({"alice": b"secret" * 20}).answer(first, 0), Refused)


def test_the_clients_half_refuses_a_server_that_does_not_know_the_password() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "ours")
    client.final(told(server(ScramMechanism.SCRAM_SHA_256).answer(client.first(), 0)))
    with pytest.raises(ScramError):
        client.check(b"v=" + base64.b64encode(b"x" * 32))


# -- the order of it -------------------------------------------------------------------------------------------------


class Told:
    """A mechanism that says what it is told to."""

    def __init__(self, *steps: SaslStep) -> None:
        self.steps = list(steps)

    def answer(self, token: bytes, now_ms: int) -> SaslStep:
        return self.steps.pop(0)


def listener(*steps: SaslStep, lifetime_ms: int = 0) -> SaslListener:
    given = list(steps)

    def begin() -> SaslMechanism:
        return Told(given.pop(0))

    return SaslListener({"PLAIN": begin, "OTHER": begin}, {"PLAIN": lifetime_ms})


def test_one_logs_in() -> None:
    login = SaslServer(listener(Proved(b"x", ALICE)))
    assert (login.principal, login.is_known, login.waits_for_token) == (ANONYMOUS, False, False)
    assert login.handshake("PLAIN", 0) is None
    assert login.waits_for_token
    said = login.token(b"", 0, 0)
    assert (said.token, said.lifetime_ms, said.refusal) == (b"x", 0, None)
    assert (login.principal, login.is_known, login.ends_ms) == (ALICE, True, None)


def test_a_challenge_is_passed_on() -> None:
    login = SaslServer(SaslListener({"PLAIN": lambda: Told(Challenge(b"?"), Proved(b"!", ALICE))}, {}))
    login.handshake("PLAIN", 0)
    assert login.token(b"", 0, 0).token == b"?"
    assert login.token(b"", 0, 0).token == b"!"


def test_a_mechanism_that_is_not_there_is_refused_with_the_list() -> None:
    login = SaslServer(listener())
    assert "expected OTHER, PLAIN" in str(login.handshake("GSSAPI", 0))
    assert login.state is LoginState.REFUSED


def test_the_client_is_told_kafkas_words_and_the_log_why() -> None:
    login = SaslServer(listener(Refused("because")))
    login.handshake("PLAIN", 0)
    said = login.token(b"", 0, 0)
    assert said.refusal == "PLAIN: because"
    assert said.message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
    )


def test_a_login_ends_with_its_token_or_the_listeners_limit_whichever_comes_first() -> None:
    for token_ms, lifetime_ms, expected in [
        (None, 5000, 5000),
        (9000, 5000, 5000),
        (3000, 5000, 3000),
        (3000, 0, 3000),
    ]:
        login = SaslServer(listener(Proved(b"", ALICE, token_ms and 1000 + token_ms), lifetime_ms=lifetime_ms))
        login.handshake("PLAIN", 0)
        assert login.token(b"", 1000, 70).lifetime_ms == expected
        assert not login.has_ended(70 + expected - 1)
        assert login.has_ended(70 + expected)


def test_a_token_that_has_ended_proves_nothing() -> None:
    login = SaslServer(listener(Proved(b"", ALICE, 1000)))
    login.handshake("PLAIN", 0)
    assert "has ended" in str(login.token(b"", 1000, 0).refusal)


def again(*steps: SaslStep, lifetime_ms: int = 5000) -> SaslServer:
    login = SaslServer(listener(Proved(b"", ALICE), *steps, lifetime_ms=lifetime_ms))
    login.handshake("PLAIN", 0)
    login.token(b"", 0, 0)
    return login


def test_one_logs_in_again_and_the_time_begins_anew() -> None:
    login = again(Proved(b"", ALICE))
    assert login.handshake("PLAIN", 4000) is None
    assert not login.is_known
    login.token(b"", 0, 4000)
    assert login.is_known
    assert login.ends_ms == 9000


def test_another_one_on_the_same_connection_is_refused() -> None:
    login = again(Proved(b"", Principal.user("bob")))
    login.handshake("PLAIN", 4000)
    assert "User:bob logs in on the connection of User:alice" in str(login.token(b"", 0, 4000).refusal)
    assert not login.is_known


def test_another_mechanism_on_the_same_connection_is_refused() -> None:
    refusal = again().handshake("OTHER", 4000)
    assert refusal is not None
    assert "a connection keeps its own" in refusal.why
    assert not refusal.is_too_early


@pytest.mark.parametrize(("lifetime_ms", "least_ms"), [(0, LEAST_BETWEEN_MS), (60_000, LEAST_BETWEEN_MS), (800, 400)])
def test_logins_in_a_loop_are_refused(lifetime_ms: int, least_ms: int) -> None:
    refusal = again(Proved(b"", ALICE), lifetime_ms=lifetime_ms).handshake("PLAIN", least_ms - 1)
    assert refusal is not None
    assert refusal.why == f"a login {least_ms - 1} ms after the last one, expected {least_ms} between them"
    assert refusal.is_too_early
    assert again(Proved(b"", ALICE), lifetime_ms=lifetime_ms).handshake("PLAIN", least_ms) is None


def test_nothing_is_taken_after_a_refusal() -> None:
    login = SaslServer(listener(Refused("no"), Proved(b"", ALICE)))
    login.handshake("PLAIN", 0)
    login.token(b"", 0, 0)
    with pytest.raises(AssertionError):
        login.handshake("PLAIN", 0)
