"""What the ZooKeeper store asks of an ensemble: the ZooKeeperClient protocol, its values and its errors.

A client is one session. There are two: kazoo with a real ensemble behind it, and a model of an ensemble that the
simulation drives; one contract suite (tests/contracts/test_zookeeper_client.py) holds for both. The store knows this
protocol and nothing of kazoo.

    start -> get, children, write, ... -> close | the session expires | the process dies

A session that has expired never comes back: its client answers SessionExpiredError from then on, and whoever wants to
go on makes a new one. Whether it has expired only a server says: while none answers it is SUSPENDED, for however long
that is, as an ensemble that was down gives all sessions their whole time again.

Calls block: never on an event loop. Those that read wait for a connection, and ask again after a lost one, for as long
as a session lasts without one. Paths begin with a slash and end without one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from holdfast.model.errors import HoldfastError

ANY_VERSION = -1
"""Of a Put, a Delete or a Check: whatever version the node has."""
MAX_REQUEST_BYTES = 1_048_575
"""What a server takes as one request, the default of its jute.maxbuffer; it hangs up on a larger one."""


class ZooKeeperError(HoldfastError):
    """The ensemble did not do what was asked. ``path``: of which node; ``index``: of which operation of a write."""

    def __init__(self, message: str = "", *, path: str | None = None, index: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.index = index


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


class RequestTooLargeError(ZooKeeperError):
    """A write that no server would take: it was not sent."""


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


class NodeAclEntry(NamedTuple):
    """What one identity may do with a node: ``rights`` has bits, 1 to read, 2 to write it, 4 and 8 to make and delete
    nodes below it, 16 to change its ACL."""

    scheme: str
    name: str
    rights: int


NodeAcl: TypeAlias = frozenset[NodeAclEntry]


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

_FIELDS_BYTES = 80
"""At most, of an operation, beside its path and its data: numbers and lengths, and two entries of an ACL."""


def request_bytes(operations: Sequence[Operation], *, chroot: str = "") -> int:
    """How much of MAX_REQUEST_BYTES a write of these takes at most."""
    return 32 + sum(
        _FIELDS_BYTES
        + len((chroot + operation.path).encode())
        + (len(operation.data) if isinstance(operation, Create | Put) else 0)
        for operation in operations
    )


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

    Errors of every call: ConnectionLostError, SessionExpiredError, AccessError; ZooKeeperError itself for what no class
    says. Callbacks come from a thread of the client, one at a time; they return at once, raise nothing and do not call
    the client. There are none after ``close``.
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
        """Connect, and make the chroot if it is missing. Once; after an error the client is closed.

        ConnectionLostError when no server answered in time."""
        ...

    def listen(self, callback: Callable[[SessionState], None]) -> None:
        """Have every change of the session's state told from now on, in order. EXPIRED is the last."""
        ...

    def get(self, path: str, *, watch: Callable[[], None] | None = None) -> Node | None:
        """The node, None when it is missing. ``watch`` is called once: when it is made, written or deleted after this,
        when that may have happened unseen (connected again after SUSPENDED), or when the session expires."""
        ...

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes, in that order, asked for without waiting for each answer. Not one moment's state."""
        ...

    def children(self, path: str, *, watch: Callable[[], None] | None = None) -> list[str] | None:
        """Names below a node, sorted, None when it is missing. ``watch`` is called once: when one is made or deleted
        after this, when the node is, when that may have happened unseen, or when the session expires."""
        ...

    def acls(self, paths: Sequence[str]) -> list[NodeAcl | None]:
        """Who may do what with each node, None of one that is missing, nothing where this client may not know it; asked
        for without waiting for each answer."""
        ...

    def write(self, operations: Sequence[Operation]) -> Future[list[Done]]:
        """All or nothing, in order, as one multi of at least one; those of one client happen in the order of the calls.

        Returns before the answer, but waits for one when as many are under way as may be. Raises nothing: the future
        has what became of each operation, or the error of the first that failed (NoNodeError, NodeExistsError,
        NotEmptyError, BadVersionError, AccessError), with its path and index, and then nothing was written;
        RequestTooLargeError.

        After one that ends with ConnectionLostError, as all do that have no answer when the connection is lost and all
        that come while there is none, every later one ends with it, unsent, until ``sync`` has returned. So what was
        done of the writes between two calls of ``sync`` ends at one of them, and nothing behind it was done."""
        ...

    def sync(self) -> None:
        """Return when what any session has written before is read by this one: a server may be behind.

        A write of this client that had no answer before this call was done by now or never will be."""
        ...

    def close(self) -> None:
        """End the session; its ephemeral nodes go. Every call that waits fails with SessionExpiredError, as does every
        later one. Nothing happens a second time. While no server answers nobody can be told: the session then ends
        by its timeout."""
        ...
