"""Who leads, in how many steps, and who is told: the rows of the replication design that one controller decides."""

from __future__ import annotations

import itertools
import random
from typing import Any
from uuid import UUID

import pytest

from holdfast.controller import broadcast, events
from holdfast.controller.controller import Controller
from holdfast.controller.settings import ControllerSettings
from holdfast.metadata.image import ClusterDelta, ClusterImage, PartitionImage
from holdfast.metadata.records import NO_CHANGE, PartitionChangeRecord
from holdfast.model.config import BrokerConfig
from holdfast.model.errors import HoldfastError
from holdfast.model.listeners import Endpoints

ALL = (1, 2, 3)


class Cluster:
    """A controller whose decisions are recorded at once."""

    def __init__(self, brokers: int = 3, **settings: Any) -> None:
        self.settings = ControllerSettings(**settings)
        self.controller = Controller(ClusterImage.empty("c"), self.settings, random.Random(7))
        self.now_ms = 0
        self.records: list[Any] = []
        """Of the last event."""
        self.delta: ClusterDelta | None = None
        for broker in range(1, brokers + 1):
            self.start(broker)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def ask(self, event: Any) -> Any:
        decision = self.controller.handle(event, self.now_ms)
        self.records = list(decision.records)
        self.delta = self.controller.replay(decision.records, self.image.next_offset)
        return decision.reply

    def start(self, broker: int) -> None:
        incarnation = UUID(int=broker * 1000 + self.image.next_offset)
        reply = self.ask(
            events.BrokerRegister(
                broker_id=broker, incarnation_id=incarnation, endpoints=Endpoints.one(f"h{broker}", 9)
            )
        )
        self.ask(events.BrokerHeartbeat(broker_id=broker, broker_epoch=reply.broker_epoch))

    def die(self, broker: int) -> None:
        epoch = self.image.brokers[broker].epoch
        self.ask(events.BrokerConnectionLost(broker_id=broker, broker_epoch=epoch, refused=True))

    def create(self, name: str, *lists: tuple[int, ...], **configs: str) -> None:
        new = events.TopicToCreate(
            name=name,
            assignments=tuple(enumerate(lists)),
            configs=tuple((key.replace("_", "."), value) for key, value in configs.items()),
        )
        reply = self.ask(events.CreateTopics(topics=(new,)))
        assert reply.topics[0].error is None

    def isr(self, name: str, *members: int) -> None:
        """The leader proposes this one, and gets it."""
        assert self.propose(name, *members) is None

    def propose(self, name: str, *members: int) -> HoldfastError | None:
        """The leader proposes this ISR; what it is refused with."""
        topic, p = self.image.topics[name], self.partition(name)
        assert p.leader is not None
        state = events.AlterPartitionState(
            topic_id=topic.topic_id, partition=0, leader_epoch=p.leader_epoch, partition_epoch=p.partition_epoch,
            isr=tuple((member, None) for member in members),
        )  # fmt: skip
        epoch = self.image.brokers[p.leader].epoch
        reply = self.ask(events.AlterPartition(broker_id=p.leader, broker_epoch=epoch, partitions=(state,)))
        error: HoldfastError | None = reply.partitions[0].error
        return error

    def partition(self, name: str, number: int = 0) -> PartitionImage:
        found = self.image.partition(name, number)
        assert found is not None
        return found

    def told(self) -> dict[int, list[Any]]:
        """What the last event makes each broker hear."""
        assert self.delta is not None
        plan = broadcast.plan(self.image, self.delta, offline=self.controller.offline_replicas())
        return broadcast.build_requests(self.image, plan, 1, 1)


def roles(requests: list[Any]) -> set[tuple[str, int]]:
    """The partitions for which a broker is told a role."""
    return {
        (topic.topic_name, p.partition_index)
        for request in requests
        if type(request).__name__ == "LeaderAndIsrRequest"
        for topic in request.topic_states
        for p in topic.partition_states
    }


@pytest.mark.parametrize("replicas", list(itertools.permutations(ALL)))
def test_R_23_the_winner_is_in_the_isr_and_the_preferred_one_comes_first(replicas: tuple[int, ...]) -> None:
    for size in (2, 3):
        for isr in itertools.combinations(replicas, size):
            if replicas[0] not in isr:
                continue
            cluster = Cluster()
            cluster.create("t", replicas)
            cluster.isr("t", *isr)
            cluster.die(replicas[0])
            after = cluster.partition("t")
            assert after.leader == next(b for b in replicas[1:] if b in isr)
            assert set(after.isr) == set(isr) - {replicas[0]}


def test_R_25_nobody_waits_for_the_isr_that_is_left_since_all_of_it_has_what_is_committed() -> None:
    """One record takes the dead leader out of the ISR and names the next one: there is no time between."""
    cluster = Cluster()
    cluster.create("t", ALL)
    cluster.die(1)
    [change] = [r for r in cluster.records if isinstance(r, PartitionChangeRecord)]
    assert (change.leader, change.isr) == (2, (2, 3))


def test_R_26_a_new_partition_is_led_at_once() -> None:
    """Its first ISR is every live replica that it was given, so it is never empty."""
    cluster = Cluster()
    cluster.ask(events.CreateTopics(topics=(events.TopicToCreate(name="t", partitions=9, replication_factor=3),)))
    for number in range(9):
        p = cluster.partition("t", number)
        assert p.leader == p.replicas[0]
        assert p.isr == p.replicas
    cluster.die(2)
    cluster.create("u", (2, 3, 1))
    assert (cluster.partition("u").leader, cluster.partition("u").isr) == (3, (3, 1))


def test_R_29_the_sets_of_replicas_keep_their_relation_after_every_event() -> None:
    """All replicas are those in sync and those catching up, none is both; who leads is in sync and alive."""
    rng = random.Random(29)
    cluster = Cluster(4, min_insync_replicas=2)
    cluster.create("t", (1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2))
    sizes = set()
    for _ in range(400):
        broker = rng.randint(1, 4)
        match rng.randrange(3):
            case 0:
                cluster.die(broker)
            case 1:
                cluster.start(broker)
            case 2 if cluster.partition("t").leader is not None:
                p = cluster.partition("t")
                alive = [b for b in p.replicas if b == p.leader or cluster.image.brokers[b].may_lead]
                cluster.isr("t", *alive[: rng.randint(alive.index(p.leader) + 1, 3)])
        for _, p in cluster.image.topics["t"].numbered():
            catching_up = set(p.replicas) - set(p.isr)
            assert len(p.isr) + len(catching_up) == len(p.replicas) == 3
            assert set(p.elr) <= catching_up
            assert p.leader is None or (p.leader in p.isr and cluster.image.brokers[p.leader].may_lead)
            sizes.add((len(p.isr), len(p.elr), p.leader is None))
    # With two enough, whoever is third is of no account; below that somebody outside is counted on.
    assert sizes == {(3, 0, False), (2, 0, False), (1, 1, False), (1, 1, True)}


def test_R_31_a_role_is_told_to_those_who_have_it_and_the_rest_to_everybody() -> None:
    cluster = Cluster(4)
    cluster.create("t", (1, 2), (2, 3), (3, 1))
    told = cluster.told()
    assert {broker: roles(requests) for broker, requests in told.items()} == {
        1: {("t", 0), ("t", 2)}, 2: {("t", 0), ("t", 1)}, 3: {("t", 1), ("t", 2)}, 4: set(),
    }  # fmt: skip
    for requests in told.values():
        [metadata] = [r for r in requests if type(r).__name__ == "UpdateMetadataRequest"]
        assert [len(topic.partition_states) for topic in metadata.topic_states] == [3]
    cluster.die(2)
    assert {broker: roles(requests) for broker, requests in cluster.told().items()} == {
        1: {("t", 0)}, 2: {("t", 0), ("t", 1)}, 3: {("t", 1)}, 4: set(),
    }  # fmt: skip


def test_R_32_the_preferred_replica_has_a_head_start_where_nobody_leads() -> None:
    for wait_ms, leader in ((0, 2), (500, None)):
        config = BrokerConfig.parse({"node.id": "1", "leader.election.wait.ms": str(wait_ms)})
        assert ControllerSettings.of(config).election_wait_ms == wait_ms
        cluster = Cluster(2, election_wait_ms=wait_ms, min_insync_replicas=2)
        cluster.create("t", (1, 2))
        cluster.die(2)
        cluster.die(1)
        cluster.start(2)
        assert cluster.partition("t").leader == leader
    cluster.now_ms += 499
    assert cluster.controller.due(cluster.now_ms) == []
    cluster.now_ms += 1
    assert cluster.controller.next_deadline_ms() == cluster.now_ms
    for event in cluster.controller.due(cluster.now_ms):
        cluster.ask(event)
    assert cluster.partition("t").leader == 2


def test_R_33_a_broker_that_registers_is_told_of_all_its_replicas_and_no_others() -> None:
    cluster = Cluster()
    cluster.create("t", (1, 2), (2, 3), (3, 1), (1, 3))
    cluster.create("u", ALL)
    cluster.die(3)
    reply = cluster.ask(
        events.BrokerRegister(broker_id=3, incarnation_id=UUID(int=77), endpoints=Endpoints.one("elsewhere", 8))
    )
    image = cluster.image
    assert (image.brokers[3].epoch, image.brokers[3].endpoints.for_brokers.host, image.brokers[3].fenced) == (
        reply.broker_epoch, "elsewhere", True,
    )  # fmt: skip
    requests = broadcast.full_state_requests(image, 3, cluster.controller.offline_replicas(), 1, 1)
    assert roles(requests) == {("t", 1), ("t", 2), ("t", 3), ("u", 0)}
    assert {r.broker_epoch for r in requests} == {reply.broker_epoch}


def test_H_11_a_failover_is_one_record_for_each_partition_and_not_one_for_each_replica() -> None:
    cluster = Cluster(4)
    lists = [tuple((n + i) % 4 + 1 for i in range(3)) for n in range(400)]
    cluster.create("t", *lists)
    held = [n for n, replicas in enumerate(lists) if 1 in replicas]
    cluster.die(1)
    changes = [r for r in cluster.records if isinstance(r, PartitionChangeRecord)]
    assert sorted(r.partition for r in changes) == held
    assert len(cluster.records) == len(held) + 1
    led = [r for r in changes if r.leader is not NO_CHANGE]
    assert sorted(r.partition for r in led) == [n for n, replicas in enumerate(lists) if replicas[0] == 1]
    # Each broker hears of it in one request.
    for requests in cluster.told().values():
        assert len(requests) <= 2


def test_H_20_a_new_controller_says_that_a_replica_is_new_if_nobody_may_have_said_it() -> None:
    """The one before it died between the record and the order; the broker has a bad directory, so it would not make
    a replica that it is told it should have."""
    cluster = Cluster()
    cluster.create("t", ALL)
    reign = Controller(cluster.image, cluster.settings, random.Random(1))
    reign.begin(0)
    for broker in ALL:
        requests = broadcast.full_state_requests(reign.image, broker, reign.offline_replicas(), 2, 2)
        [order] = [r for r in requests if type(r).__name__ == "LeaderAndIsrRequest"]
        assert [p.is_new for t in order.topic_states for p in t.partition_states] == [True]
    # That it changed, by the death of that controller to begin with, does not mean that anybody was told.
    assert is_new(cluster, 2) == [True]
    cluster.die(1)
    assert is_new(cluster, 2) == [True]
    # To a broker that starts later it is an old one: what it does not find may be on the directory that is bad.
    cluster.start(2)
    assert is_new(cluster, 2) == [False]


def is_new(cluster: Cluster, broker: int) -> list[bool]:
    requests = broadcast.full_state_requests(cluster.image, broker, cluster.controller.offline_replicas(), 2, 2)
    [order] = [r for r in requests if type(r).__name__ == "LeaderAndIsrRequest"]
    return [p.is_new for t in order.topic_states for p in t.partition_states]


def test_H_31_leadership_moves_to_the_preferred_replica_in_one_step() -> None:
    cluster = Cluster()
    cluster.create("t", ALL)
    cluster.die(1)
    cluster.start(1)
    cluster.isr("t", 2, 3, 1)
    before = cluster.partition("t")
    cluster.ask(events.ElectLeaders(partitions=(("t", 0),)))
    [change] = cluster.records
    assert change.leader == 1
    after = cluster.partition("t")
    assert (after.leader, after.leader_epoch, after.isr) == (1, before.leader_epoch + 1, before.isr)
    told = [
        p.leader
        for requests in cluster.told().values()
        for request in requests
        for topic in request.topic_states
        for p in topic.partition_states
    ]
    assert set(told) == {1}  # nobody hears of a time without a leader


def test_H_26_only_where_the_topic_allows_it_and_then_as_one_that_recovers() -> None:
    cluster = Cluster()
    cluster.create("strict", (1, 2))
    cluster.create("loose", (1, 2), unclean_leader_election_enable="true")
    for name in ("strict", "loose"):
        cluster.isr(name, 1)
    cluster.die(1)
    strict, loose = cluster.partition("strict"), cluster.partition("loose")
    assert (strict.leader, strict.isr, strict.recovery_state) == (None, (1,), 0)
    assert (loose.leader, loose.isr, loose.recovery_state) == (2, (2,), 1)
    [order] = [r for r in cluster.told()[2] if type(r).__name__ == "LeaderAndIsrRequest"]
    assert {t.topic_name: [p.leader_recovery_state for p in t.partition_states] for t in order.topic_states} == {
        "loose": [1], "strict": [0],
    }  # fmt: skip
    # It says that it is ready; it may not say so of a larger ISR before, nor fall back into recovery.
    cluster.start(1)
    for isr, recovered, refused in (((2, 1), False, True), ((2,), True, False), ((2,), False, True)):
        p = cluster.partition("loose")
        state = events.AlterPartitionState(
            topic_id=cluster.image.topics["loose"].topic_id, partition=0, leader_epoch=p.leader_epoch,
            partition_epoch=p.partition_epoch, isr=tuple((b, None) for b in isr), recovered=recovered,
        )  # fmt: skip
        epoch = cluster.image.brokers[2].epoch
        reply = cluster.ask(events.AlterPartition(broker_id=2, broker_epoch=epoch, partitions=(state,)))
        assert (reply.partitions[0].error is not None) == refused
        assert reply.partitions[0].recovering is False
    assert cluster.partition("loose").recovery_state == 0
    cluster.isr("loose", 2, 1)


@pytest.mark.parametrize("own", [None, 2])
def test_R_29_a_controller_that_takes_over_finds_who_is_dead_in_an_isr(own: int | None) -> None:
    """The one before had heard of nobody else of it, and so left it as it was; found by the property test."""
    cluster = Cluster()
    cluster.create("t", ALL)
    for _ in range(2):
        cluster.controller = Controller(cluster.image, cluster.settings, random.Random(8))
        epoch = None if own is None or cluster.partition("t").leader == 1 else cluster.image.brokers[own].epoch
        cluster.controller.begin(0, own_epoch=epoch)
        if not cluster.image.brokers[1].fenced:
            cluster.die(1)
            assert cluster.partition("t").isr == ALL, "2 and 3 may be dead, too"
    cluster.ask(events.BrokerHeartbeat(broker_id=2, broker_epoch=cluster.image.brokers[2].epoch))
    p = cluster.partition("t")
    assert (p.leader, p.isr) == (2, (2, 3))


@pytest.mark.parametrize("leader_lives", [True, False])
def test_a_proposal_before_its_leader_was_heard_of_keeps_the_dead_until_that_is_settled(leader_lives: bool) -> None:
    """Somebody who was heard of comes into an ISR that is left as it was; found by the property test."""
    cluster = Cluster()
    cluster.create("t", ALL)
    cluster.isr("t", 1, 3)
    cluster.controller = Controller(cluster.image, cluster.settings, random.Random(8))
    cluster.controller.begin(0)
    cluster.die(3)
    assert cluster.partition("t").isr == (1, 3), "1 may be dead, too"
    cluster.ask(events.BrokerHeartbeat(broker_id=2, broker_epoch=cluster.image.brokers[2].epoch))
    cluster.isr("t", 1, 2, 3)
    if leader_lives:
        cluster.ask(events.BrokerHeartbeat(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch))
    else:
        cluster.die(1)
    p = cluster.partition("t")
    assert (p.leader, p.isr) == ((1, (1, 2)) if leader_lives else (2, (2,)))
