"""When leadership goes back to preferred replicas by itself (R-42), and what offline replicas cost (K18-07)."""

from __future__ import annotations

import pytest

from holdfast.controller import events
from holdfast.controller.settings import ControllerSettings
from holdfast.model.config import BrokerConfig
from holdfast.model.types import TopicPartition
from tests.unit.controller.test_elections import Cluster

INTERVAL_MS = 300_000


def heard_of(cluster: Cluster) -> None:
    for broker in list(cluster.image.brokers.values()):
        cluster.ask(events.BrokerHeartbeat(broker_id=broker.id, broker_epoch=broker.epoch))


def balanced(cluster: Cluster) -> None:
    """The interval passes."""
    state = cluster.controller
    due = state.next_deadline_ms()
    assert due is not None
    cluster.now_ms += INTERVAL_MS
    for _ in range(5):
        heard_of(cluster)
        for event in state.due(cluster.now_ms):
            cluster.ask(event)


def settings(**values: str) -> ControllerSettings:
    keys = {key.replace("_", "."): value for key, value in values.items()}
    return ControllerSettings.of(BrokerConfig.parse({"node.id": "1", **keys}))


def out_of_balance(given: ControllerSettings, partitions: int, missing: int) -> Cluster:
    """Broker 1 is preferred everywhere, and does not lead ``missing`` of its partitions."""
    names = ControllerSettings.__slots__
    cluster = Cluster(3, **{name: getattr(given, name) for name in names})
    cluster.controller.begin(0)
    heard_of(cluster)
    for number in range(partitions):
        cluster.create(f"t{number}", (1, 2, 3))
    led = [f"t{number}" for number in range(missing)]
    cluster.die(1)
    cluster.start(1)
    for number in range(partitions):
        cluster.isr(f"t{number}", 2, 3, 1)
    back = tuple(TopicPartition(f"t{n}", 0) for n in range(partitions) if f"t{n}" not in led)
    cluster.ask(events.ElectLeaders(unclean=False, partitions=back))
    assert leads(cluster, partitions) == partitions - missing
    return cluster


def leads(cluster: Cluster, partitions: int) -> int:
    return sum(cluster.partition(f"t{number}").leader == 1 for number in range(partitions))


@pytest.mark.parametrize(
    ("percentage", "missing", "after"), [("10", 1, 9), ("10", 2, 10), ("50", 5, 5), ("50", 6, 10), ("0", 1, 10)]
)
def test_R_42_leadership_returns_where_more_than_the_allowed_share_is_elsewhere(
    percentage: str, missing: int, after: int
) -> None:
    cluster = out_of_balance(settings(leader_imbalance_per_broker_percentage=percentage), 10, missing)
    balanced(cluster)
    assert leads(cluster, 10) == after


def test_R_42_it_does_not_return_by_itself_where_that_is_switched_off() -> None:
    cluster = out_of_balance(settings(auto_leader_rebalance_enable="false"), 10, 10)
    assert cluster.controller._state.next_rebalance_ms is None
    balanced(cluster)
    assert leads(cluster, 10) == 0


def test_K18_07_a_partition_that_is_reassigned_gets_a_leader_as_any_other() -> None:
    """The end of a reassignment is one record, so there is nothing half done that would have to be left alone."""
    cluster = Cluster(4)
    cluster.create("t", (1, 2))
    cluster.create("other", (1, 2))
    wish = events.Reassignment(topic="t", partition=0, replicas=(3, 4))
    cluster.ask(events.AlterReassignments(partitions=(wish,)))
    assert cluster.partition("t").is_reassigned
    where = (TopicPartition("t", 0),)
    cluster.ask(events.ReplicasOffline(broker_id=1, partitions=where))
    assert (cluster.partition("t").leader, 1 in cluster.partition("t").isr) == (2, False)
    assert cluster.partition("other").leader == 1, "as if the broker were down for just those"


def test_K18_07_what_is_deleted_is_left_alone() -> None:
    cluster = Cluster(2)
    cluster.create("t", (1, 2))
    cluster.ask(events.DeleteTopics(topics=((None, cluster.image.topics["t"].topic_id),)))
    cluster.ask(events.ReplicasOffline(broker_id=1, partitions=(TopicPartition("t", 0),)))
    assert cluster.records == []
