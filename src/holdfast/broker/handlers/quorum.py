"""DescribeQuorum (API 55): who the active controller is, and how much of the metadata each broker has, in the words of
Kafka's metadata quorum.

Versions 0-2. Our controllers have no quorum (docs/decisions): the brokers that may become controller are listed as
voters, the active one as leader, and what the others have taken of its metadata as their log. The controller answers;
tools that look for it by this request find it.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.forwarding import at_controller
from holdfast.model.errors import NotControllerError, UnknownTopicOrPartitionError

METADATA_TOPIC = "__cluster_metadata"


@at_controller
async def handle_describe_quorum(ctx: RequestContext, request: Any) -> Any:
    """The state of ``__cluster_metadata-0``; any other partition is unknown."""
    topics = []
    for topic in request.topics:
        partitions = [
            _quorum(ctx)
            if topic.topic_name == METADATA_TOPIC and part.partition_index == 0
            else {"partition_index": part.partition_index, "error_code": UnknownTopicOrPartitionError()}
            for part in topic.partitions
        ]
        topics.append({"topic_name": topic.topic_name, "partitions": partitions})
    nodes = [
        {
            "node_id": b.id,
            "listeners": [{"name": e.name, "host": e.host, "port": e.port} for e in b.endpoints.for_clients],
        }
        for b in sorted(ctx.broker.metadata.brokers.values(), key=lambda b: b.id)
    ]
    return respond(ctx, error_message=None, topics=topics, nodes=nodes)


def _quorum(ctx: RequestContext) -> dict[str, Any]:
    controller, me = ctx.broker.controller, ctx.broker.broker_id
    if controller is None:
        raise NotControllerError(f"broker {me} is not the controller")
    return {
        "partition_index": 0,
        "error_code": None,
        "error_message": None,
        "leader_id": me,
        "leader_epoch": controller.epoch,
        "high_watermark": controller.end_offset,
        "current_voters": [_voter(ctx, controller, broker) for broker in sorted(ctx.broker.metadata.brokers)],
    }


def _voter(ctx: RequestContext, controller: Any, broker_id: int) -> dict[str, Any]:
    now_ms = ctx.now_ms
    end, at_ms = controller.end_offset, now_ms
    if broker_id != ctx.broker.broker_id:
        heard = controller.heard_by(broker_id)
        if heard is None:
            end = at_ms = -1
        else:
            end, at_ms = min(end, heard[0]), now_ms - (ctx.broker.monotonic_ms() - heard[1])
    return {
        "replica_id": broker_id,
        "log_end_offset": end,
        "last_fetch_timestamp": at_ms,
        "last_caught_up_timestamp": at_ms,
    }
