"""Who is the controller, on a real ZooKeeper server: stores of several brokers in one process."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

import pytest

from holdfast.coordination import zookeeper_election
from holdfast.coordination.lanes import ThreadLanes
from holdfast.coordination.zookeeper import ZooKeeperStore
from holdfast.coordination.zookeeper_client import Create
from holdfast.coordination.zookeeper_tree import operation
from holdfast.metadata import znodes
from holdfast.metadata.store import Candidate, Claim, Presence
from holdfast.metadata.znode_json import id_text
from holdfast.metadata.znode_values import BrokerIdsNode, ControllerNode
from holdfast.model.errors import FencedControllerError
from holdfast.model.listeners import Endpoints
from holdfast.testing import wait_for
from tests.contracts.test_metadata_store import ONE, TWO, Heard, Reign, feature
from tests.zookeeper.cluster_nodes import ClusterNodes, Observed

pytestmark = pytest.mark.system


def candidate(broker_id: int) -> Candidate:
    return Candidate(broker_id=broker_id, host="127.0.0.1", port=9000 + broker_id)


def presence(broker_id: int, incarnation: int = 1) -> Presence:
    return Presence(
        broker_id=broker_id,
        incarnation_id=UUID(int=1000 * broker_id + incarnation),
        endpoints=Endpoints.one("127.0.0.1", 9000 + broker_id),
    )


class Claiming:
    """A claim that waits in a thread."""

    def __init__(self, store: ZooKeeperStore, who: Candidate) -> None:
        self.store = store
        self.heard = Heard()
        self.claim: Claim | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(who,), daemon=True)
        self._thread.start()

    def _run(self, who: Candidate) -> None:
        try:
            self.claim = self.store.claim(who, self.heard)
        except Exception as e:
            self.error = e

    def wait(self) -> Claim:
        self._thread.join(30)
        assert self.error is None and self.claim is not None, self.error
        return self.claim


def claims_written(nodes: ClusterNodes) -> int:
    """How many multis have tried to make /controller."""
    return sum(
        any(isinstance(operation, Create) and operation.path == "/controller" for operation in operations)
        for client in nodes.clients
        for operations in client.written
    )


def test_H_08_a_controller_that_was_replaced_hears_it_and_writes_nothing(cluster_nodes: ClusterNodes) -> None:
    old, other = cluster_nodes.store(), cluster_nodes.store()
    first = Reign(old, ONE)
    location = wait_for(other.active, "the controller")
    other.controller_died(location)  # it is not dead: nobody knows better
    second = Reign(other, TWO)
    with pytest.raises(FencedControllerError):
        first.commit(feature(1))
    wait_for(lambda: first.heard.lost_by, "the news")
    second.commit(feature(2))
    assert cluster_nodes.json("/feature")["features"] == {"f": {"max_version_level": 2}}
    assert len(first.heard.lost_by) == 1 and second.heard.lost_by == []
    assert cluster_nodes.json("/controller")["brokerid"] == 2


def test_H_08_every_write_of_a_controller_is_checked(cluster_nodes: ClusterNodes) -> None:
    store = cluster_nodes.store()
    reign = Reign(store, ONE)
    reign.commit(feature(1))
    claim = next(i for i, written in enumerate(cluster_nodes.clients[0].written) if written[0].path == "/controller")
    after = cluster_nodes.clients[0].written[claim + 1 :]
    version = cluster_nodes.node("/controller_epoch").stat.version  # type: ignore[union-attr]
    of_a_reign = [written for written in after if written[0].path != "/feature"]  # a base node
    assert len(of_a_reign) == 2
    for written in of_a_reign:
        check: Any = written[0]
        assert (check.path, check.version) == ("/controller_epoch", version)


def test_H_08_the_epoch_is_the_one_that_kafka_would_take(cluster_nodes: ClusterNodes) -> None:
    """From 0, which the first broker makes."""
    store = cluster_nodes.store()
    assert [store.claim(ONE).epoch for _ in range(3)] == [1, 2, 3]
    node = cluster_nodes.node("/controller_epoch")
    assert node is not None and (node.data, node.stat.version) == (b"3", 3)


def test_H_08_a_session_that_has_expired_is_news_and_its_claim_is_over(cluster_nodes: ClusterNodes) -> None:
    store = cluster_nodes.store()
    reign = Reign(store, ONE)
    reign.commit(feature(1))
    cluster_nodes.clients[0].expire()
    wait_for(lambda: reign.heard.lost_by, "the news")
    with pytest.raises(FencedControllerError):
        reign.commit(feature(2))
    again = Reign(store, ONE)
    assert again.epoch > reign.epoch
    assert dict(again.image.features) == {"f": 1}
    again.commit(feature(3))
    assert len(cluster_nodes.clients) == 2 and len(reign.heard.lost_by) == 1


def test_the_id_of_the_cluster_is_asked_for_in_another_session_when_one_has_expired(
    cluster_nodes: ClusterNodes,
) -> None:
    """At the start: the process was stopped between its connection and its first write."""
    made: list[Observed] = []

    def connect() -> Observed:
        client = cluster_nodes.connect()
        if not made:
            client.before_write = lambda operations: client.expire()
        made.append(client)
        return client

    store = ZooKeeperStore(connect, ThreadLanes("zookeeper"), wall_ms=lambda: 0, connect_timeout_s=15)
    try:
        assert store.cluster_id() == cluster_nodes.json("/cluster/id")["id"]
        assert len(made) == 2
    finally:
        store.close()


def test_H_10_the_nodes_of_an_earlier_process_of_this_broker_are_not_waited_for(cluster_nodes: ClusterNodes) -> None:
    """It was killed: its session goes on, and nobody is there."""
    again = cluster_nodes.store()
    again.cluster_id()
    killed = cluster_nodes.connect()
    killed.start(15)
    at = presence(1)
    was = ControllerNode(broker_id=1, timestamp_ms=5, address=("127.0.0.1", 9001), epoch=1)
    of_it = BrokerIdsNode(endpoints=at.endpoints, timestamp_ms=5, incarnation_id=at.incarnation_id)
    killed.write([Create(path="/controller_epoch", data=b"0")]).result(15)
    killed.write(list(map(operation, znodes.claim(was, 1, 0)))).result(15)
    killed.write(list(map(operation, znodes.registration(1, of_it)))).result(15)
    assert again.claim(candidate(1)).epoch == 2
    again.enter(presence(1, 2))

    def replaced() -> bool:
        node = cluster_nodes.node("/brokers/ids/1")
        return node is not None and node.stat.ephemeral_owner == cluster_nodes.clients[0].session_id

    wait_for(replaced, "its own node", timeout_s=5)
    incarnation = cluster_nodes.json("/brokers/ids/1")["holdfast"]["incarnation"]
    assert incarnation == id_text(presence(1, 2).incarnation_id)
    assert cluster_nodes.node("/controller").stat.ephemeral_owner == cluster_nodes.clients[0].session_id  # type: ignore[union-attr]
    killed.close()


def test_H_10_a_broker_whose_session_has_expired_is_there_again_in_the_next(cluster_nodes: ClusterNodes) -> None:
    store = cluster_nodes.store()
    store.cluster_id()
    store.enter(presence(1))
    first = wait_for(lambda: cluster_nodes.node("/brokers/ids/1"), "its node")
    cluster_nodes.clients[0].expire()

    def other_session() -> bool:
        node = cluster_nodes.node("/brokers/ids/1")
        return node is not None and node.stat.ephemeral_owner not in (0, first.stat.ephemeral_owner)

    wait_for(other_session, "its node in another session")


def test_H_10_the_node_of_another_address_is_waited_for(cluster_nodes: ClusterNodes) -> None:
    """Another broker has this id: who is right is the controller's to say."""
    one, other = cluster_nodes.store(), cluster_nodes.store()
    one.cluster_id()
    one.enter(presence(1))
    first = wait_for(lambda: cluster_nodes.node("/brokers/ids/1"), "its node")
    elsewhere = Presence(broker_id=1, incarnation_id=UUID(int=9), endpoints=Endpoints.one("127.0.0.1", 1))
    other.cluster_id()
    other.enter(elsewhere)
    again = candidate(1)
    assert other.claim(again).epoch == 1  # nobody was
    assert cluster_nodes.node("/brokers/ids/1") == first
    one.close()
    wait_for(lambda: cluster_nodes.says("/brokers/ids/1", "port") == 1, "the node of the one that waited")


def test_H_10_of_two_processes_with_one_address_the_later_one_stays(cluster_nodes: ClusterNodes) -> None:
    """Somebody has copied a broker's files to another host: the two do not replace each other's nodes for ever, and the
    first is there again when the second has gone."""
    one, other = cluster_nodes.store(), cluster_nodes.store()
    one.cluster_id()
    one.enter(presence(1))
    wait_for(lambda: cluster_nodes.node("/brokers/ids/1"), "its node")
    assert one.claim(candidate(1)).epoch == 1
    other.cluster_id()
    other.enter(presence(1, 2))

    def is_of(client: int) -> bool:
        nodes = [cluster_nodes.node(path) for path in ("/brokers/ids/1", "/controller")]
        return all(node is not None and node.stat.ephemeral_owner == client for node in nodes)

    second = cluster_nodes.clients[1]
    assert other.claim(candidate(1)).epoch == 2
    wait_for(lambda: is_of(second.session_id), "both nodes to be the later one's")
    heard = wait_for(lambda: (at := one.active()) and at.epoch == 2 and at, "the news")
    assert heard.broker_id == 1
    waiting = Claiming(one, candidate(1))
    turns = [len(client.written) for client in cluster_nodes.clients[:2]]
    marker = cluster_nodes.connect()
    marker.start(15)
    for turn in range(5):  # what the first one was told of is before these, in its session as in every other
        marker.write([Create(path=f"/marker{turn}", data=b"")]).result(15)
        cluster_nodes.clients[0].sync()
        cluster_nodes.clients[1].sync()
    assert is_of(second.session_id) and waiting.claim is None
    assert [len(client.written) for client in cluster_nodes.clients[:2]] == turns
    marker.close()
    other.close()
    assert waiting.wait().epoch == 3
    wait_for(lambda: is_of(cluster_nodes.clients[0].session_id), "both nodes to be the first one's again")


def test_H_11_of_many_that_wait_for_a_claim_one_tries(
    cluster_nodes: ClusterNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller's node goes with its session; each broker is told, and the first of them takes over. The second
    one's turn comes after longer than a claim may take on a busy machine."""
    monkeypatch.setattr(zookeeper_election, "TURN_S", 5.0)
    stores = {broker_id: cluster_nodes.store() for broker_id in range(1, 9)}
    for broker_id, store in stores.items():
        store.cluster_id()
        store.enter(presence(broker_id))
    wait_for(lambda: len(cluster_nodes.names("/brokers/ids")) == 8, "all brokers")
    stores[4].claim(candidate(4))
    waiting = {
        broker_id: Claiming(store, candidate(broker_id)) for broker_id, store in stores.items() if broker_id != 4
    }
    for broker_id in waiting:
        wait_for(lambda b=broker_id: stores[b].active(), "the controller")  # type: ignore[misc]
    before = claims_written(cluster_nodes)
    stores[4].close()
    claim = waiting[1].wait()
    assert claim.epoch == 2
    for broker_id in waiting:
        wait_for(lambda b=broker_id: (at := stores[b].active()) and at.broker_id == 1, "the news")  # type: ignore[misc]
    assert claims_written(cluster_nodes) - before == 1


def test_H_11_who_is_told_late_that_a_controller_died_does_not_displace_the_next(cluster_nodes: ClusterNodes) -> None:
    """Two brokers find the port of the controller closed; the second is held up between its looks until the first one
    has claimed."""
    dead, first, second = (cluster_nodes.store() for _ in range(3))
    dead.claim(candidate(3))
    location = wait_for(first.active, "the controller")
    assert wait_for(second.active, "the controller") == location
    has_claimed = threading.Event()
    held = threading.Event()

    def hold(path: str) -> None:
        if path == "/controller_epoch" and not held.is_set():
            held.set()
            has_claimed.wait(30)

    cluster_nodes.clients[2].before_get = hold
    second.controller_died(location)
    waiting = Claiming(second, candidate(2))
    assert held.wait(30)
    first.controller_died(location)
    heard = Heard()
    claim = first.claim(candidate(1), heard)
    has_claimed.set()
    wait_for(lambda: (at := second.active()) and at.epoch == claim.epoch, "the news")
    assert heard.lost_by == [] and waiting.claim is None
    assert cluster_nodes.node("/controller_epoch").data == b"2"  # type: ignore[union-attr]
    first.close()
    assert waiting.wait().epoch == 3
