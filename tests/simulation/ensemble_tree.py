"""The znodes of a modelled ensemble: what a multi does to them, and when it is refused.

Values and functions; no sessions, servers or time. A tree never changes: ``apply`` makes another one. What is refused,
in which order, and what the numbers of a stat are, is ZooKeeper's, as tests/contracts/test_zookeeper_client.py and
tests/property/test_ensemble_model.py find them on a real server.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from immutables import Map

from holdfast.coordination.zookeeper_client import (
    ANY_VERSION,
    AccessError,
    BadVersionError,
    Check,
    Create,
    Delete,
    Done,
    NodeAclEntry,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Put,
    Stat,
    ZooKeeperError,
)

ALL_RIGHTS, MAY_READ = 31, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """Only ``owner`` does anything with the node; others read it if it is ``readable``."""

    owner: str
    readable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Znode:
    """``created``: how many children were ever made, which numbers the next one of a sequence. ``session``: of an
    ephemeral one, else 0. ``acl``: None is anybody."""

    data: bytes = b""
    czxid: int = 0
    mzxid: int = 0
    version: int = 0
    created: int = 0
    children: frozenset[str] = frozenset()
    session: int = 0
    acl: Acl | None = None

    @property
    def stat(self) -> Stat:
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            version=self.version,
            cversion=2 * self.created - len(self.children),
            ephemeral_owner=self.session,
        )

    @property
    def rights(self) -> frozenset[NodeAclEntry]:
        """As a server says them."""
        if self.acl is None:
            return frozenset({NodeAclEntry("world", "anyone", ALL_RIGHTS)})
        readable = {NodeAclEntry("world", "anyone", MAY_READ)} if self.acl.readable else set[NodeAclEntry]()
        return frozenset({NodeAclEntry("digest", self.acl.owner, ALL_RIGHTS), *readable})

    def lets_write(self, who: str | None) -> bool:
        return self.acl is None or self.acl.owner == who

    def lets_read(self, who: str | None) -> bool:
        return self.acl is None or self.acl.readable or self.acl.owner == who


Tree: TypeAlias = Map[str, Znode]
EMPTY: Tree = Map({"/": Znode(children=frozenset({"zookeeper"})), "/zookeeper": Znode()})


class Kind(Enum):
    """What happened to a node."""

    CREATED = "created"
    WRITTEN = "written"
    DELETED = "deleted"


Event: TypeAlias = tuple[Kind, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who writes: a session, the name that its credentials give it, and for whom it makes nodes (None: anybody)."""

    session: int
    name: str | None = None
    owns: bool = False
    secret: tuple[str, ...] = ()
    """With ``owns``: where others may not even read, by the paths as they are written."""
    shared: str = ""
    """With ``owns``: the node that is anybody's all the same."""

    def acl(self, path: str) -> Acl | None:
        if not self.owns or path == self.shared:
            return None
        if self.name is None:
            raise AccessError("the ensemble does not know who this client is, so it takes no ACL for it")
        return Acl(
            owner=self.name, readable=not any(path == each or path.startswith(f"{each}/") for each in self.secret)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A tree after a multi, what became of each operation, and what happened to which node, in order."""

    tree: Tree
    done: list[Done]
    events: list[Event]


def apply(tree: Tree, operations: Sequence[Operation], zxid: int, author: Author) -> Change:
    """All of them, or the error of the first that is refused, with its index and path."""
    done: list[Done] = []
    events: list[Event] = []
    for index, operation in enumerate(operations):
        try:
            tree, result = _apply_one(tree, operation, zxid, author, events)
        except ZooKeeperError as e:
            raise type(e)(str(e), path=operation.path, index=index) from None
        done.append(result)
    return Change(tree=tree, done=done, events=events)


def _apply_one(tree: Tree, operation: Operation, zxid: int, author: Author, events: list[Event]) -> tuple[Tree, Done]:
    match operation:
        case Create():
            return _create(tree, operation, zxid, author, events)
        case Put():
            node = _checked(tree, operation, author)
            node = replace(node, data=operation.data, version=node.version + 1, mzxid=zxid)
            events.append((Kind.WRITTEN, operation.path))
            return tree.set(operation.path, node), Done(path=operation.path, stat=node.stat)
        case Delete():
            return _delete(tree, operation, author, events), Done(path=operation.path)
        case Check():
            _checked(tree, operation, author)
            return tree, Done(path=operation.path)


def _create(tree: Tree, operation: Create, zxid: int, author: Author, events: list[Event]) -> tuple[Tree, Done]:
    above = posixpath.dirname(operation.path)
    parent = tree.get(above)
    acl = author.acl(operation.path)
    if parent is None:
        raise NoNodeError("there is no such node, or no parent of it")
    if not parent.lets_write(author.name):
        raise AccessError("its ACL does not allow it")
    path = f"{operation.path}{parent.created:010d}" if operation.sequence else operation.path
    if path in tree:
        raise NodeExistsError("the node exists")
    if parent.session:
        raise ZooKeeperError("NoChildrenForEphemeralsError")
    node = Znode(
        data=operation.data, czxid=zxid, mzxid=zxid, acl=acl, session=author.session if operation.ephemeral else 0
    )
    parent = replace(parent, created=parent.created + 1, children=parent.children | {posixpath.basename(path)})
    events.append((Kind.CREATED, path))
    return tree.set(path, node).set(above, parent), Done(path=path, stat=node.stat)


def _delete(tree: Tree, operation: Delete, author: Author, events: list[Event]) -> Tree:
    parent = tree.get(posixpath.dirname(operation.path))
    if parent is not None and not parent.lets_write(author.name):
        raise AccessError("its ACL does not allow it")
    node = tree.get(operation.path)
    if node is None:
        raise NoNodeError("there is no such node, or no parent of it")
    _check_version(node, operation.version)
    if node.children:
        raise NotEmptyError("the node has children")
    return remove(tree, operation.path, events)


def remove(tree: Tree, path: str, events: list[Event]) -> Tree:
    """Without a node that has no children."""
    above = posixpath.dirname(path)
    parent = tree[above]
    events.append((Kind.DELETED, path))
    return tree.delete(path).set(above, replace(parent, children=parent.children - {posixpath.basename(path)}))


def _checked(tree: Tree, operation: Put | Check, author: Author) -> Znode:
    node = tree.get(operation.path)
    if node is None:
        raise NoNodeError("there is no such node, or no parent of it")
    if not (node.lets_write(author.name) if isinstance(operation, Put) else node.lets_read(author.name)):
        raise AccessError("its ACL does not allow it")
    _check_version(node, operation.version)
    return node


def _check_version(node: Znode, version: int) -> None:
    if version not in (ANY_VERSION, node.version):
        raise BadVersionError("the node has another version")
