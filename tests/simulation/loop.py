"""An asyncio event loop in virtual time, on which every process of a simulated cluster runs.

Owns the clock and the order of everything: callbacks run one at a time, in the order in which they became due, and
the clock jumps to the next timer when nothing is ready. Which process a callback belongs to is in its context
(``PROCESS``); those of a dead process never run again, those of a stopped one wait until it goes on, exactly as
kill -9 and SIGSTOP have it.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import logging
import sys
from collections.abc import Callable
from typing import Any, Protocol


class Process(Protocol):
    """What the loop must know of a process."""

    alive: bool
    stopped: bool
    held: list[asyncio.Handle]
    tasks: list[asyncio.Task[Any]]
    tasks_kept: int
    machine: str


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("PROCESS", default=None)
COLLECT_EVERY = 5
"""Runs between two looks for what they left: never while one goes on, and a look costs as much as ten idle seconds."""
_HORIZON_STEPS = 2_000_000
"""Callbacks at one instant after which the cluster counts as spinning."""


class SimLoop(asyncio.BaseEventLoop):
    """See the module's docstring. ``connector`` makes connections; ``after_step`` is called after every callback."""

    _ready: Any
    _scheduled: Any
    """Of BaseEventLoop, whose stubs do not have them."""
    ended = 0
    """Runs of this process that are over."""

    def __init__(self, start_s: float = 1_000.0) -> None:
        super().__init__()
        self._now = start_s
        self._readers: dict[int, Any] = {}
        self.connector: Callable[..., Any] | None = None
        self.after_step: Callable[[], None] | None = None
        self.steps = 0
        self.is_over = False
        self._graves: list[asyncio.Task[Any]] = []
        self.last_process: Process | None = None
        self._instant_steps = 0
        self.slow_callback_duration = 1e9

    def time(self) -> float:
        return self._now

    # -- the order of things -----------------------------------------------------------------------------------

    def _run_once(self) -> None:
        ready = self._ready
        if not ready:
            scheduled = self._scheduled
            while scheduled and scheduled[0]._cancelled:
                heapq.heappop(scheduled)._scheduled = False
            if not scheduled:
                raise RuntimeError("the simulation has nothing left to do")
            when = scheduled[0]._when
            if when > self._now:
                self._now = when
                self._instant_steps = 0
            while scheduled and scheduled[0]._when <= self._now:
                handle = heapq.heappop(scheduled)
                handle._scheduled = False
                if not handle._cancelled:
                    ready.append(handle)
        get, after_step = PROCESS, self.after_step
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(get)
            if process is not None:
                if not process.alive:
                    continue
                if process.stopped:
                    process.held.append(handle)
                    continue
            self.last_process = process
            handle._run()
            self.steps += 1
            self._instant_steps += 1
            if after_step is not None:
                after_step()
        if self._instant_steps > _HORIZON_STEPS:
            raise RuntimeError(f"time stands still at {self._now:.3f} s: {ready}")

    def go_on(self, process: Process) -> None:
        """What a stopped process had to do is due now."""
        held, process.held = process.held, []
        self._ready.extend(held)

    def bury(self, process: Process) -> None:
        """Keep what a dead process was about, unrun: collected now, its ``finally`` clauses would run."""
        self._graves += process.tasks

    def end(self) -> None:
        """Nothing runs any more; what is left is forgotten without a sound."""
        self._graves += asyncio.all_tasks(self)
        self._ready.clear()
        self._scheduled.clear()
        self.is_over = True
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        silent = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            for task in self._graves:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                task.cancel()
            self._readers.clear()
            self._graves.clear()
            SimLoop.ended += 1
            if SimLoop.ended % COLLECT_EVERY == 0:
                gc.collect()
        finally:
            logging.disable(silent)
            sys.unraisablehook = hook
        self.close()

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task = super().create_task(coro, name=name, context=context)
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.tasks.append(task)
            if len(process.tasks) > process.tasks_kept:
                process.tasks[:] = [t for t in process.tasks if not t.done()]
                process.tasks_kept = 1000 + 2 * len(process.tasks)
        return task

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        if self.is_over:
            return asyncio.TimerHandle(when, callback, args, self, context)
        return super().call_at(when, callback, *args, context=context)

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        if self.is_over:
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _write_to_self(self) -> None:
        """Nobody is asleep."""

    # -- sockets: the network's (network.py) -------------------------------------------------------------------

    def register(self, fd: int, end: Any) -> None:
        """``end`` is told when somebody wants to read or write on ``fd``."""
        self._readers[fd] = end

    def forget(self, fd: int) -> None:
        """The descriptor is closed."""
        self._readers.pop(fd, None)

    def add_reader(self, fd: int, callback: Any, *args: Any) -> None:
        self._readers[fd].want_read(callback, contextvars.copy_context())

    def remove_reader(self, fd: int) -> bool:
        end = self._readers.get(fd)
        return end is not None and bool(end.want_read(None, None))

    def add_writer(self, fd: int, callback: Any, *args: Any) -> None:
        self._readers[fd].want_write(callback, contextvars.copy_context())

    def remove_writer(self, fd: int) -> bool:
        end = self._readers.get(fd)
        return end is not None and bool(end.want_write(None, None))

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        assert self.connector is not None
        return await self.connector(protocol_factory, host, port)

    # -- what BaseEventLoop leaves to its children --------------------------------------------------------------

    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError("no real descriptors here")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""
