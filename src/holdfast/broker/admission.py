"""What a broker answers while it starts: the gate before the dispatcher.

A broker listens before it knows anything, because the controller tells it everything over its own port. Until it
knows, it must not answer out of its ignorance: a client that is told of no topics believes that they are gone.
And a controller that has not yet noticed that this is another process must not order the new incarnation about
with the orders for the old one (H-09). So requests wait in their connections:

    starting --(registered: it knows its epoch)--> registered --(told the full metadata)--> open

(the table: START below)

    starting     ApiVersions, and what brokers ask of the controller, which this broker may be already
    registered   orders of the controller besides; those for an earlier incarnation are refused by their epoch
    open         everything, with no more cost

By listeners of clients nobody is accepted before it is open (dynamic_config.py, let_clients_in).
What waits is bounded as everything that a connection has under way.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from holdfast.broker.exchange import Exchange
from holdfast.model.transitions import Transitions
from holdfast.protocol.apis import ApiKey

ALWAYS: frozenset[int] = frozenset(
    (
        ApiKey.API_VERSIONS,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CLAIM_BROKER_ID,
    )
)
ORDERS: frozenset[int] = frozenset((ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA))


class Stage(Enum):
    """How far a broker's start is."""

    STARTING = "starting"
    REGISTERED = "registered"
    OPEN = "open"


class News(Enum):
    """What it learns."""

    EPOCH = "registered, knows its epoch"
    METADATA = "told the full metadata"


START: Final = Transitions(
    starts=(Stage.STARTING,),
    moves={
        (Stage.STARTING, News.EPOCH): Stage.REGISTERED,
        (Stage.REGISTERED, News.EPOCH): Stage.REGISTERED,
        (Stage.REGISTERED, News.METADATA): Stage.OPEN,
        # A controller that had forgotten it makes it register again: clients are answered meanwhile.
        (Stage.OPEN, News.EPOCH): Stage.OPEN,
        (Stage.OPEN, News.METADATA): Stage.OPEN,
    },
)
ADMITTED: Final[dict[Stage, frozenset[int] | None]] = {
    Stage.STARTING: ALWAYS,
    Stage.REGISTERED: ALWAYS | ORDERS,
    Stage.OPEN: None,
}
"""None: everything."""


class Admission:
    """See the module's docstring."""

    def __init__(self, dispatch: Callable[[Exchange], None]) -> None:
        self._dispatch = dispatch
        self.stage = Stage.STARTING
        self._admitted = ADMITTED[self.stage]
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
        self._learn(News.EPOCH)

    def open(self) -> None:
        """The controller has told this broker all there is."""
        self._learn(News.METADATA)

    def _learn(self, news: News) -> None:
        before, self.stage = self.stage, START.after(self.stage, news)
        if self.stage is not before:
            self._admitted = ADMITTED[self.stage]
            self._release()

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for exchange in waiting:
            if not exchange.connection.closed:
                self.admit(exchange)
