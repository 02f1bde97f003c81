"""CreateTopics (19), DeleteTopics (20), CreatePartitions (37), ElectLeaders (43): asked of any broker, decided by
the controller.

A broker that is not the controller forwards the request as it came. The controller answers once the change is
durable and every live broker has been told, so that a client that goes on at once meets brokers that know.
"""

from __future__ import annotations

import datetime
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias
from uuid import UUID

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.forwarding import TELL_TIMEOUT_S, at_controller
from holdfast.broker.handlers.mutations import Mutations
from holdfast.broker.membership import is_forwarded
from holdfast.controller import events
from holdfast.metadata.image import TopicImage
from holdfast.model.config_entries import describe_topic
from holdfast.model.errors import (
    HoldfastError,
    InvalidRequestError,
    TopicAuthorizationFailedError,
    TopicDeletionDisabledError,
    UnknownTopicOrPartitionError,
)
from holdfast.security.operations import refusal
from holdfast.security.resources import Operation, ResourceKind

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
    """Versions 2-7. A topic that who asks may not create is refused by itself."""
    names = {str(t.name) for t in request.topics}
    creatable = names if ctx.may(Operation.CREATE, ResourceKind.CLUSTER) or _is_brokers_own(ctx) else None
    if creatable is None:
        creatable = {*ctx.allowed(Operation.CREATE, ResourceKind.TOPIC, names)}
    may_describe = ctx.allowed(Operation.DESCRIBE_CONFIGS, ResourceKind.TOPIC, names, is_filter=True)
    mutations = Mutations(ctx, counts=not request.validate_only)
    usual = ctx.broker.config.int("num.partitions")
    over = {t.name: mutations.refusal(_count(t, usual)) for t in request.topics if t.name in creatable}
    reply = await ctx.submit(
        events.CreateTopics(
            topics=tuple(
                events.TopicToCreate(
                    name=t.name,
                    partitions=None if t.num_partitions == -1 else t.num_partitions,
                    replication_factor=None if t.replication_factor == -1 else t.replication_factor,
                    assignments=tuple((a.partition_index, tuple(a.broker_ids)) for a in t.assignments),
                    configs=tuple((c.name, c.value) for c in t.configs),
                )
                for t in request.topics
                if t.name in creatable and over[t.name] is None
            ),
            validate_only=request.validate_only,
        )
    )
    if not request.validate_only:
        await tell(ctx, milliseconds(request.timeout))
    topics = [_created(ctx, r, r.name in may_describe) for r in reply.topics]
    topics += [
        _nothing(name, _NOT_CREATABLE if times == 1 else InvalidRequestError(_TWICE))
        for name, times in _refused(request.topics, creatable).items()
    ]
    topics += [_nothing(name, error) for name, error in over.items() if error is not None]
    return respond(ctx, topics=topics, throttle_time=mutations.throttle_ms)


def _count(topic: Any, usual: int) -> int:
    """The partitions that a new topic would have."""
    if topic.assignments:
        return len(topic.assignments)
    return usual if topic.num_partitions == -1 else int(topic.num_partitions)


_TWICE: Final = "Duplicate topic name."
"""What is said once of a name that comes twice, whatever else is wrong with it, as in Kafka."""


def _refused(topics: Iterable[Any], allowed: Collection[str]) -> Counter[str]:
    """How often each name comes that who asks has no right to."""
    return Counter(str(t.name) for t in topics if t.name not in allowed)


_NOT_CREATABLE: Final = TopicAuthorizationFailedError("Authorization failed.")


def _is_brokers_own(ctx: RequestContext) -> bool:
    """Whether a broker asks for itself: for topics of coordinators, and for those that its clients may create."""
    return (
        ctx.asker is None
        and is_forwarded(ctx.connection, ctx.client_id)
        and ctx.may(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
    )


def _nothing(name: str, error: HoldfastError) -> dict[str, Any]:
    return {
        "name": name, "error_code": error, "error_message": error.message,
        "num_partitions": -1, "replication_factor": -1, "configs": [],
    }  # fmt: skip


def _created(ctx: RequestContext, result: Any, may_describe: bool) -> dict[str, Any]:
    if result.error is not None:
        return _nothing(result.name, result.error)
    if not may_describe:
        denied = {"topic_config_error_code": refusal(ResourceKind.TOPIC), "error_code": None, "error_message": None}
        return _nothing(result.name, _NOT_CREATABLE) | denied | {"topic_id": result.topic_id}
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
    refused: list[dict[str, Any]] = []
    if ctx.is_judged:
        wanted, refused = _deletable(ctx, wanted)
    mutations = Mutations(ctx)
    wanted, over = _within_quota(ctx, wanted, mutations)
    refused += over
    reply = await ctx.submit(events.DeleteTopics(topics=wanted))
    await tell(ctx, milliseconds(request.timeout))
    return respond(
        ctx,
        throttle_time=mutations.throttle_ms,
        responses=[
            {
                "name": r.name,
                "topic_id": r.topic_id,
                "error_code": r.error,
                "error_message": None if r.error is None else r.error.message,
            }
            for r in reply.topics
        ]
        + refused,
    )


def _meant(names: Mapping[UUID, str], name: str | None, topic_id: UUID | None) -> str | None:
    return name if name is not None or topic_id is None else names.get(topic_id)


_Wanted: TypeAlias = tuple[tuple[str | None, UUID | None], ...]


def _deletable(ctx: RequestContext, wanted: _Wanted) -> tuple[_Wanted, list[dict[str, Any]]]:
    """Topics that who asks may delete, and the answers for the others: those that it may not describe are answered
    alike whether they exist or not, and an id that it knows gets it no name."""
    if ctx.may(Operation.DELETE, ResourceKind.CLUSTER):
        return wanted, []
    known = ctx.broker.metadata if ctx.broker.controller is None else ctx.broker.controller.image
    named = [(each, _meant(known.topic_names, *each)) for each in wanted]
    names = {name for _, name in named if name is not None}
    deletable = ctx.allowed(Operation.DELETE, ResourceKind.TOPIC, names)
    may_describe = ctx.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, names, is_filter=True)
    left, refused = [], []
    for each, name in named:
        asked_name, topic_id = each
        error: HoldfastError = refusal(ResourceKind.TOPIC)
        if asked_name is not None and topic_id is not None and topic_id.int:
            left.append(each)  # refused as it is
        elif asked_name is not None and name in may_describe and name not in known.topics:
            refused.append(_not_deleted(name, None, UnknownTopicOrPartitionError()))
        elif name is None or (name in deletable and (asked_name is None or name in may_describe)):
            left.append(each)
        else:
            told = name if asked_name is not None or name in may_describe else None
            refused.append(_not_deleted(told, topic_id if asked_name is None else None, error))
    return tuple(left), refused


def _within_quota(ctx: RequestContext, wanted: _Wanted, mutations: Mutations) -> tuple[_Wanted, list[dict[str, Any]]]:
    """Topics that the quota of who asks leaves, and the answers for the others."""
    known = ctx.broker.metadata if ctx.broker.controller is None else ctx.broker.controller.image
    left, refused = [], []
    for name, topic_id in wanted:
        topic = known.topics.get(_meant(known.topic_names, name, topic_id) or "")
        error = (
            None
            if topic is None
            else mutations.refusal(len(topic.partitions if isinstance(topic, TopicImage) else topic))
        )
        if error is None:
            left.append((name, topic_id))
        else:
            refused.append(_not_deleted(name, topic_id, error))
    return tuple(left), refused


def _not_deleted(name: str | None, topic_id: UUID | None, error: HoldfastError) -> dict[str, Any]:
    return {
        "name": name, "topic_id": topic_id, "error_code": error, "error_message": error.message or None,
    }  # fmt: skip


@at_controller
async def handle_create_partitions(ctx: RequestContext, request: Any) -> Any:
    """Versions 0-3."""
    may_alter = ctx.allowed(Operation.ALTER, ResourceKind.TOPIC, {str(t.name) for t in request.topics})
    mutations = Mutations(ctx, counts=not request.validate_only)
    there = ctx.broker.metadata.topics
    over = {
        t.name: mutations.refusal(t.count - len(there.get(t.name, ()))) for t in request.topics if t.name in may_alter
    }
    reply = await ctx.submit(
        events.CreatePartitions(
            topics=tuple(
                events.MorePartitions(
                    name=t.name,
                    count=t.count,
                    assignments=None if t.assignments is None else tuple(tuple(a.broker_ids) for a in t.assignments),
                )
                for t in request.topics
                if t.name in may_alter and over[t.name] is None
            ),
            validate_only=request.validate_only,
        )
    )
    if not request.validate_only:
        await tell(ctx, milliseconds(request.timeout))
    denied = {"error_code": refusal(ResourceKind.TOPIC), "error_message": None}
    twice = {"error_code": InvalidRequestError(_TWICE), "error_message": _TWICE}
    refused = [
        {"name": name, **(denied if times == 1 else twice)}
        for name, times in _refused(request.topics, may_alter).items()
    ]
    refused += [
        {"name": name, "error_code": error, "error_message": error.message}
        for name, error in over.items()
        if error is not None
    ]
    return respond(ctx, results=[_named(r) for r in reply.topics] + refused, throttle_time=mutations.throttle_ms)


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
