"""Who leads a partition. Pure functions over one partition and what is known of its replicas.

    ISR member alive?      first one in list order leads
    none, unclean allowed? first live replica leads alone, and counts as recovering (KIP-704)
    none                   no leader; the last ISR stays as it is, for it has the data

"Alive" is the caller's word: the broker is not fenced, not shutting down, and the replica's log dir is not offline.
"""

from collections.abc import Callable
from typing import TypeAlias

from holdfast.metadata.image import PartitionImage
from holdfast.metadata.records import (
    NO_CHANGE,
    NoChange,
    PartitionChangeRecord,
    RecoveryState,
)
from holdfast.model.types import BrokerId, TopicId

IsAlive: TypeAlias = Callable[[BrokerId], bool]


def elect(partition: PartitionImage, is_alive: IsAlive, *, isr: tuple[BrokerId, ...]) -> BrokerId | None:
    """The first replica in list order that is in ``isr`` and alive."""
    for replica in partition.replicas:
        if replica in isr and is_alive(replica):
            return replica
    return None


def elect_unclean(partition: PartitionImage, is_alive: IsAlive) -> BrokerId | None:
    """The first live replica, whatever it has."""
    return next((replica for replica in partition.replicas if is_alive(replica)), None)


def adapt(
    topic_id: TopicId,
    number: int,
    partition: PartitionImage,
    is_alive: IsAlive,
    *,
    unclean: bool = False,
    drop: frozenset[BrokerId] = frozenset(),
) -> PartitionChangeRecord | None:
    """What must change of a partition after some of its replicas came or went; None when nothing must.

    A leader that is alive stays. ISR members that are not alive, or in ``drop``, leave the ISR as long as one
    member remains; the last ISR is kept when all are gone. The leader epoch grows only with a new leader (C25).
    """
    remaining = tuple(r for r in partition.isr if r not in drop and is_alive(r))
    leader: BrokerId | None
    if partition.leader is not None and partition.leader in remaining:
        leader = partition.leader
    else:
        leader = elect(partition, is_alive, isr=remaining)
    if leader is None and unclean:
        leader = elect_unclean(partition, lambda r: r not in drop and is_alive(r))
        if leader is not None:
            return PartitionChangeRecord(
                partition=number,
                topic_id=topic_id,
                isr=(leader,),
                leader=leader,
                recovery_state=RecoveryState.RECOVERING,
            )
    isr = remaining or partition.isr
    new_leader: BrokerId | NoChange | None = NO_CHANGE if leader == partition.leader else leader
    if isr == partition.isr and new_leader is NO_CHANGE:
        return None
    return PartitionChangeRecord(
        partition=number,
        topic_id=topic_id,
        isr=None if isr == partition.isr else isr,
        leader=new_leader,
    )


def prefer(
    topic_id: TopicId, number: int, partition: PartitionImage, is_alive: IsAlive
) -> PartitionChangeRecord | None:
    """Give the lead to the preferred (first) replica; None when it leads already or may not (R-42)."""
    preferred = partition.replicas[0]
    if partition.leader == preferred or preferred not in partition.isr or not is_alive(preferred):
        return None
    return PartitionChangeRecord(partition=number, topic_id=topic_id, leader=preferred)
