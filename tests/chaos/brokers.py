"""The processes: one per broker, each from a properties file, as ``holdfast broker FILE`` starts them.

Owns the processes and their files below one directory, in the layout of ``holdfast up``: ``broker-N.properties``,
``broker-N.log``, ``broker-N/log-dir-K``, ``metadata``. Decides nothing about when something happens to them. Call
``start`` from a thread that lives as long as the brokers shall: they end with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

from holdfast.cli.up_secure import ADMIN, CLIENT
from holdfast.testing import wait_for
from holdfast.testing.processes import children, exit_code, has_gone, lives
from holdfast.testing.view import ClusterView, ask
from tests.chaos.network import ASKED, CLIENTS, Network
from tests.chaos.security import Security

LOG_DIRS = 2
ROOT = Path(__file__).parent.parent.parent


class Brokers:
    """Brokers 1..count over a network. All are down at first."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        *,
        count: int,
        settings: Mapping[str, str],
        user: int | None = None,
        python: Callable[[], tuple[str, dict[str, str]]] | None = None,
        metadata_dirs: Sequence[Path] = (),
        security: Security | None = None,
    ) -> None:
        """``user``: whom the processes run as, by an interpreter and environment that ``python`` tells."""
        self.directory = directory
        self.security = security
        self._user, self._python = user, python
        self.ids = tuple(range(1, count + 1))
        self.network = network
        self.started = 0
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._stopped: set[int] = set()
        self._metadata_dirs = tuple(metadata_dirs) or (directory / "metadata",)
        for path in self._metadata_dirs:
            path.mkdir(parents=True, exist_ok=True)
        for broker in self.ids:
            self._write(broker, settings)
        if user is not None:
            for path in (directory, *directory.glob("*"), *directory.glob("broker-*/*")):
                os.chown(path, user, user)

    def _write(self, broker: int, settings: Mapping[str, str]) -> None:
        dirs = [self.log_dir(broker, number) for number in range(1, LOG_DIRS + 1)]
        for path in dirs:
            path.mkdir(parents=True, exist_ok=True)
        properties = {
            "node.id": str(broker),
            "listeners": self._listeners(partial(self.network.listener, broker)),
            "advertised.listeners": self._listeners(partial(self.network.advertised, broker)),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "operator.listener.names": "PLAINTEXT",
            "log.dirs": ",".join(map(str, dirs)),
            **({} if "metadata.store" in settings else {"metadata.log.dirs": ",".join(map(str, self._metadata_dirs))}),
            **({} if self.security is None else self.security.settings()),
            **settings,
        }
        self._file(broker).write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def _listeners(self, address: Callable[[int], tuple[str, int]]) -> str:
        names = ("PLAINTEXT", "INTERNAL") if self.security is None else self.security.listeners
        return ",".join("{}://{}:{}".format(name, *address(which)) for which, name in enumerate(names))

    def log_dir(self, broker: int, number: int) -> Path:
        """As the broker has it in ``log.dirs``."""
        return self.directory / f"broker-{broker}" / f"log-dir-{number}"

    def _file(self, broker: int) -> Path:
        return self.directory / f"broker-{broker}.properties"

    def log(self, broker: int) -> Path:
        return self.directory / f"broker-{broker}.log"

    @property
    def bootstrap(self) -> str:
        return ",".join("{}:{}".format(*self.network.advertised(broker)) for broker in self.ids)

    def login(self, *, as_admin: bool = False) -> dict[str, Any]:
        """What librdkafka needs to speak to them, beside where they are."""
        if self.security is None:
            return {}
        return self.security.librdkafka(ADMIN if as_admin else CLIENT)

    def options(self, broker: int) -> tuple[str, ...]:
        """Of a command that asks this one."""
        address = "{}:{}".format(*self.network.advertised(broker))
        return ("--bootstrap-server", address) if self.security is None else self.security.command(address)

    def asked(self, broker: int) -> tuple[str, int]:
        """Where the run itself asks it."""
        return self.network.advertised(broker, CLIENTS if self.security is None else ASKED)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """With which it does."""
        return None if self.security is None else self.security.tls

    def make_users(self) -> None:
        """Once all serve."""
        if self.security is not None:
            self.security.make_users([self.asked(broker) for broker in self.ids])

    # -- processes ---------------------------------------------------------------------------------------------

    def start(self, broker: int) -> None:
        """Returns at once. Nothing happens if it runs."""
        if self.runs(broker):
            return
        python, environment = sys.executable, dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        if self._python is not None:
            python, environment = self._python()
        command = [python, "-m", "tests.chaos.launch", "broker", str(self._file(broker))]
        with self.log(broker).open("ab") as log, self.network.inside(broker):
            self._processes[broker] = self._launch(broker, command, environment, log)
        self.network.started(broker, self._processes[broker].pid)
        self.started += 1

    def _launch(
        self, broker: int, command: list[str], environment: dict[str, str], log: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
            user=self._user,
            group=self._user,
            extra_groups=None if self._user is None else [],
        )

    def runs(self, broker: int) -> bool:
        """Whether its process lives, stopped or not. One that was killed does not, though a thread waits for a disk."""
        process = self._processes.get(broker)
        return process is not None and process.poll() is None and lives(process.pid)

    @property
    def running(self) -> list[int]:
        return [broker for broker in self.ids if self.runs(broker)]

    def exit_code(self, broker: int) -> int | None:
        """Of a process that ended; None while it runs."""
        process = self._processes[broker]
        code = process.poll()
        return exit_code(process.pid) if code is None and not lives(process.pid) else code

    def kill(self, broker: int) -> bool:
        """``kill -9``; returns when the process is gone, but for threads that wait for a disk. False if there was
        none."""
        if not self.runs(broker):
            return False
        process = self._processes[broker]
        helpers = children(process.pid)
        process.kill()
        wait_for(lambda: has_gone(process.pid, helpers), f"the end of broker {broker}, process {process.pid}")
        process.poll()
        self._stopped.discard(broker)
        return True

    def terminate(self, broker: int) -> None:
        """SIGTERM: a controlled shutdown begins."""
        if self.runs(broker):
            self._processes[broker].terminate()

    def freeze(self, broker: int) -> None:
        """SIGSTOP."""
        if self.runs(broker):
            self._stopped.add(broker)
            self._processes[broker].send_signal(signal.SIGSTOP)

    def thaw(self, broker: int) -> None:
        """SIGCONT."""
        self._stopped.discard(broker)
        if self.runs(broker):
            self._processes[broker].send_signal(signal.SIGCONT)

    def is_frozen(self, broker: int) -> bool:
        return broker in self._stopped

    def stop_all(self, timeout_s: float = 30) -> list[str]:
        """Controlled shutdown of all; what went wrong with it."""
        running = self.running
        for broker in running:
            self.thaw(broker)
            self.terminate(broker)
        deadline = time.monotonic() + timeout_s
        trouble = []
        for broker in running:
            try:
                left_s = max(0.1, deadline - time.monotonic())
                wait_for(lambda b=broker: not self.runs(b), f"the end of broker {broker}", timeout_s=left_s)  # type: ignore[misc]
                code = self.exit_code(broker)
                if code != 0:
                    trouble.append(f"broker {broker} ended with exit code {code} when it was asked to stop")
            except TimeoutError:
                trouble.append(f"broker {broker} did not stop within {timeout_s:g} s")
                self.kill(broker)
        return trouble

    def kill_all(self) -> None:
        for broker in self.ids:
            self.kill(broker)

    def cpu_seconds(self) -> float:
        """Used by the processes that run now."""
        ticks = 0
        for broker in self.running:
            fields = Path(f"/proc/{self._processes[broker].pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def open_files(self, broker: int, below: Path) -> list[str]:
        """What the broker's process has open below a directory."""
        found = []
        for link in Path(f"/proc/{self._processes[broker].pid}/fd").glob("*") if self.runs(broker) else ():
            with contextlib.suppress(OSError):  # closed meanwhile
                found.append(os.readlink(link))
        return [path for path in found if Path(path).is_relative_to(below)]

    # -- what they say -----------------------------------------------------------------------------------------

    def view(self, broker: int, topics: list[str] | None = None) -> ClusterView | None:
        """The cluster as this broker sees it; None if it does not answer."""
        if not self.runs(broker) or self.is_frozen(broker):
            return None
        try:
            return ask(*self.asked(broker), topics, timeout_s=1, tls=self.tls)
        except OSError:
            return None

    def controller(self) -> int | None:
        """As the brokers that answer say, when they agree."""
        views = [view for broker in self.running if (view := self.view(broker, [])) is not None]
        seen = {view.controller_id for view in views}
        return seen.pop() if len(seen) == 1 else None
