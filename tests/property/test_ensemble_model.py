"""The model of an ensemble against a real server: whatever two sessions do, both answer the same.

What is compared: what every write did, or which of its operations was refused and how; every read; every stat, with
zxids by their order; which watches were called. Not: what takes time (sessions that expire; the contract suite has
that), and words.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from holdfast.coordination.zookeeper_client import (
    Check,
    Create,
    Delete,
    Operation,
    Put,
    Stat,
    ZooKeeperClient,
    ZooKeeperError,
)
from tests.contracts.ensembles import Ensembles, ModelEnsemble, RealEnsemble
from tests.zookeeper.server import ZooKeeperServer

pytestmark = pytest.mark.system

PATHS = ("/a", "/a/b", "/a/c", "/a/b/d", "/e")
USERS = (None, "holdfast")
chroots = (f"/property/{number}" for number in itertools.count())

paths = st.sampled_from(PATHS)
versions = st.sampled_from((-1, 0, 0, 1, 2))
datas = st.sampled_from((b"", b"1", b"22"))
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, path=paths, data=datas, ephemeral=st.booleans()),
    st.builds(Create, path=paths, data=datas),
    st.builds(Create, path=paths.map(lambda path: f"{path}-"), ephemeral=st.booleans(), sequence=st.just(True)),
    st.builds(Create, path=paths.map(lambda path: f"{path}/n"), sequence=st.just(True)),
    st.builds(Put, path=paths, data=datas, version=versions),
    st.builds(Delete, path=paths, version=versions),
    st.builds(Check, path=paths, version=versions),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """All at once, or each in a write of its own without waiting."""

    operations: list[Operation]
    together: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    path: str
    watch: bool
    children: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAll:
    """Every path, by one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The connection is lost; the session goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reopen:
    """The session is closed, and another begins."""


steps = st.one_of(
    st.builds(Write, operations=st.lists(operations, min_size=1, max_size=5), together=st.booleans()),
    st.builds(Write, operations=st.lists(operations, min_size=1, max_size=2), together=st.booleans()),
    st.builds(Read, path=paths, watch=st.booleans(), children=st.booleans()),
    st.builds(Read, path=paths, watch=st.just(True), children=st.booleans()),
    st.just(ReadAll()),
    st.sampled_from((Reset(), Reopen())),
)


@dataclass(slots=True)
class Run:
    """One sequence of steps on one ensemble. Zxids and sessions are left as they are, and replaced at the end."""

    zk: Ensembles
    users: tuple[str | None, ...]
    clients: list[ZooKeeperClient] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)
    watches: Iterator[int] = field(default_factory=itertools.count)
    fences: Iterator[int] = field(default_factory=itertools.count)

    def open(self, which: int) -> ZooKeeperClient:
        client = self.zk.client(user=self.users[which])
        self.sessions.append(client.session_id)
        return client

    def do(self, script: list[tuple[int, Any]]) -> list[Any]:
        self.clients = [self.open(which) for which in range(len(self.users))]
        for which, step in script:
            self.step(which, step)
        for client in self.clients:
            client.sync()
            self.fence(client)
        self.note(sorted(self.calls))
        for client in self.clients:
            client.close()
        zxids = sorted({value for each in self.stats() for value in (each.czxid, each.mzxid)})
        return [self.plain(each, zxids) for each in self.seen]

    def note(self, what: Any) -> None:
        self.seen.append(what)

    def step(self, which: int, step: Any) -> None:
        client = self.clients[which]
        match step:
            case Write(together=True):
                self.wrote(client.write(step.operations))
            case Write():
                for future in [client.write([operation]) for operation in step.operations]:
                    self.wrote(future)
            case Read():
                self.read(client, step)
            case ReadAll():
                self.tried(lambda: client.get_all(PATHS))
            case Reset():
                self.zk.reset(client)
                client.sync()
            case Reopen():
                self.fence(client)  # what it was to hear it has heard
                client.close()
                self.clients[which] = self.open(which)

    def wrote(self, future: Any) -> None:
        self.tried(lambda: future.result(30))

    def read(self, client: ZooKeeperClient, step: Read) -> None:
        number = next(self.watches)
        watch = (lambda: self.calls.append(number)) if step.watch else None
        read = client.children if step.children else client.get
        self.tried(lambda: read(step.path, watch=watch))

    def tried(self, call: Any) -> None:
        try:
            self.note(call())
        except ZooKeeperError as e:
            self.note((type(e).__name__, e.path, e.index))

    def fence(self, client: ZooKeeperClient) -> None:
        """Everything that the client was told so far has been heard: a watch behind it has. The first client has made
        the chroot, and may write there."""
        path, heard = f"/fence-{next(self.fences)}", list[bool]()
        client.get(path, watch=lambda: heard.append(True))
        self.clients[0].write([Create(path=path, ephemeral=True)]).result(30)
        self.zk.until(lambda: bool(heard), "the fence")

    def stats(self) -> Iterator[Stat]:
        for each in self.seen:
            for part in each if isinstance(each, list) else [each]:
                stat = part if isinstance(part, Stat) else getattr(part, "stat", None)
                if stat is not None:
                    yield stat

    def plain(self, what: Any, zxids: list[int]) -> Any:
        if isinstance(what, list):
            return [self.plain(each, zxids) for each in what]
        if isinstance(what, Stat):
            owner = self.sessions.index(what.ephemeral_owner) if what.ephemeral_owner else None
            return (zxids.index(what.czxid), zxids.index(what.mzxid), what.version, what.cversion, owner)
        if hasattr(what, "stat"):
            name = getattr(what, "path", None)
            return (name, getattr(what, "data", None), self.plain(what.stat, zxids))
        return what


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as started:
        yield started


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    script=st.lists(st.tuples(st.sampled_from((0, 1)), steps), min_size=4, max_size=25),
    users=st.tuples(st.sampled_from(USERS), st.sampled_from(USERS)),
)
def test_two_sessions_see_the_same_of_the_model_as_of_a_real_server(
    server: ZooKeeperServer, script: list[tuple[int, Any]], users: tuple[str | None, ...]
) -> None:
    found = []
    for zk in (ModelEnsemble(), RealEnsemble(server, next(chroots))):
        try:
            found.append(Run(zk, users).do(script))
        finally:
            zk.close()
    model, real = found
    assert model == real
