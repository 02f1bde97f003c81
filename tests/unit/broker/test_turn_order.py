"""Known clients are served before strangers, who are served too, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from holdfast.broker.exchange import Exchange
from holdfast.broker.server import Server
from holdfast.broker.strangers import StrangerLimits
from holdfast.broker.turn_order import FEW, NEW_A_TURN, REST_S, SEVERAL, KnownFirst, TurnOrder
from holdfast.security.connection_limits import ConnectionLimits
from tests.unit.broker.conftest import EVERYTHING
from tests.unit.broker.test_strangers import LOGIN, request, until


class Ends:
    """Sockets that are ready, and stay so until they are read."""

    def __init__(self, known: int, strangers: int, listening: int = 0) -> None:
        self.given = 0
        """How often another process had the processor."""
        self.now_s, self.looked = 0.0, 0
        """The time, and how often somebody looked at it."""
        self.selector = KnownFirst(self._gave, self._now)
        self._pairs = [socket.socketpair() for _ in range(known + strangers + listening)]
        self.fds = [here.fileno() for here, _ in reversed(self._pairs)]  # so that it is no order of numbers
        self.known, self.strangers = self.fds[:known], self.fds[known : known + strangers]
        self.listening = self.fds[known + strangers :]
        for fd in self.strangers:
            self.selector.is_strange(fd)
        for fd in self.listening:
            self.selector.listens(fd)
        for here, there in self._pairs:
            there.send(b"x")
            self.selector.register(here.fileno(), selectors.EVENT_READ)

    def _gave(self) -> None:
        self.given += 1

    def _now(self) -> float:
        self.looked += 1
        return self.now_s

    def speaks(self, fd: int) -> None:
        for here, there in self._pairs:
            if here.fileno() == fd:
                there.send(b"x")

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


@pytest.mark.parametrize(("known", "strangers", "listening"), [(0, 27, 2), (1, 27, 2), (3, 27, 0), (20, 27, 2)])
def test_known_ones_are_told_first_and_as_many_strangers_last(known: int, strangers: int, listening: int) -> None:
    with ends(known, strangers, listening) as made:
        told = Counter[int]()
        for turn in range(1, 100):
            found = made.told()
            assert set(found[:known]) == set(made.known)
            assert set(found[known : known + listening]) == set(made.listening)
            others = found[known + listening :]
            assert len(others) == min(strangers, max(1, known)) and set(others) <= set(made.strangers)
            told.update(others)
            assert max(told.values()) - min(told[fd] for fd in made.strangers) <= 1, f"turn {turn}: each in turn"


def test_a_few_strangers_are_all_told_and_last() -> None:
    with ends(3, FEW, 1) as made:
        found = made.told()
        assert (set(found[:3]), found[3:4]) == (set(made.known), made.listening)
        assert sorted(found[4:]) == sorted(made.strangers)
        for _ in range(3):
            made.told()
        assert made.given == 0, "they are clients that come back"


def test_of_many_strangers_a_turn_takes_as_long_as_of_a_few() -> None:
    """The loop hears of few, and so does Python."""
    with ends(1, 400) as made:
        assert len(made.selector.select(0)) == 2
        assert len(made.selector._last.poll(0)) == 400


def test_who_has_logged_in_is_a_known_one() -> None:
    with ends(1, 23) as made:
        fd = made.strangers[1]
        made.selector.modify(fd, selectors.EVENT_READ | selectors.EVENT_WRITE, "data")
        made.selector.is_known(fd)
        for _ in range(10):
            found = made.selector.select(0)
            assert {key.fd for key, _ in found[:2]} == {fd, made.known[0]}
            assert {key.fd: (key.data, events) for key, events in found}[fd] == ("data", 3)
        made.selector.modify(fd, selectors.EVENT_READ)
        made.selector.unregister(fd)
        made.selector.is_known(fd)
        assert fd not in made.told()


def test_a_number_that_is_used_again_is_who_has_it_now() -> None:
    with ends(1, 2) as made:
        fd = made.strangers[0]
        made.selector.unregister(fd)
        made.selector.is_known(fd)  # it is gone
        made.selector.register(fd, selectors.EVENT_READ)
        assert all(fd in made.told()[:2] for _ in range(4))


def test_who_comes_last_and_is_alone_is_told() -> None:
    with ends(0, 1) as made:
        assert [made.told() for _ in range(3)] == [made.fds] * 3


def test_what_a_call_does_not_tell_of_is_told_by_the_next_ones() -> None:
    with ends(2, 26) as made:
        told = list[int]()
        while found := made.told():
            told += found
            for fd in found:
                made.read(fd)
        assert len(told) == 28
        assert sorted(told) == sorted(made.fds) and set(told[:2]) == set(made.known)


def test_who_was_answered_has_the_processor_before_strangers_have_the_broker() -> None:
    with ends(1, 23) as made:
        made.told()
        assert made.given == 0, "nobody was answered before"
        for fd in made.fds:
            made.read(fd)
        assert made.told() == [] and made.given == 1, "what is ready now is not known yet"
        assert made.told() == [] and made.given == 1, "once"


def test_silent_strangers_cost_nobody_the_processor() -> None:
    with ends(1, 23) as made:
        for fd in made.strangers:
            made.read(fd)
        for _ in range(5):
            assert made.told() == made.known
        assert made.given == 0


def test_without_strangers_the_broker_keeps_the_processor() -> None:
    with ends(2, 0, 1) as made:
        for _ in range(3):
            made.told()
        assert made.given == 0


@contextlib.contextmanager
def at_rest(known: int, strangers: int, listening: int = 0) -> Iterator[Ends]:
    """All have had their turns, and nobody has anything to say."""
    with ends(known, strangers, listening) as made:
        while found := made.told():
            for fd in found:
                made.read(fd)
        yield made


def test_when_many_strangers_have_had_their_turns_they_rest() -> None:
    with at_rest(1, FEW + 1, 1) as made:
        for fd in (made.strangers[3], made.listening[0]):
            made.speaks(fd)
        assert [made.told() for _ in range(3)] == [[]] * 3
        made.speaks(made.known[0])
        assert made.told() == made.known, "nobody else does"
        made.read(made.known[0])
        made.now_s = REST_S * 0.99
        assert made.told() == []
        made.now_s = REST_S * 1.01
        assert made.told() == [made.listening[0], made.strangers[3]], "both, and nothing is lost"


def test_the_rest_of_strangers_ends_a_wait_and_is_part_of_it() -> None:
    with at_rest(1, FEW + 1) as made:
        made.selector._now_s = time.monotonic  # as it is in a broker
        made.selector._rests_until_s = time.monotonic() + REST_S
        made.speaks(made.strangers[0])
        assert [key.fd for key, _ in made.selector.select(None)] == [made.strangers[0]]
        made.read(made.strangers[0])
        made.selector._steps = SEVERAL
        assert made.told() == [] and made.selector._rests_until_s is not None
        began_s = time.monotonic()
        assert made.selector.select(4 * REST_S) == []
        assert time.monotonic() - began_s >= 4 * REST_S


@pytest.mark.parametrize("together", range(1, SEVERAL + 1))
def test_who_comes_while_the_others_are_silent_does_not_rest(together: int) -> None:
    with at_rest(1, 100) as made:
        made.now_s = 2 * REST_S
        for _ in range(5):
            for fd in made.strangers[:together]:
                made.speaks(fd)
            for _ in range(together):
                (fd,) = made.told()
                made.read(fd)
            assert made.told() == []
            assert (made.selector._rests_until_s is not None) == (together >= SEVERAL)
            made.now_s += 2 * REST_S


def test_a_listening_socket_that_comes_while_they_rest_waits_for_its_end() -> None:
    with at_rest(1, FEW + 1, 1) as made:
        (fd,) = made.listening
        made.selector.unregister(fd)  # as after too many connections
        made.selector.register(fd, selectors.EVENT_READ)
        made.speaks(fd)
        assert made.told() == []
        made.now_s = 2 * REST_S
        assert made.told() == [fd] == made.told()


@pytest.mark.parametrize("known", [0, 1, 2, 20])
def test_a_turn_takes_as_many_new_connections_as_known_ones_had_theirs(known: int) -> None:
    with ends(known, 3, 1) as made:
        assert made.selector.accepts == 1, "nobody had one yet"
        made.told()
        assert made.selector.accepts == max(1, min(known, NEW_A_TURN))
    assert TurnOrder().accepts == NEW_A_TURN


def test_who_is_not_through_does_not_rest() -> None:
    with ends(0, FEW + 5) as made:
        for _ in range(3 * FEW):
            assert len(made.told()) == 1
        assert made.selector._rests_until_s is None


def test_few_strangers_do_not_rest() -> None:
    with at_rest(1, FEW) as made:
        for _ in range(3):
            for fd in made.strangers:
                made.speaks(fd)
            assert sorted(made.told()) == sorted(made.strangers)
            for fd in made.strangers:
                made.read(fd)
        assert made.looked == 0
    with at_rest(1, FEW + 1) as made:
        made.speaks(made.strangers[0])
        assert made.told() == []
        made.selector.unregister(made.strangers[1])
        made.selector.is_known(made.strangers[1])  # it is gone, and they are few
        assert made.told() == [made.strangers[0]]


def test_silent_strangers_wake_nobody() -> None:
    with at_rest(1, FEW + 1) as made:
        made.now_s = 2 * REST_S
        made.told()  # the rest is over
        looked = made.looked
        for _ in range(3):
            made.speaks(made.known[0])
            assert made.told() == made.known
            made.read(made.known[0])
        assert made.looked == looked, "there is no other one"


def test_a_listening_socket_that_is_closed_while_they_rest_is_forgotten() -> None:
    with at_rest(1, FEW + 1, 2) as made:
        closed, other = made.listening
        made.selector.closes(closed)
        made.selector.unregister(closed)
        made.speaks(other)
        made.now_s = 2 * REST_S
        assert made.told() == [other]


@pytest.mark.parametrize("kind", [KnownFirst, selectors.DefaultSelector])
def test_it_is_a_selector_as_any_other(kind: type[selectors.BaseSelector]) -> None:
    here, there = socket.socketpair()
    with contextlib.closing(here), contextlib.closing(there), kind() as selector:
        key = selector.register(here, selectors.EVENT_READ, "data")
        assert key == (here, here.fileno(), selectors.EVENT_READ, "data")
        with pytest.raises(KeyError):
            selector.register(here, selectors.EVENT_READ)
        with pytest.raises(KeyError):
            selector.get_key(there)
        with pytest.raises(KeyError):
            selector.unregister(there)
        with pytest.raises(KeyError):
            selector.modify(there, selectors.EVENT_READ)
        began_s = time.monotonic()
        assert selector.select(0.01) == selector.select(0) == selector.select(-1) == []
        assert time.monotonic() - began_s >= 0.01
        changed = selector.modify(here, selectors.EVENT_READ | selectors.EVENT_WRITE, "other")
        assert selector.select() == [(changed, selectors.EVENT_WRITE)]
        there.send(b"x")
        assert selector.select() == [(changed, selectors.EVENT_READ | selectors.EVENT_WRITE)]
        there.close()
        reading = selector.modify(here, selectors.EVENT_READ)
        assert selector.select(None) == [(reading, selectors.EVENT_READ)], "an end is something to read"
        assert selector.get_key(here) == reading and len(selector.get_map()) == 1
        assert selector.unregister(here) == reading and selector.select(0) == []


@pytest.mark.parametrize("kind", [KnownFirst, selectors.DefaultSelector])
def test_what_was_closed_before_is_forgotten(kind: type[selectors.BaseSelector]) -> None:
    here, there = socket.socketpair()
    with contextlib.closing(there), kind() as selector:
        fd = here.fileno()
        key = selector.register(fd, selectors.EVENT_READ)
        here.close()
        assert selector.unregister(fd) == key and not selector.get_map()


def test_a_server_tells_who_is_strange_until_it_is_known_or_gone() -> None:
    order = KnownFirst()

    async def serve() -> None:
        requests = list[Exchange]()
        server = Server(
            dispatch=requests.append, on_close=lambda _: None, max_frame_bytes=1 << 20, limits=ConnectionLimits(),
            max_idle_ms=10**9, strangers=StrangerLimits(), turn_order=order,
        )  # fmt: skip
        sasl, plain = (server.bind("127.0.0.1", 0, use) for use in (LOGIN, EVERYTHING))
        assert len(order._listening) == 2
        server.start()
        server.let_clients_in()
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(("127.0.0.1", sasl))) for _ in range(12)]
            known = stack.enter_context(socket.create_connection(("127.0.0.1", plain)))
            await until(lambda: len(server.connections) == 13)
            assert len(order._strangers) == 12
            for client in (*clients, known):
                client.sendall(request())
            await until(lambda: requests)
            assert requests[0].connection.listener is EVERYTHING, "although it came and spoke last"
            await until(lambda: len(requests) == 13)
            logged_in = next(each.connection for each in requests if each.connection.listener is LOGIN)
            logged_in.known()
            assert len(order._strangers) == 11
            logged_in.close(None)
            assert len(order._strangers) == 11
        server.close()
        assert not order._strangers and not order._listening

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(order)) as runner:
        runner.run(serve())


class Turns(KnownFirst):
    """Which turn of the loop it is, and in which somebody came."""

    turn = came = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(timeout)
        self.turn += 1
        if any(key.fd in self._listening for key, _ in found):
            self.came = self.turn
        return found


@pytest.mark.parametrize("others", [0, FEW + 1])
def test_what_comes_with_a_connection_is_read_at_once_unless_many_wait(others: int) -> None:
    order = Turns()

    async def serve() -> None:
        read = list[bool]()
        server = Server(
            dispatch=lambda _: read.append(order.turn == order.came), on_close=lambda _: None,
            max_frame_bytes=1 << 20, limits=ConnectionLimits(), max_idle_ms=10**9, strangers=StrangerLimits(),
            turn_order=order,
        )  # fmt: skip
        port = server.bind("127.0.0.1", 0, LOGIN)
        with contextlib.ExitStack() as stack:
            for _ in range(others):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(request())
            server.start()
            server.let_clients_in()
            await until(lambda: len(read) == 1)
            assert read == [not others]
        server.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(order)) as runner:
        runner.run(serve())


def test_a_listener_goes_on_after_a_connection_whose_request_made_us_fail() -> None:
    """One that had to wait as too many came, which is admitted by a timer."""

    def fails(exchange: Exchange) -> None:
        raise RuntimeError("a bug of ours")

    async def serve() -> None:
        told = list[dict[str, object]]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        server = Server(
            dispatch=fails, on_close=lambda _: None, max_frame_bytes=1 << 20,
            limits=ConnectionLimits(rate=1), max_idle_ms=10**9, strangers=StrangerLimits(),
            turn_order=order,
        )  # fmt: skip
        port = server.bind("127.0.0.1", 0, LOGIN)
        with contextlib.ExitStack() as stack:
            for _ in range(12):
                stack.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(request())
            server.start()
            server.let_clients_in()
            (listener,) = server._listeners
            await until(lambda: listener.timer is not None)
            assert len(told) == 10, "the burst of a start; one waits"
            with pytest.raises(RuntimeError):
                listener.again()
            assert listener.sock.fileno() in order.get_map(), "there is one more"
        server.close()

    order = KnownFirst()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(order)) as runner:
        runner.run(serve())


class Counted(selectors.DefaultSelector):
    """In how many turns of the loop each descriptor was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told = Counter[int]()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(timeout)
        self.told.update(key.fd for key, _ in found)
        return found


class Busy(TurnOrder):
    """As it is when so many known ones had their turn."""

    accepts = 2


@pytest.mark.parametrize(("order", "turns"), [(TurnOrder(), 2), (Busy(), 4), (KnownFirst(), 8)])
def test_a_server_takes_as_many_new_connections_a_turn_as_it_is_told(order: TurnOrder, turns: int) -> None:
    counted = Counted()

    async def serve() -> None:
        server = Server(
            dispatch=lambda _: None, on_close=lambda _: None, max_frame_bytes=1 << 20, limits=ConnectionLimits(),
            max_idle_ms=10**9, strangers=StrangerLimits(), turn_order=order,
        )  # fmt: skip
        port = server.bind("127.0.0.1", 0, LOGIN)
        (listener,) = server._listeners
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            server.start()
            server.let_clients_in()
            await until(lambda: len(server.connections) == 8)
            assert counted.told[listener.sock.fileno()] == turns
        server.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(counted)) as runner:
        runner.run(serve())
