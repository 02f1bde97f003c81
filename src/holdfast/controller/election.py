"""Who leads a partition, and who may. Pure functions over one partition and what is known of its replicas.

    ISR member alive?         first one in list order leads
    else, eligible one alive? first one in list order leads alone (KIP-966)
    else, all that counted lost their ends, and are back?  the longest log leads, and recovers (KIP-704)
    else, unclean allowed?    a live replica leads alone, and recovers; the longest log where that is known
    none                      no leader; the ISR stays as it is, for it has the data

Every election goes by a table, LEADERSHIP (transitions.py).

"Alive" is the caller's word: the broker is not fenced, not shutting down, and the replica's log dir is not offline.
"Heard of" means in this reign: a new controller finds brokers recorded as alive that may all be dead. Such a one leads
nothing anew, and nobody leaves the ISR in favour of such alone: it may never come back, or come back with less.

The eligible leader replicas are those that left the ISR when that took it below min.insync.replicas, and that
have kept their data since. Everything committed is on all of them, because a leader raises its high watermark
neither below min.insync.replicas nor while there are any (replication/partition.py).

``last_known_elr`` are those that left the ISR or the eligible because they were damaged, the last one last. What one of
them has lost another may have kept. They count when nobody else is left; if the last one is lost altogether they do
not, for it may have gone on alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from holdfast.controller.transitions import LEADERSHIP, Ground, leadership
from holdfast.metadata.image import PartitionImage
from holdfast.metadata.records import (
    NO_CHANGE,
    NoChange,
    PartitionChangeRecord,
    RecoveryState,
)
from holdfast.model.fates import LogEnd
from holdfast.model.types import BrokerId, TopicId

IsAlive: TypeAlias = Callable[[BrokerId], bool]
Ends: TypeAlias = Mapping[BrokerId, LogEnd]
"""How far the logs of replicas go, as far as that was told since nobody leads."""
NO_ENDS: Final[Ends] = MappingProxyType({})


def everybody(broker: BrokerId) -> bool:
    """All brokers were heard of."""
    return True


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


def longest(candidates: Sequence[BrokerId], ends: Ends) -> BrokerId | None:
    """Who of these has the longest log; None if that is not known of all. One alone needs no comparison."""
    if len(candidates) < 2:
        return next(iter(candidates), None)
    if not all(candidate in ends for candidate in candidates):
        return None
    return max(candidates, key=lambda candidate: ends[candidate].rank)


def elect_damaged(last_known: tuple[BrokerId, ...], is_alive: IsAlive, ends: Ends) -> BrokerId | None:
    """All of them must be back to be compared."""
    return longest(last_known, ends) if all(map(is_alive, last_known)) else None


def elect_unclean(partition: PartitionImage, is_alive: IsAlive, ends: Ends) -> BrokerId | None:
    """The longest log among the live replicas; the first one in list order where that is not known, but one that is
    only coming (and first in the list) after those that have something."""
    alive = sorted((replica for replica in partition.replicas if is_alive(replica)), key=partition.is_coming)
    found = longest(alive, ends)
    return next(iter(alive), None) if found is None else found


def eligible(partition: PartitionImage, isr: tuple[BrokerId, ...], min_isr: int) -> tuple[BrokerId, ...]:
    """The eligible leader replicas when ``isr`` replaces the ISR."""
    return eligible_among(partition.replicas, isr, min_isr, (*partition.isr, *partition.elr))


def eligible_among(
    replicas: tuple[BrokerId, ...], isr: tuple[BrokerId, ...], min_isr: int, before: tuple[BrokerId, ...]
) -> tuple[BrokerId, ...]:
    """Those of ``before``, who had everything, that may be elected beside ``isr``: all of them while it is small."""
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
    ends: Ends = NO_ENDS,
    heard_of: IsAlive = everybody,
) -> PartitionChangeRecord | None:
    """What must change of a partition after some of its replicas came or went; None when nothing must.

    A leader that is alive stays. ISR members that are not alive leave the ISR as long as one member remains that is
    and was heard of; the last ISR is kept when all are gone. A replica with a ``loss`` is in no set any more whose
    members have everything. The leader epoch grows only with a new leader (C25).
    """
    after = _claims(partition, loss)
    remaining = tuple(r for r in after.isr if is_alive(r))
    isr = remaining if any(map(heard_of, remaining)) else after.isr
    recovers = False
    if partition.leader is not None and partition.leader in remaining:
        leader: BrokerId | None = partition.leader
    else:
        leader, ground = _choose(
            partition, lambda r: is_alive(r) and heard_of(r), after, remaining, ends, unclean=unclean
        )
        LEADERSHIP.after(leadership(partition), ground)
        recovers = ground in (Ground.LAST_KNOWN, Ground.UNCLEAN)
        if leader is not None and leader not in remaining:
            isr = (leader,)
    if recovers:
        after = _Claims(isr=(), elr=(), last_known=())  # whoever had more may have something else now
    elr = eligible_among(partition.replicas, isr, min_isr, (*after.isr, *after.elr))
    last_known = tuple(r for r in after.last_known if r not in isr)
    return _change(topic_id, number, partition, leader, isr, elr, last_known, recovers=recovers)


def awaits_news(partition: PartitionImage, is_alive: IsAlive, heard_of: IsAlive) -> bool:
    """Whether the ISR stays as it is because nobody of it who counts as alive was heard of yet."""
    remaining = [r for r in partition.isr if is_alive(r)]
    return bool(remaining) and not any(map(heard_of, remaining))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """The replicas that stand for what was committed."""

    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    last_known: tuple[BrokerId, ...]


def _choose(
    partition: PartitionImage,
    is_alive: IsAlive,
    claims: _Claims,
    remaining: tuple[BrokerId, ...],
    ends: Ends,
    *,
    unclean: bool,
) -> tuple[BrokerId | None, Ground]:
    """Who leads when the leader is gone, and by what right; ``remaining`` are the live members of the ISR."""
    for among, ground in ((remaining, Ground.IN_SYNC), (claims.elr, Ground.ELIGIBLE)):
        leader = elect(partition, is_alive, among=among)
        if leader is not None:
            return leader, ground
    if not claims.isr and not claims.elr:
        leader = elect_damaged(claims.last_known, is_alive, ends)
        if leader is not None:
            return leader, Ground.LAST_KNOWN
    leader = elect_unclean(partition, is_alive, ends) if unclean else None
    return leader, Ground.NOBODY if leader is None else Ground.UNCLEAN


def _claims(partition: PartitionImage, loss: Loss | None) -> _Claims:
    """Who stands for what was committed, after a loss."""
    last_known = partition.last_known_elr
    if loss is None:
        return _Claims(isr=partition.isr, elr=partition.elr, last_known=last_known)
    gone = loss.broker
    isr = tuple(r for r in partition.isr if r != gone)
    elr = tuple(r for r in partition.elr if r != gone)
    stood = gone in partition.isr or gone in partition.elr
    was_last = not isr and not elr and (stood or last_known[-1:] == (gone,))
    if loss.total:
        last_known = () if was_last else tuple(r for r in last_known if r != gone)
    elif stood:
        last_known = (*(r for r in last_known if r != gone), gone)
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
