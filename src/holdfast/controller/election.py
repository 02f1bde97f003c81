"""Who leads a partition, and who may. Pure functions over one partition and what is known of its replicas.

    ISR member alive?         first one in list order leads
    else, eligible one alive? first one in list order leads alone (KIP-966)
    else, nobody has all data left, and the last one that lost only its end is back? it leads, and recovers (KIP-704)
    else, unclean allowed?    first live replica leads alone, and recovers
    none                      no leader; the ISR stays as it is, for it has the data

Every election goes by a table, LEADERSHIP (transitions.py).

"Alive" is the caller's word: the broker is not fenced, not shutting down, and the replica's log dir is not offline.

The eligible leader replicas are those that left the ISR when that took it below min.insync.replicas, and that
have kept their data since. Everything committed is on all of them, because a leader raises its high watermark
neither below min.insync.replicas nor while there are any (replication/partition.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.controller.transitions import LEADERSHIP, Ground, leadership
from holdfast.metadata.image import PartitionImage
from holdfast.metadata.records import (
    NO_CHANGE,
    NoChange,
    PartitionChangeRecord,
    RecoveryState,
)
from holdfast.model.types import BrokerId, TopicId

IsAlive: TypeAlias = Callable[[BrokerId], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A replica that has not all of its data any more. ``total``: it has nothing."""

    broker: BrokerId
    total: bool


def elect(partition: PartitionImage, is_alive: IsAlive, *, among: tuple[BrokerId, ...]) -> BrokerId | None:
    """The first replica in list order that is in ``among`` and alive."""
    for replica in partition.replicas:
        if replica in among and is_alive(replica):
            return replica
    return None


def eligible(partition: PartitionImage, isr: tuple[BrokerId, ...], min_isr: int) -> tuple[BrokerId, ...]:
    """The eligible leader replicas when ``isr`` replaces the ISR."""
    return _eligible(partition.replicas, isr, min_isr, (*partition.isr, *partition.elr))


def _eligible(
    replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...], min_isr: int, before: tuple[BrokerId, ...]
) -> tuple[BrokerId, ...]:
    if len(isr) >= min(min_isr, len(replicas)):
        return ()
    return tuple(r for r in replicas if r in before and r not in isr)


def adapt(
    topic_id: TopicId,
    number: int,
    partition: PartitionImage,
    is_alive: IsAlive,
    *,
    min_isr: int,
    unclean: bool = False,
    loss: Loss | None = None,
) -> PartitionChangeRecord | None:
    """What must change of a partition after some of its replicas came or went; None when nothing must.

    A leader that is alive stays. ISR members that are not alive leave the ISR as long as one member remains; the
    last ISR is kept when all are gone. A replica with a ``loss`` is in no set any more whose members have
    everything. The leader epoch grows only with a new leader (C25).
    """
    after = _claims(partition, loss)
    remaining = tuple(r for r in after.isr if is_alive(r))
    isr = remaining or after.isr
    recovers = False
    if partition.leader is not None and partition.leader in remaining:
        leader: BrokerId | None = partition.leader
    else:
        leader, ground = _choose(partition, is_alive, after, remaining, unclean=unclean)
        LEADERSHIP.after(leadership(partition), ground)
        recovers = ground in (Ground.LAST_KNOWN, Ground.UNCLEAN)
        if leader is not None and leader not in remaining:
            isr = (leader,)
    if recovers:
        after = _Claims(isr=(), elr=(), last_known=())  # whoever had more may have something else now
    elr = _eligible(partition.replicas, isr, min_isr, (*after.isr, *after.elr))
    last_known = () if isr or elr else after.last_known
    return _change(topic_id, number, partition, leader, isr, elr, last_known, recovers=recovers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """The replicas that stand for what was committed."""

    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    last_known: tuple[BrokerId, ...]


def _choose(
    partition: PartitionImage, is_alive: IsAlive, claims: _Claims, remaining: tuple[BrokerId, ...], *, unclean: bool
) -> tuple[BrokerId | None, Ground]:
    """Who leads when the leader is gone, and by what right; ``remaining`` are the live members of the ISR."""
    lost_it_all = not claims.isr and not claims.elr
    for among, ground in (
        (remaining, Ground.IN_SYNC),
        (claims.elr, Ground.ELIGIBLE),
        (claims.last_known if lost_it_all else (), Ground.LAST_KNOWN),
        (partition.replicas if unclean else (), Ground.UNCLEAN),
    ):
        leader = elect(partition, is_alive, among=among)
        if leader is not None:
            return leader, ground
    return None, Ground.NOBODY


def _claims(partition: PartitionImage, loss: Loss | None) -> _Claims:
    """Who stands for what was committed, after a loss."""
    if loss is None:
        return _Claims(isr=partition.isr, elr=partition.elr, last_known=partition.last_known_elr)
    gone = loss.broker
    isr = tuple(r for r in partition.isr if r != gone)
    elr = tuple(r for r in partition.elr if r != gone)
    last_known = tuple(r for r in partition.last_known_elr if r != gone or not loss.total)
    if not isr and not elr and not loss.total and (gone in partition.isr or gone in partition.elr):
        last_known = (gone,)
    return _Claims(isr=isr, elr=elr, last_known=last_known)


def _change(
    topic_id: TopicId,
    number: int,
    partition: PartitionImage,
    leader: BrokerId | None,
    isr: tuple[BrokerId, ...],
    elr: tuple[BrokerId, ...],
    last_known: tuple[BrokerId, ...],
    *,
    recovers: bool,
) -> PartitionChangeRecord | None:
    new_leader: BrokerId | NoChange | None = NO_CHANGE if leader == partition.leader else leader
    same = isr == partition.isr and elr == partition.elr and last_known == partition.last_known_elr
    if same and new_leader is NO_CHANGE:
        return None
    return PartitionChangeRecord(
        partition=number,
        topic_id=topic_id,
        isr=None if isr == partition.isr else isr,
        leader=new_leader,
        recovery_state=RecoveryState.RECOVERING if recovers else None,
        elr=None if elr == partition.elr else elr,
        last_known_elr=None if last_known == partition.last_known_elr else last_known,
    )


def prefer(
    topic_id: TopicId, number: int, partition: PartitionImage, is_alive: IsAlive
) -> PartitionChangeRecord | None:
    """Give the lead to the preferred (first) replica; None when it leads already or may not (R-42)."""
    preferred = partition.replicas[0]
    if partition.leader == preferred or preferred not in partition.isr or not is_alive(preferred):
        return None
    LEADERSHIP.after(leadership(partition), Ground.IN_SYNC)
    return PartitionChangeRecord(partition=number, topic_id=topic_id, leader=preferred)
