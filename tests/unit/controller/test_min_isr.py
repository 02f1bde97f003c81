"""The controller goes by the min.insync.replicas that leaders go by (H-07; house.md D6)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.controller import events
from holdfast.controller.settings import ControllerSettings
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import InvalidRequestError
from tests.unit.controller.test_elections import ALL, Cluster

KEY = "min.insync.replicas"


def configure(cluster: Cluster, value: str | None, *, topic: str | None = None, broker: str = "", **more: str) -> Any:
    """The answer of one resource; no topic: for all brokers, or one."""
    values = ((KEY, value), *((key.replace("_", "."), text) for key, text in more.items()))
    change = events.ConfigChange(
        resource_type=4 if topic is None else 2, resource_name=broker if topic is None else topic, values=values
    )
    return cluster.ask(events.AlterConfigs(changes=(change,))).resources[0]


def shrunk(cluster: Cluster) -> None:
    """Only the leader is left in the ISR, as the others died."""
    cluster.create("t", ALL)
    cluster.die(3)
    cluster.die(2)


def test_H_07_who_leaves_the_isr_below_the_dynamic_default_stays_eligible() -> None:
    cluster = Cluster()
    configure(cluster, "2")
    shrunk(cluster)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((1,), (2,))
    cluster.die(1)
    cluster.start(2)
    assert cluster.partition("t").leader == 2, "it has all that is committed"


def test_H_07_the_topics_own_value_goes_before_the_dynamic_default_and_that_before_the_file() -> None:
    cluster = Cluster(min_insync_replicas=3)
    configure(cluster, "1")
    shrunk(cluster)
    assert cluster.partition("t").elr == ()
    cluster.create("u", (1, 2), min_insync_replicas="2")
    cluster.start(2)
    cluster.isr("u", 1, 2)
    cluster.die(2)
    assert cluster.partition("u").elr == (2,)


def test_H_07_a_smaller_dynamic_default_ends_what_was_eligible_at_once() -> None:
    """The leader goes on alone from now on, so nobody else has all that is committed."""
    cluster = Cluster(min_insync_replicas=2)
    shrunk(cluster)
    cluster.create("own", ALL, min_insync_replicas="2")
    cluster.start(2)
    cluster.isr("own", 1, 2)
    cluster.die(2)
    assert cluster.partition("t").elr == cluster.partition("own").elr == (2,)
    configure(cluster, "1")
    assert cluster.partition("t").elr == ()
    assert cluster.partition("own").elr == (2,), "it has a value of its own"
    configure(cluster, None, topic="own")
    assert cluster.partition("own").elr == (), "what counts without its own value is the dynamic default"


def test_H_07_the_dynamic_default_is_taken_back_and_the_file_counts() -> None:
    cluster = Cluster(min_insync_replicas=1)
    configure(cluster, "2")
    shrunk(cluster)
    assert cluster.partition("t").elr == (2,)
    configure(cluster, None)
    assert cluster.partition("t").elr == ()


def test_H_07_a_controller_takes_from_its_file_what_is_in_its_file() -> None:
    """What was changed at run time is in the image, for every controller the same, and may be taken back."""
    config = BrokerConfig.parse({"node.id": "1", KEY: "2", "unclean.leader.election.enable": "false"})
    dynamic = config.with_dynamic(default={KEY: "3", "unclean.leader.election.enable": "true"}, broker={})
    settings = ControllerSettings.of(dynamic)
    assert (settings.min_insync_replicas, settings.unclean_election) == (2, False)


@pytest.mark.parametrize("key", [KEY, "unclean.leader.election.enable"])
def test_H_07_one_broker_alone_has_no_value_of_its_own(key: str) -> None:
    """The controller would have to know who leads for it."""
    cluster = Cluster()
    value = "2" if key == KEY else "true"
    change = events.ConfigChange(resource_type=4, resource_name="2", values=((key, value),))
    [result] = cluster.ask(events.AlterConfigs(changes=(change,))).resources
    assert isinstance(result.error, InvalidRequestError)
    assert key in str(result.error)
    assert cluster.records == []
    change = events.ConfigChange(resource_type=4, resource_name="2", values=((key, None),))
    [result] = cluster.ask(events.AlterConfigs(changes=(change,))).resources
    assert result.error is None, "what was never taken can be removed"


def test_H_26_a_cluster_that_allows_unclean_elections_has_leaders_at_once() -> None:
    cluster = Cluster()
    cluster.create("t", (1, 2))
    cluster.create("never", (1, 2), unclean_leader_election_enable="false")
    cluster.die(2)
    cluster.die(1)
    cluster.start(2)
    assert cluster.partition("t").leader is None
    change = events.ConfigChange(
        resource_type=4, resource_name="", values=(("unclean.leader.election.enable", "true"),)
    )
    cluster.ask(events.AlterConfigs(changes=(change,)))
    assert cluster.partition("t").leader == 2
    assert cluster.partition("never").leader is None
