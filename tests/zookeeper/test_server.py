"""Servers of tests: they keep what they acknowledged, and an ensemble goes on without one of three."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from holdfast.testing import wait_for
from holdfast.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

pytestmark = pytest.mark.system


@contextmanager
def client(connect: str) -> Iterator[KazooClient]:
    made = KazooClient(connect, timeout=4)
    made.start(timeout=60)
    try:
        yield made
    finally:
        made.stop()
        made.close()


def test_a_server_has_after_kill_9_what_it_acknowledged(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zk") as server:
        with client(server.connect) as zk:
            zk.create("/chroot/kept", b"value", makepath=True)
            written = zk.get("/chroot/kept")
        assert server.mode == "standalone"
        server.kill()
        assert server.mode is None and not server.runs
        with pytest.raises(ConnectionError):
            server.ask("srvr")
        server.start()
        with client(server.connect) as zk:
            assert zk.get("/chroot/kept") == written
            assert written[0] == b"value" and written[1].czxid > 0


def test_a_server_logs_into_its_folder_and_says_why_it_does_not_start(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path / "zk") as server:
        assert "binding to port" in (tmp_path / "zk" / "zookeeper.log").read_text()
        assert (tmp_path / "zk" / "server.out").read_text() == ""
        same_port = replace(server.settings, folder=tmp_path / "other")
        with pytest.raises(AssertionError, match="has ended") as caught:
            ZooKeeperServer(tmp_path / "other", settings=same_port).start()
        assert "Address already in use" in "".join(caught.value.__notes__)
        assert server.mode == "standalone"


def test_an_ensemble_goes_on_without_its_leader_and_without_one_that_is_frozen(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        first = ensemble.leader()
        modes = {server.mode for number, server in ensemble.servers.items() if number != first}
        assert modes == {"follower"}
        with client(ensemble.connect) as zk:
            zk.create("/kept", b"1")
            ensemble.servers[first].kill()
            second = ensemble.leader()
            assert second != first
            wait_for(lambda: zk.retry(zk.set, "/kept", b"2"), "a write")
            ensemble.servers[first].start()
            assert ensemble.servers[first].mode == "follower"
            ensemble.servers[second].freeze()
            wait_for(lambda: zk.retry(zk.set, "/kept", b"3"), "a write")
            ensemble.servers[second].thaw()
            wait_for(lambda: ensemble.servers[second].mode == "follower", "the thawed one to follow", timeout_s=90)
            assert zk.retry(zk.get, "/kept")[0] == b"3"
