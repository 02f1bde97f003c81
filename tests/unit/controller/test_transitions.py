"""The tables of the controller's state machines, and that it does what they say.

A search through everything that can happen to one partition on two brokers: from every state that can be reached,
every event. What the events lead to is read off the image; by what right a new leader leads is told here by the sets
of replicas before, not by the code that chose it.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from holdfast.controller import events
from holdfast.controller.controller import Controller
from holdfast.controller.settings import ControllerSettings
from holdfast.controller.transitions import (
    BROKER,
    LEADERSHIP,
    BrokerStanding,
    Ground,
    Leadership,
    Sign,
    leadership,
    standing,
)
from holdfast.metadata.image import ClusterImage, PartitionImage
from holdfast.metadata.records import RecoveryState
from holdfast.model.fates import ReplicaFate, ReplicaFates
from holdfast.model.listeners import Endpoints

BROKERS = (1, 2)
SETTINGS = ControllerSettings(min_insync_replicas=2)


class Step(NamedTuple):
    """Something that happens; ``sign``: what it says of ``broker``."""

    event: Any
    broker: int | None = None
    sign: Sign | None = None
    loses: bool = False
    loses_all: bool = False


def partition_of(image: ClusterImage) -> PartitionImage:
    found = image.partition("t", 0)
    assert found is not None
    return found


def key(image: ClusterImage) -> Any:
    """What makes two situations the same: epochs and incarnations do not."""
    p = partition_of(image)
    brokers = tuple(standing(image.brokers.get(b)) for b in BROKERS)
    return p.leader, p.isr, p.elr, p.last_known_elr, p.recovery_state, brokers


def after(image: ClusterImage, event: Any) -> ClusterImage:
    """The image when the event is decided and recorded."""
    controller = Controller(image, SETTINGS, random.Random(7))
    controller.replay(controller.handle(event, 0).records, image.next_offset)
    return controller.image


def registration(broker: int, incarnation: int, fate: ReplicaFate = ReplicaFate.KEPT) -> events.BrokerRegister:
    return events.BrokerRegister(
        broker_id=broker,
        incarnation_id=UUID(int=incarnation),
        endpoints=Endpoints.one(f"h{broker}", 9),
        fates=ReplicaFates(rest=fate),
    )


def of_brokers(image: ClusterImage) -> Iterator[Step]:
    """What can be heard of brokers."""
    for b in BROKERS:
        for fate in (ReplicaFate.KEPT, ReplicaFate.DAMAGED, ReplicaFate.LOST):
            event = registration(b, image.next_offset + 100, fate)
            yield Step(event, b, Sign.REGISTERED, fate is not ReplicaFate.KEPT, fate is ReplicaFate.LOST)
        known = image.brokers.get(b)
        epoch = 0 if known is None else known.epoch
        beat: dict[str, Any] = {"broker_id": b, "broker_epoch": epoch}
        yield Step(events.BrokerHeartbeat(**beat), b, Sign.HEARTBEAT)
        yield Step(events.BrokerHeartbeat(**beat, want_shutdown=True), b, Sign.WANT_SHUTDOWN)
        yield Step(events.BrokerHeartbeat(**beat, want_fence=True), b, Sign.WANT_FENCE)
        yield Step(events.BrokerConnectionLost(**beat, refused=True), b, Sign.DEAD)
        yield Step(events.UnregisterBroker(broker_id=b), b, Sign.UNREGISTERED)


def of_the_partition(image: ClusterImage) -> Iterator[Step]:
    """What its leader, or a person, can ask."""
    for unclean in (False, True):
        yield Step(events.ElectLeaders(partitions=(("t", 0),), unclean=unclean))
    p = partition_of(image)
    if p.leader is None:
        return
    for isr, recovered in itertools.product(((p.leader,), BROKERS), (False, True)):
        proposal = events.AlterPartitionState(
            topic_id=image.topics["t"].topic_id, partition=0, leader_epoch=p.leader_epoch,
            partition_epoch=p.partition_epoch, isr=tuple((b, None) for b in isr), recovered=recovered,
        )  # fmt: skip
        epoch = image.brokers[p.leader].epoch
        yield Step(events.AlterPartition(broker_id=p.leader, broker_epoch=epoch, partitions=(proposal,)))


def ground(p: PartitionImage, q: PartitionImage, step: Step) -> Ground | None:
    """By what right ``q`` is led as it is; None when nobody was elected."""
    if q.leader is None:
        return Ground.NOBODY
    if q.leader == p.leader:
        said_ready = p.recovery_state is RecoveryState.RECOVERING and q.recovery_state is RecoveryState.RECOVERED
        return Ground.READY if said_ready else None
    lost = {step.broker} if step.loses else set()
    in_sync, eligible = set(p.isr) - lost, set(p.elr) - lost
    if q.leader in in_sync:
        return Ground.IN_SYNC
    if q.leader in eligible:
        return Ground.ELIGIBLE
    # Those that were damaged count when nobody else does, unless one of them has just lost more and is not back yet.
    counts = not in_sync and not eligible and not (step.loses and step.broker in (*p.isr, *p.elr, *p.last_known_elr))
    return Ground.LAST_KNOWN if counts and q.leader in p.last_known_elr else Ground.UNCLEAN


def cluster(unclean: str) -> ClusterImage:
    image = ClusterImage.empty("c")
    for b in BROKERS:
        image = after(image, registration(b, b))
        image = after(image, events.BrokerHeartbeat(broker_id=b, broker_epoch=image.brokers[b].epoch))
    new = events.TopicToCreate(
        name="t", assignments=((0, BROKERS),), configs=(("unclean.leader.election.enable", unclean),)
    )
    return after(image, events.CreateTopics(topics=(new,)))


def search(unclean: str) -> tuple[set[tuple[BrokerStanding, Sign]], set[tuple[Leadership, Ground]]]:
    """Everything that is reached; each step must be in the tables."""
    start = cluster(unclean)
    waiting, known = deque([start]), {key(start)}
    signs, grounds = set(), set()
    while waiting:
        image = waiting.popleft()
        p = partition_of(image)
        for step in (*of_brokers(image), *of_the_partition(image)):
            if step.sign is Sign.UNREGISTERED and len(image.brokers) == 1:
                continue
            then = after(image, step.event)
            q = partition_of(then)
            if step.sign is not None and step.broker is not None:
                said = standing(image.brokers.get(step.broker)), step.sign
                assert standing(then.brokers.get(step.broker)) is BROKER.moves.get(said, said[0]), step
                signs.add(said)
            by = ground(p, q, step)
            if by is None:
                assert leadership(q) is leadership(p), step
            else:
                assert LEADERSHIP.moves.get((leadership(p), by)) is leadership(q), (p, step, q)
                grounds.add((leadership(p), by))
            if key(then) not in known:
                known.add(key(then))
                waiting.append(then)
    return signs, grounds


def test_brokers_and_leaders_go_by_their_tables_whatever_happens_in_whatever_order() -> None:
    (signs, careful), (_, careless) = search("false"), search("true")
    assert set(BROKER.moves) <= signs
    assert careful | careless == set(LEADERSHIP.moves)


def test_every_state_of_brokers_and_partitions_is_in_its_table() -> None:
    assert set(BROKER.states()) == set(BrokerStanding)
    assert set(LEADERSHIP.states()) == set(Leadership)
    assert {sign for _, sign in BROKER.moves} == set(Sign)
    assert {by for _, by in LEADERSHIP.moves} == set(Ground)


@pytest.mark.parametrize("state", [Leadership.LED, Leadership.WAITING])
def test_what_is_not_in_a_table_is_refused_by_name(state: Leadership) -> None:
    with pytest.raises(AssertionError, match=f"{state.name}: expected no READY there"):
        LEADERSHIP.after(state, Ground.READY)
