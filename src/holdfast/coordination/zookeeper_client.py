"""What the ZooKeeper store asks of an ensemble: the ZooKeeperClient protocol, its values and its errors.

A client is one session. There are two: kazoo with a real ensemble behind it, and a model of an ensemble that the
simulation drives; one contract suite (tests/contracts/test_zookeeper_client.py) holds for both. The store knows this
protocol and nothing of kazoo.

    start -> get, children, write, ... -> close | the session expires | the process dies

A session that has expired never comes back: its client answers SessionExpiredError from then on, and whoever wants to
go on makes a new one. Calls block up to their own timeout: never on an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from holdfast.model.errors import HoldfastError

ANY_VERSION = -1
"""Of a Put, a Delete or a Check: whatever version the node has."""


class ZooKeeperError(HoldfastError):
    """The ensemble did not do what was asked."""


class NoNodeError(ZooKeeperError):
    """The node, or the parent of a new one, is not there."""


class NodeExistsError(ZooKeeperError):
    """A new node is there already."""


class NotEmptyError(ZooKeeperError):
    """A node that is to go has children."""


class BadVersionError(ZooKeeperError):
    """Another one has written the node since: what was checked does not hold."""


class ConnectionLostError(ZooKeeperError):
    """No answer: of a read nothing is known, and of a write not whether it was done."""


class SessionExpiredError(ZooKeeperError):
    """The ensemble has ended the session, or it was closed: its ephemeral nodes are gone."""


class AccessError(ZooKeeperError):
    """An ACL forbids it, or authentication failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """What ZooKeeper knows of a node. ``ephemeral_owner``: the session id, 0 of a node that stays."""

    czxid: int
    mzxid: int
    version: int
    cversion: int
    ephemeral_owner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as it was read."""

    data: bytes
    stat: Stat


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """A new node; its parent must be there. ``sequence``: ZooKeeper appends ten digits to the name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Other data for a node that is there."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """A node that is there, and has no children, goes."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Nothing is written; the version must be this one."""

    path: str
    version: int


Operation: TypeAlias = Create | Put | Delete | Check


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What became of one operation. ``path``: of a Create, with the digits of a sequence. ``stat``: after a Create or a
    Put, None of the others."""

    path: str
    stat: Stat | None = None


class SessionState(Enum):
    """What a client knows of its session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No server answers. The session may be over; nobody knows until one does."""
    EXPIRED = "expired"


class ZooKeeperClient(Protocol):
    """One session with an ensemble, below a chroot that no path of a caller names.

    Errors of every call: ConnectionLostError, SessionExpiredError, AccessError. Callbacks come from any thread, return
    at once, raise nothing and do not call the client.
    """

    @property
    def session_id(self) -> int:
        """Of the session; 0 before ``start``."""
        ...

    @property
    def session_timeout_s(self) -> float:
        """What the ensemble granted; what was asked for before ``start``."""
        ...

    def start(self, timeout_s: float) -> None:
        """Connect, and make the chroot if it is missing. ConnectionLostError when no server answered in time."""
        ...

    def listen(self, callback: Callable[[SessionState], None]) -> None:
        """Have every change of the session's state told, in order. EXPIRED is the last."""
        ...

    def get(self, path: str, *, watch: Callable[[], None] | None = None) -> Node | None:
        """The node, None when it is missing. ``watch`` is called once: when it is made, written or deleted after this,
        or when the session expires."""
        ...

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes, in that order, asked for without waiting for each answer. Not one moment's state."""
        ...

    def children(self, path: str, *, watch: Callable[[], None] | None = None) -> list[str] | None:
        """Names below a node, sorted, None when it is missing. ``watch`` is called once: when one is made or deleted
        after this, when the node is, or when the session expires."""
        ...

    def write(self, operations: Sequence[Operation]) -> Future[list[Done]]:
        """All or nothing, in order, as one multi; those of one client happen in the order of the calls.

        Returns before the answer. The future has what became of each operation, or the error of the first that failed
        (NoNodeError, NodeExistsError, NotEmptyError, BadVersionError), with its path, and then nothing was written.
        After ConnectionLostError those behind it may have been done, too."""
        ...

    def sync(self) -> None:
        """Return when what any session has written before is read by this one: a server may be behind."""
        ...

    def close(self) -> None:
        """End the session; its ephemeral nodes go. Every call that waits fails. Nothing happens a second time."""
        ...
