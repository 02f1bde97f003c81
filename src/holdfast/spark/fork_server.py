"""Processes of Spark by fork: one process that has imported what they need, for the sessions that we make.

A first query starts four Python processes one after the other (catalog, source, plan, workers), a stream one more, and
each imports PySpark, NumPy and Arrow: a third of the query's time. ``spark_session`` starts this server while the JVM
starts; ``holdfast.spark.fork_client`` is the other side. The server has one thread, and one of Arrow's allocator, which
a fork has anew: so a fork is whole. It lives as long as the process that has started it, a fork as long as the process
that has asked for it.

docs/decisions/0065-spark-processes-by-fork.md
"""

from __future__ import annotations

import ast
import fcntl
import importlib
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from holdfast.spark import daemon
from holdfast.spark.fork_client import FORKED, MAX_REQUEST_BYTES, REFUSED, THREADS, interpreter

PRELOADED: Final = (
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "holdfast.spark.source",
    "holdfast.spark.filtering_reader",
    "holdfast.spark.topics",
    "holdfast.spark.typed_options",
    "holdfast.spark.stream_plan",
)
REQUEST_S: Final = 5.0


def preload() -> None:
    """What cannot be imported is left for the process that needs it to tell."""
    for name in PRELOADED:
        with suppress(Exception):
            importlib.import_module(name)
    daemon.preload()
    daemon.freeze()


def serve(listener: socket.socket, parent: int) -> None:
    """Forks for who asks, until ``parent``, a pipe from the process that has started the server, is closed."""
    mine = interpreter(sys.path[1:], os.environ)  # the first is the directory that -m adds later in other processes
    preload()
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    poller.register(parent, select.POLLIN)
    while True:
        ready = {number for number, _ in poller.poll()}
        if parent in ready:
            return
        with suppress(Exception):  # whatever one request was, the next is served
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(REQUEST_S)
                request, descriptors = _received(connection)
                try:
                    if request["interpreter"] != mine or request["threads"] not in (None, os.environ[THREADS]):
                        connection.sendall(REFUSED)
                    elif os.fork() == 0:
                        listener.close()
                        os.close(parent)
                        _become(connection, request, descriptors)
                finally:
                    for each in descriptors:
                        os.close(each)


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request, and the standard input, output and error of who asks. ValueError if it is none."""
    data, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
    try:
        while not data.endswith(b"\n"):
            more = connection.recv(MAX_REQUEST_BYTES)
            if not more or len(data) + len(more) > MAX_REQUEST_BYTES:
                raise ValueError(f"a request without an end, after {len(data)} bytes")
            data += more
        if len(descriptors) != 3:
            raise ValueError(f"{len(descriptors)} descriptors came with a request, expected 3")
        return ast.literal_eval(data.decode()), descriptors
    except BaseException:
        for each in descriptors:
            os.close(each)
        raise


def _become(connection: socket.socket, request: dict[str, Any], descriptors: list[int]) -> None:
    """Runs in the fork: the process that was asked for. Does not return."""
    code = 1
    try:
        for number, each in enumerate(descriptors):
            os.dup2(each, number)
            os.close(each)
        for signal_number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signal_number, signal.SIG_DFL)
        connection.settimeout(None)
        try:
            connection.sendall(FORKED)
        except OSError:  # who has asked was tired of waiting, and has started by itself
            os._exit(1)
        _end_with(connection)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environ"])
        sys.path[:] = [request["directory"], *request["path"]]
        name = request["arguments"][0]
        sys.argv[:] = request["arguments"]
        sys.modules.pop(name, None)  # it is __main__ here, and nothing else
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        with suppress(OSError):
            connection.sendall(bytes([code & 255]))
        os._exit(code & 255)


def _end_with(connection: socket.socket) -> None:
    """The fork gets SIGTERM when the process that has asked for it has gone: Spark ends that one."""
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    poller = select.poll()
    poller.register(connection, select.POLLHUP)
    if poller.poll(0):  # it has gone before there was a signal for it
        os._exit(1)


def main() -> int:
    address = Path(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that has started the server
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(16)
        try:
            serve(listener, sys.stdin.fileno())
        finally:
            address.unlink(missing_ok=True)
            with suppress(OSError):
                address.parent.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
