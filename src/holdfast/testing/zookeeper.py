"""Real ZooKeeper servers for tests: one, or an ensemble, each in a process of its own that can be killed or frozen.

Owns the processes and the folders that it was given. What a server has acknowledged outlives ``kill`` and a new start.
It knows nothing of any client. A server runs at a ``ServerPlace``: this machine, or a host of
``holdfast.testing.Hosts``.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Protocol

from holdfast.java.runtime import find_java
from holdfast.java.zookeeper import CLIENT_PORT, EnsembleMember, ServerSettings, ask, connect_string, is_of, mode_of
from holdfast.testing.ports import free_port
from holdfast.testing.waiting import wait_for

TICK_MS = 500
"""The shortest session is two of these, and the server ends sessions once in one."""
SERVERS = 3
START_S = 120.0
LOOK_S = 0.5


class ServerPlace(Protocol):
    """Where a server runs."""

    @property
    def address(self) -> str:
        """By which others reach it."""

    def run(self, command: Sequence[str], *, cwd: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Starts a process that ends with this one."""

    def dial(self, port: int, *, timeout_s: float) -> socket.socket:
        """A connection to ``address`` from the place itself: it is there whatever happens to the network."""


class ThisMachine:
    """127.0.0.1."""

    address = "127.0.0.1"

    def run(self, command: Sequence[str], *, cwd: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """It is killed when the thread that starts it ends, where the system can do that."""
        ends = ["setpriv", "--pdeathsig", "KILL"] if sys.platform == "linux" and shutil.which("setpriv") else []
        return subprocess.Popen([*ends, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd)

    def dial(self, port: int, *, timeout_s: float) -> socket.socket:
        return socket.create_connection((self.address, port), timeout_s)


THIS_MACHINE: Final = ThisMachine()


class ZooKeeperServer:
    """``with ZooKeeperServer(folder) as server:`` serves at ``server.connect`` (HOST:PORT).

    ``settings`` is for a member of an ensemble; a server by itself makes its own, with a free port.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tick_ms: int = TICK_MS,
        settings: ServerSettings | None = None,
        place: ServerPlace = THIS_MACHINE,
    ) -> None:
        self.folder = folder
        self.settings = settings or ServerSettings(
            folder=folder, host=place.address, client_port=free_port(), tick_ms=tick_ms
        )
        self.port = self.settings.client_port
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        self.settings.write()

    @property
    def connect(self) -> str:
        return f"{self._place.address}:{self.port}"

    @property
    def process_id(self) -> int:
        """Of the server: for signals."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether its process lives, serving or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def mode(self) -> str | None:
        """``leader``, ``follower`` or ``standalone``; None while it does not serve or does not run."""
        if not self.runs:
            return None
        try:
            return mode_of(self.ask("srvr"))
        except OSError:
            return None

    def start(self) -> None:
        """Returns when it serves; alone, a member of an ensemble of three does not."""
        self.begin()
        self.wait_serving()

    def begin(self) -> None:
        """Starts the process and waits for nothing. ZooKeeperUnavailableError, JavaNotFoundError."""
        assert not self.runs, "it runs"
        self.settings.write()
        with (self.folder / "server.out").open("wb") as out:
            command = self.settings.command(find_java())
            self._process = self._place.run(command, cwd=self.folder, output=out)

    def wait_serving(self, *, timeout_s: float = START_S) -> None:
        """TimeoutError and AssertionError have what it wrote."""
        try:
            wait_for(self._serves, f"the ZooKeeper server {self.connect}", timeout_s=timeout_s)
        except BaseException as e:
            self.kill()
            e.add_note(self.settings.said())
            raise
        self.settings.sync()

    def _serves(self) -> bool:
        assert self.runs, f"the ZooKeeper server {self.connect} has ended"
        # One that is asked before it has read its data answers, and does not hang up.
        answers = (self.ask(word, timeout_s=LOOK_S) for word in ("srvr", "conf"))
        return mode_of(next(answers)) is not None and is_of(self.settings, next(answers))

    def ask(self, word: str, *, timeout_s: float = 5.0) -> str:
        """What it answers to a four-letter word; ConnectionError, TimeoutError."""
        return ask(lambda: self._place.dial(self.port, timeout_s=timeout_s), word)

    def signal(self, number: int) -> None:
        """To its process."""
        os.kill(self.process_id, number)

    def freeze(self) -> None:
        """SIGSTOP: connections stay, nothing is answered."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def stop(self, *, timeout_s: float = 30.0) -> None:
        """SIGTERM; returns when it has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(timeout_s)

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


class ZooKeeperEnsemble:
    """``with ZooKeeperEnsemble(folder) as ensemble:`` three servers, 1 to 3, which elect one of them.

    ``places``: by number, one server each; without it all are on this machine, on ports of their own. ``folder`` has
    the folder of each server; ``folders`` says other ones.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        places: Mapping[int, ServerPlace] | None = None,
        folders: Mapping[int, Path] | None = None,
        tick_ms: int = TICK_MS,
    ) -> None:
        if (folder is None) == (folders is None):
            raise ValueError("an ensemble has one folder for all its servers, or the folder of each: expected one")
        self.servers: dict[int, ZooKeeperServer] = {}
        spread = places is not None
        where = dict(places or dict.fromkeys(range(1, SERVERS + 1), THIS_MACHINE))
        members, ports = [], {}
        first = 0 if spread else free_port(3 * len(where)) - 3
        for number, place in where.items():
            if spread:
                members.append(EnsembleMember(number=number, host=place.address))
                continue
            ports[number] = first = first + 3
            members.append(
                EnsembleMember(number=number, host=place.address, quorum_port=first + 1, election_port=first + 2)
            )
        for number, place in where.items():
            at = folders[number] if folders is not None else Path(str(folder)) / f"zookeeper-{number}"
            settings = ServerSettings(
                folder=at, host=place.address, tick_ms=tick_ms, members=tuple(members), number=number,
                client_port=ports.get(number, CLIENT_PORT),
            )  # fmt: skip
            self.servers[number] = ZooKeeperServer(at, settings=settings, place=place)

    @property
    def connect(self) -> str:
        """All of them, as ``zookeeper.connect``."""
        return connect_string([(server.settings.host, server.port) for server in self.servers.values()])

    def start(self) -> None:
        """Starts those that do not run; returns when all serve."""
        started = [server for server in self.servers.values() if not server.runs]
        try:
            for server in started:
                server.begin()
            for server in self.servers.values():
                server.wait_serving()
        except BaseException:
            self.kill()
            raise

    def leader(self, *, timeout_s: float = 60.0) -> int:
        """Who leads; waits for an election that is going on. TimeoutError."""
        return wait_for(self._leads, "a leader of the ZooKeeper ensemble", timeout_s=timeout_s)

    def _leads(self) -> int:
        """0: nobody, or two who each believe it."""
        found = [number for number, server in self.servers.items() if server.mode == "leader"]
        return found[0] if len(found) == 1 else 0

    def kill(self) -> None:
        """kill -9 of all."""
        for server in self.servers.values():
            server.kill()

    def __enter__(self) -> ZooKeeperEnsemble:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
