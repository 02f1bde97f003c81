"""One cleaning of one log: the order of its steps between the disk's threads and the process that does the work.

    plan, in the foreground --> a process, or the background lane of the directory (small logs; no process to be had)
        --> each segment that it has written: swapped in, in the foreground --> over: the log is clean up to its end

Appends wait for the plan and the swaps, which read and write no batch. A cleaning that is aborted, or fails, has been
of use as far as it came; what it left is removed. All on the loop but for the pieces.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.broker import cleaner_process
from holdfast.broker.cleaner_pipe import CleanerPipe
from holdfast.broker.cleaner_process import CleaningFailure
from holdfast.model.errors import HoldfastError, KafkaStorageError
from holdfast.storage.cleaned_log import Planned
from holdfast.storage.cleaning_job import CleanedSegment, CleaningOrder, CleaningStats, set_aside
from holdfast.storage.cleaning_plan import CleanerSettings, plan
from holdfast.storage.cleaning_rules import Cleanable
from holdfast.storage.log import Log

if TYPE_CHECKING:
    import asyncio

    from holdfast.broker.platform import Platform
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)

PROCESS_BYTES: Final = 1 << 20
"""A log that is larger is cleaned by another process."""


class CleaningHost(Protocol):
    """What a cleaning asks of the broker."""

    loop: asyncio.AbstractEventLoop
    platform: Platform
    logs: LogManager

    def now_ms(self) -> int: ...


class Cleaning:
    """See the module's docstring. ``over`` is called once: with the failure, None if there was none, or if it was
    aborted. ``stats``: of one that went well."""

    def __init__(
        self,
        broker: CleaningHost,
        each: Log,
        found: Cleanable,
        settings: CleanerSettings,
        bytes_per_s: float,
        over: Callable[[Cleaning, CleaningFailure | None], None],
    ) -> None:
        self.log = each
        self.found = found
        self.stats: CleaningStats | None = None
        self.is_aborted = False
        self._broker = broker
        self._settings = settings
        self._bytes_per_s = bytes_per_s
        self._over = over
        self.began_ms = broker.now_ms()
        self._pipe: CleanerPipe | None = None
        self._planned = Planned((), 0)
        self._waiting: list[CleanedSegment] = []
        self._is_swapping = False
        self._end: CleaningStats | CleaningFailure | None = None

    def start(self) -> None:
        """Begin."""
        make = partial(plan, self.log, self.found, self._settings, self.began_ms)
        self.log.dir.queue.submit(make, self._is_planned)

    def abort(self) -> None:
        """It is not wanted any more: its log moves, is deleted, its directory has failed, or the broker stops."""
        self.is_aborted = True
        if self._pipe is not None:
            self._pipe.kill()

    @property
    def most_keys(self) -> int:
        """That it may remember."""
        return self._settings.most_keys

    @property
    def is_lost(self) -> bool:
        """The log is not what it was when this began."""
        return self._broker.logs.get(self.log.topic_partition) is not self.log or not self.log.is_online

    # -- the work ----------------------------------------------------------------------------------------------

    def _is_planned(self, made: tuple[Planned, CleaningOrder] | None, error: HoldfastError | None) -> None:
        if made is None or self.is_aborted:
            self._over(self, None if error is None else CleaningFailure(str(error), None, None, False))
            return
        self._planned, order = made
        start = self._broker.platform.start_process
        if start is None or sum(size for _, size in order.sources) <= PROCESS_BYTES:
            self._clean_here(order)
            return
        settings = self._settings
        text = cleaner_process.order_for(order, self._bytes_per_s, settings.buffer_bytes, os.getpid())

        def work() -> subprocess.Popen[bytes]:
            try:
                process = start(["-m", cleaner_process.MODULE])
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError), process.stdin:  # it tells by its end that it failed
                    process.stdin.write(text)
            except OSError as e:
                raise KafkaStorageError(f"no process can be started to clean {self.log.topic_partition}: {e}") from e
            return process

        self.log.dir.background.submit(work, self._started)

    def _started(self, process: subprocess.Popen[bytes] | None, error: HoldfastError | None) -> None:
        if process is None:
            self._ended(CleaningFailure(str(error), None, None, False))
            return
        self._pipe = CleanerPipe(self._broker.loop, process, self._made, self._ended)
        if self.is_aborted:
            self._pipe.kill()

    def _clean_here(self, order: CleaningOrder) -> None:
        """In the background lane, in one piece."""
        made: list[CleanedSegment] = []
        ends: list[CleaningStats | CleaningFailure] = []

        def tell(kind: bytes, what: object) -> None:
            if isinstance(what, CleanedSegment):
                made.append(what)
            elif isinstance(what, (CleaningStats, CleaningFailure)):
                ends.append(what)

        def work() -> None:
            with self.log.dir.guard():
                pass  # an offline directory is not touched
            cleaner_process.run(self.log.dir.files, order, tell, lambda size: None)

        def done(_: object, error: HoldfastError | None) -> None:
            for one in made:
                self._made(one)
            self._ended(ends[0] if ends else CleaningFailure(str(error), None, None, False))

        self.log.dir.background.submit(work, done)

    # -- what it has written -----------------------------------------------------------------------------------

    def _made(self, one: CleanedSegment) -> None:
        self._waiting.append(one)
        self._swap_next()

    def _swap_next(self) -> None:
        if self._is_swapping:
            return
        if not self._waiting or self.is_aborted:
            if self._end is not None:
                self._close(self._end)
            return
        if self.is_lost:
            self.abort()
            self._swap_next()
            return
        self._is_swapping = True
        swap = partial(self.log.swap, self._planned, self._waiting.pop(0), self._broker.now_ms())
        self.log.dir.queue.submit(swap, self._swapped)

    def _swapped(self, is_done: bool | None, error: HoldfastError | None) -> None:
        self._is_swapping = False
        if not is_done:  # it was cut meanwhile, or the disk has failed: the directory has judged that
            if error is not None:
                log.warning("%s: cleaning is given up: %s", self.log.topic_partition, error)
            self.abort()
        self._swap_next()

    def _ended(self, how: CleaningStats | CleaningFailure) -> None:
        self._pipe = None
        self._end = how
        self._swap_next()

    def _close(self, how: CleaningStats | CleaningFailure) -> None:
        """All that could be swapped in is."""
        self._end = None
        if isinstance(how, CleaningStats) and not self.is_aborted:
            self.stats = how
            self.log.dir.queue.submit(partial(self._note, how), lambda *_: self._over(self, None))
            return
        failure = how if isinstance(how, CleaningFailure) and not self.is_aborted and not self.is_lost else None
        if self.is_lost:  # what is left of it goes with its directory, or at the next start
            self._over(self, failure)
        else:
            self._clear_away(failure)

    def _note(self, stats: CleaningStats) -> None:
        """On the log's thread, where it is cut, too."""
        self.log.note_cleaned(self._planned, stats.end)

    def _clear_away(self, failure: CleaningFailure | None) -> None:
        """Remove what it has left, and have the directory judge what it failed of."""
        each = self.log

        def work() -> list[str]:
            with each.guard():
                left = set_aside(each.dir.files, each.path)
            if failure is not None and failure.errno is not None:
                each.dir.judge(OSError(failure.errno, failure.message, failure.path), KafkaStorageError, each)
            return left

        def done(paths: list[str] | None, error: HoldfastError | None) -> None:
            if paths:
                self._broker.logs.removals.add(each.dir, paths)
            self._over(self, failure)

        each.dir.queue.submit(work, done)
