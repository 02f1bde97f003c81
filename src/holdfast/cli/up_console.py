"""The web console beside the brokers of ``holdfast up``: a child that is started again when it dies.

    up listens --fork--> console serves the same socket        a killed one: the next is forked, connections wait

Owns the child and the socket. ``up`` itself listens, so that the address is known before a console runs and stays when
one is killed: a browser that asks meanwhile waits a moment. What it says goes to DIR/console.log.
"""

import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final, NoReturn

from holdfast.cli.child_processes import die_with_parent, status_of_first_thread
from holdfast.cli.up_address import HOST, REGISTRY_VARIABLE

LOG_NAME: Final = "console.log"
SHORT_S: Final = 5.0
MOST_SHORT: Final = 3
"""So many lives in a row that were shorter than ``SHORT_S``, and it is not started any more."""
BACKLOG: Final = 128


class ConsoleUnavailableError(Exception):
    """The message says why there can be none."""


class LocalConsole:
    """``listen`` first, ``start`` when there is something to show, ``reap`` when a child may have ended, ``close``."""

    def __init__(self, data_dir: str, port: int | None, command_config: str | None = None) -> None:
        """``command_config``: how brokers are spoken to, as ``holdfast console --command-config`` has it."""
        self._data_dir = data_dir
        self._command_config = command_config
        self._port = port
        self._socket: socket.socket | None = None
        self._bootstrap: tuple[str, ...] = ()
        self._pid: int | None = None
        self._begun_s = 0.0
        self._short = 0

    @property
    def runs(self) -> bool:
        return self._pid is not None

    @property
    def url(self) -> str:
        """Where a browser finds it, from ``listen`` on."""
        assert self._socket is not None
        return f"http://{HOST}:{self._socket.getsockname()[1]}/"

    def listen(self) -> None:
        """ConsoleUnavailableError: the port is taken."""
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, self._port or 0))
            found.listen(BACKLOG)
        except OSError as e:
            found.close()
            raise ConsoleUnavailableError(
                f"--console-port {self._port}: {e.strerror or e}: expected a free port, or --no-console"
            ) from None
        self._socket = found

    def start(self, bootstrap: tuple[str, ...] = ()) -> int:
        """Its process id. ``bootstrap``: where it finds brokers that change their disks; as before without."""
        self._bootstrap = bootstrap or self._bootstrap
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_console(parent)
        self._pid, self._begun_s = pid, time.monotonic()
        return pid

    def reap(self) -> str | None:
        """How it has ended since it was asked last, for a person; None while it runs."""
        if self._pid is None:
            return None
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if not pid:
            return None
        number, self._pid = self._pid, None
        self._short = self._short + 1 if time.monotonic() - self._begun_s < SHORT_S else 0
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            return f"the console (process {number}) was killed by {signal.Signals(-code).name}"
        return f"the console (process {number}) ended with code {code}: see {os.path.join(self._data_dir, LOG_NAME)}"

    @property
    def may_start(self) -> bool:
        """Whether it is worth it: not when it dies at once each time. Who asks for it by hand starts anew."""
        return self._short < MOST_SHORT

    def forgive(self) -> None:
        self._short = 0

    def in_a_child(self) -> None:
        """Of ``up``: nobody but the console and ``up`` has the socket."""
        if self._socket is not None:
            self._socket.close()

    def stop(self) -> None:
        """Tells it to end; ``close`` waits for it."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGTERM)

    def close(self, patience_s: float = 3.0) -> None:
        """It has ended then."""
        if self._pid is not None:
            limit_s = time.monotonic() + patience_s
            while status_of_first_thread(self._pid) is None and time.monotonic() < limit_s:
                time.sleep(0.01)
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- the child ---------------------------------------------------------------------------------------------

    def _become_console(self, parent: int) -> NoReturn:
        """Never returns into the parent's code."""
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            os.setpgid(0, 0)  # Ctrl-C in the terminal reaches `up` only
            die_with_parent(parent)
            self._redirect()
            code = self._serve()
        except BaseException:  # nothing may unwind into the parent's frames
            logging.getLogger(__name__).exception("the console ended by an error")
        finally:
            logging.shutdown()
            sys.stderr.flush()
            os._exit(code)

    def _serve(self) -> int:
        from holdfast.cli.lean import lean_imports

        with lean_imports():
            from holdfast.cli.command_config import CommandConfig, read_command_config
            from holdfast.console.server import ConsoleAsked, ConsoleRefused, serve
        path = self._command_config
        config = CommandConfig() if path is None else read_command_config(path, may_lack_user=True)
        assert self._socket is not None
        port = self._socket.getsockname()[1]
        asked = ConsoleAsked(
            bootstrap=self._bootstrap,
            host=HOST,
            port=port,
            read_only=False,
            data_dir=Path(self._data_dir),
            registry=os.environ.get(REGISTRY_VARIABLE, ""),
            security=config.security,
            has_user=config.has_user,
        )
        try:
            return serve(asked, self._socket)
        except ConsoleRefused as e:
            logging.getLogger(__name__).error("%s", e)
            return 1

    def _redirect(self) -> None:
        log = os.open(os.path.join(self._data_dir, LOG_NAME), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(fd, target)
        os.close(log)
        os.close(null)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True)
