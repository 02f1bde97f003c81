"""security/bearer_token.py: what a token says, and which claims are enough."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.security.bearer_token import (
    INSUFFICIENT_SCOPE,
    INVALID_TOKEN,
    MOST_HEADER_BYTES,
    MOST_NAME_CHARACTERS,
    MOST_TOKEN_BYTES,
    ClaimRules,
    TokenError,
    TokenHolder,
    parse_token,
    read_json,
    refuse_signed,
)
from tests.token_signing import packed, packed_json, unsecured

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
SIGNED = ClaimRules(is_signed=True, audience=frozenset(("broker",)), issuer="https://idp", skew_ms=30_000)
UNSECURED = ClaimRules(is_signed=False)
GOOD: dict[str, Any] = {
    "sub": "alice", "aud": "broker", "iss": "https://idp", "iat": NOW_S - 100, "exp": NOW_S + 600,
}  # fmt: skip


def holder(rules: ClaimRules, claims: dict[str, Any], now_ms: int = NOW_MS) -> TokenHolder:
    return rules.holder(claims, now_ms)


# -- the form -----------------------------------------------------------------------------------------------------


def test_a_token_has_a_header_claims_and_a_signature_of_both() -> None:
    token = parse_token(f"{packed_json({'alg': 'RS256'})}.{packed_json(GOOD)}.{packed(b'signature')}")
    assert (token.algorithm, token.claims, token.signature) == ("RS256", GOOD, b"signature")
    assert token.signed.decode() == f"{packed_json({'alg': 'RS256'})}.{packed_json(GOOD)}"


HEADER = packed_json({"alg": "none"})
CLAIMS = packed_json(GOOD)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "1 parts"),
        ("a.b", "2 parts"),
        (f"{HEADER}.{CLAIMS}..", "4 parts"),
        (f"{HEADER}=.{CLAIMS}.", "header is no base64url"),
        (f"{HEADER[:-1]}+.{CLAIMS}.", "header is no base64url"),
        (f"{HEADER}.{CLAIMS}.A", "signature is no base64url"),
        ("a" * (MOST_HEADER_BYTES + 1) + f".{CLAIMS}.", f"{MOST_HEADER_BYTES} at most"),
        (f"{HEADER}.é.", "claims is no base64url"),
        (f"{HEADER}.\ud800.", "claims is no base64url"),
        (f"{packed(b'{')}.{CLAIMS}.", "header: expected JSON"),
        (f"{packed(b'[]')}.{CLAIMS}.", "header: expected an object"),
        (f"{HEADER}.{packed(b'1')}.", "claims: expected an object"),
        (f"{HEADER}.{packed(bytes((0xFF,)))}.", "claims: expected JSON"),
        (f"{HEADER}.{packed(b'{' + bytes(2) + b'}')}.", "claims: expected JSON"),
        (f"{HEADER}.{packed(b'[' * 20_000)}.", "claims: expected JSON"),
        (f"{HEADER}.{packed(b'{%s}' % (b'1' * 5000))}.", "claims: expected JSON"),
        (packed_json({"alg": "RS256", "crit": ["exp"]}) + f".{CLAIMS}.", "asks for extensions"),
        ("a" * (MOST_TOKEN_BYTES + 1), f"{MOST_TOKEN_BYTES} at most"),
    ],
)
def test_what_has_another_form_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TokenError, match=reason) as caught:
        assert parse_token(text).claims
    assert caught.value.status == INVALID_TOKEN and caught.value.scope is None


@pytest.mark.parametrize("text", [b'{"sub":"alice","sub":"admin"}', b'{"x":{"a":1,"a":2}}'])
def test_a_name_that_is_twice_is_refused(text: bytes) -> None:
    """Who signs and who checks would see another one."""
    with pytest.raises(ValueError, match="twice"):
        read_json(text)


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b'{"exp":-Infinity}'])
def test_what_is_no_number_of_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="no number"):
        read_json(text)


def test_no_part_of_a_token_is_in_the_text_of_an_error() -> None:
    token = unsecured({**GOOD, "exp": 1, "sub": "alice-of-old"})
    with pytest.raises(TokenError) as caught:
        UNSECURED.holder(parse_token(token).claims, NOW_MS)
    assert "alice" not in str(caught.value)


def test_claims_are_not_read_before_somebody_asks_for_them() -> None:
    """Who signed is asked first: a stranger's JSON costs nothing."""
    token = parse_token(f"{HEADER}.{packed(b'[' * 40_000)}.")
    with pytest.raises(TokenError, match="claims"):
        assert token.claims


def test_only_alg_none_without_a_signature_is_one_that_nobody_has_signed() -> None:
    refuse_signed(parse_token(unsecured(GOOD)))
    for text in (unsecured(GOOD, alg="RS256"), unsecured(GOOD, alg="None"), unsecured(GOOD) + packed(b"x")):
        with pytest.raises(TokenError):
            refuse_signed(parse_token(text))
    with pytest.raises(TokenError, match="names no algorithm"):
        refuse_signed(parse_token(f"{packed_json({'alg': 1})}.{CLAIMS}."))


# -- claims -------------------------------------------------------------------------------------------------------


def test_who_holds_a_token_and_when_it_ends() -> None:
    assert holder(SIGNED, GOOD) == TokenHolder(name="alice", expires_ms=(NOW_S + 600) * 1000)
    assert holder(UNSECURED, {"sub": " bob ", "exp": NOW_S + 0.5}) == TokenHolder(name="bob", expires_ms=NOW_MS + 500)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"exp": None}, "exp is missing"),
        ({"exp": "soon"}, "exp: expected seconds"),
        ({"exp": True}, "exp: expected seconds"),
        ({"exp": -1}, "exp: expected seconds"),
        ({"exp": 1e300}, "exp: expected seconds"),
        ({"exp": 10**4000}, "exp: expected seconds"),
        ({"exp": NOW_S - 30}, "has ended 30000 ms ago"),
        ({"iat": None}, "iat is missing"),
        ({"iat": [NOW_S]}, "iat: expected seconds"),
        ({"iat": NOW_S + 31}, "issued in 31000 ms"),
        ({"iat": NOW_S + 20, "exp": NOW_S + 20}, "ends before it was issued"),
        ({"nbf": NOW_S + 31}, "begins in 31000 ms"),
        ({"nbf": {}}, "nbf: expected seconds"),
        ({"aud": None}, "aud: expected"),
        ({"aud": 7}, "aud: expected"),
        ({"aud": [["broker"]]}, "aud: expected"),
        ({"aud": "others"}, "for others"),
        ({"aud": []}, "for others"),
        ({"iss": "https://other"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": ["https://idp"]}, "another issuer"),
        ({"sub": None}, "sub: expected a name"),
        ({"sub": " "}, "sub: expected a name"),
        ({"sub": ["alice"]}, "sub: expected a name"),
        ({"sub": "a" * (MOST_NAME_CHARACTERS + 1)}, "characters at most"),
        ({"sub": "alice\nINFO: bob"}, "can be printed"),
    ],
)
def test_a_claim_that_is_not_as_it_must_be(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        holder(SIGNED, {**GOOD, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"exp": NOW_S - 29},
        {"iat": NOW_S + 30},
        {"nbf": NOW_S + 30},
        {"aud": ["others", "broker"]},
        {"scope": 7},
        {"sub": "a" * MOST_NAME_CHARACTERS},
    ],
)
def test_what_is_just_enough(change: dict[str, Any]) -> None:
    assert holder(SIGNED, {**GOOD, **change}).expires_ms > NOW_MS


def test_a_session_by_a_token_that_ended_within_the_skew_is_at_its_end_and_not_without_one() -> None:
    """0 would tell the client that there is no end."""
    assert holder(SIGNED, {**GOOD, "exp": NOW_S - 29}).expires_ms == NOW_MS + 1


def test_an_audience_that_nobody_expects_is_others() -> None:
    """As jose4j, by which Kafka checks: a token that says for whom it is, is for nobody else."""
    rules = replace(SIGNED, audience=frozenset())
    with pytest.raises(TokenError, match="for others"):
        holder(rules, GOOD)
    claims = {name: value for name, value in GOOD.items() if name != "aud"}
    assert holder(rules, claims).name == "alice"


def test_of_a_token_that_nobody_has_signed_audience_issuer_and_beginning_are_not_asked() -> None:
    claims = {"sub": "alice", "exp": NOW_S + 1, "aud": "others", "iss": "x", "nbf": NOW_S + 99}
    assert holder(UNSECURED, claims).name == "alice"


def test_another_claim_may_have_the_name() -> None:
    rules = replace(UNSECURED, principal_claim="email")
    assert holder(rules, {"email": "a@b", "exp": NOW_S + 1}).name == "a@b"


@pytest.mark.parametrize("scope", ["a b", ["b", "a", 7], "b  a c"])
def test_a_scope_that_is_enough(scope: Any) -> None:
    rules = replace(UNSECURED, required_scope=("a", "b"), scope_claim="scp")
    assert holder(rules, {"sub": "alice", "exp": NOW_S + 1, "scp": scope}).name == "alice"


@pytest.mark.parametrize("scope", ["a", "ab", ["a b"], None, 7, {"a": 1, "b": 1}])
def test_a_scope_that_is_not_is_told_as_such(scope: Any) -> None:
    rules = replace(UNSECURED, required_scope=("a", "b"))
    with pytest.raises(TokenError) as caught:
        holder(rules, {"sub": "alice", "exp": NOW_S + 1, "scope": scope})
    assert (caught.value.status, caught.value.scope) == (INSUFFICIENT_SCOPE, "a b")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(("sub", "exp", "iat", "nbf", "aud", "iss", "scope")), JSON), st.booleans())
def test_any_claims_are_a_holder_or_a_refusal(claims: dict[str, Any], signed: bool) -> None:
    rules = replace(SIGNED if signed else UNSECURED, required_scope=("a",))
    try:
        found = rules.holder(json.loads(json.dumps(claims)), NOW_MS)
    except TokenError:
        return
    assert found.expires_ms > NOW_MS and found.name.strip()
