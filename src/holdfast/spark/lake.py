"""Topics to tables, each committed record once, whatever dies or runs twice: a Structured Streaming job.

Owns the query and its progress. Spark says when a batch is due and how far it goes; the table says where it begins and
keeps the position, in the commit that adds the rows (holdfast.lake, docs/decisions/0033). Executors fetch, decode and
write Parquet (lake_write.py), the driver commits (lake_batch.py): rows never pass through the JVM.
"""

import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.lake.errors import TableError
from holdfast.lake.evolution import evolve
from holdfast.lake.opening import OLD_LAKE, make_table, open_table
from holdfast.lake.position import Position
from holdfast.lake.side import side_location
from holdfast.lake.table import Table
from holdfast.lake.takeover import takeover
from holdfast.spark.lake_batch import LandedBatch, Lander
from holdfast.spark.lake_job import LakeJob, LakeProgress, LakeResult
from holdfast.spark.lake_plan import check_newest, forget_commits, has_begun, plan_of, starting_offsets
from holdfast.spark.lake_schema import newest_values, settled_values
from holdfast.spark.lake_upkeep import Upkeeper
from holdfast.spark.lake_values import Values
from holdfast.spark.options import ReadOptions, parse_read
from holdfast.spark.session import spark_session
from holdfast.spark.shared_path import SharedPathCheck
from holdfast.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LakeJob", "LakeProgress", "LakeResult", "run", "run_all", "source_options"]

PATIENCE_S: Final = 3.0


def run(job: LakeJob, spark: "SparkSession | None" = None) -> LakeResult:
    """Runs until the topic is read up (``available_now``) or ``job.stop`` is set.

    Raises OptionError, SchemaError, LakeError, DataLossError before anything is written; what the query itself dies of
    after.
    """
    return run_all([job], spark)[0]


def run_all(jobs: list[LakeJob], spark: "SparkSession | None" = None) -> list[LakeResult]:
    """Several topics side by side, a table each; the first failure ends all."""
    spark = spark or spark_session("holdfast lake")
    started = [_Lake(job, spark) for job in jobs]
    try:
        for lake in started:
            lake.start()
        running = started
        while running:
            time.sleep(0.05)
            running = [lake for lake in running if lake.running()]
    finally:
        for lake in started:
            lake.end()
    return [lake.result() for lake in started]


def source_options(job: LakeJob) -> dict[str, str]:
    """What the job asks of the source."""
    limit = {} if job.max_bytes_per_batch is None else {"maxBytesPerTrigger": str(job.max_bytes_per_batch)}
    return {
        "kafka.isolation.level": "read_committed",
        **job.options,
        **limit,
        "kafka.bootstrap.servers": job.bootstrap,
        "subscribe": job.topic,
        "startingOffsets": job.starting_offsets,
        "failOnDataLoss": str(job.fail_on_data_loss).lower(),
    }


class _Lake:
    """One query of one run."""

    def __init__(self, job: LakeJob, spark: "SparkSession") -> None:
        self._job = job
        self._spark = spark
        self._location = str(job.to)
        self._options: ReadOptions = parse_read(source_options(job), streaming=True)
        self._topics = Topics(self._options)
        self._values: Values | None = None
        self._lander: Lander | None = None
        self._upkeeper: Upkeeper | None = None
        self._query: Any = None
        self._batch = -1
        self._done: list[LandedBatch] = []
        self._dropped: dict[str, int] = {}
        self._began_s = time.monotonic()
        self._busy = False
        self._asked_s: float | None = None

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        job = self._job
        self._topics.partitions()  # a topic that is not there fails here, in words
        table = self._opened()
        self._values = settled_values(job, table, self._topics, self._options)
        if self._values is None:  # stopped while the topic was empty, or nothing to read now
            return
        if table is None:
            table = self._made(self._values)
        elif job.new_fields == "add":
            evolve(table, self._values.schema())
        self._lander = Lander(
            spark=self._spark,
            topics=self._topics,
            options=self._options,
            values=self._values,
            table=table,
            side=open_table(side_location(self._location), job.format, catalog=job.catalog),
            make_side=self._made_side,
            shared=SharedPathCheck(self._spark, self._location),
            lose=not job.fail_on_data_loss,
            new_fields=job.new_fields,
            newest_values=partial(newest_values, job),
            on_step=lambda name: self._step(name, self._batch),
            on_task_step=job.on_task_step,
        )
        if job.maintain_commits:
            self._upkeeper = Upkeeper(
                self._reopened,
                every=job.maintain_commits,
                on_step=lambda name: self._step(name, self._batch),
            )
        self._query = self._started(table)

    def _started(self, table: Table) -> Any:
        job = self._job
        source = self._spark.readStream.format("holdfast").options(**source_options(job))
        source = source.option("maxOffsetsPerTrigger", job.max_offsets_per_batch)
        job.checkpoint.mkdir(parents=True, exist_ok=True)
        if not has_begun(job.checkpoint):
            forget_commits(job.checkpoint)
            source = source.option("startingOffsets", starting_offsets(table.position(), self._topics, self._options))
        # The plan is all that is wanted of the source: a column that is never read.
        stream = source.schema("offset bigint").load().writeStream.queryName(f"lake {job.topic} ({job.checkpoint})")
        stream = stream.foreachBatch(self._land).option("checkpointLocation", str(job.checkpoint))
        if job.available_now:
            return stream.trigger(availableNow=True).start()
        return stream.trigger(processingTime=f"{int(job.trigger_s * 1000)} milliseconds").start()

    def running(self) -> bool:
        """False once the query has ended; ends it when asked to stop. Raises what it died of."""
        query = self._query
        if query is None:
            return False
        if self._job.stop.is_set() and query.isActive and self._may_stop():
            query.stop()
        if query.isActive:
            return True
        if query.exception() is not None:
            check_newest(self._job.checkpoint)
            raise query.exception()
        return False

    def _may_stop(self) -> bool:
        """Between batches if there is such a moment, else whenever no batch is being landed: Spark then repeats one
        that it had not noted, and the table has it."""
        self._asked_s = self._asked_s or time.monotonic()
        if self._busy:
            return False
        return not self._query.status["isTriggerActive"] or time.monotonic() - self._asked_s > PATIENCE_S

    def end(self) -> None:
        if self._query is not None and self._query.isActive:
            self._query.stop()
        if self._upkeeper is not None:
            self._upkeeper.end()

    def result(self) -> LakeResult:
        if self._lander is None:
            position = Position()
        else:
            self._lander.table.refresh()
            position = self._lander.table.position()
        values = self._values if self._lander is None else self._lander.values
        return LakeResult(
            topic=self._job.topic,
            to=self._location,
            format=self._job.format,
            bad_to=side_location(self._location),
            records=sum(each.rows for each in self._done),
            bad=sum(each.bad for each in self._done),
            batches=len(self._done),
            total_records=position.rows,
            total_bad=position.bad,
            gap_offsets=position.gap_offsets,
            dropped=dict(self._dropped),
            schema=", ".join(f"{each.name} {each.type}" for each in values.fields) if values is not None else "",
            seconds=time.monotonic() - self._began_s,
        )

    # -- the cluster and the tables --------------------------------------------------------------------------

    def _opened(self) -> Table | None:
        """The table, if there is one; a directory that the lake filled before it had tables becomes one."""
        location = self._location.removeprefix("file://")
        if self._job.format == "parquet" and os.path.exists(os.path.join(location, OLD_LAKE)):
            return takeover(self._location)
        table = open_table(self._location, self._job.format, catalog=self._job.catalog)
        wanted = self._job.partition_by
        if table is not None and wanted is not None and wanted != str(table.partitioning):
            raise TableError(f"{self._location} is partitioned by {table.partitioning or 'nothing'}, expected {wanted}")
        return table

    def _made(self, values: Values) -> Table:
        """A new table; if another driver made one since this one looked, that one, and its columns."""
        job = self._job
        try:
            return make_table(
                self._location, job.format, values.schema(), catalog=job.catalog, partition_by=job.partition_by
            )
        except TableError:
            table = self._opened()
            if table is None:
                raise
        self._values = settled_values(job, table, self._topics, self._options)
        return table

    def _made_side(self) -> Table:
        assert self._values is not None, "bad records come with values"
        location, job = side_location(self._location), self._job
        try:
            return make_table(location, job.format, self._values.bad_schema(), catalog=job.catalog)
        except TableError:
            table = open_table(location, job.format, catalog=job.catalog)
            if table is None:
                raise
            return table

    def _reopened(self) -> list[Table]:
        """The tables that there are, once more: upkeep has its own view of them."""
        places = (self._location, side_location(self._location))
        found = (open_table(each, self._job.format, catalog=self._job.catalog) for each in places)
        return [each for each in found if each is not None]

    # -- one batch -------------------------------------------------------------------------------------------

    def _land(self, _records: "DataFrame", batch: int) -> None:
        """Called by Spark for each batch, again for one whose end it had not noted before a crash."""
        assert self._lander is not None, "the query runs when there is a table"
        self._busy, self._batch = True, batch
        try:
            done = self._lander.land(plan_of(self._job.checkpoint, batch))
        finally:
            self._busy = False
        if done is None:
            return
        self._done.append(done)
        self._count_dropped(done)
        self._step("landed", batch)
        if self._upkeeper is not None:
            self._upkeeper.committed()
        if self._job.on_progress is not None:
            self._job.on_progress(self._progress(done, batch))

    def _count_dropped(self, done: LandedBatch) -> None:
        for name, each in done.unknown.items():
            self._dropped[name] = self._dropped.get(name, 0) + each.rows

    def _progress(self, done: LandedBatch, batch: int) -> LakeProgress:
        ends = done.position.topics[self._job.topic].partitions
        latest = self._topics.latest(self._topics.partitions())
        return LakeProgress(
            topic=self._job.topic,
            batch=batch,
            records=done.rows,
            bad=done.bad,
            total=sum(each.rows for each in self._done),
            total_bad=sum(each.bad for each in self._done),
            behind=sum(max(0, end - ends[tp.partition].offset) for tp, end in latest.items() if tp.partition in ends),
            dropped={name: each.rows for name, each in done.unknown.items()},
        )

    def _step(self, name: str, batch: int) -> None:
        if self._job.on_step is not None:
            self._job.on_step(name, batch)
