"""Who may ask at all: the gate before everything that a request meets.

    has nobody logged in > has the login ended > how far is the start (admission.py) > what is asked (dispatch.py)

Where a listener has SASL, a connection that has not logged in may ask for ApiVersions, choose a mechanism and say its
tokens; bodies of other requests are never read, and close it (KIP-43, KIP-152). A login that ends is renewed on its
connection (KIP-368); one that has ended is good for nothing but that. Logins are taken in every stage of a start, as
brokers log in at each other before they know anything.

A login that fails is answered late, and its connection closed then, so that guessing is slow. One timer answers all
that are due together: ten thousand guesses are not ten thousand timers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.broker.bearer import BearerMechanisms
from holdfast.broker.bounded_lines import BoundedLines
from holdfast.broker.sasl_listeners import sasl_listeners
from holdfast.model.config_sasl_keys import FAILURE_DELAY
from holdfast.model.errors import HoldfastError
from holdfast.protocol.apis import SPOKEN, ApiKey
from holdfast.protocol.framing import SIZE, encode_response_raw
from holdfast.protocol.sasl_codec import (
    read_authenticate,
    read_handshake,
    write_authenticate_answer,
    write_handshake_answer,
)
from holdfast.security.sasl_server import LoginState, Said, SaslListener, SaslServer

if TYPE_CHECKING:
    from holdfast.broker.admission import Admission
    from holdfast.broker.dispatch import Dispatcher
    from holdfast.broker.exchange import Answering, Exchange
    from holdfast.broker.platform import Platform
    from holdfast.broker.user_view import UserView
    from holdfast.model.config import BrokerConfig

log = logging.getLogger(__name__)

_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = (
    int(ApiKey.API_VERSIONS), int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE),
)  # fmt: skip
UNSUPPORTED_MECHANISM: Final = 33
ILLEGAL_STATE: Final = 34
AUTHENTICATION_FAILED: Final = 58
LATE_S: Final = 0.004
"""How much later than asked a failed login may be answered, so that one timer does for many."""
LATE_A_TURN: Final = 1
"""Answers and ends of failed logins in one turn of the loop: others have theirs between them."""
LINES_S: Final = 1.0


@dataclass(slots=True)
class LoginCounts:
    """Logins by one listener since the start."""

    succeeded: int = 0
    failed: int = 0
    renewed: int = 0
    """Of connections that had logged in before (KIP-368)."""
    not_renewed: int = 0


class GateHost(Protocol):
    """The parts of the broker that the gate is made of."""

    admission: Admission
    config: BrokerConfig
    dispatcher: Dispatcher
    platform: Platform
    user_view: UserView

    def now_ms(self) -> int: ...


class Gate:
    """See the module's docstring. ``admit`` takes what may pass, ``dispatch`` what is taken in every stage."""

    def __init__(
        self,
        *,
        listeners: Mapping[str, SaslListener],
        admit: Callable[[Exchange], None],
        dispatch: Callable[[Exchange], None],
        now_ms: Callable[[], int],
        failure_delay_ms: int,
    ) -> None:
        self._listeners = listeners
        self._admit = admit
        self._dispatch = dispatch
        self._now_ms = now_ms
        self._late = _LateAnswers(failure_delay_ms / 1000)
        self._lines = BoundedLines(log, "logins failed")
        self._lines_until_s = 0.0
        self.logins = {name: LoginCounts() for name in listeners}
        """By listener."""

    @classmethod
    def of(cls, broker: GateHost) -> Gate:
        """By the configuration of a broker. ConfigError names the key, the value and what was expected."""
        return cls(
            listeners=sasl_listeners(broker.config, broker.user_view, broker.platform.random_bytes),
            admit=broker.admission.admit,
            dispatch=broker.dispatcher.dispatch,
            now_ms=broker.now_ms,
            failure_delay_ms=broker.config.int(FAILURE_DELAY),
        )

    def admit(self, exchange: Exchange) -> None:
        """Have it handled, or say why not."""
        connection = exchange.connection
        sasl = connection.session.sasl
        if sasl is None:
            if not connection.listener.has_sasl:
                self._admit(exchange)
                return
            sasl = connection.session.sasl = SaslServer(self._listeners[connection.listener.name])
        try:
            if sasl.is_known:
                self._known(exchange, sasl)
            else:
                self._log_in(exchange, sasl)
        except HoldfastError as e:
            self._failed(connection, sasl, str(e))
            connection.close(None)

    def close(self) -> None:
        """The broker is ending."""
        for listener in self._listeners.values():
            for mechanism in listener.mechanisms.values():
                if isinstance(mechanism, BearerMechanisms):
                    mechanism.close()
        self._late.close()

    def _known(self, exchange: Exchange, sasl: SaslServer) -> None:
        ends_ms = sasl.ends_ms
        if ends_ms is None:
            self._admit(exchange)
        elif exchange.header.api_key == _HANDSHAKE:
            self._handshake(exchange, sasl)
        elif sasl.has_ended(_steady_ms()):
            exchange.connection.close("its login has ended, and it has not logged in again")
        else:
            self._admit(exchange)

    def _log_in(self, exchange: Exchange, sasl: SaslServer) -> None:
        key, version = exchange.header.api_key, exchange.header.api_version
        if sasl.waits_for_token:
            if exchange.connection.session.takes_tokens:
                self._token(exchange, sasl, bytes(exchange.body))
                return
            if key == _AUTHENTICATE and version in SPOKEN[ApiKey.SASL_AUTHENTICATE]:
                self._token(exchange, sasl, read_authenticate(version, exchange.body))
                return
        elif sasl.state is LoginState.NOBODY:
            if key == _API_VERSIONS:
                self._dispatch(exchange)
                return
            if key == _HANDSHAKE and version in SPOKEN[ApiKey.SASL_HANDSHAKE]:
                self._handshake(exchange, sasl)
                return
        why = f"API key {key} version {version} before it has logged in ({sasl.state.value})"
        self._failed(exchange.connection, sasl, why)
        exchange.connection.close(None)

    def _handshake(self, exchange: Exchange, sasl: SaslServer) -> None:
        header, listener = exchange.header, self._listeners[exchange.connection.listener.name]
        is_raw = header.api_version == 0
        if is_raw and sasl.is_known:
            self._failed(exchange.connection, sasl, "SaslHandshake 0 cannot renew a login")
            exchange.connection.close(None)
            return
        refusal = sasl.handshake(read_handshake(exchange.body), _steady_ms())
        code = 0 if refusal is None else ILLEGAL_STATE if refusal.is_too_early else UNSUPPORTED_MECHANISM
        body = write_handshake_answer(code, listener.names)
        answer = encode_response_raw(_HANDSHAKE, header.api_version, header.correlation_id, body)
        if refusal is None:
            exchange.connection.session.takes_tokens = is_raw
            exchange.finish([answer])
        else:
            self._fail(exchange, sasl, refusal.why, answer)

    def _token(self, exchange: Exchange, sasl: SaslServer, token: bytes) -> None:
        connection, header = exchange.connection, exchange.header
        is_renewal = sasl.has_logged_in
        said = sasl.token(token, self._now_ms(), _steady_ms())
        if connection.session.takes_tokens:
            answer = SIZE.pack(len(said.token)) + said.token
        else:
            code = 0 if said.refusal is None else AUTHENTICATION_FAILED
            body = write_authenticate_answer(header.api_version, code, said.message, said.token, said.lifetime_ms)
            answer = encode_response_raw(_AUTHENTICATE, header.api_version, header.correlation_id, body)
        if said.refusal is not None:
            self._fail(exchange, sasl, said.refusal, b"" if connection.session.takes_tokens else answer)
            return
        if sasl.is_known:
            self._logged_in(connection, sasl, said, is_renewal=is_renewal)
        exchange.finish([answer])

    def _logged_in(self, connection: Answering, sasl: SaslServer, said: Said, *, is_renewal: bool) -> None:
        session = connection.session
        session.principal, session.takes_tokens = sasl.principal, False
        counts = self.logins[connection.listener.name]
        if is_renewal:
            counts.renewed += 1
        else:
            counts.succeeded += 1
        connection.known()
        log.debug("connection of %s:%s: %s for %d ms", *connection.peer[:2], sasl.principal, said.lifetime_ms)

    def _fail(self, exchange: Exchange, sasl: SaslServer, why: str, answer: bytes) -> None:
        self._failed(exchange.connection, sasl, why)
        self._late.answer(exchange, answer)

    def _failed(self, connection: Answering, sasl: SaslServer, why: str) -> None:
        """Count it, and say so."""
        counts = self.logins[connection.listener.name]
        if sasl.has_logged_in:
            counts.not_renewed += 1
        else:
            counts.failed += 1
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._lines_until_s:
            self._lines_until_s = now_s + LINES_S
            self._lines.turn()
        # Kafka's beginning, which people look for; the reason behind it.
        self._lines.warning(
            "Failed authentication with /%s (listener %s): %s", connection.peer[0], connection.listener.name, why
        )


def _steady_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


class _LateAnswers:
    """Failed logins that are answered, and their connections closed, in the order in which they failed."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._waiting: deque[tuple[float, Exchange, bytes]] = deque()
        self._timer: asyncio.Handle | None = None

    def answer(self, exchange: Exchange, answer: bytes) -> None:
        """After the delay; nothing more is read of the connection meanwhile, as one request of it is under way."""
        if not self._delay_s:
            _end(exchange, answer)
            return
        loop = asyncio.get_running_loop()
        due_s = loop.time() + self._delay_s
        self._waiting.append((due_s, exchange, answer))
        if self._timer is None:
            self._timer = loop.call_at(due_s + LATE_S, self._due)

    def _due(self) -> None:
        loop = asyncio.get_running_loop()
        now_s, left = loop.time(), LATE_A_TURN
        while left and self._waiting and self._waiting[0][0] <= now_s:
            _, exchange, answer = self._waiting.popleft()
            _end(exchange, answer)
            left -= 1
        if not self._waiting:
            self._timer = None
        elif self._waiting[0][0] <= now_s:
            self._timer = loop.call_soon(self._due)
        else:
            self._timer = loop.call_at(self._waiting[0][0] + LATE_S, self._due)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._waiting.clear()


def _end(exchange: Exchange, answer: bytes) -> None:
    connection = exchange.connection
    if not connection.closed:
        exchange.finish([answer] if answer else [])
        connection.close(None)
