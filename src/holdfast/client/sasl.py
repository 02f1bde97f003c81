"""Logging in at a broker: SaslHandshake, then SaslAuthenticate until both sides are content (KIP-43, KIP-152, KIP-368).

Owns the order and the words of it, not the connection: ``log_in`` is a generator that yields requests and is sent the
bodies of their answers, for a client with an event loop and for one without. Never in a text: a password or a token.
"""

import json
import secrets
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from holdfast.client.errors import AuthenticationError, BrokerUnreachable
from holdfast.client.oauth import TokenEndpoint, UnsecuredToken
from holdfast.model.errors import UnsupportedVersionError
from holdfast.protocol.error_words import words_of
from holdfast.protocol.sasl_codec import (
    AUTHENTICATE,
    AUTHENTICATE_VERSIONS,
    HANDSHAKE,
    HANDSHAKE_VERSION,
    decode_authenticate,
    decode_handshake,
    encode_authenticate,
    encode_handshake,
)
from holdfast.protocol.scram import ScramClient, ScramError

RENEW_AT: Final = 0.85
"""The part of a session after which the client logs in again; Kafka's clients do at 0.85 to 0.95 of it."""
ILLEGAL_SASL_STATE: Final = 34
BROKER_NOT_AVAILABLE: Final = 8
"""What the port of a broker that was killed a moment ago answers a controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """``mechanism``: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 with user and password; OAUTHBEARER with a token."""

    mechanism: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: TokenEndpoint | UnsecuredToken | None = None
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """What OAUTHBEARER tells beside the token (KIP-342): name and value."""


class SaslRequest(NamedTuple):
    """What to ask the broker, by ``request_raw``."""

    api_key: int
    version: int
    body: bytes

    @property
    def flexible(self) -> bool:
        """Whether the headers of request and answer have tagged fields."""
        return self.api_key == AUTHENTICATE and self.version >= AUTHENTICATE_VERSIONS[1]


LogIn: TypeAlias = Generator[SaslRequest, memoryview, float | None]


def authenticate_version(latest: int | None, address: str) -> int:
    """The version of SaslAuthenticate to speak with a broker that takes it up to ``latest``."""
    oldest, newest = AUTHENTICATE_VERSIONS
    if latest is None:
        raise AuthenticationError(
            f"broker {address} has no SASL: expected security.protocol=PLAINTEXT or SSL for this listener"
        )
    if latest < oldest:
        raise UnsupportedVersionError(
            f"broker {address} takes SaslAuthenticate up to version {latest}, expected {oldest} at least (Apache Kafka "
            "2.2 and newer)"
        )
    return min(latest, newest)


def log_in(sasl: SaslSettings, address: str, version: int, token: str | None) -> LogIn:
    """Returns after how many seconds to log in again on this connection, None if never. ``token``: for OAUTHBEARER.

    AuthenticationError names broker and mechanism, and what was expected. BrokerUnreachable, refused: what listens
    there says that its broker was killed.
    """
    where = f"broker {address}, mechanism {sasl.mechanism}"
    body = yield SaslRequest(HANDSHAKE, HANDSHAKE_VERSION, encode_handshake(sasl.mechanism))
    code, mechanisms = decode_handshake(body)
    if code == BROKER_NOT_AVAILABLE:
        raise BrokerUnreachable(address, refused=True, reason="its broker was killed")
    if code == ILLEGAL_SASL_STATE:
        raise AuthenticationError(f"{where}: this listener has no SASL, expected security.protocol=PLAINTEXT or SSL")
    if code:
        there = " or ".join(sorted(mechanisms)) or "another one"
        raise AuthenticationError(f"{where}: it is not enabled there, expected {there} in sasl.mechanism")
    steps = _steps(sasl, where, token)
    message = next(steps)
    while True:
        body = yield SaslRequest(AUTHENTICATE, version, encode_authenticate(version, message))
        answer = decode_authenticate(version, body)
        if answer.error_code:
            expected = "a token that it takes" if sasl.token is not None else "a user and a password that it knows"
            reason = answer.message or words_of(answer.error_code).rstrip(".")
            raise AuthenticationError(
                f"{where}: the login is refused ({reason}), expected {expected} in sasl.jaas.config"
            )
        try:
            message = steps.send(answer.data)
        except StopIteration:
            return answer.lifetime_ms / 1000 * RENEW_AT if answer.lifetime_ms > 0 else None


def _steps(sasl: SaslSettings, where: str, token: str | None) -> Generator[bytes, bytes, None]:
    """Yields what the mechanism says, is sent what the broker answers."""
    user, password = sasl.user or "", sasl.password or ""
    if sasl.mechanism == "PLAIN":
        yield b"\0" + user.encode() + b"\0" + password.encode()
    elif sasl.mechanism == "OAUTHBEARER":
        parts = ["n,,", f"auth=Bearer {token}", *(f"{name}={value}" for name, value in sasl.extensions), "", ""]
        refusal = yield "\x01".join(parts).encode()
        if refusal:
            yield b"\x01"  # the broker's turn to say so with an error (RFC 7628)
            raise AuthenticationError(f"{where}: the token is refused ({_status(refusal)})")
    else:
        client = ScramClient(sasl.mechanism, user, password, secrets.token_urlsafe(24))
        try:
            challenge = yield client.first()
            client.check((yield client.final(challenge)))
        except ScramError as error:
            raise AuthenticationError(f"{where}: {error}") from None


def _status(refusal: bytes) -> str:
    try:
        return str(json.loads(refusal)["status"])[:100]
    except (ValueError, KeyError, TypeError):
        return "no reason is given"
