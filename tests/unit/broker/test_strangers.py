"""Connections that have not logged in, and requests that do not go on: real sockets, and a clock that the test has."""

from __future__ import annotations

import asyncio
import functools
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.broker.connection import Connection
from holdfast.broker.exchange import Exchange
from holdfast.broker.server import Server
from holdfast.broker.strangers import MOST_REQUESTS, StrangerLimits
from holdfast.broker.unfinished import LEAST_BYTES_S
from holdfast.model.config import BrokerConfig
from holdfast.model.listeners import ListenerUse, SecurityProtocol
from holdfast.security.connection_limits import ConnectionLimits
from tests.turns import until
from tests.unit.broker.conftest import EVERYTHING

LOGIN = ListenerUse(
    name="SASL", for_brokers=False, for_operators=False, security_protocol=SecurityProtocol.SASL_PLAINTEXT
)


class Door:
    """A server with a listener that asks for a login and one that does not. ``later`` moves its clock on, and has it
    look at its connections."""

    def __init__(self, limits: StrangerLimits, *, most_bytes: int = 200 << 20) -> None:
        self._passed_s = 0.0
        asyncio.get_running_loop().time = lambda: time.monotonic() + self._passed_s  # type: ignore[method-assign]
        self.requests: list[Exchange] = []
        self.server = Server(
            dispatch=self.requests.append, on_close=lambda _: None, max_frame_bytes=most_bytes,
            limits=ConnectionLimits(), max_idle_ms=10**9, strangers=limits, patience_s=30,
        )  # fmt: skip
        self.sasl, self.plain = (self.server.bind("127.0.0.1", 0, use) for use in (LOGIN, EVERYTHING))
        self.server.start()
        self.server.let_clients_in()
        self.clients: list[socket.socket] = []

    async def connect(self, port: int, data: bytes = b"") -> Connection:
        """A client that has sent so much; its connection."""
        there = len(self.server.connections)
        client = socket.create_connection(("127.0.0.1", port))
        self.clients.append(client)
        before = set(self.server.connections)
        await until(lambda: set(self.server.connections) - before or len(self.server.connections) < there)
        (connection,) = set(self.server.connections) - before
        if data:
            await self.send(client, connection, data)
        return connection

    async def send(self, client: socket.socket, connection: Connection, data: bytes) -> None:
        """And wait until it is there."""
        begun = (connection.unfinished_bytes or 0) + len(self.requests)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_sendall(client, data)
        await until(lambda: connection.closed or (connection.unfinished_bytes or 0) + len(self.requests) > begun)

    async def later(self, seconds: float) -> None:
        """The clock goes on, and the server looks four times a second."""
        for _ in range(round(seconds * 4)):
            self._passed_s += 0.25
            self.server.look()
            await asyncio.sleep(0)

    def close(self) -> None:
        self.server.close()
        for client in self.clients:
            client.close()


def at_the_door(
    **limits: Any,
) -> Callable[[Callable[[Door], Awaitable[None]]], Callable[[], None]]:
    def of(test: Callable[[Door], Awaitable[None]]) -> Callable[[], None]:
        @functools.wraps(test)
        def run() -> None:
            async def on_a_loop() -> None:
                door = Door(StrangerLimits(**limits))
                try:
                    await test(door)
                finally:
                    door.close()

            asyncio.run(on_a_loop())

        del run.__wrapped__  # type: ignore[attr-defined]  # its parameter is no fixture
        return run

    return of


def announced(size: int, data: bytes = b"") -> bytes:
    return struct.pack(">i", size) + data


def request(body: bytes = b"") -> bytes:
    header = struct.pack(">hhih", 17, 1, 7, -1)
    return announced(len(header) + len(body), header + body)


def test_the_keys() -> None:
    assert StrangerLimits.of(BrokerConfig()) == StrangerLimits()
    given = {
        "connections.login.timeout.ms": "1500", "connections.login.max": "7", "connections.login.max.bytes": "8",
        "sasl.server.max.receive.size": "9",
    }  # fmt: skip
    assert StrangerLimits.of(BrokerConfig.parse(given)) == StrangerLimits(
        seconds=1.5, connections=7, request_bytes=8, frame_bytes=9
    )


@at_the_door()
async def test_answers_do_not_wait_for_more_of_them(door: Door) -> None:
    """Nagle's algorithm is off for what is accepted; a login has several small answers."""
    for port in (door.sasl, door.plain):
        connection = await door.connect(port)
        assert connection._channel.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@at_the_door()
async def test_who_has_not_logged_in_after_ten_seconds_is_closed(door: Door) -> None:
    silent = await door.connect(door.sasl)
    slow = await door.connect(door.sasl, b"\0")
    asked = await door.connect(door.sasl, request())
    known = await door.connect(door.sasl)
    plain = await door.connect(door.plain)
    known.known()
    await door.later(9)
    assert len(door.server.strangers) == 3
    assert not any(each.closed for each in (silent, slow, asked))
    await door.later(1.25)
    assert all(each.closed for each in (silent, slow, asked))
    assert list(door.server.connections) == [known, plain]
    assert (len(door.server.strangers), door.server.strangers.request_bytes) == (0, 0)


@at_the_door(connections=3)
async def test_where_there_are_too_many_the_oldest_goes(door: Door) -> None:
    first, second, third = [await door.connect(door.sasl) for _ in range(3)]
    second.known()
    fourth = await door.connect(door.sasl)
    assert not first.closed, "who has logged in does not count"
    fifth = await door.connect(door.sasl)
    assert list(door.server.connections) == [second, third, fourth, fifth]


@at_the_door()
async def test_CVE_2022_34917_a_large_frame_of_a_stranger_closes_at_once(door: Door) -> None:
    good = await door.connect(door.sasl, announced(512 << 10, b"x"))
    assert not good.closed
    assert (await door.connect(door.sasl, announced((512 << 10) + 1))).closed
    known = await door.connect(door.sasl)
    known.known()
    await door.send(door.clients[-1], known, announced(100 << 20, b"x"))
    assert not known.closed
    assert not (await door.connect(door.plain, announced(100 << 20, b"x"))).closed


@at_the_door(request_bytes=100_000)
async def test_all_strangers_together_have_so_many_bytes_and_who_sent_the_most_goes(door: Door) -> None:
    strangers = door.server.strangers
    little = [await door.connect(door.sasl, announced(50_000, bytes(3_000))) for _ in range(5)]
    await until(lambda: strangers.request_bytes == 5 * 3_004)
    much = await door.connect(door.sasl, announced(50_000, bytes(47_000)))
    await until(lambda: strangers.request_bytes == 5 * 3_004 + 47_004)
    unknown = await door.connect(door.sasl, announced(50_000, bytes(40_000)))
    await until(lambda: much.closed)
    await until(lambda: strangers.request_bytes == 5 * 3_004 + 40_004)
    assert not any(each.closed for each in (*little, unknown))
    unknown.known()
    assert strangers.request_bytes == 5 * 3_004, "not theirs any more"
    door.clients[0].close()
    await until(lambda: strangers.request_bytes == 4 * 3_004)


@at_the_door(request_bytes=100_000)
async def test_requests_that_are_not_answered_count_too(door: Door) -> None:
    asked = await door.connect(door.sasl, request(bytes(30_000)))
    await until(lambda: len(door.requests) == 1)
    await until(lambda: door.server.strangers.request_bytes == 30_010)
    door.requests[0].finish([b"x"])
    assert asked.held_bytes == 0
    for _ in range(2):
        await door.connect(door.sasl, announced(50_000, bytes(45_000)))
    await until(lambda: door.server.strangers.request_bytes == 2 * 45_004)
    assert not asked.closed, "what was answered is forgotten when it matters"


@at_the_door(request_bytes=1_000_000)
async def test_answers_that_are_not_taken_count_too(door: Door) -> None:
    """A few bytes of a question, and many of an answer that the client never reads."""
    asked = await door.connect(door.sasl)
    for number in range(MOST_REQUESTS):
        if asked.closed:
            break
        door.clients[0].sendall(request())
        await until(lambda number=number: asked.closed or len(door.requests) == number + 1)  # type: ignore[misc]
        if not asked.closed:
            door.requests[-1].finish([bytes(1_000_000)])
    assert asked.closed
    assert door.server.strangers.request_bytes == 0


@at_the_door()
async def test_a_login_takes_no_more_than_so_many_requests(door: Door) -> None:
    """Each is cheap to ask, and dear to answer."""
    many, few = [await door.connect(door.sasl) for _ in range(2)]
    for number, client in ((MOST_REQUESTS, door.clients[0]), (MOST_REQUESTS - 1, door.clients[1])):
        for _ in range(number):
            client.sendall(request())
            await until(lambda: door.requests)
            door.requests.pop().finish([])
    few.known()
    for client in door.clients:
        client.sendall(request())
    await until(lambda: many.closed and door.requests)
    assert door.requests.pop().connection is few
    assert not few.closed


@at_the_door()
async def test_a_request_that_does_not_go_on_is_given_up(door: Door) -> None:
    """100 MB announced, and a byte a second; beside it who sends a whole one, and another, and nothing."""
    slow = await door.connect(door.plain, announced(100 << 20, b"x"))
    header = await door.connect(door.plain, b"\0\0")
    idle = await door.connect(door.plain)
    good = await door.connect(door.plain)
    sender = door.clients[0]
    for _ in range(29):
        await door.later(1)
        await door.send(sender, slow, b"x")
        door.clients[3].sendall(request())
        await until(lambda: door.requests)
        door.requests.pop().finish([])
        await until(lambda: not good.held_bytes)
    assert not slow.closed
    assert not header.closed
    await door.later(2)
    assert slow.closed
    assert header.closed
    assert list(door.server.connections) == [idle, good]
    assert len(door.server._unfinished) == 0


@at_the_door()
async def test_one_that_goes_on_slowly_is_let(door: Door) -> None:
    """A megabyte on a line of twice the least rate takes its eight minutes."""
    slow = await door.connect(door.plain, announced(1 << 20, bytes(100)))
    for _ in range(100):
        await door.send(door.clients[0], slow, bytes(5 * 2 * LEAST_BYTES_S))
        await door.later(5)
        assert not slow.closed


@at_the_door()
async def test_what_waits_in_the_socket_counts(door: Door) -> None:
    """Within a large request TLS is not woken for a little (channel.py)."""
    slow = await door.connect(door.plain, announced(1 << 20, bytes(100)))
    slow._channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 512 << 10)
    door.clients[0].setblocking(False)
    for _ in range(20):
        await asyncio.get_running_loop().sock_sendall(door.clients[0], bytes(5 * 2 * LEAST_BYTES_S))
        await door.later(5)
        assert not slow.closed
    await door.later(150)
    assert slow.closed


@at_the_door()
async def test_a_rate_that_falls_is_seen(door: Door) -> None:
    slow = await door.connect(door.plain, announced(1 << 20, bytes(60 * LEAST_BYTES_S)))
    await door.later(89)
    assert not slow.closed, "what came first counts"
    await door.later(2)
    assert slow.closed


@at_the_door()
async def test_what_the_broker_does_not_read_is_no_fault_of_the_client(door: Door) -> None:
    busy = await door.connect(door.plain, request())
    await until(lambda: len(door.requests) == 1)
    door.clients[0].sendall(request()[:9])
    await until(lambda: not busy._reading)
    await door.later(40)
    assert not busy.closed
    door.requests[0].finish([])
    await until(lambda: busy.unfinished_bytes == 9)
    await door.later(29)
    assert not busy.closed, "its time begins when it is read"
    await door.later(2)
    assert busy.closed


@at_the_door()
async def test_a_connection_of_the_controller_is_not_closed(door: Door) -> None:
    lasting = await door.connect(door.plain, announced(1000, b"x"))
    lasting.is_lasting = True
    await door.later(60)
    assert not lasting.closed


@at_the_door()
async def test_many_connections_are_looked_at_in_several_turns(
    door: Door,
) -> None:
    before = [await door.connect(door.plain, b"\0") for _ in range(5)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("holdfast.broker.server.LOOK_BATCH", 2)
        await door.later(31)
        await until(lambda: all(each.closed for each in before))
