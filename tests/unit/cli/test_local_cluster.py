"""The contract of ``up`` as a process: one line, pids.json, signals, and what it says of the dead.

The brokers are stand-ins (up_script.py); tests/system runs the same with real ones.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.testing import free_port, wait_for

SCRIPT = pathlib.Path(__file__).with_name("up_script.py")


class Up:
    def __init__(self, data_dir: pathlib.Path, brokers: int, bad: int, port: int) -> None:
        self.data_dir, self.port = data_dir, port
        self.errors = data_dir / "stderr"
        command = [sys.executable, str(SCRIPT), str(data_dir), str(port), str(brokers), str(bad)]
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def pids(self) -> dict[int, int]:
        return {int(n): pid for n, pid in json.loads((self.data_dir / "pids.json").read_text()).items()}

    def said(self) -> str:
        """Without the line that says where the metrics are."""
        lines = self.errors.read_text().splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("holdfast up: metrics: "))

    def wait_said(self, text: str) -> None:
        wait_for(lambda: text in self.said(), f"{text!r} on standard error", timeout_s=20)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Any]:
    made: list[Up] = []

    def make(brokers: int = 2, bad: int = 0, port: int | None = None) -> Up:
        made.append(Up(tmp_path, brokers, bad, port or free_port(brokers)))
        return made[-1]

    yield make
    for up in made:
        if up.process.poll() is None:
            up.process.kill()
            up.process.wait()


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_ready_is_one_line_and_a_signal_stops_everything(start: Any) -> None:
    up = start()
    assert up.line() == f"ready: bootstrap.servers=127.0.0.1:{up.port},127.0.0.1:{up.port + 1}\n"
    pids = up.pids()
    assert sorted(pids) == [1, 2]
    assert up.end() == 0
    assert up.line() == ""
    assert all(map(is_gone, pids.values()))
    pages = ", ".join(f"http://127.0.0.1:{up.port + 100 + i}/metrics" for i in range(2))
    assert (up.said(), up.errors.read_text()) == ("", f"holdfast up: metrics: {pages}\n")
    assert (up.data_dir / "broker-2.log").read_text() == "broker 2 serves\n"


def test_interrupt_stops_too_and_does_not_reach_the_brokers_by_itself(start: Any) -> None:
    up = start()
    up.line()
    groups = {os.getpgid(pid) for pid in (up.process.pid, *up.pids().values())}
    assert len(groups) == 3
    assert up.end(signal.SIGINT) == 0


def test_a_dead_broker_is_told_and_started_again_when_asked(start: Any) -> None:
    up = start()
    up.line()
    before = up.pids()
    os.kill(before[2], signal.SIGKILL)
    up.wait_said(f"holdfast up: broker 2 (process {before[2]}) was killed by SIGKILL\n")
    assert up.pids() == before
    up.process.send_signal(signal.SIGUSR1)
    up.wait_said("broker 2 started again")
    after = up.pids()
    assert after[1] == before[1]
    assert after[2] != before[2]

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", up.port + 1)) == 0

    wait_for(listens, "broker 2 to listen again", timeout_s=20)
    assert up.end() == 0
    assert len(up.said().splitlines()) == 2


def test_all_brokers_dead_is_no_reason_to_end(start: Any) -> None:
    up = start()
    up.line()
    for pid in up.pids().values():
        os.kill(pid, signal.SIGKILL)
    up.wait_said("broker 1 (process")
    up.wait_said("broker 2 (process")
    assert up.process.poll() is None
    assert up.end() == 0


def test_a_broker_that_cannot_start_ends_it_all(start: Any) -> None:
    up = start(bad=2)
    assert up.line() == ""
    assert up.process.wait(20) == 1
    assert "broker 2" in up.said()
    assert "ended with exit code 3: see " in up.said()


def test_a_broker_that_does_not_stop_is_killed_at_the_second_signal(start: Any) -> None:
    up = start(bad=-1)
    up.line()
    pids = up.pids()
    up.process.send_signal(signal.SIGTERM)
    wait_for(lambda: is_gone(pids[2]), "the end of broker 2", timeout_s=20)
    assert up.end() == 0
    assert up.said() == "holdfast up: stop asked again: killing broker 1\n"
    assert is_gone(pids[1])


def test_brokers_do_not_outlive_a_parent_that_is_killed(start: Any) -> None:
    up = start()
    up.line()
    pids = up.pids()
    up.process.kill()
    up.process.wait()
    wait_for(lambda: all(map(is_gone, pids.values())), "the end of the brokers", timeout_s=20)
    again = start(port=up.port)
    assert again.line().startswith("ready: ")
    assert again.end() == 0


def test_a_taken_port_is_named(start: Any) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = free_port(2, beside=(300, 400, 500))
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        up = start(port=port)
        assert up.process.wait(20) == 1
        said = f"port {port + 1} for broker 2 is taken: choose another --port ("
        assert f"{said}{port + 300} is free), or stop what listens on 127.0.0.1:{port + 1}" in up.said()
        assert not (up.data_dir / "pids.json").exists()
