"""How a broker is restarted: as a child of ``holdfast up``, or by a command of the operator's.

Owns processes, signals and the proof that a restart has happened. Never asks whether it is safe. What goes wrong is
Failed.
"""

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final, Protocol

from holdfast.cli.child_processes import status_of_first_thread
from holdfast.cli.detached import DetachedError, running_up
from holdfast.cli.failing import Failed, Misused
from holdfast.cli.layout import log_path
from holdfast.client.views import BrokerNode
from holdfast.model.types import BrokerId

STEP_S: Final = 0.02
SIGNAL_STEP_S: Final = 0.25
CONNECT_S: Final = 5.0
PATIENCE_S: Final = 5.0
STDERR: Final = 2
_PARENT = 1
"""Of the fields of /proc/PID/stat behind the name."""


class RestartWay(Protocol):
    """One way to restart brokers."""

    def restart(self, broker: BrokerId, node: BrokerNode | None, timeout_s: float) -> None:
        """Returns when another process of the broker was started; whether it lives, ``check`` may know. ``node``: where
        it is; None: it is down."""

    def check(self, broker: BrokerId) -> None:
        """Failed when it is known that the broker has ended again."""


class ByUp:
    """SIGTERM to the broker, which gives its leaders away and ends; SIGUSR1 to ``up``, which starts it again."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        try:
            self._up = running_up(data_dir)
        except DetachedError as e:
            raise Failed(str(e)) from e

    def restart(self, broker: BrokerId, node: BrokerNode | None, timeout_s: float) -> None:
        pid = self._pids().get(broker)
        if pid is None:
            raise Failed(f"broker {broker} is not one of {self._data_dir}: its pids.json has {sorted(self._pids())}")
        limit_s = time.monotonic() + timeout_s
        try:
            if self._runs(pid):
                os.kill(pid, signal.SIGTERM)
            while self._runs(pid):
                if time.monotonic() > limit_s:
                    raise Failed(
                        f"broker {broker} (process {pid}) still runs {timeout_s:g} s after SIGTERM: see "
                        f"{log_path(str(self._data_dir), broker)}"
                    )
                time.sleep(STEP_S)
        finally:  # also where somebody is impatient: it shall not stay down
            os.kill(self._up, signal.SIGUSR1)
        told_s = time.monotonic()
        while self._pids().get(broker) == pid:
            if time.monotonic() > limit_s:
                raise Failed(f"`up` (process {self._up}) did not start broker {broker} again within {timeout_s:g} s")
            if time.monotonic() > told_s + SIGNAL_STEP_S:  # its port may not have been free yet
                os.kill(self._up, signal.SIGUSR1)
                told_s = time.monotonic()
            time.sleep(STEP_S)

    def check(self, broker: BrokerId) -> None:
        pid = self._pids().get(broker)
        if pid is not None and not self._runs(pid):
            log = log_path(str(self._data_dir), broker)
            raise Failed(f"broker {broker} (process {pid}) has ended after its restart: see {log}")

    def _pids(self) -> dict[int, int]:
        path = self._data_dir / "pids.json"
        try:
            return {int(broker): int(pid) for broker, pid in json.loads(path.read_text()).items()}
        except (ValueError, AttributeError) as e:
            raise Failed(f"{path}: {e}: expected broker ids and their processes") from e

    def _runs(self, pid: int) -> bool:
        """As a child of this ``up``: a number may have gone to another process."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return False
        return int(fields[_PARENT]) == self._up and status_of_first_thread(pid) is None


class ByCommand:
    """A command of the shell, in which ``{broker}``, ``{host}`` and ``{port}`` are filled in. It has to restart the
    broker: a connection that was opened before must be closed after it."""

    def __init__(self, template: str) -> None:
        if "{broker}" not in template:
            raise Misused(f"--command {template!r}: expected {{broker}} in it, for the id of the broker to restart")
        self._template = template

    def restart(self, broker: BrokerId, node: BrokerNode | None, timeout_s: float) -> None:
        limit_s = time.monotonic() + timeout_s
        if node is None:
            self._run(broker, None, timeout_s)
            return
        try:
            before = socket.create_connection((node.host, node.port), CONNECT_S)
        except OSError as e:
            raise Failed(f"broker {broker} at {node.address}: {e.strerror or e}: expected it to answer") from e
        with before:
            self._run(broker, node, timeout_s)
            before.settimeout(max(0.1, limit_s - time.monotonic()))
            try:
                while before.recv(1024):
                    pass
            except TimeoutError:
                raise Failed(
                    f"the command did not restart broker {broker}: a connection to {node.address} from before is open "
                    f"after {timeout_s:g} s"
                ) from None
            except OSError:  # reset: the process has gone
                pass

    def _run(self, broker: BrokerId, node: BrokerNode | None, timeout_s: float) -> None:
        """What the command prints goes to standard error: standard output is ours."""
        values = {"broker": str(broker), "host": "" if node is None else node.host}
        values["port"] = "" if node is None else str(node.port)
        line = self._template
        for name, value in values.items():
            line = line.replace("{" + name + "}", shlex.quote(value))
        process = subprocess.Popen(line, shell=True, stdin=subprocess.DEVNULL, stdout=STDERR, start_new_session=True)
        try:
            code = process.wait(timeout_s)
        except BaseException as e:
            _ended(process)
            if isinstance(e, subprocess.TimeoutExpired):
                raise Failed(f"the command for broker {broker} ran for more than {timeout_s:g} s: {line}") from None
            raise
        if code != 0:
            raise Failed(f"the command for broker {broker} ended with exit code {code}: {line}")

    def check(self, broker: BrokerId) -> None:
        """Nobody knows of its process here."""


def _ended(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started, unless that has left its session."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
