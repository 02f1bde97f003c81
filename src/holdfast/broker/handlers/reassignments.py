"""AlterPartitionReassignments (45) and ListPartitionReassignments (46): asked of any broker, decided by the controller
(controller/reassignment.py)."""

from __future__ import annotations

import logging
from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.forwarding import at_controller
from holdfast.broker.handlers.topics import milliseconds, tell
from holdfast.controller import events
from holdfast.model.errors import IneligibleReplicaError

log = logging.getLogger(__name__)


@at_controller
async def handle_alter_partition_reassignments(ctx: RequestContext, request: Any) -> Any:
    """Versions 0-1. The answer says that it has begun."""
    wanted = tuple(
        events.Reassignment(
            topic=t.name,
            partition=p.partition_index,
            replicas=None if p.replicas is None else tuple(p.replicas),
        )
        for t in request.topics
        for p in t.partitions
    )
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    reply = await ctx.submit(events.AlterReassignments(partitions=wanted, may_change_factor=may_change_factor))
    await tell(ctx, milliseconds(request.timeout))
    topics: dict[str, list[dict[str, Any]]] = {t.name: [] for t in request.topics}
    for r in reply.partitions:
        if isinstance(r.error, IneligibleReplicaError):  # the code alone does not tell why (K1066-08)
            log.info("reassignment refused: %s", r.error)
        topics[r.topic].append(
            {
                "partition_index": r.partition,
                "error_code": r.error,
                "error_message": None if r.error is None else r.error.message,
            }
        )
    answers = [{"name": name, "partitions": parts} for name, parts in topics.items()]
    if ctx.version >= 1:
        return respond(ctx, allow_replication_factor_change=may_change_factor, error_message=None, responses=answers)
    return respond(ctx, error_message=None, responses=answers)


@at_controller
async def handle_list_partition_reassignments(ctx: RequestContext, request: Any) -> Any:
    """Version 0; no topics named means all."""
    topics = request.topics
    wanted = None if topics is None else tuple((t.name, tuple(t.partition_indexes)) for t in topics)
    reply = await ctx.submit(events.ListReassignments(topics=wanted))
    found: dict[str, list[dict[str, Any]]] = {}
    for each in reply.partitions:
        found.setdefault(each.topic, []).append(
            {
                "partition_index": each.partition,
                "replicas": list(each.replicas),
                "adding_replicas": list(each.adding),
                "removing_replicas": list(each.removing),
            }
        )
    return respond(ctx, error_message=None, topics=[{"name": n, "partitions": parts} for n, parts in found.items()])
