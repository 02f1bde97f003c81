"""How many connections there may be, and how fast new ones may come (KIP-308, KIP-402, KIP-612).

    a new connection --delay_ms--> its listener waits   --ip_delay_ms--> it is closed after a wait
                     --refusal-->  it is closed at once --opened--> it counts until ``closed``

Pure: addresses and the clock come in; who accepts, waits and closes is broker/server.py. A listener is protected when
brokers use it and another one is there for clients: the limits of the whole broker do not keep brokers out, those of
the listener itself do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from holdfast.model.config import BrokerConfig
from holdfast.model.config_connection_keys import OVERRIDES, PER_IP, overrides_per_ip
from holdfast.model.config_key import INT_MAX
from holdfast.security.event_rate import EventRate

LONGEST_DELAY_MS: Final = 1000
"""As long as a sample of a rate: the longest wait for it."""
MOST_ADDRESSES: Final = 65_536
"""Of which a rate is kept; beyond it the one that was not seen for the longest is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """Of one listener: connections at a time, and new ones a second."""

    connections: int = INT_MAX
    rate: int = INT_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What the keys say. ``overrides``: connections of single addresses, where they are not ``per_ip``."""

    connections: int = INT_MAX
    rate: int = INT_MAX
    per_ip: int = INT_MAX
    overrides: Mapping[str, int] = field(default_factory=dict)
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)

    @classmethod
    def of(cls, config: BrokerConfig, listeners: Sequence[str]) -> ConnectionLimits:
        """Of a broker's configuration. A listener without a value of its own has the broker's, as in Kafka."""
        own = {name: config.on_listener(name) for name in listeners}
        return cls(
            connections=config.int("max.connections"),
            rate=config.int("max.connection.creation.rate"),
            per_ip=config.int(PER_IP),
            overrides=overrides_per_ip(config.str(OVERRIDES)),
            listeners={
                name: ListenerLimits(
                    connections=each.int("max.connections"), rate=each.int("max.connection.creation.rate")
                )
                for name, each in own.items()
            },
        )

    def of_address(self, host: str) -> int:
        """Connections that an address may have."""
        return self.overrides.get(host, self.per_ip)

    def of_listener(self, listener: str) -> ListenerLimits:
        """What holds for a listener by itself."""
        return self.listeners.get(listener) or ListenerLimits(connections=self.connections, rate=self.rate)


class Refusal(Enum):
    """Which limit a connection is beyond; the values are what its key is called in a message."""

    LISTENER = "listener.name.{listener}.max.connections={limit}"
    BROKER = "max.connections={limit}"
    ADDRESS = "max.connections.per.ip={limit} for {host}"


def no_rate_of(host: str) -> float | None:
    """Without quotas no address has a rate."""
    return None


class ConnectionCounts:
    """Counts connections and how fast they come, and says what the limits make of the next one.

    ``rate_of`` is asked what an address may have a second, by the quotas of the cluster; None: any.
    """

    def __init__(self, limits: ConnectionLimits, rate_of: Callable[[str], float | None] = no_rate_of) -> None:
        self.limits = limits
        self._rate_of = rate_of
        self.total = 0
        self._listeners: dict[str, int] = {}
        self._protected: dict[str, bool] = {}
        self._addresses: dict[str, int] = {}
        self._rate = EventRate()
        self._listener_rates: dict[str, EventRate] = {}
        self._address_rates: OrderedDict[str, EventRate] = OrderedDict()

    def add_listener(self, listener: str, *, for_brokers: bool) -> None:
        """There is such a one from now on."""
        self._protected[listener] = for_brokers
        self._listeners.setdefault(listener, 0)
        self._listener_rates.setdefault(listener, EventRate())

    def is_protected(self, listener: str) -> bool:
        """Whether the limits of the whole broker keep nobody out there."""
        return self._protected[listener] and not all(self._protected.values())

    # -- how fast they come ------------------------------------------------------------------------------------

    def delay_ms(self, listener: str, now_ms: int) -> int:
        """A connection came by ``listener``: how long that accepts no other, and this one waits, for the rate of the
        listener and of the broker to be back."""
        delay_ms = 0
        if not self.is_protected(listener):
            delay_ms = _added(self._rate, self.limits.rate, now_ms)
        bound = self.limits.of_listener(listener).rate
        return max(delay_ms, _added(self._listener_rates[listener], bound, now_ms))

    def ip_delay_ms(self, listener: str, host: str, now_ms: int) -> int:
        """How long a connection of this address is kept without an answer before it is closed, since the address has
        had too many; 0: it has not. It does not count for the rates then."""
        bound = self._rate_of(host)
        if bound is None:
            return 0
        rate = self._address_rates.get(host)
        if rate is None:
            rate = self._address_rates[host] = EventRate()
            if len(self._address_rates) > MOST_ADDRESSES:
                self._address_rates.popitem(last=False)
        self._address_rates.move_to_end(host)
        delay_ms = _added(rate, bound, now_ms)
        if delay_ms:
            rate.add(-1, now_ms)
            self._listener_rates[listener].add(-1, now_ms)
            if not self.is_protected(listener):
                self._rate.add(-1, now_ms)
        return delay_ms

    def forget_idle(self, now_ms: int) -> None:
        """Rates of addresses that have not come for a window are forgotten; the least seen ones are looked at."""
        while self._address_rates:
            host, rate = next(iter(self._address_rates.items()))
            if not rate.is_over(now_ms):
                return
            del self._address_rates[host]

    # -- how many there are ------------------------------------------------------------------------------------

    def refusal(self, listener: str, host: str) -> Refusal | None:
        """Which limit keeps the next connection out. BROKER is of clients only where the listener is protected: one of
        theirs goes for it then (``excess``)."""
        if self._addresses.get(host, 0) >= self.limits.of_address(host):
            return Refusal.ADDRESS
        if self._listeners[listener] >= self.limits.of_listener(listener).connections:
            return Refusal.LISTENER
        if self.total >= self.limits.connections and not self.is_protected(listener):
            return Refusal.BROKER
        return None

    def told(self, refusal: Refusal, listener: str, host: str) -> str:
        """What is said of a refusal: the key with its value."""
        limit = {
            Refusal.ADDRESS: self.limits.of_address(host),
            Refusal.LISTENER: self.limits.of_listener(listener).connections,
            Refusal.BROKER: self.limits.connections,
        }[refusal]
        return refusal.value.format(limit=limit, listener=listener.lower(), host=host)

    @property
    def excess(self) -> int:
        """Connections beyond those that the broker may have: clients are closed for them."""
        return max(0, self.total - self.limits.connections)

    def opened(self, listener: str, host: str) -> None:
        """A connection is there."""
        self.total += 1
        self._listeners[listener] += 1
        self._addresses[host] = self._addresses.get(host, 0) + 1

    def closed(self, listener: str, host: str) -> None:
        """It is gone."""
        self.total -= 1
        self._listeners[listener] -= 1
        left = self._addresses[host] - 1
        if left:
            self._addresses[host] = left
        else:
            del self._addresses[host]


def _added(rate: EventRate, bound: float, now_ms: int) -> int:
    """One more; how long it takes until the rate is within its bound again."""
    rate.add(1, now_ms)
    return 0 if bound >= INT_MAX else min(LONGEST_DELAY_MS, rate.delay_ms(bound, now_ms))
