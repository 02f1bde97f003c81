"""BrokerRegistration (62), BrokerHeartbeat (63), AlterPartition (56): what brokers ask of the controller; and
UnregisterBroker (64), by which a person has it forget one.

The first three are spoken between brokers only. A broker that is not the controller answers NOT_CONTROLLER; the asker
looks up who is. The connection over which a broker heartbeats is remembered: its end is news of that broker's
death (DESIGN 11).
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.forwarding import TELL_TIMEOUT_S, at_controller
from holdfast.controller import events
from holdfast.model.errors import (
    BrokerIdNotRegisteredError,
    HoldfastError,
    InconsistentClusterIdError,
    InvalidRequestError,
)
from holdfast.model.fates import ReplicaFate, ReplicaFates, ReplicaTurn
from holdfast.model.types import TopicPartition
from holdfast.protocol.interbroker import endpoints_of


def _fates(request: Any) -> ReplicaFates:
    """What became of the broker's replicas. One that only tells the epoch of a clean stop, or none, has all or may
    lack something everywhere."""
    continues = None if request.previous_broker_epoch < 0 else int(request.previous_broker_epoch)
    if request.rest < 0:
        return ReplicaFates(continues=continues, rest=ReplicaFate.DAMAGED if continues is None else ReplicaFate.KEPT)
    fates = ReplicaFates(
        continues=continues,
        rest=ReplicaFate(request.rest),
        others={
            TopicPartition(group.topic_name, int(number)): ReplicaFate(group.fate)
            for group in request.fates
            for number in group.partitions
        },
    )
    if continues is None and ReplicaFate.KEPT in (fates.rest, *fates.others.values()):
        raise InvalidRequestError(f"broker {request.broker_id} kept replicas of no epoch: expected a previous one")
    return fates


def _directories(wire: Any) -> tuple[Any, ...] | None:
    """Directory ids, or that nothing is said of them."""
    return None if wire is None else tuple(wire)


async def handle_broker_registration(ctx: RequestContext, request: Any) -> Any:
    """Version 4. The answer is the broker's new epoch."""
    if request.cluster_id != ctx.broker.cluster_id:
        raise InconsistentClusterIdError(f"cluster {request.cluster_id}: this one is {ctx.broker.cluster_id}")
    reply = await ctx.submit(
        events.BrokerRegister(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            cluster_id=request.cluster_id,
            endpoints=endpoints_of(request, ((listener.name, listener) for listener in request.listeners)),
            rack=request.rack,
            log_dirs=tuple(request.log_dirs),
            cordoned=_directories(request.cordoned_log_dirs),
            fates=_fates(request),
            features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in request.features),
            host=(request.host or None) if ctx.broker.kept_ids is None else None,
        )
    )
    ctx.connection.session.broker = (request.broker_id, reply.broker_epoch)
    return respond(ctx, broker_epoch=reply.broker_epoch)


def _turns(request: Any) -> tuple[tuple[TopicPartition, ReplicaTurn], ...]:
    """What the broker tells of its replicas; one that does not know of this tells nothing."""
    try:
        return tuple(
            (TopicPartition(group.topic_name, int(number)), ReplicaTurn(group.turn))
            for group in request.turns
            for number in group.partitions
        )
    except ValueError as e:
        known = ", ".join(f"{turn.value} ({turn.name})" for turn in ReplicaTurn)
        raise InvalidRequestError(f"broker {request.broker_id}: {e}: expected one of {known}") from e


async def handle_broker_heartbeat(ctx: RequestContext, request: Any) -> Any:
    """Version 2. A fenced broker stays so until it has answered all orders."""
    controller = ctx.broker.controller
    if (
        controller is not None
        and not request.want_shut_down
        and not await controller.has_told(request.broker_id, request.broker_epoch)
    ):
        return respond(ctx, is_caught_up=False, is_fenced=True, should_shut_down=False)
    turns = _turns(request)
    if turns:  # first: who is back with less than it had must not be elected because its broker lives
        await ctx.submit(
            events.ReplicaTurns(
                broker_id=request.broker_id, broker_epoch=request.broker_epoch, turns=turns, number=request.number
            )
        )
    reply = await ctx.submit(
        events.BrokerHeartbeat(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            want_fence=request.want_fence,
            want_shutdown=request.want_shut_down,
            offline_dirs=tuple(request.offline_log_dirs or ()),
            cordoned=_directories(request.cordoned_log_dirs),
            log_dirs=_directories(request.log_dirs),
            current_metadata_offset=request.current_metadata_offset,
        )
    )
    ctx.connection.session.broker = (request.broker_id, request.broker_epoch)
    if reply.should_shut_down and ctx.broker.controller is not None:
        # Those who lead now must know it before the broker stops serving.
        await ctx.broker.controller.told_everybody(TELL_TIMEOUT_S)
    return respond(
        ctx, is_caught_up=reply.is_caught_up, is_fenced=reply.is_fenced, should_shut_down=reply.should_shut_down
    )


def _members(wire: Any) -> tuple[tuple[int, int | None], ...]:
    """Replicas with their broker epochs; None where the leader does not know one."""
    return tuple((m.broker_id, None if m.broker_epoch < 0 else m.broker_epoch) for m in wire.new_isr_with_epochs)


async def handle_alter_partition(ctx: RequestContext, request: Any) -> Any:
    """Version 3: new in-sync sets that leaders propose."""
    wanted = tuple(
        events.AlterPartitionState(
            topic_id=topic.topic_id,
            partition=p.partition_index,
            leader_epoch=p.leader_epoch,
            partition_epoch=p.partition_epoch,
            isr=_members(p),
            recovered=p.leader_recovery_state == 0,
        )
        for topic in request.topics
        for p in topic.partitions
    )
    reply = await ctx.submit(
        events.AlterPartition(broker_id=request.broker_id, broker_epoch=request.broker_epoch, partitions=wanted)
    )
    topics: dict[Any, list[dict[str, Any]]] = {}
    for r in reply.partitions:
        answer: dict[str, Any] = {"partition_index": r.partition, "error_code": r.error}
        if r.error is None:
            answer |= {
                "leader_id": -1 if r.leader is None else r.leader,
                "leader_epoch": r.leader_epoch,
                "isr": r.isr,
                "leader_recovery_state": int(r.recovering),
                "partition_epoch": r.partition_epoch,
                "eligible": r.eligible,
            }
        topics.setdefault(r.topic_id, []).append(answer)
    return respond(ctx, topics=[{"topic_id": t, "partitions": parts} for t, parts in topics.items()])


@at_controller
async def handle_unregister_broker(ctx: RequestContext, request: Any) -> Any:
    """Version 0. Kafka takes a live broker's registration away as well; here that is refused with 42."""
    error: HoldfastError | None = None
    try:
        await ctx.submit(events.UnregisterBroker(broker_id=request.broker_id))
        if ctx.broker.controller is not None:
            await ctx.broker.controller.told_everybody(TELL_TIMEOUT_S)
    except (BrokerIdNotRegisteredError, InvalidRequestError) as e:
        error = e
    return respond(ctx, error_code=error, error_message=None if error is None else error.message)
