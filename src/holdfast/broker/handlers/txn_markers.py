"""WriteTxnMarkers (API 27): the markers that end transactions, from their coordinators and from operators.

Versions 1-2. Each marker is appended to each of its partitions that this broker leads, with acks=all; answered when all
are in, or cannot be. A marker that came before is appended again and is fine (KAFKA-19999). Once a marker is committed
in a partition of ``__consumer_offsets``, the group coordinator hears of it before the answer goes out: the offsets of
that transaction count, or do not. Taken on every listener, as kafka-transactions sends it to abort a transaction whose
coordinator has forgotten it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from holdfast.broker.handlers.base import RequestContext, answered, respond
from holdfast.model.errors import HoldfastError
from holdfast.model.internal_topics import OFFSETS_TOPIC
from holdfast.model.types import TopicPartition
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.replication.types import AppendTerms, ProduceResult

TIMEOUT_MS = 30_000
"""As request.timeout.ms of Kafka's brokers: how long a marker may wait for replicas."""


async def handle_write_txn_markers(ctx: RequestContext, request: Any) -> Any:
    """One answer per marker and partition."""
    results = await asyncio.gather(*(_end(ctx, marker) for marker in request.markers))
    return respond(ctx, markers=results)


async def _end(ctx: RequestContext, marker: Any) -> dict[str, Any]:
    """One transaction, in its partitions."""
    parts = [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
    errors = await asyncio.gather(*(_append(ctx, marker, tp) for tp in parts))
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp, error in zip(parts, errors, strict=True):
        topics.setdefault(tp.topic, []).append({"partition_index": tp.partition, "error_code": error})
    return {
        "producer_id": marker.producer_id,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }


async def _append(ctx: RequestContext, marker: Any, tp: TopicPartition) -> HoldfastError | None:
    broker = ctx.broker
    says = EndMarker(bool(marker.transaction_result), int(marker.coordinator_epoch))
    batch = encode_marker(int(marker.producer_id), int(marker.producer_epoch), says, ctx.now_ms)
    terms = AppendTerms(trusted=True, txn_version=int(getattr(marker, "transaction_version", 0)))
    broker.transactional_appends.ended(tp, int(marker.producer_id))
    append = partial(broker.replicas.append, tp, batch, acks=-1, timeout_ms=TIMEOUT_MS, now_ms=ctx.now_ms, terms=terms)
    result: ProduceResult = await answered(lambda done: append(done=done))
    if result.error is None and tp.topic == OFFSETS_TOPIC:
        broker.offsets_ended(tp.partition, int(marker.producer_id), says.is_commit)
    return result.error
