"""PySpark's worker daemon with the decoder loaded before it forks: ``spark.python.daemon.module`` of our sessions.

A worker then starts with what it needs, shares its memory with the others, and compiles nothing. Driver-side daemons
(planning, catalog) load nothing. Also quieter: a worker that the JVM has let go says nothing about it.

What was measured to cost time is set for each worker:

* PySpark has every worker collect garbage after every task: some 40 ms for all that is imported, which a stream with
  ten batches a second pays in four processes. What is imported stays, so it is frozen: then a collection looks at what
  tasks have made.
* The C library gives memory of more than 128 KiB back to the system, and asks for it again for the next column: a page
  fault for each 4 KiB. It may keep HEAP_KEPT_BYTES, which tasks with large records use again and again.
* What a socket to the JVM holds by default is less than a column of an Arrow batch. With one as large, the worker and
  the JVM run side by side.
"""

import ctypes
import gc
import os
import socket
import sys
from contextlib import suppress
from typing import Any, Final

from pyspark import daemon

HEAP_KEPT_BYTES: Final = 128 << 20
FROM_HEAP_BYTES: Final = 64 << 20
SOCKET_BYTES: Final = 1 << 20
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def preload() -> None:
    """Imports and warms what a read needs; a failure here is left for the worker to tell."""
    os.register_at_fork(after_in_child=reseed_numpy)
    try:
        from holdfast.spark.numba_cache import settle_cache

        settle_cache()
        import encodings.idna  # noqa: F401  # the first connection to a host imports it

        import pyarrow  # noqa: F401
        import pyspark.sql.pandas.types
        import pyspark.worker  # noqa: F401

        import holdfast.spark.fetching  # noqa: F401
        from holdfast.records.columns import COLUMN_TYPES, Chunk, ColumnDecoder
        from holdfast.records.record import BatchBuilder

        builder = BatchBuilder()
        builder.append(b"k", b"v", 0)
        decoder = ColumnDecoder(list(COLUMN_TYPES))
        for _ in decoder.decode(Chunk.scan(bytearray(builder.build())), start=0, end=1):
            pass
    except Exception:
        return


def reseed_numpy() -> None:
    """A fork has NumPy's generator as it was: without this ``numpy.random.rand()`` is the same in all workers."""
    loaded = sys.modules.get("numpy.random")
    if loaded is not None:
        loaded.seed()


def quiet(worker: Any) -> Any:
    """``worker`` without a trace when the JVM has closed the connection: that is how it lets a worker go."""

    def run(*arguments: Any) -> Any:
        try:
            return worker(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return run


def keep_memory() -> None:
    """As the module's text says; where the C library is another one, nothing."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, FROM_HEAP_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, HEAP_KEPT_BYTES)


def freeze() -> None:
    """What there is now is not looked at again when garbage is collected."""
    gc.collect()
    gc.freeze()


def settled(worker: Any) -> Any:
    """``worker`` with a larger socket, after whose first task all that its process has loaded is frozen."""
    tasks = 0

    def run(connection: socket.socket, *arguments: Any) -> Any:
        nonlocal tasks
        if tasks == 0:
            with suppress(OSError):  # it is what it was; the system has a limit
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        code = worker(connection, *arguments)
        tasks += 1
        if tasks == 1:
            freeze()
        return code

    return run


if __name__ == "__main__":
    if sys.argv[1:2] == ["pyspark.worker"]:
        if "holdfast.records.kernels.decode" not in sys.modules:  # it is a fork of a process that has it
            preload()
        keep_memory()
    freeze()
    daemon.worker = settled(quiet(daemon.worker))
    daemon.manager()
