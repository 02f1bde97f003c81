"""DescribeQuorum (API 55): who the active controller is, in the words of Kafka's metadata quorum.

Our controllers have no quorum (docs/decisions): the brokers that may become controller are listed as voters, the
active one as leader. Tools that look for the controller by this request find it.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.model.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError

METADATA_TOPIC = "__cluster_metadata"


async def handle_describe_quorum(ctx: RequestContext, request: Any) -> Any:
    """The state of ``__cluster_metadata-0``; any other partition is unknown."""
    cache = ctx.broker.metadata
    topics = []
    for topic in request.topics:
        partitions = []
        for part in topic.partitions:
            index = part.partition_index
            if topic.topic_name != METADATA_TOPIC or index != 0:
                partitions.append({"partition_index": index, "error_code": UnknownTopicOrPartitionError()})
                continue
            leader = cache.controller_id
            voters = [
                {"replica_id": b, "log_end_offset": -1, "last_fetch_timestamp": -1, "last_caught_up_timestamp": -1}
                for b in sorted(cache.brokers)
            ]
            partitions.append(
                {
                    "partition_index": 0,
                    "error_code": None if leader is not None else LeaderNotAvailableError(),
                    "leader_id": -1 if leader is None else leader,
                    "leader_epoch": cache.controller_epoch,
                    "high_watermark": -1,
                    "current_voters": voters,
                }
            )
        topics.append({"topic_name": topic.topic_name, "partitions": partitions})
    return respond(ctx, topics=topics)
