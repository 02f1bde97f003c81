"""The connections over which this broker's followers fetch from leaders.

One connection per FetcherState (replication/follower.py), which says what to ask and takes the answers. This
module owns the connections, their back-off and nothing else: it decides nothing about offsets. Answers are decoded
to views of the receive buffer; record bytes are not copied between the socket and the append.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from holdfast.model.errors import HoldfastError, NetworkError
from holdfast.model.types import TopicPartition
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.error_codes import error_of
from holdfast.protocol.fetch_codec import (
    INTERBROKER_FETCH_VERSION,
    FetchData,
    FetchPartitionData,
    FetchResponseData,
    decode_fetch_response,
    encode_fetch_request,
)
from holdfast.replication.types import FetchedPartition, Fetcher, FetchPlan

if TYPE_CHECKING:
    from holdfast.broker.membership import Membership
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.client.connection import BrokerConnection
    from holdfast.client.outgoing import Outgoing
    from holdfast.model.config import BrokerConfig
    from holdfast.model.types import BrokerId
    from holdfast.replication.local_replicas import LocalReplicas

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 2.0
RECONNECT_S = 0.05
_FETCH = int(ApiKey.FETCH)
_NO_ID = UUID(int=0)


class FetchingHost(Protocol):
    """What the fetch connections ask of the broker."""

    broker_id: BrokerId
    config: BrokerConfig
    metadata: MetadataCache
    membership: Membership
    outgoing: Outgoing
    replicas: LocalReplicas

    def now_ms(self) -> int: ...

    def suspect(self, broker_id: BrokerId | None) -> None: ...


class ReplicaFetchers:
    """All fetch connections of this broker; told by the outbox which fetchers have something to ask."""

    def __init__(self, broker: FetchingHost) -> None:
        self._broker = broker
        self._links: dict[Fetcher, _Link] = {}

    def ready(self, fetcher: Fetcher) -> None:
        """``fetcher`` may have a plan to send."""
        link = self._links.get(fetcher)
        if link is None:
            link = self._links[fetcher] = _Link(self._broker, fetcher)
        link.schedule()

    def close(self) -> None:
        """Close every connection."""
        for link in self._links.values():
            link.close()
        self._links.clear()


class _Link:
    """One fetcher's connection: opened when there is a plan, closed when nothing is fetched any more."""

    def __init__(self, broker: FetchingHost, fetcher: Fetcher) -> None:
        self._broker = broker
        self._fetcher = fetcher
        self._connection: BrokerConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._scheduled = False
        self._closed = False
        self._ids: dict[str, UUID] = {}

    def schedule(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _pump(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        if self._connection is None:
            if self._opening is None and not self._fetcher.is_empty:
                self._opening = asyncio.get_running_loop().create_task(self._open())
            return
        if self._fetcher.is_empty:
            connection, self._connection = self._connection, None
            connection.close()
            return
        while self._connection is not None:
            plan = self._fetcher.build(self._broker.now_ms())
            if plan is None:
                return
            self._send(self._connection, plan)

    async def _open(self) -> None:
        try:
            await self._connect()
        except GeneratorExit:  # the loop has ended in the middle of this: there is nothing to be scheduled on
            self._closed = True
            raise
        finally:  # whatever happened: as long as it is set nobody tries again
            self._opening = None
            self.schedule()

    async def _connect(self) -> None:
        source = self._fetcher.source
        try:
            where = self._broker.metadata.brokers.get(source)
            if where is None:
                raise NetworkError(f"broker {source} is not alive")
            connection = self._broker.outgoing.connection(
                where.endpoints.for_brokers,
                f"broker-{self._broker.broker_id}-fetcher",
                on_close=self._on_close,
            )
            await connection.open(CONNECT_TIMEOUT_S)
            self._connection = connection
        except Exception as e:
            error = e if isinstance(e, HoldfastError) else NetworkError(f"{type(e).__name__}: {e}")
            log.info("cannot fetch from broker %d: %s", source, error)
            try:
                self._fetcher.on_failure(error, self._broker.now_ms())
            finally:
                await asyncio.sleep(RECONNECT_S)

    def _on_close(self, error: Exception | None) -> None:
        self._connection = None
        if self._closed:
            return
        if error is not None:  # not closed by this side
            self._broker.suspect(self._fetcher.source)
        self._fetcher.on_failure(NetworkError(str(error or "closed")), self._broker.now_ms())
        self.schedule()

    def _send(self, connection: BrokerConnection, plan: FetchPlan) -> None:
        broker = self._broker
        data = FetchData(
            replica_id=broker.broker_id,
            replica_epoch=broker.membership.broker_epoch,
            max_wait_ms=plan.max_wait_ms,
            min_bytes=plan.min_bytes,
            max_bytes=plan.max_bytes,
            isolation_level=0,
            session_id=plan.session_id or 0,
            session_epoch=plan.session_epoch,
            topics=self._topics(plan),
            forgotten=self._forgotten(plan.forgotten),
        )
        body = encode_fetch_request(INTERBROKER_FETCH_VERSION, data)
        try:
            connection.request_raw_cb(
                _FETCH,
                INTERBROKER_FETCH_VERSION,
                body,
                self._answered,
                timeout_s=broker.config.int("replica.socket.timeout.ms") / 1000,
            )
        except HoldfastError:
            connection.close()

    def _topics(self, plan: FetchPlan) -> list[tuple[str | UUID, list[FetchPartitionData]]]:
        topics: list[tuple[str | UUID, list[FetchPartitionData]]] = []
        last: str | None = None
        for q in plan.partitions:
            tp = q.topic_partition
            if tp.topic != last:
                last = tp.topic
                topics.append((self._wire_id(tp), []))
            topics[-1][1].append(
                FetchPartitionData(
                    tp.partition,
                    -1 if q.current_leader_epoch is None else q.current_leader_epoch,
                    q.offset,
                    -1 if q.last_fetched_epoch is None else q.last_fetched_epoch,
                    -1 if q.log_start_offset is None else q.log_start_offset,
                    q.max_bytes,
                )
            )
        return topics

    def _forgotten(self, partitions: list[TopicPartition]) -> list[tuple[str | UUID, list[int]]]:
        topics: dict[str | UUID, list[int]] = {}
        for tp in partitions:
            topics.setdefault(self._wire_id(tp), []).append(tp.partition)
        if partitions:
            followed = {tp.topic for tp in self._fetcher.partitions}
            self._ids = {topic: topic_id for topic, topic_id in self._ids.items() if topic in followed}
        return list(topics.items())

    def _wire_id(self, tp: TopicPartition) -> UUID:
        """The id of the topic that our replica is of; remembered for when the replica is gone."""
        partition = self._broker.replicas.partitions.get(tp)
        if partition is not None:
            self._ids[tp.topic] = partition.topic_id
        return self._ids.get(tp.topic, _NO_ID)

    def _answered(self, body: memoryview | None, error: Exception | None) -> None:
        if body is None:
            if self._connection is not None and not self._closed:
                log.info("fetch from broker %d: %s", self._fetcher.source, error)
                self._connection.close()  # on_close tells the fetcher
            return
        now_ms = self._broker.now_ms()
        try:
            data = decode_fetch_response(INTERBROKER_FETCH_VERSION, body)
        except Exception:
            log.exception("broker %d answered a fetch with bytes that cannot be read", self._fetcher.source)
            if self._connection is not None:
                self._connection.close()
            return
        self._broker.metadata.suspects.discard(self._fetcher.source)
        top = error_of(data.error_code) if data.error_code else None
        self._fetcher.on_response(top, data.session_id or None, list(self._fetched(data)), now_ms)
        self.schedule()

    def _fetched(self, data: FetchResponseData) -> Iterable[FetchedPartition]:
        resolve = self._broker.metadata.resolve
        for name_or_id, partitions in data.topics:
            name = resolve(name_or_id)
            if name is None:
                continue  # the topic was deleted meanwhile
            for p in partitions:
                yield FetchedPartition(
                    topic_partition=TopicPartition(name, p.partition),
                    error=error_of(p.error_code) if p.error_code else None,
                    high_watermark=None if p.high_watermark < 0 else p.high_watermark,
                    log_start_offset=None if p.log_start_offset < 0 else p.log_start_offset,
                    diverging=p.diverging_epoch,
                    records=p.records if len(p.records) else None,
                    current_leader=p.current_leader,
                )
