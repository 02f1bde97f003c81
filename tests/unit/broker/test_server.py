"""The listener: what it does when it cannot accept."""

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker.bounded_lines import BoundedLines
from holdfast.broker.server import Server
from holdfast.model.listeners import ListenerUse
from holdfast.security.connection_limits import ConnectionLimits
from tests.unit.broker.conftest import EVERYTHING

DEADLINE_S = 10


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - it is the code under test that has no event to wait for
            await asyncio.sleep(0)


def a_server(limits: ConnectionLimits, *, max_idle_ms: int = 60_000, **given: Any) -> Server:
    """One that answers nothing."""
    return Server(dispatch=lambda _: None, on_close=lambda _: None, max_frame_bytes=1000, limits=limits,
                  max_idle_ms=max_idle_ms, **given)  # fmt: skip


def test_a_listener_without_file_descriptors_tries_again_later() -> None:
    asyncio.run(_without_file_descriptors())


async def _without_file_descriptors() -> None:
    server = a_server(ConnectionLimits(connections=10))
    port = server.bind("127.0.0.1", 0, EVERYTHING)
    server.start()
    loop = asyncio.get_running_loop()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = [socket.socket() for _ in range(2)]
    try:
        for client in clients:
            client.setblocking(False)
        next_free = os.dup(0)
        os.close(next_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, hard))
        for client in clients:
            await loop.sock_connect(client, ("127.0.0.1", port))
        (listener,) = server._listeners
        await until(lambda: listener.timer is not None)
        assert not server.connections
        assert not loop.remove_reader(listener.sock.fileno()), "it would ask again and again"
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        listener.again()
        await until(lambda: len(server.connections) == len(clients))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        server.close()
        for client in clients:
            client.close()


def test_connections_of_the_controller_are_not_closed_for_being_idle() -> None:
    asyncio.run(_idle())


async def _idle() -> None:
    server = a_server(ConnectionLimits(connections=10), max_idle_ms=0)
    port = server.bind("127.0.0.1", 0, EVERYTHING)
    server.start()
    loop = asyncio.get_running_loop()
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
    await until(lambda: len(server.connections) == 2)
    lasting, idle = server.connections
    lasting.is_lasting = True
    await until(lambda: loop.time() > max(lasting.idle_since, idle.idle_since))
    server._close_idle()
    assert list(server.connections) == [lasting]
    server.close()
    for client in clients:
        client.close()


def test_clients_wait_until_they_are_let_in_and_brokers_do_not() -> None:
    asyncio.run(_clients_wait())


async def _clients_wait() -> None:
    """What the cluster has stored for a listener of clients is told by that of brokers."""
    clients = ListenerUse(name="CLIENTS", for_brokers=False, for_operators=True)
    server = a_server(ConnectionLimits())
    outside, inside = (server.bind("127.0.0.1", 0, use) for use in (clients, EVERYTHING))
    server.start()
    made = [socket.create_connection(("127.0.0.1", port)) for port in (outside, inside)]
    try:
        await until(lambda: bool(server.connections))
        for _ in range(20):
            await asyncio.sleep(0)
        assert [c.listener.name for c in server.connections] == ["PLAINTEXT"]
        server.let_clients_in()
        await until(lambda: [c.listener.name for c in server.connections] == ["PLAINTEXT", "CLIENTS"])
    finally:
        server.close()
        server.let_clients_in()  # it ended meanwhile
        for client in made:
            client.close()


def test_a_connection_knows_its_listener_and_clients_keep_no_broker_out() -> None:
    asyncio.run(_two_listeners())


async def _two_listeners() -> None:
    clients = ListenerUse(name="CLIENTS", for_brokers=False, for_operators=False)
    server = a_server(ConnectionLimits(connections=2), max_idle_ms=60_000)
    outside, inside = (server.bind("127.0.0.1", 0, use) for use in (clients, EVERYTHING))
    server.start()
    server.let_clients_in()
    made = []

    async def connect(port: int, then: list[str]) -> None:
        made.append(socket.create_connection(("127.0.0.1", port)))
        await until(lambda: [c.listener.name for c in server.connections] == then)

    await connect(outside, ["CLIENTS"])
    await connect(outside, ["CLIENTS", "CLIENTS"])
    first = next(iter(server.connections))
    await connect(inside, ["CLIENTS", "PLAINTEXT"])  # the place of the client that has been idle the longest
    assert first.closed
    refused = socket.create_connection(("127.0.0.1", outside))
    made.append(refused)
    refused.setblocking(False)
    async with asyncio.timeout(DEADLINE_S):
        assert await asyncio.get_running_loop().sock_recv(refused, 1) == b""
    await connect(inside, ["PLAINTEXT", "PLAINTEXT"])
    made.append(socket.create_connection(("127.0.0.1", inside)))
    made[-1].setblocking(False)
    async with asyncio.timeout(DEADLINE_S):
        assert await asyncio.get_running_loop().sock_recv(made[-1], 1) == b"", "brokers are limited too"
    server.stop_accepting()
    for port in (outside, inside):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
    server.close()
    for sock in made:
        sock.close()


async def ended(sock: socket.socket) -> None:
    """Its peer closes it."""
    sock.setblocking(False)
    async with asyncio.timeout(DEADLINE_S):
        assert await asyncio.get_running_loop().sock_recv(sock, 1) == b""


def test_an_address_has_as_many_connections_as_it_may_and_not_one_more() -> None:
    asyncio.run(_per_address())


async def _per_address() -> None:
    server = a_server(ConnectionLimits(per_ip=3, overrides={"127.0.0.3": 1}))
    port = server.bind("127.0.0.1", 0, EVERYTHING)
    server.start()
    made: list[socket.socket] = []

    async def connect(source: str, there: int) -> None:
        made.append(socket.create_connection(("127.0.0.1", port), source_address=(source, 0)))
        await until(lambda: len(server.connections) == there)

    for there, source in enumerate(("127.0.0.2",) * 3 + ("127.0.0.3",), 1):
        await connect(source, there)
    for source in ("127.0.0.2", "127.0.0.3"):
        await connect(source, 4)
        await ended(made[-1])
    made[0].close()
    await until(lambda: len(server.connections) == 3)
    await connect("127.0.0.2", 4)
    await connect("127.0.0.2", 4)
    await ended(made[-1])
    server.close()
    for sock in made:
        sock.close()


def test_an_address_is_the_same_by_either_protocol() -> None:
    asyncio.run(_both_protocols())


async def _both_protocols() -> None:
    def both(host: str, port: int) -> socket.socket:
        sock = socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
        sock.setblocking(False)
        return sock

    server = a_server(ConnectionLimits(per_ip=1), listen=both)
    port = server.bind("::", 0, EVERYTHING)
    server.start()
    first, second = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
    await ended(second)
    (connection,) = server.connections
    assert connection.peer[0] == "127.0.0.1"
    server.close()
    for sock in (first, second):
        sock.close()


def test_an_address_is_spelled_as_kafka_tells_it() -> None:
    asyncio.run(_spelled())


async def _spelled() -> None:
    def listen(host: str, port: int) -> socket.socket:
        sock = socket.create_server((host, port), family=socket.AF_INET6)
        sock.setblocking(False)
        return sock

    server = a_server(ConnectionLimits(), listen=listen)
    port = server.bind("::1", 0, EVERYTHING)
    server.start()
    sock = socket.create_connection(("::1", port))
    await until(lambda: len(server.connections) == 1)
    (connection,) = server.connections
    assert connection.peer[0] == "0:0:0:0:0:0:0:1"
    server.close()
    sock.close()


def test_over_its_rate_a_listener_accepts_none_until_the_rate_is_back() -> None:
    asyncio.run(_over_the_rate())


async def _over_the_rate() -> None:
    server = a_server(ConnectionLimits(rate=1))
    port = server.bind("127.0.0.1", 0, EVERYTHING)
    server.start()
    made = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
    (listener,) = server._listeners
    await until(lambda: listener.timer is not None)
    assert len(server.connections) == 10, "the burst of a start; one waits, accepted, and one in the backlog"
    assert not asyncio.get_running_loop().remove_reader(listener.sock.fileno())
    listener.again()
    await until(lambda: len(server.connections) == 11)
    server.stop_accepting()
    listener.again()
    assert len(server.connections) == 11
    server.close()
    for sock in made:
        sock.close()


def test_an_address_over_its_rate_is_kept_waiting_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.broker.server.MOST_HELD", 2)
    asyncio.run(_rate_of_an_address())


async def _rate_of_an_address() -> None:
    loop = asyncio.get_running_loop()
    server = a_server(ConnectionLimits(), ip_rate=lambda host: 0.1 if host == "127.0.0.7" else None)
    port = server.bind("127.0.0.1", 0, EVERYTHING)
    server.start()
    made = [socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.7", 0)) for _ in range(4)]
    await until(lambda: len(server._held) == 2)
    await ended(made[3])
    assert len(server.connections) == 1
    made.append(socket.create_connection(("127.0.0.1", port)))
    await until(lambda: len(server.connections) == 2)
    began_s = loop.time()
    await ended(made[1])
    assert loop.time() - began_s > 0.5, "a second, but for what has passed before"
    await ended(made[2])
    assert not server._held
    server.close()
    for sock in made:
        sock.close()


def test_a_lower_limit_closes_who_has_been_idle_the_longest() -> None:
    asyncio.run(_lower_limit())


async def _lower_limit() -> None:
    server = a_server(ConnectionLimits())
    port = server.bind("127.0.0.1", 0, EVERYTHING)
    server.start()
    made = []
    for there in range(1, 6):
        made.append(socket.create_connection(("127.0.0.1", port)))
        await until(lambda there=there: len(server.connections) == there)  # type: ignore[misc]
    first, *_, last = there_before = list(server.connections)
    first.is_lasting = True
    server.limit(ConnectionLimits(connections=2))
    await until(lambda: len(server.connections) == 2)
    assert list(server.connections) == [first, last] == [c for c in there_before if not c.closed]
    server.close()
    for sock in made:
        sock.close()


def test_refusals_are_told_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    lines = BoundedLines(logging.getLogger("test"), "connections were refused")
    for number in range(25):
        lines.warning("refused %d", number)
    lines.turn()
    lines.turn()
    assert [record.getMessage() for record in caplog.records] == [
        *(f"refused {number}" for number in range(10)), "15 more connections were refused",
    ]  # fmt: skip


def test_lines_of_strangers_are_short_and_are_one_each(caplog: pytest.LogCaptureFixture) -> None:
    BoundedLines(logging.getLogger("test"), "x").warning("%s:%d closed: %s", "a\nb", 5, "long" * 10_000)
    (line,) = caplog.messages
    assert line.startswith("a b:5 closed: longlong") and line.endswith("... (40000 characters)") and len(line) < 1100
