"""What kazoo answers, as the values and errors of zookeeper_client.py. Nothing else."""

from __future__ import annotations

from typing import Any

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    OperationTimeoutError,
    RequestTimeoutError,
    SessionClosedRequireSaslError,
    SessionMovedError,
)
from kazoo.exceptions import (
    BadVersionError as KazooBadVersion,
)
from kazoo.exceptions import (
    NodeExistsError as KazooNodeExists,
)
from kazoo.exceptions import (
    NoNodeError as KazooNoNode,
)
from kazoo.exceptions import (
    NotEmptyError as KazooNotEmpty,
)
from kazoo.exceptions import (
    SessionExpiredError as KazooSessionExpired,
)
from kazoo.protocol.states import KeeperState

from holdfast.coordination.zookeeper_client import (
    AccessError,
    BadVersionError,
    ConnectionLostError,
    Node,
    NodeAcl,
    NodeAclEntry,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    Stat,
    ZooKeeperError,
)
from holdfast.coordination.zookeeper_identity import not_accepted, not_allowed
from holdfast.coordination.zookeeper_settings import ZooKeeperSettings

_ERRORS: tuple[tuple[tuple[type[Exception], ...], type[ZooKeeperError], str], ...] = (
    ((KazooNoNode,), NoNodeError, "there is no such node, or no parent of it"),
    ((KazooNodeExists,), NodeExistsError, "the node exists"),
    ((KazooNotEmpty,), NotEmptyError, "the node has children"),
    ((KazooBadVersion,), BadVersionError, "the node has another version"),
    ((InvalidACLError,), AccessError, "the ensemble does not know who this client is, so it takes no ACL for it"),
    ((KazooSessionExpired, ConnectionClosedError), SessionExpiredError, "the session is over"),
    (
        (ConnectionLoss, OperationTimeoutError, SessionMovedError, RequestTimeoutError),
        ConnectionLostError,
        "the connection was lost before the answer",
    ),
)  # fmt: skip
"""kazoo's errors, ours, and what is said."""


def why_over(state: KeeperState, session_id: int, settings: ZooKeeperSettings) -> ZooKeeperError:
    """What every call ends with when a session has ended in this state."""
    if state == KeeperState.AUTH_FAILED:
        return AccessError(_sentence(not_accepted(settings)))
    if state == KeeperState.EXPIRED_SESSION:
        return SessionExpiredError(f"The session {session_id:#x} has expired")
    return SessionExpiredError(f"The session {session_id:#x} was given up")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def error_of(error: Exception, path: str, settings: ZooKeeperSettings, index: int | None = None) -> ZooKeeperError:
    """Ours for kazoo's. ``settings``: of the client that asked."""
    if isinstance(error, NoAuthError):
        return AccessError(f"{path or '/'}: {not_allowed(settings)}", path=path, index=index)
    if isinstance(error, AuthFailedError | SessionClosedRequireSaslError):
        return AccessError(_sentence(not_accepted(settings)), path=path, index=index)
    for theirs, ours, words in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{path or '/'}: {words}", path=path, index=index)
    what = f"{type(error).__name__} {error}".strip()
    return ZooKeeperError(f"{path or '/'}: {what}", path=path, index=index)


def stat_of(stat: Any) -> Stat:
    """Of a ZnodeStat."""
    return Stat(
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        version=stat.version,
        cversion=stat.cversion,
        ephemeral_owner=stat.ephemeralOwner,
    )


def node_of(answer: tuple[bytes | None, Any]) -> Node:
    """Of data and a ZnodeStat."""
    data, stat = answer
    return Node(data=data or b"", stat=stat_of(stat))


def acl_of(answer: tuple[list[Any], Any]) -> NodeAcl:
    """Of kazoo's ACLs and a ZnodeStat."""
    return frozenset(NodeAclEntry(each.id.scheme, each.id.id, each.perms) for each in answer[0])


def first_error(results: list[Any]) -> tuple[int, KazooException] | None:
    """Which operation made a multi fail, and how: those before it say that they are rolled back, those behind it that
    they were not tried."""
    errors = [(index, each) for index, each in enumerate(results) if isinstance(each, KazooException)]
    return next(((i, e) for i, e in errors if getattr(e, "code", 0) not in (0, -2)), errors[0] if errors else None)
