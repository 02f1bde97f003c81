"""One run of ``holdfast produce``: standard input, or files, are read as they come, and become records.

Owns the record's number, the clock for records that have no time, and what is said while nothing gets through. What was
read before a line that is no record, or before Ctrl-C, is written first.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import click

from holdfast.cli.failing import text_of
from holdfast.cli.input_frames import MOST_BYTES, InputFrames
from holdfast.cli.pipes import read_chunks
from holdfast.cli.record_lines import InputError, ReadLine
from holdfast.client.cluster import KafkaClient
from holdfast.client.producer import PipeProducer
from holdfast.client.security import SecuritySettings
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TimestampMs
from holdfast.records.compression import Codec
from holdfast.records.record import Header

T = TypeVar("T")

PATIENCE_S = 5.0
"""So long nothing is said when nothing gets through: a leader is elected within that."""
INTERRUPTED = 128
"""Exit code after a signal: this and its number, as shells have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducingOptions:
    """What the command line asks for."""

    topic: str
    partition: int | None
    keep_partitions: bool
    acks: int
    codec: Codec
    idempotent: bool
    headers: Sequence[Header]
    timestamp_ms: TimestampMs | None
    frames: Callable[[], InputFrames]
    read_line: ReadLine
    files: Sequence[str] = ()
    """Each is one record, and standard input is not read."""
    client_id: str = "holdfast-produce"
    batch_bytes: int = 256 * 1024
    buffer_bytes: int = 16 << 20
    delivery_timeout_s: float = 120.0


class Production:
    """One run of the command."""

    def __init__(self, bootstrap: str, asked: ProducingOptions, security: SecuritySettings | None = None) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._asked = asked
        self._partitions = 0
        self._signal: int | None = None

    async def run(self) -> int:
        """The exit code. InputError, once what stood before is written."""
        asked = self._asked
        async with KafkaClient(self._bootstrap, client_id=asked.client_id, security=self._security) as client:
            view = await unless_late(
                client.topic(asked.topic, auto_create=True),
                f"topic {asked.topic!r} has no leader yet, or cannot be made: waiting {client.timeout_s:g} s in all",
            )
            self._partitions = len(view.partitions)
            self._check(asked.partition, "--partition")
            producer = PipeProducer(
                client, asked.topic, self._partitions,
                acks=asked.acks, codec=asked.codec, partition=asked.partition, idempotent=asked.idempotent,
                batch_bytes=asked.batch_bytes, max_waiting_bytes=asked.buffer_bytes,
                delivery_timeout_s=asked.delivery_timeout_s,
            )  # fmt: skip
            await producer.start()
            watch = asyncio.ensure_future(watched(producer))
            wrong = None
            try:
                await self._until_signal(producer)
            except InputError as e:
                wrong = e
            except HoldfastError:
                pass  # a batch has failed, and flush says how
            try:
                await producer.flush()
            except HoldfastError as e:
                lost = producer.appended - producer.written
                tell(f"{lost} of {producer.appended} records not written: {text_of(e)}")
                return 1
            finally:
                watch.cancel()
            if wrong is not None:
                raise wrong
        return 0 if self._signal is None else INTERRUPTED + self._signal

    async def _until_signal(self, producer: PipeProducer) -> None:
        """All of the input, or what comes before Ctrl-C; a second one does not wait for what is unwritten."""
        me = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            self._signal = number
            assert me is not None
            me.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        try:
            await (self._pump_files(producer) if self._asked.files else self._pump(producer))
        except asyncio.CancelledError:
            if self._signal is None or me is None:
                raise
            me.uncancel()
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def _pump(self, producer: PipeProducer) -> None:
        """All of standard input into the producer; sends at once what nothing follows yet."""
        if sys.stdin is None:
            raise InputError("standard input is closed, expected lines there")
        frames, number = self._asked.frames(), 0
        try:
            async for chunk, more in read_chunks(sys.stdin.buffer):
                now_ms = time.time_ns() // 1_000_000
                for frame in frames.feed(chunk):
                    number += 1
                    await producer.append(*self._record(frame, number, now_ms))
                if not more:
                    producer.push()
        except OSError as e:
            raise InputError(f"standard input: {e.strerror}, expected records there") from e
        for frame in frames.end():
            number += 1
            await producer.append(*self._record(frame, number, time.time_ns() // 1_000_000))

    async def _pump_files(self, producer: PipeProducer) -> None:
        """Each file is a record; one that cannot be read ends it, and those before it are written."""
        for number, path in enumerate(self._asked.files, 1):
            content = await asyncio.to_thread(content_of, path)
            await producer.append(*self._record(content, number, time.time_ns() // 1_000_000))

    def _record(
        self, line: bytes, number: int, now_ms: TimestampMs
    ) -> tuple[bytes | None, bytes | None, TimestampMs, Sequence[Header], int | None]:
        """What a line appends. InputError."""
        asked = self._asked
        key, value, headers, timestamp_ms, partition = asked.read_line(line, number)
        if timestamp_ms is None:
            timestamp_ms = now_ms if asked.timestamp_ms is None else asked.timestamp_ms
        if asked.headers:
            headers = (*headers, *asked.headers)
        if not asked.keep_partitions:
            partition = None
        elif partition is None:
            raise InputError(f"line {number}: no partition, expected one with --keep-partitions")
        else:
            self._check(partition, f"line {number}: partition")
        return key, value, timestamp_ms, headers, partition

    def _check(self, partition: int | None, where: str) -> None:
        if partition is not None and partition >= self._partitions:
            raise InputError(
                f"{where} {partition}: topic {self._asked.topic!r} has partitions 0 to {self._partitions - 1}"
            )


def content_of(path: str) -> bytes:
    """All of a file. InputError."""
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as e:
        raise InputError(f"{path}: {e.strerror}") from e
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: it is larger than {MOST_BYTES} bytes, the most that a record can be")
    return content


async def unless_late(work: Awaitable[T], text: str) -> T:
    """Its result; when that takes long, what it waits for is said once."""
    late = asyncio.get_running_loop().call_later(PATIENCE_S, tell, text)
    try:
        return await work
    finally:
        late.cancel()


async def watched(producer: PipeProducer) -> None:
    """Says so when what was appended is not acknowledged for long: once, until something is again."""
    told_at = -1
    while True:
        before = producer.written
        waiting = producer.appended > before
        await asyncio.sleep(PATIENCE_S)
        if waiting and producer.written == before != told_at:
            tell(f"{producer.appended - before} records wait for their leaders to acknowledge them")
            told_at = before


def tell(text: str) -> None:
    click.echo(f"holdfast produce: {text}", err=True)
