"""A session and the life of its process: killed, stopped for longer than the session, stopped for less."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.coordination.kazoo_client import KazooZooKeeper
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from holdfast.testing import wait_for
from tests.zookeeper.server import ZooKeeperServer

pytestmark = pytest.mark.system

HOLDER = Path(__file__).parent / "session_holder.py"
SESSION_S = 3.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as started:
        yield started


@pytest.fixture
def onlooker(server: ZooKeeperServer) -> Iterator[KazooZooKeeper]:
    client = KazooZooKeeper(ZooKeeperSettings(servers=server.connect))
    client.start(30)
    with closing(client):
        yield client


class Holder:
    """session_holder.py as a process."""

    def __init__(self, servers: str, path: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HOLDER), servers, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.session_id = int(self.hear())

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def make(self, path: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(path + "\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_the_ephemeral_node_of_a_killed_process_is_there_until_its_session_expires(
    server: ZooKeeperServer, onlooker: KazooZooKeeper
) -> None:
    with closing(Holder(server.connect, "/killed")) as holder:
        gone: list[float] = []
        node = onlooker.get("/killed", watch=lambda: gone.append(time.monotonic()))
        assert node is not None and node.stat.ephemeral_owner == holder.session_id
        killed_s = time.monotonic()
        holder.process.kill()
        wait_for(lambda: bool(gone), "the session to expire")
        # It was heard of a third of the session before it was killed, at the earliest.
        assert gone[0] - killed_s > SESSION_S / 3
        assert onlooker.get("/killed") is None


def test_a_process_that_was_stopped_for_longer_than_its_session_finds_it_over(
    server: ZooKeeperServer, onlooker: KazooZooKeeper
) -> None:
    with closing(Holder(server.connect, "/stopped")) as holder:
        holder.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: onlooker.get("/stopped") is None, "the session to expire")
        holder.make("/afterwards")  # before it can know
        holder.process.send_signal(signal.SIGCONT)
        heard = [holder.hear() for _ in range(2)]
        assert "EXPIRED" in heard and set(heard) <= {"EXPIRED", "ConnectionLostError", "SessionExpiredError"}
        holder.make("/afterwards")
        assert holder.hear() == "SessionExpiredError"
        onlooker.sync()
        assert onlooker.get("/afterwards") is None


def test_a_process_that_was_stopped_for_less_goes_on(server: ZooKeeperServer, onlooker: KazooZooKeeper) -> None:
    with closing(Holder(server.connect, "/briefly")) as holder:
        holder.process.send_signal(signal.SIGSTOP)
        holder.make("/meanwhile")
        holder.process.send_signal(signal.SIGCONT)
        assert holder.hear() == "done"
        node = onlooker.get("/briefly")
        assert node is not None and node.stat.ephemeral_owner == holder.session_id
