"""Readers of OAUTHBEARER: what a client says, its token, and the keys that a provider publishes."""

import base64
import json
from typing import Any

from tests.fuzz.reader import Reader, Run

_NOW_MS = 1_700_000_000_000
_CLAIMS = {"sub": "alice", "aud": ["broker"], "iss": "https://idp", "iat": 1_699_999_990, "exp": 1_700_000_600}
_WORDS = (
    b".", b"..", b"=", b"eyJhbGciOiJub25lIn0", b'"alg"', b'"none"', b'"kid"', b'"sub"', b'"exp"', b'"iat"', b'"aud"',
    b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"1e999", b"-1", b"NaN", b"9" * 400, b"\\u0000",
    b"\xff", b"[" * 60,
)  # fmt: skip


def _packed(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _make_login() -> Run:
    """Whatever a client says first and then, it is somebody by a token that is enough, told why not, or refused."""
    from holdfast.security.bearer_token import ClaimRules, TokenHolder, parse_token, refuse_signed
    from holdfast.security.oauth import BearerLogin
    from holdfast.security.sasl_mechanism import Challenge, Proved, Refused

    rules = ClaimRules(is_signed=False, required_scope=(), skew_ms=30_000)

    def judge(text: str, now_ms: int) -> TokenHolder:
        token = parse_token(text)
        refuse_signed(token)
        return rules.holder(token.claims, now_ms)

    def run(data: bytes) -> Any:
        login = BearerLogin(judge)
        step = login.answer(data, _NOW_MS)
        if isinstance(step, Challenge):
            assert json.loads(step.token)["status"] == "invalid_token"
            assert isinstance(login.answer(data, _NOW_MS), Refused)
        elif isinstance(step, Proved):
            assert step.expires_ms is not None and step.expires_ms > _NOW_MS and step.principal.name.isprintable()
        return type(step).__name__

    return run


def _login_corpus() -> list[bytes]:
    token = f"{_packed({'alg': 'none'})}.{_packed(_CLAIMS)}."
    heads = ("n,,", "n,a=alice,", "n,a=a=2Cb=3D,", "y,,")
    return [
        *(f"{head}\x01auth=Bearer {token}\x01\x01".encode() for head in heads),
        f"n,,\x01auth=bearer {token}\x01traceId=1\x01x=a=b\x01\x01".encode(),
        f"n,,\x01auth=Bearer {_packed({'alg': 'none'})}.{_packed({'sub': 'a'})}.\x01\x01".encode(),
        b"\x01",
    ]


def _make_token() -> Run:
    """The parts of a token are JSON or a refusal, and its claims (odd first byte: by the rules of signed ones) are a
    holder or a refusal. Nothing of it is in the text of one."""
    from holdfast.security.bearer_token import ClaimRules, TokenError, parse_token

    signed = ClaimRules(is_signed=True, audience=frozenset(("broker",)), issuer="https://idp", skew_ms=30_000)
    plain = ClaimRules(is_signed=False, required_scope=("a",))

    def run(data: bytes) -> Any:
        if not data:
            return None
        if data[0] & 2:  # the claims as they are, which no fault of base64 hides
            middle = base64.urlsafe_b64encode(data[1:]).rstrip(b"=")
            text = f"{_packed({'alg': 'none'})}.{middle.decode()}."
        else:
            text = data[1:].decode(errors="replace")
        claims = parse_token(text).claims
        try:
            found = (signed if data[0] & 1 else plain).holder(claims, _NOW_MS)
        except TokenError as error:
            assert len(str(error)) < 200
            raise
        assert found.expires_ms > _NOW_MS
        return True

    return run


def _token_corpus() -> list[bytes]:
    claims = [
        _CLAIMS,
        {"sub": "bob", "exp": 1_700_000_001.5, "scope": "a b"},
        {"sub": "bob", "exp": 1_700_000_001, "nbf": 1, "scope": ["a"]},
    ]
    whole = [f"{_packed({'alg': 'RS256', 'kid': 'k'})}.{_packed(each)}.c2ln".encode() for each in claims]
    bare = [json.dumps(each).encode() for each in claims]
    return [bytes((kind,)) + text for kind in (0, 1) for text in whole] + [
        bytes((kind,)) + text for kind in (2, 3) for text in bare
    ]


def _make_key_set() -> Run:
    """A JWKS is keys, by which a token is signed or not, or a ValueError."""
    from holdfast.security.bearer_token import TokenError, parse_token
    from holdfast.security.token_keys import ALGORITHMS, TokenKeys

    tokens = [
        parse_token(f"{_packed(header)}.{_packed(_CLAIMS)}.{'A' * 86}")
        for algorithm in (*ALGORITHMS, "HS256")
        for header in ({"alg": algorithm}, {"alg": algorithm, "kid": "k1"})
    ]

    def run(data: bytes) -> Any:
        keys = TokenKeys.parse(data)
        for token in tokens:
            try:
                keys.check(token)
            except TokenError:
                continue
            raise AssertionError("a signature of zeros is a key's")
        return len(keys) & 3

    return run


def _key_set_corpus() -> list[bytes]:
    point = {
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    }
    rsa = {"kty": "RSA", "e": "AQAB", "n": "_" * 342, "use": "sig", "alg": "RS256"}
    sets = ([point], [{**point, "kid": "k1"}, rsa], [{**rsa, "kid": "k1", "key_ops": ["verify"]}])
    return [json.dumps({"keys": each}).encode() for each in sets]


READERS = (
    Reader(
        name="bearer-logins",
        reads="what a client says in a login by OAUTHBEARER",
        make=_make_login,
        corpus=_login_corpus,
        refusals=(),
        tokens=(b"n,,", b"a=", b"=2C", b"=3D", b"\x01", b"\x01\x01", b"auth=", b"Bearer ", *_WORDS),
        max_size=600,
    ),
    Reader(
        name="tokens",
        reads="JSON Web Tokens and their claims",
        make=_make_token,
        corpus=_token_corpus,
        refusals=(ValueError,),
        kinds=4,
        prefix=1,
        tokens=_WORDS,
        max_size=600,
    ),
    Reader(
        name="key-sets",
        reads="a provider's keys (JWKS)",
        make=_make_key_set,
        corpus=_key_set_corpus,
        refusals=(ValueError,),
        tokens=(b'"kty"', b'"RSA"', b'"EC"', b'"use"', b'"sig"', b'"key_ops"', b'"crv"', b'"n"', b'"e"', *_WORDS),
        max_size=1200,
        memory_base=128 << 10,
    ),
)
