"""Requests that have begun to come and do not go on: who sends a byte a second of a large one keeps no connection.

A request has ``patience_s``; what takes longer has to come at LEAST_BYTES_S from there on, all in all. So a client on a
poor line may send for an hour what it sends, and one that was stopped in the middle comes again. Time in which the
broker itself does not read does not count.
"""

from __future__ import annotations

import logging
from typing import Protocol

from holdfast.broker.bounded_lines import BoundedLines

log = logging.getLogger(__name__)

LEAST_BYTES_S = 1024


class Receiving(Protocol):
    """A connection, as far as it matters here."""

    closed: bool
    idle_since: float
    """When its last request had come: it tells one request that is unfinished from the next."""
    is_lasting: bool
    peer: tuple[str, int]

    @property
    def unfinished_bytes(self) -> int | None: ...

    def read_on(self) -> None: ...

    def close(self, reason: str | None) -> None: ...


class UnfinishedRequests:
    """Of all connections of a broker; ``look`` is to be called several times a second for each of them."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._since_s: dict[Receiving, tuple[float, float]] = {}
        """Since when a request is unfinished, and which."""
        self._closed = BoundedLines(log, "connections were closed within a request that did not go on")

    def __len__(self) -> int:
        """Connections with such a request."""
        return len(self._since_s)

    def look(self, connection: Receiving, now_s: float) -> None:
        """Close it if its request does not go on."""
        received = connection.unfinished_bytes
        if received is None or connection.is_lasting:
            self._since_s.pop(connection, None)
            return
        since_s, which = self._since_s.get(connection, (now_s, None))
        if which != connection.idle_since:
            self._since_s[connection] = now_s, connection.idle_since
            return
        late_s = now_s - since_s - self.patience_s
        least = late_s * LEAST_BYTES_S + 1
        if late_s >= 0 and received <= least:
            connection.read_on()  # what waits in the socket for more to come
            received = connection.unfinished_bytes
        if late_s >= 0 and received is not None and received <= least and not connection.closed:
            self._closed.warning(
                "connection of %s:%s closed: %d bytes of a request came in %.0f s", *connection.peer, received,
                now_s - since_s,
            )  # fmt: skip
            connection.close(None)

    def gone(self, connection: Receiving) -> None:
        """It is closed."""
        self._since_s.pop(connection, None)

    def turn(self) -> None:
        """All were looked at."""
        self._closed.turn()
