"""A topic to Parquet, exactly once across restarts: a Structured Streaming job.

Owns the query and its progress. What lands where, and why once, is landing.py's; the JSON is json_records.py's.
The position is in Spark's checkpoint; a batch that Spark replays lands in the folder of its number.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.spark.json_records import (
    CORRUPT,
    PLACE_COLUMNS,
    check_schema,
    given_schema,
    inferred_schema,
    keep_schema,
    kept_schema,
    parsed,
    why_bad,
)
from holdfast.spark.landing import LandedBatch, Landing, write_json
from holdfast.spark.ranges import OffsetJson, from_json
from holdfast.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

IDENTITY_FILE: Final = "holdfast-lake-id.json"
PATIENCE_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeProgress:
    """After each batch."""

    topic: str
    batch: int
    records: int
    """Good records of this batch."""
    bad: int
    total: int
    """Good records that this run has landed so far."""
    total_bad: int
    behind: int
    """Records in the topic that have not been read yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeJob:
    """What to land and where. ``parse_json=False`` lands the bytes as they are."""

    bootstrap: str
    topic: str
    to: Path
    checkpoint: Path
    available_now: bool = False
    schema: str | None = None
    sample_records: int = 20_000
    parse_json: bool = True
    keep_value: bool = False
    starting_offsets: str = "earliest"
    max_offsets_per_batch: int = 500_000
    trigger_s: float = 2.0
    fail_on_data_loss: bool = True
    on_progress: Callable[[LakeProgress], None] | None = None
    on_step: Callable[[str, int], None] | None = None
    """Told of each step of a batch ("staged", "placed", "landed"); tests break things there."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set it to end after the batch that is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeResult:
    """What one run did, and what the directory holds after it."""

    topic: str
    to: Path
    bad_path: Path
    records: int
    """Good records that this run landed."""
    bad: int
    batches: int
    total_records: int
    """Good records in the directory, of all runs."""
    total_bad: int
    schema: str
    seconds: float


def run(job: LakeJob, spark: "SparkSession | None" = None) -> LakeResult:
    """Runs until the topic is read up (``available_now``) or ``job.stop`` is set.

    Raises OptionError, SchemaError, LandingError before anything is written; what the query itself dies of after.
    """
    return run_all([job], spark)[0]


def run_all(jobs: list[LakeJob], spark: "SparkSession | None" = None) -> list[LakeResult]:
    """Several topics side by side; the first failure ends all."""
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


class _Lake:
    """One query of one run."""

    def __init__(self, job: LakeJob, spark: "SparkSession") -> None:
        self._job = job
        self._spark = spark
        self._landing = Landing(job.to)
        self._schema: StructType | None = None
        self._query: Any = None
        self._done: list[LandedBatch] = []
        self._began_s = time.monotonic()
        self._topics: Any = None
        self._busy = False
        self._asked_s: float | None = None

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        job = self._job
        job.checkpoint.mkdir(parents=True, exist_ok=True)
        self._topics = self._subscribed()
        if job.parse_json:
            self._schema = self._settled_schema()
            if self._schema is None:  # stopped while the topic was empty, or nothing to read now
                return
        self._landing.claim(self._identity(), job.topic)
        records = self._source(self._spark.readStream).option("maxOffsetsPerTrigger", job.max_offsets_per_batch)
        stream = records.option("startingOffsets", job.starting_offsets).load().writeStream
        stream = stream.queryName(f"lake {job.topic}").foreachBatch(self._land)
        stream = stream.option("checkpointLocation", str(job.checkpoint))
        if job.available_now:
            stream = stream.trigger(availableNow=True)
        else:
            stream = stream.trigger(processingTime=f"{int(job.trigger_s * 1000)} milliseconds")
        self._query = stream.start()

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
            raise query.exception()
        return False

    def _may_stop(self) -> bool:
        """Between batches if there is such a moment, else whenever no batch is being landed: Spark then repeats one
        that it had not noted, and it is found in place."""
        self._asked_s = self._asked_s or time.monotonic()
        if self._busy:
            return False
        return not self._query.status["isTriggerActive"] or time.monotonic() - self._asked_s > PATIENCE_S

    def end(self) -> None:
        if self._query is not None and self._query.isActive:
            self._query.stop()

    def result(self) -> LakeResult:
        landed = list(self._landing.landed())
        return LakeResult(
            topic=self._job.topic,
            to=self._job.to,
            bad_path=self._job.to / "_bad",
            records=sum(each.records for each in self._done),
            bad=sum(each.bad for each in self._done),
            batches=len(self._done),
            total_records=sum(each.records for each in landed),
            total_bad=sum(each.bad for each in landed),
            schema=self._schema.simpleString() if self._schema is not None else "",
            seconds=time.monotonic() - self._began_s,
        )

    # -- before the query ------------------------------------------------------------------------------------

    def _source(self, reader: Any) -> Any:
        job = self._job
        source = reader.format("holdfast").option("kafka.bootstrap.servers", job.bootstrap)
        return source.option("subscribe", job.topic).option("failOnDataLoss", str(job.fail_on_data_loss).lower())

    def _subscribed(self) -> Any:
        from holdfast.spark.options import parse_read
        from holdfast.spark.topics import Topics

        options = {"kafka.bootstrap.servers": self._job.bootstrap, "subscribe": self._job.topic}
        topics = Topics(parse_read(options, streaming=True))
        topics.partitions()  # a topic that is not there fails here, in words
        return topics

    def _settled_schema(self) -> "StructType | None":
        """Kept by an earlier run, or given, or inferred; a new one is kept before the query starts."""
        job = self._job
        given = given_schema(job.schema) if job.schema is not None else None
        if given is not None:
            check_schema(given)
        schema = kept_schema(job.checkpoint, given) or given
        if schema is None:
            sample = self._sample()
            if sample is None:
                return None
            schema = inferred_schema(self._spark, sample, job.topic)
            check_schema(schema)
        keep_schema(job.checkpoint, schema)
        return schema

    def _sample(self) -> "DataFrame | None":
        """The first records of each partition; waits for some unless the job reads only what is there."""
        job, topics = self._job, self._topics
        while True:
            tps = topics.partitions()
            earliest, latest = topics.earliest(tps), topics.latest(tps)
            if any(latest[tp] > earliest[tp] for tp in tps):
                break
            if job.available_now or job.stop.is_set():
                return None
            topics.wait_beyond(latest)
        each = max(1, job.sample_records // len(tps))
        ends: dict[str, dict[str, int]] = {}
        for tp in tps:
            ends.setdefault(tp.topic, {})[str(tp.partition)] = min(latest[tp], earliest[tp] + each)
        source = self._source(self._spark.read).option("endingOffsets", json.dumps(ends))
        frame: DataFrame = source.schema("value binary").load()
        return frame

    def _identity(self) -> str:
        """Names this checkpoint; made with it, gone with it."""
        file = self._job.checkpoint / IDENTITY_FILE
        if not file.is_file():
            write_json(file, {"id": str(uuid.uuid4())})
        return str(json.loads(file.read_text())["id"])

    # -- one batch -------------------------------------------------------------------------------------------

    def _land(self, records: "DataFrame", batch: int) -> None:
        """Called by Spark for each batch, again for one whose end it had not noted before a crash."""
        if self._landing.has_landed(batch):
            return
        self._busy = True
        try:
            done = self._write(records, batch)
            ends = self._ends(batch)
            self._landing.finish(done, ends)
        finally:
            self._busy = False
        self._done.append(done)
        self._step("landed", batch)
        if self._job.on_progress is not None:
            self._job.on_progress(self._progress(done, ends))

    def _write(self, records: "DataFrame", batch: int) -> LandedBatch:
        """One pass for the good records, which also counts; another one only if there are bad ones."""
        from pyspark.sql import functions as F
        from pyspark.sql.observation import Observation

        if self._schema is not None:
            rows = parsed(records, self._schema, keep_value=self._job.keep_value)
            unwanted = [CORRUPT] if self._job.keep_value else [CORRUPT, "value"]
        else:
            place = [F.col(name[1:]).alias(name) for name in PLACE_COLUMNS]
            rows = records.select(*place, "value", F.lit(None).cast("string").alias(CORRUPT))
            unwanted = [CORRUPT]
        seen = Observation()
        counted = rows.observe(seen, F.count(F.lit(1)).alias("all"), F.count(CORRUPT).alias("bad"))
        staged = self._landing.staging(batch, "good")
        counted.where(F.col(CORRUPT).isNull()).drop(*unwanted).write.parquet(str(staged))
        counts = seen.get
        self._step("staged", batch)
        if counts["bad"]:
            self._write_bad(rows, batch)
        self._landing.put(batch, "good", staged)
        self._step("placed", batch)
        return LandedBatch(batch=batch, records=counts["all"] - counts["bad"], bad=counts["bad"])

    def _ends(self, batch: int) -> OffsetJson:
        """Where the batch ends in each partition, as Spark noted it before the batch began."""
        noted = (self._job.checkpoint / "offsets" / str(batch)).read_text().splitlines()
        found: OffsetJson = json.loads(noted[-1])
        return found

    def _write_bad(self, rows: "DataFrame", batch: int) -> None:
        from pyspark.sql import functions as F

        assert self._schema is not None
        schema_json = self._schema.json()
        reason = F.udf(lambda value: why_bad(value, schema_json), "string")
        bad = rows.where(F.col(CORRUPT).isNotNull())
        staged = self._landing.staging(batch, "bad")
        bad.select(*PLACE_COLUMNS, "value", reason("value").alias("reason")).write.parquet(str(staged))
        self._landing.put(batch, "bad", staged)

    def _progress(self, done: LandedBatch, ends: OffsetJson) -> LakeProgress:
        positions = from_json(ends)
        latest = self._topics.latest(positions)
        return LakeProgress(
            topic=self._job.topic,
            batch=done.batch,
            records=done.records,
            bad=done.bad,
            total=sum(each.records for each in self._done),
            total_bad=sum(each.bad for each in self._done),
            behind=sum(max(0, latest[tp] - offset) for tp, offset in positions.items()),
        )

    def _step(self, name: str, batch: int) -> None:
        if self._job.on_step is not None:
            self._job.on_step(name, batch)
