"""Leaders propose ISRs (AlterPartition), people ask for elections (ElectLeaders), time brings the preferred back.

A proposal is judged by epochs first (H-04), then by who may be in an ISR: unfenced, not draining, of the
incarnation that the leader saw, with its disk alive (H-05, H-06).
"""

from collections.abc import Sequence
from dataclasses import replace

from holdfast.controller.brokers import adapt_isr, check_epoch
from holdfast.controller.election import adapt, eligible, prefer
from holdfast.controller.events import (
    AlterPartition,
    AlterPartitionReply,
    AlterPartitionResult,
    AlterPartitionState,
    Decision,
    ElectionResult,
    ElectLeaders,
    ElectLeadersReply,
)
from holdfast.controller.reassignment import completion
from holdfast.controller.state import ControllerState
from holdfast.controller.transitions import LEADERSHIP, Ground, leadership
from holdfast.metadata.image import PartitionImage, TopicImage
from holdfast.metadata.records import MetadataRecord, PartitionChangeRecord, RecoveryState
from holdfast.model.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    FencedLeaderEpochError,
    HoldfastError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotControllerError,
    PreferredLeaderNotAvailableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import BrokerId, TimestampMs, TopicPartition

_LIMIT = 1000
"""Leaders that one round of automatic balance moves at most."""

_NOT_NEEDED = "Leader election not needed for topic partition."


def alter_partition(state: ControllerState, event: AlterPartition, now_ms: TimestampMs) -> Decision:
    """Each proposal is judged by itself."""
    stale = check_epoch(state, event.broker_id, event.broker_epoch)
    if stale is not None:
        return Decision(reply=stale)
    records: list[MetadataRecord] = []
    results = []
    for proposal in event.partitions:
        changes, result = _propose(state, event.broker_id, proposal)
        results.append(result)
        records += changes
    return Decision(records=tuple(records), reply=AlterPartitionReply(partitions=tuple(results)))


def _propose(
    state: ControllerState, broker_id: BrokerId, proposal: AlterPartitionState
) -> tuple[Sequence[PartitionChangeRecord], AlterPartitionResult]:
    """The change, and the end of a reassignment that waited for it: of that the leader hears by LeaderAndIsr."""
    name = state.image.topic_names.get(proposal.topic_id)
    if name is None:
        error: HoldfastError | None = UnknownTopicIdError(f"No topic has id {proposal.topic_id}")
        return (), _refused(proposal, error)
    topic = state.image.topics[name]
    partition = topic.partitions.get(proposal.partition)
    if partition is None:
        error = UnknownTopicOrPartitionError(f"Topic {name} has no partition {proposal.partition}")
        return (), _refused(proposal, error)
    error = _judge(state, broker_id, topic, partition, proposal)
    if error is not None:
        return (), _refused(proposal, error)
    isr = tuple(member for member, _ in proposal.isr)
    recovers = partition.recovery_state is RecoveryState.RECOVERING and proposal.recovered
    if recovers:
        LEADERSHIP.after(leadership(partition), Ground.READY)
    elr = eligible(partition, isr, state.min_isr(name))
    last_known = tuple(member for member in partition.last_known_elr if member not in isr)
    changes = isr != partition.isr or recovers or elr != partition.elr
    record = PartitionChangeRecord(
        partition=proposal.partition,
        topic_id=topic.topic_id,
        isr=None if isr == partition.isr else isr,
        recovery_state=RecoveryState.RECOVERED if recovers else None,
        elr=None if elr == partition.elr else elr,
        last_known_elr=None if last_known == partition.last_known_elr else last_known,
    )
    after = replace(partition, isr=isr, elr=elr, last_known_elr=last_known)
    over = completion(state, topic, proposal.partition, after) or _hand_over(state, topic, proposal.partition, after)
    records = [record] if changes else []
    return records if over is None else [*records, over], AlterPartitionResult(
        topic_id=proposal.topic_id,
        partition=proposal.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=isr,
        partition_epoch=partition.partition_epoch + changes,
        eligible=elr,
        recovering=partition.recovery_state is RecoveryState.RECOVERING and not recovers,
    )


def _hand_over(
    state: ControllerState, topic: TopicImage, number: int, partition: PartitionImage
) -> PartitionChangeRecord | None:
    """Its log directory is full or slow, and it was alone in the ISR when it told so: whoever has come in leads, and
    nobody waits for it."""
    leader = partition.leader
    if leader is None or not state.strained.holds(leader, topic.topic_id, number):
        return None
    is_alive = state.alive(topic.topic_id, number, without=leader)
    if not any(is_alive(other) and state.heard_of(other) for other in partition.isr):
        return None
    return adapt_isr(state, topic, number, partition, is_alive, unclean=False)


def _refused(proposal: AlterPartitionState, error: HoldfastError | None) -> AlterPartitionResult:
    return AlterPartitionResult(topic_id=proposal.topic_id, partition=proposal.partition, error=error)


def _judge(
    state: ControllerState,
    broker_id: BrokerId,
    topic: TopicImage,
    partition: PartitionImage,
    proposal: AlterPartitionState,
) -> HoldfastError | None:
    where = TopicPartition(topic.name, proposal.partition)
    leader_epoch, partition_epoch = partition.leader_epoch, partition.partition_epoch
    if proposal.leader_epoch > leader_epoch or proposal.partition_epoch > partition_epoch:
        # The leader knows more than we do: another controller decided that.
        return NotControllerError(f"{where} is at epochs {leader_epoch}/{partition_epoch} here, behind its leader")
    if proposal.leader_epoch < leader_epoch:
        return FencedLeaderEpochError(f"{where} has leader epoch {leader_epoch}, not {proposal.leader_epoch}")
    if partition.leader != broker_id:
        return InvalidRequestError(f"{where} is led by {partition.leader}, not by broker {broker_id}")
    if proposal.partition_epoch < partition_epoch:
        return InvalidUpdateVersionError(
            f"{where} has partition epoch {partition_epoch}, not {proposal.partition_epoch}"
        )
    members = [member for member, _ in proposal.isr]
    if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        return InvalidRequestError(
            f"ISR {members} of {where}: expected different members of {list(partition.replicas)}"
        )
    if broker_id not in members:
        return InvalidRequestError(f"ISR {members} of {where}: expected its leader {broker_id} in it")
    if not proposal.recovered:
        if partition.recovery_state is RecoveryState.RECOVERED:
            return InvalidRequestError(f"{where} has recovered: expected no proposal to recover again")
        if len(members) > 1:
            return InvalidRequestError(f"ISR {members} of {where}: expected its leader alone while it recovers")
    return _ineligible(state, topic, partition, proposal, where)


def _ineligible(
    state: ControllerState,
    topic: TopicImage,
    partition: PartitionImage,
    proposal: AlterPartitionState,
    where: TopicPartition,
) -> HoldfastError | None:
    is_alive = state.alive(topic.topic_id, proposal.partition)
    for member, epoch in proposal.isr:
        broker = state.image.brokers.get(member)
        if broker is not None and epoch is not None and epoch != broker.epoch:
            return IneligibleReplicaError(
                f"Broker {member} may not join the ISR of {where}: its epoch is {broker.epoch}, not {epoch}"
            )
        if member not in partition.isr and not is_alive(member):
            return IneligibleReplicaError(
                f"Broker {member} may not join the ISR of {where}: it is fenced, shutting down, or its log "
                f"directory is offline"
            )
        if member not in partition.isr and state.strained.holds(member, topic.topic_id, proposal.partition):
            return IneligibleReplicaError(
                f"Broker {member} may not join the ISR of {where}: its log directory is full, or slow"
            )
    return None


# -- elections -------------------------------------------------------------------------------------------------


def elect_leaders(state: ControllerState, event: ElectLeaders, now_ms: TimestampMs) -> Decision:
    """The elections asked for; without a list all that have something to elect, and only those are answered."""
    records: list[MetadataRecord] = []
    results = []
    wanted = event.partitions
    everything = wanted is None
    if wanted is None:
        wanted = tuple((t.name, number) for t in state.image.sorted_topics() for number, _ in t.numbered())
    for name, number in dict.fromkeys(wanted):
        record, error = _elect(state, name, number, unclean=event.unclean)
        if record is not None:
            records.append(record)
        if not everything or record is not None:
            results.append(ElectionResult(topic=name, partition=number, error=error))
    return Decision(records=tuple(records), reply=ElectLeadersReply(partitions=tuple(results)))


def _elect(
    state: ControllerState, name: str, number: int, *, unclean: bool
) -> tuple[PartitionChangeRecord | None, HoldfastError | None]:
    topic = state.image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(number)
    if topic is None or partition is None:
        return None, UnknownTopicOrPartitionError(
            f"No such topic as {name}" if topic is None else f"No such partition as {name}-{number}"
        )
    is_alive = state.alive(topic.topic_id, number)
    where = TopicPartition(name, number)
    if unclean:
        if partition.leader is not None:
            return None, ElectionNotNeededError(_NOT_NEEDED)
        ends, min_isr = state.log_ends(topic.topic_id, number), state.min_isr(name)
        record = adapt(
            topic.topic_id, number, partition, is_alive,
            min_isr=min_isr, unclean=True, ends=ends, heard_of=state.heard_of,
        )  # fmt: skip
        if record is None:
            return None, EligibleLeadersNotAvailableError(f"No replica of {where} is alive")
        return record, None
    if partition.leader == partition.replicas[0]:
        return None, ElectionNotNeededError(_NOT_NEEDED)
    record = prefer(topic.topic_id, number, partition, is_alive)
    if record is None:
        return None, PreferredLeaderNotAvailableError(
            f"Broker {partition.replicas[0]}, preferred leader of {where}, is not alive and in sync"
        )
    return record, None


def rebalance(state: ControllerState) -> tuple[MetadataRecord, ...]:
    """Give leads back to preferred replicas, for brokers that miss more of theirs than is allowed (R-42)."""
    preferred: dict[BrokerId, int] = {}
    missing: dict[BrokerId, list[tuple[TopicImage, int, PartitionImage]]] = {}
    for topic in state.image.sorted_topics():
        for number, partition in topic.numbered():
            first = partition.replicas[0]
            preferred[first] = preferred.get(first, 0) + 1
            if partition.leader != first:
                missing.setdefault(first, []).append((topic, number, partition))
    records = []
    for broker_id, partitions in sorted(missing.items()):
        if len(partitions) * 100 <= state.settings.imbalance_percentage * preferred[broker_id]:
            continue
        for topic, number, partition in partitions:
            record = prefer(topic.topic_id, number, partition, state.alive(topic.topic_id, number))
            if record is not None:
                records.append(record)
    return tuple(records[:_LIMIT])
