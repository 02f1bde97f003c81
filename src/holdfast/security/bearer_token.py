"""Tokens of OAUTHBEARER: what a JSON Web Token says in its compact form (RFC 7515, 7519), and whether that is enough.

    text --parse_token--> BearerToken --whether somebody signed it (token_keys.py)--> --ClaimRules.holder--> who speaks

Deciding code: the time is a parameter. What a header says about where keys are (``jku``, ``x5u``, ``jwk``) is never
looked at. No part of a token gets into the text of an error: those go to the broker's log.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

MOST_TOKEN_BYTES: Final = 64 << 10
MOST_HEADER_BYTES: Final = 4 << 10
MOST_NAME_CHARACTERS: Final = 1000
INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
_PART: Final = re.compile(r"[A-Za-z0-9_-]*")
_LATEST_S: Final = 1 << 43
"""More seconds than a number of 64 bits has milliseconds for."""


class TokenError(ValueError):
    """A token is not enough. The text is for the broker's log; ``status`` and ``scope`` are what the client is told
    (RFC 6750, 3.1)."""

    def __init__(self, reason: str, *, status: str = INVALID_TOKEN, scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerToken:
    """``signed``: the text that the signature is of. Claims are read when they are asked for: not before it is known
    who has signed them, as a stranger's 60 KiB of JSON take milliseconds."""

    header: Mapping[str, Any]
    signed: bytes
    signature: bytes

    @property
    def claims(self) -> Mapping[str, Any]:
        """TokenError: they have another form."""
        return _object(self.signed.partition(b".")[2].decode(), "claims")

    @property
    def algorithm(self) -> str:
        """As the header names it. TokenError: it names none."""
        name = self.header.get("alg")
        if not isinstance(name, str):
            raise TokenError("the token's header names no algorithm")
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHolder:
    """Who speaks by a token, and when it ends: milliseconds since 1970."""

    name: str
    expires_ms: int


def parse_token(text: str) -> BearerToken:
    """A token in its three parts, of which the claims are still to be read. TokenError: it has another form."""
    if len(text) > MOST_TOKEN_BYTES:
        raise TokenError(f"a token of {len(text)} bytes: expected {MOST_TOKEN_BYTES} at most")
    parts = text.split(".")
    if len(parts) != 3:
        raise TokenError(f"a token of {len(parts)} parts: expected three (RFC 7515, 3.1)")
    if len(parts[0]) > MOST_HEADER_BYTES:
        raise TokenError(f"the token's header has {len(parts[0])} bytes: expected {MOST_HEADER_BYTES} at most")
    header = _object(parts[0], "header")
    if "crit" in header:
        raise TokenError("the token's header asks for extensions (crit), of which there are none")
    return BearerToken(
        header=header,
        signed=f"{parts[0]}.{parts[1]}".encode(errors="replace"),
        signature=_bytes(parts[2], "signature"),
    )


def refuse_signed(token: BearerToken) -> None:
    """TokenError: it is not one that nobody has signed (RFC 7519, 6)."""
    if token.algorithm != "none":
        raise TokenError("a token with a signature where none can be checked: expected alg none")
    if token.signature:
        raise TokenError("a token of alg none with a signature")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """What the claims of a token must be, as Kafka's validators ask.

    ``is_signed``: a provider has made it, so it says when (``iat``) and, if it says for whom (``aud``), for one of
    ``audience``. Clocks may differ by ``skew_ms``.
    """

    is_signed: bool
    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    audience: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_ms: int = 0

    def holder(self, claims: Mapping[str, Any], now_ms: int) -> TokenHolder:
        """Who speaks. TokenError says which claim is not as it must be."""
        expires_ms = self._times(claims, now_ms)
        if self.is_signed:
            self._for_us(claims)
        name = claims.get(self.principal_claim)
        if not isinstance(name, str) or not name.strip():
            raise TokenError(f"the token's claim {self.principal_claim}: expected a name")
        name = name.strip()
        if len(name) > MOST_NAME_CHARACTERS or not name.isprintable():
            raise TokenError(
                f"the token's claim {self.principal_claim}: expected {MOST_NAME_CHARACTERS} characters at most, each "
                "of which can be printed"
            )
        self._scope(claims)
        # One that has ended within the skew is good for one login, and its session is at once at its end.
        return TokenHolder(name=name, expires_ms=max(expires_ms, now_ms + 1))

    def _times(self, claims: Mapping[str, Any], now_ms: int) -> int:
        expires_ms = _time_ms(claims, "exp")
        if expires_ms is None:
            raise TokenError("the token's claim exp is missing: expected when it ends")
        if expires_ms + self.skew_ms <= now_ms:
            raise TokenError(f"the token has ended {now_ms - expires_ms} ms ago (exp)")
        issued_ms = _time_ms(claims, "iat")
        if issued_ms is None:
            if self.is_signed:
                raise TokenError("the token's claim iat is missing: expected when it was issued")
        elif issued_ms > now_ms + self.skew_ms:
            raise TokenError(f"the token is issued in {issued_ms - now_ms} ms (iat)")
        elif issued_ms >= expires_ms:
            raise TokenError("the token ends before it was issued (iat, exp)")
        begins_ms = _time_ms(claims, "nbf") if self.is_signed else None
        if begins_ms is not None and begins_ms > now_ms + self.skew_ms:
            raise TokenError(f"the token begins in {begins_ms - now_ms} ms (nbf)")
        return expires_ms

    def _for_us(self, claims: Mapping[str, Any]) -> None:
        said = claims.get("aud", ())
        audience = (said,) if isinstance(said, str) else said
        if not isinstance(audience, list | tuple) or not all(isinstance(each, str) for each in audience):
            raise TokenError("the token's claim aud: expected a string or a list of them")
        if (audience or self.audience) and self.audience.isdisjoint(audience):
            raise TokenError("the token is for others (aud): expected one of sasl.oauthbearer.expected.audience")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise TokenError("the token is of another issuer (iss): expected that of sasl.oauthbearer.expected.issuer")

    def _scope(self, claims: Mapping[str, Any]) -> None:
        if not self.required_scope:
            return
        said = claims.get(self.scope_claim, "")
        words = said.split() if isinstance(said, str) else said
        has = {word for word in words if isinstance(word, str)} if isinstance(words, list) else set()
        if not has.issuperset(self.required_scope):
            wanted = " ".join(self.required_scope)
            raise TokenError(
                f"the token's claim {self.scope_claim}: expected {wanted} in it",
                status=INSUFFICIENT_SCOPE,
                scope=wanted,
            )


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """A claim in seconds, which may have a fraction; None: it is not there."""
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _LATEST_S:
        raise TokenError(f"the token's claim {name}: expected seconds since 1970")
    return math.floor(value * 1000)


def _bytes(part: str, what: str) -> bytes:
    if not _PART.fullmatch(part) or len(part) % 4 == 1:
        raise TokenError(f"the token's {what} is no base64url without padding")
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _object(part: str, what: str) -> Mapping[str, Any]:
    try:
        found = read_json(_bytes(part, what))
    except TokenError:
        raise
    except ValueError:
        raise TokenError(f"the token's {what}: expected JSON, each name once") from None
    if not isinstance(found, dict):
        raise TokenError(f"the token's {what}: expected an object of JSON")
    return found


def read_json(data: bytes) -> Any:
    """JSON as RFC 8259 has it, without names that are twice in an object, of which readers see this one or that.
    ValueError: it is none, or nested without end."""
    try:
        return json.loads(data.decode(), object_pairs_hook=_each_once, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is twice in an object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
