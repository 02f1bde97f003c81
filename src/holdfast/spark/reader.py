"""Reading: what the driver plans and what the executors do, for batch and stream.

Owns Spark's reader protocols. Keeps no position: a stream's is in Spark's checkpoint, and every method that needs it
gets it. Emits the columns of the user's schema only.
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

from holdfast.model.types import TopicPartition
from holdfast.spark.cluster_guide import ClusterGuide
from holdfast.spark.options import AtGroup, AtOffsets, OptionError, ReadOptions
from holdfast.spark.ranges import OffsetJson, PartitionEnd, Positions, Range, limited, tasks_of, to_json

if TYPE_CHECKING:
    from holdfast.spark.typed_columns import TypedColumns

log = logging.getLogger(__name__)

PARALLELISM = "HOLDFAST_SPARK_PARALLELISM"
"""Environment variable that sessions made by holdfast.spark.session set: the source cannot see defaultParallelism."""

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
HEADERS = {"headers": "array<struct<key:string,value:binary>>"}


def schema_text(include_headers: bool) -> str:
    """The schema of Spark's Kafka source."""
    columns = COLUMNS | HEADERS if include_headers else COLUMNS
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def check_schema(schema: Any) -> None:
    """OptionError unless the user's schema takes columns that there are, with their types."""
    known = COLUMNS | HEADERS
    if not schema.fields:
        raise OptionError("the schema has no columns")
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in known:
            raise OptionError(f"schema: there is no column {field.name!r}; there are {', '.join(known)}")
        if kind != known[field.name]:
            raise OptionError(f"schema: column {field.name} is {known[field.name]}, not {kind}")


@dataclass
class Task(InputPartition):
    """What one Spark task reads."""

    ranges: tuple[Range, ...]

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


def default_parallelism() -> int:
    """Tasks that a read of some size is cut into when nobody says how many."""
    said = os.environ.get(PARALLELISM, "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def plan_tasks(ranges: Sequence[Range], options: ReadOptions) -> list[Task]:
    planned = tasks_of(
        ranges,
        parallelism=default_parallelism(),
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
        ordered=options.ordered,
    )
    return [Task(ranges) for ranges in planned]


def read_ranges(
    ranges: tuple[Range, ...],
    schema: Any,
    options: ReadOptions,
    typed: "TypedColumns | None" = None,
    *,
    times_us: tuple[int, int] | None = None,
) -> Iterator[Any]:
    """Arrow record batches of the ranges with the schema's columns; runs in an executor.

    ``times_us``: rows are left out that are not of ``first <= timestamp < second``, in microseconds since 1970; the
    schema has the column then.
    """
    from holdfast.spark.numba_cache import settle_cache

    settle_cache()
    from holdfast.spark.small_batches import joined

    batches = _decoded(ranges, schema, options, typed, times_us)
    return batches if len(ranges) == 1 else joined(batches)


def _decoded(
    ranges: tuple[Range, ...],
    schema: Any,
    options: ReadOptions,
    typed: "TypedColumns | None",
    times_us: tuple[int, int] | None,
) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    from holdfast.records.columns import ColumnDecoder
    from holdfast.spark.fetching import RangeFetcher

    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    rows = None
    if typed is not None:
        from holdfast.spark.typed_rows import TypedRows

        rows = TypedRows(typed, arrow_schema)
    names = schema.fieldNames() if rows is None else rows.source_columns
    decoder = ColumnDecoder(names, check_crc=options.check_crc)
    for part in RangeFetcher(ranges, options, ClusterGuide(options)):
        found = decoder.decode(
            part.chunk,
            start=part.start,
            end=part.end,
            topic=part.tp.topic,
            partition=part.tp.partition,
            aborted=part.aborted,
        )
        for columns in found:
            arrays = columns.arrays if times_us is None else _within(columns.arrays, *times_us)
            if rows is None:
                yield pa.RecordBatch.from_arrays(list(arrays.values()), schema=arrow_schema)
            else:
                yield from rows.batches(part.tp, arrays)
    if rows is not None:
        rows.tell()
    if decoder.replaced_header_keys:
        log.warning(
            "%d headers have a key that is not UTF-8: U+FFFD stands for what cannot be read",
            decoder.replaced_header_keys,
        )


def _within(arrays: dict[str, Any], first_us: int, after_us: int) -> dict[str, Any]:
    """The rows with ``first_us <= timestamp < after_us``, in microseconds since 1970."""
    import numpy as np
    import pyarrow as pa

    times = np.asarray(arrays["timestamp"].view(pa.int64()))
    kept = (times >= first_us) & (times <= after_us - 1)
    if kept.all():
        return arrays
    mask = pa.array(kept)
    return {name: array.filter(mask) for name, array in arrays.items()}


class HoldfastReader(DataSourceReader):
    """A batch read: offsets are settled when Spark plans the query."""

    def __init__(self, schema: Any, options: ReadOptions, typed: "TypedColumns | None" = None) -> None:
        """``typed``: what the schema is of, which is checked then; None for the bytes."""
        if typed is None:
            check_schema(schema)
        self._schema, self._options, self._typed = schema, options, typed
        self._times_us: tuple[int, int] | None = None

    def partitions(self) -> list[InputPartition]:
        from holdfast.spark.topics import Topics, checked_start

        topics, options = Topics(self._options), self._options
        tps = topics.partitions()
        start = topics.at(options.start, tps, starting=True)
        end = topics.at(options.end, tps, starting=False)
        if isinstance(options.start, AtOffsets | AtGroup):
            start = checked_start(topics, start, topics.earliest(tps), topics.latest(tps))
        if isinstance(options.end, AtOffsets):
            self._check_end(topics, start, end)
        leaders, ids = topics.leaders(tps), topics.topic_ids({})
        ranges = [
            Range(tp=tp, start=start[tp], end=end[tp], leader=leaders.get(tp), topic_id=ids.get(tp.topic)) for tp in tps
        ]
        return list(plan_tasks(self._narrowed(ranges, topics), options))

    def _narrowed(self, ranges: list[Range], topics: Any) -> list[Range]:
        """What is to be read of the ranges."""
        return ranges

    def _check_end(self, topics: Any, start: Positions, end: Positions) -> None:
        earliest, latest = topics.earliest(end), topics.latest(end)
        for tp, offset in end.items():
            if offset < earliest[tp] and start[tp] == earliest[tp]:
                topics.data_loss(
                    f"partition {tp}: all up to {offset}, of endingOffsets, is gone, the log starts at {earliest[tp]}"
                )
                end[tp] = start[tp]
            elif offset < start[tp]:
                raise OptionError(
                    f"option endingOffsets: partition {tp} ends at {offset}, before its start {start[tp]}"
                )
            elif offset > latest[tp]:
                topics.data_loss(f"partition {tp}: endingOffsets has {offset}, the log ends at {latest[tp]}")
                end[tp] = latest[tp]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        ranges: tuple[Range, ...] = getattr(partition, "ranges", ())
        return read_ranges(ranges, self._schema, self._options, self._typed, times_us=self._times_us)


class HoldfastStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream; lives in one process of the driver for as long as its query.

    ``_first``, ``_target`` and the time of minOffsetsPerTrigger are about this run of the query, not positions: nothing
    is lost with them.
    """

    def __init__(self, schema: Any, options: ReadOptions, typed: "TypedColumns | None" = None) -> None:
        """``typed``: what the schema is of, which is checked then; None for the bytes."""
        if typed is None:
            check_schema(schema)
        self._schema, self._options, self._typed = schema, options, typed
        self._topics_seen: Any = None
        self._first: OffsetJson | None = None
        self._target: dict[TopicPartition, PartitionEnd] | None = None
        self._held_since: float | None = None
        self._byte_limit: Any = None
        self._notice: Any = None

    def _topics(self) -> Any:
        if self._topics_seen is None:
            from holdfast.spark.topics import Topics

            self._topics_seen = Topics(self._options)
        return self._topics_seen

    # -- offsets ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> OffsetJson:
        from holdfast.spark.stream_plan import end_of

        topics = self._topics()
        positions = topics.at(self._options.start, topics.partitions(), starting=True)
        self._first = end_of(positions, topics, {}, {}).to_json()
        return self._first

    def getDefaultReadLimit(self) -> Any:
        rows, size = self._options.max_offsets, self._options.max_bytes
        if rows is not None:  # Spark takes one limit: that of bytes is known here
            return ReadMaxRows(rows)
        return ReadMaxBytes(size) if size is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        topics = self._topics()
        self._target = topics.ends(topics.partitions())

    def reportLatestOffset(self) -> OffsetJson | None:
        topics = self._topics()
        return to_json(topics.latest(topics.partitions()))

    def latestOffset(self, start: OffsetJson, limit: Any) -> OffsetJson:
        """How far the next batch goes; waits a moment for records when there are none.

        Spark does not keep what ``initialOffset`` answered, and asks again when it repeats the first batch. So the
        offset that the first batch ends at says where it begins.
        """
        from holdfast.spark.stream_offsets import StreamOffset
        from holdfast.spark.stream_plan import end_of, known

        before, topics = StreamOffset.from_json(start), self._topics()
        self._tell_group(before)
        ends = self._ends(before.positions)
        found = known(self._options, topics, before, ends)
        first = start == self._first
        latest = {tp: end.offset for tp, end in ends.items()}
        if self._target is None and self._hold_back(found.positions, latest):
            latest = found.positions
        else:
            latest = self._limited(found.positions, latest, limit)
        if not first and not found.begins and latest == before.positions:
            return start
        return end_of(latest, topics, ends, found.positions if first else found.begins).to_json()

    def _limited(self, start: Positions, latest: Positions, limit: Any) -> Positions:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = self._options.max_bytes
        if size is not None and not isinstance(limit, ReadAllAvailable):  # as Trigger.Once has it
            if self._byte_limit is None:
                from holdfast.spark.byte_limit import ByteLimit

                self._byte_limit = ByteLimit(size)
            found: Positions = self._byte_limit.cut(self._topics(), start, latest, rows)
            return found
        return latest if rows is None else limited(start, latest, rows)

    def _tell_group(self, finished: Any) -> None:
        """Spark asks how far the next batch goes when the one before is in its log of commits, and once more when there
        is none: so ``finished`` is never ahead of the checkpoint, and the end of the last batch is told, too. It calls
        ``commit`` later, and not for the last batch."""
        if self._options.commit_group is None:
            return
        if self._notice is None:
            from holdfast.spark.group_commit import GroupNotice

            self._notice = GroupNotice(self._options)
        self._notice.tell(finished, self._topics())

    def _ends(self, positions: Positions) -> dict[TopicPartition, PartitionEnd]:
        """Of all partitions: now, or when a query with Trigger.AvailableNow began."""
        topics = self._topics()
        ends: dict[TopicPartition, PartitionEnd]
        if self._target is None:
            ends = topics.ends(topics.partitions(positions))
            if {tp: end.offset for tp, end in ends.items()} == positions:
                topics.wait_beyond(positions)
                ends = topics.ends(topics.partitions(positions))
        else:
            missing = set(positions) - set(self._target)  # at a second broker too? See Topics.partitions
            if missing:
                self._target |= topics.ends([tp for tp in topics.partitions(positions) if tp in missing])
            ends = self._target
        # A log that ends before the position is asked again, with leaders as they are now: the target was settled
        # before Spark asked where "latest" is, and who led a moment ago may not know that it leads no more.
        short = [tp for tp, offset in positions.items() if tp in ends and offset > ends[tp].offset]
        if short:
            topics.leaders(short)
            ends |= topics.ends(short)
        return dict(ends)

    def _hold_back(self, known: Positions, latest: Positions) -> bool:
        """minOffsetsPerTrigger: wait for more, but not longer than maxTriggerDelay."""
        least = self._options.min_offsets
        waiting = sum(latest[tp] - known[tp] for tp in latest)
        if least is None or waiting <= 0:
            return False
        now = time.monotonic()
        if self._held_since is None:
            self._held_since = now
        if waiting < least and now - self._held_since < self._options.max_trigger_delay_s:
            self._topics().wait_beyond(latest)
            return True
        self._held_since = now
        return False

    # -- batches ---------------------------------------------------------------------------------------------

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        from holdfast.spark.stream_offsets import StreamOffset
        from holdfast.spark.stream_plan import made_again

        if start == end:  # what it says of the beginning is about the batch that ended there
            return []
        before, after, topics = StreamOffset.from_json(start), StreamOffset.from_json(end), self._topics()
        starts = before.positions | after.begins
        starts |= topics.earliest([tp for tp in after.positions if tp not in starts])
        moved = [tp for tp, offset in after.positions.items() if offset > starts[tp]]
        leaders = topics.leaders(moved) if moved else {}
        # A batch that was planned in a topic that is not there any more cannot be read again in another one.
        gone = made_again(self._options, topics, after) if moved else set()
        ids = topics.topic_ids({})
        ranges = [
            Range(
                tp=tp,
                start=starts[tp],
                end=after.positions[tp],
                leader=leaders.get(tp),
                topic_id=after.topic_ids.get(tp.topic, ids.get(tp.topic)),
            )
            for tp in moved
            if tp.topic not in gone
        ]
        return plan_tasks(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(getattr(partition, "ranges", ()), self._schema, self._options, self._typed)

    def commit(self, end: OffsetJson) -> None:
        """Nothing: the position is in Spark's checkpoint, and ``latestOffset`` tells a group of it."""

    def stop(self) -> None:
        """Nothing that must be done: Spark ends the process, and does not always call this before."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_topics_seen": None}
