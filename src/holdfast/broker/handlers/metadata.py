"""Metadata (API 3) and DescribeCluster (API 60): what the controller last told this broker.

Metadata 0-13 makes topics that do not exist when ``auto.create.topics.enable`` and the request allow it; the first
answer for such a topic is UNKNOWN_TOPIC_OR_PARTITION, as Apache Kafka 4.3 answers. Unlike there, the controller id
is the active controller's, never a random broker's: the cluster has one role for all brokers.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.metadata_cache import LiveBroker, MetadataCache, PartitionInfo
from holdfast.broker.session import Session
from holdfast.model.errors import (
    HoldfastError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    MismatchedEndpointTypeError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedEndpointTypeError,
)
from holdfast.model.internal_topics import INTERNAL_TOPICS
from holdfast.model.types import BrokerId
from holdfast.protocol.framing import encode_body, encode_response_raw
from holdfast.security.operations import refusal
from holdfast.security.resources import Operation, ResourceKind

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
NO_AUTHORIZED_OPERATIONS = -(2**31)
"""The request did not ask for them."""
FIRST_WITH_IDS, FIRST_BY_ID = 10, 12
FIRST_WITH_LISTENERS = 6
BROKERS, CONTROLLERS = 1, 2
SETTLE_S = 0.004
YOUNG_S = 0.05
ELECTION_WAIT_S = 0.3
KEPT_FROM = 200
"""Partitions of an answer from which on it is kept for the next one who asks the same."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is known, for who came by one listener and asks in one version."""

    cache: MetadataCache
    unreachable: frozenset[BrokerId]
    """Live brokers that have no such listener."""
    unreachable_error: type[HoldfastError]
    """What is said of a partition that one of them leads."""

    @classmethod
    def of(cls, ctx: RequestContext, version: int) -> View:
        """``version``: of Metadata; earlier ones than 6 do not know LISTENER_NOT_FOUND."""
        cache, listener = ctx.broker.metadata, ctx.connection.listener.name
        return cls(
            cache=cache,
            unreachable=frozenset(b.id for b in cache.brokers.values() if b.endpoints.at(listener) is None),
            unreachable_error=LeaderNotAvailableError if version < FIRST_WITH_LISTENERS else ListenerNotFoundError,
        )


def legal_topic_name(name: str) -> bool:
    """Kafka's rule for topic names."""
    return bool(_LEGAL_NAME.fullmatch(name)) and name not in (".", "..")


async def handle_metadata(ctx: RequestContext, request: Any) -> Any:
    """Brokers, controller, and the topics asked for (none named: all; from version 1 an empty list: none)."""
    cache = ctx.broker.metadata
    await _settled(cache, ctx.connection.session)
    wanted = request.topics
    topics: list[dict[str, Any]] = []
    view = View.of(ctx, ctx.version)
    if wanted is None or (ctx.version == 0 and not wanted):
        may_describe = ctx.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, cache.topics, is_filter=True)
        every = sorted(may_describe)
        if _is_kept(ctx, request, every):
            return _kept(ctx, view, every)
        topics = [_topic(view, name) for name in every]
    else:
        missing = []
        named = dict.fromkeys((getattr(t, "name", None), getattr(t, "topic_id", None)) for t in wanted)
        if FIRST_WITH_IDS <= ctx.version < FIRST_BY_ID and any(i is not None and i.int for _, i in named):
            error = InvalidRequestError(f"topic ids in Metadata version {ctx.version}: expected {FIRST_BY_ID} or later")
            return respond(ctx, controller_id=-1, topics=[_failed(name or "", error, i) for name, i in named])
        names = {name for asked in named if (name := _named(cache, *asked)) is not None}
        may_describe = ctx.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, names)
        plain = [name for name, _ in named if name and name in may_describe and name in cache.topics]
        if len(plain) == len(named) and _is_kept(ctx, request, plain):
            return _kept(ctx, view, plain)
        for name, topic_id in named:
            entry, unknown = _wanted_topic(view, may_describe, name, topic_id)
            topics.append(entry)
            if unknown is not None:
                missing.append(unknown)
        allowed = getattr(request, "allow_auto_topic_creation", True)
        if missing and allowed and ctx.broker.config.bool("auto.create.topics.enable"):
            refused = _create(ctx, missing)
            topics = [
                _failed(str(t["name"]), refusal(ResourceKind.TOPIC)) if t["name"] in refused else t for t in topics
            ]
    if getattr(request, "include_topic_authorized_operations", False):
        for topic in topics:
            is_refused = isinstance(topic.get("error_code"), TopicAuthorizationFailedError)
            if topic["name"] in may_describe and not is_refused:
                topic["topic_authorized_operations"] = ctx.operations(ResourceKind.TOPIC, topic["name"])
    return _answer(ctx, topics, _cluster_operations(ctx, request))


def _answer(ctx: RequestContext, topics: list[dict[str, Any]], cluster_operations: int) -> Any:
    cache = ctx.broker.metadata
    return respond(
        ctx,
        brokers=_brokers(ctx.connection.listener.name, cache.listed(with_departed=True)),
        cluster_id=cache.cluster_id or ctx.broker.cluster_id,
        controller_id=-1 if cache.controller_id is None else cache.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


def _is_kept(ctx: RequestContext, request: Any, names: Sequence[str]) -> bool:
    """Whether the answer of these topics is long, and the same for all who may describe them: neither rights nor a
    quota's delay are told in it."""
    if getattr(request, "include_topic_authorized_operations", False) or ctx.broker.quota_view.limits_clients:
        return False
    if getattr(request, "include_cluster_authorized_operations", False):
        return False
    topics = ctx.broker.metadata.topics
    return sum(len(topics[name]) for name in names) >= KEPT_FROM


def _kept(ctx: RequestContext, view: View, names: Sequence[str]) -> bytes:
    """The answer of these topics, encoded."""
    cache, key = view.cache, (ctx.version, ctx.connection.listener.name, tuple(names))
    body = cache.answers.get(cache.state, key)
    if body is None:
        body = encode_body(_answer(ctx, [_topic(view, name) for name in names], NO_AUTHORIZED_OPERATIONS))
        cache.answers.keep(key, body)
    return encode_response_raw(ctx.api_key, ctx.version, ctx.correlation_id, body)


def _create(ctx: RequestContext, missing: Sequence[str]) -> frozenset[str]:
    """Have topics made, as far as who asks may create them, and they have names of topics. Those that it may not."""
    may = ctx.may(Operation.CREATE, ResourceKind.CLUSTER)
    creatable = frozenset(missing) if may else ctx.allowed(Operation.CREATE, ResourceKind.TOPIC, missing)
    ctx.broker.topic_creation.auto_create(name for name in missing if name in creatable and legal_topic_name(name))
    return frozenset(missing) - creatable


def _cluster_operations(ctx: RequestContext, request: Any) -> int:
    if not getattr(request, "include_cluster_authorized_operations", False):
        return NO_AUTHORIZED_OPERATIONS
    return ctx.operations(ResourceKind.CLUSTER) if ctx.may(Operation.DESCRIBE, ResourceKind.CLUSTER) else 0


def settle_s(session: Session, now_s: float) -> float:
    """How long an answer is kept for the end of a broker that is already on its way to us. ``now_s``: the loop's clock.

    Who has just connected did so after what may have befallen it, so its first answer is kept from then on: by the end
    of a handshake of TLS nothing is left. It must not be late: librdkafka has a second look 10 ms after its start, on a
    connection that it ends at the first answer. What it asked there counts as under way for a second, and in that
    second it does not look for a new leader (docs/decisions/0004-failover-and-metadata.md)."""
    made_s, session.unasked_since_s = session.unasked_since_s, None
    if made_s is None or now_s - made_s > YOUNG_S:
        return SETTLE_S
    return max(0.0, made_s + SETTLE_S - now_s)


async def _settled(cache: MetadataCache, session: Session) -> None:
    """Wait until what is known is worth telling.

    Clients ask for metadata in the very millisecond in which a broker dies, when nobody here has heard of it yet; a
    client that is sent back to the dead leader then waits a second before it asks again. So an answer takes a few
    milliseconds, and while a broker is suspected the controller is given time to say who leads instead; and who
    is alive, when all have just come back.
    """
    if len(cache.brokers) == 1:
        return
    loop = asyncio.get_running_loop()
    if (wait_s := settle_s(session, loop.time())) > 0:
        await asyncio.sleep(wait_s)
    deadline = loop.time() + ELECTION_WAIT_S
    while (cache.suspects or not cache.brokers) and (left := deadline - loop.time()) > 0:
        updated = asyncio.Event()
        cache.on_next_update(updated.set)
        try:
            async with asyncio.timeout(left):
                await updated.wait()
        except TimeoutError:
            return


def _brokers(listener: str, brokers: Iterable[LiveBroker]) -> list[dict[str, Any]]:
    """Those that have the listener that the client came by, each with its address there."""
    return [
        {"node_id": b.id, "broker_id": b.id, "host": at.host, "port": at.port, "rack": b.rack}
        for b in brokers
        if (at := b.endpoints.at(listener)) is not None
    ]


def _named(cache: MetadataCache, name: str | None, topic_id: UUID | None) -> str | None:
    """The topic that a request means; None: an id that is no topic's, or nothing."""
    if not name and topic_id is not None and topic_id.int:  # the Java client names the empty topic with the id
        return cache.topic_names.get(topic_id)
    return name


def _wanted_topic(
    view: View, may_describe: frozenset[str], wanted: str | None, topic_id: UUID | None
) -> tuple[dict[str, Any], str | None]:
    """The answer for one topic, and its name when it should perhaps be made: who may not make topics is refused before
    it hears that the name is none. What may not be described is answered
    alike whether it exists or not; an id is no secret, and so has its error without a name."""
    cache, name = view.cache, _named(view.cache, wanted, topic_id)
    by_id = not wanted and topic_id is not None and bool(topic_id.int)
    if name is None and by_id:
        return _failed(None, UnknownTopicIdError(), topic_id), None
    if name is not None and name not in may_describe:
        hidden = _failed(None if by_id else name, refusal(ResourceKind.TOPIC), topic_id if by_id else None)
        return hidden | {"is_internal": False}, None
    if name is None or not legal_topic_name(name):
        return _failed(name, InvalidTopicError()), name
    if name not in cache.topics:
        return _failed(name, UnknownTopicOrPartitionError()), name
    return _topic(view, name), None


def _failed(name: str | None, error: Exception, topic_id: UUID | None = None) -> dict[str, Any]:
    return {
        "error_code": error,
        "name": name if name is not None else (None if topic_id else ""),
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "topic_authorized_operations": NO_AUTHORIZED_OPERATIONS,
    }


def _topic(view: View, name: str) -> dict[str, Any]:
    cache = view.cache
    partitions = cache.topics[name]
    return {
        "name": name,
        "topic_id": cache.topic_ids[name],
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [partition_fields(view, index, partitions[index]) for index in sorted(partitions)],
        "topic_authorized_operations": NO_AUTHORIZED_OPERATIONS,
    }


def partition_fields(view: View, index: int, info: PartitionInfo) -> dict[str, Any]:
    """What every answer says of a partition."""
    cache = view.cache
    alive = cache.brokers
    leader = info.leader if cache.leads(info.leader) else None
    error: HoldfastError | None = None if leader is not None else LeaderNotAvailableError()
    if leader in view.unreachable:
        leader, error = None, view.unreachable_error()
    # KIP-112: replicas on dead brokers and on dead disks of live ones, the same from every broker.
    offline = [r for r in info.replicas if r not in alive or r in info.offline]
    return {
        "error_code": error,
        "partition_index": index,
        "leader_id": -1 if leader is None else leader,
        "leader_epoch": info.leader_epoch,
        "replica_nodes": info.replicas,
        "isr_nodes": info.isr,
        "offline_replicas": offline,
    }


async def handle_describe_cluster(ctx: RequestContext, request: Any) -> Any:
    """The live brokers and the controller."""
    cache = ctx.broker.metadata
    kind = getattr(request, "endpoint_type", BROKERS)
    if kind != BROKERS:
        error: HoldfastError = (
            MismatchedEndpointTypeError(
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            )
            if kind == CONTROLLERS
            else UnsupportedEndpointTypeError(f"Unsupported endpoint type {kind}")
        )
        return respond(
            ctx, error_code=error, error_message=error.message, endpoint_type=BROKERS, controller_id=-1,
            cluster_authorized_operations=NO_AUTHORIZED_OPERATIONS,
        )  # fmt: skip
    return respond(
        ctx,
        error_message=None,
        endpoint_type=BROKERS,
        cluster_id=cache.cluster_id or ctx.broker.cluster_id,
        controller_id=-1 if cache.controller_id is None else cache.controller_id,
        brokers=_brokers(ctx.connection.listener.name, cache.listed()),
        cluster_authorized_operations=_cluster_operations(ctx, request),
    )
