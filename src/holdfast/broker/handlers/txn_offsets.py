"""TxnOffsetCommit (API 28), versions 0-5: offsets of a group that count when the producer's transaction is committed.

The generation and the member are checked as OffsetCommit's are (from version 3 on, KIP-447), the producer's epoch by
the append. From version 5 on the broker itself has the partition of ``__consumer_offsets`` added to the transaction.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.broker.handlers.base import RequestContext, answered, respond
from holdfast.broker.handlers.group_offsets import (
    all_refused,
    allowed_topics,
    coordinator_of,
    offsets_to_commit,
    per_partition,
)
from holdfast.groups.types import CommitRequest, CommitResult, OffsetsTransaction
from holdfast.model.group_errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError
from holdfast.security.resources import Operation, ResourceKind

_KNOWS_LOADING: Final = 2
"""Producers before this version end when they are told that the group is being read (KAFKA-7296)."""


async def handle_txn_offset_commit(ctx: RequestContext, request: Any) -> Any:
    """Waits until the offsets are written to all in-sync replicas; each partition has its answer."""
    denied = ctx.missing(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, request.transactional_id) or ctx.missing(
        Operation.READ, ResourceKind.GROUP, request.group_id
    )
    if denied is not None:
        return respond(ctx, topics=all_refused(request.topics, denied))
    generation = getattr(request, "generation_id", -1)
    result: CommitResult = {}
    allowed = allowed_topics(ctx, Operation.READ, request.topics)
    offsets = offsets_to_commit(ctx, allowed, request.topics)
    if offsets:
        commit = CommitRequest(
            group_id=request.group_id,
            member_id=getattr(request, "member_id", "") or None,
            instance_id=getattr(request, "group_instance_id", None),
            generation=None if generation < 0 else generation,
            offsets=offsets,
            knows_group_not_found=False,
            transaction=OffsetsTransaction(
                request.transactional_id, request.producer_id, request.producer_epoch, ctx.version
            ),
        )
        coordinator = coordinator_of(ctx)
        result = await answered(lambda reply: coordinator.commit_within(commit, ctx.now_ms, reply))
    if ctx.version < _KNOWS_LOADING:
        result = {
            tp: CoordinatorNotAvailableError(str(e)) if isinstance(e, CoordinatorLoadInProgressError) else e
            for tp, e in result.items()
        }
    return respond(ctx, topics=per_partition(ctx, allowed, request.topics, result))
