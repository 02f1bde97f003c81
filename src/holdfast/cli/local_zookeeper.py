"""The ZooKeeper server beside the brokers of ``holdfast up``, for as long as there are brokers.

    up --fork--> keeper --exec--> java         a pipe: up and every broker have its one end, the keeper the other

Owns the keeper. The server has to outlive the brokers, which still need it while they stop, also when ``up`` is killed
and they stop by themselves. So the keeper waits for the end of the pipe, which comes when ``up`` and all brokers have
ended, however they did, and then stops the server; the server is killed when the keeper is (PR_SET_PDEATHSIG). The
keeper has the lock of the data directory as brokers have it: the next ``up`` waits for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from holdfast.cli.layout import write_atomically
from holdfast.cli.up_address import HOST
from holdfast.java.runtime import find_java
from holdfast.java.zookeeper import ServerSettings, ask, is_of, mode_of

TICK_MS = 500
"""All is on one machine: a broker that is silent for a second is dead."""
KEEPS = 3
STOP_S = 5.0
LOOK_S = 0.5
ASK_S = 0.5
"""A server that is asked before it has read its data answers, and does not hang up."""
PID = "server.pid"
_PR_SET_PDEATHSIG = 1


class LocalZooKeeper:
    """``start`` before the first broker is forked; ``close`` when they have ended."""

    def __init__(self, folder: Path, port: int) -> None:
        self.settings = ServerSettings(folder=folder, host=HOST, client_port=port, tick_ms=TICK_MS, keeps=KEEPS)
        self.port = port
        self._command: list[str] = []
        self._keeper: int | None = None
        self._pipe: tuple[int, int] | None = None

    def prepare(self) -> None:
        """Its files and its command. ZooKeeperUnavailableError, JavaNotFoundError, OSError."""
        self._command = self.settings.command(find_java())
        self.settings.write()

    @property
    def runs(self) -> bool:
        """Whether the keeper lives, and with it the server, as far as is known."""
        return self._keeper is not None

    def start(self) -> None:
        """Nothing is waited for. What is done about a signal is the caller's matter: the child has none of it."""
        if self._pipe is None:
            self._pipe = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._become_keeper(*self._pipe)
        self._keeper = pid

    def serves(self) -> bool:
        """Whether this server, and no other one, answers."""
        try:
            found = mode_of(self._ask("srvr")) is not None and is_of(self.settings, self._ask("conf"))
        except OSError:
            return False
        if found:
            self.settings.sync()
        return found

    def _ask(self, word: str) -> str:
        return ask(lambda: socket.create_connection((HOST, self.port), ASK_S), word)

    def reap(self) -> bool:
        """Whether it has ended since it was asked last."""
        if self._keeper is None or not os.waitpid(self._keeper, os.WNOHANG)[0]:
            return False
        self._keeper = None
        return True

    def close(self) -> None:
        """To be called when no broker is left. Waits for the end of the server."""
        if self._pipe is not None:
            for fd in self._pipe:
                os.close(fd)
            self._pipe = None
        if self._keeper is not None:
            os.waitpid(self._keeper, 0)
            self._keeper = None

    def _become_keeper(self, end: int, ours: int) -> NoReturn:
        """The child: never returns into the parent's code."""
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGUSR1, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # it ends with the pipe
            os.setpgid(0, 0)
            os.close(ours)
            gc.freeze()
            self._redirect()
            code = self._keep(end)
        finally:
            os._exit(code)

    def _redirect(self) -> None:
        """It has nothing to say, and whoever waits for the end of what ``up`` writes is not to wait for it."""
        said = os.open(self.settings.folder / "server.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, target in ((null, 0), (said, 1), (said, 2)):
            os.dup2(fd, target)
        os.close(said)
        os.close(null)

    def _keep(self, end: int) -> int:
        """The server's exit code, or 0 when it was not needed any more."""
        server = subprocess.Popen(self._command, cwd=self.settings.folder, preexec_fn=_die_with_keeper)
        write_atomically(os.fspath(self.settings.folder / PID), f"{server.pid}\n")
        try:
            pidfd = os.pidfd_open(server.pid)
        except (AttributeError, OSError):
            pidfd = None
        watched = [end] if pidfd is None else [end, pidfd]
        while end not in select.select(watched, [], [], LOOK_S if pidfd is None else None)[0]:
            if server.poll() is not None:
                return server.returncode & 0xFF
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(STOP_S)
        server.kill()
        server.wait()
        return 0


def _die_with_keeper() -> None:
    """In the server, before it is one."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
