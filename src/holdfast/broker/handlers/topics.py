"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37), ElectLeaders (43): asked of any broker, decided by
the controller.

A broker that is not the controller forwards the request as it came. The controller answers once the change is
durable and every live broker has been told, so that a client that goes on at once meets brokers that know.
"""

from __future__ import annotations

import datetime
import logging
from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.forwarding import TELL_TIMEOUT_S, at_controller
from holdfast.controller import events
from holdfast.model.config_entries import describe_topic
from holdfast.model.errors import HoldfastError, InvalidRequestError, TopicDeletionDisabledError

log = logging.getLogger(__name__)

PREFERRED, UNCLEAN = 0, 1


def milliseconds(value: datetime.timedelta | int) -> int:
    """A duration field of kio."""
    return value if isinstance(value, int) else int(value.total_seconds() * 1000)


async def tell(ctx: RequestContext, timeout_ms: int) -> None:
    """Until every live broker has heard of the change, or the time has passed."""
    controller = ctx.broker.controller
    if controller is not None:
        await controller.told_everybody(min(TELL_TIMEOUT_S, max(0.1, timeout_ms / 1000)))


@at_controller
async def handle_create_topics(ctx: RequestContext, request: Any) -> Any:
    """Versions 2-7."""
    reply = await ctx.submit(
        events.CreateTopics(
            topics=tuple(
                events.NewTopic(
                    name=t.name,
                    partitions=None if t.num_partitions == -1 else t.num_partitions,
                    replication_factor=None if t.replication_factor == -1 else t.replication_factor,
                    assignments=tuple((a.partition_index, tuple(a.broker_ids)) for a in t.assignments),
                    configs=tuple((c.name, c.value) for c in t.configs),
                )
                for t in request.topics
            ),
            validate_only=request.validate_only,
        )
    )
    if not request.validate_only:
        await tell(ctx, milliseconds(request.timeout))
    return respond(ctx, topics=[_created(ctx, r) for r in reply.topics])


def _created(ctx: RequestContext, result: Any) -> dict[str, Any]:
    if result.error is not None:
        return {
            "name": result.name, "error_code": result.error, "error_message": result.error.message,
            "num_partitions": -1, "replication_factor": -1, "configs": [],
        }  # fmt: skip
    return {
        "name": result.name,
        "topic_id": result.topic_id,
        "error_message": None,
        "num_partitions": result.partitions,
        "replication_factor": result.replication_factor,
        "configs": [
            {
                "name": e.key.name,
                "value": e.value,
                "read_only": e.read_only,
                "config_source": e.source.value,
                "is_sensitive": e.key.sensitive,
            }
            for e in describe_topic(ctx.broker.config, dict(result.configs))
        ],
    }


@at_controller
async def handle_delete_topics(ctx: RequestContext, request: Any) -> Any:
    """Versions 1-6; from version 6 by name or id."""
    if ctx.version >= 6:
        wanted = tuple((t.name, t.topic_id) for t in request.topics)
    else:
        wanted = tuple((name, None) for name in request.topic_names)
    if not ctx.broker.config.bool("delete.topic.enable"):
        error = TopicDeletionDisabledError("delete.topic.enable is false")
        failed = {"error_code": error, "error_message": str(error)}
        return respond(ctx, responses=[{"name": n, "topic_id": i} | failed for n, i in wanted])
    reply = await ctx.submit(events.DeleteTopics(topics=wanted))
    await tell(ctx, milliseconds(request.timeout))
    return respond(
        ctx,
        responses=[
            {
                "name": r.name,
                "topic_id": r.topic_id,
                "error_code": r.error,
                "error_message": None if r.error is None else r.error.message,
            }
            for r in reply.topics
        ],
    )


@at_controller
async def handle_create_partitions(ctx: RequestContext, request: Any) -> Any:
    """Versions 0-3."""
    reply = await ctx.submit(
        events.CreatePartitions(
            topics=tuple(
                events.MorePartitions(
                    name=t.name,
                    count=t.count,
                    assignments=None if t.assignments is None else tuple(tuple(a.broker_ids) for a in t.assignments),
                )
                for t in request.topics
            ),
            validate_only=request.validate_only,
        )
    )
    if not request.validate_only:
        await tell(ctx, milliseconds(request.timeout))
    return respond(ctx, results=[_named(r) for r in reply.topics])


def _named(result: Any) -> dict[str, Any]:
    error: HoldfastError | None = result.error
    return {"name": result.name, "error_code": error, "error_message": None if error is None else error.message}


@at_controller
async def handle_elect_leaders(ctx: RequestContext, request: Any) -> Any:
    """Versions 0-2: preferred or unclean election; no topics named means all partitions."""
    kind = getattr(request, "election_type", PREFERRED)
    if kind not in (PREFERRED, UNCLEAN):
        return _no_such_election(ctx, request, kind)
    wanted = None
    if request.topic_partitions is not None:
        wanted = tuple((t.topic, p) for t in request.topic_partitions for p in t.partitions)
    reply = await ctx.submit(events.ElectLeaders(unclean=kind == UNCLEAN, partitions=wanted))
    await tell(ctx, milliseconds(request.timeout))
    topics: dict[str, list[dict[str, Any]]] = {}
    for r in reply.partitions:
        topics.setdefault(r.topic, []).append(
            {
                "partition_id": r.partition,
                "error_code": r.error,
                "error_message": None if r.error is None else r.error.message,
            }
        )
    return respond(
        ctx, replica_election_results=[{"topic": t, "partition_result": parts} for t, parts in topics.items()]
    )


def _no_such_election(ctx: RequestContext, request: Any, kind: int) -> Any:
    error = InvalidRequestError(f"Unknown election type {kind}")
    failed = {"error_code": error, "error_message": error.message}
    return respond(
        ctx,
        error_code=error,
        replica_election_results=[
            {"topic": t.topic, "partition_result": [{"partition_id": p} | failed for p in t.partitions]}
            for t in request.topic_partitions or ()
        ],
    )
