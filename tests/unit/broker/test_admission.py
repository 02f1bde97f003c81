"""What a broker answers before it knows anything."""

import asyncio
import socket
import struct

import pytest

from holdfast.broker.admission import ADMITTED, START, Admission, News, Stage
from holdfast.broker.connection import Connection
from holdfast.broker.exchange import BufferPool, Exchange
from holdfast.protocol.apis import ApiKey, is_flexible
from tests.unit.broker.conftest import EVERYTHING, until

Handled = list[tuple[int, bytes]]


def frame(api: int, correlation: int, body: bytes = b"") -> bytes:
    tags = b"\0" if is_flexible(api, 0) else b""
    content = struct.pack(">hhih", api, 0, correlation, 1) + b"t" + tags + body
    return struct.pack(">i", len(content)) + content


class Client:
    """One connection to the gate."""

    def __init__(self, admission: Admission) -> None:
        self.sock, theirs = socket.socketpair()
        for sock in (self.sock, theirs):
            sock.setblocking(False)
        loop = asyncio.get_running_loop()
        self.connection = Connection(
            theirs, ("local", 0), loop, BufferPool(), admission.admit, lambda _: None, 1 << 20, EVERYTHING
        )  # fmt: skip

    def send(self, data: bytes) -> None:
        assert self.sock.send(data) == len(data)

    async def heard(self) -> None:
        """Until the broker's side has read all."""
        await until(lambda: self.connection._running)

    def close(self) -> None:
        self.connection.close(None)
        self.sock.close()


def gate() -> tuple[Admission, Handled]:
    handled: Handled = []

    def dispatch(exchange: Exchange) -> None:
        handled.append((exchange.header.api_key, bytes(exchange.body)))
        exchange.finish([struct.pack(">ii", 4, exchange.header.correlation_id)])

    return Admission(dispatch), handled


def test_clients_wait_until_the_broker_has_been_told_all_there_is() -> None:
    async def check() -> None:
        admission, handled = gate()
        clients = [Client(admission) for _ in range(3)]
        clients[0].send(frame(ApiKey.METADATA, 1, b"first") + frame(ApiKey.METADATA, 2, b"second"))
        clients[1].send(frame(ApiKey.PRODUCE, 1, b"a") + frame(ApiKey.PRODUCE, 2, b"b" * 100_000))
        clients[2].send(frame(ApiKey.API_VERSIONS, 1) + frame(ApiKey.FETCH, 2))
        for client in clients:
            await client.heard()
        await until(lambda: len(admission._waiting) == 4)
        assert handled == [(ApiKey.API_VERSIONS, b"")]
        assert not admission.is_open
        admission.registered()
        assert len(handled) == 1
        clients[2].close()  # who has given up is not handled any more
        admission.open()
        await until(lambda: len(handled) == 5)
        assert admission.is_open
        assert handled[1:] == [
            (ApiKey.METADATA, b"first"),
            (ApiKey.PRODUCE, b"a"),
            (ApiKey.PRODUCE, b"b" * 100_000),
            (ApiKey.METADATA, b"second"),
        ]
        for client in clients:
            client.close()

    asyncio.run(check())


def test_H_09_orders_wait_until_the_broker_knows_its_epoch() -> None:
    async def check() -> None:
        admission, handled = gate()
        controller, broker = Client(admission), Client(admission)
        controller.send(frame(ApiKey.LEADER_AND_ISR, 1) + frame(ApiKey.UPDATE_METADATA, 2))
        broker.send(frame(ApiKey.BROKER_REGISTRATION, 1) + frame(ApiKey.BROKER_HEARTBEAT, 2))
        await until(lambda: len(handled) == 2 and admission._waiting)
        assert [api for api, _ in handled] == [ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT]
        admission.registered()
        await until(lambda: len(handled) == 4)
        assert [api for api, _ in handled[2:]] == [ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA]
        controller.close()
        broker.close()

    asyncio.run(check())


@pytest.mark.parametrize("news", News)
@pytest.mark.parametrize("stage", Stage)
def test_a_start_goes_by_its_table(stage: Stage, news: News) -> None:
    """Every stage, whatever is learned in it; what the table does not have is a bug of the broker."""
    admission, _ = gate()
    for learn in (admission.registered, admission.open)[: list(Stage).index(stage)]:
        learn()
    assert admission.stage is stage
    learn = admission.registered if news is News.EPOCH else admission.open
    if (stage, news) in START.moves:
        learn()
        assert admission.stage is START.moves[stage, news]
    else:
        with pytest.raises(AssertionError, match="expected no METADATA there"):
            learn()
        assert admission.stage is stage
    assert admission.is_open is (ADMITTED[admission.stage] is None) is (admission.stage is Stage.OPEN)


def test_every_stage_is_in_the_table() -> None:
    assert set(START.states()) == set(Stage) == set(ADMITTED)
    assert {news for _, news in START.moves} == set(News)
