"""Quotas of clients on the way through a broker: what a request uses, what it is told, how long its connection waits.

A request over a quota is answered, with ``throttle_time_ms``, and then its connection is not read for that long, so
that clients that do not mind what they are told wait too (KIP-219). A fetch that comes over its quota is answered
empty. What counts as the time of a request is what the broker's one thread spends on it; a fetch that waits costs
nothing.

Exempt: what brokers say to each other, ApiVersions and logins. Where no user or client has a quota, one attribute is
looked at per request (``QuotaView.limits_clients``).
"""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from holdfast.protocol.apis import BETWEEN_BROKERS, ApiKey
from holdfast.protocol.framing import decode_response, encode_response, parse_response_header
from holdfast.security.quotas import UNLIMITED, Budgets, Limits, limits_of

if TYPE_CHECKING:
    from holdfast.broker.quota_view import QuotaView
    from holdfast.broker.session import Session
    from holdfast.model.config import BrokerConfig
    from holdfast.protocol.framing import RequestHeader

T = TypeVar("T")
EXEMPT: Final = BETWEEN_BROKERS | {int(ApiKey.API_VERSIONS), 17, 36}
"""And SaslHandshake and SaslAuthenticate."""
PRODUCER, CONSUMER, REQUEST, MUTATION = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
)  # fmt: skip
"""The quotas of a user or a client, as Kafka calls them."""
MOST_LOOKED_UP: Final = 10_000
"""Users with clients whose limits are kept; with one more all are looked up anew."""


class QuotasHost(Protocol):
    """What is asked of the broker."""

    config: BrokerConfig
    quota_view: QuotaView

    def monotonic_ms(self) -> int: ...


class Muting(Protocol):
    """The connection of a request."""

    session: Session

    def mute(self, delay_ms: int) -> None: ...

    def time_bytes(self, spent: Callable[[float], None], clock_s: Callable[[], float]) -> None: ...


class Measurable(Protocol):
    """A request (exchange.py)."""

    meter: Meter | None

    @property
    def connection(self) -> Muting: ...

    @property
    def header(self) -> RequestHeader: ...


@dataclasses.dataclass(slots=True)
class Throttled:
    """What one quota has made wait since the start."""

    requests: int = 0
    told_ms: int = 0
    """For how long, all together."""


class ClientQuotas:
    """Of one broker. Owns the budgets."""

    def __init__(self, broker: QuotasHost, clock_s: Callable[[], float] = time.perf_counter) -> None:
        config = broker.config
        sample_s = config.int("quota.window.size.seconds")
        window_s = max(1, config.int("quota.window.num") - 1) * sample_s
        self._view = broker.quota_view
        self.now_ms = broker.monotonic_ms
        self.clock_s = clock_s
        self.sample_s = sample_s
        self.produce, self.fetch, self.request = Budgets(window_s), Budgets(window_s), Budgets(window_s)
        self._mutation = Budgets(
            config.int("controller.quota.window.num") * config.int("controller.quota.window.size.seconds")
        )
        self._found: dict[tuple[str, str], Limits] = {}
        self._version = -1
        self.throttled = {quota: Throttled() for quota in (PRODUCER, CONSUMER, REQUEST, MUTATION)}
        """A request counts for the quota that made it wait first, its time for the one that made it longer."""

    def limits(self, user: str, client: str | None) -> Limits:
        """What counts for a user and a client."""
        if self._version != self._view.version:
            self._found.clear()
            self._version = self._view.version
        key = (user, client or "")
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MOST_LOOKED_UP:
                self._found.clear()
            found = self._found[key] = limits_of(self._view.by_entity, *key)
        return found

    def measure(self, exchange: Measurable) -> None:
        """Begin to measure a request, where it counts."""
        session, header = exchange.connection.session, exchange.header
        if header.api_key in EXEMPT or session.is_brokers:
            return
        limits = self.limits(session.principal.name, header.client_id)
        session.bytes_limit = limits.request
        if limits is not UNLIMITED:
            exchange.meter = Meter(self, exchange, limits)
            if limits.request is not None and not session.is_timed:
                session.is_timed = True
                exchange.connection.time_bytes(partial(self._spent, exchange.connection), self.clock_s)

    def _spent(self, connection: Muting, seconds: float) -> None:
        """Reading or writing has taken so long."""
        limit = connection.session.bytes_limit
        if limit is None or not self._view.limits_clients:
            return
        delay_ms = self.request.spend(100 * seconds, limit, self.now_ms())
        if delay_ms:
            connection.mute(min(delay_ms, self.sample_s * 1000))

    def mutate(self, user: str, client: str | None, count: int) -> int:
        """So many partitions come or go. How long that makes who asked wait."""
        limit = self.limits(user, client).mutation if self._view.limits_clients else None
        return 0 if limit is None else self._mutation.spend(count, limit, self.now_ms())

    def mutation_delay_ms(self, user: str, client: str | None) -> int:
        """How long who asks has to wait before partitions come or go; 0: not at all."""
        limit = self.limits(user, client).mutation if self._view.limits_clients else None
        return 0 if limit is None else self._mutation.delay_ms(limit, self.now_ms())


class Meter:
    """What one request uses. ``throttle_ms``: what its answer says, as far as it is known."""

    __slots__ = ("_began_s", "_connection", "_limits", "_quotas", "throttle_ms")

    def __init__(self, quotas: ClientQuotas, exchange: Measurable, limits: Limits) -> None:
        self._quotas = quotas
        self._connection = exchange.connection
        self._limits = limits
        self._began_s: float | None = quotas.clock_s()
        """None: it waits."""
        self.throttle_ms = 0

    def begin(self) -> None:
        """The request goes on, after it has waited."""
        self._began_s = self._quotas.clock_s()

    def pause(self) -> None:
        """It waits from now on, or is done."""
        self.took()
        self._began_s = None

    def took(self) -> None:
        """The time since it began, or since this was said last, was the request's, unless it waits."""
        if self._limits.request is None or self._began_s is None:
            return
        now_s = self._quotas.clock_s()
        spent_s, self._began_s = now_s - self._began_s, now_s
        self.spent(spent_s)

    def spent(self, seconds: float) -> None:
        """So much of the processor's time was the request's."""
        quotas, limit = self._quotas, self._limits.request
        if limit is not None:
            delay_ms = quotas.request.spend(100 * seconds, limit, quotas.now_ms())
            self._charge(REQUEST, min(delay_ms, quotas.sample_s * 1000))

    def produced(self, size: int) -> None:
        """It has brought so many bytes."""
        if self._limits.produce is not None:
            self._charge(PRODUCER, self._quotas.produce.spend(size, self._limits.produce, self._quotas.now_ms()))

    def fetched(self, size: int) -> None:
        """So many bytes of records answer it."""
        if self._limits.fetch is not None and size:
            self._charge(CONSUMER, self._quotas.fetch.spend(size, self._limits.fetch, self._quotas.now_ms()))

    def is_over_fetch(self) -> bool:
        """Whether it gets nothing, because others of its owner have had too much."""
        if self._limits.fetch is None:
            return False
        delay_ms = self._quotas.fetch.delay_ms(self._limits.fetch, self._quotas.now_ms())
        self._charge(CONSUMER, delay_ms)
        return delay_ms > 0

    def most_bytes(self, wanted: int) -> int:
        """At most what the quota gives in a sample, so that the waits are short."""
        limit = self._limits.fetch
        return wanted if limit is None else min(wanted, max(1, int(limit.rate * self._quotas.sample_s)))

    def told(self, response: Any, api_key: int, version: int, correlation_id: int) -> Any:
        """The response, or the bytes of one that came from the controller, with the time that it has to tell. The
        controller may have one of its own."""
        if isinstance(response, (bytes, bytearray)):
            return self._told_by_controller(bytes(response), api_key, version, correlation_id)
        own_ms = _throttle_ms(response)
        if own_ms is None:
            return response
        self._charge(MUTATION, own_ms)
        if self.throttle_ms <= own_ms:
            return response
        return dataclasses.replace(response, throttle_time=datetime.timedelta(milliseconds=self.throttle_ms))

    def _told_by_controller(self, frame: bytes, api_key: int, version: int, correlation_id: int) -> bytes:
        body = memoryview(frame)[4:]
        _, begin = parse_response_header(api_key, version, body)
        response = decode_response(api_key, version, body[begin:])
        told = self.told(response, api_key, version, correlation_id)
        return frame if told is response else encode_response(correlation_id, told)

    def _charge(self, quota: str, delay_ms: int) -> None:
        if delay_ms > self.throttle_ms:
            throttled = self._quotas.throttled[quota]
            throttled.requests += not self.throttle_ms
            throttled.told_ms += delay_ms - self.throttle_ms
            self.throttle_ms = delay_ms
            self._connection.mute(delay_ms)


def _throttle_ms(response: Any) -> int | None:
    """What a response says; None: it has no field for it."""
    value = getattr(response, "throttle_time", None)
    return None if value is None else int(value.total_seconds() * 1000)


class Measured(Generator[Any, Any, T]):
    """A handler whose steps on the loop are measured; awaited in its place."""

    def __init__(self, handler: Coroutine[Any, Any, T], meter: Meter) -> None:
        self._handler = handler
        self._meter = meter

    def __await__(self) -> Measured[T]:
        return self

    def send(self, value: Any) -> Any:
        """One step."""
        self._meter.begin()
        try:
            return self._handler.send(value)
        finally:
            self._meter.pause()

    def throw(self, *error: Any) -> Any:
        """One step, with an error."""
        self._meter.begin()
        try:
            return self._handler.throw(*error)
        finally:
            self._meter.pause()
