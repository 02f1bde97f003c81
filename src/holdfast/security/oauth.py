"""OAUTHBEARER, the broker's side (RFC 7628, KIP-255): one login by a token.

    WAITING --a token that is enough--> OVER        the principal is proved
    WAITING --one that is not--> DENIED             the client is told why, in JSON, and has the word once more
    DENIED  --whatever it says--> OVER              refused
    WAITING --another form--> OVER                  refused

Owns the order and the messages. Who holds a token is a function's word (``TokenJudge``). What a client tells beside the
token (KIP-342) is looked at for its form and forgotten: nothing here goes by it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from holdfast.model.transitions import Transitions
from holdfast.security.bearer_token import TokenError, TokenHolder
from holdfast.security.principal import Principal
from holdfast.security.sasl_mechanism import Challenge, Proved, Refused, SaslStep

OAUTHBEARER: Final = "OAUTHBEARER"
MOST_MESSAGE_BYTES: Final = 128 << 10
MOST_PAIRS: Final = 32
TokenJudge: TypeAlias = Callable[[str, int], TokenHolder]
"""(token, now_ms) -> who holds it. TokenError: it is not enough."""
_HEADER: Final = re.compile(rb"n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,")
_NAME: Final = re.compile(rb"[A-Za-z]+")
_VALUE: Final = re.compile(rb"[\x21-\x7e \t\r\n]+")
_AUTH: Final = re.compile(rb"(\w+) +([-_~+/.a-zA-Z0-9]+=*)")


class BearerState(Enum):
    """Where a login is."""

    WAITING = "waiting"
    DENIED = "denied"
    OVER = "over"


class BearerEvent(Enum):
    """What brings it on."""

    ENOUGH = "a token that is enough"
    NOT_ENOUGH = "one that is not"
    MALFORMED = "no message with a token"
    HEARD = "the client has heard it"


BEARER_LOGIN: Final = Transitions(
    starts=(BearerState.WAITING,),
    moves={
        (BearerState.WAITING, BearerEvent.ENOUGH): BearerState.OVER,
        (BearerState.WAITING, BearerEvent.NOT_ENOUGH): BearerState.DENIED,
        (BearerState.WAITING, BearerEvent.MALFORMED): BearerState.OVER,
        (BearerState.DENIED, BearerEvent.HEARD): BearerState.OVER,
    },
)


class BearerMessage(NamedTuple):
    """What a client says first. ``authorization_id``: as whom it wants to act, empty for the token's holder."""

    token: str
    authorization_id: str


def parse_bearer(message: bytes) -> BearerMessage:
    """Of a client's first message. TokenError: it has another form."""
    if len(message) > MOST_MESSAGE_BYTES:
        raise TokenError(f"a first message of {len(message)} bytes: expected {MOST_MESSAGE_BYTES} at most")
    if message.count(b"\x01") > MOST_PAIRS + 2:
        raise TokenError(f"the first message has more than {MOST_PAIRS} pairs")
    header, *pairs = message.split(b"\x01")
    found = _HEADER.fullmatch(header)
    if found is None:
        raise TokenError("the first message does not begin with n,, or n,a=USER, (RFC 7628, 3.1)")
    if len(pairs) < 3 or pairs[-2:] != [b"", b""]:
        raise TokenError("the first message does not end with two bytes 1 (RFC 7628, 3.1)")
    auth = None
    for pair in pairs[:-2]:
        name, equals, value = pair.partition(b"=")
        if not equals or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise TokenError("the first message has a pair of another form than NAME=VALUE")
        if name == b"auth":
            if auth is not None:
                raise TokenError("the first message has auth twice")
            auth = value
    scheme = None if auth is None else _AUTH.fullmatch(auth)
    if scheme is None or scheme[1].lower() != b"bearer":
        raise TokenError("the first message has no auth=Bearer TOKEN")
    name = (found[1] or b"").replace(b"=2C", b",").replace(b"=3D", b"=")
    return BearerMessage(token=scheme[2].decode(), authorization_id=name.decode())


class BearerLogin:
    """One login: a SaslMechanism."""

    def __init__(self, judge: TokenJudge) -> None:
        self._judge = judge
        self._state = BearerState.WAITING
        self._reason, self._told = "", ""
        """Why the token is not enough: for the broker's log, and for the client."""

    @property
    def state(self) -> BearerState:
        return self._state

    def answer(self, token: bytes, now_ms: int) -> SaslStep:
        """What the client is told next. Not asked again after Proved or Refused."""
        if self._state is BearerState.DENIED:
            self._after(BearerEvent.HEARD)
            return Refused(self._reason, self._told)
        try:
            message = parse_bearer(token)
        except TokenError as error:
            self._after(BearerEvent.MALFORMED)
            return Refused(str(error))
        try:
            holder = self._judge(message.token, now_ms)
        except TokenError as error:
            self._after(BearerEvent.NOT_ENOUGH)
            self._reason = str(error)
            told = {"status": error.status} | ({} if error.scope is None else {"scope": error.scope})
            self._told = json.dumps(told, separators=(", ", ":"))
            return Challenge(self._told.encode())
        if message.authorization_id not in ("", holder.name):
            self._after(BearerEvent.MALFORMED)
            return Refused("the client wants to act as somebody else than the token's holder")
        self._after(BearerEvent.ENOUGH)
        return Proved(b"", Principal.user(holder.name), holder.expires_ms)

    def _after(self, event: BearerEvent) -> None:
        self._state = BEARER_LOGIN.after(self._state, event)
