"""Whether a cluster is healthy, decided over what it told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.client.health import NOTICES, Finding, Health, Survey, judge
from holdfast.client.views import BrokerNode, ClusterMetadata, DiskView, PartitionMetadata, ReplicaOnDisk, TopicView
from holdfast.model.errors import LeaderNotAvailableError
from holdfast.model.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def partition(
    number: int, isr: tuple[int, ...], *, leader: int | None = 1, replicas: tuple[int, ...] = (1, 2, 3)
) -> PartitionMetadata:
    return PartitionMetadata(
        partition=number,
        leader=leader,
        leader_epoch=0,
        replicas=replicas,
        isr=isr,
        offline=tuple(r for r in replicas if r not in isr),
    )


def disk(path: str = "/d1", state: str = "online", reason: str | None = None, *held: TopicPartition) -> DiskView:
    return DiskView(
        path=path,
        directory_id=None,
        state=state,
        reason=reason,
        since_ms=None,
        total_bytes=None,
        usable_bytes=None,
        probe_ms=None,
        cordoned=False,
        replicas=tuple(ReplicaOnDisk(tp=tp, size_bytes=1, offset_lag=0, future=False) for tp in held),
    )


def survey(*partitions: PartitionMetadata, min_isr: int = 1, controller: int | None = 1) -> Survey:
    """Three brokers that are alive, with a disk each, and the topic t."""
    brokers = {b: BrokerNode(broker_id=b, host="h", port=b) for b in (1, 2, 3)}
    topic = TopicView(name="t", topic_id=None, internal=False, partitions=partitions)
    return Survey(
        view=ClusterMetadata(cluster_id="c", controller_id=controller, brokers=brokers, topics={"t": topic}),
        alive=frozenset(brokers),
        min_isr={"t": min_isr},
        adding={},
        disks={broker: (disk(),) for broker in brokers},
    )


def found(health: Health) -> list[tuple[Finding, str, tuple[TopicPartition, ...]]]:
    return [(f.kind, f.text, f.partitions) for f in (*health.problems, *health.notices)]


WHOLE = partition(0, (1, 2, 3))


def test_a_cluster_that_lacks_nothing_is_healthy() -> None:
    health = judge(survey(WHOLE, partition(1, (1,), replicas=(1,)), min_isr=2))
    assert (health.is_healthy, found(health)) == (True, [])


def test_partitions_are_told_by_what_they_lack() -> None:
    health = judge(survey(WHOLE, partition(1, (1, 3)), min_isr=1))
    assert found(health) == [(Finding.UNDER_REPLICATED, "1 partition is under-replicated", (T1,))]
    assert not health.is_healthy


def test_at_min_isr_is_a_notice_and_under_it_a_problem() -> None:
    health = judge(survey(partition(0, (1,)), partition(1, (2, 1)), min_isr=2))
    assert found(health) == [
        (Finding.UNDER_MIN_ISR, "1 partition is under min.insync.replicas: acks=all is refused", (T0,)),
        (Finding.UNDER_REPLICATED, "2 partitions are under-replicated", (T0, T1)),
        (
            Finding.AT_MIN_ISR,
            "1 partition is at min.insync.replicas: with one replica less acks=all is refused",
            (T1,),
        ),
    ]
    whole = judge(survey(WHOLE, min_isr=3))
    assert (whole.is_healthy, [f.kind for f in whole.notices]) == (True, [Finding.AT_MIN_ISR])


def test_fewer_replicas_than_the_minimum_are_judged_by_their_number() -> None:
    """As their leader goes by it."""
    assert judge(survey(partition(0, (1,), replicas=(1,)), min_isr=2)).is_healthy
    assert [f.kind for f in judge(survey(partition(0, (1, 2), replicas=(1, 2)), min_isr=3)).notices] == [
        Finding.AT_MIN_ISR
    ]


def test_of_a_partition_without_a_leader_nothing_else_is_said() -> None:
    health = judge(survey(partition(0, (3,), leader=None), WHOLE, min_isr=2))
    assert found(health) == [(Finding.NO_LEADER, "1 partition has no leader: nobody can read or write", (T0,))]


def test_a_replica_that_is_on_its_way_is_not_missing() -> None:
    told = survey(partition(0, (1, 2)), min_isr=1)
    assert [f.kind for f in judge(told).problems] == [Finding.UNDER_REPLICATED]
    moving = judge(replace(told, adding={T0: frozenset({3})}))
    assert (moving.is_healthy, found(moving)) == (
        True,
        [(Finding.REASSIGNING, "1 partition is being reassigned", (T0,))],
    )


def test_a_broker_that_is_away_is_missed_for_what_it_has() -> None:
    told = survey(WHOLE, partition(1, (1, 2), replicas=(1, 2)))
    two = {b: told.disks[b] for b in (1, 2)}
    health = judge(replace(told, alive=frozenset({1, 2}), disks=two))
    assert found(health) == [(Finding.BROKER_MISSING, "broker 3 is missing: it has 1 replica", (T0,))]
    assert health.problems[0].broker == 3
    nothing = survey(partition(0, (1, 2), replicas=(1, 2)))
    assert judge(replace(nothing, alive=frozenset({1, 2}), disks=two)).is_healthy, "it may have been taken away"


def test_a_broker_that_does_not_tell_is_a_problem() -> None:
    told = survey(WHOLE)
    health = judge(replace(told, disks={**told.disks, 2: "cannot connect to h:2: connection refused"}))
    (only,) = health.problems
    assert (only.kind, only.broker) == (Finding.BROKER_UNREACHABLE, 2)
    assert only.text == "broker 2 does not answer: cannot connect to h:2: connection refused"


@pytest.mark.parametrize("state", ["offline", "degraded", "full", "silent"])
def test_a_directory_that_is_not_fit_is_a_problem_with_its_reason(state: str) -> None:
    told = survey(WHOLE)
    disks = (disk("/d1"), disk("/d2", state, "log dir /d2: [Errno 5] Input/output error", T0))
    health = judge(replace(told, disks={**told.disks, 2: disks}))
    (only,) = health.problems
    assert only.text == f"broker 2: /d2 is {state}: [Errno 5] Input/output error"
    assert (only.broker, only.log_dir, only.state, only.partitions) == (2, "/d2", state, (T0,))
    assert only.reason == "log dir /d2: [Errno 5] Input/output error"


def test_a_directory_that_is_being_loaded_is_a_notice() -> None:
    told = survey(WHOLE)
    health = judge(replace(told, disks={**told.disks, 1: (disk("/d1", "loading"),)}))
    assert (health.is_healthy, found(health)) == (True, [(Finding.LOG_DIR_LOADING, "broker 1: /d1 is loading", ())])


def test_no_controller_and_topics_that_cannot_be_told() -> None:
    told = survey(WHOLE, controller=None)
    bad = TopicView(name="a", topic_id=None, internal=False, partitions=(), error=LeaderNotAvailableError("why"))
    health = judge(replace(told, view=replace(told.view, topics={**told.view.topics, "a": bad})))
    assert [(f.kind, f.text) for f in health.problems] == [
        (Finding.NO_CONTROLLER, "the cluster has no controller"),
        (Finding.TOPIC_UNKNOWN, "topic a: why"),
    ]


def test_the_worst_comes_first_whatever_is_found() -> None:
    told = survey(partition(0, (), leader=None), partition(1, (1,)), min_isr=2, controller=None)
    disks = {1: (disk("/d", "offline"),), 2: "gone"}
    health = judge(replace(told, alive=frozenset({1, 2}), disks=disks))
    order = list(Finding)
    kinds = [f.kind for f in health.problems]
    assert kinds == sorted(kinds, key=order.index)
    assert set(kinds) == set(Finding) - NOTICES - {Finding.TOPIC_UNKNOWN}
