"""security/token_keys.py: whose keys are taken, and which signatures are theirs."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from holdfast.model.errors import ConfigError
from holdfast.security.bearer_token import TokenError, parse_token
from holdfast.security.token_keys import ALGORITHMS, MOST_KEY_SET_BYTES, MOST_KEYS, TokenKeys, UnknownKeyError
from tests.token_signing import Signer, packed, packed_json, packed_number, rsa_key, unsecured

CLAIMS = {"sub": "alice"}


def key_set(*keys: Any) -> TokenKeys:
    return TokenKeys.parse(json.dumps({"keys": list(keys)}).encode())


def check(keys: TokenKeys, text: str) -> None:
    keys.check(parse_token(text))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_checked(algorithm: str) -> None:
    signer = Signer.ec() if algorithm == "ES256" else Signer.rsa()
    keys = key_set(signer.jwk)
    check(keys, signer.token(CLAIMS, alg=algorithm))
    head, _, signature = signer.token(CLAIMS, alg=algorithm).rpartition(".")
    forged = f"{head.partition('.')[0]}.{packed_json({'sub': 'admin'})}.{signature}"
    for bad in (forged, f"{head}.", f"{head}.{packed(b'x' * 64)}", f"{head}.{packed(bytes(64))}"):
        with pytest.raises(TokenError, match="signature is wrong"):
            check(keys, bad)


def test_the_example_of_rfc_7515_is_checked() -> None:
    """Its appendix A.3: ES256."""
    keys = key_set(
        {
            "kty": "EC",
            "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        }
    )
    text = (
        "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0"
        "cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    )
    check(keys, text)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "ES512", "EdDSA", "rs256", ""])
def test_other_algorithms_are_refused_before_a_key_is_looked_for(algorithm: str) -> None:
    """With HS256 a public key would be taken for the secret."""
    with pytest.raises(TokenError, match="algorithm: expected"):
        check(key_set(Signer.ec().jwk), unsecured(CLAIMS, alg=algorithm))


def test_a_key_is_for_one_kind_of_algorithm() -> None:
    signer = Signer.ec()
    head, _, _ = signer.token(CLAIMS, alg="ES256").partition(".")
    with pytest.raises(TokenError, match="0 keys"):
        check(key_set(signer.jwk), f"{packed_json({'alg': 'RS256', 'kid': 'k1'})}.{packed_json(CLAIMS)}.{packed(b'x')}")
    limited = key_set({**Signer.rsa().jwk, "alg": "RS512"})
    check(limited, Signer.rsa().token(CLAIMS, alg="RS512"))
    with pytest.raises(TokenError, match="0 keys"):
        check(limited, Signer.rsa().token(CLAIMS, alg="RS256"))
    assert head


def test_where_a_header_says_its_key_is_does_not_matter() -> None:
    own, forger = Signer.ec(), Signer.ec()
    for header in ({"jwk": forger.jwk}, {"jku": "https://evil/jwks"}, {"x5u": "https://evil/x"}):
        with pytest.raises(TokenError, match="signature is wrong"):
            check(key_set(own.jwk), forger.token(CLAIMS, **header))


def test_a_key_that_is_not_known_is_an_error_of_its_own() -> None:
    with pytest.raises(UnknownKeyError):
        check(key_set(Signer.ec("k1").jwk), Signer.ec("k2").token(CLAIMS))


@pytest.mark.parametrize("kid", [7, ["k1"], "k" * 1001])
def test_a_name_of_a_key_that_cannot_be_one_is_not_asked_for(kid: Any) -> None:
    with pytest.raises(TokenError, match="kid") as caught:
        check(key_set(Signer.ec().jwk), Signer.ec().token(CLAIMS, kid=kid))
    assert not isinstance(caught.value, UnknownKeyError)


def test_a_token_that_names_no_key_is_of_the_only_one_that_fits() -> None:
    one, other, third = Signer.ec(None), Signer.rsa(None), Signer.ec("k3")
    check(key_set(one.jwk, other.jwk), one.token(CLAIMS))
    with pytest.raises(TokenError, match="2 keys could"):
        check(key_set(one.jwk, third.jwk), one.token(CLAIMS))


def test_keys_for_other_things_are_left_out() -> None:
    signer = Signer.ec()
    others = [
        {**signer.jwk, "use": "enc"},
        {**signer.jwk, "key_ops": ["sign"]},
        {**signer.jwk, "kid": 7},
        {**signer.jwk, "crv": "P-521"},
        {**signer.jwk, "alg": "ES384"},
        {**signer.jwk, "x": signer.jwk["y"]},
        {**signer.jwk, "x": "no base64url!"},
        {**signer.jwk, "y": 7},
        {**Signer.rsa().jwk, "e": packed_number(2**40 + 1)},
        {**Signer.rsa().jwk, "e": packed_number(2)},
        {**Signer.rsa().jwk, "n": packed_number(rsa_key().public_key().public_numbers().n >> 100)},
        {**Signer.rsa().jwk, "n": packed_number(1 << 5000)},
        {"kty": "oct", "k": packed(b"secret")},
        "a key",
        {},
    ]
    keys = key_set(*others, {**signer.jwk, "key_ops": ["verify"]})
    assert len(keys) == 1
    check(keys, signer.token(CLAIMS))
    with pytest.raises(ValueError, match="one key at least"):
        key_set(*others)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "Expecting value"),
        (b"[]", "expected a JWKS"),
        (b'{"keys":{}}', "expected a JWKS"),
        (b'{"keys":[]}', "one key at least"),
        (b'{"keys":[' + b"{}," * MOST_KEYS + b"{}]}", f"{MOST_KEYS} at most"),
        (b" " * (MOST_KEY_SET_BYTES + 1), "more than"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_key_set_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TokenKeys.parse(text)


@pytest.mark.parametrize("signer", [Signer.ec, Signer.rsa])
def test_without_the_extra_it_says_which_one_is_missing(signer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = signer().jwks
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"holdfast\[oauth\]"):
        TokenKeys.parse(text)
