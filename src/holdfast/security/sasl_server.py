"""One connection's logins on a broker's side: SaslHandshake, then tokens, and the same again before the login ends.

    nobody --handshake--> asked --token proves--> known --handshake--> asked again --token proves--> known
                          asked --token is refused--> refused; so does any other request (KIP-43, KIP-152, KIP-368)

Deciding code; the gate (broker/gate.py) says it on the wire. Who logs in again must be who was there, by the same
mechanism. A login that fails ends the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.model.shown import cut, shown
from holdfast.model.transitions import Transitions
from holdfast.security.principal import ANONYMOUS, Principal
from holdfast.security.sasl_mechanism import Challenge, Proved, Refused, SaslMechanism

LEAST_BETWEEN_MS: Final = 1000
"""Between two logins of a connection: a client that logs in all the time costs others the loop. Ours; Kafka has none.
Less where logins end sooner."""
SASL_FAILED_TEXT: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
)


class LoginState(Enum):
    """What a connection has proved."""

    NOBODY = "nobody"
    ASKED = "asked"
    KNOWN = "known"
    ASKED_AGAIN = "asked again"
    REFUSED = "refused"


class LoginEvent(Enum):
    """What the client does."""

    HANDSHAKE = "a mechanism is chosen"
    PROVED = "a token proves who it is"
    REFUSED = "a token, or a mechanism, is refused"


LOGIN: Final = Transitions(
    starts=(LoginState.NOBODY,),
    moves={
        (LoginState.NOBODY, LoginEvent.HANDSHAKE): LoginState.ASKED,
        (LoginState.NOBODY, LoginEvent.REFUSED): LoginState.REFUSED,
        (LoginState.ASKED, LoginEvent.PROVED): LoginState.KNOWN,
        (LoginState.ASKED, LoginEvent.REFUSED): LoginState.REFUSED,
        (LoginState.KNOWN, LoginEvent.HANDSHAKE): LoginState.ASKED_AGAIN,
        (LoginState.KNOWN, LoginEvent.REFUSED): LoginState.REFUSED,
        (LoginState.ASKED_AGAIN, LoginEvent.PROVED): LoginState.KNOWN,
        (LoginState.ASKED_AGAIN, LoginEvent.REFUSED): LoginState.REFUSED,
    },
)


@dataclass(frozen=True, slots=True)
class SaslListener:
    """What one listener takes: how a login by each mechanism begins, and how long it counts, 0: it does not end."""

    mechanisms: Mapping[str, Callable[[], SaslMechanism]]
    lifetimes_ms: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """As the answer to a mechanism that is not there lists them."""
        return tuple(sorted(self.mechanisms))


@dataclass(frozen=True, slots=True)
class Said:
    """What a token is answered. ``refusal``: why not, for the log; ``message``: for the client."""

    token: bytes = b""
    lifetime_ms: int = 0
    refusal: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class NotTaken:
    """Why a mechanism was not begun."""

    why: str
    is_too_early: bool = False
    """The mechanism is taken, but not so soon after the login before."""

    def __str__(self) -> str:
        return self.why


class SaslServer:
    """See the module's docstring. ``now_ms`` is the wall clock, ``steady_ms`` one that only goes on."""

    __slots__ = ("_began_ms", "_ends_ms", "_lifetime_ms", "_listener", "_login", "_mechanism", "principal", "state")

    def __init__(self, listener: SaslListener) -> None:
        self._listener = listener
        self.state = LoginState.NOBODY
        self.principal: Principal = ANONYMOUS
        self._mechanism: str | None = None
        self._login: SaslMechanism | None = None
        self._lifetime_ms = 0
        self._ends_ms: int | None = None
        self._began_ms: int | None = None
        """When somebody last proved who it is, and when that ends; by the steady clock."""

    @property
    def is_known(self) -> bool:
        """Whether requests are taken, as long as the login counts."""
        return self.state is LoginState.KNOWN

    @property
    def has_logged_in(self) -> bool:
        """Whether what is asked now, or was refused, is to renew a login."""
        return self._began_ms is not None

    @property
    def waits_for_token(self) -> bool:
        """Whether SaslAuthenticate is what comes next, and nothing else."""
        return self.state in (LoginState.ASKED, LoginState.ASKED_AGAIN)

    @property
    def ends_ms(self) -> int | None:
        """When the login ends, by the steady clock; None: it does not."""
        return self._ends_ms

    def has_ended(self, steady_ms: int) -> bool:
        """Whether the login counts no more."""
        return self._ends_ms is not None and steady_ms >= self._ends_ms

    def handshake(self, mechanism: str, steady_ms: int) -> NotTaken | None:
        """A mechanism is chosen. None: its tokens come next; else why not, and the connection is to end."""
        begin = self._listener.mechanisms.get(mechanism)
        if begin is None:
            self._refuse()
            known = ", ".join(self._listener.names)
            return NotTaken(f"mechanism {shown(mechanism, 40)} is not enabled, expected {known}")
        if self._began_ms is not None:
            if mechanism != self._mechanism:
                self._refuse()
                return NotTaken(f"mechanism {mechanism} after {self._mechanism}: a connection keeps its own")
            least_ms = LEAST_BETWEEN_MS if self._lifetime_ms <= 0 else min(LEAST_BETWEEN_MS, self._lifetime_ms // 2)
            if steady_ms - self._began_ms < least_ms:
                self._refuse()
                passed_ms = steady_ms - self._began_ms
                return NotTaken(
                    f"a login {passed_ms} ms after the last one, expected {least_ms} between them", is_too_early=True
                )
        self.state = LOGIN.after(self.state, LoginEvent.HANDSHAKE)
        self._mechanism, self._login = mechanism, begin()
        return None

    def token(self, token: bytes, now_ms: int, steady_ms: int) -> Said:
        """What the client says to prove who it is. AssertionError: it has chosen no mechanism."""
        login, mechanism = self._login, self._mechanism
        assert login is not None and mechanism is not None, "a mechanism was chosen"
        step = login.answer(token, now_ms)
        if isinstance(step, Challenge):
            return Said(step.token)
        if isinstance(step, Refused):
            return self._failed(step.reason, step.told)
        if self._began_ms is not None and step.principal != self.principal:
            return self._failed(f"{cut(str(step.principal))} logs in on the connection of {cut(str(self.principal))}")
        return self._proved(step, mechanism, now_ms, steady_ms)

    def _proved(self, step: Proved, mechanism: str, now_ms: int, steady_ms: int) -> Said:
        lifetimes = []
        if (most_ms := self._listener.lifetimes_ms.get(mechanism, 0)) > 0:
            lifetimes.append(most_ms)
        if step.expires_ms is not None:
            if step.expires_ms <= now_ms:
                return self._failed(f"what proves {cut(str(step.principal))} has ended")
            lifetimes.append(step.expires_ms - now_ms)
        self.state = LOGIN.after(self.state, LoginEvent.PROVED)
        self._login = None
        self.principal = step.principal
        self._began_ms, self._lifetime_ms = steady_ms, min(lifetimes, default=0)
        self._ends_ms = steady_ms + self._lifetime_ms if lifetimes else None
        return Said(step.token, self._lifetime_ms)

    def _failed(self, reason: str, told: str | None = None) -> Said:
        self._refuse()
        return Said(refusal=f"{self._mechanism}: {reason}", message=told or SASL_FAILED_TEXT.format(self._mechanism))

    def _refuse(self) -> None:
        self.state = LOGIN.after(self.state, LoginEvent.REFUSED)
        self._login = None
