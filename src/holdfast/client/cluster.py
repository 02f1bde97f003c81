"""A client of a whole cluster: finds leaders, coordinators and the controller, asks, tries again.

Owns the cached metadata and the rule of retrying: a retriable error or a lost connection refreshes the metadata and
is tried again, with a growing pause, until the caller's time is up. Never batches, never compresses, keeps no
position: producers and consumers are made of it (cli/, spark/).

One event loop, any number of tasks. ``client/blocking.py`` is the same for code without an event loop.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import TopicName
from kio.static.primitive import i32Timedelta

from holdfast.client.connection import BrokerConnection
from holdfast.client.errors import ConnectionLost
from holdfast.client.pool import ConnectionPool, ask, parse_bootstrap
from holdfast.client.refused import raise_for, raise_for_producer_id, refusal
from holdfast.client.security import LOGIN_EXPECTED, SecuritySettings
from holdfast.client.translate import cluster_view
from holdfast.client.versions import FETCH, PINNED, PRODUCE
from holdfast.client.views import (
    ClusterMetadata,
    FetchedRecords,
    IsolationLevel,
    OffsetAt,
    OffsetSpec,
    ProduceAck,
    TopicView,
)
from holdfast.model.errors import (
    BrokerUnavailableError,
    DuplicateSequenceError,
    HoldfastError,
    LeaderNotAvailableError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import BrokerId, LeaderEpoch, Offset, TimestampMs, TopicPartition
from holdfast.protocol.fetch_codec import (
    FetchData,
    FetchPartitionData,
    FetchResponseData,
    decode_fetch_response,
    encode_fetch_request,
)

T = TypeVar("T")

FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.5
SLACK_S = 5.0
"""How much longer than a request's own limit the client waits for its answer."""


class KafkaClient:
    """``async with KafkaClient("host:port") as client:``

    ``timeout_s`` bounds every call, retries included; a call raises the last error when it is over. ``retries`` bounds
    them by number, and ``retry_pause_s`` is the pause before each, instead of one that grows. Without ``security``
    connections are plaintext; AuthenticationError is never tried again.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        client_id: str = "holdfast",
        timeout_s: float = 30.0,
        connect_timeout_s: float = 5.0,
        retries: int | None = None,
        retry_pause_s: float | None = None,
        security: SecuritySettings | None = None,
    ) -> None:
        self.client_id = client_id
        self.timeout_s = timeout_s
        self._retries = retries
        self._retry_pause_s = retry_pause_s
        self._pool = ConnectionPool(
            parse_bootstrap(bootstrap), client_id, connect_timeout_s=connect_timeout_s, security=security
        )
        self._view: ClusterMetadata | None = None
        self._topics: dict[str, TopicView] = {}

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._pool.close()

    async def connect(self) -> None:
        """Not retried: what cannot be reached, or wants what it was not given, says so at once."""
        try:
            await self.refresh(())
        except ConnectionLost as e:
            if self._pool.logs_in:
                raise
            raise ConnectionLost(f"{e}; if it asks for a login, {LOGIN_EXPECTED}") from e

    # -- metadata ------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> frozenset[BrokerId]:
        """Those that the last metadata told of; nobody before there was one."""
        return frozenset() if self._view is None else frozenset(self._view.brokers)

    async def metadata(self, topics: Iterable[str] | None = None, *, auto_create: bool = False) -> ClusterMetadata:
        """Fresh from a broker: all topics, or those named; per-topic errors are in the view."""
        names = None if topics is None else list(topics)
        return await self.retrying(lambda: self.refresh(names, auto_create=auto_create), refresh=False)

    async def refresh(self, topics: Sequence[str] | None, *, auto_create: bool = False) -> ClusterMetadata:
        """One Metadata request, not retried."""
        asked = (
            None
            if topics is None
            else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in topics)
        )
        request = MetadataRequest(
            topics=asked, allow_auto_topic_creation=auto_create, include_topic_authorized_operations=False
        )
        connection = await self._pool.to_any()
        return self.adopt(cluster_view(await ask(self._pool, connection, request, self.timeout_s)), topics is None)

    def adopt(self, view: ClusterMetadata, is_whole: bool) -> ClusterMetadata:
        """What a broker has just told is what this client goes by; ``is_whole``: there are no other topics."""
        self._pool.learn(view.brokers)
        if is_whole:
            self._topics = dict(view.topics)
        else:
            self._topics.update(view.topics)
        self._view = view
        return view

    async def metadata_of(self, broker_id: BrokerId, topics: Sequence[str]) -> ClusterMetadata:
        """What one broker sees, not retried: for a second opinion. ``learn`` makes it what this client goes by."""
        asked = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in topics)
        request = MetadataRequest(
            topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        return cluster_view(await self.ask_broker(broker_id, request))

    def learn(self, topics: Mapping[str, TopicView]) -> None:
        """Topics as ``metadata_of`` told of them."""
        self._topics.update(topics)

    async def topic(self, name: str, *, auto_create: bool = False) -> TopicView:
        """One topic with all its leaders known; raises its error otherwise, after retrying."""

        async def once() -> TopicView:
            view = (await self.refresh([name], auto_create=auto_create)).topics.get(name)
            if view is None:
                raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist")
            if view.error is not None:
                raise view.error
            if any(p.leader is None for p in view.partitions):
                raise LeaderNotAvailableError(f"topic {name!r} has partitions without a leader")
            return view

        # A topic that is not there is news at once, unless asking creates it.
        lasting = () if auto_create else (UnknownTopicOrPartitionError,)
        return await self.retrying(once, refresh=False, lasting=lasting)

    async def leader(self, tp: TopicPartition) -> BrokerId:
        """From the cache if it is there. LeaderNotAvailableError, UnknownTopicOrPartitionError."""
        topic = self._topics.get(tp.topic)
        if topic is None or topic.error is not None:
            await self.refresh([tp.topic])
            topic = self._topics.get(tp.topic)
        if topic is None or isinstance(topic.error, UnknownTopicOrPartitionError):
            raise UnknownTopicOrPartitionError(f"topic {tp.topic!r} does not exist")
        if topic.error is not None:
            raise topic.error
        partition = topic.partition(tp.partition)
        if partition is None:
            raise UnknownTopicOrPartitionError(f"topic {tp.topic!r} has no partition {tp.partition}")
        if partition.leader is None:
            raise LeaderNotAvailableError(f"partition {tp} has no leader")
        return partition.leader

    # -- asking --------------------------------------------------------------------------------------------

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_s: float | None = None,
        refresh: bool = True,
        lasting: tuple[type[HoldfastError], ...] = (),
    ) -> T:
        """``attempt`` until it succeeds, fails for good, or the time is up. ``lasting`` errors are for good."""
        loop = asyncio.get_running_loop()
        limit_s = loop.time() + (self.timeout_s if timeout_s is None else timeout_s)
        pause_s = FIRST_PAUSE_S if self._retry_pause_s is None else self._retry_pause_s
        left = self._retries
        while True:
            try:
                return await attempt()
            except HoldfastError as e:
                retriable = e.retriable or isinstance(e, BrokerUnavailableError)
                if not retriable or isinstance(e, lasting) or left == 0 or loop.time() + pause_s > limit_s:
                    raise
            left = None if left is None else left - 1
            await asyncio.sleep(pause_s)
            if self._retry_pause_s is None:
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            if refresh:
                await self._refresh_known()

    async def _refresh_known(self) -> None:
        names = list(self._topics)
        try:
            await self.refresh(names)
        except HoldfastError as e:
            if not e.retriable:
                raise

    async def ask_any(self, request: Any, *, timeout_s: float | None = None) -> Any:
        """To whichever broker is connected."""
        return await ask(self._pool, await self._pool.to_any(), request, timeout_s or self.timeout_s)

    async def ask_broker(self, broker_id: BrokerId, request: Any, *, timeout_s: float | None = None) -> Any:
        """To this broker."""
        return await ask(self._pool, await self._pool.to_broker(broker_id), request, timeout_s or self.timeout_s)

    async def ask_raw(self, broker_id: BrokerId | None, api_key: int, body: bytes) -> memoryview:
        """An encoded request of the pinned version, to this broker or to whichever is connected; the answer's body."""
        connection = await (self._pool.to_any() if broker_id is None else self._pool.to_broker(broker_id))
        self._pool.require(connection, api_key, PINNED[api_key])
        return await connection.request_raw(api_key, PINNED[api_key], body, timeout_s=self.timeout_s)

    async def ask_unlisted(self, broker_id: BrokerId, request: Any, *, timeout_s: float) -> Any:
        """To this broker, a request that ApiVersions does not tell of. ConnectionLost where it is not known."""
        return await (await self._pool.to_broker(broker_id)).request(request, timeout_s=timeout_s)

    async def ask_unlisted_raw(self, broker_id: BrokerId, api_key: int, body: bytes, *, timeout_s: float) -> memoryview:
        """The same of version 0 with bytes, and bytes for an answer."""
        return await (await self._pool.to_broker(broker_id)).request_raw(api_key, 0, body, timeout_s=timeout_s)

    async def ask_controller(self, request: Any, *, timeout_s: float | None = None) -> Any:
        """To the broker that metadata calls the controller; brokers forward what is for another one."""
        view = self._view
        if view is None or view.controller_id is None:
            view = await self.refresh(())
        if view.controller_id is None:
            raise BrokerUnavailableError("the cluster has no controller now")
        return await self.ask_broker(view.controller_id, request, timeout_s=timeout_s)

    async def _leader_connection(self, tp: TopicPartition, api_key: int) -> BrokerConnection:
        connection = await self._pool.to_broker(await self.leader(tp))
        self._pool.require(connection, api_key, PINNED[api_key])
        return connection

    # -- records -------------------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        partition: int,
        batch: bytes | bytearray | memoryview,
        *,
        acks: int = -1,
        timeout_s: float | None = None,
        retry: bool = True,
    ) -> ProduceAck:
        """One encoded batch to the leader.

        A retry after a lost connection can write it twice, unless it carries a producer id and sequence
        (``init_producer_id``); ``retry=False`` leaves the decision to the caller.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        tp = TopicPartition(topic, partition)

        async def once() -> ProduceAck:
            connection = await self._leader_connection(tp, PRODUCE)
            body = encode_produce(tp, batch, acks, round(limit_s * 1000))
            if acks == 0:
                connection.send_raw(PRODUCE, PINNED[PRODUCE], body)
                await connection.drained()
                return ProduceAck(base_offset=None)
            answer = await connection.request_raw(PRODUCE, PINNED[PRODUCE], body, timeout_s=limit_s + SLACK_S)
            return produce_ack(answer)

        return await (self.retrying(once, timeout_s=limit_s) if retry else once())

    async def init_producer_id(self) -> tuple[int, int]:
        """A producer id and its epoch, for batches that are written once however often they are sent."""
        from kio.schema.init_producer_id.v4.request import InitProducerIdRequest

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout=milliseconds(60_000))

        async def once() -> tuple[int, int]:
            answer = await self.ask_any(request)
            raise_for_producer_id(answer.error_code.value)
            return int(answer.producer_id), int(answer.producer_epoch)

        return await self.retrying(once)

    async def fetch_raw(
        self,
        tp: TopicPartition,
        offset: Offset,
        *,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> FetchedRecords:
        """Batches of one partition from the leader. Raises the partition's error; OffsetOutOfRange at once."""

        async def once() -> FetchedRecords:
            found = await self.fetch_from(
                await self.leader(tp),
                {tp: offset},
                max_bytes=max_bytes,
                partition_max_bytes=max_bytes,
                min_bytes=min_bytes,
                max_wait_ms=max_wait_ms,
                isolation=isolation,
            )
            one = found.get(tp)
            if one is None:
                raise ThrottlingQuotaExceededError(f"fetch of {tp}: the broker throttles the client {self.client_id!r}")
            if one.error is not None:
                raise one.error
            return one

        return await self.retrying(once)

    async def fetch_from(
        self,
        broker_id: BrokerId,
        positions: Mapping[TopicPartition, Offset],
        *,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, FetchedRecords]:
        """One Fetch to one broker, not retried; each partition's error is in its part. {}: the broker throttles."""
        by_topic: dict[str, list[FetchPartitionData]] = {}
        for tp, offset in positions.items():
            by_topic.setdefault(tp.topic, []).append(
                FetchPartitionData(tp.partition, -1, offset, -1, -1, partition_max_bytes)
            )
        topics = list(by_topic.items())
        data = FetchData(-1, -1, max_wait_ms, min_bytes, max_bytes, isolation.value, 0, -1, topics)
        response = await self.fetch_with(broker_id, data)
        raise_for(response.error_code, None, f"fetch from broker {broker_id}")
        return {
            TopicPartition(str(topic), part.partition): FetchedRecords(
                error=refusal(part.error_code, None, f"partition {topic}-{part.partition} at broker {broker_id}"),
                high_watermark=part.high_watermark,
                last_stable_offset=part.last_stable_offset,
                log_start_offset=part.log_start_offset,
                records=part.records,
                aborted=tuple(part.aborted or ()),
            )
            for topic, parts in response.topics
            for part in parts
        }

    async def fetch_with(self, broker_id: BrokerId, data: FetchData) -> FetchResponseData:
        """One Fetch to one broker, not retried; what is wrong stands in the answer."""
        connection = await self._pool.to_broker(broker_id)
        self._pool.require(connection, FETCH, PINNED[FETCH])
        body = encode_fetch_request(PINNED[FETCH], data)
        limit_s = data.max_wait_ms / 1000 + self.timeout_s
        return decode_fetch_response(
            PINNED[FETCH], await connection.request_raw(FETCH, PINNED[FETCH], body, timeout_s=limit_s)
        )

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | TimestampMs],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[TopicPartition, OffsetAt]:
        """Offsets by name or by time; all partitions or an error."""
        from holdfast.client.translate import list_offsets_request, listed_offsets

        found: dict[TopicPartition, OffsetAt] = {}

        async def once() -> None:
            by_leader: dict[BrokerId, dict[TopicPartition, OffsetSpec | TimestampMs]] = {}
            for tp, spec in specs.items():
                if tp not in found:
                    by_leader.setdefault(await self.leader(tp), {})[tp] = spec
            answers = await asyncio.gather(
                *(self.ask_broker(b, list_offsets_request(part, isolation)) for b, part in by_leader.items()),
                return_exceptions=True,
            )
            trouble: BaseException | None = None
            for answer in answers:
                if isinstance(answer, BaseException):
                    trouble = answer
                    continue
                for tp, listed in listed_offsets(answer).items():
                    if isinstance(listed, HoldfastError):
                        trouble = listed
                    else:
                        found[tp] = listed
            if trouble is not None:
                raise trouble

        await self.retrying(once)
        return found

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, LeaderEpoch]
    ) -> dict[TopicPartition, tuple[LeaderEpoch | None, Offset | None]]:
        """For each partition the largest epoch up to the given one that its leader has, and where that ends in its log;
        None where it knows of none (KIP-101, KIP-320). All partitions or an error."""
        from holdfast.client.translate import epoch_ends_request, found_epoch_ends

        found: dict[TopicPartition, tuple[LeaderEpoch | None, Offset | None]] = {}

        async def once() -> None:
            by_leader: dict[BrokerId, dict[TopicPartition, LeaderEpoch]] = {}
            for tp, epoch in epochs.items():
                if tp not in found:
                    by_leader.setdefault(await self.leader(tp), {})[tp] = epoch
            for broker_id, part in by_leader.items():
                answers = found_epoch_ends(await self.ask_broker(broker_id, epoch_ends_request(part)))
                for tp, answer in answers.items():
                    if isinstance(answer, HoldfastError):
                        raise answer
                    found[tp] = answer

        await self.retrying(once)
        return found


def encode_produce(tp: TopicPartition, batch: bytes | bytearray | memoryview, acks: int, timeout_ms: int) -> bytes:
    """Body of a Produce v9 with one batch: written by hand, so that the batch is copied once."""
    name = tp.topic.encode()
    return b"".join(
        (
            b"\0",  # no transactional id
            struct.pack(">hi", acks, timeout_ms),
            b"\x02" + uvarint(len(name) + 1) + name + b"\x02",
            struct.pack(">i", tp.partition) + uvarint(len(batch) + 1),
            batch,
            b"\0\0\0",  # no tagged fields, thrice
        )
    )


def produce_ack(body: memoryview) -> ProduceAck:
    """The one partition of a Produce v9 answer, or its error."""
    from holdfast.protocol.framing import decode_response

    answer = decode_response(PRODUCE, PINNED[PRODUCE], body)
    topic = answer.responses[0]
    part = topic.partition_responses[0]
    error = refusal(part.error_code.value, part.error_message, f"produce to {topic.name}-{part.index}")
    if isinstance(error, DuplicateSequenceError):
        return ProduceAck(base_offset=None, duplicate=True)
    if error is not None:
        raise error
    appended = part.log_append_time
    return ProduceAck(
        base_offset=int(part.base_offset),
        log_append_time_ms=None if appended is None else round(appended.timestamp() * 1000),
        log_start_offset=int(part.log_start_offset),
    )


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def milliseconds(value: int) -> i32Timedelta:
    """kio's type for a duration on the wire."""
    return i32Timedelta.parse(timedelta(milliseconds=value))


__all__ = ["KafkaClient", "RequestTimedOutError", "milliseconds"]
