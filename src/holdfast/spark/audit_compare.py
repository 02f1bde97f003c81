"""The Spark part of the audit: executors read segments, Spark puts the replicas' batches beside each other.

    tasks --mapInArrow--> one row per batch, one per segment (with its report)
          --> reports to the driver, which makes windows of them: offsets and the replicas that have them
          --> group by (topic, partition, base offset), join the windows: are all there, are their digests equal?

Owns the rows' schema and the queries. Driver memory depends on the number of segments, partitions and differences,
never on that of batches.
"""

from __future__ import annotations

import threading
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.model.types import BrokerId, TopicPartition
from holdfast.spark.audit_plan import PartitionPlan, Piece
from holdfast.spark.audit_scan import SegmentReport, SegmentScan
from holdfast.spark.audit_verdict import MAX_PROBLEMS, Compared, Comparison, Copy, Reports, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[int, int], None]
"""Is called with (tasks that are done, all tasks) while the segments are read."""

ROW_BATCH: Final = 8192
POLL_S: Final = 0.1
ROWS: Final = (
    "topic string, partition int, broker int, bit bigint, compacted boolean, base_offset bigint, last_offset bigint,"
    " records int, bytes int, crc_ok boolean, digest bigint, report string"
)
"""A row with a report is a segment's, and of its other columns only topic, partition and broker mean something."""
_KEY: Final = ("topic", "partition", "base_offset")


def scan_tasks(tasks: Sequence[Sequence[Piece]], numbers: Iterable[Any]) -> Iterator[Any]:
    """Runs in executors: reads the tasks whose numbers come in, gives Arrow batches of ROWS."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for piece in tasks[number]:
                yield from scan_piece(piece)


def scan_piece(piece: Piece) -> Iterator[Any]:
    """One piece as Arrow batches."""
    replica = piece.replica
    fixed = (replica.tp.topic, replica.tp.partition, replica.broker, 1 << replica.slot, replica.compacted)
    rows: list[tuple[Any, ...]] = []
    for segment in piece.segments:
        scan = SegmentScan(segment, replica.high_watermark, compacted=replica.compacted)
        for row in scan:
            rows.append((*fixed, *row, None))
            if len(rows) == ROW_BATCH:
                yield _arrow(rows)
                rows = []
        rows.append((*fixed, None, None, None, None, None, None, scan.report.to_json()))
    if rows:
        yield _arrow(rows)


def _arrow(rows: list[tuple[Any, ...]]) -> Any:
    import pyarrow as pa

    kinds = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "boolean": pa.bool_()}
    fields = [(name, kinds[kind]) for name, kind in (column.split() for column in ROWS.split(","))]
    columns = [pa.array(values, kind) for values, (_, kind) in zip(zip(*rows, strict=True), fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


class Comparer:
    """``with Comparer(spark, tasks) as comparer:``: ``read``, then ``compare``. Rows live until its end."""

    def __init__(self, spark: SparkSession, tasks: Sequence[Sequence[Piece]]) -> None:
        self._spark = spark
        self._tasks = tasks
        self._rows: DataFrame | None = None

    def __enter__(self) -> Comparer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows is not None:
            self._rows.unpersist()

    def read(self, progress: Progress | None = None) -> Reports:
        """Reads everything once; the segments' reports."""
        if not self._tasks:
            return {}
        count = len(self._tasks)
        numbers = self._spark.range(0, count, 1, count)
        with warnings.catch_warnings():  # of PySpark about the version of pandas, which has no part in this
            warnings.simplefilter("ignore", FutureWarning)
            self._rows = numbers.mapInArrow(partial(scan_tasks, self._tasks), ROWS).persist()
        found: dict[tuple[TopicPartition, BrokerId], list[SegmentReport]] = defaultdict(list)
        with _told(self._spark, progress, count):
            for row in (
                self._rows.where("report IS NOT NULL").select("topic", "partition", "broker", "report").collect()
            ):
                report = SegmentReport.from_json(row.report)
                found[TopicPartition(row.topic, row.partition), row.broker].append(report)
        return found

    def compare(
        self, plans: Iterable[PartitionPlan], windows: Mapping[TopicPartition, Sequence[Window]]
    ) -> dict[TopicPartition, Comparison]:
        """All batches of each window, counted, and the first ones that differ."""
        found = {plan.tp: Comparison() for plan in plans}
        if self._rows is None or not any(windows.values()):
            return found
        judged = self._judged(self._rows, windows)
        from pyspark.sql import functions as F

        counts = judged.groupBy("topic", "partition", "start").agg(
            F.count(F.lit(1)).alias("batches"),
            F.sum("records").alias("records"),
            F.sum("bytes").alias("bytes"),
            F.sum(F.col("different").cast("int")).alias("different"),
        )
        differ = False
        for row in counts.collect():
            compared = Compared(row.batches, row.records, row.bytes, row.different)
            found[TopicPartition(row.topic, row.partition)].windows[row.start] = compared
            differ = differ or compared.different > 0
        if differ:
            for tp, offset, copy in self._copies(self._rows, judged):
                found[tp].copies.setdefault(offset, []).append(copy)
        return found

    def _judged(self, rows: DataFrame, windows: Mapping[TopicPartition, Sequence[Window]]) -> DataFrame:
        """One row per (topic, partition, base offset), with the window it is in and whether replicas differ."""
        from pyspark.sql import functions as F

        by_offset = (
            rows.where("report IS NULL")
            .groupBy(*_KEY)
            .agg(
                F.bit_or("bit").alias("have"),
                F.min("digest").alias("least"),
                F.max("digest").alias("most"),
                F.max("records").alias("records"),
                F.min("records").alias("least_records"),
                F.max("bytes").alias("bytes"),
                F.min("bytes").alias("least_bytes"),
                F.bool_or("compacted").alias("compacted"),
            )
        )
        known = [(tp.topic, tp.partition, *window) for tp, several in windows.items() for window in several]
        table = self._spark.createDataFrame(
            known, "topic string, partition int, start bigint, end bigint, mask bigint"
        ).hint("broadcast")
        inside = (
            (by_offset.topic == table.topic)
            & (by_offset.partition == table.partition)
            & (by_offset.base_offset >= table.start)
            & (by_offset.base_offset < table.end)
        )
        # The cleaner of each replica leaves out what it finds: only batches that it has not touched must be equal.
        different = F.when(
            F.col("compacted"), F.expr("least != most AND least_records = records AND least_bytes = bytes")
        ).otherwise(F.expr("least != most OR (have & mask) != mask"))
        return by_offset.join(table, inside).select(
            by_offset.topic,
            by_offset.partition,
            by_offset.base_offset,
            table.start,
            by_offset.records,
            by_offset.bytes,
            different.alias("different"),
        )

    def _copies(self, rows: DataFrame, judged: DataFrame) -> Iterator[tuple[TopicPartition, int, Copy]]:
        """The batches at the first offsets of each partition where replicas differ."""
        from pyspark.sql import Window as Over
        from pyspark.sql import functions as F

        place = F.row_number().over(Over.partitionBy("topic", "partition").orderBy("base_offset"))
        first = judged.where("different").withColumn("place", place).where(F.col("place") <= MAX_PROBLEMS)
        copies = rows.where("report IS NULL").join(first.select(*_KEY), [*_KEY])
        for row in copies.collect():
            copy = Copy(row.broker, row.last_offset, row.records, row.bytes, row.digest)
            yield TopicPartition(row.topic, row.partition), row.base_offset, copy


@contextmanager
def _told(spark: SparkSession, progress: Progress | None, tasks: int) -> Iterator[None]:
    """Calls ``progress`` while the jobs inside run. Spark Connect has no status to ask: only beginning and end then."""
    if progress is None:
        yield
        return
    progress(0, tasks)
    context = getattr(spark, "_sc", None)
    if context is None:
        yield
        progress(tasks, tasks)
        return
    group = f"holdfast-audit-{uuid.uuid4()}"
    context.setJobGroup(group, "holdfast audit")
    ended = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        told = 0
        while not ended.wait(POLL_S):
            done = min(tasks, _done(tracker, group, tasks))
            if done > told:
                told = done
                progress(done, tasks)

    watcher = threading.Thread(target=watch, name="holdfast-audit-progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)
        context.setLocalProperty("spark.job.description", None)
    progress(tasks, tasks)


def _done(tracker: Any, group: str, tasks: int) -> int:
    """Completed tasks of the stage that reads."""
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            found = tracker.getStageInfo(stage)
            if found is not None and found.numTasks == tasks:
                return int(found.numCompletedTasks)
    return 0
