"""How long a broker stays that may shut down."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker import farewell
from holdfast.broker.exchange import Exchange
from holdfast.broker.listening import listen
from holdfast.broker.server import Server
from holdfast.replication.types import Role
from holdfast.security.connection_limits import ConnectionLimits
from tests.unit.broker.conftest import EVERYTHING

REQUEST = bytes.fromhex("0000000b0003000c00000001ffff00")
"""Metadata without a body: only that somebody speaks counts."""


class Leaver:
    """A broker that may go: a server, and one replica."""

    def __init__(self, *, answers: bool = True) -> None:
        self.loop = asyncio.get_running_loop()
        self.replica = SimpleNamespace(role=Role.FOLLOWER)
        self.replicas = SimpleNamespace(partitions={"t-0": self.replica})
        self.heard: asyncio.Queue[Exchange] = asyncio.Queue()
        self._answers = answers
        self.server = Server(
            dispatch=self._dispatch, on_close=lambda _: None, max_frame_bytes=1000,
            limits=ConnectionLimits(connections=10), max_idle_ms=60_000, listen=listen,
        )  # fmt: skip
        self.port = self.server.bind("127.0.0.1", 0, EVERYTHING)
        self.server.start()
        self.client: socket.socket | None = None

    def _dispatch(self, exchange: Exchange) -> None:
        self.heard.put_nowait(exchange)
        if self._answers:
            exchange.finish([b"\0\0\0\0"])

    async def speak(self) -> Any:
        """A client sends a request; the connection that it came by."""
        if self.client is None:
            self.client = socket.create_connection(("127.0.0.1", self.port))
        self.client.sendall(REQUEST)
        return (await self.heard.get()).connection

    def leaves_at_once(self) -> bool:
        waiting = farewell.clients_gone(self)  # type: ignore[arg-type]
        try:
            waiting.send(None)
        except StopIteration:
            return True
        waiting.close()
        return False

    async def stays_s(self) -> float:
        begin = self.loop.time()
        await farewell.clients_gone(self)  # type: ignore[arg-type]
        return self.loop.time() - begin

    def close(self) -> None:
        self.server.close()
        if self.client is not None:
            self.client.close()


def test_nobody_is_waited_for_who_does_not_speak() -> None:
    async def run() -> None:
        broker = Leaver()
        connection = await broker.speak()
        connection.idle_since -= 1
        assert broker.leaves_at_once()
        broker.close()

    asyncio.run(run())


def test_a_client_that_speaks_is_given_time_to_find_its_new_leaders() -> None:
    async def run() -> None:
        broker = Leaver()
        await broker.speak()
        assert await broker.stays_s() >= farewell.QUIET_S - farewell.STEP_S
        broker.close()

    asyncio.run(run())


@pytest.mark.parametrize("whose", ["is_lasting", "follower", "broker"])
def test_brokers_connections_do_not_hold_it(whose: str) -> None:
    async def run() -> None:
        broker = Leaver()
        connection = await broker.speak()
        if whose == "is_lasting":
            connection.is_lasting = True
        else:
            setattr(connection.session, whose, object())
        assert broker.leaves_at_once()
        broker.close()

    asyncio.run(run())


def test_it_stays_until_others_lead_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farewell, "LIMIT_S", 5 * farewell.STEP_S)

    async def run() -> None:
        broker = Leaver()
        broker.replica.role = Role.LEADER
        assert await broker.stays_s() >= farewell.LIMIT_S, "nobody else can lead"
        assert not broker.leaves_at_once()
        broker.replica.role = Role.FOLLOWER
        assert broker.leaves_at_once()
        broker.close()

    asyncio.run(run())


def test_a_fetch_that_waits_counts_until_it_is_answered() -> None:
    async def run() -> None:
        broker = Leaver(answers=False)
        connection = await broker.speak()
        connection.idle_since -= 60
        going = asyncio.ensure_future(broker.stays_s())
        await asyncio.sleep(0)
        [parked] = connection._running
        parked.finish([b"\0\0\0\0"])
        assert await going >= farewell.QUIET_S - farewell.STEP_S
        broker.close()

    asyncio.run(run())
