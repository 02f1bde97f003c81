"""A client of a modelled ensemble (ensemble.py): a ZooKeeperClient without threads, on a virtual clock.

Owns one session, as KazooZooKeeper does on a real one. A call that has to wait hands over to ``waiter``, which lets
time pass: in a test the clock itself (ManualClock), in the simulation a thread of a process (fibers.py). Where answers
take no time nothing waits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from holdfast.coordination.zookeeper_client import (
    ConnectionLostError,
    Create,
    Done,
    Node,
    NodeAcl,
    NodeExistsError,
    NoNodeError,
    Operation,
    RequestTooLargeError,
    SessionExpiredError,
    SessionState,
    ZooKeeperError,
    request_bytes,
)
from holdfast.coordination.zookeeper_settings import OPEN, SENSITIVE, ZooKeeperSettings
from tests.simulation.ensemble import Clock, Connection, Ensemble, Link, Request, Server
from tests.simulation.ensemble_tree import Author

RECONNECT_S = 0.05
"""From a lost connection to the next attempt, and between attempts."""
MOST_REFUSED = 10_000


class Waiter(Protocol):
    """How a call waits."""

    def wait(self, done: Callable[[], bool], until_s: float | None) -> None:
        """Return when it is done, or at that time. What is no Exception ends the caller."""

    def changed(self) -> None:
        """Who waits may go on."""


class ManualClock:
    """A clock that goes when somebody waits."""

    def __init__(self) -> None:
        self._now_s = 1000.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def now_s(self) -> float:
        return self._now_s

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self._now_s + delay_s, self._count, work))

    def wait(self, done: Callable[[], bool], until_s: float | None) -> None:
        while not done():
            if not self._due or (until_s is not None and self._due[0][0] > until_s):
                assert until_s is not None, "nothing will ever happen"
                self._now_s = until_s
                return
            when_s, _, work = heapq.heappop(self._due)
            self._now_s = max(self._now_s, when_s)
            work()

    def changed(self) -> None:
        """Who waits looks all the time."""

    def pass_s(self, seconds: float) -> None:
        self.wait(lambda: False, self._now_s + seconds)


class Answer(Future[Any]):
    """A future whose ``result`` lets time pass. ``concurrent.futures.wait`` does not."""

    def __init__(self, waiter: Waiter, clock: Clock) -> None:
        super().__init__()
        self._waiter, self._clock = waiter, clock
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> Any:
        self._await(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._await(timeout)
        return super().exception(0)

    def _await(self, timeout: float | None) -> None:
        if not self.done():
            self._waiter.wait(self.done, None if timeout is None else self._clock.now_s() + timeout)


class _Hook:
    """One watch."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call


class ModelZooKeeper:
    """See the module's docstring. ``clock`` is that of its process."""

    def __init__(
        self, ensemble: Ensemble, settings: ZooKeeperSettings, clock: Clock, waiter: Waiter, *, server: int = 0
    ) -> None:
        self._ensemble, self._settings, self._waiter = ensemble, settings, waiter
        self.clock = clock
        self.link = Link()
        self._server = server
        self._root = settings.chroot
        self._state: SessionState | None = None
        self._over: ZooKeeperError | None = None
        self._started = self._closed = False
        self._session_id = 0
        self._granted_s = settings.session_timeout_ms / 1000
        self._connection: Connection | None = None
        self._under_way: dict[Answer, Request] = {}
        self._gaps = self._gaps_known = 0
        self._refused = (0.0, 0)
        """How often at which moment, as the session is over."""
        self._listeners: list[Callable[[SessionState], None]] = []
        self._hooks: dict[_Hook, None] = {}
        """Watches at the server of this connection."""
        self._kept: list[_Hook] = []
        """Watches of one that was lost."""

    # -- the session -------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_s(self) -> float:
        return self._granted_s

    def start(self, timeout_s: float) -> None:
        assert not self._started and not self._closed, "a client starts once"
        self._started = True
        deadline_s = self.clock.now_s() + timeout_s
        self._connect()
        try:
            self._make_chroot(deadline_s)
        except ConnectionLostError as e:
            self._give_up()
            raise ConnectionLostError(f"No server has answered within {timeout_s:g} s") from e
        except ZooKeeperError:
            self._give_up()
            raise

    def _make_chroot(self, deadline_s: float) -> None:
        if self._exists(self._root or "/", None, deadline_s):
            return
        names = self._root.split("/")[1:]
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            author = self._author() if depth == len(names) else Author(session=self._session_id)
            try:
                self._ask(self._writing([Create(path=path)], author), path, deadline_s)
            except NodeExistsError:
                continue

    def _give_up(self) -> None:
        self._closed = True
        self._over = self._over or SessionExpiredError("The client could not be started")
        self._waiter.changed()
        if self._connection is not None:
            self._ensemble.end_session(self._session_id)

    def listen(self, callback: Callable[[SessionState], None]) -> None:
        self._listeners.append(callback)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._over = self._over or SessionExpiredError("The client was closed")
        self._waiter.changed()
        for future in list(self._under_way):
            self._settle(future, error=SessionExpiredError("The client was closed"))
        connection, session_id = self._connection, self._session_id
        if connection is not None and self.link.to_server:
            connection.send(Request(work=lambda server: self._ensemble.end_session(session_id)))
        elif connection is not None:
            connection.close()

    def prefer(self, server: int) -> None:
        """The next connection is to this server, if it serves."""
        self._server = server - 1

    def die(self) -> None:
        """Its process ends: the system hangs up for it."""
        self._closed = True
        self._over = self._over or SessionExpiredError("The process has ended")
        self._waiter.changed()
        if self._connection is not None:
            self._connection.close()

    def _connect(self) -> None:
        if self._closed or self._over is not None:
            return
        try:
            made = self._ensemble.connect(
                self, self.link, first=self._server, session_id=self._session_id, timeout_s=self._granted_s
            )
        except SessionExpiredError as e:
            self._over = e
            self._be(SessionState.EXPIRED)
            return
        if made is None:
            self.clock.later(RECONNECT_S, self._connect)
            return
        self._connection, session = made
        self._session_id, self._granted_s = session.session_id, session.timeout_s
        self._be(SessionState.CONNECTED)

    def lost(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if self._closed:
            return
        if any(request.is_write for request in self._under_way.values()):
            self._gaps += 1
        self._kept += self._hooks
        self._hooks.clear()
        self._be(SessionState.SUSPENDED)
        for future in list(self._under_way):
            self._settle(future, error=ConnectionLostError("the connection was lost before the answer"))
        self._server += 1
        self.clock.later(RECONNECT_S, self._connect)

    def _be(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        self._waiter.changed()
        for listener in self._listeners:
            self._later(listener, state)
        if state is not SessionState.SUSPENDED:
            kept, self._kept = self._kept, []
            for hook in kept:
                self._fire(hook)

    def _later(self, call: Callable[..., None], *args: Any) -> None:
        self.clock.later(0.0, lambda: None if self._closed else call(*args))

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, path: str, *, watch: Callable[[], None] | None = None) -> Node | None:
        def read(server: Server, hook: _Hook | None, connection: Connection) -> Node:
            return server.read(self._full(path), self._name, hook, connection)

        return self._watched(read, path, watch)

    def children(self, path: str, *, watch: Callable[[], None] | None = None) -> list[str] | None:
        def read(server: Server, hook: _Hook | None, connection: Connection) -> list[str]:
            return server.children(self._full(path), self._name, hook, connection)

        return self._watched(read, path, watch)

    def _watched(self, read: Callable[..., Any], path: str, call: Callable[[], None] | None) -> Any:
        deadline_s = self._deadline_s()
        while True:
            hook = None if call is None else _Hook(call)
            try:
                return self._ask(self._reading(read, hook), path, deadline_s)
            except NoNodeError:
                if hook is None or not self._exists(self._full(path), hook, deadline_s, path):
                    return None
                hook.call = None

    def _exists(self, full: str, hook: _Hook | None, deadline_s: float, path: str = "/") -> bool:
        request = self._reading(lambda server, hook, connection: server.exists(full, hook, connection), hook)
        return bool(self._ask(request, path, deadline_s))

    def _reading(self, read: Callable[..., Any], hook: _Hook | None) -> Callable[[], Request]:
        def make() -> Request:
            connection = self._connection

            def work(server: Server) -> Any:
                answer = read(server, hook, connection)
                if hook is not None:
                    self._hooks[hook] = None
                return answer

            return Request(work=work)

        return make

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        return [self.get(path) for path in paths]

    def acls(self, paths: Sequence[str]) -> list[NodeAcl | None]:
        found: list[NodeAcl | None] = []
        for path in paths:
            full = self._full(path)
            request = self._reading(lambda server, hook, connection, full=full: server.acl(full, self._name), None)
            try:
                found.append(self._ask(request, path, self._deadline_s()))
            except NoNodeError:
                found.append(None)
        return found

    def sync(self) -> None:
        gaps = self._gaps
        self._ask(lambda: Request(work=lambda server: server.catch_up()), "/", self._deadline_s())
        self._gaps_known = max(self._gaps_known, gaps)

    def _deadline_s(self) -> float:
        return self.clock.now_s() + self._granted_s

    def _ask(self, make: Callable[[], Request], path: str, deadline_s: float) -> Any:
        while True:
            future = self._send(make, path, deadline_s)
            try:
                return future.result(max(0.0, deadline_s - self.clock.now_s()))
            except TimeoutError:
                raise ConnectionLostError(f"{path}: no answer in time", path=path) from None
            except ConnectionLostError:
                if self.clock.now_s() >= deadline_s:
                    raise

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, operations: Sequence[Operation]) -> Future[list[Done]]:
        path, size = operations[0].path, request_bytes(operations, chroot=self._root)
        if size > self._settings.max_request_bytes:
            future = Answer(self._waiter, self.clock)
            future.set_exception(RequestTooLargeError(f"{path}: {size} bytes", path=path))
            return future
        make = self._writing(self._below_root(operations), self._author(), size)
        return self._send(make, path, None)

    def _writing(self, operations: Sequence[Operation], author: Author, size: int = 0) -> Callable[[], Request]:
        def make() -> Request:
            return Request(
                work=lambda server: self._ensemble.write(server, operations, author), is_write=True, size=size
            )

        return make

    def _below_root(self, operations: Sequence[Operation]) -> list[Operation]:
        return [replace(operation, path=self._full(operation.path)) for operation in operations]

    def _author(self) -> Author:
        secret = tuple(self._root + path for path in SENSITIVE)
        return Author(
            session=self._session_id, name=self._name, owns=self._settings.set_acl, secret=secret,
            shared=self._root + OPEN,
        )  # fmt: skip

    @property
    def _name(self) -> str | None:
        digest = self._settings.digest
        return None if digest is None else f"{digest.user}:{digest.password}"

    def _full(self, path: str) -> str:
        return (self._root if path == "/" else self._root + path) or "/"

    # -- what is under way -------------------------------------------------------------------------------------

    def _send(self, make: Callable[[], Request], path: str, deadline_s: float | None) -> Answer:
        future = Answer(self._waiter, self.clock)
        error = self._wait_for_room(path, deadline_s)
        if error is not None:
            future.set_exception(error)
            return future
        assert self._connection is not None
        request = self._under_way[future] = make()
        if deadline_s is not None:
            request.is_write = False
        request.tag = (future, path)
        self._connection.send(request)
        return future

    def _wait_for_room(self, path: str, deadline_s: float | None) -> ZooKeeperError | None:
        while True:
            if self._over is not None:
                self._refuse_again()
                return type(self._over)(str(self._over), path=path)
            is_connected = self._state is SessionState.CONNECTED
            if deadline_s is None and not is_connected and self._gaps == self._gaps_known:
                self._gaps += 1
            if deadline_s is None and self._gaps > self._gaps_known:
                return ConnectionLostError(f"{path}: not sent, as a write before it had no answer", path=path)
            if is_connected and self._has_room():
                return None
            if deadline_s is not None and self.clock.now_s() >= deadline_s:
                return ConnectionLostError(f"{path}: no server has answered in time", path=path)
            self._waiter.wait(partial(self._has_changed, is_connected), deadline_s)

    def _refuse_again(self) -> None:
        """Who asks a session that is over without end, and lets no time pass, would never hear that it is over."""
        now_s, (at_s, times) = self.clock.now_s(), self._refused
        self._refused = (now_s, times + 1 if at_s == now_s else 1)
        assert times < MOST_REFUSED, f"a session that is over is asked {times} times at one moment"

    def _has_room(self) -> bool:
        return len(self._under_way) < self._settings.max_in_flight

    def _has_changed(self, was_connected: bool) -> bool:
        """For who waits for a connection, or for room on it."""
        is_connected = self._state is SessionState.CONNECTED
        return self._over is not None or is_connected is not was_connected or (is_connected and self._has_room())

    def answered(self, request: Request, value: Any, error: ZooKeeperError | None) -> None:
        if request.tag is None:
            return
        future, path = request.tag
        if error is not None:
            shown = error.path[len(self._root) :] if error.path else path
            error = type(error)(f"{shown}: {error}", path=shown, index=error.index)
        elif request.is_write:
            value = [Done(path=done.path[len(self._root) :], stat=done.stat) for done in value]
        self._settle(future, value=value, error=error)

    def noticed(self, hook: _Hook) -> None:
        self._hooks.pop(hook, None)
        self._fire(hook)

    def _fire(self, hook: _Hook) -> None:
        call, hook.call = hook.call, None
        if call is not None:
            self._later(call)

    def _settle(self, future: Answer, *, value: Any = None, error: ZooKeeperError | None = None) -> None:
        if self._under_way.pop(future, None) is None:
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
        self._waiter.changed()
