"""Compares all replicas of a cluster on disk, batch by batch: a Spark batch job over the segment files.

Owns finding the files (DescribeLogDirs, so they must be readable on this machine), what is compared and the verdict.
Reads segment files only; never writes, never asks a broker for records.

Compared is what every replica must have alike: offsets from the leader's log start up to the high watermark, which is
asked for before a file is opened. Per replica: batches contiguous, CRC right, leader epochs not falling. Between
replicas: the same batches, byte for byte. Compacted topics may have gaps and differ between replicas by right; of them
only order and CRC are checked.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.model.types import BrokerId, Offset, TopicPartition
from holdfast.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_DIFFERENCES: Final = 20
"""Per partition; the rest is counted."""
SCAN_SCHEMA: Final = (
    "replica int, base_offset bigint, last_offset bigint, records bigint, size bigint, digest bigint, problem string"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica's directory, and what of it is compared."""

    tp: TopicPartition
    broker: BrokerId
    directory: str
    start: Offset
    high_watermark: Offset
    compacted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAudit:
    """What was compared of one partition, and what was found."""

    tp: TopicPartition
    start: Offset
    high_watermark: Offset
    brokers: tuple[BrokerId, ...]
    """Whose replicas were read."""
    missing: tuple[BrokerId, ...]
    """Whose replicas could not be read: broker dead, log directory offline, files not on this machine."""
    batches: int
    records: int
    """Of one replica, between start and high watermark."""
    bytes_read: int
    """Of all replicas."""
    compacted: bool
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The verdict over all partitions."""

    partitions: tuple[PartitionAudit, ...]
    seconds: float

    @property
    def differences(self) -> tuple[str, ...]:
        return tuple(text for each in self.partitions for text in each.differences)

    @property
    def replicas(self) -> int:
        return sum(len(each.brokers) for each in self.partitions)

    @property
    def missing(self) -> int:
        return sum(len(each.missing) for each in self.partitions)

    @property
    def records(self) -> int:
        """Records that all replicas agree on (of one replica each)."""
        return sum(each.records for each in self.partitions)

    @property
    def agree(self) -> bool:
        return not self.differences


def run(
    bootstrap: str,
    topics: Sequence[str] | None = None,
    *,
    spark: "SparkSession | None" = None,
    relocate: Mapping[str, str] | None = None,
) -> AuditResult:
    """Audits the topics (None: all that are not internal). ``relocate`` maps a log directory as a broker names it to
    where it is here (a copy, another mount)."""
    began_s = time.monotonic()
    replicas, missing = find_replicas(bootstrap, topics, relocate or {})
    spark = spark or spark_session("holdfast audit")
    found = _scan(spark, replicas) if replicas else []
    by_replica: dict[int, list[Any]] = defaultdict(list)
    for row in found:
        by_replica[row.replica].append(row)
    partitions: dict[TopicPartition, list[int]] = defaultdict(list)
    for number, replica in enumerate(replicas):
        partitions[replica.tp].append(number)
    audits = [
        _judge([(replicas[number], by_replica[number]) for number in partitions[tp]], tp, missing.get(tp, ()))
        for tp in sorted(set(partitions) | set(missing))
    ]
    return AuditResult(partitions=tuple(audits), seconds=time.monotonic() - began_s)


# -- which files -----------------------------------------------------------------------------------------------


def find_replicas(
    bootstrap: str, topics: Sequence[str] | None, relocate: Mapping[str, str]
) -> tuple[list[Replica], dict[TopicPartition, tuple[BrokerId, ...]]]:
    """Replicas that can be read here, and of each partition the brokers whose replica cannot."""
    from holdfast.client.blocking import BlockingClient
    from holdfast.client.views import OffsetSpec
    from holdfast.model.errors import HoldfastError, UnknownTopicOrPartitionError

    with BlockingClient(bootstrap, client_id="holdfast-audit") as client:
        view = client.metadata(topics)
        for topic in view.topics.values():
            if topic.error is not None:
                raise UnknownTopicOrPartitionError(f"topic {topic.name!r}: {topic.error}")
        wanted = [t for t in view.topics.values() if topics is not None or not t.internal]
        configs = client.describe_topic_configs([topic.name for topic in wanted]) if wanted else {}
        compacted = {
            name: any(each.name == "cleanup.policy" and "compact" in (each.value or "") for each in values)
            for name, values in configs.items()
        }
        tps = [TopicPartition(topic.name, each.partition) for topic in wanted for each in topic.partitions]
        # The high watermark first: what is below it is in the files that are opened after.
        starts = client.list_offsets(dict.fromkeys(tps, OffsetSpec.EARLIEST)) if tps else {}
        ends = client.list_offsets(dict.fromkeys(tps, OffsetSpec.LATEST)) if tps else {}
        places: dict[tuple[BrokerId, TopicPartition], str] = {}
        for broker in view.brokers:
            try:
                dirs = client.describe_log_dirs([broker])[broker]
            except HoldfastError:
                continue  # its replicas are missing
            for log_dir in dirs:
                path = relocate.get(log_dir.path, log_dir.path)
                for each in log_dir.replicas:
                    if not each.future:
                        places[broker, each.tp] = str(Path(path) / str(each.tp))
    replicas, missing = [], {}
    for topic in wanted:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition)
            gone = []
            for broker in partition.replicas:
                directory = places.get((broker, tp))
                if directory is None or not Path(directory).is_dir():
                    gone.append(broker)
                    continue
                replicas.append(
                    Replica(
                        tp=tp,
                        broker=broker,
                        directory=directory,
                        start=starts[tp].offset or 0,
                        high_watermark=ends[tp].offset or 0,
                        compacted=compacted.get(topic.name, False),
                    )
                )
            if gone:
                missing[tp] = tuple(gone)
    return replicas, missing


# -- reading them ----------------------------------------------------------------------------------------------


def _scan(spark: "SparkSession", replicas: list[Replica]) -> list[Any]:
    """One row per batch that is to be compared, and one per problem of a replica on its own.

    Rows of batches that all replicas have alike are folded in Spark, so that what comes back is small.
    """
    from pyspark.sql import functions as F

    numbers = spark.range(0, len(replicas), 1, len(replicas))
    rows = numbers.mapInArrow(partial(scan_replicas, replicas), SCAN_SCHEMA)
    group_of = {tp: n for n, tp in enumerate(sorted({each.tp for each in replicas}))}
    groups = F.array([F.lit(group_of[each.tp]) for each in replicas])
    sizes: dict[TopicPartition, int] = defaultdict(int)
    for replica in replicas:
        sizes[replica.tp] += 1
    expected = F.array([F.lit(sizes[each.tp]) for each in replicas])
    loose = F.array([F.lit(each.compacted) for each in replicas])
    rows = rows.select(
        "*",
        F.get(groups, F.col("replica")).alias("tp"),
        F.get(expected, F.col("replica")).alias("expected"),
        F.get(loose, F.col("replica")).alias("loose"),
    )
    alike = F.min("digest") == F.max("digest")
    batches = (
        rows.where("problem IS NULL")
        .groupBy("tp", "base_offset", "expected", "loose")
        .agg(
            F.collect_list(F.struct("replica", "last_offset", "records", "size", "digest")).alias("found"),
            ((F.count(F.lit(1)) == F.col("expected")) & alike).alias("same"),
        )
    )
    copies = batches.select("base_offset", "same", "loose", F.explode("found").alias("f"))
    unequal = copies.where("NOT same AND NOT loose").select(
        "f.replica", "base_offset", "f.last_offset", "f.records", "f.size", "f.digest", F.lit(None).alias("problem")
    )
    totals = (
        copies.groupBy(F.col("f.replica").alias("replica"))
        .agg(F.count(F.lit(1)).alias("n"), F.sum("f.records").alias("r"), F.sum("f.size").alias("s"))
        .select(
            "replica", F.col("n").alias("base_offset"), F.lit(-1).cast("bigint").alias("last_offset"),
            F.col("r").alias("records"), F.col("s").alias("size"),
            F.lit(0).cast("bigint").alias("digest"), F.lit("total").alias("problem"),
        )
    )  # fmt: skip
    problems = rows.where("problem IS NOT NULL").select(
        "replica", "base_offset", "last_offset", "records", "size", "digest", "problem"
    )
    return list(unequal.unionByName(totals).unionByName(problems).collect())


def scan_replicas(replicas: list[Replica], numbers: Iterable[Any]) -> Iterator[Any]:
    """Runs in executors: reads the replicas whose numbers come in."""
    import pyarrow as pa

    names = ("replica", "base_offset", "last_offset", "records", "size", "digest", "problem")
    kinds = (pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.int64(), pa.int64(), pa.string())
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    from holdfast.spark.numba_cache import settle_cache

    settle_cache()
    from holdfast.spark.replica_files import scan_replica

    for batch in numbers:
        for number in batch.column(0).to_pylist():
            rows: list[tuple[Any, ...]] = []
            replica = replicas[number]
            for row in scan_replica(
                Path(replica.directory), replica.start, replica.high_watermark, compacted=replica.compacted
            ):
                rows.append((number, *row))
                if len(rows) == 8192:
                    yield _arrow(rows, schema)
                    rows = []
            yield _arrow(rows, schema)


def _arrow(rows: list[tuple[Any, ...]], schema: Any) -> Any:
    import pyarrow as pa

    columns: list[Any] = list(zip(*rows, strict=True)) or [[] for _ in schema]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- the verdict -----------------------------------------------------------------------------------------------


def _judge(found: list[tuple[Replica, list[Any]]], tp: TopicPartition, missing: tuple[BrokerId, ...]) -> PartitionAudit:
    differences: list[str] = []
    totals: list[tuple[int, int, int]] = []
    apart: dict[Offset, dict[BrokerId, Any]] = defaultdict(dict)
    for replica, rows in found:
        for row in rows:
            if row.problem == "total":
                totals.append((row.base_offset, row.records or 0, row.size or 0))
            elif row.problem is not None:
                differences.append(f"{tp}, broker {replica.broker}: {row.problem} ({replica.directory})")
            else:
                apart[row.base_offset][replica.broker] = row
    brokers = tuple(replica.broker for replica, _ in found)
    differences += [_difference(tp, offset, apart[offset], brokers) for offset in sorted(apart)]
    if len(differences) > MAX_DIFFERENCES:
        rest = len(differences) - MAX_DIFFERENCES
        differences = [*differences[:MAX_DIFFERENCES], f"{tp}: {rest} more differences"]
    start = found[0][0].start if found else 0
    return PartitionAudit(
        tp=tp,
        start=start,
        high_watermark=found[0][0].high_watermark if found else 0,
        brokers=brokers,
        missing=missing,
        batches=max((batches for batches, _, _ in totals), default=0),
        records=max((records for _, records, _ in totals), default=0),
        bytes_read=sum(size for _, _, size in totals),
        compacted=bool(found) and found[0][0].compacted,
        differences=tuple(differences),
    )


def _difference(tp: TopicPartition, offset: Offset, rows: Mapping[BrokerId, Any], brokers: Iterable[BrokerId]) -> str:
    absent = [broker for broker in brokers if broker not in rows]
    if absent:
        have = ", ".join(map(str, sorted(rows)))
        return f"{tp}: the batch at offset {offset} is on broker {have} and not on {', '.join(map(str, absent))}"
    shown = "; ".join(
        f"broker {broker}: offsets {offset} to {row.last_offset}, {row.size} bytes, "
        f"digest {row.digest & (1 << 64) - 1:016x}"
        for broker, row in sorted(rows.items())
    )
    return f"{tp}: the batch at offset {offset} differs: {shown}"


def as_json(result: AuditResult) -> str:
    """One line for machines."""
    return json.dumps(
        {
            "agree": result.agree,
            "partitions": [
                {
                    "topic": each.tp.topic,
                    "partition": each.tp.partition,
                    "start": each.start,
                    "high_watermark": each.high_watermark,
                    "brokers": list(each.brokers),
                    "missing": list(each.missing),
                    "batches": each.batches,
                    "records": each.records,
                    "bytes_read": each.bytes_read,
                    "compacted": each.compacted,
                    "differences": list(each.differences),
                }
                for each in result.partitions
            ],
            "seconds": round(result.seconds, 3),
        }
    )
