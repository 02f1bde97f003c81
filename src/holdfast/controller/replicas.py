"""Replicas of brokers that live: their disks fail, fill, hang and come back (KIP-112, KIP-18).

Owns what follows for the partitions: who leads, who leaves the ISR. Which directory a replica is in is its broker's
business; what it tells by its heartbeats (``turns``) and by its answers to LeaderAndIsr is the same event here.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from holdfast.controller.brokers import adapt_isr, check_epoch, elect_somebody
from holdfast.controller.election import Loss
from holdfast.controller.events import Decision, ReplicaEnds, ReplicasOffline, ReplicasOnline, ReplicaTurns
from holdfast.controller.state import ControllerState
from holdfast.metadata.image import PartitionImage, TopicImage
from holdfast.metadata.records import MetadataRecord, NoChange, PartitionChangeRecord
from holdfast.model.fates import ReplicaTurn
from holdfast.model.types import BrokerId, TimestampMs, TopicPartition


def turns(state: ControllerState, event: ReplicaTurns, now_ms: TimestampMs) -> Decision:
    """What a broker's heartbeat tells of its replicas, each at most once in ``event.turns``."""
    error = check_epoch(state, event.broker_id, event.broker_epoch)
    if error is not None:
        return Decision(reply=error)
    newest = state.newest_turns.get(event.broker_id, (-1, -1))
    told = (event.broker_epoch, event.number)
    if event.number >= 0 and told <= newest:
        return Decision()
    state.newest_turns[event.broker_id] = told
    by_turn: dict[ReplicaTurn, list[TopicPartition]] = {}
    for tp, turn in dict(event.turns).items():
        by_turn.setdefault(turn, []).append(tp)
    records: list[MetadataRecord] = []
    for turn in (ReplicaTurn.RELIEVED, ReplicaTurn.FAILED, *_BACK):
        for tp in by_turn.get(turn, ()):
            found = _find(state, event.broker_id, tp)
            if found is not None:
                state.strained.discard(event.broker_id, (found[0].topic_id, tp.partition))
                if turn is ReplicaTurn.FAILED:
                    state.returned.discard(event.broker_id, (found[0].topic_id, tp.partition))
    failed = by_turn.get(ReplicaTurn.FAILED)
    if failed:
        offline = ReplicasOffline(broker_id=event.broker_id, partitions=tuple(failed))
        records += replicas_offline(state, offline, now_ms).records
    for tp in by_turn.get(ReplicaTurn.STRAINED, ()):
        records += _strained(state, event.broker_id, tp)
    back = False
    for turn, total in _BACK.items():
        for tp in by_turn.get(turn, ()):
            back = True
            records += _back(state, event.broker_id, tp, total=total)
    return Decision(records=tuple(records), resend_to=(event.broker_id,) if back else ())


_BACK: Final = {ReplicaTurn.BACK_DAMAGED: False, ReplicaTurn.BACK_LOST: True}


def _find(state: ControllerState, broker: BrokerId, tp: TopicPartition) -> tuple[TopicImage, PartitionImage] | None:
    topic = state.image.topics.get(tp.topic)
    partition = None if topic is None else topic.partitions.get(tp.partition)
    if topic is None or partition is None or broker not in partition.replicas:
        return None
    return topic, partition


def _strained(state: ControllerState, broker: BrokerId, tp: TopicPartition) -> Iterator[MetadataRecord]:
    """It had better not lead, nor be waited for, as long as there is somebody else in the ISR. Until it is relieved it
    does not come back: it may have all there is, and the next write would wait for it."""
    found = _find(state, broker, tp)
    if found is None:
        return
    topic, partition = found
    state.strained.add(broker, [(topic.topic_id, tp.partition)])
    if broker not in partition.isr:
        return
    is_alive = state.alive(topic.topic_id, tp.partition, without=broker)
    if any(is_alive(other) and state.heard_of(other) for other in partition.isr):
        change = adapt_isr(state, topic, tp.partition, partition, is_alive, unclean=False)
        if change is not None:
            yield change


def _back(state: ControllerState, broker: BrokerId, tp: TopicPartition, *, total: bool) -> Iterator[MetadataRecord]:
    """It can be used again, without what was not flushed: it stands for nothing until it has caught up (H-07).

    Its leader begins a new epoch: what it knows of this follower is what the one before had, and a fetch of that one
    may still be under way; the new one would be taken into the ISR for it. Told again it changes nothing, unless it
    has joined the ISR in between; then it leaves it once more.
    """
    found = _find(state, broker, tp)
    if found is None:
        return
    topic, partition = found
    replica = (topic.topic_id, tp.partition)
    was_offline = state.offline.discard(broker, replica)
    is_news = not state.returned.holds(broker, *replica)
    state.returned.add(broker, [replica])
    change = None
    if broker in (*partition.isr, *partition.elr, *partition.last_known_elr):
        change = adapt_isr(
            state, topic, tp.partition, partition, state.alive(topic.topic_id, tp.partition),
            unclean=False, loss=Loss(broker=broker, total=total),
        )  # fmt: skip
    if change is None and (was_offline or is_news):
        change = PartitionChangeRecord(partition=tp.partition, topic_id=topic.topic_id)  # all brokers are to hear it
    if change is not None:
        if isinstance(change.leader, NoChange) and partition.leader not in (None, broker):
            change = replace(change, leader=partition.leader)
        yield change


def replicas_online(state: ControllerState, event: ReplicasOnline, now_ms: TimestampMs) -> Decision:
    """An answer that called them offline was old: the broker uses them. Everybody hears it; and where nobody leads,
    perhaps since that answer, somebody can now."""
    records: list[MetadataRecord] = []
    for tp in event.partitions:
        found = _find(state, event.broker_id, tp)
        if found is None or not state.offline.discard(event.broker_id, (found[0].topic_id, tp.partition)):
            continue
        topic, partition = found
        change: MetadataRecord | None = None
        if partition.leader is None:
            is_alive = state.alive(topic.topic_id, tp.partition)
            change = elect_somebody(state, topic, tp.partition, partition, is_alive)
        records.append(change or PartitionChangeRecord(partition=tp.partition, topic_id=topic.topic_id))
    return Decision(records=tuple(records))


def replicas_offline(state: ControllerState, event: ReplicasOffline, now_ms: TimestampMs) -> Decision:
    """Replicas of a live broker went away with their log dir: others lead, everybody is told (K112-25, -26)."""
    lost = []
    for tp in dict.fromkeys(event.partitions):
        found = _find(state, event.broker_id, tp)
        if found is not None and not state.offline.holds(event.broker_id, found[0].topic_id, tp.partition):
            lost.append((found[0], tp.partition, found[1]))
    state.offline.add(event.broker_id, ((topic.topic_id, number) for topic, number, _ in lost))
    records: list[MetadataRecord] = []
    for topic, number, partition in lost:
        change = adapt_isr(
            state, topic, number, partition, state.alive(topic.topic_id, number),
            unclean=state.unclean_allowed(topic.name),
        )  # fmt: skip
        # Also where it led nothing and was in no ISR, brokers must hear that the replica is offline; a change of
        # nothing but the partition epoch makes them.
        records.append(change or PartitionChangeRecord(partition=number, topic_id=topic.topic_id))
    return Decision(records=tuple(records))


def replica_ends(state: ControllerState, event: ReplicaEnds, now_ms: TimestampMs) -> Decision:
    """How far a broker's logs go that nobody leads: perhaps it is known of all now, and the longest can lead."""
    records = []
    for (name, number), leader_epoch, end in event.ends:
        topic = state.image.topics.get(name)
        partition = None if topic is None else topic.partitions.get(number)
        if topic is None or partition is None or partition.leader is not None or partition.leader_epoch != leader_epoch:
            continue
        state.ends.setdefault((topic.topic_id, number), {})[event.broker_id] = end
        change = elect_somebody(state, topic, number, partition, state.alive(topic.topic_id, number))
        if change is not None:
            records.append(change)
    return Decision(records=tuple(records))
