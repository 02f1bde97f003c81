"""security/oauth.py: one login by a token, in every order that a client may choose."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.security.bearer_token import TokenError, TokenHolder
from holdfast.security.oauth import BEARER_LOGIN, MOST_MESSAGE_BYTES, MOST_PAIRS, BearerLogin, BearerState, parse_bearer
from holdfast.security.principal import Principal
from holdfast.security.sasl_mechanism import Challenge, Proved, Refused

NOW_MS = 1_700_000_000_000
GOOD = b"n,,\x01auth=Bearer good\x01\x01"
BAD = b"n,,\x01auth=Bearer bad\x01\x01"


def judge(token: str, now_ms: int) -> TokenHolder:
    if token == "good":
        return TokenHolder(name="al,i=ce", expires_ms=now_ms + 1000)
    if token == "narrow":
        raise TokenError("the scope", status="insufficient_scope", scope='"a" b')
    raise TokenError("it is not good")


def test_a_token_that_is_enough_proves_who_holds_it() -> None:
    login = BearerLogin(judge)
    assert login.answer(GOOD, NOW_MS) == Proved(b"", Principal.user("al,i=ce"), NOW_MS + 1000)
    assert login.state is BearerState.OVER


@pytest.mark.parametrize("heard", [b"\x01", b"", GOOD, BAD, b"\x00" * 100])
def test_one_that_is_not_is_told_why_and_then_refused_whatever_the_client_says(heard: bytes) -> None:
    login = BearerLogin(judge)
    assert login.answer(BAD, NOW_MS) == Challenge(b'{"status":"invalid_token"}')
    assert login.state is BearerState.DENIED
    assert login.answer(heard, NOW_MS) == Refused("it is not good", '{"status":"invalid_token"}')
    assert login.state is BearerState.OVER
    with pytest.raises(AssertionError):
        BEARER_LOGIN.after(login.state, next(iter(BEARER_LOGIN.moves))[1])


def test_which_scope_is_missing_is_told_as_json() -> None:
    step = BearerLogin(judge).answer(b"n,,\x01auth=Bearer narrow\x01\x01", NOW_MS)
    assert isinstance(step, Challenge)
    assert json.loads(step.token) == {"status": "insufficient_scope", "scope": '"a" b'}
    assert step.token.startswith(b'{"status":"insufficient_scope", "scope":')  # as Kafka writes it


def test_CVE_2017_12610_who_wants_to_act_as_somebody_else_is_refused() -> None:
    same = BearerLogin(judge).answer(b"n,a=al=2Ci=3Dce,\x01auth=Bearer good\x01\x01", NOW_MS)
    assert isinstance(same, Proved)
    other = BearerLogin(judge).answer(b"n,a=admin,\x01auth=Bearer good\x01\x01", NOW_MS)
    assert isinstance(other, Refused) and "somebody else" in other.reason


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=bearer good\x01\x01",
        b"n,,\x01auth=BEARER   good\x01\x01",
        b"n,,\x01auth=Bearer good\x01traceId=12 3\x01logicalCluster=a=b\x01\x01",
        b"n,,\x01x=y\x01auth=Bearer good\x01\x01",
    ],
)
def test_what_else_a_client_says_is_not_gone_by(message: bytes) -> None:
    assert parse_bearer(message).token == "good"


def test_a_token_may_have_all_that_rfc_6750_allows() -> None:
    assert parse_bearer(b"n,,\x01auth=Bearer -._~+/09azAZ==\x01\x01").token == "-._~+/09azAZ=="


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "does not begin"),
        (b"\x01", "does not begin"),
        (b"y,,\x01auth=Bearer good\x01\x01", "does not begin"),
        (b"p=x,,\x01auth=Bearer good\x01\x01", "does not begin"),
        (b"n,a=,\x01auth=Bearer good\x01\x01", "does not begin"),
        (b"n,a=a=b,\x01auth=Bearer good\x01\x01", "does not begin"),
        (b"n,a=\xff,\x01auth=Bearer good\x01\x01", "does not begin"),
        (b"n,,", "does not end"),
        (b"n,,\x01\x01", "does not end"),
        (b"n,,\x01auth=Bearer good\x01", "does not end"),
        (b"n,,\x01auth=Bearer good\x01\x01\x01\x01", "another form"),
        (b"n,,\x01auth=Bearer good\x01\x01x", "does not end"),
        (b"n,,\x01x=y\x01\x01", "no auth"),
        (b"n,,\x01auth=Basic good\x01\x01", "no auth"),
        (b"n,,\x01auth=Bearer\x01\x01", "no auth"),
        (b"n,,\x01auth=Bearer a b\x01\x01", "no auth"),
        (b"n,,\x01auth=Bearer a,b\x01\x01", "no auth"),
        (b"n,,\x01auth=Bearer good\x01auth=Bearer good\x01\x01", "auth twice"),
        (b"n,,\x01auth=Bearer good\x01x1=y\x01\x01", "another form"),
        (b"n,,\x01auth=Bearer good\x01x\x01\x01", "another form"),
        (b"n,,\x01auth=Bearer good\x01x=\x01\x01", "another form"),
        (b"n,,\x01auth=Bearer good\x01x=\x00\x01\x01", "another form"),
        (b"n,,\x01auth=Bearer good" + b"\x01x=y" * MOST_PAIRS + b"\x01\x01", "more than 32 pairs"),
        (b"n,," + b"\x01" * 99, "more than 32 pairs"),
        (b"n,,\x01auth=Bearer " + b"x" * MOST_MESSAGE_BYTES + b"\x01\x01", "at most"),
    ],
)
def test_what_has_another_form_is_refused_at_once(message: bytes, reason: str) -> None:
    step = BearerLogin(judge).answer(message, NOW_MS)
    assert isinstance(step, Refused) and reason in step.reason


@given(st.lists(st.binary(max_size=40) | st.sampled_from((GOOD, BAD, b"\x01")), min_size=1, max_size=4))
def test_no_order_of_messages_proves_anything_but_a_good_token_first(messages: list[bytes]) -> None:
    login = BearerLogin(judge)
    for place, message in enumerate(messages):
        step = login.answer(message, NOW_MS)
        assert isinstance(step, Proved) == (place == 0 and message == GOOD)
        if not isinstance(step, Challenge):
            break
