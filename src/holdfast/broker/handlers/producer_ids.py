"""InitProducerId (22), and AllocateProducerIds (67) between brokers.

InitProducerId 0-5. Without a transactional id: always a fresh producer id with epoch 0, from a block that the
controller gave this broker, whatever the producer had before. With one: see transactions/initializing.py; up to version
3 clients do not know PRODUCER_FENCED and are told INVALID_PRODUCER_EPOCH. A broker that is out of its cluster and has
no id left closes the connection: an error would keep the client here.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.broker.handlers.base import RequestContext, answered, respond
from holdfast.broker.handlers.transactions import as_known, coordinator_of
from holdfast.controller import events
from holdfast.model.errors import HoldfastError, InvalidRequestError
from holdfast.security.resources import Operation, ResourceKind
from holdfast.transactions.types import InitRequest, Producer, ProducerReply

_NONE = -1
_MILLISECOND = timedelta(milliseconds=1)
_FENCED_VERSION = 4


async def handle_init_producer_id(ctx: RequestContext, request: Any) -> Any:
    """See the module."""
    denied = _denied(ctx, request.transactional_id)
    if denied is not None:
        return respond(ctx, error_code=denied, producer_id=_NONE, producer_epoch=_NONE)
    if request.transactional_id is None:
        return respond(ctx, producer_id=await _fresh_id(ctx), producer_epoch=0)
    told = await _transactional(ctx, request)
    if isinstance(told, HoldfastError):
        error = as_known(told, ctx.version >= _FENCED_VERSION)
        return respond(ctx, error_code=error, producer_id=_NONE, producer_epoch=_NONE)
    return respond(ctx, producer_id=told.id, producer_epoch=told.epoch)


def _denied(ctx: RequestContext, transactional_id: str | None) -> HoldfastError | None:
    """Without a transactional id, who may write anything at all gets an id, too (KIP-679)."""
    if transactional_id is not None:
        return ctx.missing(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id)
    if ctx.may(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER) or ctx.may_any(Operation.WRITE, ResourceKind.TOPIC):
        return None
    return ctx.denied(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER)


async def _transactional(ctx: RequestContext, request: Any) -> Producer | HoldfastError:
    producer_id, epoch = getattr(request, "producer_id", _NONE), getattr(request, "producer_epoch", _NONE)
    if (producer_id == _NONE) != (epoch == _NONE):
        return InvalidRequestError(f"producer id {producer_id} with epoch {epoch}: expected both or neither")
    asked = InitRequest(
        transactional_id=request.transactional_id,
        timeout_ms=request.transaction_timeout // _MILLISECOND,
        producer=None if producer_id == _NONE else Producer(producer_id, epoch),
    )

    def ask(reply: ProducerReply) -> None:
        coordinator_of(ctx).initialize(asked, ctx.now_ms, reply)

    return await answered(ask)


async def _fresh_id(ctx: RequestContext) -> int:
    """An id that nobody else has. librdkafka asks the broker that it asked last again, for ever, on each error that it
    takes for one that passes, and all that name no cause do; where the connection ends it asks any other broker."""
    try:
        return await ctx.broker.producer_ids.next()
    except HoldfastError as error:
        if not ctx.broker.membership.is_current:
            ctx.connection.close(f"no producer id is left, and this broker is out of its cluster: {error}")
        raise


async def handle_allocate_producer_ids(ctx: RequestContext, request: Any) -> Any:
    """Version 0: a block of ids for one broker."""
    reply = await ctx.submit(events.AllocateProducerIds(broker_id=request.broker_id, broker_epoch=request.broker_epoch))
    return respond(ctx, producer_id_start=reply.first, producer_id_len=reply.size)
