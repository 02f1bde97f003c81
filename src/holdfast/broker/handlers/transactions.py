"""Transactions: the wire side of transactions/coordinator.py.

AddPartitionsToTxn (24) 0-5, AddOffsetsToTxn (25) 0-4, EndTxn (26) 0-5, DescribeTransactions (65) 0, ListTransactions
(66) 0-2. InitProducerId is in producer_ids.py.

AddPartitionsToTxn to version 3 is a client's, of one transaction; from 4 on it is of brokers (KIP-890), of many, which
add for clients of transaction version 2 or only ask. EndTxn from version 5 on is of transaction version 2. Clients that
do not know PRODUCER_FENCED are told INVALID_PRODUCER_EPOCH, as by Kafka. A transaction that is still being ended holds
up the next one of the same id for a moment: what is added or verified then waits here for its end, for PATIENCE_S,
before its client is told CONCURRENT_TRANSACTIONS and loses its back-off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Set
from typing import TYPE_CHECKING, Any, Final

from holdfast.broker.handlers.base import RequestContext, answered, respond
from holdfast.broker.large_requests import paced
from holdfast.coordinators.partitioning import partition_for
from holdfast.model.errors import (
    ConcurrentTransactionsError,
    HoldfastError,
    InvalidProducerEpochError,
    OperationNotAttemptedError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from holdfast.model.types import TopicPartition
from holdfast.security.operations import refusal
from holdfast.security.resources import Operation, ResourceKind
from holdfast.transactions.types import (
    BUMPING,
    AddReply,
    AddRequest,
    DescribedTransaction,
    EndRequest,
    Producer,
    ProducerReply,
    Verified,
)

if TYPE_CHECKING:
    from holdfast.transactions.coordinator import TransactionCoordinator

PATIENCE_S: Final = 0.1
RETRY_S: Final = 0.005
_NONE: Final = -1
_BATCHED: Final = 4
_FENCED_VERSION: Final = 2
_BUMPING_END: Final = 5


def coordinator_of(ctx: RequestContext) -> TransactionCoordinator:
    """This broker's, which knows how many partitions its topic has."""
    coordinator = ctx.broker.transactions
    partitions = ctx.broker.metadata.topics.get(TRANSACTIONS_TOPIC)
    if partitions:
        coordinator.partition_count = len(partitions)
    return coordinator


def as_known(error: HoldfastError | None, knows_fenced: bool) -> HoldfastError | None:
    """The error in words that the client knows."""
    if isinstance(error, ProducerFencedError) and not knows_fenced:
        return InvalidProducerEpochError(error.message)
    return error


# -- adding ------------------------------------------------------------------------------------------------------


async def handle_add_partitions_to_txn(ctx: RequestContext, request: Any) -> Any:
    """One answer per partition."""
    if ctx.version >= _BATCHED:
        denied = ctx.missing(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
        if denied is not None:
            return respond(ctx, error_code=denied)
        told = await asyncio.gather(*(_one_of_many(ctx, transaction) for transaction in request.transactions))
        results = [
            {"transactional_id": transaction.transactional_id, "topic_results": _by_topic(each)}
            for transaction, each in zip(request.transactions, told, strict=True)
        ]
        return respond(ctx, results_by_transaction=results)
    asked = AddRequest(
        transactional_id=request.v3_and_below_transactional_id,
        producer=Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        partitions=_partitions(request.v3_and_below_topics),
    )
    return respond(ctx, results_by_topic_v3_and_below=_by_topic(await _of_client(ctx, asked)))


async def _of_client(ctx: RequestContext, asked: AddRequest) -> Verified:
    """What only brokers write is in no client's transaction by its wish."""
    denied = ctx.missing(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, asked.transactional_id)
    if denied is not None:
        return dict.fromkeys(asked.partitions, denied)
    topics = {tp.topic for tp in asked.partitions}
    if ctx.is_judged:
        topics = {*ctx.allowed(Operation.WRITE, ResourceKind.TOPIC, topics - INTERNAL_TOPICS)}
    return await _add_partitions(ctx, asked, topics)


async def _one_of_many(ctx: RequestContext, transaction: Any) -> Verified:
    asked = AddRequest(
        transactional_id=transaction.transactional_id,
        producer=Producer(transaction.producer_id, transaction.producer_epoch),
        partitions=_partitions(transaction.topics),
        version=BUMPING,
    )
    if transaction.verify_only:
        return await _verify(ctx, asked)
    return await _add_partitions(ctx, asked, {tp.topic for tp in asked.partitions})


async def _add_partitions(ctx: RequestContext, asked: AddRequest, topics: Set[str]) -> Verified:
    """All of them or none: where one does not exist, or is of no topic of ``topics``, nothing is done about the
    others."""
    refused: dict[TopicPartition, HoldfastError | None] = {}
    for tp in asked.partitions:
        if tp.topic not in topics:
            refused[tp] = refusal(ResourceKind.TOPIC)
        elif ctx.broker.metadata.partition(tp) is None:
            refused[tp] = UnknownTopicOrPartitionError(f"{tp} does not exist")
    if refused:
        others = OperationNotAttemptedError("another partition of the request does not exist, or is not allowed")
        told: dict[TopicPartition, HoldfastError | None] = dict.fromkeys(asked.partitions, others)
        return told | refused
    error = as_known(await _add(ctx, asked), ctx.version >= _FENCED_VERSION)
    return dict.fromkeys(asked.partitions, error)


async def _verify(ctx: RequestContext, asked: AddRequest) -> Verified:
    """Which of them it has, once what is being written of it is written: librdkafka commits offsets while it adds
    partitions, and comes back after half a second when it is refused."""
    told: dict[TopicPartition, HoldfastError | None] = {}

    async def look() -> HoldfastError | None:
        told.update(coordinator_of(ctx).verify(asked, ctx.now_ms))
        return next((error for error in told.values() if isinstance(error, ConcurrentTransactionsError)), None)

    await _patiently(ctx, asked.transactional_id, look)
    return told


async def _add(ctx: RequestContext, asked: AddRequest) -> HoldfastError | None:
    def ask(reply: AddReply) -> None:
        coordinator_of(ctx).add_partitions(asked, ctx.now_ms, reply)

    return await _patiently(ctx, asked.transactional_id, lambda: answered(ask))


async def _patiently(
    ctx: RequestContext, transactional_id: str, ask: Callable[[], Awaitable[HoldfastError | None]]
) -> HoldfastError | None:
    """Ask again while the id's last transaction is being ended, or a change of it written."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + PATIENCE_S

    def wait(wake: Callable[[None], None]) -> None:
        coordinator_of(ctx).when_settled(transactional_id, ctx.now_ms, lambda: wake(None))

    pause_s = 0.0
    while True:
        told = await ask()
        if not isinstance(told, ConcurrentTransactionsError) or loop.time() >= until_s:
            return told
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await answered(wait)
        await asyncio.sleep(pause_s)  # too many wait already, or another was quicker
        pause_s = RETRY_S


def _partitions(topics: Iterable[Any]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _by_topic(told: Verified) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for tp in sorted(told):
        topics.setdefault(tp.topic, []).append({"partition_index": tp.partition, "partition_error_code": told[tp]})
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]


async def handle_add_offsets_to_txn(ctx: RequestContext, request: Any) -> Any:
    """The partition of ``__consumer_offsets`` that keeps the group is in the transaction."""
    denied = ctx.missing(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, request.transactional_id) or ctx.missing(
        Operation.READ, ResourceKind.GROUP, request.group_id
    )
    if denied is not None:
        return respond(ctx, error_code=denied)
    partition = partition_for(request.group_id, ctx.broker.groups.partition_count)
    asked = AddRequest(
        transactional_id=request.transactional_id,
        producer=Producer(request.producer_id, request.producer_epoch),
        partitions=frozenset((TopicPartition(OFFSETS_TOPIC, partition),)),
    )
    return respond(ctx, error_code=as_known(await _add(ctx, asked), ctx.version >= _FENCED_VERSION))


# -- ending ------------------------------------------------------------------------------------------------------


async def handle_end_txn(ctx: RequestContext, request: Any) -> Any:
    """Answered when the decision is durable; the markers follow."""
    denied = ctx.missing(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, request.transactional_id)
    if denied is not None:
        return respond(ctx, error_code=denied, producer_id=_NONE, producer_epoch=_NONE)
    asked = EndRequest(
        transactional_id=request.transactional_id,
        producer=Producer(request.producer_id, request.producer_epoch),
        commit=request.committed,
        version=BUMPING if ctx.version >= _BUMPING_END else 0,
    )

    def ask(reply: ProducerReply) -> None:
        coordinator_of(ctx).end(asked, ctx.now_ms, reply)

    told: Producer | HoldfastError = await answered(ask)
    if isinstance(told, HoldfastError):
        error = as_known(told, ctx.version >= _FENCED_VERSION)
        return respond(ctx, error_code=error, producer_id=_NONE, producer_epoch=_NONE)
    return respond(ctx, producer_id=told.id, producer_epoch=told.epoch)


# -- administration ----------------------------------------------------------------------------------------------


async def handle_describe_transactions(ctx: RequestContext, request: Any) -> Any:
    """State, timeout, start, producer and partitions of each id that this broker coordinates."""
    coordinator = coordinator_of(ctx)
    may_describe = ctx.allowed(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, set(request.transactional_ids))
    states = []
    async for name in paced(request.transactional_ids):
        if name in may_describe:
            states.append(_described(ctx, name, coordinator.describe(name, ctx.now_ms)))
        else:
            error = refusal(ResourceKind.TRANSACTIONAL_ID)
            states.append({"error_code": error, "transactional_id": name, "transaction_start_time_ms": 0})
    return respond(ctx, transaction_states=states)


def _described(ctx: RequestContext, name: str, found: DescribedTransaction) -> dict[str, Any]:
    answer: dict[str, Any] = {"error_code": found.error, "transactional_id": name, "transaction_start_time_ms": 0}
    t = found.transaction
    if t is None:
        return answer
    topics: dict[str, list[int]] = {}
    for tp in sorted(t.partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    may_describe = ctx.allowed(Operation.DESCRIBE, ResourceKind.TOPIC, topics, is_filter=True)
    return answer | {
        "transaction_state": t.state.value,
        "transaction_timeout": t.timeout_ms,
        "transaction_start_time_ms": _NONE if t.start_ms is None else t.start_ms,
        "producer_id": t.producer_id,
        "producer_epoch": t.epoch,
        "topics": [
            {"topic": topic, "partitions": indexes} for topic, indexes in topics.items() if topic in may_describe
        ],
    }


async def handle_list_transactions(ctx: RequestContext, request: Any) -> Any:
    """Those that this broker coordinates; names of states that do not exist are told."""
    longer_ms = getattr(request, "duration_filter", _NONE)
    found = coordinator_of(ctx).list_transactions(
        ctx.now_ms,
        states=request.state_filters,
        producer_ids=frozenset(request.producer_id_filters),
        longer_than_ms=None if longer_ms < 0 else longer_ms,
        pattern=getattr(request, "transactional_id_pattern", None),
    )
    ids = {str(name) for name, _, _ in found.transactions}
    may_describe = ctx.allowed(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, ids, is_filter=True)
    return respond(
        ctx,
        error_code=found.error,
        unknown_state_filters=found.unknown_states,
        transaction_states=[
            {"transactional_id": name, "producer_id": producer_id, "transaction_state": state}
            for name, producer_id, state in found.transactions
            if name in may_describe
        ],
    )
