"""A thread of one log directory, and the queue between it and the event loop.

A directory has three of them (storage/log_dir.py): the foreground, which alone changes its logs, the one for long
fsyncs, and the background. The loop submits work and goes on; completions come back to the loop in the order of the
work. A disk that hangs fills its own queues and nobody else's: past the limit a submission is refused with
DiskQueueFullError, at once.

Kafka has no counterpart: its request threads block in the page cache of whatever disk they meet.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.model.errors import DiskQueueFullError, HoldfastError, KafkaStorageError

log = logging.getLogger(__name__)
T = TypeVar("T")

Done = Callable[[Any, HoldfastError | None], None]

DEFAULT_LIMIT = 20_000
"""Pieces of work that may wait for one disk. Bytes are limited where they come in: per connection."""


class DiskThread:
    """The DiskQueue of a running broker (storage/log_dir.py has the protocol and an inline one).

    Invariants: work of one lane runs one at a time, in submission order; ``done`` runs on the loop, in the same
    order, and exactly once per submission unless the process ends first.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, *, limit: int = DEFAULT_LIMIT) -> None:
        self.name = name
        self._loop = loop
        self._limit = limit
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Done] | None] = queue.SimpleQueue()
        self._finished: deque[tuple[Done, Any, HoldfastError | None]] = deque()
        self._waiting = 0  # changed on the loop only
        self.completed = 0
        """Completions that have run. Changed on the loop only."""
        self._wake_pending = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def thread_id(self) -> int | None:
        """As the system counts threads; None once it has ended."""
        return self._thread.native_id if self._thread.is_alive() else None

    @property
    def waiting(self) -> int:
        """Submissions whose completion has not run yet."""
        return self._waiting

    def submit(self, work: Callable[[], T], done: Callable[[T | None, HoldfastError | None], None]) -> None:
        """Run ``work`` on the disk's thread, then ``done(result, error)`` on the loop."""
        if self._waiting >= self._limit:
            done(None, DiskQueueFullError(f"{self.name}: {self._waiting} operations wait for the disk"))
            return
        self._waiting += 1
        self._work.put((work, done))

    def close(self) -> None:
        """Let the thread end after what is queued now. Does not wait: a hung disk may never come back."""
        self._work.put(None)

    def join(self, timeout_s: float) -> bool:
        """True when the thread has ended within the time."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        finished, loop = self._finished, self._loop
        get = self._work.get
        while (item := get()) is not None:
            work, done = item
            result: Any = None
            error: HoldfastError | None = None
            try:
                result = work()
            except HoldfastError as e:
                error = _without_frames(e)
            except Exception as e:
                log.exception("%s: unexpected error in disk work %r", self.name, work)
                error = KafkaStorageError(f"{self.name}: {type(e).__name__}: {e}")
            finished.append((done, result, error))
            # While it waits for work, this thread holds no file that somebody wants closed.
            del item, work, done, result, error
            if not self._wake_pending:
                # One wake-up serves all completions that are there when the loop gets to it.
                self._wake_pending = True
                try:
                    loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed: the process is ending
                    return

    def _deliver(self) -> None:
        # Cleared first: a completion appended after this line schedules another delivery.
        self._wake_pending = False
        finished = self._finished
        for _ in range(len(finished)):  # what finishes meanwhile waits its turn: sockets are served in between
            done, result, error = finished.popleft()
            self._waiting -= 1
            self.completed += 1
            try:
                done(result, error)
            except Exception:
                log.exception("%s: a completion failed", self.name)
        if finished and not self._wake_pending:
            self._wake_pending = True
            self._loop.call_soon(self._deliver)


def _without_frames(error: HoldfastError) -> HoldfastError:
    """The error without the frames that it came through: they hold on to open files, and the error may be kept for
    long (a refused batch, a directory's reason). A disk must be free to be unmounted meanwhile."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error
