"""Replicas move from broker to broker: AlterPartitionReassignments (KIP-455), and when a reassignment is over.

    replicas          the target, in its order, then those that go
    adding, removing  which of these come and which go; both empty: nothing is under way

It begins with a change of the metadata, so that brokers make the replicas that come (as new ones, on any good
directory, K112-72). It is over when every replica of the target is in the ISR and alive, which is mostly when its
leader proposes the last one: a replica that cannot be made, or whose broker or disk is dead, keeps it open and the old
ones where they are (K112-70). Then those that go are stopped and deleted (K112-71). Each of the two is one record: no
crash is in between (R-43). A new target, or a cancel, begins from the replicas that the partition had first (H-30).

Whenever a replica comes or goes a new leader epoch begins. What is still on its way from before, a fetch of the replica
that went, the order to delete it, the order to make it, is told by that from what is meant for the one that is made
there later.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from holdfast.controller import cordon
from holdfast.controller.election import eligible_among
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
    PolicyViolationError,
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
    limit = state.settings.max_partitions_per_request
    if len(event.partitions) > limit:
        return Decision(
            reply=PolicyViolationError(f"{len(event.partitions)} partitions in one request, expected {limit} at most")
        )
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
        raise UnknownTopicOrPartitionError(f"Unable to find a topic named {wanted.topic}.")
    partition = topic.partitions.get(wanted.partition)
    if partition is None:
        raise UnknownTopicOrPartitionError(f"Unable to find partition {wanted.topic}:{wanted.partition}.")
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
                f"The replication factor is changed from {len(before)} to {len(wanted.replicas)}"
            )
        plan = _planned(before, wanted.replicas)
    change = _change(state, topic, wanted.partition, partition, plan)
    if change is None:
        raise InvalidReplicaAssignmentError(
            f"{where}: of {list(plan.replicas)} none that is alive has everything that others have, which would go"
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
        raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
    twice = [b for b, times in Counter(replicas).items() if times > 1]
    if twice:
        raise InvalidReplicaAssignmentError(
            f"The manual partition assignment includes the broker {twice[0]} more than once."
        )
    if len(replicas) > _MAX_REPLICAS:
        raise InvalidReplicaAssignmentError(f"{where}: {len(replicas)} replicas: expected {_MAX_REPLICAS} at most")
    for broker_id in replicas:
        broker = state.image.brokers.get(broker_id)
        if broker is None:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        refusal = cordon.refusal(state, broker)
        if refusal is not None and broker_id not in partition.replicas:
            raise IneligibleReplicaError(f"{where}: broker {broker_id} takes no replicas: {refusal}")


def _planned(before: tuple[BrokerId, ...], target: tuple[BrokerId, ...]) -> _Plan:
    removing = tuple(r for r in before if r not in target)
    return _Plan(replicas=(*target, *removing), adding=tuple(r for r in target if r not in before), removing=removing)


def completion(
    state: ControllerState, topic: TopicImage, number: int, partition: PartitionImage
) -> PartitionChangeRecord | None:
    """The end of a reassignment; None: not yet, or there is none.

    All of the target is in sync, alive, and was heard of in this reign: nothing is given up for one that may never come
    back, or with less.
    """
    if not partition.is_reassigned or partition.leader is None:
        return None
    if not all(r in partition.isr and _is_up(state, topic, number, r) for r in partition.target):
        return None
    return _change(state, topic, number, partition, _Plan(replicas=partition.target))


def finish(state: ControllerState) -> tuple[MetadataRecord, ...]:
    """The ends that have come by something else than a leader's proposal: somebody was heard of again, an election."""
    state.reassignments_may_end = False
    records = []
    for topic_id, number in sorted(state.reassigned):
        topic = state.image.topics[state.image.topic_names[topic_id]]
        change = completion(state, topic, number, topic.partitions[number])
        if change is not None:
            records.append(change)
    return tuple(records)


def _is_up(state: ControllerState, topic: TopicImage, number: int, broker: BrokerId) -> bool:
    return state.alive(topic.topic_id, number)(broker) and state.heard_of(broker)


def _change(
    state: ControllerState, topic: TopicImage, number: int, partition: PartitionImage, plan: _Plan
) -> PartitionChangeRecord | None:
    """The partition with these replicas; None when somebody would have to go who counts, and nobody who stays, has
    everything and is alive leads in his place."""
    staying = set(plan.replicas)
    gone = set(partition.replicas) - staying
    isr = tuple(r for r in partition.isr if r in staying)
    leader: BrokerId | NoChange | None = NO_CHANGE
    if gone or staying - set(partition.replicas):
        leader = partition.leader  # in a new epoch
    if gone and partition.leader is None and gone & {*partition.isr, *partition.elr, *partition.last_known_elr}:
        return None
    if gone and partition.leader is not None:
        candidates = (partition.leader, *plan.replicas)
        up = (r for r in candidates if r in isr and _is_up(state, topic, number, r))
        leader = next(up, None)
        if leader is None:
            return None
        if leader != partition.leader:
            LEADERSHIP.after(leadership(partition), Ground.IN_SYNC)
    claims = tuple(r for r in (*partition.isr, *partition.elr) if r in staying)
    return PartitionChangeRecord(
        partition=number,
        topic_id=topic.topic_id,
        replicas=plan.replicas,
        isr=isr,
        leader=leader,
        adding=plan.adding,
        removing=plan.removing,
        elr=eligible_among(plan.replicas, isr, state.min_isr(topic.name), claims),
        last_known_elr=tuple(r for r in partition.last_known_elr if r in staying and r not in isr),
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
