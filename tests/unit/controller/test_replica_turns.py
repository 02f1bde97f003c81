"""Replicas of brokers that live: told one by one, decided as if their broker were down for just those (KIP-18)."""

from __future__ import annotations

import pytest

from holdfast.controller import events
from holdfast.metadata.records import RecoveryState
from holdfast.model.errors import IneligibleReplicaError, StaleBrokerEpochError
from holdfast.model.fates import ReplicaTurn
from holdfast.model.types import TopicPartition
from tests.unit.controller.test_elections import ALL, Cluster, roles

UNASSIGNED = "00000000-0000-0000-0000-000000000001"


def tell(cluster: Cluster, broker: int, turn: ReplicaTurn, *partitions: TopicPartition) -> None:
    epoch = cluster.image.brokers[broker].epoch
    turns = tuple((tp, turn) for tp in partitions)
    reply = cluster.ask(events.ReplicaTurns(broker_id=broker, broker_epoch=epoch, turns=turns))
    assert reply is None


def t(number: int = 0, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def test_K18_06_the_controller_is_told_per_partition() -> None:
    cluster = Cluster()
    cluster.create("t", (1, 2, 3), (1, 3, 2), (2, 1, 3))
    tell(cluster, 1, ReplicaTurn.FAILED, t(0))
    seen = [(p.leader, p.isr) for p in (cluster.partition("t", n) for n in range(3))]
    assert seen == [(2, (2, 3)), (1, (1, 3, 2)), (2, (2, 1, 3))]
    assert set(cluster.controller.offline_replicas()) == {1}
    told = cluster.told()
    assert all(roles(told[broker]) == {("t", 0)} for broker in ALL)


def test_K18_06_a_broker_of_yesterday_tells_nothing() -> None:
    cluster = Cluster()
    cluster.create("t", ALL)
    before = cluster.partition("t")
    reply = cluster.ask(events.ReplicaTurns(broker_id=1, broker_epoch=10**6, turns=((t(), ReplicaTurn.FAILED),)))
    assert isinstance(reply, StaleBrokerEpochError)
    assert cluster.partition("t") == before


def test_K18_07_what_is_being_deleted_or_is_not_there_is_left_alone() -> None:
    cluster = Cluster()
    cluster.create("t", (1, 2))
    cluster.create("gone", (1, 2))
    cluster.ask(events.DeleteTopics(topics=(("gone", None),)))
    tell(cluster, 1, ReplicaTurn.FAILED, t(0, "gone"), t(7), t(0, "never"))
    assert cluster.records == []
    tell(cluster, 3, ReplicaTurn.FAILED, t(0))
    assert cluster.records == [], "broker 3 has no replica of it"
    assert not cluster.controller.offline_replicas()


@pytest.mark.parametrize(
    ("replicas", "isr", "broker", "leader", "isr_after"),
    [
        ((1, 2, 3), (1, 2, 3), 1, 2, (2, 3)),  # it led: the first of the replicas that is left in the ISR
        ((1, 3, 2), (1, 2, 3), 1, 3, (2, 3)),
        ((1, 2, 3), (1, 3), 1, 3, (3,)),
        ((1, 2, 3), (1, 2, 3), 2, 1, (1, 3)),  # it followed: the leader stays
        ((1, 2, 3), (1, 2, 3), 3, 1, (1, 2)),
        ((1, 2, 3), (1, 3), 2, 1, (1, 3)),  # it was in no ISR
        ((1, 2, 3), (1,), 1, None, (1,)),  # nobody is left: as when a broker dies
        ((2,), (2,), 2, None, (2,)),
    ],
)
def test_K18_08_who_leads_after_a_replica_failed(
    replicas: tuple[int, ...], isr: tuple[int, ...], broker: int, leader: int | None, isr_after: tuple[int, ...]
) -> None:
    cluster = Cluster()
    cluster.create("t", replicas)
    cluster.isr("t", *isr)
    before = cluster.partition("t")
    tell(cluster, broker, ReplicaTurn.FAILED, t())
    after = cluster.partition("t")
    assert (after.leader, set(after.isr), after.replicas) == (leader, set(isr_after), before.replicas)
    assert after.leader_epoch == before.leader_epoch + (after.leader != before.leader)


def test_a_strained_replica_stays_where_there_is_nobody_else() -> None:
    cluster = Cluster()
    cluster.create("t", (1, 2))
    cluster.create("alone", (1,))
    tell(cluster, 1, ReplicaTurn.STRAINED, t(0), t(0, "alone"))
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    assert (cluster.partition("alone").leader, cluster.partition("alone").isr) == (1, (1,))
    assert not cluster.controller.offline_replicas(), "it serves"
    tell(cluster, 1, ReplicaTurn.STRAINED, t(0), t(0, "alone"))
    assert cluster.records == []


@pytest.mark.parametrize("turn", [ReplicaTurn.RELIEVED, ReplicaTurn.BACK_DAMAGED, None])
def test_a_replica_on_a_full_directory_joins_no_isr_before_it_is_relieved(turn: ReplicaTurn | None) -> None:
    """It may have all there is: then its leader proposes it, and the next write would wait for it."""
    cluster = Cluster()
    cluster.create("t", (1, 2))
    tell(cluster, 1, ReplicaTurn.STRAINED, t(0))
    refused = cluster.propose("t", 2, 1)
    assert isinstance(refused, IneligibleReplicaError)
    assert "its log directory is full, or slow" in str(refused)
    if turn is None:
        cluster.start(1)
    else:
        tell(cluster, 1, turn, t(0))
    assert cluster.propose("t", 2, 1) is None
    assert cluster.partition("t").isr == (2, 1)


def test_a_heartbeat_that_was_held_up_tells_nothing_any_more() -> None:
    """Chaos with disks, seed 20261122: a connection was cut, the failure told over it, its end over the next one; then
    the cut was healed, and the first one arrived."""
    cluster = Cluster()
    cluster.create("t", ALL)
    epoch = cluster.image.brokers[1].epoch

    def tell_in(number: int, turn: ReplicaTurn) -> None:
        cluster.ask(events.ReplicaTurns(broker_id=1, broker_epoch=epoch, turns=((t(), turn),), number=number))

    tell_in(2, ReplicaTurn.BACK_DAMAGED)
    tell_in(1, ReplicaTurn.FAILED)
    assert cluster.records == []
    assert not cluster.controller.offline_replicas()
    tell_in(3, ReplicaTurn.FAILED)
    assert set(cluster.controller.offline_replicas()) == {1}


def test_an_answer_that_was_old_when_it_was_heard_is_put_right_by_the_next_one() -> None:
    """Simulation, seed 2136768407."""
    cluster = Cluster()
    cluster.create("t", ALL)
    tell(cluster, 1, ReplicaTurn.FAILED, t())
    tell(cluster, 1, ReplicaTurn.BACK_LOST, t())
    cluster.ask(events.ReplicasOffline(broker_id=1, partitions=(t(),)))
    cluster.ask(events.ReplicasOnline(broker_id=1, partitions=(t(),)))
    assert not cluster.controller.offline_replicas()
    assert roles(cluster.told()[2]) == {("t", 0)}, "everybody hears it"
    cluster.isr("t", 2, 3, 1)
    cluster.ask(events.ReplicasOnline(broker_id=1, partitions=(t(), t(9))))
    assert cluster.records == []


@pytest.mark.parametrize("turn", [ReplicaTurn.BACK_DAMAGED, ReplicaTurn.BACK_LOST])
def test_what_a_leader_knew_of_a_replica_that_is_back_is_void(turn: ReplicaTurn) -> None:
    """Simulation, seed 2136769037: it was made anew, empty, and taken into the ISR for what it had fetched before."""
    cluster = Cluster()
    cluster.create("t", ALL)
    tell(cluster, 3, ReplicaTurn.FAILED, t())
    before = cluster.partition("t")
    tell(cluster, 3, turn, t())
    after = cluster.partition("t")
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch + 1)
    tell(cluster, 3, turn, t())
    assert cluster.partition("t") == after, "once"
    tell(cluster, 3, ReplicaTurn.FAILED, t())
    tell(cluster, 3, turn, t())
    assert cluster.partition("t").leader_epoch == after.leader_epoch + 1


def test_K112_42_a_replica_that_is_back_stands_for_nothing_before_it_has_caught_up() -> None:
    cluster = Cluster()
    cluster.create("t", ALL)
    tell(cluster, 1, ReplicaTurn.FAILED, t())
    tell(cluster, 1, ReplicaTurn.BACK_DAMAGED, t())
    assert not cluster.controller.offline_replicas()
    assert cluster.partition("t").isr == (2, 3)
    assert roles(cluster.told()[1]) == {("t", 0)}, "it hears that it may follow"
    tell(cluster, 1, ReplicaTurn.BACK_DAMAGED, t())
    assert cluster.records == []
    cluster.isr("t", 2, 3, 1)
    assert cluster.partition("t").isr == (2, 3, 1)


@pytest.mark.parametrize("turn", [ReplicaTurn.BACK_DAMAGED, ReplicaTurn.BACK_LOST])
def test_H_07_the_last_copy_comes_back_with_less(turn: ReplicaTurn) -> None:
    """Damaged: it is all there is, so it leads, and recovers. Lost: a new disk must not lead empty."""
    cluster = Cluster()
    cluster.create("t", (2,))
    tell(cluster, 2, ReplicaTurn.FAILED, t())
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (None, (2,))
    tell(cluster, 2, turn, t())
    after = cluster.partition("t")
    if turn is ReplicaTurn.BACK_DAMAGED:
        assert (after.leader, after.isr, after.recovery_state.name) == (2, (2,), "RECOVERING")
    else:
        assert (after.leader, after.isr) == (None, ())


def test_K112_101_no_record_says_which_replica_is_offline_or_in_which_directory() -> None:
    cluster = Cluster()
    cluster.create("t", ALL, (2, 3, 1))
    before = list(cluster.image.to_records())
    tell(cluster, 3, ReplicaTurn.FAILED, t(0))
    records = cluster.records + before + list(cluster.image.to_records())
    places = {str(place) for r in records for place in getattr(r, "directories", None) or ()}
    assert places <= {UNASSIGNED}
    assert not any("offline" in field for r in records for field in type(r).__dataclass_fields__)
    again = Cluster(brokers=0)
    again.controller.replay(list(cluster.image.to_records()), 0)
    assert not again.controller.offline_replicas()


def test_an_old_answer_does_not_leave_the_only_copy_without_a_lead() -> None:
    """It said 56 before it had heard that the controller knows, and yes right after that."""
    cluster = Cluster()
    cluster.create("t", (1,))
    tell(cluster, 1, ReplicaTurn.FAILED, t())
    tell(cluster, 1, ReplicaTurn.BACK_DAMAGED, t())
    p = cluster.partition("t")
    assert p.leader == 1 and p.recovery_state is RecoveryState.RECOVERING
    cluster.ask(events.ReplicasOffline(broker_id=1, partitions=(t(),)))
    assert cluster.partition("t").leader is None
    cluster.ask(events.ReplicasOnline(broker_id=1, partitions=(t(),)))
    p = cluster.partition("t")
    assert p.leader == 1 and p.recovery_state is RecoveryState.RECOVERING
