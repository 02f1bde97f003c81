"""A real ensemble as a ZooKeeperClient, through kazoo. Loaded only where the metadata store is ZooKeeper.

Owns one session: its state, what is under way on it, and what follows from a connection that was lost
(zookeeper_client.py says what is promised). kazoo has three threads of it: one for the connection, one that settles
what is answered, one for watches and listeners. No lock is held while others' code runs.

What is decided here and not in kazoo: nothing is queued while no server answers (a write would be sent when one does,
behind others that were lost), and a watch outlives a lost connection.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from kazoo.client import CLOSED_STATES
from kazoo.exceptions import NoNodeError as KazooNoNode
from kazoo.protocol.serialization import (
    CheckVersion,
    Create2,
    Exists,
    GetACL,
    GetChildren,
    GetData,
    SetACL,
    SetData,
    Sync,
)
from kazoo.protocol.serialization import Delete as KazooDelete
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, Permissions

from holdfast.coordination.kazoo_answers import acl_of, error_of, first_error, node_of, stat_of, why_over
from holdfast.coordination.kazoo_session import KazooMulti, MultiRead, OneSession
from holdfast.coordination.zookeeper_client import (
    AccessError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    Done,
    Node,
    NodeAcl,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    RequestTooLargeError,
    SessionExpiredError,
    SessionState,
    ZooKeeperError,
    request_bytes,
)
from holdfast.coordination.zookeeper_identity import no_answer
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings
from holdfast.model.errors import ConfigError

log = logging.getLogger(__name__)

T = TypeVar("T")

READ_AT_ONCE = 100
"""Nodes that one request reads. Its answer has no limit: most nodes have some hundred bytes, some a megabyte."""
_OWN = ACL(Permissions.ALL, Id("auth", ""))
_READABLE = ACL(Permissions.READ, Id("world", "anyone"))


class _Watch:
    """What kazoo calls for one watch; calls on at most once."""

    __slots__ = ("_call", "_client")

    def __init__(self, client: KazooZooKeeper, call: Callable[[], None]) -> None:
        self._client = client
        self._call: Callable[[], None] | None = call

    def __call__(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE or not self._client.keeps(self):
            self.fire()

    def fire(self) -> None:
        call = self._call
        self.cancel()
        if call is not None:
            call()

    def cancel(self) -> None:
        """It is not wanted."""
        self._call = None


class KazooZooKeeper:
    """A ZooKeeperClient (zookeeper_client.py) of the ensemble that ``settings`` names."""

    def __init__(self, settings: ZooKeeperSettings) -> None:
        if settings.sasl is not None and importlib.util.find_spec("puresasl") is None:
            raise ConfigError(
                f"zookeeper.sasl.mechanism={settings.sasl.mechanism} needs the package pure-sasl: "
                "pip install 'holdfast[zookeeper-sasl]'"
            )
        self._settings = settings
        self._root = settings.chroot
        self._changed = threading.Condition(threading.RLock())
        self._state: SessionState | None = None
        """None before a server has answered."""
        self._over: ZooKeeperError | None = None
        """Why no call will work any more."""
        self._started = self._closed = False
        self._session_id = 0
        self._under_way: dict[Future[Any], bool] = {}
        """What has no answer yet: whether it is a write."""
        self._gaps = self._gaps_known = 0
        """Times that writes were lost, and how many of them a ``sync`` has come after."""
        self._listeners: list[Callable[[SessionState], None]] = []
        self._kept: list[_Watch] = []
        """Watches whose connection was lost."""
        self._session = OneSession(settings, self._told)

    # -- the session -------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_s(self) -> float:
        return (self._session.granted_ms or self._settings.session_timeout_ms) / 1000

    def start(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            assert not self._started and not self._closed, "a client starts once"
            self._started = True
        self._session.start_async()
        try:
            self._make_chroot(deadline_s)
        except ConnectionLostError as e:
            self._abandon()
            trouble = self._session.trouble
            why = [f"No server of {self._settings.servers} has answered within {timeout_s:g} s"]
            why += filter(None, (trouble, no_answer(self._settings, trouble)))
            raise ConnectionLostError(": ".join(why)) from e
        except BaseException:
            self._abandon()
            raise

    def _make_chroot(self, deadline_s: float) -> None:
        """It, and every node above it that is missing. What is above it is anybody's."""
        if self._ask(Exists(self._root or "/", None), "", deadline_s=deadline_s) is not None:
            return
        names = self._root.split("/")[1:]
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            acl = self._acl("") if depth == len(names) else OPEN_ACL_UNSAFE
            try:
                self._ask(Create2(path, b"", acl, 0), path, deadline_s=deadline_s)
            except (NodeExistsError, AccessError):
                if self._ask(Exists(path, None), path, deadline_s=deadline_s) is None:
                    raise

    def _abandon(self) -> None:
        """Be closed, without waiting for threads that wait for servers."""
        with self._changed:
            self._closed = True
            self._over = self._over or SessionExpiredError("The client could not be started")
        threading.Thread(target=self._session.end, daemon=True, name="zookeeper-end").start()

    def listen(self, callback: Callable[[SessionState], None]) -> None:
        with self._changed:
            self._listeners.append(callback)

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._over = self._over or SessionExpiredError("The client was closed")
            left = list(self._under_way)
            self._changed.notify_all()
        for future in left:
            self._settle(future, error=SessionExpiredError("The client was closed"))
        if self._started:
            self._session.end()

    def _told(self, state: KeeperState) -> None:
        """By the thread of the connection, before kazoo gives up what has no answer."""
        with self._changed:
            if state in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
                self._session_id = self._session.id_of_session
                self._be(SessionState.CONNECTED)
            elif state in CLOSED_STATES:
                self._over = self._over or why_over(state, self._session_id, self._settings)
                self._be(SessionState.EXPIRED)
            elif self._state is not None:
                if any(self._under_way.values()):
                    self._gaps += 1
                self._be(SessionState.SUSPENDED)

    def _be(self, state: SessionState) -> None:
        if state is self._state or self._state is SessionState.EXPIRED:
            return
        self._state = state
        self._changed.notify_all()
        if self._closed:
            return
        for listener in self._listeners:
            self._session.later(listener, state)
        if state is not SessionState.SUSPENDED:
            kept, self._kept = self._kept, []
            for watch in kept:
                self._session.later(watch.fire)

    def keeps(self, watch: _Watch) -> bool:
        """Of a watch that kazoo has forgotten: whether it is fired when a server answers again. If not, it is time."""
        with self._changed:
            if self._closed:
                watch.cancel()
            if self._state is not SessionState.SUSPENDED:
                return False
            self._kept.append(watch)
            return True

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, path: str, *, watch: Callable[[], None] | None = None) -> Node | None:
        def read(deadline_s: float, hook: _Watch | None) -> Node:
            return node_of(self._ask(GetData(self._full(path), hook), path, deadline_s=deadline_s))

        return self._watched(read, path, watch)

    def children(self, path: str, *, watch: Callable[[], None] | None = None) -> list[str] | None:
        def read(deadline_s: float, hook: _Watch | None) -> list[str]:
            return sorted(self._ask(GetChildren(self._full(path), hook), path, deadline_s=deadline_s))

        return self._watched(read, path, watch)

    def _watched(
        self, read: Callable[[float, _Watch | None], T], path: str, call: Callable[[], None] | None
    ) -> T | None:
        """What ``read`` finds, None when the node is missing: then its coming is watched for, which ZooKeeper does only
        for who asks whether it exists."""
        deadline_s = self._deadline_s()
        while True:
            hook = None if call is None else _Watch(self, call)
            try:
                try:
                    return read(deadline_s, hook)
                except NoNodeError:
                    if hook is None:
                        return None
                if self._ask(Exists(self._full(path), hook), path, deadline_s=deadline_s) is None:
                    return None
            except ZooKeeperError:
                if hook is not None:
                    hook.cancel()
                raise
            hook.cancel()  # it came in between

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        pieces = [paths[start : start + READ_AT_ONCE] for start in range(0, len(paths), READ_AT_ONCE)]
        asked = [self._send(self._many(piece), piece[0], deadline_s=self._deadline_s()) for piece in pieces]
        return [node for piece, future in zip(pieces, asked, strict=True) for node in self._found(piece, future)]

    def _many(self, paths: Sequence[str]) -> MultiRead:
        return MultiRead([self._full(path) for path in paths])

    def _found(self, paths: Sequence[str], future: Future[Any]) -> Iterator[Node | None]:
        deadline_s = self._deadline_s()
        try:
            answers = self._answer(future, paths[0], deadline_s)
        except ConnectionLostError:
            answers = self._ask(self._many(paths), paths[0], deadline_s=deadline_s)
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, KazooNoNode):
                yield None
            elif isinstance(answer, Exception):
                raise error_of(answer, path, self._settings)
            else:
                yield node_of(answer)

    def acls(self, paths: Sequence[str]) -> list[NodeAcl | None]:
        found = self._each(paths, lambda path: GetACL(self._full(path)), unknown=([], None))
        return [None if answer is None else acl_of(answer) for answer in found]

    def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Of an AclClient (zookeeper_acls.py)."""
        return list(self._each(paths, lambda path: GetChildren(self._full(path), None)))

    def set_acls(self, paths: Sequence[str]) -> list[bool]:
        """Of an AclClient. It may be done twice: so it is sent as a read is, and again after a lost connection."""
        done = self._each(paths, lambda path: SetACL(self._full(path), self._acl(path), -1))
        return [answer is not None for answer in done]

    def _each(self, paths: Sequence[str], request: Callable[[str], Any], *, unknown: Any = None) -> Iterator[Any]:
        """The answers to a request for each node, None where it is missing; with ``unknown``, that where the ACL does
        not allow it."""
        asked = [self._send(request(path), path, deadline_s=self._deadline_s()) for path in paths]
        for path, future in zip(paths, asked, strict=True):
            deadline_s = self._deadline_s()
            try:
                try:
                    yield self._answer(future, path, deadline_s)
                except ConnectionLostError:
                    yield self._ask(request(path), path, deadline_s=deadline_s)
            except NoNodeError:
                yield None
            except AccessError:
                if unknown is None:
                    raise
                yield unknown

    def sync(self) -> None:
        with self._changed:
            gaps = self._gaps
        self._ask(Sync(self._full("/")), "/", deadline_s=self._deadline_s())
        with self._changed:
            self._gaps_known = max(self._gaps_known, gaps)

    def _deadline_s(self) -> float:
        return time.monotonic() + self.session_timeout_s

    def _ask(self, request: Any, path: str, *, deadline_s: float) -> Any:
        """The answer; asked again after a lost connection, until the deadline."""
        while True:
            try:
                return self._answer(self._send(request, path, deadline_s=deadline_s), path, deadline_s)
            except ConnectionLostError:
                if time.monotonic() >= deadline_s:
                    raise

    def _answer(self, future: Future[Any], path: str, deadline_s: float) -> Any:
        try:
            return future.result(max(0.0, deadline_s - time.monotonic()))
        except TimeoutError:
            raise ConnectionLostError(f"{path or '/'}: no answer in time", path=path) from None

    # -- writing -----------------------------------------------------------------------------------------------

    def write(self, operations: Sequence[Operation]) -> Future[list[Done]]:
        size, limit = request_bytes(operations, chroot=self._root), self._settings.max_request_bytes
        if size > limit:
            return _failed(
                RequestTooLargeError(
                    f"{len(operations)} operations from {operations[0].path} on are {size} bytes: expected at most "
                    f"{limit}, which is what a server takes",
                    path=operations[0].path,
                )
            )
        request = KazooMulti([self._request(operation) for operation in operations])
        return self._send(
            request, operations[0].path, deadline_s=None, done=lambda results: self._done(operations, results)
        )

    def _request(self, operation: Operation) -> Any:
        path = self._full(operation.path)
        match operation:
            case Create():
                flags = (1 if operation.ephemeral else 0) | (2 if operation.sequence else 0)
                return Create2(path, operation.data, self._acl(operation.path), flags)
            case Put():
                return SetData(path, operation.data, operation.version)
            case Delete():
                return KazooDelete(path, operation.version)
            case Check():
                return CheckVersion(path, operation.version)

    def _done(self, operations: Sequence[Operation], results: list[Any]) -> list[Done]:
        failed = first_error(results)
        if failed is not None:
            index, error = failed
            raise error_of(error, operations[index].path, self._settings, index)
        done = []
        for operation, result in zip(operations, results, strict=True):
            path, stat = result if isinstance(operation, Create) else (self._full(operation.path), result)
            done.append(Done(path=path[len(self._root) :], stat=None if stat is None else stat_of(stat)))
        return done

    def _full(self, path: str) -> str:
        return (self._root if path == "/" else self._root + path) or "/"

    def _acl(self, path: str) -> list[Any]:
        if self._settings.is_open(path):
            return list(OPEN_ACL_UNSAFE)
        return [_OWN] if self._settings.is_sensitive(path) else [_OWN, _READABLE]

    # -- what is under way -------------------------------------------------------------------------------------

    def _send(
        self,
        request: Any,
        path: str,
        *,
        deadline_s: float | None,
        done: Callable[[Any], Any] | None = None,
    ) -> Future[Any]:
        """Send it when fewer are under way than may be. One with a deadline is a read, and waits for a connection too;
        a write, without one, fails. ``done``: the answer as the caller has it, in kazoo's thread."""
        is_write = deadline_s is None
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._changed:
            error = self._wait_for_room(path, deadline_s)
            if error is not None:
                future.set_exception(error)
                return future
            self._under_way[future] = is_write
            self._session.send(request, lambda result: self._answered(future, path, result, done))
        return future

    def _wait_for_room(self, path: str, deadline_s: float | None) -> ZooKeeperError | None:
        while True:
            if self._over is not None:
                return _again(self._over, path)
            if deadline_s is None and self._state is not SessionState.CONNECTED and self._gaps == self._gaps_known:
                self._gaps += 1
            if deadline_s is None and self._gaps > self._gaps_known:
                return ConnectionLostError(f"{path}: not sent, as a write before it had no answer", path=path)
            if self._state is SessionState.CONNECTED and len(self._under_way) < self._settings.max_in_flight:
                return None
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return ConnectionLostError(f"{path or '/'}: no server has answered in time", path=path)
            self._changed.wait(left_s)

    def _answered(self, future: Future[Any], path: str, result: Any, done: Callable[[Any], Any] | None) -> None:
        error = result.exception
        if error is not None:
            self._settle(future, error=error_of(error, path, self._settings))
            return
        try:
            value = result.value if done is None else done(result.value)
        except ZooKeeperError as e:
            self._settle(future, error=e)
        except Exception as e:
            self._settle(future, error=ZooKeeperError(f"{path}: {type(e).__name__}: {e}", path=path))
        else:
            self._settle(future, value=value)

    def _settle(self, future: Future[Any], *, value: Any = None, error: ZooKeeperError | None = None) -> None:
        with self._changed:
            was_write = self._under_way.pop(future, None)
            if was_write is None:
                return
            if was_write and isinstance(error, ConnectionLostError) and self._gaps == self._gaps_known:
                self._gaps += 1
            self._changed.notify_all()
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


def _failed(error: ZooKeeperError) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def _again(error: ZooKeeperError, path: str) -> ZooKeeperError:
    """The same for another call: who raises an exception changes it."""
    return type(error)(str(error), path=path)
