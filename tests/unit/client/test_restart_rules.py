"""Whether a broker may be restarted, decided over what brokers told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.client.health import Survey
from holdfast.client.restart_rules import BadDirectory, bad_directories, died, hindrances, next_broker
from holdfast.client.views import BrokerNode, ClusterMetadata, DiskView, PartitionMetadata, ReplicaOnDisk, TopicView
from holdfast.model.errors import LeaderNotAvailableError
from holdfast.model.types import BrokerId, TopicPartition

ALL = frozenset({1, 2, 3})


def partition(number: int, isr: tuple[int, ...], *, replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionMetadata:
    return PartitionMetadata(
        partition=number, leader=isr[0] if isr else None, leader_epoch=0, replicas=replicas, isr=isr, offline=()
    )


def disk(path: str, state: str = "online", *held: TopicPartition, reason: str | None = None) -> DiskView:
    return DiskView(
        path=path, directory_id=None, state=state, reason=reason, since_ms=None, total_bytes=None, usable_bytes=None,
        probe_ms=None, cordoned=False,
        replicas=tuple(ReplicaOnDisk(tp=tp, size_bytes=1, offset_lag=0, future=False) for tp in held),
    )  # fmt: skip


def survey(*partitions: PartitionMetadata, min_isr: int = 2, disks: dict[int, DiskView] | None = None) -> Survey:
    """Three brokers that are alive, with a disk each, and the topic t."""
    brokers = {b: BrokerNode(broker_id=b, host="h", port=b) for b in (1, 2, 3)}
    topic = TopicView(name="t", topic_id=None, internal=False, partitions=partitions)
    return Survey(
        view=ClusterMetadata(cluster_id="c", controller_id=1, brokers=brokers, topics={"t": topic}),
        alive=ALL,
        min_isr={"t": min_isr},
        adding={},
        disks={broker: ((disks or {}).get(broker, disk("/d")),) for broker in brokers},
    )


def why(told: Survey, broker: BrokerId | None, before: frozenset[BadDirectory] = frozenset()) -> list[tuple[str, bool]]:
    return [(each.text, each.lasting) for each in hindrances(told, broker, expected=ALL, before=before)]


WHOLE = partition(0, (1, 2, 3))


@pytest.mark.parametrize("broker", [1, 2, 3, None])
def test_a_whole_cluster_can_do_without_any_broker(broker: int | None) -> None:
    assert why(survey(WHOLE, partition(1, (2, 3), replicas=(2, 3)), min_isr=1), broker) == []


@pytest.mark.parametrize("broker", [1, 3, None])
def test_a_replica_that_lags_is_waited_for_whoever_is_next(broker: int | None) -> None:
    found = why(survey(WHOLE, partition(1, (1, 2)), min_isr=1), broker)
    assert found == [("1 partition is not in sync everywhere: t-1", False)]


def test_min_insync_replicas_has_to_hold_without_the_broker() -> None:
    behind = ("1 partition is not in sync everywhere: t-0", False)
    told = survey(partition(0, (1, 2)))
    assert why(told, 1) == [
        behind,
        ("1 partition would be under min.insync.replicas with broker 1 stopped: t-0", False),
    ]
    assert why(told, 3) == [behind], "it is not in the ISR"


@pytest.mark.parametrize(
    ("replicas", "min_isr", "broker", "lasting"),
    [
        ((1, 2), 2, 1, True),  # waiting is no use
        ((1, 2), 2, 3, False),
        ((1, 2), 1, 1, False),
        ((1,), 1, 1, True),
        ((1,), 2, 1, True),  # as the leader goes by it, one is needed
        ((1, 2), 3, 1, True),
        ((1, 2, 3), 3, 2, True),
    ],
)
def test_too_few_replicas_last(replicas: tuple[int, ...], min_isr: int, broker: int, lasting: bool) -> None:
    found = why(survey(partition(0, replicas, replicas=replicas), min_isr=min_isr), broker)
    text = f"1 partition has too few other replicas for min.insync.replicas while broker {broker} is stopped: t-0"
    assert found == ([(text, True)] if lasting else [])


def test_a_replica_that_is_being_made_is_not_waited_for() -> None:
    told = survey(partition(0, (1, 2)), min_isr=1)
    assert why(replace(told, adding={TopicPartition("t", 0): frozenset({3})}), 3) == []


def test_a_directory_that_has_died_is_told_with_its_reason() -> None:
    gone = disk("/d", "offline", TopicPartition("t", 0), reason="log dir /d: [Errno 5] Input/output error")
    told = survey(partition(0, (1, 3)), disks={2: gone})
    assert bad_directories(survey(WHOLE)) == frozenset()
    assert died(told, frozenset()) == ("broker 2: log directory /d is offline: [Errno 5] Input/output error",)
    assert next(text for text, _ in why(told, 3)) == died(told, frozenset())[0]


def test_what_was_dead_from_the_beginning_is_nobodys_fault() -> None:
    """Its replicas are not waited for, and do not count as ones that are left."""
    gone = disk("/d", "offline", TopicPartition("t", 0), TopicPartition("t", 1))
    told = survey(partition(0, (1, 3)), partition(1, (), replicas=(2,)), min_isr=1, disks={2: gone})
    before = bad_directories(told)
    assert before == {BadDirectory(broker=2, log_dir="/d", state="offline")}
    assert (died(told, before), why(told, 1, before), why(told, 2, before)) == ((), [], [])
    two = replace(told, min_isr={"t": 2})
    assert [lasting for _, lasting in why(two, 1, before)] == [True], "1 and 3 are needed, as long as 2 is dead"
    assert len(why(told, 1)) > 1 and died(told, frozenset())


@pytest.mark.parametrize("state", ["full", "degraded", "silent", "loading"])
def test_a_directory_that_has_become_worse_is_waited_for(state: str) -> None:
    told = survey(WHOLE, disks={3: disk("/d", state)})
    assert died(told, frozenset()) == ()
    assert why(told, 1) == [(f"broker 3: log directory /d is {state}", False)]
    assert bad_directories(told) == (
        set() if state == "loading" else {BadDirectory(broker=3, log_dir="/d", state=state)}
    )


def test_brokers_that_are_missing_or_silent_and_no_controller_hinder() -> None:
    told = survey(WHOLE)
    bad = TopicView(name="a", topic_id=None, internal=False, partitions=(), error=LeaderNotAvailableError("why"))
    view = replace(told.view, controller_id=None, topics={**told.view.topics, "a": bad})
    found = why(replace(told, alive=frozenset({1, 2}), disks={1: told.disks[1], 2: "refused"}, view=view), 1)
    assert found == [
        ("the cluster has no controller", False),
        ("broker 3 is missing", False),
        ("broker 2 does not answer: refused", False),
        ("topic a: why", False),
    ]
    leaderless = partition(0, ())
    assert why(survey(leaderless), 1) == [("1 partition has no leader: t-0", False)]


def test_the_controller_is_the_last() -> None:
    left = {1, 2, 3}
    order = []
    while (broker := next_broker(left, 1)) is not None:
        order.append(broker)
        left.discard(broker)
    assert order == [2, 3, 1]
    assert (next_broker({2, 3}, None), next_broker((), 1)) == (2, None)
