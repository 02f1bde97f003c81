"""A piece of a segment whose pages are not in memory: read on its disk's thread, and waited for with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.broker.exchange import SendSlice
from holdfast.model.errors import HoldfastError

LOAD_GRACE_S = 1.0
"""How long a cold slice waits for a disk that gets nothing done."""
LOAD_LIMIT_S = 5.0
"""How long it waits for one that does."""


class ColdSlice:
    """``loaded`` gets the bytes, or ``failed`` why there are none; neither after ``cancel``."""

    def __init__(
        self,
        piece: SendSlice,
        loop: asyncio.AbstractEventLoop,
        loaded: Callable[[bytes], None],
        failed: Callable[[str], None],
    ) -> None:
        self._piece = piece
        self._loop = loop
        self._loaded: Callable[[bytes], None] | None = loaded
        self._failed = failed
        piece.loading = True
        self._timer = self._look_later(loop.time() + LOAD_LIMIT_S)
        piece.load(self._done)

    def cancel(self) -> None:
        self._loaded = None
        self._timer.cancel()

    def _done(self, data: bytes | None, error: HoldfastError | None) -> None:
        loaded = self._loaded
        self.cancel()
        if loaded is None:
            return
        if error is not None or data is None or len(data) != len(self._piece):
            self._failed(f"{self._piece}: {error or 'short read'}")
            return
        loaded(data)

    def _look_later(self, until_s: float) -> asyncio.TimerHandle:
        """Look again after the grace. A disk that got nothing done meanwhile is given up on, for everybody: the client
        comes again, and hears at once of what is on other disks."""
        directory = self._piece.directory
        completed = directory.queue.completed

        def look() -> None:
            if directory.queue.completed == completed:
                directory.give_up_on()
                self._failed(f"{self._piece}: the disk of {directory.path} does not answer")
            elif self._loop.time() >= until_s:
                self._failed(f"{self._piece}: the disk of {directory.path} took more than {LOAD_LIMIT_S:g} s")
            else:
                self._timer = self._look_later(until_s)

        return self._loop.call_later(LOAD_GRACE_S, look)
