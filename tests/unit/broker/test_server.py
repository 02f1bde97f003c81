"""The listener: what it does when it cannot accept."""

import asyncio
import os
import resource
import socket
from collections.abc import Callable

import pytest

from holdfast.broker.server import Server
from holdfast.model.listeners import ListenerUse
from tests.unit.broker.conftest import EVERYTHING

DEADLINE_S = 10


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - it is the code under test that has no event to wait for
            await asyncio.sleep(0)


def test_a_listener_without_file_descriptors_tries_again_later() -> None:
    asyncio.run(_without_file_descriptors())


async def _without_file_descriptors() -> None:
    server = Server(
        dispatch=lambda _: None, on_close=lambda _: None, max_frame_bytes=1000, max_connections=10, max_idle_ms=1000
    )
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
    server = Server(dispatch=lambda _: None, on_close=lambda _: None, max_frame_bytes=1000, max_connections=10,
                    max_idle_ms=0)  # fmt: skip
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


def test_a_connection_knows_its_listener_and_clients_keep_no_broker_out() -> None:
    asyncio.run(_two_listeners())


async def _two_listeners() -> None:
    clients = ListenerUse(name="CLIENTS", for_brokers=False, for_operators=False)
    server = Server(dispatch=lambda _: None, on_close=lambda _: None, max_frame_bytes=1000, max_connections=2,
                    max_idle_ms=60_000)  # fmt: skip
    outside, inside = (server.bind("127.0.0.1", 0, use) for use in (clients, EVERYTHING))
    server.start()
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
