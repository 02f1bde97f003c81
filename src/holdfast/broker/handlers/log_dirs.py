"""DescribeLogDirs (API 35): the disks of this broker and what is on them (KIP-113, K113-05).

Versions 1-5. An offline directory answers KAFKA_STORAGE_ERROR, no topics and -1 bytes, as Kafka does.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.model.types import TopicPartition


async def handle_describe_log_dirs(ctx: RequestContext, request: Any) -> Any:
    """Every directory, with the wanted partitions (none named: all)."""
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = {TopicPartition(t.topic, p) for t in request.topics for p in t.partitions}
    replicas, moves = ctx.broker.replicas, ctx.broker.moves
    results = []
    for described in ctx.broker.logs.describe():
        topics: dict[str, list[dict[str, Any]]] = {}
        coming = [(tp, 0, True) for tp in moves.being_made(described.path)]
        for tp, size, is_future in [*described.replicas, *coming] if described.error is None else ():
            if wanted is not None and tp not in wanted:
                continue
            topics.setdefault(tp.topic, []).append(
                {
                    "partition_index": tp.partition,
                    "partition_size": size,
                    "offset_lag": moves.lag_of(tp) if is_future else replicas.offset_lag(tp),
                    "is_future_key": is_future,
                }
            )
        space = described.space
        results.append(
            {
                "error_code": described.error,
                "log_dir": described.path,
                "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
                "total_bytes": -1 if space is None else space.total,
                "usable_bytes": -1 if space is None else space.usable,
                "is_cordoned": described.cordoned,
            }
        )
        await asyncio.sleep(0)  # thousands of partitions must not hold the loop
    return respond(ctx, results=results)
