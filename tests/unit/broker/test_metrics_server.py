"""The port of metrics and health, and connections that ask nothing or take nothing: real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker import metrics_server
from holdfast.broker.metrics_server import MAX_ASKING, MAX_SILENT, MetricsServer
from tests.turns import read_to_end, until

LIVE = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
LONG = 8 << 20
"""Bytes of a page that no socket takes whole, where the other side has little room."""
DEADLINE_S = 20.0
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Port:
    """Of a broker of which nothing is there yet but its loop."""

    def __init__(self) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.port = self._sock.getsockname()[1]
        platform = SimpleNamespace(listen=lambda host, port: self._sock)
        self.broker: Any = SimpleNamespace(loop=asyncio.get_running_loop(), platform=platform, meters=None)
        self.server = MetricsServer(self.broker, "127.0.0.1", self.port)

    async def open(self, data: bytes = b"") -> Pair:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 16)
        writer.write(data)
        return reader, writer

    async def stuck(self) -> Pair:
        """One that asks for a page and takes nothing of it."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=sock)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(METRICS)
        return reader, writer

    async def asks(self, data: bytes) -> bytes:
        reader, writer = await self.open(data)
        found = await reader.read()
        writer.close()
        return found.partition(b"\r\n")[0]

    def is_made(self, page: bytes | None) -> None:
        """The page of metrics; None: it is being made."""
        made: asyncio.Future[bytes] = self.broker.loop.create_future()
        if page is not None:
            made.set_result(page)
        self.server._page = made  # type: ignore[assignment]
        self.server._made_s = self.broker.loop.time() + DEADLINE_S
        self.server.open()


def run(check: Callable[[Port], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        port = Port()
        port.server.start()
        try:
            async with asyncio.timeout(2 * DEADLINE_S):
                await check(port)
        finally:
            port.server.close()

    asyncio.run(main())


@pytest.mark.parametrize("sent", [b"", b"GET /"])
def test_connections_that_ask_nothing_keep_no_probe_from_its_answer(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "SILENT_S", 10 * DEADLINE_S)

    async def check(port: Port) -> None:
        silent = []
        for number in range(MAX_SILENT + 40):
            silent.append(await port.open(sent))
            if number % 20 == 0:
                assert await port.asks(LIVE) == b"HTTP/1.1 200 OK", number
        assert await read_to_end(silent[0]) == b"", "the oldest went"
        assert await port.asks(LIVE) == b"HTTP/1.1 200 OK"
        assert len(port.server._silent) <= MAX_SILENT

    run(check)


def test_a_connection_that_asks_nothing_is_closed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "SILENT_S", 0.1)

    async def check(port: Port) -> None:
        for sent in (b"", b"GET /health/live HTTP/1.1\r\nHo"):
            assert await read_to_end(await port.open(sent)) == b""
        assert not port.server._silent

    run(check)


def test_probes_are_answered_while_pages_are_waited_for() -> None:
    async def check(port: Port) -> None:
        port.is_made(None)
        asking = [await port.open(METRICS) for _ in range(MAX_ASKING)]  # kept: they would be closed otherwise
        await until(lambda: len(port.server._asking) == MAX_ASKING)
        assert await port.asks(METRICS) == b"HTTP/1.1 503 Service Unavailable"
        for _ in range(3):
            assert await port.asks(LIVE) == b"HTTP/1.1 200 OK"
        assert len(port.server._asking) == len(asking)

    run(check)


def test_who_does_not_take_a_page_gives_way_to_who_asks_for_one() -> None:
    async def check(port: Port) -> None:
        port.is_made(bytes(LONG))
        stuck = [await port.stuck() for _ in range(MAX_ASKING)]
        await until(lambda: len(port.server._asking) == MAX_ASKING and all(port.server._asking.values()))
        port.is_made(b"a page\n")
        assert await port.asks(METRICS) == b"HTTP/1.1 200 OK"
        await until(lambda: len(port.server._asking) == len(stuck) - 1)

    run(check)


def test_a_page_that_nobody_takes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_TIMEOUT_S", 0.3)

    async def check(port: Port) -> None:
        port.is_made(bytes(LONG))
        stuck = await port.stuck()
        await until(lambda: port.server._asking)
        writer = next(iter(port.server._asking))
        await until(lambda: not port.server._asking)
        assert not stuck[1].is_closing()
        assert writer.transport.get_write_buffer_size() == 0, "nothing of it is left in memory"

    run(check)


def test_a_head_that_is_too_long_is_refused() -> None:
    async def check(port: Port) -> None:
        head = b"GET / HTTP/1.1\r\nX: " + b"x" * metrics_server.MAX_HEAD_BYTES + b"\r\n\r\n"
        assert await port.asks(head) == b"HTTP/1.1 431 Request Header Fields Too Large"

    run(check)
