"""Connections of a console: those that ask nothing take no place of those that ask.

    came --a whole request--> asks --the answer is made--> kept for the next request
    came, or kept, and too many others have come since: closed        a request not whole in 10 s: closed

uvicorn has a limit of time between two requests, and none for a request that has begun; it counts all connections, and
where there are too many it refuses whoever asks. Owns what is added to that: time for a request, time for an answer
that nobody takes, and which connection goes where there are too many.
"""

import asyncio
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

WHOLE_S: Final = 10.0
"""From the first that is known of a request until it is whole, its form included."""
TAKEN_S: Final = 30.0
"""An answer of which nothing was taken for so long is given up."""


class ConsoleProtocol(H11Protocol):
    """One connection; made by a class of ``protocol_of``."""

    whole_s: ClassVar[float] = WHOLE_S
    taken_s: ClassVar[float] = TAKEN_S
    waiting: ClassVar[dict["ConsoleProtocol", None]]
    """Connections of the server that are answered nothing at the moment; the oldest first."""

    _slow: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _untaken = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._see(timed=True)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            oldest = next(iter(self.waiting))
            if oldest is not self:
                oldest.give_up()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._see(timed=True)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._see(timed=False)  # uvicorn's own limit runs now

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.waiting.pop(self, None)
        self._stop_slow()
        self._stop_stuck()

    def give_up(self) -> None:
        """Closed, whatever is on the way; it counts no more from now on."""
        self.waiting.pop(self, None)
        self.connections.discard(self)
        self.transport.abort()

    def _see(self, *, timed: bool) -> None:
        """Whether something is to be answered. ``timed``: a request may have begun."""
        answers = self.cycle is not None and not self.cycle.response_complete
        if answers and self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self.waiting.pop(self, None)
            self._stop_slow()
            return
        self.waiting.setdefault(self)
        if timed and self._slow is None:
            self._slow = self.loop.call_later(self.whole_s, self.give_up)

    def _stop_slow(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    # -- an answer that nobody takes -------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._untaken = self.transport.get_write_buffer_size()
        self._stuck = self.loop.call_later(self.taken_s, self._see_taken)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stuck()

    def _see_taken(self) -> None:
        before, self._untaken = self._untaken, self.transport.get_write_buffer_size()
        if self._untaken >= before:
            self.give_up()
        else:
            self._stuck = self.loop.call_later(self.taken_s, self._see_taken)

    def _stop_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None


def protocol_of(**limits: Any) -> type[ConsoleProtocol]:
    """The connections of one server."""
    return type("ConsoleProtocol", (ConsoleProtocol,), {"waiting": {}, **limits})
