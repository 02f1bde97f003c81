"""Connections of a console's server that ask nothing, ask slowly, or do not take their answer: real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from holdfast.console.connections import ConsoleProtocol, protocol_of
from tests.turns import read_to_end, until

MOST = 10
ASKS = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
END = b"here\r\n0\r\n\r\n"
"""Of an answer."""
LONG = 64 << 20
"""Bytes of an answer that no socket takes whole."""
DEADLINE_S = 20.0
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """``/form`` reads what is sent; ``/held`` is answered when the connection ends; ``/long`` is long."""
    path = scope["path"]
    if path == "/form":
        while (await receive()).get("more_body"):
            pass
    if path == "/held":
        while (await receive())["type"] != "http.disconnect":
            pass
    body = bytes(LONG) if path == "/long" else b"here"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


class Served:
    """A server as a console has it. ``limits``: times in the place of its own."""

    def __init__(self, **limits: float) -> None:
        self.state = ServerState()
        kind = protocol_of(**limits)
        self.waiting: dict[ConsoleProtocol, None] = kind.waiting
        config = uvicorn.Config(answer, http=kind, lifespan="off", limit_concurrency=MOST, log_config=None)
        self.make = partial(kind, config=config, server_state=self.state, app_state={})
        self.port = 0

    @property
    def connections(self) -> set[Any]:
        return self.state.connections

    async def open(self, data: bytes = b"") -> Pair:
        """A connection that the server knows of, with what was sent on it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer

    async def asks(self, data: bytes = ASKS) -> bytes:
        reader, writer = await self.open(data)
        found = await reader.readuntil(END)
        writer.close()
        return found


@asynccontextmanager
async def serving(served: Served) -> AsyncIterator[Served]:
    server = await asyncio.get_running_loop().create_server(served.make, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for each in list(served.connections):
            each.transport.abort()


def run(check: Callable[[Served], Coroutine[Any, Any, None]], **limits: float) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), serving(Served(**limits)) as served:
            await check(served)

    asyncio.run(main())


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHo", b"POST /form HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na"]
)
def test_connections_that_ask_nothing_make_room_for_those_that_ask(sent: bytes) -> None:
    async def check(served: Served) -> None:
        silent = []
        for _ in range(5 * MOST):
            silent.append(await served.open(sent))
            assert (await served.asks()).startswith(b"HTTP/1.1 200")
        assert len(served.connections) <= MOST
        for pair in silent[: 3 * MOST]:
            assert await read_to_end(pair) == b"", "the oldest went"

    run(check)


def test_a_connection_that_is_answered_stays() -> None:
    async def check(served: Served) -> None:
        held = [await served.open(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(MOST - 2)]
        await until(lambda: len(served.state.tasks) == len(held))
        silent = [await served.open(b"G") for _ in range(3 * MOST)]
        assert (await served.asks()).startswith(b"HTTP/1.1 200")
        await read_to_end(silent[0])
        assert len(served.state.tasks) == len(held)
        more = [await served.open(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(2)]
        assert b"503" in await more[1][0].readline(), "there are no others that could go"

    run(check)


def test_a_request_has_its_time() -> None:
    """A letter now and then does not make it longer, and neither does a request that was answered before."""

    async def check(served: Served) -> None:
        begun_s = time.monotonic()
        for before in (b"", ASKS):
            reader, writer = await served.open(before)
            if before:
                await reader.readuntil(END)
            writer.write(b"POST /form HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")

            def drips(writer: asyncio.StreamWriter = writer, reader: asyncio.StreamReader = reader) -> bool:
                if not writer.is_closing():
                    writer.write(b"a")
                return reader.at_eof() or reader.exception() is not None

            await until(drips)
        assert time.monotonic() - begun_s >= 0.4
        assert await read_to_end(await served.open()) == b""
        await until(lambda: not served.connections and not served.waiting)

    run(check, whole_s=0.2)


def test_requests_in_time_are_answered_one_after_the_other() -> None:
    async def check(served: Served) -> None:
        reader, writer = await served.open()
        limit_s = time.monotonic() + 1.0
        while time.monotonic() < limit_s:
            writer.write(b"POST /form HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nform")
            assert (await reader.readuntil(END)).startswith(b"HTTP/1.1 200")
        writer.close()

    run(check, whole_s=0.3)


def test_an_answer_that_nobody_takes_is_given_up_and_one_that_is_taken_slowly_is_not() -> None:
    async def check(served: Served) -> None:
        reader, writer = await served.open(b"GET /long HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await until(lambda: any(each._stuck for each in served.connections))
        (answers,) = served.connections
        size = 0
        for _ in range(3):  # a part of it between two looks
            before = answers._stuck
            for _ in range(0, LONG // 5, 1 << 16):
                size += len(await reader.readexactly(1 << 16))
            await until(lambda before=before: answers._stuck is not before)
        assert answers in served.connections and size < LONG
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: not served.connections)
        assert not served.waiting

    run(check, taken_s=0.5)
