"""What an operator asks of a cluster about transactions: coordinators' view, partitions' view, and a marker by hand.

Functions over an AdminClient.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kio.static.primitive import i8, i16, i32, i64

from holdfast.client.admin import AdminClient
from holdfast.client.refused import raise_for
from holdfast.model.errors import TransactionalIdNotFoundError
from holdfast.model.types import BrokerId, Offset, TimestampMs, TopicPartition

_TRANSACTION = 1
_MILLISECOND = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """One transactional id, and which broker coordinates it. ``state`` in Kafka's words."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionView:
    """What its coordinator knows of a transactional id. ``partitions``: those that still need a marker."""

    transactional_id: str
    coordinator: BrokerId
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: TimestampMs | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerView:
    """What a partition remembers of a producer. ``start_offset``: of its open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: TimestampMs
    coordinator_epoch: int | None
    start_offset: Offset | None


async def list_transactions(
    client: AdminClient, *, longer_than_ms: int = -1, producer_ids: Iterable[int] = (), pattern: str | None = None
) -> list[TransactionListing]:
    """Of all coordinators, by broker. ``pattern``: a regular expression for whole transactional ids (KIP-1152), which
    brokers before Kafka 4.1 do not take. InvalidRegularExpressionError."""
    from kio.schema.list_transactions import v1, v2
    from kio.schema.types import ProducerId

    filters: dict[str, Any] = {
        "state_filters": (),
        "producer_id_filters": tuple(map(ProducerId, producer_ids)),
        "duration_filter": i64(longer_than_ms),
    }
    if pattern is None:
        request: Any = v1.request.ListTransactionsRequest(**filters)
    else:
        request = v2.request.ListTransactionsRequest(**filters, transactional_id_pattern=pattern)

    async def one(broker_id: BrokerId) -> list[TransactionListing]:
        async def once() -> list[TransactionListing]:
            answer = await client.ask_broker(broker_id, request)
            raise_for(answer.error_code.value, None, f"transactions of broker {broker_id}")
            return [
                TransactionListing(
                    transactional_id=str(t.transactional_id),
                    coordinator=broker_id,
                    producer_id=int(t.producer_id),
                    state=t.transaction_state,
                )
                for t in answer.transaction_states
            ]

        return await client.retrying(once)

    brokers = sorted((await client.metadata(())).brokers)
    return [listing for part in await asyncio.gather(*map(one, brokers)) for listing in part]


async def describe_transaction(client: AdminClient, transactional_id: str) -> TransactionView:
    """TransactionalIdNotFoundError, in the words of Kafka's client."""
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
    from kio.schema.types import TransactionalId

    async def once() -> TransactionView:
        find = FindCoordinatorRequest(key_type=i8(_TRANSACTION), coordinator_keys=(transactional_id,))
        found = (await client.ask_any(find)).coordinators[0]
        raise_for(found.error_code.value, found.error_message, f"coordinator of {transactional_id!r}")
        coordinator = int(found.node_id)
        if coordinator not in (await client.metadata(())).brokers:
            await client.refresh(())
        request = DescribeTransactionsRequest(transactional_ids=(TransactionalId(transactional_id),))
        t = (await client.ask_broker(coordinator, request)).transaction_states[0]
        raise_for(t.error_code.value, None, f"transaction {transactional_id!r}")
        start_ms = int(t.transaction_start_time_ms)
        return TransactionView(
            transactional_id=transactional_id,
            coordinator=coordinator,
            producer_id=int(t.producer_id),
            producer_epoch=int(t.producer_epoch),
            state=t.transaction_state,
            timeout_ms=t.transaction_timeout // _MILLISECOND,
            start_ms=None if start_ms < 0 else start_ms,
            partitions=tuple(TopicPartition(str(each.topic), int(p)) for each in t.topics for p in each.partitions),
        )

    try:
        return await client.retrying(once)
    except TransactionalIdNotFoundError:
        raise TransactionalIdNotFoundError(
            f"DescribeTransactions request for transactionalId `{transactional_id}` failed because the ID could not be "
            f"found"
        ) from None


async def describe_producers(
    client: AdminClient, tp: TopicPartition, *, broker_id: BrokerId | None = None
) -> list[ProducerView]:
    """What the leader remembers, or this broker's replica."""
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
    from kio.schema.types import TopicName

    request = DescribeProducersRequest(
        topics=(TopicRequest(name=TopicName(tp.topic), partition_indexes=(i32(tp.partition),)),)
    )

    async def once() -> list[ProducerView]:
        asked = await client.leader(tp) if broker_id is None else broker_id
        found = (await client.ask_broker(asked, request)).topics[0].partitions[0]
        raise_for(found.error_code.value, found.error_message, f"producers of {tp}")
        return [
            ProducerView(
                producer_id=int(p.producer_id),
                producer_epoch=int(p.producer_epoch),
                last_sequence=int(p.last_sequence),
                last_timestamp_ms=int(p.last_timestamp),
                coordinator_epoch=None if p.coordinator_epoch < 0 else int(p.coordinator_epoch),
                start_offset=None if p.current_txn_start_offset < 0 else int(p.current_txn_start_offset),
            )
            for p in found.active_producers
        ]

    return await client.retrying(once)


async def abort_hanging(client: AdminClient, tp: TopicPartition, producer: Sequence[int]) -> None:
    """An abort marker by hand. ``producer``: its id, its epoch, the epoch of its coordinator."""
    from kio.schema.types import ProducerId, TopicName
    from kio.schema.write_txn_markers.v1.request import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    producer_id, producer_epoch, coordinator_epoch = producer
    topic = WritableTxnMarkerTopic(name=TopicName(tp.topic), partition_indexes=(i32(tp.partition),))
    marker = WritableTxnMarker(
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(producer_epoch),
        transaction_result=False,
        topics=(topic,),
        coordinator_epoch=i32(coordinator_epoch),
    )

    async def once() -> None:
        answer = await client.ask_broker(await client.leader(tp), WriteTxnMarkersRequest(markers=(marker,)))
        raise_for(answer.markers[0].topics[0].partitions[0].error_code.value, None, f"abort marker in {tp}")

    await client.retrying(once)
