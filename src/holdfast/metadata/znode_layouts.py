"""The metadata as trees of znodes to look at, whichever store they are in (R-28). Pure.

``KAFKA``: the nodes of Kafka 3.9 that last, as the ZooKeeper store writes them. ``DESIGN``: the nodes that Kafka's
replication design names, one for each fact of a partition; nothing writes these. In it a broker is there while the
controller counts it as alive, and a partition below ``partitions_reassigned`` while replicas come or go. Requests below
``state/[broker_id]`` are never waiting: here they go over the wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.metadata import znodes
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.znode_writes import CreateNode, SetNode
from holdfast.model.types import BrokerId

KAFKA: Final = "kafka"
DESIGN: Final = "design"
_PIECE_BYTES: Final = 1 << 20
"""Of no consequence for the tree: only for how it would be written."""


def kafka(image: ClusterImage) -> dict[str, str]:
    """Data by path, in the order of the paths; without data: ''."""
    tree = {node.path: node.data.decode() for node in znodes.base_nodes()}
    for node in znodes.cluster_id(image.cluster_id):
        tree[node.path] = node.data.decode()
    for multi in znodes.TreeWriter().snapshot(image, _PIECE_BYTES):
        for write in multi.writes:
            if isinstance(write, CreateNode | SetNode):
                tree[write.path] = write.data.decode()
            else:
                del tree[write.path]
    return dict(sorted(tree.items()))


def design(image: ClusterImage) -> dict[str, str]:
    """As ``kafka``."""
    return dict(sorted(_design(image)))


def _design(image: ClusterImage) -> Iterator[tuple[str, str]]:
    for broker in image.brokers.values():
        if not broker.fenced:
            host, port = broker.endpoints.for_clients[0].address
            yield f"/brokers/ids/{broker.id}", f"{host}:{port}"
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            path = f"/brokers/topics/{topic.name}/{number}"
            yield f"{path}/replicas", _ids(partition.replicas)
            if partition.leader is not None:
                yield f"{path}/leader", str(partition.leader)
            yield f"{path}/ISR", _ids(partition.isr)
            if partition.is_reassigned:
                yield f"/brokers/partitions_reassigned/{topic.name}/{number}", _ids(partition.target)


def _ids(brokers: tuple[BrokerId, ...]) -> str:
    return ",".join(map(str, brokers))
