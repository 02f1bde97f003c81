"""A load to measure with: batches made of one block of bytes, records that become due, and readers that count headers.

Nothing here makes an object for a record: a batch is the beginning of a block that was made once, with a header and a
CRC of its own. Owns the clock of a run and its tasks.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.cli.consuming import topic_of
from holdfast.cli.perf_lines import Sent
from holdfast.client.cluster import KafkaClient
from holdfast.client.producer import NO_PRODUCER
from holdfast.client.reader import PartitionReader
from holdfast.client.security import SecuritySettings
from holdfast.client.views import OffsetSpec
from holdfast.model.errors import OutOfOrderSequenceError
from holdfast.model.types import Offset, TimestampMs, TopicPartition
from holdfast.records.batch import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, iter_headers, stamp_crc
from holdfast.records.compression import Codec, compress
from holdfast.records.record import BatchBuilder

WINDOW_S: Final = 5.0
MAX_RECORDS: Final = 10_000
"""Of one batch."""
MAX_UNACKNOWLEDGED: Final = 32 << 20
"""Bytes that wait for brokers, as in Kafka's producer."""
LETTERS: Final = bytes(65 + byte % 26 for byte in range(256))


class BatchSource:
    """Batches of records of one size, whose values are random letters. ``size``: of a value, in bytes."""

    def __init__(self, size: int, batch_bytes: int, codec: Codec, *, seed: int = 0) -> None:
        chance = random.Random(seed)
        builder = BatchBuilder()
        self.ends: list[int] = [0]
        """Where in the block each record ends."""
        self.size = size
        while len(self.ends) <= MAX_RECORDS:
            builder.append(None, chance.randbytes(size).translate(LETTERS), 0)
            if builder.size > batch_bytes and len(self.ends) > 1:
                break
            self.ends.append(builder.size - HEADER_SIZE)
        self._codec = codec
        self._block = memoryview(bytes(builder.build()))[HEADER_SIZE:]

    @property
    def most(self) -> int:
        """Records of the largest batch."""
        return len(self.ends) - 1

    def batch(
        self, records: int, now_ms: TimestampMs, producer: tuple[int, int] = NO_PRODUCER, sequence: int = -1
    ) -> bytearray:
        """The first records of the block; all have this time. ``producer``: its id and epoch, and ``sequence`` is the
        first record's."""
        payload = self._block[: self.ends[records]]
        packed = payload if self._codec is Codec.NONE else memoryview(compress(self._codec, payload))
        out = bytearray(HEADER_SIZE + len(packed))
        length, last = len(out) - LENGTH_OVERHEAD, records - 1
        HEADER.pack_into(
            out, 0, 0, length, -1, MAGIC, 0, self._codec, last, now_ms, now_ms, *producer, sequence, records
        )
        out[HEADER_SIZE:] = packed
        stamp_crc(out, 0)
        return out


@dataclass(slots=True)
class Schedule:
    """When each of ``total`` records is due, from ``began_s`` on: ``rate`` in a second, or (None) at once. Pure."""

    total: int
    rate: float | None
    began_s: float
    given: int = 0

    def wait_s(self, now_s: float, most: int, linger_s: float) -> float | None:
        """Until the next batch: it is full then, or its first record has waited ``linger_s``. None: all are given."""
        left = self.total - self.given
        if left <= 0:
            return None
        if self.rate is None:
            return 0.0
        full_s = self._due_s(self.given + min(most, left) - 1)
        return max(0.0, min(self._due_s(self.given) + linger_s, full_s) - now_s)

    def take(self, now_s: float, most: int) -> tuple[int, float]:
        """(how many records, when the first of them was due)."""
        left = min(most, self.total - self.given)
        if self.rate is None:
            self.given += left
            return left, now_s
        due_s = self._due_s(self.given)
        count = max(1, min(left, int((now_s - self.began_s) * self.rate) + 1 - self.given))
        self.given += count
        return count, due_s

    def _due_s(self, number: int) -> float:
        assert self.rate is not None
        return self.began_s + number / self.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfLoad:
    """What ``perf produce`` was asked for. ``rate``: records a second, None: as fast as it goes."""

    topic: str
    records: int
    size: int
    rate: float | None
    acks: int
    codec: Codec
    batch_bytes: int
    linger_s: float
    in_flight: int
    idempotent: bool = False
    """With a producer id: no batch is there twice, and those of a partition in the order in which they were sent."""
    client_id: str = "holdfast-perf"
    delivery_timeout_s: float = 30.0
    buffer_bytes: int = MAX_UNACKNOWLEDGED


class _Turns:
    """Of one partition: its next sequence number, and the batch that was sent last."""

    __slots__ = ("last", "sequence")

    def __init__(self) -> None:
        self.sequence = 0
        self.last: asyncio.Future[None] | None = None


class BatchWriter:
    """Batches to their partitions. With a producer id the broker takes those of a partition in their order only: one
    that comes too early, since the one before is sent again, waits for that and is sent again too."""

    def __init__(self, client: KafkaClient, load: PerfLoad, source: BatchSource, partitions: int) -> None:
        self._client = client
        self._load = load
        self._source = source
        self._producer = NO_PRODUCER
        self._turns = [_Turns() for _ in range(partitions)]

    async def start(self) -> None:
        """Gets a producer id, if one is wanted. UnsupportedVersionError where brokers have none to give."""
        if self._load.idempotent:
            self._producer = await self._client.init_producer_id()

    async def write(self, partition: int, records: int) -> None:
        """Until it is acknowledged; HoldfastError when it cannot be written. Those of a partition are sent in the order
        in which this is called."""
        now_ms = time.time_ns() // 1_000_000
        if not self._load.idempotent:
            await self._send(partition, self._source.batch(records, now_ms))
            return
        turns = self._turns[partition]
        batch = self._source.batch(records, now_ms, self._producer, turns.sequence)
        turns.sequence = (turns.sequence + records) & 0x7FFFFFFF
        before, turns.last = turns.last, asyncio.get_running_loop().create_future()
        mine = turns.last
        try:
            await self._send_behind(before, partition, batch)
        finally:
            mine.set_result(None)

    async def _send_behind(self, before: asyncio.Future[None] | None, partition: int, batch: bytearray) -> None:
        while True:
            try:
                return await self._send(partition, batch)
            except OutOfOrderSequenceError:
                if before is None or before.done():
                    raise
                await asyncio.wait([before])

    async def _send(self, partition: int, batch: bytearray) -> None:
        await self._client.produce(self._load.topic, partition, batch, acks=self._load.acks)


async def produce(
    bootstrap: str, load: PerfLoad, window: Callable[[str], None], security: SecuritySettings | None = None
) -> tuple[Sent, float]:
    """(all that was sent, seconds). ``window`` gets a line every five seconds. The first batch that cannot be written
    ends it with its HoldfastError."""
    source = BatchSource(load.size, load.batch_bytes, load.codec)
    async with KafkaClient(
        bootstrap, client_id=load.client_id, timeout_s=load.delivery_timeout_s, security=security
    ) as client:
        partitions = len((await topic_of(client, load.topic)).partitions)
        writer = BatchWriter(client, load, source, partitions)
        await writer.start()
        loop = asyncio.get_running_loop()
        schedule = Schedule(load.records, load.rate, loop.time())
        everything, recent, turn = Sent(), [Sent()], asyncio.Lock()

        async def lane(partition: int) -> None:
            """One batch at a time."""
            while True:
                async with turn:  # who waits for the next record is one of them
                    wait_s = schedule.wait_s(loop.time(), source.most, load.linger_s)
                    if wait_s is None:
                        return
                    if wait_s:
                        await asyncio.sleep(wait_s)
                    count, due_s = schedule.take(loop.time(), source.most)
                await writer.write(partition, count)
                us = round((loop.time() - due_s) * 1_000_000)
                everything.add(count, count * load.size, us)
                recent[0].add(count, count * load.size, us)

        async def windows() -> None:
            while True:
                began_s = loop.time()
                await asyncio.sleep(WINDOW_S)
                done, recent[0] = recent[0], Sent()
                window(done.line(loop.time() - began_s))

        lanes = lanes_of(partitions, load.in_flight, source.ends[-1] + HEADER_SIZE, load.buffer_bytes)
        telling = asyncio.ensure_future(windows())
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(lanes):
                    group.create_task(lane(number % partitions))
        except BaseExceptionGroup as e:
            raise e.exceptions[0] from None
        finally:
            telling.cancel()
        return everything, loop.time() - schedule.began_s


def lanes_of(partitions: int, in_flight: int, batch_bytes: int, most_bytes: int = MAX_UNACKNOWLEDGED) -> int:
    """How many batches are on their way at most. Pure."""
    return max(1, min(partitions * in_flight, most_bytes // batch_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfReading:
    """What ``perf consume`` was asked for. ``records``: None is all that is there when it begins."""

    topic: str
    records: int | None
    timeout_s: float
    fetch_bytes: int
    request_timeout_s: float = 30.0


class PerfRead:
    """Records and bytes of batches, as far as they were read; ``began_ms`` is that of the first fetch."""

    def __init__(self) -> None:
        self.records = 0
        self.size = 0
        self.began_ms = 0
        self.ended_ms = 0


async def consume(
    bootstrap: str,
    reading: PerfReading,
    window: Callable[[int, int, int, int], None],
    security: SecuritySettings | None = None,
) -> PerfRead:
    """Reads all partitions from their beginning. ``window`` is told (began ms, ended ms, records, bytes) of every five
    seconds. Ends early when nothing comes for ``timeout_s``: the caller compares the numbers."""
    found = PerfRead()
    async with KafkaClient(
        bootstrap, client_id="holdfast-perf", timeout_s=reading.request_timeout_s, security=security
    ) as client:
        tps = [TopicPartition(reading.topic, p.partition) for p in (await topic_of(client, reading.topic)).partitions]
        first = await client.list_offsets(dict.fromkeys(tps, OffsetSpec.EARLIEST))
        last = await client.list_offsets(dict.fromkeys(tps, OffsetSpec.LATEST))
        ends: dict[TopicPartition, Offset] = {tp: each.offset or 0 for tp, each in last.items()}
        begins: dict[TopicPartition, Offset] = {tp: each.offset or 0 for tp, each in first.items()}
        if reading.records is None:
            begins = {tp: offset for tp, offset in begins.items() if offset < ends[tp]}
        reader = PartitionReader(client, begins, reset=OffsetSpec.EARLIEST, partition_max_bytes=reading.fetch_bytes)
        try:
            await _read(reader, reading, ends, found, window)
        finally:
            reader.close()
    return found


async def _read(
    reader: PartitionReader,
    reading: PerfReading,
    ends: dict[TopicPartition, Offset],
    found: PerfRead,
    window: Callable[[int, int, int, int], None],
) -> None:
    began_ms = found.began_ms = found.ended_ms = _now_ms()
    quiet_s, told = time.monotonic(), (0, 0)
    while reader.positions and (reading.records is None or found.records < reading.records):
        answers = await reader.poll(0.5)
        for tp, asked, answer in answers:
            found.size += len(answer.records)
            for _, header in iter_headers(answer.records):
                if header.base_offset >= asked and not header.is_control:
                    found.records += header.record_count
            if reading.records is None and reader.positions[tp] >= ends[tp]:
                reader.drop(tp)
        now_ms = _now_ms()
        if answers:
            found.ended_ms, quiet_s = now_ms, time.monotonic()
        elif time.monotonic() - quiet_s > reading.timeout_s:
            return
        if now_ms - began_ms >= WINDOW_S * 1000:
            window(began_ms, now_ms, found.records - told[0], found.size - told[1])
            began_ms, told = now_ms, (found.records, found.size)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
