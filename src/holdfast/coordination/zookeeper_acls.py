"""Who may change the nodes of a cluster: a look for those that anybody may, and the rights that a tree is to have.

ZooKeeper keeps an ACL with each node and inherits none. ``zookeeper.set.acl`` gives one to what is made from then on;
what was there before has its own until somebody changes it: ``change`` does, as zookeeper-security-migration.sh of
Kafka does (ZkSecurityMigrator, ZkData of 3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.coordination.zookeeper_client import (
    AccessError,
    ConnectionLostError,
    NodeAcl,
    SessionExpiredError,
    ZooKeeperClient,
)
from holdfast.coordination.zookeeper_link import Errands, Link
from holdfast.metadata import znode_acls, znode_paths

log = logging.getLogger(__name__)

ROOTS: Final = (
    "/config", znode_acls.LITERAL_ACLS, "/kafka-acl-extended", znode_paths.OURS, "/brokers", znode_paths.CONTROLLER,
    znode_paths.CONTROLLER_EPOCH, "/admin", znode_paths.CLUSTER, znode_paths.ISR_CHANGES, znode_paths.PRODUCER_IDS,
    znode_paths.LOG_DIR_EVENTS, znode_paths.FEATURE, "/delegation_token", "/migration", znode_acls.LITERAL_CHANGES,
    znode_acls.PREFIXED_CHANGES,
)  # fmt: skip
"""The SecureRootPaths of Kafka, and ours; what is above them (the chroot, or the root of all) is done by itself, and
nothing else below it: other applications may have nodes there, and /consumers is anybody's. First what gives rights."""
MOST_OF_ONE: Final = 100
"""Children of one node that a start looks at, and levels below a root are few."""
MOST_LOOKED_AT: Final = 1000
MOST_NAMED: Final = 5
AGAIN_S: Final = 5.0
COMMAND: Final = "holdfast metadata secure-znodes --acl secure --config FILE"
_ANYBODY: Final = ("world", "anyone")
_READ: Final = 1


class AclClient(ZooKeeperClient, Protocol):
    """A client that also changes ACLs, which no broker does."""

    def children_of(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Names below each, None of a node that is missing; asked for without waiting for each answer."""
        ...

    def set_acls(self, paths: Sequence[str]) -> list[bool]:
        """Give each the ACL that it would have if this client made it now; False where the node is missing. Done again
        after a lost connection. AccessError names the first that this client may not change."""
        ...


def is_anybodys(acl: NodeAcl) -> bool:
    """Whether anybody may do more with a node than read it."""
    return any((each.scheme, each.name) == _ANYBODY and each.rights & ~_READ for each in acl)


# -- a look ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What a look has found. ``count``: of all nodes that were looked at."""

    count: int
    anybodys: tuple[str, ...]

    def line(self) -> str:
        """What a person is told."""
        shown = ", ".join(self.anybodys[:MOST_NAMED])
        more = len(self.anybodys) - MOST_NAMED
        return (
            f"zookeeper.set.acl=true, but anybody who reaches the ensemble may change {len(self.anybodys)} of "
            f"{self.count} nodes that were looked at: {shown}{f' and {more} more' if more > 0 else ''}. They were made "
            f"without it. Once all brokers have it: `{COMMAND}`"
        )


def look(client: ZooKeeperClient) -> Looked:
    """At the roots and what is below them, level by level; not at all of a large tree."""
    count, found, level = 0, list[str](), ["/", *ROOTS]
    while level and count < MOST_LOOKED_AT:
        level = level[: MOST_LOOKED_AT - count]
        acls = client.acls(level)
        there = [path for path, acl in zip(level, acls, strict=True) if acl is not None]
        count += len(there)
        found += [path for path, acl in zip(level, acls, strict=True) if acl is not None and is_anybodys(acl)]
        level = [child for path in there if path != "/" for child in _below(client, path)]
    return Looked(count=count, anybodys=tuple(found))


def _below(client: ZooKeeperClient, path: str) -> list[str]:
    try:
        names = client.children(path) or []
    except AccessError:  # of another identity: not anybody's
        return []
    return [f"{path}/{name}" for name in names[:MOST_OF_ONE]]


class AclCheck:
    """One look after a start, beside all else, whose outcome is a line in the log if it is bad."""

    def __init__(self, link: Link, errands: Errands) -> None:
        self._link = link
        self._errands = errands

    def begin(self) -> None:
        """Returns at once."""
        self._errands.aside(self._look)

    def _look(self) -> None:
        try:
            looked = look(self._link.client())
        except (ConnectionLostError, SessionExpiredError) as e:
            log.info("ZooKeeper: who may change which nodes: %s", e)
            self._errands.post_later(AGAIN_S, "who may change which nodes", self.begin)
            return
        if looked.anybodys:
            log.warning("%s", looked.line())


# -- the change --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """How many nodes have their ACL now; ``anybodys``: how many of them anybody could change before."""

    nodes: int
    anybodys: int


def change(client: AclClient, told: Callable[[int], None]) -> Changed:
    """Give every node of the cluster the ACL that ``client`` gives to new ones. May be done again, also after one that
    did not come to its end, and beside brokers. ``told``: how many are done. AccessError."""
    nodes = anybodys = 0
    for paths in _levels(client):
        anybodys += sum(acl is not None and is_anybodys(acl) for acl in client.acls(paths))
        nodes += sum(client.set_acls(paths))
        told(nodes)
    return Changed(nodes=nodes, anybodys=anybodys)


def _levels(client: AclClient) -> Iterator[list[str]]:
    """All paths, those above first: who changes a node keeps others from making more below it."""
    yield ["/"]
    level = list(ROOTS)
    while level:
        yield level
        names = client.children_of(level)
        level = [f"{path}/{name}" for path, below in zip(level, names, strict=True) for name in below or ()]
