"""Brokers of one machine, each of a software of its own: this one, or that of an earlier commit of this repository.

Owns the processes, their properties and logs, and the earlier software, which is made from the repository's history.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import pytest

from holdfast.testing import free_port, wait_for
from holdfast.testing.processes import children, has_gone
from holdfast.testing.view import ClusterView, ask

ROOT = Path(__file__).parents[2]
BEFORE = "13ef593f03153f02a6b7141e13dca79044722d9c"
"""The last commit before there were listeners, hosts with ids and ensembles: what speaks 0.1-IV0 and nothing else."""
TIMEOUT_S = 120.0


def software_of(commit: str, folder: Path) -> Path:
    """What to put on PYTHONPATH for the software of a commit, which is laid out below ``folder``. Where the repository
    has not got that commit the test fails: it cannot show anything without."""
    done = subprocess.run(["git", "-C", str(ROOT), "archive", commit, "src"], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.fail(
            f"commit {commit} is not in the history of {ROOT}: expected a whole clone of the repository (git fetch "
            f"--unshallow makes one of a shallow one). git says: {done.stderr.decode().strip()}"
        )
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


class Bounced:
    """Brokers 1..3 with two log directories each, and the metadata in two that they share; all are down at first. A
    broker has two ports, one below the other: the second is for brokers, once it has a listener of their own."""

    ids = (1, 2, 3)

    def __init__(self, folder: Path, earlier: Path) -> None:
        """``earlier``: as ``software_of`` says."""
        self.folder = folder
        self._earlier = earlier
        self._first_port = free_port(6)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def port(self, broker: int) -> int:
        return self._first_port + broker - 1

    def between(self, broker: int) -> int:
        return self.port(broker) + 3

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.port(broker)}" for broker in self.ids)

    def log(self, broker: int) -> str:
        """Since it was started last."""
        return (self.folder / f"{broker}.log").read_text()

    def start(self, broker: int, *, earlier: bool = False, **settings: str) -> None:
        """Returns at once. Its log begins anew. ``settings`` have _ for each dot."""
        home = self.folder / f"broker-{broker}"
        properties = {
            "node.id": str(broker),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port(broker)}",
            "log.dirs": f"{home}/d1,{home}/d2",
            "metadata.log.dirs": f"{self.folder}/meta-1,{self.folder}/meta-2",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "3",
            "min.insync.replicas": "2",
            "group.initial.rebalance.delay.ms": "0",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        path = self.folder / f"{broker}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        environment: Mapping[str, str] = os.environ
        if earlier:
            environment = {**os.environ, "PYTHONPATH": str(self._earlier)}
        with (self.folder / f"{broker}.log").open("wb") as log:
            self._processes[broker] = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli.main", "broker", str(path)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.folder,
            )  # fmt: skip

    def wait_serves(self, *brokers: int) -> None:
        for broker in brokers:
            self._wait_serves(broker)

    def _wait_serves(self, broker: int) -> None:
        def serves() -> bool:
            assert self._processes[broker].poll() is None, self.log(broker)
            return f"broker {broker} serves" in self.log(broker)

        wait_for(serves, f"broker {broker} to serve", timeout_s=TIMEOUT_S)

    def software(self, broker: int) -> Path:
        """Where the code of a running broker is from, by its environment."""
        entries = Path(f"/proc/{self._processes[broker].pid}/environ").read_bytes().split(b"\0")
        [path] = [e.partition(b"=")[2] for e in entries if e.startswith(b"PYTHONPATH=")] or [b""]
        return Path(os.fsdecode(path))

    def stop(self, broker: int) -> None:
        """SIGTERM: it gives its leaders away first."""
        process = self._processes[broker]
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0, self.log(broker)

    def view(self, broker: int, topics: list[str]) -> ClusterView | None:
        try:
            return ask("127.0.0.1", self.port(broker), topics)
        except OSError:
            return None

    def wait_whole(self, *topics: str) -> None:
        """Until every broker says that all three live, and all replicas of these topics are in sync."""

        def whole() -> bool:
            views = [self.view(broker, list(topics)) for broker in self.ids]
            return all(
                view is not None and len(view.brokers) == 3 and view.topics == set(topics) and not view.under_replicated
                for view in views
            )

        wait_for(whole, f"three brokers with all replicas of {topics}", timeout_s=TIMEOUT_S)

    def controller(self) -> int:
        """By the newest claim that a log tells of."""
        claims = {
            int(epoch): broker
            for broker in self.ids
            for epoch in re.findall(rf"broker {broker} is the controller with epoch (\d+)", self.log(broker))
        }
        return claims[max(claims)]

    def end(self) -> None:
        """kill -9 of all that run. Says what they wrote, for a test that failed."""
        for broker, process in self._processes.items():
            print(f"broker {broker}", self.log(broker)[-6000:], sep="\n")
            if process.poll() is None:
                helpers = children(process.pid)
                process.kill()
                process.wait()
                wait_for(lambda p=process, h=helpers: has_gone(p.pid, h), "the end of a broker")  # type: ignore[misc]
