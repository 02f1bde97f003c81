"""A transactional producer of the simulation: the requests of one transactional id, in both protocols.

    version 1    AddPartitionsToTxn first, Produce 11, EndTxn 3: all transactions have the same epoch
    version 2    straight Produce 12, EndTxn 5: every end raises the epoch (KIP-890)

Each call is one thing that is asked until it is answered; what passes is tried again with the same bytes and the same
epoch, what does not is raised. Owns the producer id, the epoch and the sequences, and decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i8, i16, i32, i64

from holdfast.client.cluster import KafkaClient, milliseconds, uvarint
from holdfast.client.errors import ConnectionLost
from holdfast.client.refused import raise_for
from holdfast.client.versions import PRODUCE
from holdfast.model.errors import (
    BrokerUnavailableError,
    ConcurrentTransactionsError,
    DuplicateSequenceError,
    HoldfastError,
    RequestTimedOutError,
)
from holdfast.model.types import Offset, TopicPartition
from holdfast.protocol.error_codes import error_of
from holdfast.protocol.framing import decode_response
from holdfast.records.record import Record, encode_batch

T = TypeVar("T")
KeyValue = tuple[bytes | None, bytes | None]
RETRY_S = 0.1
ANSWER_S = 8.0
PRODUCE_VERSION = {1: 11, 2: 12}
_TRANSACTION = 1


class GivenUp(Exception):
    """The run ends, or the producer shall vanish: nobody knows what becomes of what was asked."""


class TxnProducer:
    """See the module's docstring. ``gives_up``: asked before every further try. ``is_stopping`` without a try."""

    def __init__(
        self,
        client: KafkaClient,
        name: str,
        version: int,
        timeout_ms: int,
        now_ms: Callable[[], int],
        gives_up: Callable[[], bool],
    ) -> None:
        self.name = name
        self.version = version
        self.producer_id, self.epoch = -1, -1
        self._client = client
        self._timeout_ms = timeout_ms
        self._now_ms = now_ms
        self._gives_up = gives_up
        self._sequences: dict[TopicPartition, int] = {}
        self._coordinators: dict[str, int] = {}
        """By the name of what is coordinated."""
        self.tries = 0
        """Of the last call."""
        self.was_retried = False
        self.init_retried_ms: int | None = None
        """When an InitProducerId was asked twice. What was may arrive once more later: this one, and with version 1 all
        but Produce, mean something new then."""

    def close(self) -> None:
        self._client.close()

    async def init(self, *, goes_on: bool = False) -> None:
        """InitProducerId. ``goes_on``: with the id and epoch that it has (KIP-360)."""
        from kio.schema.init_producer_id.v4.request import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=TransactionalId(self.name),
            transaction_timeout=milliseconds(self._timeout_ms),
            producer_id=ProducerId(self.producer_id if goes_on else -1),
            producer_epoch=i16(self.epoch if goes_on else -1),
        )
        self.was_retried = False
        try:
            answer = await self._coordinated(request, lambda answer: answer.error_code.value)
        finally:
            if self.was_retried:
                self.init_retried_ms = self._now_ms()
        self.was_retried = False
        self.producer_id, self.epoch = int(answer.producer_id), int(answer.producer_epoch)
        self._sequences.clear()

    async def add(self, partitions: Sequence[TopicPartition]) -> None:
        """AddPartitionsToTxn."""
        from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic

        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TransactionalId(self.name),
            v3_and_below_producer_id=ProducerId(self.producer_id),
            v3_and_below_producer_epoch=i16(self.epoch),
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=TopicName(name), partitions=tuple(map(i32, numbers)))
                for name, numbers in topics.items()
            ),
        )

        def code(answer: Any) -> int:
            codes = [
                p.partition_error_code.value
                for t in answer.results_by_topic_v3_and_below
                for p in t.results_by_partition
            ]
            return next((c for c in codes if c), 0)

        await self._coordinated(request, code)

    def batch(self, tp: TopicPartition, records: Sequence[KeyValue]) -> bytes:
        """The next batch of the partition; its sequences are taken."""
        first = self._sequences.get(tp, 0)
        self._sequences[tp] = first + len(records)
        now_ms = self._now_ms()
        return bytes(
            encode_batch(
                (Record(offset=i, timestamp=now_ms, key=k, value=v, headers=()) for i, (k, v) in enumerate(records)),
                producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=first, transactional=True,
            )
        )  # fmt: skip

    def untake(self, tp: TopicPartition, count: int) -> None:
        """A batch was refused for good: its sequences come again."""
        self._sequences[tp] -= count

    async def produce(self, tp: TopicPartition, batch: bytes) -> Offset | None:
        """Where it was written; None: it was there already."""
        return await self._patiently(lambda: self.produce_once(tp, batch), tp.topic)

    async def produce_once(self, tp: TopicPartition, batch: bytes) -> Offset | None:
        """One try."""
        version = PRODUCE_VERSION[self.version]
        connection = await self._client._leader_connection(tp, PRODUCE)
        body = encode_transactional(self.name, tp, batch, round(ANSWER_S * 1000))
        answer = decode_response(
            PRODUCE, version, await connection.request_raw(PRODUCE, version, body, timeout_s=ANSWER_S)
        )
        part = answer.responses[0].partition_responses[0]
        error = error_of(part.error_code.value, part.error_message or f"produce to {tp}")
        if isinstance(error, DuplicateSequenceError):
            return None
        if error is not None:
            raise error
        return int(part.base_offset) if part.base_offset is not None and part.base_offset >= 0 else None

    async def add_offsets(self, group: str) -> None:
        """AddOffsetsToTxn."""
        from kio.schema.add_offsets_to_txn.v3.request import AddOffsetsToTxnRequest

        request = AddOffsetsToTxnRequest(
            transactional_id=TransactionalId(self.name),
            producer_id=ProducerId(self.producer_id),
            producer_epoch=i16(self.epoch),
            group_id=GroupId(group),
        )
        await self._coordinated(request, lambda answer: answer.error_code.value)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """TxnOffsetCommit, as no member of the group."""
        from kio.schema.txn_offset_commit import v3, v5

        kind: Any = v5.request if self.version == 2 else v3.request
        topics: dict[str, list[Any]] = {}
        for tp, offset in offsets.items():
            one = kind.TxnOffsetCommitRequestPartition(
                partition_index=i32(tp.partition), committed_offset=i64(offset), committed_leader_epoch=i32(-1),
                committed_metadata=None,
            )  # fmt: skip
            topics.setdefault(tp.topic, []).append(one)
        request = kind.TxnOffsetCommitRequest(
            transactional_id=TransactionalId(self.name),
            group_id=GroupId(group),
            producer_id=ProducerId(self.producer_id),
            producer_epoch=i16(self.epoch),
            topics=tuple(
                kind.TxnOffsetCommitRequestTopic(name=TopicName(name), partitions=tuple(parts))
                for name, parts in topics.items()
            ),
        )

        def code(answer: Any) -> int:
            codes = [p.error_code.value for t in answer.topics for p in t.partitions]
            return next((c for c in codes if c), 0)

        await self._coordinated(request, code, group=group)

    async def end(self, *, commit: bool) -> None:
        """EndTxn. ``tries`` says whether it was asked before it was refused."""
        from kio.schema.end_txn import v3, v5

        kind: Any = v5.request if self.version == 2 else v3.request
        request = kind.EndTxnRequest(
            transactional_id=TransactionalId(self.name),
            producer_id=ProducerId(self.producer_id),
            producer_epoch=i16(self.epoch),
            committed=commit,
        )
        answer = await self._coordinated(request, lambda answer: answer.error_code.value)
        if self.version == 2:
            self.producer_id, self.epoch = int(answer.producer_id), int(answer.producer_epoch)
            self._sequences.clear()

    # -- asking ------------------------------------------------------------------------------------------------

    async def _coordinated(self, request: Any, code: Callable[[Any], int], *, group: str | None = None) -> Any:
        """Ask the coordinator of the transactional id, or of the group."""
        of = self.name if group is None else group

        async def once() -> Any:
            if of not in self._coordinators:
                self._coordinators[of] = await self._find(of, 0 if group is not None else _TRANSACTION)
            try:
                answer = await self._client.ask_broker(self._coordinators[of], request, timeout_s=ANSWER_S)
                raise_for(code(answer), None, f"{self.name}: {type(request).__name__}")
            except HoldfastError as e:
                if e.retriable or isinstance(e, (ConnectionLost, BrokerUnavailableError, RequestTimedOutError)):
                    self._coordinators.pop(of, None)
                raise
            return answer

        return await self._patiently(once)

    async def _find(self, name: str, kind: int) -> int:
        from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest

        request = FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=(name,))
        found = (await self._client.ask_any(request, timeout_s=ANSWER_S)).coordinators[0]
        raise_for(found.error_code.value, found.error_message, f"coordinator of {name!r}")
        await self._client.refresh(())
        return int(found.node_id)

    async def _patiently(self, once: Callable[[], Awaitable[T]], topic: str | None = None) -> T:
        self.tries = 0
        while True:
            self.tries += 1
            try:
                return await once()
            except ConcurrentTransactionsError:
                pass  # it was heard and refused: nothing of it comes again
            except HoldfastError as e:
                if not (e.retriable or isinstance(e, (ConnectionLost, BrokerUnavailableError, RequestTimedOutError))):
                    raise
                self.was_retried = True
            if self._gives_up():
                raise GivenUp
            await asyncio.sleep(RETRY_S)
            if topic is not None:
                with contextlib.suppress(HoldfastError):
                    await self._client.refresh([topic])


def encode_transactional(name: str, tp: TopicPartition, batch: bytes, timeout_ms: int) -> bytes:
    """Body of a Produce from 9 on with one batch of a transaction, acks=all."""
    identity, topic = name.encode(), tp.topic.encode()
    return b"".join(
        (
            uvarint(len(identity) + 1) + identity,
            struct.pack(">hi", -1, timeout_ms),
            b"\x02" + uvarint(len(topic) + 1) + topic + b"\x02",
            struct.pack(">i", tp.partition) + uvarint(len(batch) + 1),
            batch,
            b"\0\0\0",
        )
    )
