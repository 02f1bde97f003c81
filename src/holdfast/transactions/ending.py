"""EndTxn, and the ends that no client asks for: a newer producer comes, or the time is up.

Two protocols. With transaction version 2 (EndTxn 5) every end raises the epoch: the answer carries it, a retry is one
epoch behind, and an abort of nothing is allowed and raises it too. Below it the epoch stays, and a retry is known by
the state alone. Epoch 32766 is the last that a client has: the end that follows is written with 32767, and the client
goes on with another producer id.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.model.errors import HoldfastError, InvalidTxnStateError
from holdfast.model.types import TimestampMs
from holdfast.transactions.decisions import (
    Answered,
    Decision,
    NeedsId,
    RefusedTransaction,
    Write,
    fenced,
    in_change,
    no_mapping,
)
from holdfast.transactions.states import AT_REST, PREPARED, TRANSACTION, TransactionEvent, TransactionState
from holdfast.transactions.types import (
    BUMPING,
    LAST_CLIENT_EPOCH,
    MAX_EPOCH,
    EndRequest,
    Producer,
    ProducerId,
    Transaction,
)

_COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


def end(
    before: Transaction | None,
    request: EndRequest,
    *,
    is_changing: bool,
    fresh_id: ProducerId | None,
    now_ms: TimestampMs,
) -> Decision:
    """A client commits or aborts. ``is_changing``: something of this id is being written."""
    if request.version >= BUMPING:
        return _end_with_bump(before, request, is_changing=is_changing, fresh_id=fresh_id, now_ms=now_ms)
    if before is None or before.producer_id != request.producer.id:
        return RefusedTransaction(no_mapping(request.transactional_id, request.producer))
    if before.epoch != request.producer.epoch:
        return RefusedTransaction(
            fenced(request.transactional_id, request.producer, Producer(before.producer_id, before.epoch))
        )
    if is_changing or before.state in PREPARED:
        return RefusedTransaction(in_change(request.transactional_id))
    if before.state is TransactionState.ONGOING:
        return Write(_prepared(before, request, None, now_ms))
    if before.state is _COMPLETE[request.commit]:  # asked again
        return Answered(request.producer)
    return RefusedTransaction(_illegal(before, request))


def _end_with_bump(
    before: Transaction | None,
    request: EndRequest,
    *,
    is_changing: bool,
    fresh_id: ProducerId | None,
    now_ms: TimestampMs,
) -> Decision:
    name, asked = request.transactional_id, request.producer
    if is_changing:
        return RefusedTransaction(in_change(name))
    if before is None:
        return RefusedTransaction(no_mapping(name, asked))
    found = Producer(before.producer_id, before.epoch)
    is_retry = _is_retry(before, asked)
    if before.producer_id != asked.id and not is_retry:
        return RefusedTransaction(no_mapping(name, asked))
    if found != asked and not is_retry:
        return RefusedTransaction(fenced(name, asked, found))
    if is_retry:
        # The end that it asks for again has been written; another one has not.
        return (
            Answered(found)
            if before.state is _COMPLETE[request.commit]
            else RefusedTransaction(_illegal(before, request))
        )
    if before.state is not TransactionState.ONGOING and request.commit:
        return RefusedTransaction(_illegal(before, request))
    if before.epoch < LAST_CLIENT_EPOCH:
        return Write(_prepared(before, request, None, now_ms))
    return NeedsId() if fresh_id is None else Write(_prepared(before, request, fresh_id, now_ms))


def _is_retry(before: Transaction, asked: Producer) -> bool:
    """One epoch behind, at rest after an end that raised it; or the last epoch of the id that was used up by it.
    32767, the fence of 32766, is given to nobody."""
    if not before.bumps or before.state not in _COMPLETE.values():
        return False
    if before.producer_id == asked.id:
        return before.epoch == asked.epoch + 1 < MAX_EPOCH
    return before.previous_producer_id == asked.id and asked.epoch == LAST_CLIENT_EPOCH and before.epoch == 0


def _prepared(before: Transaction, request: EndRequest, next_id: ProducerId | None, now_ms: TimestampMs) -> Transaction:
    bumps = request.version >= BUMPING
    event = TransactionEvent.COMMITTED if request.commit else TransactionEvent.ABORTED
    return replace(
        before,
        previous_producer_id=before.producer_id,
        next_producer_id=next_id,
        epoch=min(before.epoch + 1, MAX_EPOCH) if bumps else before.epoch,
        last_epoch=before.epoch if bumps else before.last_epoch,
        state=TRANSACTION.after(before.state, event),
        start_ms=now_ms if before.state in AT_REST else before.start_ms,
        update_ms=now_ms,
        version=request.version,
    )


def abort_with_fence(before: Transaction, now_ms: TimestampMs, version: int) -> Transaction:
    """An open transaction aborted over its producer's head. The epoch is raised once, whatever the version; what was
    raised and not written is raised to the same again."""
    fence = TRANSACTION.after(before.state, TransactionEvent.FENCED)
    bumps = version >= BUMPING
    return replace(
        before,
        previous_producer_id=before.producer_id,
        next_producer_id=None,
        epoch=min(before.epoch + 1, MAX_EPOCH),
        last_epoch=before.epoch if bumps else None,
        state=TRANSACTION.after(fence, TransactionEvent.ABORTED),
        update_ms=now_ms,
        version=version,
    )


def completed(before: Transaction, now_ms: TimestampMs) -> Transaction:
    """Every partition has its marker. The producer id that was promised is in force; what the client last had stays
    ``last_epoch`` (KAFKA-18660)."""
    goes_over = before.next_producer_id is not None
    return replace(
        before,
        producer_id=before.next_producer_id if before.next_producer_id is not None else before.producer_id,
        previous_producer_id=before.producer_id,
        next_producer_id=None,
        epoch=0 if goes_over else before.epoch,
        state=TRANSACTION.after(before.state, TransactionEvent.MARKED),
        partitions=frozenset(),
        update_ms=now_ms,
    )


def _illegal(before: Transaction, request: EndRequest) -> HoldfastError:
    wish = "commit" if request.commit else "abort"
    return InvalidTxnStateError(f"transactional id {request.transactional_id!r} is {before.state.value}: cannot {wish}")
