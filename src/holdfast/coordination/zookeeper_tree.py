"""The metadata in an ensemble: read by a new controller, and a commit as the multis that write it.

What the nodes say is metadata/znodes.py and znode_tree.py. Here is how they are asked for, many at a time, and in which
requests they are written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from holdfast.coordination.zookeeper_client import (
    ANY_VERSION,
    BadVersionError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    Put,
    ZooKeeperClient,
)
from holdfast.coordination.zookeeper_election import Won
from holdfast.coordination.zookeeper_link import Errands, settled
from holdfast.coordination.zookeeper_writer import WriteStep
from holdfast.metadata import moved, znode_acls, znode_notices, znode_paths, znode_values, znodes
from holdfast.metadata.znode_tree import (
    LISTED,
    TreeNode,
    TreeReading,
    first_paths,
    read_tree,
    second_paths,
    topics_of,
    user_lists,
)
from holdfast.metadata.znode_writes import CreateNode, DeleteNode, Multi, NodeWrite, SetNode, cut
from holdfast.model.errors import KafkaStorageError, MetadataError
from holdfast.model.types import Offset

log = logging.getLogger(__name__)

LIMIT_BYTES: Final = 512 << 10
"""Of one multi: half of what a server takes by default (jute.maxbuffer), as its own count is not ours."""
_LATER: Final = (znode_paths.CONTROLLER_EPOCH, znode_paths.FEATURE)
"""Base nodes that Kafka has the first controller make."""


def operation(write: NodeWrite) -> Operation:
    """The same, as the client takes it."""
    match write:
        case CreateNode():
            return Create(path=write.path, data=write.data, ephemeral=write.ephemeral, sequence=write.sequence)
        case SetNode():
            version = ANY_VERSION if write.version is None else write.version
            return Put(path=write.path, data=write.data, version=version)
        case DeleteNode():
            return Delete(path=write.path)


def refuse_moved(client: ZooKeeperClient) -> None:
    """MetadataMovedError when this tree does not count."""
    mark = client.get(znode_paths.MOVED)
    if mark is not None:
        raise moved.decode(znode_paths.MOVED, mark.data).refusal("The tree below this chroot of the ZooKeeper ensemble")


def prepare(client: ZooKeeperClient, errands: Errands, new_cluster_id: str) -> str:
    """Make what every tree has, where it is missing, in Kafka's order; the cluster's id, which is the new one if nobody
    was quicker."""
    nodes = [node for node in znodes.base_nodes() if node.path not in _LATER]
    ours_alone = {*znode_paths.OUR_BASE, *znode_acls.BASE}
    ours = [node for node in nodes if node.path in ours_alone]
    kafkas = [node for node in nodes if node.path not in ours_alone]
    make_missing(client, errands, [*kafkas, *znodes.cluster_id(new_cluster_id), *ours])
    found = client.get(znode_paths.CLUSTER_ID)
    if found is None:
        raise KafkaStorageError(f"{znode_paths.CLUSTER_ID} has gone: expected the cluster's id")
    return znode_values.read_cluster_id_node(znode_paths.CLUSTER_ID, found.data)


def prepare_reign(client: ZooKeeperClient, errands: Errands) -> None:
    """Make what a controller has to find, and only Kafka's first one makes."""
    make_missing(client, errands, [node for node in znodes.base_nodes() if node.path in _LATER])


def make_missing(client: ZooKeeperClient, errands: Errands, nodes: Sequence[CreateNode]) -> None:
    """Make each that is not there, one by one: others may do the same."""
    there = client.get_all([node.path for node in nodes])
    under_way = [client.write([operation(node)]) for node, found in zip(nodes, there, strict=True) if found is None]
    for future in under_way:
        try:
            settled(future, errands)
        except NodeExistsError:
            log.debug("another broker was quicker to make a node")


def read(client: ZooKeeperClient) -> TreeReading:
    """All of it, as this session sees it now. MetadataError names the node that says something else than it should."""
    children = {path: client.children(path) or [] for path in LISTED}
    children[znode_paths.BROKER_IDS] = _of_kafka(client, children[znode_paths.BROKER_IDS])
    first = first_paths(children)
    nodes = client.get_all(first)
    tree = dict(_there(first, nodes))
    tree.pop(znode_paths.CONTROLLER, None)  # of who reads: in a tree of Kafka's it would count as a claim before
    topics = topics_of(tree)
    second = second_paths(tree, topics)
    had_children = (path for path, node in zip(first, nodes, strict=True) if node is not None and node.stat.cversion)
    for parent in user_lists(had_children):
        second += [parent, *(f"{parent}/{name}" for name in client.children(parent) or [])]
    tree.update(_there(second, client.get_all(second)))
    return read_tree(tree, topics)


def _of_kafka(client: ZooKeeperClient, names: Sequence[str]) -> list[str]:
    """Those of brokers of Kafka's, which say there all that is known of them. One of ours is not registered by its
    node, and what cannot be read is nobody's."""
    found: list[str] = []
    paths = [f"{znode_paths.BROKER_IDS}/{name}" for name in names]
    for name, path, node in zip(names, paths, client.get_all(paths), strict=True):
        try:
            if node is not None and znode_values.read_broker_node(path, node.data).incarnation_id is None:
                found.append(name)
        except MetadataError as e:
            log.warning("%s", e)
    return found


def _there(paths: Sequence[str], nodes: Sequence[Node | None]) -> Iterator[tuple[str, TreeNode]]:
    for path, node in zip(paths, nodes, strict=True):
        if node is not None:
            yield path, TreeNode(data=node.data, version=node.stat.version, czxid=node.stat.czxid)


def steps(multis: Iterable[Multi], tail: bytes, end_offset: Offset) -> list[WriteStep]:
    """Multis as they are sent. Each writes METADATA_LOG: one after which the log ends where it did does so with what is
    there already, at the beginning ``tail``."""
    found: list[WriteStep] = []
    for multi in multis:
        rest: list[Operation] = []
        for write in multi.writes:
            if write.path == znode_paths.METADATA_LOG:
                assert isinstance(write, SetNode)
                tail = write.data
            else:
                rest.append(operation(write))
        if multi.end_offset is not None:
            end_offset = multi.end_offset
        found.append(WriteStep(operations=tuple(rest), tail=tail, end_offset=end_offset))
    return found


def tidy(won: Won, errands: Errands) -> None:
    """Remove the oldest news of changed configurations, which nobody else does."""
    won.client.sync()  # a write before that had no answer is settled by it; until then no other is sent
    names = {parent: won.client.children(parent) or [] for parent in znode_notices.CHANGES}
    for part in cut(znode_notices.surplus_changes(names), LIMIT_BYTES):
        try:
            settled(won.client.write([won.check, *map(operation, part)]), errands)
        except (NoNodeError, BadVersionError) as e:
            log.info("old news stay: %s", e)
            return


def repairs(reading: TreeReading) -> Iterator[Multi]:
    """What is to be written before anything else of a reign."""
    return (Multi(writes=tuple(part)) for part in cut(reading.repairs, LIMIT_BYTES))
