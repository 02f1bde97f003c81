"""AddPartitionsToTxn and AddOffsetsToTxn: a transaction begins with its first partition, and gets more.

Also the question of a partition's leader, whether a transaction has the partition (KIP-890): what it is told decides
whether the first batch is appended. A change under way is looked at first: while the markers of the last transaction
are written, the client may have a producer id already that the coordinator does not yet have (epoch 32766).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from holdfast.model.errors import HoldfastError, TransactionAbortableError
from holdfast.model.types import TimestampMs
from holdfast.transactions.decisions import Answered, Decision, RefusedTransaction, Write, fenced, in_change, no_mapping
from holdfast.transactions.states import AT_REST, PREPARED, TRANSACTION, TransactionEvent, TransactionState
from holdfast.transactions.types import AddRequest, Producer, Transaction, Verified


def add(before: Transaction | None, request: AddRequest, *, is_changing: bool, now_ms: TimestampMs) -> Decision:
    """Add partitions. ``is_changing``: something of this id is being written."""
    error = _refusal(before, request, is_changing)
    if error is not None or before is None:
        return RefusedTransaction(error or no_mapping(request.transactional_id, request.producer))
    if before.state is TransactionState.ONGOING and request.partitions <= before.partitions:
        return Answered(request.producer)
    after = replace(
        before,
        previous_producer_id=before.producer_id,
        state=TRANSACTION.after(before.state, TransactionEvent.ADDED),
        partitions=before.partitions | request.partitions,
        start_ms=now_ms if before.state in AT_REST else before.start_ms,
        update_ms=now_ms,
        version=request.version,
    )
    return Write(after)


def verify(before: Transaction | None, request: AddRequest, *, is_changing: bool) -> Verified:
    """Which of the partitions the transaction has."""
    error = _refusal(before, request, is_changing)
    if error is not None or before is None:
        return dict.fromkeys(request.partitions, error)
    return {tp: _verdict(request, before.partitions, tp) for tp in request.partitions}


def _verdict(request: AddRequest, partitions: Collection[object], tp: object) -> HoldfastError | None:
    if tp in partitions:
        return None
    return TransactionAbortableError(f"{tp} is not in the transaction of {request.transactional_id!r}")


def _refusal(before: Transaction | None, request: AddRequest, is_changing: bool) -> HoldfastError | None:
    name, asked = request.transactional_id, request.producer
    if is_changing:
        return in_change(name)
    if before is None or before.producer_id != asked.id:
        return no_mapping(name, asked)
    if before.epoch != asked.epoch:
        return fenced(name, asked, Producer(before.producer_id, before.epoch))
    return in_change(name) if before.state in PREPARED else None
