"""The commands of docs/getting-started.md and docs/no-leader.md, as they stand there."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing import wait_for
from holdfast.testing.ports import free_port

pytestmark = pytest.mark.system

DOCS = Path(__file__).parents[2] / "docs"
TIMEOUT_S = 60
NOT_RUN = ("pip install", "holdfast audit")
"""There is no network for the one, and the other has tests of its own."""


def commands(page: str) -> list[str]:
    """The lines of every block for a shell."""
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


class Shell:
    """Runs lines as a person would, where ``holdfast`` is this one and its ports are free ones."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port(3, beside=(100, 200))
        program = folder / "bin" / "holdfast"
        program.parent.mkdir()
        # The page does not say --port: another cluster may have the usual one.
        program.write_text(
            f'#!/bin/sh\n[ "$1" = up ] && set -- "$@" --port {self.port}\n'
            f'exec "{sys.executable}" -m holdfast.cli.main "$@"\n'
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self._environment = {
            **os.environ,
            "PATH": f"{program.parent}:{os.environ['PATH']}",
            "HOLDFAST_BOOTSTRAP_SERVER": f"127.0.0.1:{self.port},127.0.0.1:{self.port + 1}",
        }

    def run(self, line: str, code: int = 0) -> str:
        """What it says on standard output."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self._environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("shell"))
    yield made
    subprocess.run(["bash", "-c", "kill $(cat my-cluster/up.lock)"], cwd=made.folder, capture_output=True, check=False)


def test_the_page_on_getting_started_is_true(shell: Shell) -> None:
    lines = [line for line in commands("getting-started.md") if not line.startswith(NOT_RUN)]
    said: dict[str, list[str]] = {}
    for line in lines:
        if line == "holdfast log-dirs describe":
            wait_for(lambda: "offline" in shell.run("holdfast log-dirs describe"), "the probe", timeout_s=TIMEOUT_S)
        code = 1 if line == "holdfast cluster health" else 0
        if line == "holdfast down --data-dir my-cluster":
            no_leader(shell)
        said.setdefault(line, []).append(shell.run(line, code))
    assert said["holdfast up --data-dir my-cluster --detach"][0].startswith("ready: bootstrap.servers=")
    first, second = said["holdfast consume greetings --from-beginning --exit-eof"]
    assert (first, sorted(second.splitlines())) == ("hello\n", ["hello", "still here"])
    assert "NOT healthy" in said["holdfast cluster health"][0]
    assert len(lines) == len(set(lines)) + 1


def no_leader(shell: Shell) -> None:
    """The other page, on the same cluster: the only replica of a partition is on a broker that is killed."""
    lines = [line for line in commands("no-leader.md") if not line.startswith(NOT_RUN)]
    assert {line.split()[1] for line in lines} == {"cluster", "topics", "log-dirs", "elect"}
    wait_for(lambda: not shell.run(UNAVAILABLE), "leaders of all", timeout_s=TIMEOUT_S)
    shell.run("holdfast topics create orders --replica-assignment 3")
    shell.run('kill -9 $(python3 -c \'import json; print(json.load(open("my-cluster/pids.json"))["3"])\')')
    found = wait_for(lambda: shell.run(UNAVAILABLE), "the loss", timeout_s=TIMEOUT_S)
    assert all(f"{field}:" in found for field in ("Leader", "Replicas", "Isr", "Elr", "LastKnownElr", "Offline"))
    logs = "".join(path.read_text() for path in (shell.folder / "my-cluster").glob("broker-*.log"))
    assert "event=leader.lost topic=orders partition=0" in logs
    assert "orders-0" in shell.run("holdfast cluster health", 1)
    assert "orders" in shell.run("holdfast topics describe orders")
    # As the table says, of `holdfast up`.
    shell.run("kill -USR1 $(cat my-cluster/up.lock)")
    wait_for(lambda: not shell.run(UNAVAILABLE), "its leader", timeout_s=TIMEOUT_S)


UNAVAILABLE = "holdfast topics describe --unavailable-partitions"
