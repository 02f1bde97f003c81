"""LeaderAndIsr (API 4), StopReplica (API 5) and UpdateMetadata (API 6): what the controller tells this broker.

Requests are desired state: repeating one is success (SPEC C16). A request of an older controller, or one for an
earlier incarnation of this broker, is refused whole. These versions are spoken between brokers only.
"""

from __future__ import annotations

from typing import Any, TypeAlias
from uuid import UUID

from holdfast.broker.handlers.base import RequestContext, answered, respond
from holdfast.model.errors import (
    ClusterAuthorizationFailedError,
    HoldfastError,
    StaleBrokerEpochError,
    StaleControllerEpochError,
)
from holdfast.model.types import TopicPartition
from holdfast.protocol.interbroker import partition_states
from holdfast.replication.types import PartitionState, StopReplica

_Results: TypeAlias = dict[TopicPartition, HoldfastError | None]


def _check(ctx: RequestContext, request: Any) -> None:
    """Refuse requests of another time."""
    broker = ctx.broker
    if request.controller_epoch < broker.metadata.controller_epoch:
        raise StaleControllerEpochError(
            f"controller epoch {request.controller_epoch}: {broker.metadata.controller_epoch} was seen already"
        )
    if 0 <= request.broker_epoch < broker.membership.broker_epoch:
        raise StaleBrokerEpochError(
            f"request for epoch {request.broker_epoch} of broker {broker.broker_id}, "
            f"which is now {broker.membership.broker_epoch}"
        )
    broker.membership.controller_seen(request.controller_epoch)
    if broker.controller is not None and request.controller_epoch > broker.controller.epoch:
        broker.controller.lost(f"the controller of epoch {request.controller_epoch} gives orders")


async def handle_leader_and_isr(ctx: RequestContext, request: Any) -> Any:
    """Become leader or follower as told; the answer has one error per partition that could not."""
    _check(ctx, request)
    states = []
    for tp, topic_id, wire in partition_states(request):
        ctx.broker.metadata.learn(tp.topic, topic_id)
        states.append(_state(tp, topic_id, wire))
    epoch, now_ms, replicas = request.controller_epoch, ctx.now_ms, ctx.broker.replicas
    results: _Results = await answered(
        lambda done: replicas.apply_leader_and_isr(states, controller_epoch=epoch, now_ms=now_ms, done=done)
    )
    topics: dict[Any, list[dict[str, Any]]] = {}
    for state in states:
        tp, error = state.topic_partition, results.get(state.topic_partition)
        answer: dict[str, Any] = {"partition_index": tp.partition, "error_code": error}
        if error is None and state.leader is None and not state.isr and not state.eligible:
            # Nobody has everything: the controller looks for who has the most.
            end = ctx.broker.replicas.log_end(tp)
            if end is not None:
                answer |= {"last_epoch": end.rank[0], "end_offset": end.end_offset}
        topics.setdefault(state.topic_id, []).append(answer)
    return respond(
        ctx, topics=[{"topic_id": topic_id, "partition_errors": parts} for topic_id, parts in topics.items()]
    )


def _state(tp: TopicPartition, topic_id: UUID | None, wire: Any) -> PartitionState:
    return PartitionState(
        topic_partition=tp,
        topic_id=topic_id or UUID(int=0),
        leader=None if wire.leader < 0 else wire.leader,
        leader_epoch=wire.leader_epoch,
        isr=wire.isr,
        partition_epoch=wire.partition_epoch,
        replicas=wire.replicas,
        adding_replicas=wire.adding_replicas,
        removing_replicas=wire.removing_replicas,
        is_new=wire.is_new,
        eligible=wire.eligible,
        recovering=bool(wire.leader_recovery_state),
    )


async def handle_stop_replica(ctx: RequestContext, request: Any) -> Any:
    """Stop serving replicas, and delete those that are to be deleted."""
    _check(ctx, request)
    wanted = [
        StopReplica(
            TopicPartition(topic.topic_name, p.partition_index),
            None if p.leader_epoch < 0 else p.leader_epoch,
            p.delete_partition,
            topic.topic_id,
        )
        for topic in request.topic_states
        for p in topic.partition_states
    ]
    epoch, now_ms, replicas = request.controller_epoch, ctx.now_ms, ctx.broker.replicas
    results: _Results = await answered(
        lambda done: replicas.stop_replicas(wanted, controller_epoch=epoch, now_ms=now_ms, done=done)
    )
    return respond(
        ctx,
        partition_errors=[
            {
                "topic_name": w.topic_partition.topic,
                "partition_index": w.topic_partition.partition,
                "error_code": results.get(w.topic_partition),
            }
            for w in wanted
        ],
    )


async def handle_update_metadata(ctx: RequestContext, request: Any) -> Any:
    """Remember who leads what."""
    _check(ctx, request)
    if request.cluster_id and request.cluster_id != ctx.broker.cluster_id:
        raise ClusterAuthorizationFailedError(
            f"cluster {request.cluster_id}: this broker is of {ctx.broker.cluster_id}"
        )
    ctx.broker.apply_metadata(request)
    return respond(ctx)
