"""A leader asks the controller to change the ISR of its partition, and obeys the answer (AlterPartition, KIP-497).

Owns the rules: whom to propose and when, what an answer means. Works on the leader's Partition and its IsrState;
one proposal per partition is under way at a time, and until its outcome is known the high watermark waits for
both readings of the ISR (isr.py).
"""

from collections.abc import Collection

from holdfast.model.errors import HoldfastError, IneligibleReplicaError, OperationNotAttemptedError
from holdfast.model.types import BrokerEpoch, BrokerId
from holdfast.replication.isr import FollowerProgress
from holdfast.replication.surroundings import Leading
from holdfast.replication.types import IsrOutcome, IsrProposal, Role


def maybe_expand(partition: Leading, follower: FollowerProgress, now_ms: int) -> None:
    """Propose a follower once it has everything that is committed and everything from before our epoch."""
    start, end_offset, isr = partition.epoch_start, follower.end_offset, partition.isr
    if (
        isr.pending is None
        and not isr.recovering
        and start is not None
        and end_offset is not None
        and end_offset >= partition.high_watermark
        and end_offset >= start
        and follower.refused_until_ms <= now_ms
        and follower.broker_id in partition.replicas
        and follower.broker_id not in isr.committed
    ):
        _propose(partition, (*isr.committed, follower.broker_id))


def recovered(partition: Leading) -> None:
    """We lead after an unclean election. What we have is what there is: nothing is left to recover, say so."""
    if partition.isr.recovering and partition.isr.pending is None:
        _propose(partition, partition.isr.committed)


def _propose(partition: Leading, members: tuple[BrokerId, ...]) -> None:
    followers = partition.followers
    proposal = IsrProposal(
        partition.topic_partition,
        partition.topic_id,
        partition.leader_epoch,
        partition.isr.partition_epoch,
        tuple((b, f.broker_epoch if (f := followers.get(b)) is not None else None) for b in members),
    )
    partition.isr.propose(proposal)
    partition.choose_hw_followers()
    partition.around.outbox.alter_partition((proposal,))


def expand_any(partition: Leading, now_ms: int) -> None:
    """Propose whoever may join. Only who is still connected and keeps up: what we know of others is old news."""
    limit = partition.around.settings.replica_lag_time_max_ms
    end_offset = None if partition.log is None else partition.log.view.end_offset
    for broker_id, follower in partition.followers.items():
        if (
            broker_id in partition.entries
            and broker_id not in partition.isr.maximal
            # Of an idle partition it need not ask again, once it has everything.
            and (follower.end_offset == end_offset or not follower.lags(now_ms, limit))
        ):
            maybe_expand(partition, follower, now_ms)


def on_result(partition: Leading, proposal: IsrProposal, outcome: IsrOutcome | HoldfastError, now_ms: int) -> None:
    """What the controller made of a proposal. Answers to what is no longer pending are ignored."""
    isr = partition.isr
    if partition.role is not Role.LEADER or isr.pending != proposal:
        return
    if isinstance(outcome, IsrOutcome):
        if outcome.leader_epoch == partition.leader_epoch and outcome.partition_epoch >= isr.partition_epoch:
            _count(partition, len(isr.committed), len(outcome.isr))
            isr.commit(outcome.isr, outcome.partition_epoch, outcome.eligible, outcome.recovering)
            changed(partition, now_ms)
        else:
            _retry_later(partition, now_ms)  # a LeaderAndIsr that explains it is on its way
    elif isinstance(outcome, (IneligibleReplicaError, OperationNotAttemptedError)):
        isr.revert()
        if partition.around.traffic is not None:
            partition.around.traffic.isr_updates_failed += 1
        refused(partition, [b for b, epoch in proposal.isr if _is_meant(partition, b, epoch)], now_ms)
        changed(partition, now_ms)
    else:
        # It may have been stored or not: both readings of the ISR stay as they are.
        _retry_later(partition, now_ms)


def _count(partition: Leading, before: int, after: int) -> None:
    if partition.around.traffic is not None:
        partition.around.traffic.isr_changed(before, after)


def _is_meant(partition: Leading, broker_id: BrokerId, epoch: BrokerEpoch | None) -> bool:
    """A refused proposal was to add this broker, in the incarnation that still fetches."""
    follower = partition.followers.get(broker_id)
    return (
        follower is not None
        and broker_id not in partition.isr.committed
        and (epoch is None or follower.broker_epoch == epoch)
    )


def refused(partition: Leading, brokers: list[BrokerId], now_ms: int) -> None:
    """The controller does not want these in the ISR now: ask again in a while, not at once."""
    for broker_id in brokers:
        follower = partition.followers.get(broker_id)
        if follower is not None:
            follower.refused(now_ms, partition.around.settings.alter_partition_retry_ms)
    if brokers and partition.isr.pending is None:
        _ask_when_due(partition, now_ms)
    else:
        _retry_later(partition, now_ms)


def _ask_when_due(partition: Leading, now_ms: int) -> None:
    """For those that were refused, when it is time to. With nothing under way only."""
    due = [f.refused_until_ms for f in partition.followers.values() if f.refused_until_ms > now_ms]
    if due and partition.isr.pending is None:
        partition.isr.try_again_at(min(due))
        partition.around.retrying[partition] = None


def welcome(partition: Leading, brokers: Collection[BrokerId], now_ms: int) -> None:
    """These are alive again: a refusal that was for their absence is no reason to wait any more."""
    refused_ones = [f for b, f in partition.followers.items() if b in brokers and f.refused_until_ms > now_ms]
    for follower in refused_ones:
        follower.refused_until_ms = now_ms
        follower.refusals = 0
    if refused_ones and partition.isr.pending is None:
        partition.isr.try_again_at(now_ms)


def _retry_later(partition: Leading, now_ms: int) -> None:
    partition.isr.try_again_at(now_ms + partition.around.settings.alter_partition_retry_ms)
    partition.around.retrying[partition] = None


def changed(partition: Leading, now_ms: int) -> None:
    """The ISR is another one: the high watermark may be free to move, others may join."""
    partition.choose_hw_followers()
    for broker_id in partition.isr.committed:
        if broker_id in partition.followers:
            partition.followers[broker_id].refusals = 0
    if partition.is_open and partition.isr.retry_at_ms is None:
        recovered(partition)
    partition.advance(now_ms)
    partition.check_deletions()
    # Who lost its place because it was behind must not get it back before the high watermark has moved on.
    if len(partition.isr.committed) < len(partition.replicas) and partition.is_open:
        partition.around.watched[partition] = None
        expand_any(partition, now_ms)


def retry(partition: Leading, now_ms: int) -> bool:
    """Propose again what is due; True when nothing is left to be retried."""
    isr = partition.isr
    if partition.role is not Role.LEADER or isr.retry_at_ms is None:
        return True
    if now_ms < isr.retry_at_ms:
        return False
    isr.time_is_up()
    if isr.pending is not None:
        partition.around.outbox.alter_partition((isr.pending,))
    else:
        recovered(partition)
        expand_any(partition, now_ms)
        partition.advance(now_ms)
        if isr.retry_at_ms is None:
            _ask_when_due(partition, now_ms)
    return isr.retry_at_ms is None


def check_followers(partition: Leading, now_ms: int) -> bool:
    """Drop members that have been behind for too long. True while somebody is behind or missing."""
    log, isr = partition.log, partition.isr
    if partition.role is not Role.LEADER or log is None:
        return False
    limit, end_offset = partition.around.settings.replica_lag_time_max_ms, log.view.end_offset
    followers = partition.followers
    if isr.pending is None and partition.is_open:
        lagging = {
            b
            for b in isr.committed
            if b in followers and followers[b].end_offset != end_offset and followers[b].lags(now_ms, limit)
        }
        if lagging:
            _propose(partition, tuple(b for b in isr.committed if b not in lagging))
        else:
            expand_any(partition, now_ms)
        partition.advance(now_ms)
    return len(isr.committed) < len(partition.replicas) or any(f.end_offset != end_offset for f in followers.values())
