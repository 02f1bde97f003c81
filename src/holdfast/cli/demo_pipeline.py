"""Spark's part of the demo: the lake pipeline while records come in, an aggregate over the topic, the audit.

Owns the one Spark session and the thread that the lake's query is run from. The jobs are those of ``holdfast lake``
and ``holdfast audit``, not copies.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.cli.demo_report import Aggregates

if TYPE_CHECKING:
    from holdfast.spark.lake import LakeProgress, LakeResult

DRIVER_MEMORY = "768m"
TRIGGER_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """The audit's verdict, in the demo's words."""

    partitions: int
    replicas: int
    records: int
    end_offsets: int
    """Sum of the high watermarks; equal to the number of records of a topic that lost none and has no retention."""
    differences: tuple[str, ...]


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Processes that are started inside write their standard error to the file, and so do their children, for good.

    Spark's processes say much that is of no use to who watches; the terminal is for the demo.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with open(path, "ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


class Pipeline:
    """``with Pipeline(...)``: a Spark session; inside, ``start`` the lake, ``finish`` it, then ask."""

    def __init__(self, bootstrap: str, directory: str, topic: str) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self.lake = Path(directory, "lake", topic)
        self.log = Path(directory, "spark.log")
        self.error: Exception | None = None
        self._checkpoint = Path(directory, "checkpoints", topic)
        self._spark: Any = None
        self._stop = threading.Event()
        self._expected: int | None = None
        self._landed = 0
        self._result: LakeResult | None = None
        self._thread = threading.Thread(target=self._run, name="demo-lake", daemon=True)

    def __enter__(self) -> Pipeline:
        from holdfast.spark.session import spark_session

        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        with stderr_to(self.log):
            self._spark = spark_session("holdfast demo", driver_memory=DRIVER_MEMORY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.is_alive() and kind is None:
            self._thread.join()
        self._spark.stop()

    def start(self) -> None:
        """Starts landing; goes on until ``finish`` was called and that many records have landed."""
        self._thread.start()

    def finish(self, expected: int) -> None:
        """No more than ``expected`` records will come: the lake ends when it has them."""
        self._expected = expected
        self._stop_if_complete()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def landed(self) -> int:
        """Records that have landed so far, good and bad."""
        return self._landed

    def bad_records(self) -> int:
        return 0 if self._result is None else self._result.total_bad

    def _run(self) -> None:
        from holdfast.spark import lake

        job = lake.LakeJob(
            bootstrap=self.bootstrap,
            topic=self.topic,
            to=self.lake,
            format="iceberg",
            checkpoint=self._checkpoint,
            trigger_s=TRIGGER_S,
            on_progress=self._progress,
            stop=self._stop,
        )
        try:
            self._result = lake.run(job, self._spark)
            self._landed = self._result.total_records + self._result.total_bad
        except Exception as error:  # shown by the thread that waits
            self.error = error

    def _progress(self, progress: LakeProgress) -> None:
        self._landed = progress.total + progress.total_bad
        self._stop_if_complete()

    def _stop_if_complete(self) -> None:
        if self._expected is not None and self._landed >= self._expected:
            self._stop.set()

    def aggregates(self) -> tuple[Aggregates, Aggregates]:
        """Flights that arrived and the sum of their delays, per carrier and per hour, read from the topic itself."""
        from pyspark.sql import functions as F

        records = (
            self._spark.read.format("holdfast")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", self.topic)
            .schema("value binary")
            .load()
        )
        schema = "carrier string, hour int, arr_delay int"
        flights = records.select(F.from_json(F.col("value").cast("string"), schema).alias("flight")).select("flight.*")
        rows = (
            flights.groupBy("carrier", "hour")
            .agg(F.count("arr_delay").alias("flights"), F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("minutes"))
            .collect()
        )
        by_carrier: Aggregates = {}
        by_hour: Aggregates = {}
        for row in rows:
            for groups, name in ((by_carrier, row.carrier), (by_hour, str(row.hour))):
                flights_so_far, minutes_so_far = groups.get(name, (0, 0))
                groups[name] = (flights_so_far + row.flights, minutes_so_far + row.minutes)
        return by_carrier, by_hour

    def audit(self) -> Audited:
        """Every replica of the topic, compared on disk; a replica that cannot be read is a difference here."""
        from holdfast.spark import audit

        result = audit.run(self.bootstrap, [self.topic], spark=self._spark)
        unread = tuple(
            f"{each.tp}: the replica of broker {broker} could not be read"
            for each in result.partitions
            for broker in each.missing
        )
        return Audited(
            partitions=len(result.partitions),
            replicas=result.replicas,
            records=result.records,
            end_offsets=sum(each.high_watermark - each.start for each in result.partitions),
            differences=result.differences + unread,
        )
