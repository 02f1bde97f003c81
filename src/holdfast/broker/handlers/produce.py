"""Produce (API 0): batches in, base offsets out.

Versions as protocol/apis.py lists them. Record bytes are not decoded here: they go from the receive buffer to the
disk's thread, which checks their CRC, stamps and writes them. Those of a transaction may wait for its coordinator
before (transactional_appends.py). As in Kafka, a request with null records gets no answer, and acks=0 closes the
connection when something fails. Differences: records are not counted, so a batch whose records are not as its header
says is taken (storage/validation.py); a refused partition always has a message, and never a log start offset.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from holdfast.broker.exchange import Exchange
from holdfast.broker.handlers.leaders import KnowsLeaders, endpoints, leader_of
from holdfast.broker.transactional_appends import TransactionalAppends, TxnBatch
from holdfast.model.errors import (
    HoldfastError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from holdfast.model.internal_topics import INTERNAL_TOPICS
from holdfast.model.shown import shown
from holdfast.model.types import BrokerId, TopicPartition
from holdfast.protocol.error_codes import code_of
from holdfast.protocol.produce_codec import ProduceAnswer, decode_produce_request, encode_produce_response
from holdfast.records.batch import parse_header
from holdfast.replication.types import ProduceResult
from holdfast.security.operations import refusal
from holdfast.security.resources import Operation, ResourceKind

if TYPE_CHECKING:
    from holdfast.broker.access import Access
    from holdfast.broker.judge import Judge
    from holdfast.protocol.produce_codec import ProduceData


ZSTD_VERSION = 7
ADMIN_CLIENT = "__admin_client"
"""Kafka's tools have this client id, and may write to internal topics."""
_WITHOUT_WORDS = (
    NotLeaderOrFollowerError, UnknownTopicOrPartitionError, InvalidTopicError, TopicAuthorizationFailedError,
)  # fmt: skip
_NO_OFFSET = -1
_HEAD = struct.Struct(">8xi4xb4xh")
"""Length, magic and attributes of a batch."""
_HEAD_SIZE, _LOG_OVERHEAD = 61, 12
_COMPRESSION, _ZSTD, _TRANSACTIONAL = 0x07, 4, 0x10
_WORTH_A_LOOK = _ZSTD | _TRANSACTIONAL


class ProduceHost(KnowsLeaders, Protocol):
    """What a produce request asks of the broker."""

    access: Access
    transactional_appends: TransactionalAppends

    def now_ms(self) -> int: ...


class ProduceHandler:
    """One per broker; keeps no state between requests."""

    def __init__(self, broker: ProduceHost) -> None:
        self._broker = broker

    def handle(self, exchange: Exchange) -> None:
        """Append every partition's batches; answer when the last one is done."""
        version = exchange.header.api_version
        request = decode_produce_request(version, exchange.own_body())
        if exchange.meter is not None:
            exchange.meter.produced(exchange.size)
            exchange.meter.took()
        pending = _PendingProduce(self._broker, exchange, request.acks)
        broker, now_ms = self._broker, self._broker.now_ms()
        judge = broker.access.judge(exchange.connection, exchange.header.api_key)
        forged = None if judge is None else _forged(judge, request)
        acks_error: HoldfastError | None = None
        if request.acks not in (-1, 0, 1):
            acks_error = InvalidRequiredAcksError(f"acks={request.acks}: expected -1, 0 or 1")
        for name_or_id, partitions in request.topics:
            name = broker.metadata.resolve(name_or_id)
            denied = forged
            if judge is not None and denied is None and name is not None:
                denied = None if judge.may(Operation.WRITE, ResourceKind.TOPIC, name) else refusal(ResourceKind.TOPIC)
            for index, records in partitions:
                if records is None:
                    pending.abandoned = f"{shown(str(name_or_id))}, partition {index}"
                    continue
                place = pending.expect(name_or_id, index)
                if denied is not None:
                    pending.fail(place, denied)
                elif acks_error is not None:
                    pending.fail(place, acks_error)
                elif name is None:
                    pending.fail(place, UnknownTopicIdError(f"no topic has the id {name_or_id}"))
                elif name in INTERNAL_TOPICS and not _may_write_internal(exchange, judge):
                    why = f"{name} is written by brokers alone: its records are groups, and one that is none stops them"
                    pending.fail(place, InvalidTopicError(why))
                elif (refused := _refusal(version, records, request.transactional_id)) is not None:
                    pending.fail(place, refused)
                elif request.transactional_id is not None and _is_transactional(records):
                    batch = TxnBatch(
                        TopicPartition(name, index), records, parse_header(records), request.transactional_id,
                        version, request.acks, request.timeout_ms, place,
                    )  # fmt: skip
                    broker.transactional_appends.append(batch)
                else:
                    broker.replicas.append(
                        TopicPartition(name, index), records, acks=request.acks,
                        timeout_ms=request.timeout_ms, now_ms=now_ms, done=place,
                    )  # fmt: skip
        pending.all_started()


def _may_write_internal(exchange: Exchange, judge: Judge | None) -> bool:
    """Kafka's tools, which say who they are by their client id: where rights are asked for that is not enough."""
    if exchange.header.client_id != ADMIN_CLIENT:
        return False
    return judge is None or judge.may(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)


def _forged(judge: Judge, request: ProduceData) -> HoldfastError | None:
    """The error of the whole request: it has records of a transaction, in whatever partition, and no right to write in
    its name (Kafka: CVE-2018-17196)."""
    name = request.transactional_id
    for _, partitions in request.topics:
        for _, records in partitions:
            if records is not None and _is_transactional(records):
                if name is not None and judge.may(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, name):
                    return None
                return refusal(ResourceKind.TRANSACTIONAL_ID)
    return None


def _refusal(version: int, records: memoryview, transactional_id: str | None) -> HoldfastError | None:
    """What is wrong with a partition's records as records of a request; what no log would take, the log says."""
    size = len(records)
    if size < _HEAD_SIZE:
        return None
    length, magic, attributes = _HEAD.unpack_from(records)
    first = length + _LOG_OVERHEAD
    if first == size and not attributes & _WORTH_A_LOOK:
        return None
    if magic != 2 or not _HEAD_SIZE <= first <= size:
        return None
    if attributes & _COMPRESSION == _ZSTD and version < ZSTD_VERSION:
        return UnsupportedCompressionTypeError(
            f"zstd in Produce version {version}: expected version {ZSTD_VERSION} or later"
        )
    if attributes & _TRANSACTIONAL and transactional_id is None:
        return TransactionalIdAuthorizationFailedError("records of a transaction: expected a transactional id")
    if size - first >= _HEAD_SIZE:
        length, magic, _ = _HEAD.unpack_from(records, first)
        if magic <= 2 and length > 0 and first + length + _LOG_OVERHEAD <= size:
            return InvalidRecordError("more than one record batch for a partition: expected one")
    return None


def _is_transactional(records: memoryview) -> bool:
    """Whether these are a batch of a transaction. What is none, the log says."""
    if len(records) < _HEAD_SIZE:
        return False
    length, magic, attributes = _HEAD.unpack_from(records)
    return bool(magic == 2 and length + _LOG_OVERHEAD >= _HEAD_SIZE and attributes & _TRANSACTIONAL)


class _Place:
    """Where one partition's result goes; called with it once."""

    __slots__ = ("index", "pending", "result", "topic")

    def __init__(self, pending: _PendingProduce, topic: str | UUID, index: int) -> None:
        self.pending = pending
        self.topic = topic
        self.index = index
        self.result: ProduceResult | HoldfastError | None = None

    def __call__(self, result: ProduceResult) -> None:
        self.result = result
        self.pending.one_done()


class _PendingProduce:
    """One Produce request under way."""

    __slots__ = (
        "_acks",
        "_broker",
        "_exchange",
        "_left",
        "_places",
        "_started",
        "abandoned",
    )

    def __init__(self, broker: ProduceHost, exchange: Exchange, acks: int) -> None:
        self._broker = broker
        self._exchange = exchange
        self._acks = acks
        self._places: list[_Place] = []
        self._left = 0
        self._started = False
        self.abandoned: str | None = None
        """For which partition it has no records."""

    def expect(self, topic: str | UUID, index: int) -> _Place:
        place = _Place(self, topic, index)
        self._places.append(place)
        self._left += 1
        return place

    def fail(self, place: _Place, error: HoldfastError) -> None:
        place.result = error
        self._left -= 1

    def one_done(self) -> None:
        self._left -= 1
        if self._started and not self._left:
            self._finish()

    def all_started(self) -> None:
        self._started = True
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        places, self._places = self._places, []  # no cycle: the collector comes by seldom
        exchange = self._exchange
        if exchange.times is not None:
            exchange.appended = places[0].result if len(places) == 1 else _slowest(places)
        if self.abandoned is not None:  # left open it would hold its bytes until the client goes
            exchange.finish(())
            exchange.connection.close(
                f"a Produce without records for {self.abandoned}: expected batches for every partition"
            )
            return
        if self._acks == 0:
            failed = False
            for place in places:
                error = _error_of(place)
                if error is not None:
                    failed = True
                    self._count(code_of(error))
            exchange.finish(())
            if failed:
                exchange.connection.close("a Produce with acks=0 failed: closing so that the client notices")
            return
        answers: list[tuple[str | UUID, list[ProduceAnswer]]] = []
        moved: list[BrokerId] = []
        for place in places:
            if not answers or answers[-1][0] != place.topic:
                answers.append((place.topic, []))
            answers[-1][1].append(self._answer(place, moved))
        header = exchange.header
        nodes = endpoints(self._broker, moved, exchange.connection.listener.name) if moved else ()
        exchange.finish(
            [
                encode_produce_response(
                    header.api_version,
                    header.correlation_id,
                    answers,
                    throttle_ms=0 if exchange.meter is None else exchange.meter.throttle_ms,
                    node_endpoints=nodes,
                )
            ]
        )

    def _count(self, code: int) -> None:
        exchange = self._exchange
        if exchange.times is not None:
            exchange.times.failed(exchange.header.api_key, code)

    def _answer(self, place: _Place, moved: list[BrokerId]) -> ProduceAnswer:
        error = _error_of(place)
        result = place.result
        if error is None:
            assert result is not None and not isinstance(result, HoldfastError)
            return ProduceAnswer(
                partition=place.index, error_code=0, base_offset=result.base_offset,
                log_append_time_ms=_NO_OFFSET if result.log_append_time_ms is None else result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
            )  # fmt: skip
        code = code_of(error)
        self._count(code)
        leader = None
        name = self._broker.metadata.resolve(place.topic)
        if isinstance(error, NotLeaderOrFollowerError) and name is not None:
            leader = leader_of(self._broker, TopicPartition(name, place.index))
            if leader is not None:
                moved.append(leader[0])
        quiet = isinstance(error, _WITHOUT_WORDS)
        return ProduceAnswer(
            partition=place.index, error_code=code, base_offset=_NO_OFFSET,
            log_append_time_ms=_NO_OFFSET, log_start_offset=_NO_OFFSET,
            error_message=None if quiet else (error.message or None), current_leader=leader,
            record_errors=getattr(error, "record_errors", ()),
        )  # fmt: skip


def _slowest(places: Sequence[_Place]) -> ProduceResult | None:
    """For the times of a request of several appends: when the last began, how long the longest waited for others."""
    results = [each for place in places if isinstance(each := place.result, ProduceResult)]
    if not results:
        return None
    return ProduceResult(
        None, waited_ns=max(each.waited_ns for each in results), began_ns=max(each.began_ns for each in results)
    )


def _error_of(place: _Place) -> HoldfastError | None:
    result = place.result
    if isinstance(result, HoldfastError):
        return result
    return None if result is None else result.error
