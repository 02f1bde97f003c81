"""Writes records in order and, where brokers give producer ids and one is wanted, once: for pipes, not for records.

Owns one open batch per partition, the batches that wait, and the sequence numbers. One batch per partition is on its
way at a time, so that a retry can never overtake. Never reads time: the caller stamps the records.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.client.cluster import KafkaClient
from holdfast.client.partitioner import partition_of
from holdfast.model.errors import HoldfastError, UnsupportedVersionError
from holdfast.model.types import TimestampMs
from holdfast.records.compression import Codec
from holdfast.records.record import BatchBuilder, Header

NO_PRODUCER = (-1, -1)


class _Batch(NamedTuple):
    data: bytearray
    records: int


class PipeProducer:
    """``append``, then ``flush``; ``failure`` is the first batch's that could not be written, and ends everything."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        partitions: int,
        *,
        acks: int = -1,
        codec: Codec = Codec.NONE,
        partition: int | None = None,
        idempotent: bool = True,
        batch_bytes: int = 256 * 1024,
        max_waiting_bytes: int = 16 << 20,
        delivery_timeout_s: float = 120.0,
    ) -> None:
        self.written = 0
        self.appended = 0
        self.failure: HoldfastError | None = None
        self._client = client
        self._topic = topic
        self._partitions = partitions
        self._acks = acks
        self._codec = codec
        self._fixed = partition
        self._idempotent = idempotent
        self._batch_bytes = batch_bytes
        self._max_waiting_bytes = max_waiting_bytes
        self._delivery_timeout_s = delivery_timeout_s
        self._producer = NO_PRODUCER
        self._sequences: dict[int, int] = {}
        self._open: dict[int, BatchBuilder] = {}
        self._waiting: dict[int, deque[_Batch]] = {}
        self._waiting_bytes = 0
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._room = asyncio.Event()
        self._sticky = 0

    async def start(self) -> None:
        """Gets a producer id, so that retries write nothing twice; does without where the broker has none."""
        if self._acks != -1 or not self._idempotent:
            return
        try:
            self._producer = await self._client.init_producer_id()
        except UnsupportedVersionError:
            self._producer = NO_PRODUCER

    async def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: TimestampMs,
        headers: Iterable[Header] = (),
        partition: int | None = None,
    ) -> None:
        """Waits while too much is unwritten. ``partition`` is this record's alone. Raises ``failure``."""
        if self.failure is not None:
            raise self.failure
        if partition is not None:
            pass
        elif self._fixed is not None:
            partition = self._fixed
        elif key is None:
            partition = self._sticky
        else:
            partition = partition_of(key, self._partitions)
        builder = self._open.get(partition)
        if builder is None:
            builder = self._open[partition] = self._new_batch(partition)
        builder.append(key, value, timestamp_ms, headers)
        self.appended += 1
        if builder.size >= self._batch_bytes:
            self._close_batch(partition)
            while self._waiting_bytes > self._max_waiting_bytes and self.failure is None:
                self._room.clear()
                await self._room.wait()

    def push(self) -> None:
        """Sends what is open, full or not."""
        for partition in list(self._open):
            self._close_batch(partition)

    async def flush(self) -> None:
        """Until everything appended is written. Raises ``failure``."""
        self.push()
        while self._senders:
            await asyncio.wait(self._senders.values())
        if self.failure is not None:
            raise self.failure

    def _new_batch(self, partition: int) -> BatchBuilder:
        producer_id, epoch = self._producer
        sequence = -1 if self._producer == NO_PRODUCER else self._sequences.get(partition, 0)
        return BatchBuilder(codec=self._codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    def _close_batch(self, partition: int) -> None:
        builder = self._open.pop(partition)
        batch = _Batch(builder.build(), len(builder))
        self._sequences[partition] = (self._sequences.get(partition, 0) + batch.records) & 0x7FFFFFFF
        if partition == self._sticky:
            self._sticky = (self._sticky + 1) % self._partitions
        self._waiting.setdefault(partition, deque()).append(batch)
        self._waiting_bytes += len(batch.data)
        if partition not in self._senders:
            self._senders[partition] = asyncio.ensure_future(self._send(partition))

    async def _send(self, partition: int) -> None:
        waiting = self._waiting[partition]
        try:
            while waiting and self.failure is None:
                batch = waiting[0]
                await self._client.produce(
                    self._topic,
                    partition,
                    batch.data,
                    acks=self._acks,
                    timeout_s=self._delivery_timeout_s,
                )
                waiting.popleft()
                self._waiting_bytes -= len(batch.data)
                self.written += batch.records
                self._room.set()
        except HoldfastError as e:
            self.failure = self.failure or e
        finally:
            del self._senders[partition]
            self._room.set()
