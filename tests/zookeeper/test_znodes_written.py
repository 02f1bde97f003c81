"""What metadata/znodes.py writes, on a real server: it takes every multi, also the largest, and keeps what the tree in
memory keeps by which all else is tested (tests/checks/memory_tree.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from kazoo.client import KazooClient, TransactionRequest

from holdfast.metadata import znode_paths as paths
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import (
    ConfigRecord,
    ControllerClaimRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from holdfast.metadata.znode_tree import image_of, read_tree
from holdfast.metadata.znode_values import BrokerIdsNode, ControllerNode
from holdfast.metadata.znode_writes import CreateNode, DeleteNode, NodeWrite, cut, weight
from holdfast.metadata.znodes import TreeWriter, base_nodes, claim, registration
from holdfast.model.listeners import Endpoints
from tests.checks.memory_tree import MemoryTree
from tests.zookeeper.server import ZooKeeperServer

pytestmark = pytest.mark.system

JUTE_MAXBUFFER = 0xFFFFF
"""The server's default, for a whole request."""
LIMIT = JUTE_MAXBUFFER - 100
T, U = UUID(int=1), UUID(int=2)


class Both:
    """A server and the tree in memory: each write is done by both, and the outcome is the same."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client
        self.memory = MemoryTree()
        self.image = ClusterImage.empty("c")
        self.writer = TreeWriter()
        self.largest = 0

    def write(self, writes: tuple[NodeWrite, ...] | list[NodeWrite]) -> None:
        self.memory.write(writes)
        transaction: TransactionRequest = self.client.transaction()
        for write in writes:
            if isinstance(write, CreateNode):
                transaction.create(write.path, write.data, ephemeral=write.ephemeral, sequence=write.sequence)
            elif isinstance(write, DeleteNode):
                transaction.delete(write.path)
            else:
                transaction.set_data(write.path, write.data, -1 if write.version is None else write.version)
        results = transaction.commit()
        assert not [result for result in results if isinstance(result, Exception)], results[:3]
        self.largest = max(self.largest, sum(map(weight, writes)))

    def commit(self, records: list[MetadataRecord], *, stop_after: int | None = None) -> None:
        """``stop_after``: so many multis, and the controller is gone; the next one repairs."""
        before = self.image
        self.image, _ = before.apply(records, before.next_offset)
        for done, multi in enumerate(self.writer.writes(before, self.image, records, LIMIT)):
            if done == stop_after:
                reading = read_tree(self.memory.asked())
                assert reading.repairs
                for piece in cut(reading.repairs, LIMIT):
                    self.write(piece)
                self.image = image_of(self.memory.asked(), "c")
                return
            self.write(multi.writes)

    def compare(self) -> None:
        found: dict[str, tuple[bytes, int, bool]] = {}
        self._walk("", found)
        ours = {p: (n.data, n.version, p in self.memory.ephemeral) for p, n in self.memory.nodes.items()}
        assert found == ours

    def _walk(self, path: str, found: dict[str, tuple[bytes, int, bool]]) -> None:
        for name in self.client.get_children(path or "/"):
            child = f"{path}/{name}"
            if child != "/zookeeper":
                data, stat = self.client.get(child)
                found[child] = (data, stat.version, stat.ephemeralOwner != 0)
                self._walk(child, found)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        client = KazooClient(server.connect, timeout=20)
        client.start(timeout=20)
        try:
            yield Both(client)
        finally:
            client.stop()
            client.close()


def topic(name: str, topic_id: UUID, count: int) -> list[MetadataRecord]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value="1"),
        *(partition(topic_id, number) for number in range(count)),
    ]


def partition(topic_id: UUID, number: int) -> PartitionRecord:
    return PartitionRecord(partition=number, topic_id=topic_id, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, created=5)


def test_a_server_takes_what_is_written_and_keeps_what_the_tree_in_memory_keeps(both: Both) -> None:
    for node in base_nodes():
        both.write([node])
    endpoints = Endpoints.one("h", 9092)
    both.write(registration(1, BrokerIdsNode(endpoints=endpoints, timestamp_ms=1)))
    both.write(claim(ControllerNode(broker_id=1, timestamp_ms=1, address=("h", 1), epoch=1), 1, 0))
    broker = RegisterBrokerRecord(
        broker_id=1, incarnation_id=T, broker_epoch=1, endpoints=endpoints.listeners, fenced=False
    )
    both.commit([ControllerClaimRecord(controller_epoch=1, broker_id=1, host="h", port=1), broker])
    both.commit(topic("small", U, 3))
    # A topic that goes and comes again in one multi, under its name.
    both.commit([RemoveTopicRecord(topic_id=U), *topic("small", UUID(int=3), 2)])
    for value in ("a", None, "b"):
        both.commit([ConfigRecord(resource_type=4, resource_name="", name="k", value=value)])
    both.commit([ConfigRecord(resource_type=100, resource_name="a/b c%", name="k", value="v")])
    # Larger than a request can be: in several multis, and once with the controller gone after the second.
    both.commit(topic("large", T, 2200), stop_after=2)
    assert "large" not in both.image.topics
    both.commit(topic("large", T, 2200))
    both.commit([PartitionChangeRecord(partition=n, topic_id=T, leader=2, isr=(2, 3)) for n in range(2200)])
    assert both.largest > LIMIT - 1000, "none was as large as it may be"
    both.compare()
    both.commit([RemoveTopicRecord(topic_id=T)], stop_after=1)
    assert "large" not in both.image.topics
    assert paths.topic("large") not in both.memory.nodes
    both.compare()
