"""A Python process that Spark starts asks to be a fork of a server, and so imports no PySpark, NumPy and Arrow itself.

Owns the request, what makes a fork as good as a start, and the server's start. Runs while Python starts, so it imports
little, and writes its request as Python literals. Whatever is not as expected, the process goes on starting by itself.
See ``holdfast.spark.fork_server``.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in pyspark_path
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Final

FORK_SERVER: Final = "HOLDFAST_SPARK_FORKS"
"""Environment variable: the path of the socket where a server of forks listens."""
THREADS: Final = "OMP_NUM_THREADS"
"""Spark sets it for workers, to the cores of a task; NumPy reads it when it is imported."""
OF_SPARK: Final = ("SPARK_", "PYSPARK_", "_PYSPARK_", "PYTHON_", "HOLDFAST_")
"""How the variables begin that Spark sets for its processes, and that are read after the start."""
NOT_COMPARED: Final = ("PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "_", THREADS)
"""What is compared otherwise, and what shells leave behind."""
MAX_REQUEST_BYTES: Final = 1 << 20
MAX_PATH_BYTES: Final = 100
"""A socket's address has 108 bytes at most."""
FORKED: Final = b"f"
REFUSED: Final = b"r"
WAIT_S: Final = 10.0
"""For a server that still imports; a start of its own takes less than a second."""

_servers: list[Any] = []


def interpreter(path: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    """What is settled when Python has started and imported: a fork is as good as a process of its own if all of this is
    the same. Jars and what is not there are on the path for nothing."""
    return {
        "python": [sys.executable, sys.version, list(sys.flags)],
        "path": [each for each in path if each and not each.endswith(".jar") and os.path.exists(each)],
        "environ": {
            name: value for name, value in environ.items() if not name.startswith(OF_SPARK) and name not in NOT_COMPARED
        },
    }


def be_a_fork() -> None:
    """Does not return where a server has made the process that this one is to be: then this one waits for its end."""
    address, arguments = os.environ.get(FORK_SERVER), sys.orig_argv[1:]
    if not address or len(arguments) < 2 or arguments[0] != "-m":
        return
    if not arguments[1].startswith(("pyspark.", "holdfast.spark.")):
        return
    import socket

    request = {
        "interpreter": interpreter(sys.path, os.environ),
        "threads": os.environ.get(THREADS),
        "arguments": arguments[1:],
        "directory": os.getcwd(),
        "path": sys.path,
        "environ": dict(os.environ),
    }
    data = repr(request).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WAIT_S)
            connection.connect(address)
            sent = socket.send_fds(connection, [data], [0, 1, 2])
            connection.sendall(data[sent:])
            if connection.recv(1) == FORKED:
                _wait(connection)
    except (OSError, ValueError):
        return


def _wait(connection: Any) -> None:
    """Until the fork has ended. Standard input and output are not kept open here: Spark sees when the fork closes
    them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    connection.settimeout(None)
    code = connection.recv(1)
    os._exit(code[0] if code else 1)


def start_server() -> None:
    """A server for the JVM that this process is about to start, which hands its address on. Not where a JVM runs
    already, where workers are another Python, nor where forks are not safe."""
    from pyspark import SparkContext

    if sys.platform != "linux" or SparkContext._gateway is not None or _running():
        return
    if os.environ.get("PYSPARK_PYTHON") != sys.executable:
        return
    import subprocess
    import tempfile

    address = os.path.join(tempfile.mkdtemp(prefix="holdfast-forks-"), "socket")
    if len(address.encode()) > MAX_PATH_BYTES:
        os.rmdir(os.path.dirname(address))
        return
    environ = {THREADS: "1", **os.environ, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}  # as Spark sets them
    command = [sys.executable, "-m", "holdfast.spark.fork_server", address]
    _servers[:] = [
        (os.getpid(), subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environ))
    ]
    os.environ[FORK_SERVER] = address


def _running() -> bool:
    """Whether this process has a server; its parent's would end with the parent."""
    return any(owner == os.getpid() and server.poll() is None for owner, server in _servers)
