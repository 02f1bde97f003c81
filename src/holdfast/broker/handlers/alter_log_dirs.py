"""AlterReplicaLogDirs (API 34): replicas of this broker are to be on other log directories (KIP-113).

Versions 1-2. Answers at once: the move goes on in the background, DescribeLogDirs shows how far it is.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition


async def handle_alter_replica_log_dirs(ctx: RequestContext, request: Any) -> Any:
    """One wish per partition; of several for the same one the last counts."""
    wishes: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                wishes[TopicPartition(topic.name, partition)] = directory.path
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, path in wishes.items():
        error: HoldfastError | None = None
        try:
            ctx.broker.moves.alter(tp, path)
        except HoldfastError as e:
            error = e
        topics.setdefault(tp.topic, []).append({"partition_index": tp.partition, "error_code": error})
    return respond(ctx, results=[{"topic_name": name, "partitions": answers} for name, answers in topics.items()])
