"""An ensemble of three ZooKeeper servers on three hosts: what its clients see when hosts and links fail.

The clients are kazoo's. Those in the process of the test reach all hosts; one in a host has the network of that host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import KazooState

from holdfast.testing import Hosts, wait_for
from holdfast.testing.zookeeper import TICK_MS, ZooKeeperEnsemble

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

SESSION_S = 4.0
UNSURE = (ConnectionLoss, SessionExpiredError, KazooTimeoutError)
"""While it has no connection kazoo keeps what it is asked, so an answer is waited for with a limit."""
ANSWER_S = 2.0


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Hosts, ZooKeeperEnsemble]]:
    with Hosts(3, disks=0) as hosts:
        folders = {host.number: host.root / "system" / "zookeeper" for host in hosts}
        places = {host.number: host for host in hosts}
        with ZooKeeperEnsemble(places=places, folders=folders) as ensemble:
            yield hosts, ensemble


@pytest.fixture
def hosts(running: tuple[Hosts, ZooKeeperEnsemble]) -> Hosts:
    return running[0]


@pytest.fixture
def ensemble(running: tuple[Hosts, ZooKeeperEnsemble]) -> Iterator[ZooKeeperEnsemble]:
    """All three serve, before and afterwards."""
    yield running[1]
    running[0].heal()
    for host in running[0]:
        running[0].power_on(host.number)
    running[1].start()


class Seen:
    """A client, and the states of its connection in order."""

    def __init__(self, connect: str, handler: Any = None) -> None:
        self.states: list[str] = []
        self.zk = KazooClient(connect, timeout=SESSION_S, handler=handler, randomize_hosts=False)
        self.zk.add_listener(self.states.append)

    def write(self, path: str, data: bytes) -> float:
        """Until it is acknowledged, again and again; seconds."""
        begun_s = time.monotonic()
        wait_for(lambda: self._written(path, data), f"a write of {path}", timeout_s=60)
        return time.monotonic() - begun_s

    def _written(self, path: str, data: bytes) -> bool:
        try:
            self.zk.ensure_path_async(path).get(timeout=ANSWER_S)
            self.zk.set_async(path, data).get(timeout=ANSWER_S)
        except UNSURE:
            return False
        return True

    def read(self, path: str) -> bytes:
        """One of UNSURE when there is no answer in time."""
        content: bytes = self.zk.get_async(path).get(timeout=ANSWER_S)[0]
        return content


@contextmanager
def client(connect: str, handler: Any = None) -> Iterator[Seen]:
    seen = Seen(connect, handler)
    seen.zk.start(timeout=60)
    try:
        yield seen
    finally:
        seen.zk.stop()
        seen.zk.close()


def in_host(call: Callable[[Callable[[], Any]], Any]) -> Any:
    """A handler of kazoo whose sockets are those of a host."""

    class Handler(SequentialThreadingHandler):  # type: ignore[misc]
        def create_connection(self, *arguments: Any, **options: Any) -> Any:
            return call(lambda: super(Handler, self).create_connection(*arguments, **options))

    return Handler()


def test_the_host_of_the_leader_loses_its_power(hosts: Hosts, ensemble: ZooKeeperEnsemble) -> None:
    """Silence: clients of it and the other servers find out by their timeouts. Another one leads, nothing that was
    acknowledged is lost, and the session goes on, with what it holds; it ends, with that, where the machine is so busy
    that nobody answers it in time."""
    leader = ensemble.leader()
    first = [server.connect for number, server in sorted(ensemble.servers.items(), key=lambda item: item[0] != leader)]
    with client(",".join(first)) as seen:
        seen.write("/power", b"before")
        session = seen.zk.client_id
        seen.zk.create("/power/mine", ephemeral=True)
        hosts.power_off(leader)
        taken_s = seen.write("/power", b"after")
        assert ensemble.leader() != leader
        has_ended = KazooState.LOST in seen.states
        between = [KazooState.SUSPENDED, KazooState.LOST] if has_ended else [KazooState.SUSPENDED]
        assert seen.states == [KazooState.CONNECTED, *between, KazooState.CONNECTED]
        assert (seen.zk.client_id != session) is has_ended
        assert (seen.zk.exists("/power/mine") is None) is has_ended
        assert taken_s < 20
        hosts.power_on(leader)
        ensemble.start()
        assert ensemble.servers[leader].mode == "follower"
        assert seen.zk.get("/power")[0] == b"after"


def test_a_minority_that_is_cut_off_serves_nobody(hosts: Hosts, ensemble: ZooKeeperEnsemble) -> None:
    """The leader among it: it stops to lead within its syncLimit, the other two elect one, and a client on its side
    hears nothing but that; its session ends in the rest, with its ephemeral."""
    leader = ensemble.leader()
    alone = ensemble.servers[leader]
    with client(alone.connect, in_host(hosts[leader].call)) as inside, client(ensemble.connect) as outside:
        inside.write("/cut", b"before")
        inside.zk.create("/cut/mine", ephemeral=True)
        hosts.cut_off(leader)
        outside.write("/cut", b"after")
        assert ensemble.leader() != leader
        wait_for(lambda: alone.mode is None, "the one that is cut off to stop serving")
        wait_for(lambda: not outside.zk.retry(outside.zk.exists, "/cut/mine"), "the end of the session")
        assert inside.states == [KazooState.CONNECTED, KazooState.SUSPENDED]
        with pytest.raises(UNSURE):
            inside.read("/cut")
        hosts.heal()
        wait_for(lambda: KazooState.LOST in inside.states, "the news that the session has ended", timeout_s=60)
        wait_for(lambda: inside.zk.connected, "a new session", timeout_s=60)
        assert inside.zk.retry(inside.zk.get, "/cut")[0] == b"after"


def test_the_whole_ensemble_is_gone_and_comes_back(hosts: Hosts, ensemble: ZooKeeperEnsemble) -> None:
    """All three hosts lose their power at once, and with it what was not synced. A write is not acknowledged meanwhile;
    all that was before is there afterwards. The session goes on if it is younger than its timeout by the new leader's
    clock, which begins when it leads."""
    with client(ensemble.connect) as seen:
        for number in range(50):
            seen.write(f"/gone/{number}", b"%d" % number)
        session = seen.zk.client_id
        for host in hosts:
            hosts.power_off(host.number)
        wait_for(lambda: seen.states[-1] == KazooState.SUSPENDED, "the news of the silence", timeout_s=20)
        with pytest.raises(UNSURE):
            seen.read("/gone/1")
        for host in hosts:
            hosts.power_on(host.number)
        ensemble.start()
        wait_for(lambda: seen.zk.connected, "the connection", timeout_s=60)
        found = {number: int(seen.zk.retry(seen.zk.get, f"/gone/{number}")[0]) for number in range(50)}
        assert found == {number: number for number in range(50)}
        assert seen.states[:2] == [KazooState.CONNECTED, KazooState.SUSPENDED]
        assert (seen.zk.client_id == session) == (KazooState.LOST not in seen.states)


def test_one_direction_to_the_leader_is_as_good_as_none(hosts: Hosts, ensemble: ZooKeeperEnsemble) -> None:
    """A follower that hears the leader and is not heard is let go; the others serve."""
    leader = ensemble.leader()
    follower = next(number for number in ensemble.servers if number != leader)
    hosts.cut(follower, leader)
    wait_for(lambda: ensemble.servers[follower].mode != "follower", "the follower to be let go", timeout_s=30)
    others = [server.connect for number, server in ensemble.servers.items() if number != follower]
    with client(",".join(others)) as seen:
        assert seen.write("/direction", b"x") < 10
    hosts.heal()
    wait_for(lambda: ensemble.servers[follower].mode in ("follower", "leader"), "all three", timeout_s=60)
    assert TICK_MS * 2 < SESSION_S * 1000
