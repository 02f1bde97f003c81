"""Which brokers live, by their nodes on a real ZooKeeper server: what the controller hears, and what it removes."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast.coordination.zookeeper_client import Create
from holdfast.metadata.records import BrokerRegistrationChangeRecord, MetadataRecord, RegisterBrokerRecord
from holdfast.metadata.store import Presence
from holdfast.metadata.znode_json import id_text
from holdfast.model.listeners import Endpoints
from holdfast.testing import wait_for
from tests.contracts.test_metadata_store import Reign
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.test_election import candidate, presence

pytestmark = pytest.mark.system


def registered(me: Presence, epoch: int, *, fenced: bool = False) -> MetadataRecord:
    return RegisterBrokerRecord(
        broker_id=me.broker_id,
        incarnation_id=me.incarnation_id,
        broker_epoch=epoch,
        endpoints=me.endpoints.listeners,
        fenced=fenced,
    )


def fence(me: Presence, epoch: int) -> MetadataRecord:
    return BrokerRegistrationChangeRecord(broker_id=me.broker_id, broker_epoch=epoch, fenced=True)


def czxid(nodes: ClusterNodes, broker_id: int) -> int | None:
    node = nodes.node(f"/brokers/ids/{broker_id}")
    return None if node is None else node.stat.czxid


def incarnation(nodes: ClusterNodes, broker_id: int) -> str | None:
    ours = nodes.says(f"/brokers/ids/{broker_id}", "holdfast")
    return None if ours is None else str(ours["incarnation"])


def test_a_broker_is_not_registered_by_its_node(cluster_nodes: ClusterNodes) -> None:
    """The first brokers of a cluster have their nodes before there is a controller; they register with it."""
    store = cluster_nodes.store()
    store.cluster_id()
    store.enter(presence(1))
    wait_for(lambda: cluster_nodes.names("/brokers/ids") == ["1"], "its node")
    reign = Reign(store, candidate(1))
    assert len(reign.image.brokers) == 0 and reign.loaded.end_offset == 1


def test_the_end_of_a_brokers_session_is_news_to_the_controller_alone(cluster_nodes: ClusterNodes) -> None:
    controller, other = cluster_nodes.store(), cluster_nodes.store()
    reign = Reign(controller, candidate(1))
    two = presence(2)
    reign.commit(registered(presence(1), 5), registered(two, 7))
    for store, me in ((controller, presence(1)), (other, two)):
        store.enter(me)
        store.active()
    wait_for(lambda: cluster_nodes.names("/brokers/ids") == ["1", "2"], "both nodes")
    wait_for(lambda: len(controller._live._live or ()) == 2, "both seen")
    cluster_nodes.clients[1].close()
    wait_for(lambda: reign.heard.gone == [(2, 7)], "the news")
    assert cluster_nodes.names("/brokers/ids") == ["1"] and reign.heard.lost_by == []


def test_a_new_controller_hears_of_brokers_that_died_before_it(cluster_nodes: ClusterNodes) -> None:
    """Their sessions ended with the old controller's, or while there was none: of those nobody else says anything."""
    old, new = cluster_nodes.store(), cluster_nodes.store()
    first = Reign(old, candidate(1))
    first.commit(registered(presence(2), 3), registered(presence(3), 4), registered(presence(4), 5, fenced=True))
    new.cluster_id()
    new.enter(presence(2))
    wait_for(lambda: cluster_nodes.names("/brokers/ids") == ["2"], "its node")
    old.close()
    second = Reign(new, candidate(2))
    wait_for(lambda: second.heard.gone, "the news")
    assert second.heard.gone == [(3, 4)]  # not itself, and not one that is known to be dead


def test_H_10_the_node_of_a_broker_that_was_fenced_goes_and_comes_back_if_it_lives(cluster_nodes: ClusterNodes) -> None:
    """The port of a killed broker refuses long before its session is over. One that lives after all is back at once."""
    controller, other = cluster_nodes.store(), cluster_nodes.store()
    reign = Reign(controller, candidate(1))
    me = presence(2)
    reign.commit(registered(me, 1))
    other.cluster_id()
    other.enter(me)
    first = wait_for(lambda: czxid(cluster_nodes, 2), "its node")
    reign.commit(fence(me, 1))
    wait_for(lambda: czxid(cluster_nodes, 2) not in (None, first), "another node of it", timeout_s=5)
    assert incarnation(cluster_nodes, 2) == id_text(me.incarnation_id)
    assert reign.heard.gone == []  # that its node went was the controller's own doing


def test_H_10_a_broker_that_started_again_elsewhere_within_its_session_gets_its_node(
    cluster_nodes: ClusterNodes,
) -> None:
    """Nobody but the controller knows that the one before is dead: it asked its port."""
    controller, killed, again = cluster_nodes.store(), cluster_nodes.store(), cluster_nodes.store()
    reign = Reign(controller, candidate(1))
    killed.cluster_id()
    killed.enter(presence(2))
    reign.commit(registered(presence(2), 1))
    wait_for(lambda: czxid(cluster_nodes, 2), "its node")
    killed._errands.end()  # kill -9, but for its session
    elsewhere = Presence(broker_id=2, incarnation_id=UUID(int=77), endpoints=Endpoints.one("127.0.0.1", 1))
    again.cluster_id()
    again.enter(elsewhere)
    reign.commit(registered(elsewhere, 2, fenced=True))
    wait_for(lambda: incarnation(cluster_nodes, 2) == id_text(elsewhere.incarnation_id), "its node", timeout_s=5)


def test_a_node_that_is_no_brokers_is_no_trouble(cluster_nodes: ClusterNodes) -> None:
    controller = cluster_nodes.store()
    controller.cluster_id()
    cluster_nodes.reader.write([Create(path="/brokers/ids/7", data=b"{", ephemeral=True)]).result(15)
    cluster_nodes.reader.write([Create(path="/brokers/ids/seven", ephemeral=True)]).result(15)
    reign = Reign(controller, candidate(1))
    reign.commit(registered(presence(2), 1))
    other = cluster_nodes.store()
    other.cluster_id()
    other.enter(presence(2))
    wait_for(lambda: czxid(cluster_nodes, 2), "its node")
    wait_for(lambda: 2 in (controller._live._live or ()), "it is seen")
    other.close()
    wait_for(lambda: reign.heard.gone, "the news")
    assert set(reign.heard.gone) == {(2, 1)}
