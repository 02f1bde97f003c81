"""An executor's part of a batch of the lake: fetch, decode, write Parquet. Only names and counts leave it.

Owns the files of one task. Commits nothing: what is written here is in no table until the driver names it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from holdfast.lake.data_files import Attempt, FileRange, name_of, write_file
from holdfast.lake.partition_files import write_partitioned
from holdfast.lake.partitioning import Partitioning
from holdfast.lake.side import SidePlan
from holdfast.lake.stores import store_of
from holdfast.model.types import Offset, TopicPartition
from holdfast.records.typed.decoding import Decoded, UnknownField
from holdfast.spark.lake_values import CORRUPT, PLACE, VALUE, Values
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import Range

ROWS_AT_ONCE: Final = 256_000
BYTES_AT_ONCE: Final = 64 << 20
"""A row group: decoded rows are gathered up to the first of both, as each write makes a group of its own."""
BAD_BYTES: Final = 32 << 20
"""Bad records are gathered up to this before they go into a file."""
PARTS: Final = 1_000
"""Files that one try of a task may make."""

Steps = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LandTask:
    """What one Spark task reads, and where its rows go."""

    ranges: tuple[Range, ...]
    options: ReadOptions
    values: Values
    attempt: Attempt
    location: str
    schema: pa.Schema
    """The table's: a file has those of its columns that there are values for."""
    partitioning: Partitioning | None
    bad_location: str
    bad_schema: pa.Schema
    side: SidePlan
    """What the table of bad records has of the batch, as it was cut off between its two commits."""
    on_step: Steps | None = None
    """Told "fetched" and "written"; tests break things there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostOffsets:
    """The log does not hold what was to be read."""

    tp: TopicPartition
    log_start: Offset
    log_end: Offset
    text: str


@dataclass(slots=True, kw_only=True)
class TaskFiles:
    """What one task did; plain values, for the driver."""

    files: list[str] = field(default_factory=list)
    bad_files: list[str] = field(default_factory=list)
    rows: dict[TopicPartition, int] = field(default_factory=dict)
    bad: dict[TopicPartition, int] = field(default_factory=dict)
    """Of bad records, also those of which the table has one already."""
    bad_written: dict[TopicPartition, int] = field(default_factory=dict)
    unknown: dict[str, UnknownField] = field(default_factory=dict)
    lost: LostOffsets | None = None
    """If there is any: the files count for nothing."""


class LostError(Exception):
    """Carries LostOffsets out of a fetch."""

    def __init__(self, lost: LostOffsets) -> None:
        super().__init__(lost.text)
        self.lost = lost


def land_task(task: LandTask) -> TaskFiles:
    """Runs in an executor. An error that may pass fails the task, and Spark tries it again under other names."""
    from holdfast.spark.numba_cache import settle_cache

    settle_cache()
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.taskAttemptId() if context is not None else 0
    return _Landing(task, first_part=number * PARTS).run()


class _Landing:
    def __init__(self, task: LandTask, *, first_part: int) -> None:
        self._task = task
        self._part = first_part
        self._last_part = first_part + PARTS
        self._decoder = task.values.decoder()
        self._done = TaskFiles()
        self._bad: list[pa.RecordBatch] = []
        self._ranges = tuple(
            FileRange(topic=r.tp.topic, topic_id=r.topic_id, partition=r.tp.partition, start=r.start, end=r.end)
            for r in task.ranges
        )
        wanted = set(self._decoder.schema.names) | set(PLACE) | {VALUE}
        self._names = [name for name in task.schema.names if name in wanted]

    def run(self) -> TaskFiles:
        done, task = self._done, self._task
        for each in task.ranges:
            done.rows[each.tp] = done.bad[each.tp] = done.bad_written[each.tp] = 0
        try:
            self._write_good()
            self._write_bad()
        except LostError as error:
            done.lost = error.lost
        self._step("written")
        return done

    def _write_good(self) -> None:
        task = self._task
        store, schema = store_of(task.location), pa.schema([task.schema.field(name) for name in self._names])
        if task.partitioning is not None:
            found = write_partitioned(
                store, schema, self._batches(), task.partitioning, new_path=self._path, ranges=self._ranges
            )
            self._done.files += found
            return
        batches = _gathered(self._batches())
        first = next(batches, None)
        if first is not None:
            path = self._path()
            write_file(store, path, schema, _chained(first, batches), ranges=self._ranges)
            self._done.files.append(path)

    def _path(self) -> str:
        if self._part >= self._last_part:
            raise RuntimeError(f"a task makes {PARTS} files at most: land smaller batches (--max-records-per-batch)")
        self._part += 1
        return name_of(self._ranges, self._task.attempt, self._part - 1)

    def _step(self, name: str) -> None:
        if self._task.on_step is not None:
            self._task.on_step(name)

    # -- rows ------------------------------------------------------------------------------------------------

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Good rows in the table's columns; the bad ones are put aside, and files made of them."""
        from holdfast.records.columns import ColumnDecoder
        from holdfast.spark.fetching import RangeFetcher

        task = self._task
        columns = {PLACE[name][0] for name in (*self._names, *task.bad_schema.names) if name in PLACE} | {VALUE}
        decoder = ColumnDecoder(tuple(sorted(columns)), check_crc=task.options.check_crc)
        fetched = False
        for part in RangeFetcher(task.ranges, task.options, _guide(task.options)):
            if not fetched:
                self._step("fetched")
                fetched = True
            found = decoder.decode(
                part.chunk,
                start=part.start,
                end=part.end,
                topic=part.tp.topic,
                partition=part.tp.partition,
                aborted=part.aborted,
            )
            for each in found:
                yield self._typed(part.tp, each.arrays)

    def _typed(self, tp: TopicPartition, arrays: Mapping[str, pa.Array]) -> pa.RecordBatch:
        decoded = self._decoder.decode(arrays[VALUE])
        columns = [self._column(name, arrays, decoded) for name in self._names]
        batch = pa.RecordBatch.from_arrays(columns, names=self._names)
        for name, each in decoded.unknown.items():
            self._done.unknown[name] = joined_unknown(self._done.unknown.get(name), each)
        if len(decoded.bad):
            good = np.ones(decoded.rows, bool)
            good[decoded.bad] = False
            batch = batch.filter(pa.array(good))
            self._put_aside(tp, arrays, decoded)
        self._done.rows[tp] += batch.num_rows
        self._done.bad[tp] += len(decoded.bad)
        return batch

    def _column(self, name: str, arrays: Mapping[str, pa.Array], decoded: Decoded) -> pa.Array:
        found = decoded.columns.get(name)
        if found is None:
            found = arrays[PLACE[name][0] if name in PLACE else VALUE]
        return found

    # -- bad records -----------------------------------------------------------------------------------------

    def _put_aside(self, tp: TopicPartition, arrays: Mapping[str, pa.Array], decoded: Decoded) -> None:
        rows = pa.array(decoded.bad)
        reasons = [decoded.why(index) for index in range(len(rows))]
        names = [name for name in self._task.bad_schema.names if name in PLACE or name == VALUE]
        taken = [arrays[PLACE[name][0] if name in PLACE else VALUE].take(rows) for name in names]
        batch = pa.RecordBatch.from_arrays([*taken, pa.array(reasons, pa.string())], names=[*names, CORRUPT])
        offsets = arrays["offset"].take(rows).to_numpy()
        batch = batch.filter(pa.array(self._task.side.lacks(tp.topic, tp.partition, offsets)))
        self._done.bad_written[tp] += batch.num_rows
        self._bad.append(batch)
        if sum(each.nbytes for each in self._bad) > BAD_BYTES:
            self._write_bad()

    def _write_bad(self) -> None:
        bad, self._bad = [each for each in self._bad if each.num_rows], []
        if not bad:
            return
        task, path = self._task, self._path()
        table = pa.Table.from_batches(bad).combine_chunks()
        schema = pa.schema([task.bad_schema.field(name) for name in table.schema.names])
        write_file(store_of(task.bad_location), path, schema, table.to_batches(), ranges=self._ranges)
        self._done.bad_files.append(path)


def joined_unknown(one: UnknownField | None, other: UnknownField) -> UnknownField:
    """Both as one; text where their types differ in more than their width."""
    if one is None:
        return other
    kind = one.type
    if kind != other.type:
        numbers = all(pa.types.is_integer(each) or pa.types.is_floating(each) for each in (kind, other.type))
        kind = pa.float64() if numbers else pa.string()
    return UnknownField(one.rows + other.rows, kind, nested=one.nested and other.nested)


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """As many rows as a row group has at least, where there are; nothing is copied."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _chained(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from rest


def _guide(options: ReadOptions) -> Any:
    """The reader's, but that loss is not decided here: the driver has the table, and notes it there."""
    from holdfast.spark.cluster_guide import ClusterGuide

    class LakeGuide(ClusterGuide):
        def bounds(self, tp: TopicPartition) -> tuple[Offset, Offset]:
            self._found = (tp, *super().bounds(tp))
            return self._found[1:]

        def is_gone(self, tp: TopicPartition, topic_id: UUID) -> bool:
            self._found = (tp, 0, 0)  # nothing of that topic is left
            return super().is_gone(tp, topic_id)

        def data_loss(self, text: str) -> None:
            """Asked right after one of the two above."""
            tp, start, end = self._found
            raise LostError(LostOffsets(tp=tp, log_start=start, log_end=end, text=text))

    return LakeGuide(options)
