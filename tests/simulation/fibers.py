"""Code that blocks, in virtual time: a thread that runs only while the simulation stands still for it.

Owns one real thread for each piece of work that is under way (``Fiber``) and hands over between it and the event loop:
exactly one of all of them runs at any moment, so that a run is as much a function of its seed as without them. What a
fiber waits by is here too, with the names of ``threading`` (``FiberThreading``): whoever waits hands over to the loop,
and goes on when what it waits for has come, or its time has passed in virtual time.

A fiber whose process has been killed ends where it waits: ``ProcessGone`` is raised there, as by a disk.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from tests.simulation.device import ProcessGone


class Time(Protocol):
    """The clock of a process: what is due in one that is stopped waits until it goes on, in one that has ended never
    comes (ensemble.Clock)."""

    def now_s(self) -> float: ...

    def later(self, delay_s: float, work: Callable[[], None]) -> None: ...


_OF_THREAD = threading.local()
"""Its fiber. Of the thread and not of the context: what a fiber gives the loop to do runs in its context."""


def _who() -> Fiber | None:
    found: Fiber | None = getattr(_OF_THREAD, "fiber", None)
    return found


def current() -> Fiber:
    """The fiber that calls this. RuntimeError outside of one: who waits there would wait for ever."""
    found = _who()
    if found is None:
        raise RuntimeError("only a fiber may wait: give the work to one")
    return found


class Fiber:
    """One piece of work. ``ended(result, error)`` is called in the loop; not when the process has gone."""

    def __init__(self, time: Time, work: Callable[[], Any], ended: Callable[[Any, BaseException | None], None]) -> None:
        self.time = time
        self._work, self._ended = work, ended
        self._turn = threading.Semaphore(0)
        """Of the fiber."""
        self._loops_turn = threading.Semaphore(0)
        self._is_over = self._is_gone = False
        self._result: Any = None
        self._error: BaseException | None = None
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)

    @property
    def is_over(self) -> bool:
        return self._is_over

    def start(self) -> None:
        """Run it until it waits for the first time. By the loop."""
        self._thread.start()
        self._await()

    def _run(self) -> None:
        _OF_THREAD.fiber = self
        try:
            self._result = self._work()
        except BaseException as e:
            self._error = e
        self._is_over = True
        self._loops_turn.release()

    def _await(self) -> None:
        self._loops_turn.acquire()
        if self._is_over and not self._is_gone:
            self._ended(self._result, self._error)

    def resume(self) -> None:
        """Let it go on until it waits again. By the loop."""
        if not self._is_over:
            self._turn.release()
            self._await()

    def kill(self) -> None:
        """Its process has gone: it ends. By the loop."""
        self._is_gone = True
        self.resume()

    def park(self) -> None:
        """Hand over to the loop, until ``resume``. By the fiber."""
        if not self._is_gone:
            self._loops_turn.release()
            self._turn.acquire()
        if self._is_gone:
            raise ProcessGone("the process was killed")

    def wait(self, done: Callable[[], bool], until_s: float | None, changed: Changes) -> bool:
        """Until it is done, looked at whenever something has ``changed``, or until a time. Whether it is done."""
        while not done():
            left_s = None if until_s is None else until_s - self.time.now_s()
            if left_s is not None and left_s <= 0:
                return False
            wake = changed.wake(self)
            if left_s is not None:
                self.time.later(left_s, wake)
            self.park()
        return True


class Changes:
    """Who is to look again."""

    def __init__(self) -> None:
        self._waiting: dict[object, tuple[Fiber, Callable[[], None]]] = {}

    def wake(self, fiber: Fiber) -> Callable[[], None]:
        """What resumes a fiber that parks now; once."""
        mark = object()

        def wake() -> None:
            if self._waiting.pop(mark, None) is not None:
                fiber.resume()

        self._waiting[mark] = (fiber, wake)
        return wake

    def tell(self) -> None:
        """Something has changed: all look again, at this instant, in the order in which they came."""
        for fiber, wake in self._waiting.values():
            fiber.time.later(0.0, wake)


class FiberWaiter:
    """How a ModelZooKeeper waits (ensemble_client.Waiter)."""

    def __init__(self) -> None:
        self._changes = Changes()

    def wait(self, done: Callable[[], bool], until_s: float | None) -> None:
        if not done():
            current().wait(done, until_s, self._changes)

    def changed(self) -> None:
        self._changes.tell()


class _Lock:
    """Held by a fiber, or by the loop (None) for as long as one callback lasts."""

    reentrant = False

    def __init__(self) -> None:
        self._changes = Changes()
        self._holder: Fiber | None = None
        self._depth = 0

    def _may(self, who: Fiber | None) -> bool:
        return self._depth == 0 or (self.reentrant and self._holder is who)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        who = _who()
        if not self._may(who):
            if not blocking:
                return False
            fiber = current()
            until_s = None if timeout < 0 else fiber.time.now_s() + timeout
            if not fiber.wait(lambda: self._may(who), until_s, self._changes):
                return False
        self._holder, self._depth = who, self._depth + 1
        return True

    def release(self) -> None:
        assert self._depth > 0, "it is not held"
        self._depth -= 1
        if self._depth == 0:
            self._holder = None
            self._changes.tell()

    def locked(self) -> bool:
        return self._depth > 0

    def let_go(self) -> int:
        """Release it however often it is held; for ``hold_again``."""
        depth, self._depth, self._holder = self._depth, 0, None
        self._changes.tell()
        return depth

    def hold_again(self, depth: int) -> None:
        self.acquire()
        self._depth = depth

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class _RLock(_Lock):
    reentrant = True


class _Condition:
    def __init__(self, lock: _Lock | None = None) -> None:
        self._lock = _RLock() if lock is None else lock
        self._changes = Changes()
        self._waiting: list[list[bool]] = []
        """Of each who waits: whether he was called."""
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def wait(self, timeout: float | None = None) -> bool:
        fiber, called = current(), [False]
        until_s = None if timeout is None else fiber.time.now_s() + timeout
        self._waiting.append(called)
        depth = self._lock.let_go()
        try:
            return fiber.wait(lambda: called[0], until_s, self._changes)
        finally:
            self._waiting = [each for each in self._waiting if each is not called]
            self._lock.hold_again(depth)

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        fiber = current()
        until_s = None if timeout is None else fiber.time.now_s() + timeout
        while not predicate():
            left_s = None if until_s is None else until_s - fiber.time.now_s()
            if left_s is not None and left_s <= 0:
                return bool(predicate())
            self.wait(left_s)
        return True

    def notify(self, n: int = 1) -> None:
        called, self._waiting = self._waiting[:n], self._waiting[n:]
        for each in called:
            each[0] = True
        self._changes.tell()

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class _Event:
    def __init__(self) -> None:
        self._changes = Changes()
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._changes.tell()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_set or (timeout is not None and timeout <= 0):
            return self._is_set
        fiber = current()
        until_s = None if timeout is None else fiber.time.now_s() + timeout
        return fiber.wait(self.is_set, until_s, self._changes)


class FiberThreading:
    """What a module that waits uses of ``threading``, for fibers: to be put in its place while a simulation runs."""

    Lock = _Lock
    RLock = _RLock
    Condition = _Condition
    Event = _Event


class FiberLanes:
    """Lanes (coordination/lanes.py) whose work may wait: one piece of a key after the other, each in a fiber. Only what
    the ZooKeeper store uses of them. ``life``: fibers of its process, for ``kill``."""

    def __init__(self, time: Time, life: Life) -> None:
        self._time, self._life = time, life
        self._queues: dict[object, deque[Callable[[], Any]]] = {}

    def begin(self, key: object, job: Callable[[], Any]) -> None:
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(job)
            return
        self._queues[key] = deque([job])
        self._time.later(0.0, lambda: self._next(key))

    def _next(self, key: object) -> None:
        queue = self._queues[key]
        if not queue:
            del self._queues[key]
            return
        self._life.start(Fiber(self._time, queue.popleft(), lambda result, error: self._done(key, error)))

    def _done(self, key: object, error: BaseException | None) -> None:
        if error is not None:
            self._life.failed(error)
        self._time.later(0.0, lambda: self._next(key))

    def close(self) -> None:
        """What is begun ends by itself."""


class Life:
    """The fibers of one process. ``failed`` is told an error that nobody waits for."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self.failed = failed
        self._fibers: list[Fiber] = []

    def start(self, fiber: Fiber) -> None:
        self._fibers = [each for each in self._fibers if not each.is_over]
        self._fibers.append(fiber)
        fiber.start()

    def end(self) -> None:
        """kill -9. By the loop."""
        for fiber in self._fibers:
            fiber.kill()
        self._fibers.clear()
