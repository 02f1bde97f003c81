"""InitProducerId (22) for idempotent producers, and AllocateProducerIds (67) between brokers.

InitProducerId 0-5: a fresh producer id with epoch 0, from a block that the controller gave this broker. A
producer that names its id and epoch gets the epoch raised (KIP-360). Transactional ids are refused (coordinator.py).
A broker that is out of its cluster and has no id left closes the connection: an error would keep the client here.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.coordinator import NO_TRANSACTIONS
from holdfast.controller import events
from holdfast.model.errors import (
    HoldfastError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    TransactionalIdAuthorizationFailedError,
)

MAX_EPOCH = 2**15 - 1
MAX_TRANSACTION_S = 900


async def handle_init_producer_id(ctx: RequestContext, request: Any) -> Any:
    """See the module."""
    if request.transactional_id is not None:
        return respond(ctx, error_code=_refusal(request), producer_id=-1, producer_epoch=-1)
    producer_id, epoch = getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1)
    if producer_id >= 0 and 0 <= epoch < MAX_EPOCH - 1:
        return respond(ctx, producer_id=producer_id, producer_epoch=epoch + 1)
    return respond(ctx, producer_id=await _fresh_id(ctx), producer_epoch=0)


async def _fresh_id(ctx: RequestContext) -> int:
    """An id that nobody else has. librdkafka asks the broker that it asked last again, for ever, on each error that it
    takes for one that passes, and all that name no cause do; where the connection ends it asks any other broker."""
    try:
        return await ctx.broker.producer_ids.next()
    except HoldfastError as error:
        if not ctx.broker.membership.is_current:
            ctx.connection.close(f"no producer id is left, and this broker is out of its cluster: {error}")
        raise


def _refusal(request: Any) -> HoldfastError:
    """Why there is no producer id for a transactional id."""
    if not request.transactional_id:
        return InvalidRequestError("transactional.id: empty, expected a name or none")
    seconds = request.transaction_timeout.total_seconds()
    if not 0 < seconds <= MAX_TRANSACTION_S:
        return InvalidTransactionTimeoutError(
            f"transaction.timeout.ms of {seconds * 1000:.0f}: expected 1 to {MAX_TRANSACTION_S * 1000}"
        )
    return TransactionalIdAuthorizationFailedError(NO_TRANSACTIONS)


async def handle_allocate_producer_ids(ctx: RequestContext, request: Any) -> Any:
    """Version 0: a block of ids for one broker."""
    reply = await ctx.submit(events.AllocateProducerIds(broker_id=request.broker_id, broker_epoch=request.broker_epoch))
    return respond(ctx, producer_id_start=reply.first, producer_id_len=reply.size)
