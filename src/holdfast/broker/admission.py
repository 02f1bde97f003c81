"""What a broker answers while it starts: the gate before the dispatcher.

A broker listens before it knows anything, because the controller tells it everything over its own port. Until it
knows, it must not answer out of its ignorance: a client that is told of no topics believes that they are gone.
And a controller that has not yet noticed that this is another process must not order the new incarnation about
with the orders for the old one (H-09). So requests wait in their connections:

    starting --(registered: it knows its epoch)--> registered --(told the full metadata)--> open

    starting     ApiVersions, and what brokers ask of the controller, which this broker may be already
    registered   orders of the controller besides; those for an earlier incarnation are refused by their epoch
    open         everything, with no more cost

What waits is bounded as everything that a connection has under way.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.broker.connection import Exchange
from holdfast.protocol.apis import ApiKey

ALWAYS: frozenset[int] = frozenset(
    (
        ApiKey.API_VERSIONS,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    )
)
ORDERS: frozenset[int] = frozenset((ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA))


class Admission:
    """See the module's docstring."""

    def __init__(self, dispatch: Callable[[Exchange], None]) -> None:
        self._dispatch = dispatch
        self._admitted: frozenset[int] | None = ALWAYS
        """None: everything."""
        self._waiting: list[Exchange] = []

    @property
    def is_open(self) -> bool:
        """Whether clients are answered."""
        return self._admitted is None

    def admit(self, exchange: Exchange) -> None:
        """Have it handled now, or when its time has come."""
        admitted = self._admitted
        if admitted is None or exchange.header.api_key in admitted:
            self._dispatch(exchange)
        else:
            exchange.own_body()  # the connection's buffer is used again
            self._waiting.append(exchange)

    def registered(self) -> None:
        """This broker knows its epoch."""
        if self._admitted is not None:
            self._admitted = ALWAYS | ORDERS
            self._release()

    def open(self) -> None:
        """The controller has told this broker all there is."""
        if self._admitted is not None:
            self._admitted = None
            self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for exchange in waiting:
            if not exchange.connection.closed:
                self.admit(exchange)
