"""InitProducerId with a transactional id: a producer begins, or goes on after an error (KIP-360).

A producer that begins gets the epoch after the last, so that every earlier instance is fenced. One that goes on names
its producer id and epoch: if it is still the newest it gets the next epoch, and if it asks again because the answer
was lost, the one that it was given. Over an open transaction the epoch is raised **once**, by its abort, and the
producer comes again when the markers are written (KAFKA-19367). Epoch 32766 is the last that a client has: after it
comes another producer id.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.model.types import TimestampMs
from holdfast.transactions.decisions import Decision, NeedsId, RefusedTransaction, Write, fenced, in_change
from holdfast.transactions.ending import abort_with_fence
from holdfast.transactions.states import AT_REST, PREPARED, TRANSACTION, TransactionEvent, TransactionState
from holdfast.transactions.types import LAST_CLIENT_EPOCH, MAX_EPOCH, InitRequest, Producer, ProducerId, Transaction


def initialize(
    before: Transaction | None, request: InitRequest, *, fresh_id: ProducerId | None, now_ms: TimestampMs, version: int
) -> Decision:
    """``fresh_id``: a producer id that nobody has, after NeedsId. ``version``: the cluster's transaction version."""
    name = request.transactional_id
    if before is None:
        return NeedsId() if fresh_id is None else Write(_first(request, fresh_id, now_ms))
    found = Producer(before.producer_id, before.epoch)
    if request.producer is not None and not _may_go_on(before, request.producer):
        return RefusedTransaction(fenced(name, request.producer, found))
    if before.state in PREPARED:
        return RefusedTransaction(in_change(name))
    if before.state is TransactionState.ONGOING:
        return Write(abort_with_fence(before, now_ms, version), refuse=in_change(name))
    assert before.state in AT_REST, before.state
    if before.epoch >= LAST_CLIENT_EPOCH and _is_newest(before, request.producer):
        return NeedsId() if fresh_id is None else Write(_rotated(before, request, fresh_id, now_ms))
    if request.producer is None:
        return Write(_initialized(before, request, before.epoch + 1, None, now_ms))
    if request.producer.epoch == before.epoch:
        return Write(_initialized(before, request, before.epoch + 1, before.epoch, now_ms))
    if request.producer.epoch == before.last_epoch:  # it did not get the answer
        return Write(_initialized(before, request, before.epoch, before.last_epoch, now_ms))
    return RefusedTransaction(fenced(name, request.producer, found))


def _may_go_on(before: Transaction, asked: Producer) -> bool:
    """Its epoch is looked at later. The previous id: it may not have got the answer that has the new one."""
    is_previous = asked.id == before.previous_producer_id and asked.epoch >= LAST_CLIENT_EPOCH
    return asked.id == before.producer_id or is_previous


def _is_newest(before: Transaction, asked: Producer | None) -> bool:
    """It is not asked again for an answer that was lost. 32767 is never given out: it is the fence of 32766."""
    if asked is None or asked.epoch == before.epoch:
        return True
    return before.epoch == MAX_EPOCH and asked.epoch == before.last_epoch


def _first(request: InitRequest, fresh_id: ProducerId, now_ms: TimestampMs) -> Transaction:
    return Transaction(
        producer_id=fresh_id,
        previous_producer_id=fresh_id,  # as Kafka writes it
        epoch=0,
        timeout_ms=request.timeout_ms,
        state=TransactionState.EMPTY,
        update_ms=now_ms,
    )


def _initialized(
    before: Transaction, request: InitRequest, epoch: int, last_epoch: int | None, now_ms: TimestampMs
) -> Transaction:
    return Transaction(
        producer_id=before.producer_id,
        previous_producer_id=before.producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=request.timeout_ms,
        state=TRANSACTION.after(before.state, TransactionEvent.INITIALIZED),
        update_ms=now_ms,
        version=before.version,
    )


def _rotated(before: Transaction, request: InitRequest, fresh_id: ProducerId, now_ms: TimestampMs) -> Transaction:
    last_epoch = None if request.producer is None else request.producer.epoch
    return replace(_initialized(before, request, 0, last_epoch, now_ms), producer_id=fresh_id)
