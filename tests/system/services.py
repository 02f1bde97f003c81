"""A service manager for tests: brokers as processes of their own, each started and restarted by a command.

``python -m tests.system.services start|restart|stop DIR BROKER``: DIR has BROKER.properties; the broker's process is in
BROKER.pid and what it says in BROKER.log. ``restart`` returns when the new process was started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from holdfast.testing import free_port, wait_for
from holdfast.testing.processes import lives
from holdfast.testing.view import ask

IDS = (1, 2, 3)


def start(folder: Path, broker: int) -> None:
    with (folder / f"{broker}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli.main", "broker", str(folder / f"{broker}.properties")],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    started = folder / f"{broker}.pid.new"  # whoever looks meanwhile finds the one before
    started.write_text(str(process.pid))
    started.replace(folder / f"{broker}.pid")


def stop(folder: Path, broker: int) -> None:
    pid = int((folder / f"{broker}.pid").read_text())
    if lives(pid):
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not lives(pid), f"the end of broker {broker}")


class Services:
    """Three brokers with two log directories each, metadata in a directory that they share; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port = free_port(3)
        self.ports = {broker: port + broker - 1 for broker in IDS}
        self.bootstrap = ",".join(f"127.0.0.1:{each}" for each in self.ports.values())
        for broker in IDS:
            home = folder / f"broker-{broker}"
            (folder / f"{broker}.properties").write_text(
                f"node.id={broker}\nlisteners=PLAINTEXT://127.0.0.1:{self.ports[broker]}\n"
                f"log.dirs={home}/d1,{home}/d2\nmetadata.log.dirs={folder}/meta\nmin.insync.replicas=2\n"
                "default.replication.factor=3\noffsets.topic.replication.factor=3\noffsets.topic.num.partitions=3\n"
                "group.initial.rebalance.delay.ms=0\nlog.dir.probe.interval.ms=300\n"
            )

    def command(self, verb: str) -> str:
        """For a shell; {broker} is to be filled in."""
        return f"{sys.executable} -m tests.system.services {verb} {self.folder} {{broker}}"

    def pids(self) -> dict[int, int]:
        return {broker: int((self.folder / f"{broker}.pid").read_text()) for broker in IDS}

    def controller(self) -> int:
        found = ask("127.0.0.1", self.ports[IDS[0]], []).controller_id
        assert found is not None
        return found

    def answers(self, broker: int, before: Mapping[int, int]) -> bool:
        """Whether it serves, in another process than before."""
        if self.pids()[broker] == before[broker]:
            return False
        try:
            return broker in ask("127.0.0.1", self.ports[broker], []).brokers
        except OSError:
            return False

    def __enter__(self) -> Services:
        for broker in IDS:
            start(self.folder, broker)
        wait_for(
            lambda: all(len(ask("127.0.0.1", port, []).brokers) == len(IDS) for port in self.ports.values()),
            "three brokers that see each other",
        )
        return self

    def __exit__(self, *_: object) -> None:
        for broker in IDS:
            stop(self.folder, broker)


if __name__ == "__main__":
    verb, where, number = sys.argv[1:]
    if verb in ("stop", "restart"):
        stop(Path(where), int(number))
    if verb in ("start", "restart"):
        start(Path(where), int(number))
