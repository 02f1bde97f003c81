"""Writing: rows of a DataFrame to topics, for batch and stream.

Owns Spark's writer protocols and the order of what is sent. Columns are those of Spark's Kafka sink: value (needed),
key, topic, partition, headers. A task's batches carry a producer id and sequence numbers, so that a retry after a
lost connection writes nothing twice; a task that Spark runs again writes its rows again (at least once, as Spark's
own sink).
"""

import logging
import random
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from holdfast.spark.options import OptionError, WriteOptions, check_topic_name

log = logging.getLogger(__name__)

COLUMN_KINDS: Final = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
ROWS_AT_ONCE: Final = 100_000
BYTES_AT_ONCE: Final = 16 << 20
"""Rows are gathered until one of these, so that batches are large even with many partitions."""
MAX_WAITING_BYTES: Final = 32 << 20


def check_schema(schema: Any, options: WriteOptions) -> None:
    """OptionError unless the columns are such as can be written. Others are left out and warned of, as there are none
    in a record; Spark's own sink leaves them out too."""
    given = {field.name: field.dataType.simpleString() for field in schema.fields}
    other = [name for name in given if name not in COLUMN_KINDS]
    if other:
        log.warning("no record has a column %s: not written; there are %s", ", ".join(other), ", ".join(COLUMN_KINDS))
    for name, kind in given.items():
        if name in other:
            continue
        if kind not in COLUMN_KINDS[name]:
            raise OptionError(f"column {name} is {kind}: expected {' or '.join(COLUMN_KINDS[name])}")
    if "value" not in given:
        raise OptionError(f"there is no column value; there are {', '.join(given)}")
    if options.topic is None and "topic" not in given:
        raise OptionError("no topic: set the option topic or give a column topic")


@dataclass
class Written(WriterCommitMessage):
    """What one task has written."""

    records: int


class _Sink:
    """What batch and stream writers share."""

    def __init__(self, schema: Any, options: WriteOptions) -> None:
        check_schema(schema, options)
        self._names: list[str] = schema.fieldNames()
        self._written = [name for name in self._names if name in COLUMN_KINDS]
        self._options = options

    def write_rows(self, batches: Iterator[Any]) -> Written:
        """Runs in an executor; returns when the brokers have acknowledged every row."""
        from holdfast.spark.numba_cache import settle_cache

        settle_cache()
        task = TaskWriter(self._options)
        for batch in batches:
            task.add(batch.rename_columns(self._names).select(self._written))
        return Written(records=task.finish())


class TaskWriter:
    """One task: gathers rows, encodes them, keeps one batch per partition under way."""

    def __init__(self, options: WriteOptions) -> None:
        from holdfast.records.columns_out import Producer
        from holdfast.spark.topics import client_of

        self._options = options
        self._client = client_of(options.bootstrap, options.client_id, security=options.security)
        self._producer = Producer()
        if options.idempotent:
            producer_id, epoch = self._client.init_producer_id()
            self._producer = Producer(producer_id=producer_id, epoch=epoch)
        self._encoders: dict[str, Any] = {}
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._gathered: list[Any] = []
        self._gathered_bytes = 0
        self._rows = 0
        self._waiting_bytes = 0
        # Rows without a key go to one partition after the other, from one that differs between tasks.
        self._sticky = random.randrange(1 << 16)

    def add(self, batch: Any) -> None:
        """Takes an Arrow record batch, of no rows too; sends when there is enough."""
        if not len(batch):
            return
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        if self._gathered_bytes >= BYTES_AT_ONCE or sum(len(each) for each in self._gathered) >= ROWS_AT_ONCE:
            self._send_gathered()

    def finish(self) -> int:
        """Sends the rest, waits for all acknowledgements, returns how many rows were written."""
        if self._gathered:
            self._send_gathered()
        for lane in self._lanes.values():
            while lane.step(wait=True):
                pass
        return self._rows

    def _send_gathered(self) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches(self._gathered).combine_chunks()
        self._gathered, self._gathered_bytes = [], 0
        (batch,) = table.to_batches()
        for topic, rows in self._by_topic(batch):
            self._send(topic, rows)
        self._rows += len(batch)

    def _by_topic(self, batch: Any) -> Iterator[tuple[str, Any]]:
        import pyarrow.compute as pc

        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise OptionError("column topic is null in some row, and the option topic is not set")
        for topic in topics.unique().to_pylist():
            check_topic_name(topic, "column topic")
            yield topic, batch.filter(pc.equal(topics, topic))

    def _send(self, topic: str, rows: Any) -> None:
        names = rows.schema.names
        encoder, partitions = self._encoder(topic)
        self._sticky += 1
        encoded = encoder.encode(
            value=rows.column("value"),
            key=rows.column("key") if "key" in names else None,
            headers=rows.column("headers") if "headers" in names else None,
            partition=rows.column("partition") if "partition" in names else None,
            without_key=self._sticky % partitions,
            now_ms=time.time_ns() // 1_000_000,
            producer=self._producer,
        )
        for batch in encoded:
            lane = self._lanes.get((topic, batch.partition))
            if lane is None:
                lane = self._lanes[topic, batch.partition] = _Lane(self, topic, batch.partition)
            lane.queue.append(batch)
            self._waiting_bytes += len(batch.data)
            lane.step(wait=False)
            while self._waiting_bytes > MAX_WAITING_BYTES:
                for each in self._lanes.values():
                    each.step(wait=True)

    def _encoder(self, topic: str) -> tuple[Any, int]:
        if topic not in self._encoders:
            from holdfast.records.columns_out import ColumnEncoder
            from holdfast.records.compression import Codec

            partitions = len(self._client.topic(topic, auto_create=True).partitions)
            encoder = ColumnEncoder(
                partitions=partitions,
                batch_bytes=self._options.batch_bytes,
                codec=Codec.named(self._options.compression),
            )
            self._encoders[topic] = encoder, partitions
        found: tuple[Any, int] = self._encoders[topic]
        return found

    def start(self, topic: str, batch: Any) -> "Future[Any]":
        """Sends one batch; the future is its acknowledgement."""
        call = self._client.aio.produce(
            topic, batch.partition, batch.data, acks=self._options.acks, timeout_s=self._options.delivery_timeout_s
        )
        return self._client.submit(call)

    @property
    def numbered(self) -> bool:
        """Whether batches carry sequence numbers."""
        return self._producer.producer_id >= 0

    def done(self, size: int) -> None:
        """A batch of ``size`` bytes is acknowledged."""
        self._waiting_bytes -= size


class _Lane:
    """One partition's batches, one under way at a time: a retry must not overtake."""

    def __init__(self, task: TaskWriter, topic: str, partition: int) -> None:
        self.queue: deque[Any] = deque()
        self._task = task
        self._topic = topic
        self._under_way: Future[Any] | None = None
        self._size = 0
        self._sequence = 0

    def step(self, *, wait: bool) -> bool:
        """Takes the acknowledgement of what is under way (``wait``: for it), sends the next; False if all is done."""
        from holdfast.records.columns_out import stamp_sequence

        if self._under_way is not None:
            if not wait and not self._under_way.done():
                return True
            self._under_way.result()
            self._under_way = None
            self._task.done(self._size)
        if not self.queue:
            return False
        batch = self.queue.popleft()
        if self._task.numbered:
            stamp_sequence(batch.data, self._sequence)
            self._sequence = (self._sequence + batch.records) & 0x7FFFFFFF
        self._size = len(batch.data)
        self._under_way = self._task.start(self._topic, batch)
        return True


class HoldfastWriter(DataSourceArrowWriter, _Sink):
    """A batch write."""

    def __init__(self, schema: Any, options: WriteOptions) -> None:
        _Sink.__init__(self, schema, options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.write_rows(iterator)


class HoldfastStreamWriter(DataSourceStreamArrowWriter, _Sink):
    """A stream's write; each batch's rows are acknowledged before Spark commits the batch."""

    def __init__(self, schema: Any, options: WriteOptions) -> None:
        _Sink.__init__(self, schema, options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.write_rows(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was written stays written: a log is only appended to."""
