"""FindCoordinator (API 10): which broker coordinates a group, or a transactional id.

Versions 0-6. It is the leader of the name's partition of ``__consumer_offsets`` or ``__transaction_state``, which is
made when the first name is looked for.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.leaders import is_led_here
from holdfast.broker.large_requests import paced
from holdfast.coordinators.partitioning import partition_for
from holdfast.model.errors import HoldfastError, InvalidRequestError
from holdfast.model.group_errors import CoordinatorNotAvailableError, InvalidGroupIdError
from holdfast.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from holdfast.model.shown import shown
from holdfast.model.types import TopicPartition
from holdfast.security.resources import Operation, ResourceKind

GROUP, TRANSACTION = 0, 1
TOPICS: Final = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
_RIGHTS: Final = {GROUP: ResourceKind.GROUP, TRANSACTION: ResourceKind.TRANSACTIONAL_ID}
BATCHED_VERSION = 4


async def handle_find_coordinator(ctx: RequestContext, request: Any) -> Any:
    """One answer per key; before version 4 there is one key and the answer is flat."""
    kind = getattr(request, "key_type", GROUP)
    if ctx.version < BATCHED_VERSION:
        return respond(ctx, **await _find(ctx, kind, request.key))
    return respond(ctx, coordinators=[await _find(ctx, kind, key) async for key in paced(request.coordinator_keys)])


async def _find(ctx: RequestContext, kind: int, key: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"key": key, "node_id": -1, "host": "", "port": -1, "error_message": None}
    try:
        right = _RIGHTS.get(kind)
        denied = None if right is None else ctx.missing(Operation.DESCRIBE, right, key)
        if denied is not None:
            raise denied
        broker, of_key = _coordinator(ctx, kind, key)
        if broker.id == ctx.broker.broker_id and not await is_led_here(ctx.broker, of_key):
            # It was given up. librdkafka asks the broker that it used last: an error would keep the client here.
            ctx.connection.close(f"this broker is out of its cluster and is asked who coordinates {shown(key)}")
            raise CoordinatorNotAvailableError("The coordinator is not available.")
        at = broker.endpoints.at(ctx.connection.listener.name)
        if at is None:  # a broker that clients of this listener cannot reach
            raise CoordinatorNotAvailableError("The coordinator is not available.")
        answer |= {"node_id": broker.id, "host": at.host, "port": at.port}
        answer["error_message"] = "NONE" if ctx.version < BATCHED_VERSION else ""
    except HoldfastError as e:
        # Kafka's batched answers have no text, but for a kind of key that there is not.
        has_text = ctx.version < BATCHED_VERSION or isinstance(e, InvalidRequestError)
        answer |= {"error_code": e, "error_message": (e.message or None) if has_text else ""}
    return answer


def _coordinator(ctx: RequestContext, kind: int, key: str) -> tuple[Any, TopicPartition]:
    """The broker, and the partition that makes it one."""
    broker = ctx.broker
    if kind not in TOPICS:
        raise InvalidRequestError(f"key type {kind}: expected {GROUP} (group) or {TRANSACTION} (transaction)")
    if not key and ctx.version >= 1 and key is None:
        raise InvalidGroupIdError("the group id is missing")
    topic = TOPICS[kind]
    partitions = broker.metadata.topics.get(topic)
    if partitions is None:
        broker.topic_creation.auto_create([topic])
        raise CoordinatorNotAvailableError("The coordinator is not available.")
    of_key = TopicPartition(topic, partition_for(key, len(partitions)))
    info = broker.metadata.partition(of_key)
    leader = None if info is None or info.leader is None else broker.metadata.brokers.get(info.leader)
    if leader is None:
        raise CoordinatorNotAvailableError("The coordinator is not available.")
    return leader, of_key
