"""Known clients are served before strangers, who are served too, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast.broker.exchange import Exchange
from holdfast.broker.server import Server
from holdfast.broker.strangers import StrangerLimits
from holdfast.broker.turn_order import KnownFirst, TurnOrder
from holdfast.security.connection_limits import ConnectionLimits
from tests.unit.broker.conftest import EVERYTHING
from tests.unit.broker.test_strangers import LOGIN, request, until


class Ends:
    """Sockets that are ready, and stay so until they are read."""

    def __init__(self, known: int, strangers: int, listening: int = 0) -> None:
        self.order = TurnOrder()
        self.given = 0
        """How often another process had the processor."""
        self.selector = KnownFirst(self.order, self._gave)
        self._pairs = [socket.socketpair() for _ in range(known + strangers + listening)]
        self.fds = []
        for here, there in reversed(self._pairs):  # so that it is no order of numbers
            there.send(b"x")
            self.selector.register(here, selectors.EVENT_READ)
            self.fds.append(here.fileno())
        self.known, last = self.fds[:known], self.fds[known:]
        self.order.strangers.update(last[:strangers])
        self.order.listening.update(last[strangers:])

    def _gave(self) -> None:
        self.given += 1

    def told(self) -> list[int]:
        return [key.fd for key, _ in self.selector.select(0)]

    def read(self, fd: int) -> None:
        for here, _ in self._pairs:
            if here.fileno() == fd:
                here.recv(1)

    def close(self) -> None:
        self.selector.close()
        for pair in self._pairs:
            for each in pair:
                each.close()


@contextlib.contextmanager
def ends(known: int, strangers: int, listening: int = 0) -> Iterator[Ends]:
    made = Ends(known, strangers, listening)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(("known", "strangers", "listening"), [(0, 7, 2), (1, 7, 2), (3, 7, 2), (3, 2, 0), (20, 7, 2)])
def test_known_ones_are_all_told_first_and_then_as_many_strangers(known: int, strangers: int, listening: int) -> None:
    with ends(known, strangers, listening) as made:
        last, told = strangers + listening, Counter[int]()
        for turn in range(1, 100):
            found = made.told()
            assert set(found[:known]) == set(made.known)
            assert 1 <= len(found) - known <= max(1, known)
            told.update(found[known:])
            assert max(told.values()) - min(told[fd] for fd in made.fds[known:]) <= 1, f"turn {turn}: in turn"
        assert len(told) == last, "who listens is one of them"


def test_who_comes_last_and_is_alone_is_told() -> None:
    with ends(0, 1) as made:
        assert [made.told() for _ in range(3)] == [made.fds] * 3


def test_what_a_call_does_not_tell_of_is_told_by_the_next_ones() -> None:
    with ends(2, 6) as made:
        told = list[int]()
        while found := made.told():
            told += found
            for fd in found:
                made.read(fd)
        assert sorted(told) == sorted(made.fds) and set(told[:2]) == set(made.known)


def test_who_was_answered_has_the_processor_before_strangers_have_the_broker() -> None:
    with ends(1, 3) as made:
        made.told()
        assert made.given == 0, "nobody was answered before"
        for fd in made.fds:
            made.read(fd)
        assert made.told() == [] and made.given == 1, "what is ready now is not known yet"
        assert made.told() == [] and made.given == 1, "once"


def test_without_strangers_the_broker_keeps_the_processor() -> None:
    with ends(2, 0, 1) as made:
        for _ in range(3):
            made.told()
        assert made.given == 0


def test_a_server_tells_who_is_strange_until_it_is_known_or_gone() -> None:
    order = TurnOrder()

    async def serve() -> None:
        requests = list[Exchange]()
        server = Server(
            dispatch=requests.append, on_close=lambda _: None, max_frame_bytes=1 << 20, limits=ConnectionLimits(),
            max_idle_ms=10**9, strangers=StrangerLimits(), turn_order=order,
        )  # fmt: skip
        sasl, plain = (server.bind("127.0.0.1", 0, use) for use in (LOGIN, EVERYTHING))
        assert len(order.listening) == 2
        server.start()
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(("127.0.0.1", sasl))) for _ in range(12)]
            known = stack.enter_context(socket.create_connection(("127.0.0.1", plain)))
            await until(lambda: len(server.connections) == 13)
            assert len(order.strangers) == 12
            for client in (*clients, known):
                client.sendall(request())
            await until(lambda: requests)
            assert requests[0].connection.listener is EVERYTHING, "although it came and spoke last"
            await until(lambda: len(requests) == 13)
            logged_in = next(each.connection for each in requests if each.connection.listener is LOGIN)
            logged_in.known()
            assert len(order.strangers) == 11
            logged_in.close(None)
            assert len(order.strangers) == 11
        server.close()
        assert not order.strangers and not order.listening

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(KnownFirst(order))) as runner:
        runner.run(serve())
