"""A model of a ZooKeeper ensemble: sessions, servers that may be behind, the ways to them, and what can happen to each.

Owns what is committed and who hears of it, on a clock that is handed in. One thing happens at a time and nothing is
random: the same calls give the same run. A client of it is in ensemble_client.py; both together pass the contract suite
that a real ensemble passes (tests/contracts/test_zookeeper_client.py).

What is not there: leaders and elections (``down`` and ``up`` of a majority stand for both), and loss of what was
committed. A server knows what whoever connects to it has seen elsewhere, as it refuses him otherwise, and no more; with
a new session all that was committed before that.
"""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.coordination.zookeeper_client import (
    MAX_REQUEST_BYTES,
    AccessError,
    Done,
    Node,
    NodeAcl,
    NoNodeError,
    Operation,
    SessionExpiredError,
    ZooKeeperError,
)
from tests.simulation.ensemble_tree import EMPTY, Author, Event, Kind, Tree, apply, remove

NOTICED = 2 / 3
"""Of its session's time a client waits for a server that is silent."""


class Clock(Protocol):
    """Time of the ensemble, or of the process of a client: what is due in one that has ended never happens."""

    def now_s(self) -> float: ...

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """What is due at the same time happens in the order of these calls."""


class Client(Protocol):
    """What the ensemble tells one."""

    @property
    def clock(self) -> Clock: ...

    def answered(self, request: Request, value: Any, error: ZooKeeperError | None) -> None: ...

    def noticed(self, hook: Any) -> None:
        """What a watch waits for has happened."""

    def lost(self, connection: Connection) -> None:
        """The connection is over, and what was asked by it is not answered."""


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """``work``: what a server does. ``tag``: the client's own."""

    work: Callable[[Server], Any]
    size: int = 0
    is_write: bool = False
    tag: Any = None
    due_s: float = 0.0


class Link:
    """The way between one client and whichever server it is connected to."""

    def __init__(self) -> None:
        self.to_server = self.to_client = True
        self.fate: tuple[int, bool] | None = None
        """So many writes from now on the connection is lost, and whether that write is done."""


class Session:
    """``ends_s``: when it expires, None while a server hears of its client."""

    def __init__(self, session_id: int, timeout_s: float) -> None:
        self.session_id = session_id
        self.timeout_s = timeout_s
        self.connection: Connection | None = None
        self.ends_s: float | None = None
        self.frozen = False
        """Its client is stopped: connected, and silent."""
        self.seen = 0
        """The last transaction of which a server has answered it."""


class Server:
    """One of the ensemble: what it has learned of what is committed, and the watches of its clients."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.is_up = True
        self.lags = False
        self.delay_s = 0.0
        """From a request to its answer."""
        self.tree: Tree = EMPTY
        self.zxid = 0
        self._unlearned: deque[tuple[Tree, int, list[Event]]] = deque()
        self._watches: dict[tuple[str, str], dict[Any, Connection]] = {}

    def learn(self, tree: Tree, zxid: int, events: list[Event]) -> None:
        self._unlearned.append((tree, zxid, events))
        if self.is_up and not self.lags:
            self.catch_up()

    def catch_up(self, zxid: int | None = None) -> None:
        """Know all that is committed, or what was up to a transaction."""
        while self._unlearned and (zxid is None or self._unlearned[0][1] <= zxid):
            self.tree, self.zxid, events = self._unlearned.popleft()
            for kind, path in events:
                self._tell(kind, path)

    def _tell(self, kind: Kind, path: str) -> None:
        hooks = self._watches.pop(("data", path), {})
        if kind is Kind.DELETED:
            hooks |= self._watches.pop(("children", path), {})
        if kind is not Kind.WRITTEN:
            hooks |= self._watches.pop(("children", posixpath.dirname(path)), {})
        for hook, connection in hooks.items():
            connection.notice(hook)

    def forget(self, gone: Connection) -> None:
        for hooks in self._watches.values():
            for hook in [hook for hook, connection in hooks.items() if connection is gone]:
                del hooks[hook]

    # -- what it is asked --------------------------------------------------------------------------------------

    def exists(self, path: str, hook: Any, connection: Connection) -> bool:
        self._watch("data", path, hook, connection)
        return path in self.tree

    def read(self, path: str, name: str | None, hook: Any, connection: Connection) -> Node:
        found = self._found(path, name)
        self._watch("data", path, hook, connection)
        return Node(data=found.data, stat=found.stat)

    def children(self, path: str, name: str | None, hook: Any, connection: Connection) -> list[str]:
        found = self._found(path, name)
        self._watch("children", path, hook, connection)
        return sorted(found.children)

    def acl(self, path: str, name: str | None) -> NodeAcl:
        """Empty: who asks may not know it."""
        found = self.tree.get(path)
        if found is None:
            raise NoNodeError("there is no such node, or no parent of it")
        return found.rights if found.lets_read(name) else frozenset()

    def _found(self, path: str, name: str | None) -> Any:
        found = self.tree.get(path)
        if found is None:
            raise NoNodeError("there is no such node, or no parent of it")
        if not found.lets_read(name):
            raise AccessError("its ACL does not allow it")
        return found

    def _watch(self, table: str, path: str, hook: Any, connection: Connection) -> None:
        if hook is not None:
            self._watches.setdefault((table, path), {})[hook] = connection


class Connection:
    """Requests on their way to one server, in order, and answers on theirs back."""

    def __init__(self, ensemble: Ensemble, server: Server, session: Session, link: Link, client: Client) -> None:
        self.ensemble, self.server, self.session, self.link, self.client = ensemble, server, session, link, client
        self.is_open = True
        self._asked: deque[Request] = deque()
        self._held: deque[Callable[[], None]] = deque()
        """Answers that do not get through."""
        self._is_busy = False

    def send(self, request: Request) -> None:
        request.due_s = self.ensemble.clock.now_s() + self.server.delay_s
        self._asked.append(request)
        self.move_on()

    def move_on(self) -> None:
        """Whatever can get through does."""
        while self.is_open and self.link.to_client and self._held:
            self._held.popleft()()
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self.is_open and self.link.to_server and self._asked:
                left_s = self._asked[0].due_s - self.ensemble.clock.now_s()
                if left_s > 0:
                    self.ensemble.clock.later(left_s, self.move_on)
                    return
                self._serve(self._asked.popleft())
        finally:
            self._is_busy = False

    def _serve(self, request: Request) -> None:
        if request.size > self.ensemble.max_request_bytes:
            self.drop()
            return
        is_done, is_last = True, False
        if request.is_write and self.link.fate is not None:
            left, is_done = self.link.fate
            is_last = left == 0
            self.link.fate = None if is_last else (left - 1, is_done)
        value, error = None, None
        if is_done or not is_last:
            try:
                value = request.work(self.server)
            except ZooKeeperError as e:
                error = e
        if is_last:
            self.drop()
        else:
            self._back(lambda: self.client.answered(request, value, error))

    def notice(self, hook: Any) -> None:
        if self.is_open:
            self._back(lambda: self.client.noticed(hook))

    def _back(self, tell: Callable[[], None]) -> None:
        zxid = self.server.zxid

        def arrive() -> None:
            self.session.seen = max(self.session.seen, zxid)
            tell()

        if self.link.to_client and not self._held:
            arrive()
        else:
            self._held.append(arrive)

    def close(self) -> None:
        """The server, or the client, has hung up."""
        if self.is_open:
            self.is_open = False
            self.server.forget(self)
            self.ensemble.contact_changed(self.session)

    def drop(self) -> None:
        """Both hear that it is over."""
        if self.is_open:
            self.close()
            self.client.clock.later(0.0, lambda: self.client.lost(self))


class Ensemble:
    """See the module's docstring. ``tick_s``: sessions end at whole ones."""

    def __init__(
        self, clock: Clock, *, servers: int = 3, tick_s: float = 0.5, max_request_bytes: int = MAX_REQUEST_BYTES
    ) -> None:
        self.clock = clock
        self.tick_s = tick_s
        self.max_request_bytes = max_request_bytes
        self.tree: Tree = EMPTY
        self.zxid = 0
        self.servers = [Server(index) for index in range(servers)]
        self.sessions: dict[int, Session] = {}
        self._next_session = 0x10000
        self.on_commit: Callable[[int, Sequence[Operation], Author], None] | None = None
        """Told every write that was done: zxid, operations, by whom."""

    @property
    def serves(self) -> bool:
        """Whether a majority is up."""
        return 2 * sum(server.is_up for server in self.servers) > len(self.servers)

    # -- connections and sessions ------------------------------------------------------------------------------

    def connect(
        self, client: Client, link: Link, *, first: int, session_id: int, timeout_s: float
    ) -> tuple[Connection, Session] | None:
        """To the next server from number ``first`` on that serves, with a new session for ``session_id`` 0.
        None: nobody answers. SessionExpiredError."""
        if not (self.serves and link.to_server and link.to_client):
            return None
        order = self.servers[first % len(self.servers) :] + self.servers[: first % len(self.servers)]
        server = next(server for server in order if server.is_up)
        is_resumed = session_id != 0
        if session_id == 0:
            self.zxid += 1
            self._next_session += 1
            session_id = self._next_session
            self.sessions[session_id] = Session(session_id, min(max(timeout_s, 2 * self.tick_s), 20 * self.tick_s))
        session = self.sessions.get(session_id)
        if session is None:
            raise SessionExpiredError(f"The session {session_id:#x} has expired")
        if session.connection is not None:
            session.connection.drop()
        server.catch_up(session.seen if is_resumed else None)
        connection = session.connection = Connection(self, server, session, link, client)
        self.contact_changed(session)
        return connection, session

    def contact_changed(self, session: Session) -> None:
        """Something was done to the way to its client: it lives on, or its time runs."""
        connection = session.connection
        is_heard = connection is not None and connection.is_open and connection.link.to_server and not session.frozen
        if is_heard:
            session.ends_s = None
        elif session.ends_s is None:
            self._let_run(session)

    def _let_run(self, session: Session) -> None:
        """At the first whole tick behind its time, if nothing was heard and there is a majority to say so."""
        ends_s = ((self.clock.now_s() + session.timeout_s) // self.tick_s + 1) * self.tick_s
        session.ends_s = ends_s

        def end() -> None:
            if session.ends_s == ends_s and self.serves:
                self.end_session(session.session_id)

        self.clock.later(ends_s - self.clock.now_s(), end)

    def end_session(self, session_id: int) -> None:
        """It expires, or its client closes it. Nothing happens to one that is over."""
        session = self.sessions.pop(session_id, None)
        if session is None:
            return
        events: list[Event] = []
        tree = self.tree
        for path in sorted(path for path, node in tree.items() if node.session == session_id):
            tree = remove(tree, path, events)
        self._commit(tree, events)
        if session.connection is not None:
            session.connection.drop()

    # -- writes ------------------------------------------------------------------------------------------------

    def write(self, server: Server, operations: Sequence[Operation], author: Author) -> list[Done]:
        """By a client of ``server``, which knows it then. The error of the first operation that is refused."""
        if author.session not in self.sessions:
            raise SessionExpiredError(f"The session {author.session:#x} has expired")
        try:
            change = apply(self.tree, operations, self.zxid + 1, author)
        except ZooKeeperError:
            self.zxid += 1
            raise
        self._commit(change.tree, change.events)
        server.catch_up()
        if self.on_commit is not None:
            self.on_commit(self.zxid, operations, author)
        return change.done

    def _commit(self, tree: Tree, events: list[Event]) -> None:
        self.tree = tree
        self.zxid += 1
        for server in self.servers:
            server.learn(tree, self.zxid, events)

    # -- faults ------------------------------------------------------------------------------------------------

    def down(self, *indices: int) -> None:
        """These servers end; all if none is named. Without a majority nobody is served."""
        for index in indices or range(len(self.servers)):
            self.servers[index].is_up = False
        for session in list(self.sessions.values()):
            connection = session.connection
            if connection is not None and not (self.serves and connection.server.is_up):
                connection.drop()

    def up(self, *indices: int) -> None:
        """They serve again. A new majority gives every session its whole time."""
        was_serving = self.serves
        for index in indices or range(len(self.servers)):
            self.servers[index].is_up = True
        for server in self.servers:
            if server.is_up and not server.lags:
                server.catch_up()
        if self.serves and not was_serving:
            for session in self.sessions.values():
                session.ends_s = None
                self.contact_changed(session)

    def lag(self, index: int, lags: bool = True) -> None:
        """A follower falls behind: it learns nothing, until a client of it writes or syncs. Or it has caught up."""
        self.servers[index].lags = lags
        if not lags:
            self.servers[index].catch_up()

    def take_away(self, path: str) -> None:
        """Somebody deletes a node that has no children, with a tool. Nothing happens to one that is not there."""
        if path in self.tree:
            events: list[Event] = []
            self._commit(remove(self.tree, path, events), events)

    def slow(self, delay_s: float) -> None:
        """Every answer takes so long; those that are asked for already take as long as they did."""
        for server in self.servers:
            server.delay_s = delay_s

    def cut(self, session_id: int, *, to_server: bool = True, to_client: bool = True) -> None:
        """Nothing gets through any more, or in one direction; nobody is told."""
        connection = self._connection(session_id)
        connection.link.to_server &= not to_server
        connection.link.to_client &= not to_client
        self.contact_changed(connection.session)

        def notice() -> None:
            if connection.is_open and not (connection.link.to_server and connection.link.to_client):
                connection.drop()

        connection.client.clock.later(connection.session.timeout_s * NOTICED, notice)

    def mend(self, link: Link) -> None:
        """Everything gets through; what was sent on a connection that still is there arrives."""
        link.to_server = link.to_client = True
        for session in list(self.sessions.values()):
            if session.connection is not None and session.connection.link is link:
                self.contact_changed(session)
                session.connection.move_on()

    def reset(self, session_id: int) -> None:
        """Somebody in between resets the connection; what was under way is lost."""
        self._connection(session_id).drop()

    def freeze(self, session_id: int, frozen: bool = True) -> None:
        """Its process is stopped, or goes on."""
        session = self.sessions.get(session_id)
        if session is not None:
            session.frozen = frozen
            self.contact_changed(session)

    def _connection(self, session_id: int) -> Connection:
        connection = self.sessions[session_id].connection
        assert connection is not None
        return connection
