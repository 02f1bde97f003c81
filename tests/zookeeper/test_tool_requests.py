"""What tools ask by nodes below /admin, on a real ZooKeeper server: asked once, removed when it is decided."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from holdfast.coordination.zookeeper_client import Create
from holdfast.metadata import znode_notices as notices
from holdfast.metadata.records import ConfigRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from holdfast.metadata.store import Asked, DeletionAsked, ElectionAsked, ReassignmentAsked
from holdfast.model.types import TopicPartition
from holdfast.testing import wait_for
from tests.contracts.test_metadata_store import ONE, TWO, Reign
from tests.zookeeper.cluster_nodes import ClusterNodes

pytestmark = pytest.mark.system

REASSIGN, ELECT, DELETE = "/admin/reassign_partitions", "/admin/preferred_replica_election", "/admin/delete_topics"
T0, T1, NONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("none", 0)
TOPIC_ID = UUID(int=9)


@pytest.fixture
def reign(cluster_nodes: ClusterNodes) -> Iterator[Reign]:
    store = cluster_nodes.store()
    made = Reign(store, ONE)
    made.commit(
        TopicRecord(name="t", topic_id=TOPIC_ID),
        *(
            PartitionRecord(partition=n, topic_id=TOPIC_ID, replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=0)
            for n in range(2)
        ),
    )
    yield made


def leave(nodes: ClusterNodes, path: str, data: bytes = b"") -> None:
    nodes.reader.write([Create(path=path, data=data)]).result(15)


def asked(reign: Reign, count: int) -> Asked:
    wait_for(lambda: len(reign.heard.asked_for) >= count, f"{count} requests", timeout_s=15)
    assert len(reign.heard.asked_for) == count
    return reign.heard.asked_for[-1][0]


def decide(reign: Reign) -> None:
    reign.heard.asked_for[-1][1]()


def removals(nodes: ClusterNodes, path: str) -> list[list[str]]:
    """The paths of each write that concerns this one."""
    written = [[operation.path for operation in each] for each in nodes.clients[0].written]
    return [each for each in written if path in each]


def test_R_28_a_topic_to_delete_is_asked_for_and_its_request_removed(cluster_nodes: ClusterNodes, reign: Reign) -> None:
    leave(cluster_nodes, f"{DELETE}/t")
    assert asked(reign, 1) == DeletionAsked(topics=("t",))
    leave(cluster_nodes, f"{DELETE}/none")
    assert asked(reign, 2) == DeletionAsked(topics=("none",))
    assert cluster_nodes.names(DELETE) == ["none", "t"]
    decide(reign)
    wait_for(lambda: cluster_nodes.names(DELETE) == ["t"], "the removal of one")
    reign.heard.asked_for[0][1]()
    wait_for(lambda: cluster_nodes.names(DELETE) == [], "the removal of the other")
    assert removals(cluster_nodes, f"{DELETE}/t") == [["/controller_epoch", f"{DELETE}/t"]]
    leave(cluster_nodes, f"{DELETE}/t")
    assert asked(reign, 3) == DeletionAsked(topics=("t",))


def test_R_28_an_election_is_asked_for_and_a_broken_request_removed(cluster_nodes: ClusterNodes, reign: Reign) -> None:
    for count in (1, 2):
        leave(cluster_nodes, ELECT, b"not json")
        wait_for(lambda: cluster_nodes.node(ELECT) is None, "its removal")
        leave(cluster_nodes, ELECT, notices.preferred_election([T0, NONE]))
        assert asked(reign, count) == ElectionAsked(partitions=(T0, NONE))
        assert cluster_nodes.node(ELECT) is not None
        decide(reign)
        wait_for(lambda: cluster_nodes.node(ELECT) is None, "the removal")
    assert removals(cluster_nodes, ELECT) == [["/controller_epoch", ELECT]] * 4


def test_R_28_R_43_a_reassignments_node_goes_when_all_of_it_is_over(cluster_nodes: ClusterNodes, reign: Reign) -> None:
    """Refused partitions are taken out of it when that is decided, each other one when it is over."""
    wanted = {T0: (3, 2), T1: (3, 1), NONE: (1,)}
    leave(cluster_nodes, REASSIGN, notices.reassignment(wanted))
    assert asked(reign, 1) == ReassignmentAsked(replicas=wanted)
    begun = (moved(0, (3, 2, 1), adding=(3,), removing=(1,)), moved(1, (3, 1, 2), adding=(3,), removing=(2,)))
    reign.commit(*begun)
    assert cluster_nodes.json(REASSIGN)["partitions"][2]["topic"] == "none"
    decide(reign)
    wait_for(lambda: says(cluster_nodes) == {T0: (3, 2), T1: (3, 1)}, "what is left")
    reign.commit(moved(0, (3, 2)))
    wait_for(lambda: says(cluster_nodes) == {T1: (3, 1)}, "what is left then")
    reign.commit(moved(1, (2, 1)))  # by another request: it has another target now
    wait_for(lambda: cluster_nodes.node(REASSIGN) is None, "the removal")
    checked = removals(cluster_nodes, REASSIGN)
    assert checked == [["/controller_epoch", REASSIGN]] * 3


def test_R_31_R_43_a_new_controller_goes_on_with_a_reassignment(cluster_nodes: ClusterNodes, reign: Reign) -> None:
    """What is under way is not asked for again; what the one before did not come to is. He who has resigned does not
    look any more."""
    leave(cluster_nodes, REASSIGN, notices.reassignment({T0: (3, 2), T1: (3, 1)}))
    asked(reign, 1)
    reign.commit(moved(0, (3, 2, 1), adding=(3,), removing=(1,)))
    reign.store.resign()
    decide(reign)  # too late
    other = Reign(cluster_nodes.store(), TWO)
    assert asked(other, 1) == ReassignmentAsked(replicas={T1: (3, 1)})
    assert says(cluster_nodes) == {T0: (3, 2), T1: (3, 1)}
    decide(other)
    wait_for(lambda: says(cluster_nodes) == {T0: (3, 2)}, "what is left")
    other.commit(moved(0, (3, 2)))
    wait_for(lambda: cluster_nodes.node(REASSIGN) is None, "the removal")
    assert len(reign.heard.asked_for) == 1


def test_R_28_old_news_of_configurations_is_removed(cluster_nodes: ClusterNodes, reign: Reign) -> None:
    """The newest 1000 stay, and those that came since the last look; one that is of no sequence is nobody's."""
    made = [Create(path="/config/changes/config_change_", sequence=True, data=b"{}")] * 1100
    cluster_nodes.reader.write(made).result(30)
    leave(cluster_nodes, "/config/changes/mine")
    for number in range(200):
        reign.commit(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=str(number)))
    last = f"config_change_{1300:010}"  # the node of no sequence is counted too
    wait_for(lambda: len(cluster_nodes.names("/config/changes")) == 1001, "the removal", timeout_s=15)
    names = cluster_nodes.names("/config/changes")
    assert (names[0], names[-2], names[-1]) == (f"config_change_{300:010}", last, "mine")


def moved(number: int, replicas: tuple[int, ...], **change: tuple[int, ...]) -> PartitionChangeRecord:
    there = {"adding": (), "removing": (), **change}
    return PartitionChangeRecord(partition=number, topic_id=TOPIC_ID, replicas=replicas, isr=replicas[-1:],
                                 leader=replicas[-1], adding=there["adding"], removing=there["removing"])  # fmt: skip


def says(nodes: ClusterNodes) -> dict[TopicPartition, tuple[int, ...]] | None:
    node = nodes.node(REASSIGN)
    return None if node is None else notices.read_reassignment(REASSIGN, node.data)
