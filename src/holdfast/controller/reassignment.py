"""Replicas move from broker to broker: AlterPartitionReassignments (KIP-455), and when a reassignment is over.

    replicas          the target, in its order, then those that go
    adding, removing  which of these come and which go; both empty: nothing is under way

It begins with a change of the metadata, so that brokers make the replicas that come (as new ones, on any good
directory, K112-72). It is over when every replica of the target is in the ISR, which is when its leader proposes the
last one: a replica that cannot be made, or whose broker or disk is dead, keeps it open and the old ones where they are
(K112-70). Then those that go are stopped and deleted (K112-71). Each of the two is one record: no crash is in between
(R-43). A new target, or a cancel, takes the partition back to the replicas that it had first (H-30).

Whoever loses a replica is forgotten by a new leader epoch: a fetch of it that is still on its way must not count for
one that is made there later.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from holdfast.controller.election import elect, eligible_among
from holdfast.controller.events import (
    AlterReassignments,
    AlterReassignmentsReply,
    Decision,
    ListReassignments,
    ListReassignmentsReply,
    Ongoing,
    Reassignment,
    ReassignmentResult,
)
from holdfast.controller.state import ControllerState
from holdfast.controller.transitions import LEADERSHIP, Ground, leadership
from holdfast.metadata.image import PartitionImage, TopicImage
from holdfast.metadata.records import NO_CHANGE, MetadataRecord, NoChange, PartitionChangeRecord
from holdfast.model.errors import (
    HoldfastError,
    IneligibleReplicaError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import BrokerId, TimestampMs, TopicPartition

_MAX_REPLICAS = 32767


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The replicas of a partition, and which of them come and go."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()


def alter(state: ControllerState, event: AlterReassignments, now_ms: TimestampMs) -> Decision:
    """Each partition is judged by itself; one result each, in their order."""
    asked = Counter((each.topic, each.partition) for each in event.partitions)
    records: list[MetadataRecord] = []
    results = []
    for each in event.partitions:
        error: HoldfastError | None = None
        try:
            if asked[each.topic, each.partition] > 1:
                raise InvalidRequestError(f"{TopicPartition(each.topic, each.partition)} is named more than once")
            records += _alter(state, each, event.may_change_factor)
        except HoldfastError as e:
            error = e
        results.append(ReassignmentResult(topic=each.topic, partition=each.partition, error=error))
    return Decision(records=tuple(records), reply=AlterReassignmentsReply(partitions=tuple(results)))


def _alter(state: ControllerState, wanted: Reassignment, may_change_factor: bool) -> Iterator[MetadataRecord]:
    topic = state.image.topics.get(wanted.topic)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"There is no topic {wanted.topic}")
    partition = topic.partitions.get(wanted.partition)
    if partition is None:
        raise UnknownTopicOrPartitionError(f"Topic {wanted.topic} has no partition {wanted.partition}")
    where = TopicPartition(topic.name, wanted.partition)
    before = tuple(r for r in partition.replicas if r not in partition.adding)
    if wanted.replicas is None:
        if not partition.is_reassigned:
            raise NoReassignmentInProgressError(f"{where} is not being reassigned")
        plan = _Plan(replicas=before)
    else:
        _check(state, where, wanted.replicas, partition)
        if not may_change_factor and len(wanted.replicas) != len(before):
            raise InvalidReplicationFactorError(
                f"{where} has {len(before)} replicas: expected as many, not {len(wanted.replicas)}"
            )
        plan = _planned(before, wanted.replicas)
    change = _change(state, topic, wanted.partition, partition, plan)
    if change is None:
        raise InvalidReplicaAssignmentError(
            f"{where}: of its old replicas {list(plan.replicas)} none that is alive has everything"
        )
    # What is only ordered anew, or has all it needs already, is over at once.
    after = _applied(partition, change)
    over = completion(state, topic, wanted.partition, after) if plan.adding or plan.removing else None
    if over is not None:
        change = _merged(partition, change, over)
    if _differs(partition, change):
        yield change


def _check(
    state: ControllerState, where: TopicPartition, replicas: tuple[BrokerId, ...], partition: PartitionImage
) -> None:
    if not replicas:
        raise InvalidReplicaAssignmentError(f"{where} is assigned to no broker: expected one or more")
    if len(set(replicas)) != len(replicas) or len(replicas) > _MAX_REPLICAS:
        raise InvalidReplicaAssignmentError(f"{where}: the assignment {list(replicas)} names a broker twice")
    for broker_id in replicas:
        broker = state.image.brokers.get(broker_id)
        if broker is None:
            raise InvalidReplicaAssignmentError(f"{where}: broker {broker_id} of the assignment is not registered")
        if broker.fully_cordoned and broker_id not in partition.replicas:
            raise IneligibleReplicaError(
                f"{where}: broker {broker_id} takes no replicas: all its log directories are cordoned"
            )


def _planned(before: tuple[BrokerId, ...], target: tuple[BrokerId, ...]) -> _Plan:
    removing = tuple(r for r in before if r not in target)
    return _Plan(
        replicas=(*target, *removing), adding=tuple(r for r in target if r not in before), removing=removing
    )


def completion(
    state: ControllerState, topic: TopicImage, number: int, partition: PartitionImage
) -> PartitionChangeRecord | None:
    """The end of a reassignment; None: not yet, or there is none."""
    if not partition.is_reassigned or not set(partition.target) <= set(partition.isr):
        return None
    return _change(state, topic, number, partition, _Plan(replicas=partition.target))


def _change(
    state: ControllerState, topic: TopicImage, number: int, partition: PartitionImage, plan: _Plan
) -> PartitionChangeRecord | None:
    """The partition with these replicas; None when nobody could lead it who has everything."""
    staying = set(plan.replicas)
    isr = tuple(r for r in partition.isr if r in staying)
    claims = tuple(r for r in (*partition.isr, *partition.elr) if r in staying)
    last_known = tuple(r for r in partition.last_known_elr if r in staying and r not in isr)
    leader: BrokerId | NoChange | None = NO_CHANGE
    if not staying.issuperset(partition.replicas):
        if not claims and (partition.isr or partition.elr or partition.last_known_elr):
            return None
        if partition.leader is not None:
            leader = partition.leader  # in a new epoch
        if partition.leader is not None and partition.leader not in isr:
            is_alive = state.alive(topic.topic_id, number)
            leader = elect(replace(partition, replicas=plan.replicas), is_alive, among=isr)
            if leader is None:
                return None
            LEADERSHIP.after(leadership(partition), Ground.IN_SYNC)
    return PartitionChangeRecord(
        partition=number,
        topic_id=topic.topic_id,
        replicas=plan.replicas,
        isr=isr,
        leader=leader,
        adding=plan.adding,
        removing=plan.removing,
        elr=eligible_among(plan.replicas, isr, state.min_isr(topic.name), claims),
        last_known_elr=last_known,
    )


def _applied(partition: PartitionImage, change: PartitionChangeRecord) -> PartitionImage:
    assert change.replicas is not None and change.isr is not None, "as _change makes it"
    return replace(
        partition,
        replicas=change.replicas,
        isr=change.isr,
        leader=partition.leader if isinstance(change.leader, NoChange) else change.leader,
        adding=change.adding or (),
        removing=change.removing or (),
        elr=change.elr or (),
        last_known_elr=change.last_known_elr or (),
    )


def _merged(
    partition: PartitionImage, first: PartitionChangeRecord, then: PartitionChangeRecord
) -> PartitionChangeRecord:
    """Two changes as one."""
    return then if not isinstance(then.leader, NoChange) else replace(then, leader=first.leader)


def _differs(partition: PartitionImage, change: PartitionChangeRecord) -> bool:
    after = _applied(partition, change)
    return after != partition or not isinstance(change.leader, NoChange)


# -- list ------------------------------------------------------------------------------------------------------


def ongoing(state: ControllerState, event: ListReassignments, now_ms: TimestampMs) -> Decision:
    """What is under way; of topics and partitions that are not there nothing is said."""
    found = []
    wanted: Mapping[str, tuple[int, ...]] | None = None if event.topics is None else dict(event.topics)
    for topic in state.image.sorted_topics():
        if wanted is not None and topic.name not in wanted:
            continue
        for number, partition in topic.numbered():
            if partition.is_reassigned and (wanted is None or number in wanted[topic.name]):
                found.append(
                    Ongoing(
                        topic=topic.name,
                        partition=number,
                        replicas=partition.replicas,
                        adding=partition.adding,
                        removing=partition.removing,
                    )
                )
    return Decision(reply=ListReassignmentsReply(partitions=tuple(found)))
