"""ClaimBrokerId, by which a broker that starts gets its id from the controller, and ManageBrokerIds, by which operators
see and change which host has which id (ours, protocol/broker_ids.py).

A store that keeps that apart from the records is asked itself (kept_ids.py), and takes claims itself.

Version 0 of each. What is decided is controller/broker_ids.py's. A claim is answered by the controller alone, before
its own broker counts as alive too: the first brokers of a cluster start like that.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.forwarding import at_controller
from holdfast.controller import events
from holdfast.controller.broker_ids import listing
from holdfast.metadata.broker_ids import Applicant, Awaited, Nameless, Outcome, SeveralMissing, Step, Taken
from holdfast.model.config_protocol import NEWEST, PROTOCOL_VERSION
from holdfast.model.errors import (
    HoldfastError,
    InconsistentClusterIdError,
    InvalidRequestError,
    NotControllerError,
    ResourceNotFoundError,
)
from holdfast.protocol.broker_ids import ClaimResult, HostAction
from holdfast.security.resources import Operation, ResourceKind

_RESULTS = {Step.HOST: ClaimResult.HOST, Step.MISSING: ClaimResult.MISSING, Step.NEW: ClaimResult.NEW}


async def handle_claim_broker_id(ctx: RequestContext, request: Any) -> Any:
    """See the module."""
    if request.cluster_id != ctx.broker.cluster_id:
        raise InconsistentClusterIdError(f"cluster {request.cluster_id}: this one is {ctx.broker.cluster_id}")
    if ctx.broker.kept_ids is not None:
        raise InvalidRequestError("a claim of a broker id: this cluster's are kept apart, expected to be taken there")
    if request.claimant is None:
        raise InvalidRequestError("a claim without a claimant: expected an id of the start")
    applicant = Applicant(
        host=request.host,
        claimant=request.claimant,
        address=request.address,
        adopts=request.adopts,
        may_be_new=request.may_be_new,
        insists=request.insists,
        reserved_max=int(request.reserved_max),
    )
    return respond(ctx, error_code=None, **_told(await ctx.submit(events.ClaimBrokerId(applicant=applicant))))


def _told(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Taken(broker_id=broker_id, step=step):
            return {"result": int(_RESULTS[step]), "broker_id": broker_id}
        case Awaited(broker_id=broker_id):
            return {"result": int(ClaimResult.AWAITED), "broker_id": broker_id}
        case SeveralMissing(missing=missing):
            return {"result": int(ClaimResult.SEVERAL_MISSING), "missing": missing}
        case Nameless():
            return {"result": int(ClaimResult.NAMELESS)}


@at_controller
async def handle_manage_broker_ids(ctx: RequestContext, request: Any) -> Any:
    """See the module."""
    operation = Operation.DESCRIBE if request.action == HostAction.LIST else Operation.ALTER
    denied = ctx.missing(operation, ResourceKind.CLUSTER)
    if denied is not None:
        raise denied
    try:
        reply = await _submit(ctx, _wanted(ctx, request))
    except (InvalidRequestError, ResourceNotFoundError) as e:
        return _answer(ctx, await _submit(ctx, events.ManageBrokerIds()), e)
    return _answer(ctx, reply, None)


async def _submit(ctx: RequestContext, event: events.ManageBrokerIds) -> events.BrokerHosts:
    """To the controller, or to the store where it keeps this apart; the controller knows who lives."""
    kept = ctx.broker.kept_ids
    if kept is None:
        reply: events.BrokerHosts = await ctx.submit(event)
        return reply
    hosts, sequence = await kept.manage(event.host, event.broker_id)
    if ctx.broker.controller is None:
        raise NotControllerError("this broker is not the controller")
    return listing(ctx.broker.controller.image, hosts, sequence)


def _wanted(ctx: RequestContext, request: Any) -> events.ManageBrokerIds:
    if request.action == HostAction.LIST:
        return events.ManageBrokerIds()
    if request.action not in (HostAction.SET, HostAction.FORGET):
        raise InvalidRequestError(
            f"action {request.action}: expected one of {', '.join(map(str, map(int, HostAction)))}"
        )
    if not request.host:
        raise InvalidRequestError("no host: expected the key of one")
    if request.action == HostAction.SET and not ctx.broker.config.protocol_is_newest:
        version = ctx.broker.config.str(PROTOCOL_VERSION)
        raise InvalidRequestError(f"{PROTOCOL_VERSION}={version} keeps no ids of hosts: expected {NEWEST}")
    broker_id = int(request.broker_id) if request.action == HostAction.SET else None
    return events.ManageBrokerIds(host=request.host, broker_id=broker_id)


def _answer(ctx: RequestContext, reply: events.BrokerHosts, error: HoldfastError | None) -> Any:
    return respond(
        ctx,
        error_code=error,
        error_message=None if error is None else error.message,
        sequence=reply.sequence,
        hosts=[
            {
                "host": each.host,
                "broker_id": each.broker_id,
                "is_awaited": each.is_awaited,
                "is_registered": each.is_alive is not None,
                "is_alive": bool(each.is_alive),
            }
            for each in reply.hosts
        ],
    )
