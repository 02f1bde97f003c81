"""What the contract of ZooKeeper clients runs on: a real server, and the model of the simulation.

Owns the clients that a test makes, each with a way to the ensemble of its own. ``until`` waits in the time of the
ensemble: no test knows which one it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from holdfast.coordination.kazoo_client import KazooZooKeeper
from holdfast.coordination.zookeeper_client import MAX_REQUEST_BYTES, ZooKeeperClient
from holdfast.coordination.zookeeper_settings import Digest, ZooKeeperSettings
from holdfast.testing import wait_for
from tests.simulation.ensemble import Ensemble
from tests.simulation.ensemble_client import ManualClock, ModelZooKeeper
from tests.zookeeper.link import Link
from tests.zookeeper.server import ZooKeeperServer

SESSION_MS, BRIEF_MS = 8000, 2000
"""Of a client, and of one that a test cuts off for longer: machines that run tests stop for a second now and then."""


def settings_of(
    servers: str, chroot: str, *, user: str | None, max_request_bytes: int, is_brief: bool
) -> ZooKeeperSettings:
    """With a ``user``, what is made is for that user alone."""
    return ZooKeeperSettings(
        servers=servers,
        chroot=chroot,
        session_timeout_ms=BRIEF_MS if is_brief else SESSION_MS,
        connection_timeout_ms=30_000,
        max_request_bytes=max_request_bytes,
        set_acl=user is not None,
        digest=None if user is None else Digest(user=user, password="of " + user),
    )


class Ensembles(Protocol):
    """What a test of the contract does with an ensemble beside asking it by clients."""

    chroot: str

    def client(self, *, start: bool = True, chroot: str | None = None, user: str | None = None,
               max_request_bytes: int = MAX_REQUEST_BYTES, is_brief: bool = False) -> ZooKeeperClient: ...  # fmt: skip

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Let time pass until it holds; TimeoutError."""
        ...

    def pass_session(self) -> None:
        """Let the time of a brief session pass."""
        ...

    def cut(self, client: ZooKeeperClient, *, to_server: bool = True, to_client: bool = True) -> None: ...

    def mend(self, client: ZooKeeperClient) -> None: ...

    def reset(self, client: ZooKeeperClient) -> None: ...

    def down(self) -> None: ...

    def up(self) -> None: ...

    def close(self) -> None: ...


class RealEnsemble:
    """One server, which several tests share, each below a chroot of its own."""

    def __init__(self, server: ZooKeeperServer, chroot: str) -> None:
        self._server = server
        self.chroot = chroot
        self._clients: list[tuple[KazooZooKeeper, Link]] = []

    def client(
        self,
        *,
        start: bool = True,
        chroot: str | None = None,
        user: str | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        is_brief: bool = False,
    ) -> KazooZooKeeper:
        link = Link(self._server.port)
        chroot = self.chroot if chroot is None else chroot
        made = KazooZooKeeper(
            settings_of(link.connect, chroot, user=user, max_request_bytes=max_request_bytes, is_brief=is_brief)
        )
        self._clients.append((made, link))
        if start:
            made.start(30)
        return made

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_for(condition, what, timeout_s=30)

    def pass_session(self) -> None:
        end_s = time.monotonic() + 1.5 * BRIEF_MS / 1000
        wait_for(lambda: time.monotonic() > end_s, "the time of a brief session")

    def _link(self, client: ZooKeeperClient) -> Link:
        return next(link for each, link in self._clients if each is client)

    def cut(self, client: ZooKeeperClient, *, to_server: bool = True, to_client: bool = True) -> None:
        self._link(client).cut(to_server=to_server, to_client=to_client)

    def mend(self, client: ZooKeeperClient) -> None:
        self._link(client).mend()

    def reset(self, client: ZooKeeperClient) -> None:
        self._link(client).reset()

    def down(self) -> None:
        self._server.kill()

    def up(self) -> None:
        self._server.start()

    def close(self) -> None:
        for client, link in self._clients:
            link.mend()
            client.close()
            link.close()


class ModelEnsemble:
    """The model, on a clock that goes when somebody waits."""

    def __init__(self) -> None:
        self.chroot = "/here"
        self.clock = ManualClock()
        self.ensemble = Ensemble(self.clock)
        self._clients: list[ModelZooKeeper] = []

    def client(
        self,
        *,
        start: bool = True,
        chroot: str | None = None,
        user: str | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        is_brief: bool = False,
    ) -> ModelZooKeeper:
        chroot = self.chroot if chroot is None else chroot
        settings = settings_of("model:1", chroot, user=user, max_request_bytes=max_request_bytes, is_brief=is_brief)
        made = ModelZooKeeper(self.ensemble, settings, self.clock, self.clock)
        self._clients.append(made)
        if start:
            made.start(30)
        return made

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self.clock.wait(condition, self.clock.now_s() + 30)
        if not condition():
            raise TimeoutError(what)

    def pass_session(self) -> None:
        self.clock.pass_s(1.5 * BRIEF_MS / 1000)

    def _of(self, client: ZooKeeperClient) -> ModelZooKeeper:
        return next(each for each in self._clients if each is client)

    def cut(self, client: ZooKeeperClient, *, to_server: bool = True, to_client: bool = True) -> None:
        self.ensemble.cut(client.session_id, to_server=to_server, to_client=to_client)

    def mend(self, client: ZooKeeperClient) -> None:
        self.ensemble.mend(self._of(client).link)

    def reset(self, client: ZooKeeperClient) -> None:
        self.ensemble.reset(client.session_id)

    def down(self) -> None:
        self.ensemble.down()

    def up(self) -> None:
        self.ensemble.up()

    def close(self) -> None:
        for client in self._clients:
            client.close()
