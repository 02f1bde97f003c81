"""The answers of a connection on their way into its channel, in order: bytes, and pieces of segments.

Owns the queue and what wakes it; which answers are due, and how many there may be, is the connection's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from holdfast.broker.channel import TURN_BYTES, Channel, Segment
from holdfast.broker.cold_slice import ColdSlice
from holdfast.broker.exchange import SendSlice
from holdfast.model.errors import LogReadError

INLINE_SLICE = 256 * 1024
"""File slices up to this size are read and sent together with their header; larger ones go by sendfile."""
TLS_SLICE = 256 * 1024
"""How much of a larger slice is read at a time where it cannot go by sendfile."""
MAX_SEND_SEGMENTS = 64
MAX_SEND_BYTES = 2 << 20
"""How much is gathered for one system call; small file slices are read for it, and a socket seldom takes more."""


class Sending:
    """``taken`` is told after every try, with what was unsent before it; ``left`` why the client cannot be sent to,
    ``failed`` why there is nothing to send."""

    __slots__ = (
        "_cold",
        "_failed",
        "_fd",
        "_left",
        "_loop",
        "_taken",
        "channel",
        "is_waiting",
        "queue",
        "unsent",
    )

    def __init__(
        self,
        channel: Channel,
        loop: asyncio.AbstractEventLoop,
        *,
        taken: Callable[[int], None],
        left: Callable[[str, OSError], None],
        failed: Callable[[str], None],
    ) -> None:
        self.channel = channel
        self.queue: deque[Segment | SendSlice] = deque()
        self.unsent = 0
        """Bytes in the queue."""
        self.is_waiting = False
        """For the socket, which then wakes it."""
        self._fd = channel.sock.fileno()
        self._loop = loop
        self._taken: Callable[[int], None] | None = taken
        self._left = left
        self._failed = failed
        self._cold: ColdSlice | None = None

    def add(self, chunk: Segment | SendSlice) -> None:
        """Behind the others, and not empty; sent by the next ``flush``."""
        self.queue.append(chunk)
        self.unsent += len(chunk)

    def flush(self) -> None:
        """Send what the socket takes. Where every byte is encrypted, others have their turn in between."""
        unsent, least = self.unsent, -1 if self.channel.takes_files else self.unsent - TURN_BYTES
        try:
            while self.queue and self.unsent > least:
                first = self.queue[0]
                if not (self._send_slice(first) if isinstance(first, SendSlice) else self._send_bytes()):
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except LogReadError as e:
            self._failed(f"send failed: {e}")
            return
        except OSError as e:
            self._left("send", e)
            return
        if self._taken is None:
            return
        ready = bool(self.queue) and self._head_is_ready()
        if ready and not self.is_waiting:
            self.is_waiting = True
            self._loop.add_writer(self._fd, self.flush)
        elif self.is_waiting and not ready:
            self.is_waiting = False
            self._loop.remove_writer(self._fd)
        self._taken(unsent)

    def _head_is_ready(self) -> bool:
        """False while the head of the queue waits for its disk."""
        first = self.queue[0]
        return not (isinstance(first, SendSlice) and first.loading)

    def _send_bytes(self) -> bool:
        """One call with everything that is in memory at the head of the queue. False: the socket is full."""
        segments: list[Segment] = []
        total = 0
        for index, chunk in enumerate(self.queue):
            if isinstance(chunk, SendSlice):
                if len(chunk) > INLINE_SLICE or chunk.loading:
                    break
                data = chunk.read_nowait()
                if data is None:
                    break
                self.queue[index] = chunk = data
            segments.append(chunk)
            total += len(chunk)
            if len(segments) == MAX_SEND_SEGMENTS or total >= MAX_SEND_BYTES:
                break
        sent = self.channel.send(segments)
        self.unsent -= sent
        full = sent < total
        while sent:
            size = len(segments.pop(0)) if sent else 0
            head = self.queue.popleft()
            if sent < size:
                self.queue.appendleft(memoryview(head)[sent:])  # type: ignore[arg-type]
                break
            sent -= size
        return not full

    def _send_slice(self, piece: SendSlice) -> bool:
        if piece.loading:
            return False
        if len(piece) <= INLINE_SLICE:
            data = piece.read_nowait()
            if data is not None:
                self.queue[0] = data
                return True
        elif not self.channel.takes_files:
            data = piece.take_nowait(TLS_SLICE)
            if data is not None:
                self.queue.appendleft(data)
                return True
        elif piece.is_hot():
            self.unsent -= piece.sendfile(self.channel.sock)
            if len(piece):
                return False
            self.queue.popleft()
            return True
        self._cold = ColdSlice(piece, self._loop, self._loaded, self._failed)
        return False

    def _loaded(self, data: bytes) -> None:
        """The answers behind the cold slice have waited; other connections have not."""
        self._cold = None
        self.queue[0] = data
        self.flush()

    def end(self) -> None:
        """Nothing is sent any more, and nobody told."""
        if self.is_waiting:
            self._loop.remove_writer(self._fd)
        self.queue.clear()
        self._taken = None
        self._left, self._failed = _left_before, _failed_before  # whoever keeps this keeps no connection
        if self._cold is not None:
            self._cold.cancel()
            self._cold = None


def _left_before(what: str, error: OSError) -> None: ...


def _failed_before(why: str) -> None: ...
