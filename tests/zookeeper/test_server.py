"""The server of these tests: it serves, and it keeps what it was told when it is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.zookeeper.server import ZooKeeperServer

pytestmark = pytest.mark.system


def test_a_server_has_after_kill_9_what_it_acknowledged(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zk") as server:
        client = KazooClient(server.connect, timeout=4)
        client.start(timeout=30)
        try:
            client.create("/chroot/kept", b"value", makepath=True)
            written = client.get("/chroot/kept")
        finally:
            client.stop()
            client.close()
        server.kill()
        with pytest.raises(ConnectionError):
            server.ask("srvr")
        server.start()
        client = KazooClient(server.connect, timeout=4)
        client.start(timeout=30)
        try:
            assert client.get("/chroot/kept") == written
            assert written[0] == b"value" and written[1].czxid > 0
        finally:
            client.stop()
            client.close()
