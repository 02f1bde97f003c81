"""A broker's process in a simulation with an ensemble: its clock, its threads that wait, its clients.

Owns what of a process speaks to the ensemble, and ends it with the process. The ZooKeeper store is the real one; its
threads are fibers (fibers.py), its clients are those of the model (ensemble_client.py).
"""

from __future__ import annotations

import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any

from holdfast.coordination import zookeeper, zookeeper_brokers, zookeeper_election, zookeeper_link
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from holdfast.model.errors import HoldfastError, KafkaStorageError
from tests.simulation.ensemble import Ensemble, Session
from tests.simulation.ensemble_client import ModelZooKeeper
from tests.simulation.fibers import Fiber, FiberLanes, FiberThreading, FiberWaiter, Life
from tests.simulation.loop import SimLoop
from tests.simulation.network import OUTSIDE
from tests.simulation.node import Node, SimProcess, SimThread

_WAIT = (zookeeper, zookeeper_brokers, zookeeper_election, zookeeper_link)
"""The modules of the store that wait."""
_STORE_THREADS = frozenset(("metadata", "metadata-look", "metadata-close", "claim"))
"""Names of the threads of a broker in which its store is called."""


@contextlib.contextmanager
def store_in_fibers() -> Iterator[None]:
    """Stores that are made in here wait as fibers do."""
    before = [(module, vars(module)["threading"]) for module in _WAIT]
    for module in _WAIT:
        vars(module)["threading"] = FiberThreading
    try:
        yield
    finally:
        for module, threading in before:
            vars(module)["threading"] = threading


class VirtualClock:
    """A clock of the model (ensemble.Clock) that goes by the loop. ``context``: of the process whose clock it is; that
    of the ensemble itself is of none."""

    def __init__(self, loop: SimLoop, context: Context = OUTSIDE) -> None:
        self._loop = loop
        self._context = context
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def now_s(self) -> float:
        return self._loop.time()

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        if delay_s <= 0:
            self._loop.call_soon(work, context=self._context.copy())
            return
        self._count += 1
        when_s = self._loop.time() + delay_s
        heapq.heappush(self._due, (when_s, self._count, work))
        self._loop.call_at(when_s, self._next, context=self._context.copy())

    def _next(self) -> None:
        """As many are due as timers have ended; timers of one time end in any order."""
        heapq.heappop(self._due)[2]()


class FiberThread:
    """A WorkThread whose work may wait: a fiber for each piece, one at a time."""

    def __init__(self, node: Node, clock: VirtualClock, life: Life, name: str) -> None:
        self.name = name
        self.completed = 0
        self._node, self._clock, self._life = node, clock, life
        self._work: deque[tuple[Callable[[], Any], Callable[[Any, Any], None]]] = deque()
        self._is_busy = False

    def submit(self, work: Callable[[], Any], done: Callable[[Any, Any], None]) -> None:
        self._work.append((work, done))
        if not self._is_busy:
            self._is_busy = True
            self._begin_soon()

    def _begin_soon(self) -> None:
        self._clock.later(self._node.rng.uniform(*self._node.disk_s), self._begin)

    def _begin(self) -> None:
        work, done = self._work.popleft()
        self._life.start(Fiber(self._clock, work, lambda result, error: self._ended(done, result, error)))

    def _ended(self, done: Callable[[Any, Any], None], result: Any, error: BaseException | None) -> None:
        told: HoldfastError | None = None
        if isinstance(error, HoldfastError):
            told = error
        elif error is not None:
            self._node.unexpected(f"{self.name}: {type(error).__name__}: {error}", error)
            told = KafkaStorageError(f"{self.name}: {type(error).__name__}: {error}")
        self._clock.later(0.0, lambda: self._tell(done, result, told))
        self._is_busy = bool(self._work)
        if self._is_busy:
            self._begin_soon()

    def _tell(self, done: Callable[[Any, Any], None], result: Any, error: HoldfastError | None) -> None:
        self.completed += 1
        done(result, error)

    def close(self) -> None:
        """Threads of a simulation just end."""


class EnsembleProcess:
    """What one process has of the ensemble. ``cut``: which ways of its machine are cut, for connections to come.
    ``server``: number of the one that it connects to first."""

    def __init__(self, node: Node, process: SimProcess, ensemble: Ensemble, cut: set[str], server: int) -> None:
        self.node, self.process = node, process
        self._ensemble, self._cut, self._server = ensemble, cut, server
        self.clock = VirtualClock(process.loop, process.context)
        self._life = Life(self._failed)
        self.lanes = FiberLanes(self.clock, self._life)
        self.clients: list[ModelZooKeeper] = []
        """One a session; the last one is the present one."""

    def _failed(self, error: BaseException) -> None:
        self.node.unexpected(f"an errand of broker {self.node.broker_id}: {type(error).__name__}: {error}", error)

    def thread(self, name: str) -> SimThread | FiberThread:
        """A thread of the broker, by its name."""
        if name in _STORE_THREADS:
            return FiberThread(self.node, self.clock, self._life, name)
        return SimThread(self.node, self.process, name)

    def clients_of(self, settings: ZooKeeperSettings) -> Callable[[], ModelZooKeeper]:
        """As EnsembleClients (coordination/stores.py)."""
        return lambda: self._client(settings)

    def _client(self, settings: ZooKeeperSettings) -> ModelZooKeeper:
        server = self._server + len(self.clients)
        made = ModelZooKeeper(self._ensemble, settings, self.clock, FiberWaiter(), server=server)
        made.link.to_server, made.link.to_client = "to_server" not in self._cut, "to_client" not in self._cut
        self.clients = [client for client in self.clients if client.session_id in self._ensemble.sessions] + [made]
        return made

    @property
    def session(self) -> Session | None:
        """The present one, if it has begun and has not expired."""
        return self._ensemble.sessions.get(self.clients[-1].session_id) if self.clients else None

    @property
    def is_connected(self) -> bool:
        """It has a session, and a server hears it and is heard."""
        session = self.session
        connection = None if session is None else session.connection
        if connection is None or not connection.is_open:
            return False
        return connection.link.to_server and connection.link.to_client

    def end(self) -> None:
        """kill -9, or its own end."""
        for client in self.clients:
            client.die()
        self._life.end()
