"""Standard input and output of a process that also has an event loop.

A pipe may be slow or gone, and a file cannot be polled: each end has a daemon thread that blocks in its place, and
small bounded queues between it and the loop. Owns no meaning of the bytes.
"""

import asyncio
import contextlib
import errno
import io
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import BinaryIO

CHUNK_BYTES = 1 << 18
CHUNKS = 8


async def read_chunks(stream: BinaryIO) -> AsyncIterator[tuple[bytes, bool]]:
    """(bytes, whether more is there already) until the end; ``stream`` is read as it comes, not in full blocks. OSError
    where it cannot be read."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS)
    read = _reader_of(stream)

    def pump() -> None:
        while True:
            room.acquire()
            chunk: bytes | OSError
            try:
                chunk = read(CHUNK_BYTES)
            except ValueError:  # closed under us
                chunk = b""
            except OSError as e:
                chunk = b"" if e.errno == errno.EBADF else e
            try:
                loop.call_soon_threadsafe(arrived.put_nowait, chunk)
            except RuntimeError:  # the loop is over
                return
            if not chunk or isinstance(chunk, OSError):
                return

    threading.Thread(target=pump, name="stdin", daemon=True).start()
    while chunk := await arrived.get():
        if isinstance(chunk, OSError):
            raise chunk
        room.release()
        yield chunk, not arrived.empty()


def _reader_of(stream: BinaryIO) -> Callable[[int], bytes]:
    """Reads the descriptor itself where there is one: a thread that waits in a buffered reader holds its lock, and an
    interpreter that ends meanwhile aborts."""
    with contextlib.suppress(io.UnsupportedOperation, AttributeError):
        fd = stream.fileno()
        return lambda size: os.read(fd, size)
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read


def _writer_of(stream: BinaryIO) -> Callable[[bytes], None]:
    """Writes to the descriptor itself where there is one, for the same reason."""
    with contextlib.suppress(io.UnsupportedOperation, AttributeError):
        fd = stream.fileno()
        stream.flush()

        def write(data: bytes) -> None:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]

        return write

    def write_stream(data: bytes) -> None:
        stream.write(data)
        stream.flush()

    return write_stream


class PipeOutput:
    """Writes in order in a thread of its own. ``closed`` once the reader of the pipe has gone."""

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self.closed = False
        if stream is None:
            if sys.stdout is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # closed by the shell
            stream = sys.stdout.buffer
        self._write = _writer_of(stream)
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._pump, name="stdout", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Returns when the bytes are with the system. BrokenPipeError when nobody reads any more, OSError when they
        cannot be written."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._jobs.put((data, done))
        await done

    def _pump(self) -> None:
        while True:
            data, done = self._jobs.get()
            error: OSError | None = None
            try:
                self._write(data)
            except OSError as e:
                error = e
            try:
                self._loop.call_soon_threadsafe(self._finish, done, error)
            except RuntimeError:  # the loop is over
                return

    def _finish(self, done: "asyncio.Future[None]", error: OSError | None) -> None:
        if error is not None:
            self.closed = True
        if not done.done():
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
