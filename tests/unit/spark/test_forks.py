"""Python processes of Spark that are forks of a server, and those that are not."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from holdfast.spark.fork_client import FORK_SERVER, FORKED, THREADS, interpreter

ZIP = str(Path(pyspark.__file__).parent / "python/lib/pyspark.zip")
PATIENCE_S = 60
ZOMBIE = "Z"


def environment() -> dict[str, str]:
    """As a session has it; the variable of pytest's is another one in each stage of a test."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return own | {THREADS: "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}


def path_with(*first: str) -> str:
    """No part of it is empty: that would be the directory where Python starts."""
    return os.pathsep.join([*first, *filter(None, [os.environ.get("PYTHONPATH")])])


def until(found: Callable[[], Any], what: str) -> Any:
    limit = time.monotonic() + PATIENCE_S
    while not (result := found()):
        assert time.monotonic() < limit, f"not within {PATIENCE_S} s: {what}"
        select.select([], [], [], 0.02)
    return result


def listens(address: Path) -> bool:
    """The path is there a moment earlier."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(address)) == 0


def parent_of(pid: int) -> int:
    """0 for a process that there is not, or that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return 0 if fields[0] == ZOMBIE else int(fields[1])


@pytest.fixture
def folder() -> Iterator[Path]:
    """For sockets, whose paths have 107 bytes at most: pytest's folders are longer where it runs in parallel."""
    with tempfile.TemporaryDirectory(prefix="forks-") as found:
        yield Path(found)


@pytest.fixture
def address(folder: Path) -> Path:
    (folder / "server").mkdir()
    return folder / "server/socket"


@pytest.fixture
def server(address: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "holdfast.spark.fork_server", str(address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment()) as process:
        until(lambda: listens(address), "the server listens")
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


class Daemon:
    """PySpark's daemon, as the JVM starts it, with its standard input and output in our hands."""

    def __init__(self, address: Path, folder: Path, **environ: str) -> None:
        given = {
            FORK_SERVER: str(address),
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
        }
        path = path_with(ZIP)
        self.asked = subprocess.Popen(
            [sys.executable, "-m", "pyspark.daemon", "pyspark.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment() | given | {"PYTHONPATH": path} | environ,
        )  # fmt: skip
        assert self.asked.stdout is not None
        size = struct.unpack(">i", self.asked.stdout.read(4))[0]
        assert Path(self.asked.stdout.read(size).decode()).parent == folder

    def end(self) -> tuple[int, bytes]:
        """As the JVM does: closes its standard input. The code, which PySpark has as 1, and what it has said."""
        assert self.asked.stdin is not None and self.asked.stderr is not None and self.asked.stdout is not None
        self.asked.stdin.close()
        said = self.asked.stderr.read()
        self.asked.stdout.close()
        self.asked.stderr.close()
        return self.asked.wait(PATIENCE_S), said


def forks_of(server: subprocess.Popen[bytes]) -> list[int]:
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if parent_of(pid) == server.pid]


def test_a_daemon_is_a_fork_that_has_imported_what_it_needs(
    server: subprocess.Popen[bytes], address: Path, folder: Path
) -> None:
    daemon = Daemon(address, folder)
    (pid,) = forks_of(server)
    assert "llvmlite" in Path(f"/proc/{pid}/maps").read_text()
    assert daemon.end() == (1, b"")
    until(lambda: not parent_of(pid), "the fork has ended")


def test_no_thread_of_the_server_is_missed_in_a_fork(
    server: subprocess.Popen[bytes], address: Path, folder: Path
) -> None:
    Daemon(address, folder).end()  # the server has imported all that it will
    others = [task for task in Path(f"/proc/{server.pid}/task").iterdir() if task.name != str(server.pid)]
    assert {(task / "comm").read_text().strip() for task in others} <= {"jemalloc_bg_thd"}  # a fork makes its own


def test_a_fork_ends_with_the_process_that_has_asked_for_it(
    server: subprocess.Popen[bytes], address: Path, folder: Path
) -> None:
    daemon = Daemon(address, folder)
    (pid,) = forks_of(server)
    daemon.asked.send_signal(signal.SIGKILL)
    until(lambda: not parent_of(pid), "the fork has ended")
    assert daemon.end()[0] == -signal.SIGKILL


@pytest.mark.parametrize(
    "changed", [{"TZ": "Asia/Tokyo"}, {"PYTHONHASHSEED": "7"}, {THREADS: "2"}, {"PYTHONOPTIMIZE": "1"}]
)
def test_what_a_fork_cannot_be_starts_by_itself(
    server: subprocess.Popen[bytes], address: Path, folder: Path, changed: dict[str, str]
) -> None:
    daemon = Daemon(address, folder, **changed)
    assert not forks_of(server)
    assert daemon.end() == (1, b"")


def test_a_directory_more_on_the_path_makes_another_python(
    server: subprocess.Popen[bytes], address: Path, folder: Path
) -> None:
    daemon = Daemon(address, folder, PYTHONPATH=path_with(ZIP, str(folder)))
    assert not forks_of(server)
    assert daemon.end() == (1, b"")


def test_without_a_server_a_process_starts_by_itself(address: Path, folder: Path) -> None:
    assert Daemon(address, folder).end() == (1, b"")


@pytest.mark.parametrize(
    "sent",
    [b"", b"\n", b"[]\n", b"{}\n", b'{"interpreter": 1}\n', b"\xff\xfe\n", b"(" * 10_000 + b"\n", b"x" * 3_000_000],
)
def test_what_is_no_request_is_refused_and_the_next_one_is_served(
    server: subprocess.Popen[bytes], address: Path, folder: Path, sent: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(str(address))
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) != FORKED
        except (BrokenPipeError, ConnectionResetError):
            pass
    daemon = Daemon(address, folder)
    assert len(forks_of(server)) == 1
    daemon.end()


def test_the_server_ends_with_the_process_that_has_started_it_and_leaves_nothing(address: Path) -> None:
    command = [sys.executable, "-m", "holdfast.spark.fork_server", str(address)]
    owner = (
        f"import subprocess, sys; p = subprocess.Popen({command!r}, stdin=subprocess.PIPE); print(p.pid, flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        until(lambda: listens(address), "the server listens")
        process.send_signal(signal.SIGKILL)
    until(lambda: not address.parent.exists(), "the server has tidied up")
    until(lambda: not parent_of(pid), "the server has ended")


def test_variables_of_sparks_and_jars_on_the_path_are_no_difference(tmp_path: Path) -> None:
    (tmp_path / "spark-core.jar").touch()
    path = [str(tmp_path)]
    mine = interpreter(path, {"HOME": "/root"})
    assert interpreter([*path, str(tmp_path / "spark-core.jar"), "/not/there"], {"HOME": "/root"}) == mine
    assert interpreter(path, {"HOME": "/root", "SPARK_HOME": "/opt", "PYTHON_UDF_BATCH_SIZE": "1", "_": "sh"}) == mine
    assert interpreter(path, {"HOME": "/home"}) != mine
    assert interpreter(path, {"HOME": "/root", "PYTHONUTF8": "1"}) != mine
