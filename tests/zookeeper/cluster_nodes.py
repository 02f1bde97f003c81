"""One cluster's part of a ZooKeeper server, for a test: stores of its brokers, and a session to look with."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from kazoo.client import KazooClient

from holdfast.coordination.kazoo_client import KazooZooKeeper
from holdfast.coordination.lanes import ThreadLanes
from holdfast.coordination.zookeeper import ZooKeeperStore
from holdfast.coordination.zookeeper_client import Done, Node, Operation, SessionState
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from holdfast.testing import wait_for
from tests.zookeeper.server import ZooKeeperServer

SESSION_MS = 6000


class Observed(KazooZooKeeper):
    """A client of which a test sees what is written, and which it may hold up before a read."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        super().__init__(settings)
        self.before_get: Callable[[str], None] = lambda path: None
        self.before_write: Callable[[Sequence[Operation]], None] = lambda operations: None
        self.written: list[Sequence[Operation]] = []
        self.gotten: list[str] = []
        """The paths of ``get_all``."""

    def get(self, path: str, *, watch: Callable[[], None] | None = None) -> Node | None:
        self.before_get(path)
        return super().get(path, watch=watch)

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        self.gotten += paths
        return super().get_all(paths)

    def write(self, operations: Sequence[Operation]) -> Future[list[Done]]:
        self.before_write(operations)
        self.written.append(operations)
        return super().write(operations)

    def expire(self) -> None:
        """Have the ensemble end the session, without this client: as if nobody had heard of it for too long."""
        while not self._is_over():  # it takes its session back when it is the quicker one
            other = KazooClient(self._settings.servers, client_id=self._session.client_id, timeout=10)
            other.start(60)
            other.stop()
            other.close()
            with contextlib.suppress(TimeoutError):
                wait_for(self._is_over, "the end of the session", timeout_s=3)

    def _is_over(self) -> bool:
        return self._state is SessionState.EXPIRED


class ClusterNodes:
    """Everything below ``chroot``. Stores that are made here are closed with it."""

    def __init__(self, server: ZooKeeperServer, chroot: str) -> None:
        self.server = server
        self.chroot = chroot
        self.clients: list[Observed] = []
        """Of the stores, in the order in which they were made."""
        self._stores: list[ZooKeeperStore] = []
        self._reader: KazooZooKeeper | None = None

    def settings(self, session_ms: int = SESSION_MS, servers: str | None = None) -> ZooKeeperSettings:
        return ZooKeeperSettings(
            servers=servers or self.server.connect,
            chroot=self.chroot,
            session_timeout_ms=session_ms,
            connection_timeout_ms=15_000,
        )

    def connect(self, servers: str | None = None) -> Observed:
        """A client that is not started, as a store asks for it."""
        client = Observed(self.settings(servers=servers))
        self.clients.append(client)
        return client

    def store(self, servers: str | None = None) -> ZooKeeperStore:
        """As a broker has one."""
        made = ZooKeeperStore(
            lambda: self.connect(servers),
            ThreadLanes("zookeeper"),
            wall_ms=lambda: time.time_ns() // 1_000_000,
            connect_timeout_s=15,
        )
        self._stores.append(made)
        return made

    @property
    def reader(self) -> KazooZooKeeper:
        """A session of the test's own."""
        if self._reader is None:
            self._reader = KazooZooKeeper(self.settings(10_000))
            self._reader.start(15)
        return self._reader

    def node(self, path: str) -> Node | None:
        """As it is now."""
        self.reader.sync()
        return self.reader.get(path)

    def json(self, path: str) -> Any:
        """What a node that must be there says."""
        node = self.node(path)
        assert node is not None, f"{path} is missing"
        return json.loads(node.data)

    def says(self, path: str, key: str) -> Any:
        """One key of a node, None when there is no such node."""
        node = self.node(path)
        return None if node is None or not node.data else json.loads(node.data).get(key)

    def names(self, path: str) -> list[str]:
        """Below a node."""
        self.reader.sync()
        return self.reader.children(path) or []

    def close(self) -> None:
        for store in self._stores:
            store.close()
        if self._reader is not None:
            self._reader.close()
