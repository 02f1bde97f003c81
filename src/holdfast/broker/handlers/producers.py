"""DescribeProducers (61) 0: the producers of partitions here, and where their open transactions begin.

A follower answers, too, of its own log, as in Kafka (ReplicaManager.activeProducerState): who looks for transactions
that hang on one broker asks that one for all it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.broker.handlers.base import RequestContext, answered, respond
from holdfast.model.errors import HoldfastError, KafkaStorageError, UnknownTopicOrPartitionError
from holdfast.model.types import TopicPartition
from holdfast.replication.types import Role
from holdfast.security.resources import Operation, ResourceKind
from holdfast.storage.log import Log

_NO_SUCH = "This server does not host this topic-partition."


async def handle_describe_producers(ctx: RequestContext, request: Any) -> Any:
    """Id, epoch, last sequence and last time of each producer that a partition remembers."""
    topics = []
    for topic in request.topics:
        partitions = await asyncio.gather(*(_producers(ctx, topic.name, i) for i in topic.partition_indexes))
        topics.append({"name": topic.name, "partitions": partitions})
    return respond(ctx, topics=topics)


async def _producers(ctx: RequestContext, topic: str, index: int) -> dict[str, Any]:
    answer: dict[str, Any] = {"partition_index": index, "error_message": None, "active_producers": []}
    try:
        denied = ctx.missing(Operation.READ, ResourceKind.TOPIC, topic)
        if denied is not None:
            raise denied
        log = _log_here(ctx, TopicPartition(topic, index))
        found = await answered(partial(_read, log))
        if isinstance(found, HoldfastError):
            raise found
        answer["active_producers"] = found
    except HoldfastError as e:
        answer |= {"error_code": e, "error_message": e.message or None}
    return answer


def _log_here(ctx: RequestContext, tp: TopicPartition) -> Log:
    if ctx.broker.metadata.partition(tp) is None:
        # As in Kafka, which has no words for a partition that its topic lacks.
        raise UnknownTopicOrPartitionError("" if tp.topic in ctx.broker.metadata.topics else _NO_SUCH)
    partition = ctx.broker.replicas.partitions.get(tp)
    if partition is None:
        raise ctx.broker.replicas.unknown(tp)
    if partition.role is Role.OFFLINE:
        raise KafkaStorageError(f"{tp}: its log directory is offline")
    if partition.log is None:
        raise partition.not_leader()
    return partition.log


def _read(log: Log, reply: Callable[[list[dict[str, Any]] | HoldfastError], None]) -> None:
    def done(found: list[dict[str, Any]] | None, error: HoldfastError | None) -> None:
        reply(error if error is not None else found or [])

    log.dir.queue.submit(partial(_entries, log), done)


def _entries(log: Log) -> list[dict[str, Any]]:
    """On the thread of the log's directory."""
    return [
        {
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.batches[-1].last_sequence if entry.batches else -1,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": -1 if entry.coordinator_epoch is None else entry.coordinator_epoch,
            "current_txn_start_offset": -1 if entry.txn_first_offset is None else entry.txn_first_offset,
        }
        for producer_id, entry in log.producers.entries.items()
    ]
