"""Connections that have not said who they are: what they cost together is limited.

    came --the handshake of TLS, and with SASL a login--> known        came --too slow, too many, too much--> closed

The oldest are first, so a look at all of them is a look at the first ones. Who counts the connections is the server
(docs/decisions/0062-limits-against-strangers.md).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from holdfast.broker.bounded_lines import BoundedLines
from holdfast.broker.turn_order import TurnOrder
from holdfast.model.config import BrokerConfig
from holdfast.model.config_connection_keys import LOGIN_BYTES, LOGIN_MOST, LOGIN_TIMEOUT
from holdfast.model.config_sasl_keys import MAX_RECEIVE

log = logging.getLogger(__name__)

ROOM = 0.75
"""Of the bytes that they may have, what is left to them when it was too much: who sends fast makes us look at all of
them once for each quarter, and not for each piece."""

MOST_REQUESTS = 32
"""Of a connection before its login, which takes a handful: a question is cheaper than its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerLimits:
    """``seconds`` for each of them; ``connections`` and ``request_bytes`` for all together; ``frame_bytes`` for one
    request."""

    seconds: float = 10.0
    connections: int = 4000
    request_bytes: int = 16 << 20
    frame_bytes: int = 512 << 10

    @classmethod
    def of(cls, config: BrokerConfig) -> StrangerLimits:
        """By the keys of a broker."""
        return cls(
            seconds=config.int(LOGIN_TIMEOUT) / 1000,
            connections=config.int(LOGIN_MOST),
            request_bytes=config.int(LOGIN_BYTES),
            frame_bytes=config.int(MAX_RECEIVE),
        )


class Stranger(Protocol):
    """A connection, as far as it matters here."""

    peer: tuple[str, int]

    @property
    def descriptor(self) -> int: ...

    @property
    def held_bytes(self) -> int: ...

    def close(self, reason: str | None) -> None: ...


class Strangers:
    """All of a broker's. Whoever is told ``known`` or ``gone`` of one that is none does no harm."""

    def __init__(self, limits: StrangerLimits, turn_order: TurnOrder) -> None:
        """``turn_order`` hears who is known."""
        self.limits = limits
        self._turn_order = turn_order
        self._since_s: dict[Stranger, float] = {}
        self._asked: dict[Stranger, int] = {}
        """Requests, of those that have sent some."""
        self._held: dict[Stranger, int] = {}
        """Bytes of requests, of those that have some."""
        self._bytes = 0
        self._closed = BoundedLines(log, "connections were closed before they had said who they are")

    def __len__(self) -> int:
        """Connections."""
        return len(self._since_s)

    @property
    def request_bytes(self) -> int:
        """What all of them have sent and what is not answered yet, and the answers that they have not taken."""
        return self._bytes

    def came(self, connection: Stranger, now_s: float) -> None:
        """A connection was accepted. Where there are too many the oldest goes: one that means it is done by then."""
        self._since_s[connection] = now_s
        if len(self._since_s) > self.limits.connections:
            oldest = next(iter(self._since_s))
            self._close(oldest, f"{self.limits.connections} connections have not logged in, and it came first")

    def asks(self, connection: Stranger) -> bool:
        """A request has come; whether it may be answered. Otherwise the connection is closed."""
        asked = self._asked[connection] = self._asked.get(connection, 0) + 1
        if asked > MOST_REQUESTS:
            self._close(connection, f"{asked} requests, and it has not logged in")
        return asked <= MOST_REQUESTS

    def weigh(self, connection: Stranger) -> None:
        """More of a request has come. Where it is too much, those go that have sent the most."""
        before, held = self._held.get(connection, 0), connection.held_bytes
        self._held[connection] = held
        self._bytes += held - before
        if self._bytes > self.limits.request_bytes:
            self._weigh_all()

    def _weigh_all(self) -> None:
        self._held = {each: each.held_bytes for each in self._held}  # some were answered since
        self._bytes = sum(self._held.values())
        if self._bytes <= self.limits.request_bytes:
            return
        for each in sorted(self._held, key=self._held.__getitem__, reverse=True):
            if self._bytes <= ROOM * self.limits.request_bytes:
                break
            self._close(each, f"{self.limits.request_bytes} bytes came of connections that have not logged in")

    def known(self, connection: Stranger) -> None:
        """It has said who it is, or it is gone."""
        if self._since_s.pop(connection, None) is not None:
            self._turn_order.is_known(connection.descriptor)
        self._asked.pop(connection, None)
        self._bytes -= self._held.pop(connection, 0)

    def look(self, now_s: float) -> None:
        """Close those whose time is up."""
        while self._since_s:
            connection, since_s = next(iter(self._since_s.items()))
            if now_s - since_s < self.limits.seconds:
                break
            self._close(connection, f"it has not logged in within {self.limits.seconds:g} s")
        self._closed.turn()

    def _close(self, connection: Stranger, why: str) -> None:
        self.known(connection)
        self._closed.warning("connection of %s:%s closed: %s", *connection.peer, why)
        connection.close(None)
