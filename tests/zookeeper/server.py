"""A real ZooKeeper server in a process of its own, from the jars that the package pyspark has.

Owns the process and the directory that it was given. One server, which keeps what it was told over kill -9 and a new
start. It knows nothing of any client.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from holdfast.spark.java import find_java
from holdfast.testing import free_port, wait_for

TICK_MS = 500
"""The shortest session is two of these, and the server ends sessions once in one."""


def jars() -> Path:
    """Where pyspark keeps them."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None and found.origin is not None, "pyspark is not installed"
    return Path(found.origin).parent / "jars"


class ZooKeeperServer:
    """``with ZooKeeperServer(folder) as server:`` serves at ``server.connect`` (HOST:PORT)."""

    def __init__(
        self, folder: Path, *, tick_ms: int = TICK_MS, settings: Sequence[str] = (), properties: Sequence[str] = ()
    ) -> None:
        """``settings``: more lines of its configuration; ``properties``: NAME=VALUE of its Java process."""
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = folder / "zoo.cfg"
        self._settings.write_text(
            f"tickTime={tick_ms}\ndataDir={folder / 'data'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\n" + "".join(f"{line}\n" for line in settings)
        )
        self._properties = [f"-D{each}" for each in properties]

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process_id(self) -> int:
        """Of the server: for signals."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    def start(self) -> None:
        """Returns when it serves. TimeoutError has what it wrote if it does not."""
        assert self._process is None, "it runs"
        log = self.folder / "server.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [
                    os.fspath(find_java().executable), "-Xmx256m", "-Dzookeeper.admin.enableServer=false",
                    *self._properties,
                    "-cp", f"{jars()}/*", "org.apache.zookeeper.server.ZooKeeperServerMain", str(self._settings),
                ],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder,
            )  # fmt: skip
        try:
            wait_for(self._serves, "a ZooKeeper server", timeout_s=120)
        except BaseException as e:
            self.kill()
            e.add_note(log.read_text(errors="replace")[-2000:])
            raise

    def _serves(self) -> bool:
        assert self._process is not None and self._process.poll() is None, "the server has ended"
        # One that is asked before it has read its data answers, and does not hang up.
        return self.ask("srvr", timeout_s=0.5).startswith("Zookeeper version:")

    def ask(self, word: str, *, timeout_s: float = 5.0) -> str:
        """What it answers to a four-letter word; ConnectionError, TimeoutError."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection:
            connection.sendall(word.encode())
            answer = b""
            while more := connection.recv(65536):
                answer += more
        return answer.decode()

    def signal(self, number: int) -> None:
        """SIGSTOP, say: it answers nothing until SIGCONT."""
        os.kill(self.process_id, number)

    def kill(self) -> None:
        """kill -9; nothing happens when it does not run."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> ZooKeeperServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
