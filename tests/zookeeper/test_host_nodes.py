"""Which host has which broker id, by the nodes on a real ZooKeeper server (KIP-426)."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from holdfast.coordination.zookeeper import ZooKeeperStore
from holdfast.coordination.zookeeper_client import Create, Operation, Put
from holdfast.metadata.broker_ids import Applicant, Awaited, HostEntry, SeveralMissing, Step, Taken
from holdfast.metadata.records import PartitionRecord, TopicRecord
from holdfast.metadata.store import Presence
from holdfast.model.errors import KafkaStorageError
from holdfast.model.listeners import Endpoints
from holdfast.testing import wait_for
from tests.contracts.test_metadata_store import Reign
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.test_election import candidate, presence

pytestmark = pytest.mark.system

A, B = Applicant(host="a", claimant=UUID(int=1)), Applicant(host="b", claimant=UUID(int=2))
TOPIC = UUID(int=7)


def on(host: str, broker_id: int, port: int = 1) -> Presence:
    return replace(presence(broker_id), host=host, endpoints=Endpoints.one("127.0.0.1", port))


def opened(nodes: ClusterNodes) -> ZooKeeperStore:
    store = nodes.store()
    store.cluster_id()
    return store


def enter(nodes: ClusterNodes, me: Presence) -> ZooKeeperStore:
    """A broker that lives, whose host is kept."""
    store = opened(nodes)
    store.enter(me)
    wait_for(lambda: nodes.node(f"/brokers/ids/{me.broker_id}"), "its node")
    if me.host is not None:
        wait_for(lambda: nodes.says(f"/brokers/hosts/{me.host}", "broker.id") == me.broker_id, "its host")
    return store


def sequence(nodes: ClusterNodes) -> int:
    node = nodes.node("/brokers/seqid")
    assert node is not None
    return node.stat.version


@pytest.fixture
def listener() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_K426_08_a_new_id_is_the_version_of_seqid_above_the_reserved_ones(cluster_nodes: ClusterNodes) -> None:
    """Also where brokers of Kafka's have counted, and where the next numbers are somebody's."""
    mapping = opened(cluster_nodes).host_ids
    for _ in range(5):
        cluster_nodes.reader.write([Put(path="/brokers/seqid", data=b"")]).result(30)
    assert mapping.take(A) == Taken(broker_id=1006, step=Step.NEW, sequence=6)
    assert sequence(cluster_nodes) == mapping.sequence() == 6
    mapping.put("x", 1007)
    mapping.put("y", 1008)
    assert mapping.take(replace(B, reserved_max=1000)) == Taken(broker_id=1009, step=Step.NEW, sequence=9)
    assert sequence(cluster_nodes) == 9


def test_K426_08_many_numbers_that_are_somebodys_are_passed_in_pieces(
    cluster_nodes: ClusterNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.coordination.zookeeper_ids.NUMBERS_AT_ONCE", 3)
    mapping = opened(cluster_nodes).host_ids
    for number in range(1001, 1009):
        mapping.put(f"host-{number}", number)
    assert mapping.take(A) == Taken(broker_id=1009, step=Step.NEW, sequence=9)
    assert sequence(cluster_nodes) == 9


def test_K426_09_the_host_of_a_broker_is_a_permanent_node_once_it_has_registered(cluster_nodes: ClusterNodes) -> None:
    store = opened(cluster_nodes)
    assert store.host_ids.take(A) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    assert cluster_nodes.names("/brokers/hosts") == []
    assert cluster_nodes.names("/holdfast/claimed_ids") == ["1001"]
    store.enter(on("a", 1001))
    node = wait_for(lambda: cluster_nodes.node("/brokers/hosts/a"), "its host")
    assert node.data == b'{"version":0,"broker.id":1001}'
    assert node.stat.ephemeral_owner == 0
    assert cluster_nodes.names("/brokers/ids") == ["1001"]
    assert cluster_nodes.names("/holdfast/claimed_ids") == []
    assert store.host_ids.hosts() == {"a": HostEntry(broker_id=1001)}


def test_K426_10_the_node_of_a_later_version_is_read(cluster_nodes: ClusterNodes) -> None:
    mapping = opened(cluster_nodes).host_ids
    data = b'{"version":1,"broker.id":10,"x":1}'
    cluster_nodes.reader.write([Create(path="/brokers/hosts/a", data=data)]).result(30)
    assert mapping.take(A) == Taken(broker_id=10, step=Step.HOST)


def test_K426_13_a_node_that_a_tool_has_spoilt_stops_its_own_host_alone(cluster_nodes: ClusterNodes) -> None:
    mapping = opened(cluster_nodes).host_ids
    cluster_nodes.reader.write([Create(path="/brokers/hosts/a", data=b"10")]).result(30)
    assert mapping.take(B) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    with pytest.raises(KafkaStorageError, match=r"/brokers/hosts/a: b'10': expected JSON with"):
        mapping.take(A)
    mapping.put("a", 10)
    assert mapping.take(A) == Taken(broker_id=10, step=Step.HOST)


def test_K426_04_K426_05_the_port_of_the_hosts_broker_tells_whether_it_lives(
    cluster_nodes: ClusterNodes, listener: int
) -> None:
    """Its session is not over: one that refuses was killed, and one that does not answer is waited for."""
    other = opened(cluster_nodes).host_ids
    for port, outcome in ((1, Taken(broker_id=7, step=Step.HOST)), (listener, None)):
        store = enter(cluster_nodes, on("a", 7, port))
        assert other.take(A) == outcome
        store.close()
        wait_for(lambda: not cluster_nodes.names("/brokers/ids"), "the end of its session")
        other.put("a", 7)  # it was taken a moment ago
    assert other.take(A) == Taken(broker_id=7, step=Step.HOST)
    assert sequence(cluster_nodes) == 0


def topics(nodes: ClusterNodes) -> ZooKeeperStore:
    """Three topics, on brokers 1 to 3; none of them lives. Whose metadata it is does."""
    store = opened(nodes)
    reign = Reign(store, candidate(1))
    for number in range(3):
        reign.commit(
            TopicRecord(name=f"t{number}", topic_id=UUID(int=number + 1)),
            PartitionRecord(
                partition=0, topic_id=UUID(int=number + 1), replicas=(1 + number % 3, 1 + (number + 1) % 3),
                isr=(1 + number % 3,), leader=1 + number % 3,
            ),
        )  # fmt: skip
    return store


def test_K426_07_two_missing_ids_are_named_and_nothing_is_written_until_one_is_back(
    cluster_nodes: ClusterNodes,
) -> None:
    topics(cluster_nodes)
    mapping = opened(cluster_nodes).host_ids
    enter(cluster_nodes, presence(1))
    who = replace(A, adopts=True)
    assert mapping.take(who) == SeveralMissing(missing=(2, 3))
    assert sequence(cluster_nodes) == 0
    assert cluster_nodes.names("/brokers/hosts") == cluster_nodes.names("/holdfast/claimed_ids") == []
    enter(cluster_nodes, presence(3))
    assert mapping.take(who) == Taken(broker_id=2, step=Step.MISSING)


def test_K426_11_topics_are_read_once_each_and_only_where_a_missing_id_is_looked_for(
    cluster_nodes: ClusterNodes,
) -> None:
    topics(cluster_nodes)
    mapping = opened(cluster_nodes).host_ids
    client = cluster_nodes.clients[-1]

    def read() -> list[str]:
        found = [path for path in client.gotten if path.startswith("/brokers/topics/")]
        client.gotten.clear()
        return found

    assert mapping.take(A) == Taken(broker_id=1001, step=Step.NEW, sequence=1)
    assert read() == []
    assert mapping.take(replace(B, adopts=True)) == SeveralMissing(missing=(1, 2, 3))
    assert sorted(read()) == [f"/brokers/topics/t{number}" for number in range(3)]


def test_K426_17_of_two_that_see_one_missing_id_the_slower_one_looks_again(cluster_nodes: ClusterNodes) -> None:
    """It had read everything before the other one took the id."""
    topics(cluster_nodes)
    for broker_id in (1, 3):
        enter(cluster_nodes, presence(broker_id))
    quick = opened(cluster_nodes)
    slow = opened(cluster_nodes).host_ids
    client, outcomes = cluster_nodes.clients[-1], []

    def before_write(operations: Sequence[Operation]) -> None:
        if not outcomes:
            outcomes.append(quick.host_ids.take(replace(A, adopts=True)))

    client.before_write = before_write
    who = replace(B, adopts=True)
    assert slow.take(who) == Awaited(broker_id=2)
    assert outcomes == [Taken(broker_id=2, step=Step.MISSING)]
    quick.enter(on("a", 2))
    wait_for(lambda: cluster_nodes.says("/brokers/hosts/a", "broker.id") == 2, "the winner's host")
    assert slow.take(who) == Taken(broker_id=1001, step=Step.NEW, sequence=1)


def test_K426_17_new_ids_at_the_same_time_are_different(cluster_nodes: ClusterNodes) -> None:
    quick, slow = opened(cluster_nodes).host_ids, opened(cluster_nodes).host_ids
    client, outcomes = cluster_nodes.clients[-1], []

    def before_write(operations: Sequence[Operation]) -> None:
        if not outcomes:
            outcomes.append(quick.take(A))

    client.before_write = before_write
    assert slow.take(B) == Taken(broker_id=1002, step=Step.NEW, sequence=2)
    assert outcomes == [Taken(broker_id=1001, step=Step.NEW, sequence=1)]


def test_K426_12_the_names_that_a_broker_had_before_go_when_it_registers(cluster_nodes: ClusterNodes) -> None:
    mapping = opened(cluster_nodes).host_ids
    for host, broker_id in (("before", 7), ("long before", 7), ("down", 8)):
        mapping.put(host, broker_id)
    enter(cluster_nodes, on("now", 7))
    assert mapping.hosts() == {"now": HostEntry(broker_id=7), "down": HostEntry(broker_id=8)}


def test_K426_12_the_controller_removes_what_live_brokers_have_left(cluster_nodes: ClusterNodes) -> None:
    """When its reign begins, and when another broker comes. What is not of a live broker stays, and what a person has
    written since the broker registered: where that one will be."""
    tool = opened(cluster_nodes).host_ids
    tool.put("down", 8)
    enter(cluster_nodes, on("now", 7))
    reader = cluster_nodes.reader
    tool.put("old", 7)
    now = cluster_nodes.node("/brokers/hosts/now")
    assert now is not None
    reader.write([Put(path="/brokers/hosts/now", data=now.data)]).result(30)  # as if it had registered after that
    tool.put("will be", 7)
    Reign(opened(cluster_nodes), candidate(1))
    wait_for(lambda: cluster_nodes.names("/brokers/hosts") == ["down", "now", "will%20be"], "the garbage gone")
    reader.write([Put(path="/brokers/hosts/now", data=now.data)]).result(30)
    enter(cluster_nodes, on("third", 9))
    wait_for(lambda: cluster_nodes.names("/brokers/hosts") == ["down", "now", "third"], "the garbage gone")


def test_K426_14_of_a_broker_without_the_feature_nothing_is_kept(cluster_nodes: ClusterNodes) -> None:
    enter(cluster_nodes, presence(3))
    store = enter(cluster_nodes, on("a", 4))
    assert cluster_nodes.names("/brokers/hosts") == ["a"]
    assert "host" not in cluster_nodes.json("/brokers/ids/3")["holdfast"]
    assert store.host_ids.hosts() == {"a": HostEntry(broker_id=4)}
