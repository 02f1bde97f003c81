"""The listener: what it does when it cannot accept."""

import asyncio
import os
import resource
import socket
from collections.abc import Callable

from holdfast.broker.server import Server

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
    port = server.bind("127.0.0.1", 0)
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
        await until(lambda: server._accept_timer is not None)
        assert not server.connections
        assert server._sock is not None
        assert not loop.remove_reader(server._sock.fileno()), "it would ask again and again"
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        server._accept_again()
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
    port = server.bind("127.0.0.1", 0)
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
