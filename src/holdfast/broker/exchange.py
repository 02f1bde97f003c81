"""What a connection carries: buffers for requests, a request with its answer, a piece of a segment on its way out.

The parts of connection.py that know no order: whose turn it is, and how much may be under way, is the connection's.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.model.errors import HoldfastError, LogReadError
from holdfast.protocol.framing import RequestHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.broker.quotas import Meter
    from holdfast.broker.request_times import RequestTimes
    from holdfast.broker.session import Session
    from holdfast.model.listeners import ListenerUse
    from holdfast.replication.types import ProduceResult
    from holdfast.storage.log_dir import LogDir
    from holdfast.storage.log_view import FileSlice

_EMPTY = memoryview(b"")
_PAGE_STRIDE = 64 * 1024


class BufferPool:
    """Reusable large receive buffers. Fresh pages cost more than the copy they save, so buffers are kept.

    At most ``limit_bytes`` are kept idle; what is in use is limited by the connections, which count it here.
    """

    def __init__(self, limit_bytes: int = 24 << 20) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._idle_bytes = 0
        self._limit_bytes = limit_bytes
        self.running_bytes = 0
        """Sizes of all requests under way."""

    def take(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes, contents undefined."""
        size_class = 1 << (size - 1).bit_length()
        free = self._free.get(size_class)
        if free:
            self._idle_bytes -= size_class
            return free.pop()
        return bytearray(size_class)

    def give(self, buffer: bytearray) -> None:
        """Hand back a buffer. It is forgotten, not kept, while anybody still has a view of it: a disk that hangs may
        write from it, and stamp it, long after its request was answered with an error."""
        if self._idle_bytes + len(buffer) <= self._limit_bytes and not _is_viewed(buffer):
            self._free.setdefault(len(buffer), []).append(buffer)
            self._idle_bytes += len(buffer)


def _is_viewed(buffer: bytearray) -> bool:
    """Whether a memoryview of it is alive: such a bytearray refuses to change its size."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False


class Answering(Protocol):
    """The connection that a request came by."""

    closed: bool
    is_lasting: bool
    listener: ListenerUse
    peer: tuple[Any, ...]
    pool: BufferPool
    session: Session

    def answered(self, exchange: Exchange) -> None: ...

    def known(self) -> None: ...

    def mute(self, delay_ms: int) -> None: ...

    def time_bytes(self, spent: Callable[[float], None], clock_s: Callable[[], float]) -> None: ...

    def close(self, reason: str | None) -> None: ...


class Exchange:
    """One request and, later, its answer. Handlers keep it and call ``finish`` exactly once."""

    __slots__ = (
        "_pooled",
        "answer",
        "appended",
        "body",
        "connection",
        "finished_s",
        "header",
        "hurry",
        "is_follower",
        "meter",
        "remote_s",
        "size",
        "started_s",
        "times",
        "weight",
    )

    def __init__(self, connection: Answering, header: RequestHeader, body: memoryview, size: int) -> None:
        self.connection = connection
        self.header = header
        self.body = body
        self.size = size
        self.answer: Sequence[bytes | SendSlice] | None = None
        self.hurry: Callable[[], None] | None = None
        """Set while the request is parked and should be answered at once when another one comes behind it."""
        self._pooled: bytearray | None = None
        self.times: RequestTimes | None = None
        """Who counts it, and is told of its errors; None: nobody, and the times below mean nothing."""
        self.is_follower = False
        """A Fetch of another broker."""
        self.meter: Meter | None = None
        """What it uses of its client's quotas; None: it has none."""
        self.started_s: float
        """With finished_s by the loop's clock, where somebody counts: when all of it had come, and when its answer was
        there."""
        self.finished_s: float
        self.weight = 0
        """For so many requests it stands in what is told of times; 0: its own are not noted (request_times.py)."""
        self.appended: ProduceResult | HoldfastError | None = None
        """What was appended for it, where somebody counts: when that began, and how long it waited for others."""
        self.remote_s = 0.0
        """How long it waited for something to fetch. Below 0 it waits still, and has since then."""

    def finish(self, answer: Sequence[bytes | SendSlice]) -> None:
        """Answer with these chunks (the first begins with the 4-byte size). An empty answer sends nothing."""
        self.answer = answer if not self.connection.closed else ()
        if self._pooled is not None:
            self.body.release()
            self.connection.pool.give(self._pooled)
            self._pooled = None
        self.body = _EMPTY  # whoever keeps this exchange does not keep its bytes
        self.connection.answered(self)

    def own_body(self) -> memoryview:
        """The request's bytes, writable, and safe to keep until ``finish``."""
        if self._pooled is None:
            self.body = memoryview(bytearray(self.body))
        return self.body

    def pooled(self, buffer: bytearray) -> None:
        """Say that the body stands in a buffer of the pool."""
        self._pooled = buffer

    def detach(self, buffer: bytearray) -> None:
        """Let go of the connection's own buffer, which the next request overwrites."""
        if self.body.obj is buffer:
            self.body = _EMPTY


class SendSlice:
    """Part of a segment on its way to a socket.

    Sent from the loop only while its pages are in the page cache; else it is read on its disk's thread first.
    Errors of the disk are judged by the log directory and leave here as LogReadError.
    """

    __slots__ = ("_handle", "_owner", "_position", "_size", "loading")

    def __init__(self, piece: FileSlice) -> None:
        self._owner = piece.owner
        self._handle = piece.handle
        self._position = piece.position
        self._size = piece.size
        self.loading = False

    def __len__(self) -> int:
        return self._size

    def __str__(self) -> str:
        return f"{self._handle} bytes {self._position} to {self._position + self._size}"

    def read_nowait(self) -> bytearray | None:
        """All bytes, or None when the disk would have to be waited for."""
        try:
            data = self._handle.preadv_nowait(self._size, self._position)
        except OSError as e:
            raise self._owner.dir.suspect(e, LogReadError, self._owner) from e
        return data if data is not None and len(data) == self._size else None

    def take_nowait(self, size: int) -> bytearray | None:
        """Its first bytes, ``size`` at most, or None when the disk would have to be waited for. They are not in it any
        more; one that is to stay whole is small (``read_nowait``)."""
        try:
            data = self._handle.preadv_nowait(min(size, self._size), self._position)
        except OSError as e:
            raise self._owner.dir.suspect(e, LogReadError, self._owner) from e
        if not data:
            return None
        self._position += len(data)
        self._size -= len(data)
        return data

    def is_of(self, directory: LogDir) -> bool:
        """Whether it is of a file of that directory."""
        return self._owner.dir is directory

    @property
    def directory(self) -> LogDir:
        """Of the file."""
        return self._owner.dir

    def is_hot(self) -> bool:
        """True when sampled pages of the slice are in the page cache, one every 64 KiB and the last. Never of a
        directory that does not answer: a page between two samples would hold up the whole loop."""
        if not self._owner.dir.answers:
            return False
        peek, end = self._handle.preadv_nowait, self._position + self._size
        try:
            return all(peek(1, at) for at in range(self._position, end, _PAGE_STRIDE)) and bool(peek(1, end - 1))
        except OSError as e:
            raise self._owner.dir.suspect(e, LogReadError, self._owner) from e

    def sendfile(self, sock: socket.socket) -> int:
        """Bytes that the socket took."""
        try:
            sent = os.sendfile(sock.fileno(), self._handle.fileno(), self._position, self._size)
        except OSError as e:
            if e.errno == errno.EIO:  # sockets have no such error: it is the file's (K18-10)
                raise self._owner.dir.suspect(e, LogReadError, self._owner) from e
            raise
        if sent == 0:
            raise LogReadError(f"{self}: the file ends before the slice")
        self._position += sent
        self._size -= sent
        return sent

    def load(self, done: Callable[[bytes | None, HoldfastError | None], None]) -> None:
        """Read on the disk's thread."""

        def read() -> bytes:
            with self._owner.guard(LogReadError):
                return self._handle.pread(self._size, self._position)

        self._owner.dir.queue.submit(read, done)
