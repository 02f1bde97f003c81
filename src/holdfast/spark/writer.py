"""Writing: rows of a DataFrame to topics, for batch and stream.

Owns Spark's writer protocols and the order of what is sent. Columns are those of Spark's Kafka sink: value (needed),
key, topic, partition, headers. Batches carry a producer id and sequence numbers, so that a retry after a lost
connection writes nothing twice; a task that Spark runs again writes its rows again (at least once, as Spark's own
sink).
"""

import logging
import os
import random
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from holdfast.model.errors import OutOfOrderSequenceError, UnknownProducerIdError
from holdfast.spark.options import OptionError, WriteOptions, check_topic_name

if TYPE_CHECKING:
    from holdfast.spark.producer_ids import NumberedProducer

log = logging.getLogger(__name__)

COLUMN_KINDS: Final = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
ROWS_OF_PARTITION: Final = 100
ROWS_AT_ONCE: Final = 100_000
BYTES_AT_ONCE: Final = 16 << 20
"""Rows are encoded as they come, but so many for each partition of a topic at once; and sent when a batch is full, or
when so many bytes wait to be in one."""
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
class TaskCommit(WriterCommitMessage):
    """What one task has written."""

    records: int


class _Sink:
    """What batch and stream writers share."""

    def __init__(self, schema: Any, options: WriteOptions) -> None:
        check_schema(schema, options)
        self._names: list[str] = schema.fieldNames()
        self._written = [name for name in self._names if name in COLUMN_KINDS]
        self._options = options

    def write_rows(self, batches: Iterator[Any]) -> TaskCommit:
        """Runs in an executor; returns when the brokers have acknowledged every row."""
        from holdfast.spark.numba_cache import settle_cache

        settle_cache()
        task = TaskWriter(self._options)
        for batch in batches:
            task.add(batch.rename_columns(self._names).select(self._written))
        return TaskCommit(records=task.finish())


class TaskWriter:
    """One task: encodes rows, keeps one batch per partition under way."""

    def __init__(self, options: WriteOptions) -> None:
        from holdfast.spark.topics import client_of

        self._options = options
        self._client = client_of(options.bootstrap, options.client_id, security=options.security)
        self._owner = (os.getpid(), options.bootstrap, options.client_id, options.security)
        self._numbered: NumberedProducer | None = None
        if options.idempotent:
            from holdfast.spark.producer_ids import taken

            self._numbered = taken(self._owner) or self.new_producer()
        self._encoders: dict[str, tuple[Any, int]] = {}
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._gathered: list[Any] = []
        self._gathered_rows = self._gathered_bytes = 0
        self._rows_at_once = 1
        self._rows = 0
        self._waiting_bytes = 0
        # Rows without a key go to one partition after the other, from one that differs between tasks.
        self._sticky = random.randrange(1 << 16)

    def add(self, batch: Any) -> None:
        """Takes an Arrow record batch, of no rows too; sends when there is enough."""
        if not len(batch):
            return
        self._gathered.append(batch)
        self._gathered_rows += len(batch)
        self._gathered_bytes += batch.nbytes
        if self._gathered_bytes >= BYTES_AT_ONCE or self._gathered_rows >= self._rows_at_once:
            self._encode_gathered()

    def finish(self) -> int:
        """Sends the rest, waits for all acknowledgements, returns how many rows were written."""
        if self._gathered:
            self._encode_gathered()
        self._send_rest()
        for lane in self._lanes.values():
            while lane.step(wait=True):
                pass
        if self._numbered is not None:
            from holdfast.spark.producer_ids import give_back

            give_back(self._owner, self._numbered)
        return self._rows

    def _encode_gathered(self) -> None:
        import pyarrow as pa

        gathered, self._gathered = self._gathered, []
        self._gathered_rows = self._gathered_bytes = 0
        batch = gathered[0]
        if len(gathered) > 1:
            (batch,) = pa.Table.from_batches(gathered).combine_chunks().to_batches()
        for topic, rows in self._by_topic(batch):
            self._encode(topic, rows)
        self._rows += len(batch)
        if sum(encoder.waiting_bytes for encoder, _ in self._encoders.values()) >= BYTES_AT_ONCE:
            self._send_rest()

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

    def _encode(self, topic: str, rows: Any) -> None:
        names = rows.schema.names
        encoder, partitions = self._encoder(topic)
        self._sticky += 1
        encoded = encoder.encode(
            value=rows.column("value"),
            key=rows.column("key") if "key" in names else None,
            headers=rows.column("headers") if "headers" in names else None,
            partition=rows.column("partition") if "partition" in names else None,
            without_key=self._sticky % partitions,
            now_ms=_now_ms(),
        )
        self._send(topic, encoded)

    def _send_rest(self) -> None:
        for topic, (encoder, _) in self._encoders.items():
            self._send(topic, encoder.rest(_now_ms()))

    def _send(self, topic: str, encoded: Iterator[Any]) -> None:
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
            self._rows_at_once = min(ROWS_AT_ONCE, max(self._rows_at_once, ROWS_OF_PARTITION * partitions))
        return self._encoders[topic]

    def start(self, topic: str, batch: Any) -> "Future[Any]":
        """Sends one batch; the future is its acknowledgement."""
        call = self._client.aio.produce(
            topic, batch.partition, batch.data, acks=self._options.acks, timeout_s=self._options.delivery_timeout_s
        )
        return self._client.submit(call)

    @property
    def numbered(self) -> "NumberedProducer | None":
        """Who numbers the batches; None if they carry no sequence numbers."""
        return self._numbered

    def new_producer(self) -> "NumberedProducer":
        """One that has written nothing, for this task and those after it."""
        from holdfast.records.columns_out import BatchProducer
        from holdfast.spark.producer_ids import NumberedProducer

        producer_id, epoch = self._client.init_producer_id()
        self._numbered = NumberedProducer(BatchProducer(producer_id=producer_id, epoch=epoch))
        return self._numbered

    def done(self, size: int) -> None:
        """A batch of ``size`` bytes is acknowledged."""
        self._waiting_bytes -= size


class _Lane:
    """One partition's batches, one under way at a time: a retry must not overtake."""

    def __init__(self, task: TaskWriter, topic: str, partition: int) -> None:
        self.queue: deque[Any] = deque()
        self._task = task
        self._topic = topic
        self._partition = partition
        self._numbered = task.numbered
        self._doubtful = self._numbered is not None and self._numbered.inherited
        """Whether the partition may know nothing of what the producer has written to it in tasks before."""
        self._batch: Any = None
        self._under_way: Future[Any] | None = None

    def step(self, *, wait: bool) -> bool:
        """Takes the acknowledgement of what is under way (``wait``: for it), sends the next; False if all is done."""
        if self._under_way is not None:
            if not wait and not self._under_way.done():
                return True
            try:
                self._under_way.result()
            except (OutOfOrderSequenceError, UnknownProducerIdError):
                if not self._doubtful:
                    raise
                # The log was cut after that task (an unclean election): it is refused, and another producer sends it.
                self._numbered, self._doubtful = self._task.new_producer(), False
                self._start()
                return True
            self._under_way, self._doubtful = None, False
            self._task.done(len(self._batch.data))
        if not self.queue:
            return False
        self._batch = self.queue.popleft()
        self._start()
        return True

    def _start(self) -> None:
        from holdfast.records.columns_out import BatchProducer, stamp_producer

        if self._numbered is None:
            stamp_producer(self._batch.data, BatchProducer(), -1)
        else:
            sequence = self._numbered.number(self._topic, self._partition, self._batch.records)
            stamp_producer(self._batch.data, self._numbered.producer, sequence)
        self._under_way = self._task.start(self._topic, self._batch)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


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
