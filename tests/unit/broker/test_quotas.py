"""Quotas on the way through a broker: what is told, how long a connection is not read, and who is exempt."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.channel import PlainChannel
from holdfast.broker.connection import Connection
from holdfast.broker.entity import build
from holdfast.broker.exchange import BufferPool, Exchange
from holdfast.broker.quota_view import QuotaView
from holdfast.broker.quotas import EXEMPT, PRODUCER, REQUEST, ClientQuotas, Measured, Meter, Throttled
from holdfast.broker.session import Session
from holdfast.broker.timed_channel import TimedChannel
from holdfast.metadata.codec_news import encode_news
from holdfast.metadata.records import ClientQuotaRecord
from holdfast.model.config import BrokerConfig
from holdfast.protocol.apis import SPOKEN, ApiKey, response_type
from holdfast.protocol.framing import RequestHeader, decode_response, encode_response, parse_response_header
from holdfast.protocol.interbroker import TYPE_FULL
from holdfast.security.principal import Principal
from holdfast.security.quota_entities import QuotaEntity

CLIENT: QuotaEntity = (("client-id", "c"),)
DEADLINE_S = 20.0


class Broker:
    """As much of one as quotas look at. Its clock stands still, and is set by a test."""

    def __init__(self, *quotas: tuple[QuotaEntity, str, float], **config: str) -> None:
        self.config = BrokerConfig.parse({key.replace("_", "."): value for key, value in config.items()})
        self.quota_view = QuotaView()
        self.now, self.spent_s = 0, 0.0
        self.timed: list[Callable[[float], None]] = []
        """What hears of the time that the bytes of a connection take."""
        self.tell(*quotas)
        self.quotas = ClientQuotas(self, lambda: self.spent_s)

    def monotonic_ms(self) -> int:
        return self.now

    def tell(self, *quotas: tuple[QuotaEntity, str, float]) -> None:
        records = [ClientQuotaRecord(entity=entity, key=key, value=value) for entity, key, value in quotas]
        request = SimpleNamespace(client_quotas=encode_news(records), type=TYPE_FULL)
        self.quota_view.update(request)

    def request(
        self, api: int = 3, *, user: str = "u", client: str | None = "c", **session: Any
    ) -> tuple[Exchange, list[int]]:
        """A request, and for how long its connection was muted."""
        muted: list[int] = []
        connection: Any = SimpleNamespace(
            session=Session(principal=Principal.user(user), **session),
            mute=muted.append,
            time_bytes=lambda spent, clock_s: self.timed.append(spent),
        )
        header = RequestHeader(api_key=api, api_version=1, correlation_id=1, client_id=client, body_offset=0)
        exchange = Exchange(connection, header, memoryview(b""), 10)
        self.quotas.measure(exchange)
        return exchange, muted


def meter_of(found: tuple[Exchange, list[int]]) -> tuple[Meter, list[int]]:
    exchange, muted = found
    assert exchange.meter is not None
    return exchange.meter, muted


def test_who_has_no_quota_is_not_measured() -> None:
    broker = Broker((CLIENT, "producer_byte_rate", 10))
    assert broker.request(client="other")[0].meter is None
    assert broker.request(client=None)[0].meter is None
    assert broker.request()[0].meter is not None


@pytest.mark.parametrize("api", sorted(EXEMPT))
def test_what_is_exempt_is_not_measured(api: int) -> None:
    broker = Broker((CLIENT, "request_percentage", 0.001))
    assert broker.request(api)[0].meter is None


def test_a_broker_is_not_measured() -> None:
    assert Broker((CLIENT, "request_percentage", 1)).request(broker=(2, 7))[0].meter is None


def test_a_produce_waits_until_its_quota_is_even() -> None:
    broker = Broker((CLIENT, "producer_byte_rate", 1000), quota_window_num="3", quota_window_size_seconds="2")
    meter, muted = meter_of(broker.request())
    meter.produced(4000)
    assert (meter.throttle_ms, muted) == (0, []), "what the window allows after a pause"
    meter.produced(500)
    assert (meter.throttle_ms, muted) == (500, [500])
    broker.now = 400
    meter, muted = meter_of(broker.request(user="other"))
    meter.produced(0)
    assert muted == [100], "its owner is the client, whoever the user is"
    counted = broker.quotas.throttled
    assert counted.pop(PRODUCER) == Throttled(requests=2, told_ms=600)
    assert all(each == Throttled() for each in counted.values())


def test_the_time_of_bytes_is_its_owners_too() -> None:
    """With TLS and small requests it is the larger part."""
    broker = Broker((CLIENT, "request_percentage", 1), quota_window_num="3", quota_window_size_seconds="2")
    exchange, muted = broker.request()
    broker.quotas.measure(exchange)
    [spent] = broker.timed  # once
    spent(0.04)
    assert muted == [], "what the window allows"
    spent(0.005)
    assert muted == [500]
    broker.tell()
    spent(1.0)
    assert muted == [500], "there is no quota any more"


def test_nobodys_bytes_are_timed_without_a_quota_of_time() -> None:
    broker = Broker((CLIENT, "producer_byte_rate", 10))
    broker.request()
    assert broker.timed == []


def test_a_timed_channel_tells_what_each_call_took() -> None:
    now_s, told = 0.0, list[float]()
    ours, theirs = socket.socketpair()

    def clock_s() -> float:
        nonlocal now_s
        now_s += 1.0
        return now_s

    with ours, theirs:
        ours.setblocking(False)
        channel = TimedChannel(PlainChannel(ours), told.append, clock_s)
        with pytest.raises(BlockingIOError):
            channel.receive(memoryview(bytearray(9)))
        assert channel.send([b"ab", b"c"]) == 3
        theirs.sendall(b"defg")
        assert channel.receive(memoryview(bytearray(9))) == 4
        assert theirs.recv(9) == b"abc"
        assert (channel.sock, channel.has_more, channel.takes_files) == (ours, False, True)
    assert told == [1.0, 1.0, 1.0]


def test_a_request_counts_once_for_the_quota_that_was_first_and_its_time_for_the_one_that_was_longer() -> None:
    broker = Broker((CLIENT, "producer_byte_rate", 1000), (CLIENT, "request_percentage", 1))
    meter, _ = meter_of(broker.request())
    meter.produced(10_200)
    broker.spent_s += 0.105
    meter.took()
    counted = broker.quotas.throttled
    assert meter.throttle_ms == 500
    assert (counted[PRODUCER], counted[REQUEST]) == (Throttled(1, 200), Throttled(0, 300))


def test_a_fetch_that_is_over_its_quota_gets_nothing_and_others_a_sample_at_most() -> None:
    broker = Broker((CLIENT, "consumer_byte_rate", 1000))
    meter, muted = meter_of(broker.request())
    assert not meter.is_over_fetch()
    assert (meter.most_bytes(50), meter.most_bytes(10**6)) == (50, 1000)
    meter.fetched(10_500)
    assert muted == [500]
    meter, muted = meter_of(broker.request())
    assert meter.is_over_fetch()
    assert muted == [500]
    broker.now = 500
    assert not meter_of(broker.request())[0].is_over_fetch()


def test_the_time_of_a_request_is_counted_and_makes_it_wait_a_sample_at_most() -> None:
    broker = Broker((CLIENT, "request_percentage", 1))
    meter, muted = meter_of(broker.request())
    broker.spent_s += 0.11
    meter.took()
    assert muted == [1000], "a tenth of a second is what ten seconds allow; 10 ms more are a second"
    broker.spent_s += 10
    meter.pause()
    assert muted == [1000]
    broker.spent_s += 10
    meter.took()
    assert muted == [1000], "while it waits nothing is counted"


def test_the_steps_of_a_handler_are_measured_and_not_its_waits() -> None:
    broker = Broker((CLIENT, "request_percentage", 1))
    meter, _ = meter_of(broker.request())
    meter.pause()

    async def handler(event: asyncio.Event) -> str:
        broker.spent_s += 0.05
        try:
            await event.wait()
        except asyncio.CancelledError:
            broker.spent_s += 0.03
            raise
        broker.spent_s += 0.07
        return "done"

    async def check() -> None:
        event = asyncio.Event()
        task = asyncio.ensure_future(wait_for(Measured(handler(event), meter)))
        await asyncio.sleep(0)
        broker.spent_s += 1000  # others
        event.set()
        assert await task == "done"
        other = asyncio.ensure_future(wait_for(Measured(handler(asyncio.Event()), meter)))
        await asyncio.sleep(0)
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other

    async def wait_for(measured: Measured[str]) -> str:
        return await measured

    asyncio.run(check())
    (budget,) = broker.quotas.request._budgets.values()
    assert budget[0] == pytest.approx(10 - 100 * (0.05 + 0.07 + 0.05 + 0.03))


WITHOUT_FIELD = {ApiKey.DESCRIBE_QUORUM, ApiKey.WRITE_TXN_MARKERS}


def versions() -> list[tuple[int, int]]:
    return [(int(key), version) for key, span in SPOKEN.items() for version in (span.min, span.max)]


@pytest.mark.parametrize(("api", "version"), versions())
def test_every_api_tells_the_time_where_its_answer_has_a_field(api: int, version: int) -> None:
    """As Kafka's RequestQuotaTest asks each API under a tiny quota."""
    if api in EXEMPT or api in (ApiKey.PRODUCE, ApiKey.FETCH):
        return  # these tell none, and the two have codecs of their own
    broker = Broker((CLIENT, "request_percentage", 0.0001))
    meter, muted = meter_of(broker.request(api))
    broker.spent_s += 1
    meter.took()
    assert muted == [1000]
    response = build(response_type(api, version), {})
    told = meter.told(response, api, version, 7)
    has_field = "throttle_time" in {*type(response).__dataclass_fields__}
    assert has_field == (told is not response)
    assert has_field or api in WITHOUT_FIELD or version == SPOKEN[ApiKey(api)].min
    frame = encode_response(7, response)  # and one that came from the controller
    answer = meter.told(frame, api, version, 7)
    assert answer[4:8] == frame[4:8]
    _, begin = parse_response_header(api, version, memoryview(answer)[4:])
    decoded = decode_response(api, version, memoryview(answer)[4 + begin :])
    assert decoded == told


def test_what_the_controller_tells_counts_where_it_is_more() -> None:
    broker = Broker((CLIENT, "producer_byte_rate", 10))
    meter, muted = meter_of(broker.request(19))
    response = build(response_type(19, 7), {"throttle_time": 700})
    frame = encode_response(7, response)
    assert meter.told(frame, 19, 7, 7) == frame
    assert (muted, meter.throttle_ms) == ([700], 700)


def test_partitions_that_come_and_go_are_a_budget_of_the_controllers() -> None:
    broker = Broker((CLIENT, "controller_mutation_rate", 2), controller_quota_window_num="2")
    assert broker.quotas.mutate("u", "c", 4) == 0
    assert broker.quotas.mutation_delay_ms("u", "c") == 0
    assert broker.quotas.mutate("u", "c", 3) == 1500
    assert broker.quotas.mutation_delay_ms("u", "c") == 1500
    assert broker.quotas.mutate("u", "other", 1000) == 0


def test_a_quota_that_is_taken_away_counts_no_more() -> None:
    broker = Broker((CLIENT, "producer_byte_rate", 10))
    assert broker.request()[0].meter is not None
    broker.tell()
    assert not broker.quota_view.limits_clients
    assert broker.request()[0].meter is None


# -- connections -----------------------------------------------------------------------------------------------


def frame_of(correlation: int) -> bytes:
    content = b"\0\x12\0\0" + correlation.to_bytes(4, "big") + b"\0\1t"
    return len(content).to_bytes(4, "big") + content


def test_a_muted_connection_starts_no_request_until_the_time_is_over() -> None:
    async def check() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        started: list[tuple[int, float]] = []

        def dispatch(exchange: Exchange) -> None:
            started.append((exchange.header.correlation_id, loop.time()))
            if len(started) == 1:
                exchange.connection.mute(150)
                exchange.connection.mute(50)  # the longer one counts
            exchange.finish([b"\0\0\0\4" + exchange.header.correlation_id.to_bytes(4, "big")])

        listener: Any = SimpleNamespace(name="PLAINTEXT")
        connection = Connection(ours, ("h", 1), loop, BufferPool(), dispatch, lambda _: None, 1 << 20, listener)
        await loop.sock_sendall(theirs, frame_of(1) + frame_of(2))
        async with asyncio.timeout(DEADLINE_S):
            assert len(await loop.sock_recv(theirs, 8)) == 8, "it is answered at once"
            assert len(started) == 1
            await loop.sock_sendall(theirs, frame_of(3))
            await until(lambda: len(started) == 3)
        assert [number for number, _ in started] == [1, 2, 3]
        assert started[1][1] - started[0][1] >= 0.149
        connection.mute(10_000)
        connection.close(None)
        connection.mute(10)
        theirs.close()

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - the loop's own turns are waited for
            await asyncio.sleep(0)

    asyncio.run(check())
