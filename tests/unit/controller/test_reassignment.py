"""Replicas that move from broker to broker (KIP-455): begun, taken back, ended, and nothing lost on the way."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from holdfast.controller import broadcast, events
from holdfast.controller.controller import Controller
from holdfast.model.errors import HoldfastError
from holdfast.model.fates import ReplicaFate, ReplicaFates
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition
from holdfast.protocol.error_codes import code_of
from tests.unit.controller.test_elections import Cluster

FIRST = (1, 2, 3)


def reassign(cluster: Cluster, *replicas: int, name: str = "t", **more: Any) -> HoldfastError | None:
    """What it is refused with; no replicas: cancel."""
    return ask(cluster, name, replicas or None, **more)


def ask(cluster: Cluster, name: str, replicas: tuple[int, ...] | None, **more: Any) -> HoldfastError | None:
    wanted = events.Reassignment(topic=name, partition=0, replicas=replicas)
    reply = cluster.ask(events.AlterReassignments(partitions=(wanted,), **more))
    error: HoldfastError | None = reply.partitions[0].error
    return error


def orders(cluster: Cluster, broker: int, kind: str) -> list[Any]:
    """States that the last event makes a broker hear of partition 0, of LeaderAndIsr or StopReplica."""
    return [
        p
        for request in cluster.told().get(broker, [])
        if type(request).__name__ == f"{kind}Request"
        for topic in request.topic_states
        for p in topic.partition_states
    ]


def five() -> Cluster:
    cluster = Cluster(5)
    cluster.create("t", FIRST)
    return cluster


def test_a_reassignment_begins_runs_and_ends() -> None:
    cluster = five()
    assert reassign(cluster, 4, 5) is None
    p = cluster.partition("t")
    assert (p.replicas, p.adding, p.removing, p.isr, p.leader) == ((4, 5, 1, 2, 3), (4, 5), FIRST, FIRST, 1)
    cluster.isr("t", 1, 2, 3, 5)
    assert cluster.partition("t").is_reassigned, "one of the target is missing"
    epoch = cluster.partition("t").leader_epoch
    cluster.isr("t", 1, 2, 3, 5, 4)
    p = cluster.partition("t")
    assert (p.replicas, p.adding, p.removing, p.isr, p.leader) == ((4, 5), (), (), (5, 4), 4)
    assert p.leader_epoch > epoch
    assert [len(orders(cluster, broker, "StopReplica")) for broker in range(1, 6)] == [1, 1, 1, 0, 0]
    assert all(o.delete_partition and o.leader_epoch == p.leader_epoch for o in orders(cluster, 2, "StopReplica"))


def test_K112_72_C18_a_replica_that_comes_is_new_until_it_is_there() -> None:
    cluster = five()
    reassign(cluster, 1, 2, 4)
    assert [o.is_new for o in orders(cluster, 4, "LeaderAndIsr")] == [True]
    assert [o.is_new for o in orders(cluster, 1, "LeaderAndIsr")] == [False]
    cluster.ask(events.ReplicasOffline(broker_id=4, partitions=(TopicPartition("t", 0),)))
    assert [o.is_new for o in orders(cluster, 4, "LeaderAndIsr")] == [True], "again: it could not be made"
    full = broadcast.full_state_requests(cluster.image, 4, cluster.controller.offline_replicas(), 1, 1)
    assert [p.is_new for p in full[1].topic_states[0].partition_states] == [True]
    cluster.ask(events.ReplicasOnline(broker_id=4, partitions=(TopicPartition("t", 0),)))
    reassign(cluster, 5, 4)
    cluster.isr("t", 1, 2, 3, 4)
    assert [o.is_new for o in orders(cluster, 4, "LeaderAndIsr")] == [False], "it counts: a new one would have nothing"


@pytest.mark.parametrize("why", ["its disk is dead", "its broker is dead"])
def test_K112_70_it_is_not_over_while_a_replica_of_the_target_cannot_be_used(why: str) -> None:
    cluster = five()
    if why == "its broker is dead":
        cluster.die(4)
    assert reassign(cluster, 2, 3, 4) is None
    if why == "its disk is dead":
        cluster.ask(events.ReplicasOffline(broker_id=4, partitions=(TopicPartition("t", 0),)))
    assert code_of(cluster.propose("t", 1, 2, 3, 4)) == 107
    p = cluster.partition("t")
    assert (p.replicas, p.adding, p.removing, p.isr) == ((2, 3, 4, 1), (4,), (1,), FIRST), "the old ones stay"
    requests = broadcast.full_state_requests(cluster.image, 1, cluster.controller.offline_replicas(), 1, 1)
    (state,) = requests[-1].topic_states[0].partition_states
    assert state.offline_replicas == (4,)
    if why == "its broker is dead":
        cluster.start(4)
    else:
        cluster.ask(events.ReplicasOnline(broker_id=4, partitions=(TopicPartition("t", 0),)))
    cluster.isr("t", 1, 2, 3, 4)
    assert cluster.partition("t").replicas == (2, 3, 4)


def test_K112_71_away_from_a_dead_disk_it_is_over_at_once() -> None:
    """For the metadata: who has the dead disk is told to delete what is on it."""
    cluster = five()
    cluster.ask(events.ReplicasOffline(broker_id=3, partitions=(TopicPartition("t", 0),)))
    assert reassign(cluster, 1, 2) is None
    p = cluster.partition("t")
    assert (p.replicas, p.isr, p.leader, p.is_reassigned) == ((1, 2), (1, 2), 1, False)
    assert len(orders(cluster, 3, "StopReplica")) == 1
    assert not cluster.controller.offline_replicas(), "a replica that it has no more is not offline"


def test_the_order_alone_changes_at_once_whoever_is_dead() -> None:
    cluster = five()
    cluster.die(3)
    epoch = cluster.partition("t").leader_epoch
    assert reassign(cluster, 3, 2, 1) is None
    p = cluster.partition("t")
    assert (p.replicas, p.leader, p.leader_epoch, p.isr) == ((3, 2, 1), 1, epoch, (1, 2))
    assert reassign(cluster, 3, 2, 1) is None and not cluster.records, "the same again changes nothing"


def test_H_30_cancel_in_the_middle_restores() -> None:
    cluster = five()
    reassign(cluster, 4, 5)
    cluster.isr("t", 1, 2, 3, 4)
    assert reassign(cluster) is None
    p = cluster.partition("t")
    assert (set(p.replicas), p.isr, p.leader, p.is_reassigned) == (set(FIRST), FIRST, 1, False)
    assert [len(orders(cluster, broker, "StopReplica")) for broker in range(1, 6)] == [0, 0, 0, 1, 1]
    assert code_of(reassign(cluster)) == 85


def test_H_30_another_target_begins_from_the_first_replicas() -> None:
    cluster = five()
    reassign(cluster, 4, 2, 3)
    cluster.isr("t", 1, 2, 3, 4)  # that ends it
    reassign(cluster, 5, 2)
    reassign(cluster, 1, 2)
    p = cluster.partition("t")
    assert (p.replicas, p.adding, p.removing) == ((1, 2, 4, 3), (1,), (4, 3))
    assert len(orders(cluster, 5, "StopReplica")) == 1
    assert reassign(cluster) is None
    assert set(cluster.partition("t").replicas) == {4, 2, 3}


def test_what_comes_may_lead_and_is_not_given_back_when_only_it_has_everything() -> None:
    cluster = five()
    reassign(cluster, 4, 5)
    cluster.isr("t", 1, 4)
    cluster.die(1)
    assert cluster.partition("t").leader == 4
    assert code_of(reassign(cluster)) == 39, "4 alone has everything"
    cluster.start(1)
    cluster.isr("t", 4, 1)
    assert reassign(cluster) is None
    p = cluster.partition("t")
    assert (p.leader, p.isr, set(p.replicas)) == (1, (1,), set(FIRST))


def test_a_target_that_is_in_sync_already_needs_no_waiting() -> None:
    cluster = five()
    assert reassign(cluster, 3, 2) is None
    p = cluster.partition("t")
    assert (p.replicas, p.isr, p.leader) == ((3, 2), (2, 3), 3)
    cluster.die(2)
    assert reassign(cluster, 2) is None
    p = cluster.partition("t")
    assert (p.replicas, p.removing, p.leader) == ((2, 3), (3,), 3), "2 must come back first: 3 has what it lacks"
    cluster.start(2)
    cluster.isr("t", 3, 2)
    assert (cluster.partition("t").replicas, cluster.partition("t").leader) == ((2,), 2)


@pytest.mark.parametrize(
    ("replicas", "more", "code"),
    [((1, 9), {}, 39), ((1, 1), {}, 39), ((-1,), {}, 39), ((1, 2), {"may_change_factor": False}, 38)],
)
def test_a_target_that_cannot_be_is_refused(replicas: tuple[int, ...], more: dict[str, Any], code: int) -> None:
    cluster = five()
    assert code_of(reassign(cluster, *replicas, **more)) == code
    assert not cluster.records
    assert code_of(ask(cluster, "t", ())) == 39
    assert code_of(ask(cluster, "nosuch", (1,))) == 3


def test_C2_K1066_08_no_replica_comes_to_a_broker_whose_directories_are_all_cordoned() -> None:
    cluster = Cluster(3)
    dirs = (UUID(int=71), UUID(int=72))
    epochs = {}
    for broker in (4, 5):
        registered = cluster.ask(
            events.BrokerRegister(
                broker_id=broker, incarnation_id=UUID(int=broker), endpoints=Endpoints.one("h", 9), log_dirs=dirs
            )
        )
        epochs[broker] = registered.broker_epoch
        cluster.ask(events.BrokerHeartbeat(broker_id=broker, broker_epoch=epochs[broker]))
    cluster.create("t", (1, 2, 5))
    for broker, epoch in epochs.items():
        cluster.ask(events.BrokerHeartbeat(broker_id=broker, broker_epoch=epoch, cordoned=dirs))
    assert code_of(reassign(cluster, 1, 4)) == 107
    assert reassign(cluster, 5, 1) is None, "it has that one already"


def test_two_wishes_for_one_partition_are_refused_and_others_are_not() -> None:
    cluster = five()
    cluster.create("u", FIRST)
    wishes = tuple(
        events.Reassignment(topic=name, partition=0, replicas=replicas)
        for name, replicas in (("t", (1,)), ("u", (3, 2, 1)), ("t", (2,)))
    )
    reply = cluster.ask(events.AlterReassignments(partitions=wishes))
    assert [code_of(r.error) for r in reply.partitions] == [42, 0, 42]
    assert (cluster.partition("t").replicas, cluster.partition("u").replicas) == (FIRST, (3, 2, 1))


def test_too_many_at_once_are_refused() -> None:
    cluster = Cluster(3, max_partitions_per_request=2)
    cluster.create("t", FIRST)
    wishes = tuple(events.Reassignment(topic="t", partition=n, replicas=(1,)) for n in range(3))
    assert code_of(cluster.ask(events.AlterReassignments(partitions=wishes))) == 44
    assert not cluster.records


def test_what_is_under_way_is_listed() -> None:
    cluster = five()
    cluster.create("u", FIRST)
    reassign(cluster, 3, 4)
    (found,) = cluster.ask(events.ListReassignments()).partitions
    assert (found.topic, found.replicas, found.adding, found.removing) == ("t", (3, 4, 1, 2), (4,), (1, 2))
    asked = events.ListReassignments(topics=(("t", (0, 9)), ("u", (0,)), ("nosuch", (0,))))
    assert cluster.ask(asked).partitions == (found,)
    assert not cluster.ask(events.ListReassignments(topics=(("t", (1,)),))).partitions


def test_new_partitions_of_a_topic_that_is_reassigned_get_the_factor_of_the_target() -> None:
    cluster = five()
    reassign(cluster, 4, 5)
    more = events.MorePartitions(name="t", count=2)
    assert cluster.ask(events.CreatePartitions(topics=(more,))).topics[0].error is None
    assert len(cluster.partition("t", 1).replicas) == 2


def due(cluster: Cluster) -> None:
    """What time has brought, all of it."""
    while events_due := cluster.controller.due(cluster.now_ms):
        for event in events_due:
            cluster.ask(event)


def returns(cluster: Cluster, broker: int, fate: ReplicaFate) -> None:
    """A broker starts again with what is left of its replicas."""
    before = cluster.image.brokers[broker].epoch
    registered = cluster.ask(
        events.BrokerRegister(
            broker_id=broker, incarnation_id=UUID(int=broker * 1000 + cluster.image.next_offset),
            endpoints=Endpoints.one("h", 9),
            fates=ReplicaFates(rest=fate, continues=before),
        )
    )  # fmt: skip
    cluster.ask(events.BrokerHeartbeat(broker_id=broker, broker_epoch=registered.broker_epoch))


def taken_over(cluster: Cluster, *heard: int) -> Cluster:
    """Another controller, which has heard of these brokers only."""
    other = Cluster(0)
    other.controller = Controller(cluster.image, cluster.settings, random.Random(8))
    other.controller.begin(0)
    for broker in heard:
        other.ask(events.BrokerHeartbeat(broker_id=broker, broker_epoch=other.image.brokers[broker].epoch))
    return other


def test_a_new_leader_epoch_begins_whenever_a_replica_comes_or_goes() -> None:
    """An order to delete the replica that went, which comes late, is older than the one that it is made anew by."""
    cluster = five()
    reassign(cluster, 1, 2)
    (stop,) = orders(cluster, 3, "StopReplica")
    reassign(cluster, 1, 2, 3)
    (role,) = orders(cluster, 3, "LeaderAndIsr")
    assert role.leader_epoch > stop.leader_epoch
    cluster.die(1)
    cluster.die(2)
    epoch = cluster.partition("t").leader_epoch
    assert cluster.partition("t").leader is None
    reassign(cluster, 1, 2, 4)
    assert cluster.partition("t").leader_epoch > epoch, "also while nobody leads"


@pytest.mark.parametrize("eligible", [False, True])
def test_K112_70_nothing_that_lives_is_given_up_for_a_target_that_is_dead(eligible: bool) -> None:
    cluster = Cluster(4, min_insync_replicas=2 if eligible else 1)
    cluster.create("t", FIRST)
    if eligible:
        cluster.isr("t", 1, 3)
    for broker in (2, 1, 3):
        cluster.die(broker)
    p = cluster.partition("t")
    assert (p.isr, p.elr, p.leader) == ((3,), (1,) if eligible else (), None)
    cluster.start(2)
    assert reassign(cluster, 3) is None
    p = cluster.partition("t")
    assert (set(p.replicas), p.removing, p.elr) == ({1, 2, 3}, (1, 2), (1,) if eligible else ())
    returns(cluster, 3, ReplicaFate.LOST if eligible else ReplicaFate.KEPT)
    cluster.start(1)
    due(cluster)
    p = cluster.partition("t")
    if eligible:
        assert (p.leader, p.is_reassigned) == (1, True), "1 has what 3 has lost"
    else:
        assert (p.leader, p.replicas) == (3, (3,)), "it is alive, and has everything"


def test_K112_70_a_new_controller_gives_up_nothing_for_those_of_whom_it_has_not_heard() -> None:
    cluster = taken_over(five(), 1, 4, 5)
    assert reassign(cluster, 2, 3) is None
    due(cluster)
    p = cluster.partition("t")
    assert (p.leader, p.removing, p.isr) == (1, (1,), FIRST)
    for broker in (2, 3):
        due(cluster)
        assert cluster.partition("t").is_reassigned
        cluster.ask(events.BrokerHeartbeat(broker_id=broker, broker_epoch=cluster.image.brokers[broker].epoch))
    due(cluster)
    p = cluster.partition("t")
    assert (p.leader, p.replicas, p.is_reassigned) == (2, (2, 3), False)


@pytest.mark.parametrize("failover", [False, True])
def test_an_election_that_reaches_the_target_ends_it(failover: bool) -> None:
    """No leader would propose anything any more."""
    cluster = Cluster(3, min_insync_replicas=2)
    cluster.create("t", (1, 2))
    cluster.die(2)
    assert reassign(cluster, 2) is None
    cluster.die(1)
    returns(cluster, 2, ReplicaFate.KEPT)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    if failover:
        cluster = taken_over(cluster, 2, 3)
    due(cluster)
    assert (cluster.partition("t").replicas, cluster.partition("t").is_reassigned) == ((2,), False)
    assert not cluster.controller.due(cluster.now_ms), "there is nothing more to look at"


def test_an_unclean_leader_is_not_one_that_was_only_coming() -> None:
    """It is first in the list, and may have nothing."""
    cluster = Cluster(5)
    cluster.create("t", FIRST, unclean_leader_election_enable="true")
    reassign(cluster, 4, 5)
    cluster.isr("t", 1)
    cluster.die(1)
    assert cluster.partition("t").leader == 2


def test_R_43_whatever_happens_in_between_who_leads_has_everything_and_all_ends_well() -> None:
    """Brokers come and go, disks die, targets change. No replica leads, or is alone in the ISR, that was never in it
    with one that was; at rest the target is reached, by nobody but members of the ISR."""
    for seed in range(150):
        rng = random.Random(seed)
        cluster = Cluster(5, min_insync_replicas=rng.choice((1, 2)))
        cluster.create("t", tuple(rng.sample(range(1, 6), 3)))
        alive, target = set(range(1, 6)), set(cluster.partition("t").replicas)
        for _ in range(60):
            before = cluster.partition("t")
            had_all = {*before.isr, *before.elr, *before.last_known_elr}
            broker = rng.randint(1, 5)
            match rng.randrange(5):
                case 0 if len(alive) > 1:
                    if broker in alive:
                        cluster.die(broker)
                        alive.discard(broker)
                case 1:
                    if broker not in alive:
                        cluster.start(broker)
                        alive.add(broker)
                case 2:
                    wanted = tuple(rng.sample(range(1, 6), rng.randint(1, 4)))
                    if ask(cluster, "t", wanted) is None:
                        target = set(wanted)
                case 3:
                    if before.is_reassigned and reassign(cluster) is None:
                        target = set(cluster.partition("t").replicas)
                case _:
                    if before.leader is not None and broker in before.replicas and broker not in before.isr:
                        cluster.propose("t", *before.isr, broker)
                        had_all.add(broker)
            after = cluster.partition("t")
            assert set(after.isr) <= set(after.replicas) and set(after.isr) <= had_all, seed
            assert {*after.isr, *after.elr, *after.last_known_elr}, seed
            assert after.leader is None or after.leader in after.isr, seed
            assert set(after.adding) <= set(after.replicas) and set(after.removing) <= set(after.replicas), seed
            assert len(set(after.replicas)) == len(after.replicas), seed
            assert target == set(after.target), seed
        for broker in set(range(1, 6)) - alive:
            cluster.start(broker)
        for _ in range(5):
            p = cluster.partition("t")
            missing = [r for r in p.replicas if r not in p.isr]
            if missing:
                cluster.isr("t", *p.isr, missing[0])
        due(cluster)
        p = cluster.partition("t")
        assert set(p.replicas) == set(p.isr) == target and not p.is_reassigned, seed
