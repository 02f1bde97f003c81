"""A topic of JSON to tables: ``holdfast lake`` beside Spark's connector with from_json and Spark's own writers.

    python -m benchmarks.spark_lake                              5 M rows of 4 fields in 100 B
    python -m benchmarks.spark_lake --value-bytes 1024
    python -m benchmarks.spark_lake --bad 0.01 --no-connector    also a topic of which 1 % is no JSON, in turn

All read one topic of a Holdfast broker on the same cores, in one session, in turn, with Trigger.AvailableNow in
batches of the same size, and write Parquet with zstd, as many files. The connector is tuned (TUNED in spark_read).
Delta's writer is delta-spark, by Maven. Count, sums and a hash of every table must be equal; DuckDB takes them. CPU is
that of this process, the JVM and Python workers; that of the broker and of everything else meanwhile is stated.
At the end stands what a row costs stage by stage, without Spark (lake_costs.py).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from benchmarks import machine
from benchmarks.lake_costs import costs
from benchmarks.spark_read import CORES, TUNED, connector_jars, say
from holdfast.lake.opening import open_table
from holdfast.spark.lake import LakeJob, run
from holdfast.spark.lake_schema import given_schema
from holdfast.spark.lake_values import Values
from holdfast.testing import Cluster
from tests.contracts.lake_tables import duckdb_rows, scan_of

PARTITIONS = 2
SCHEMA = "id BIGINT, name STRING, price DOUBLE, ok BOOLEAN"
FINGERPRINT = "count(*), sum(id), round(sum(price)), sum(ok::int), sum(hash(id, name) % 1000000007)"
"""Sums, since values come again: the exclusive or of an even number of equal hashes is 0."""
FORMATS = ("parquet", "delta", "iceberg")


def values(count: int, size: int, bad_share: float) -> list[bytes]:
    """Distinct values of ``size`` bytes; the name takes what the other fields leave."""
    found = []
    every = int(1 / bad_share) if bad_share else 0
    for number in range(count):
        row = {"id": 10_000_000 + number, "name": "", "price": number / 4 + 0.25, "ok": number % 3 == 0}
        row["name"] = f"n{number % 1000}-".ljust(size - len(json.dumps(row)), "x")
        text = json.dumps(row)
        found.append((text if not every or number % every else text.replace("{", "[", 1)).encode())
    return found


def load(bootstrap: str, topic: str, args: argparse.Namespace, bad_share: float = 0.0) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 65536, "queue.buffering.max.messages": 500_000}
    )
    ready = values(20_000, args.value_bytes, bad_share)
    for number in range(args.records):
        while True:
            try:
                producer.produce(topic, ready[number % len(ready)], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")


class Landings:
    """Each way to land the topic, by name; a call lands all of it in a new place."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, root: Path, args: argparse.Namespace) -> None:
        self.spark, self.bootstrap, self.topic, self.root, self.args = spark, bootstrap, topic, root, args
        self.names = [f"holdfast {each}" for each in FORMATS]
        self.names += [f"holdfast {each} bad" for each in FORMATS] if args.bad else []
        self.names += ["connector parquet", "connector delta"] if args.connector else []
        self._number = 0

    def land(self, name: str) -> Path:
        self._number += 1
        place = self.root / f"{self._number}"
        who, form, *bad = name.split()
        if who == "holdfast":
            self._by_holdfast(form, place, self.topic + "-bad" * bool(bad))
        else:
            self._by_connector(form, place)
        return place

    def _by_holdfast(self, form: str, place: Path, topic: str) -> None:
        run(
            LakeJob(
                bootstrap=self.bootstrap,
                topic=topic,
                to=place / "table",
                checkpoint=place / "checkpoint",
                format=form,
                schema=SCHEMA,
                new_fields="drop",
                available_now=True,
                max_offsets_per_batch=self.args.batch,
            ),
            self.spark,
        )

    def _by_connector(self, form: str, place: Path) -> None:
        from pyspark.sql import functions as F

        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("subscribe", self.topic).option("startingOffsets", "earliest")
        reader = reader.options(**TUNED).option("maxOffsetsPerTrigger", self.args.batch)
        row = F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")
        rows = reader.load().select(
            F.col("topic").alias("_topic"),
            F.col("partition").alias("_partition"),
            F.col("offset").alias("_offset"),
            F.col("timestamp").alias("_timestamp"),
            F.col("timestampType").alias("_timestampType"),
            F.col("key").alias("_key"),
            row,
        )
        rows = rows.select("_topic", "_partition", "_offset", "_timestamp", "_timestampType", "_key", "row.*")
        stream = rows.writeStream.format(form).option("checkpointLocation", str(place / "checkpoint"))
        stream.trigger(availableNow=True).option("compression", "zstd").start(str(place / "table")).awaitTermination()

    def fingerprint(self, name: str, place: Path) -> tuple[Any, ...]:
        who, form, *_ = name.split()
        location = str(place / "table")
        if who == "holdfast":
            table = open_table(location, form)
            assert table is not None
            return duckdb_rows(f"SELECT {FINGERPRINT} FROM {scan_of(table)} WHERE id IS NOT NULL")[0]
        source = f"read_parquet('{location}/*.parquet')" if form == "parquet" else f"delta_scan('{location}')"
        return duckdb_rows(f"SELECT {FINGERPRINT} FROM {source} WHERE id IS NOT NULL")[0]


def delta_jars() -> str:
    """delta-spark and what it needs, fetched once."""
    from benchmarks.spark_read import fetched

    return fetched(
        "delta",
        [("io.delta", "delta-spark_4.2_2.13", "4.4.0"), ("io.delta", "delta-storage", "4.4.0"),
         ("org.antlr", "antlr4-runtime", "4.13.1")],
    )  # fmt: skip


def measure(bootstrap: str, root: Path, args: argparse.Namespace) -> dict[str, float]:
    from holdfast.spark.session import spark_session

    topic = "lake-bench"
    say(f"loading {args.records:,} records of {args.value_bytes} B")
    load(bootstrap, topic, args)
    if args.bad:
        load(bootstrap, f"{topic}-bad", args, args.bad)
    brokers = machine.descendants()
    settings = {}
    if args.connector:
        settings = {
            "spark.jars": f"{connector_jars()},{delta_jars()}",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    spark = spark_session("spark_lake", cores=CORES, driver_memory="2g", settings=settings)
    fields = Values(format="json", fields=given_schema(SCHEMA))  # asks Spark for its DDL
    landings = Landings(spark, bootstrap, topic, root, args)
    best: dict[str, tuple[float, float]] = {}
    prints: dict[str, tuple[Any, ...]] = {}
    try:
        for number in range(args.passes + 1):
            for name in landings.names:
                cpu, busy, began = machine.tree_cpu_s(brokers), machine.busy_seconds(), time.perf_counter()
                place = landings.land(name)
                seconds, own = time.perf_counter() - began, machine.tree_cpu_s(brokers) - cpu
                other = machine.busy_seconds() - busy - own
                prints[name] = landings.fingerprint(name, place)
                files = len(list((place / "table").rglob("*.parquet")))
                shutil.rmtree(place)
                what, rate = f"pass {number}" if number else "warm-up", args.records / seconds / 1e6
                cost = f"{own / args.records * 1e6:.2f} us of CPU a row"
                say(f"{what} {name}: {rate:.2f} M rows/s, {cost}, {files} files; broker and others {other:.1f} s")
                if number and (name not in best or seconds < best[name][0]):
                    best[name] = seconds, own
    finally:
        spark.stop()
    for kind in (False, True):
        if len({found for name, found in prints.items() if name.endswith(" bad") == kind}) > 1:
            raise RuntimeError(f"the tables differ: {prints}")
    numbers: dict[str, float] = {"equal": 1.0}
    for name, (seconds, own) in best.items():
        numbers[f"{name} M rows/s"] = args.records / seconds / 1e6
        numbers[f"{name} us of CPU a row"] = own / args.records * 1e6
    for form in FORMATS if args.bad else ():
        numbers[f"{form} with bad records to clean"] = best[f"holdfast {form}"][0] / best[f"holdfast {form} bad"][0]
    for stage, cost in costs(bootstrap, topic, fields, root).items():
        numbers[f"{stage}, us of CPU a row"] = cost
    for name in landings.names:
        who, form, *_ = name.split()
        peer = f"connector {'delta' if form == 'iceberg' else form}"
        if who == "holdfast" and peer in best:
            numbers[f"{name} to {peer}"] = best[peer][0] / best[name][0]
            numbers[f"{name} CPU to {peer}"] = best[name][1] / best[peer][1]
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1_000_000)
    parser.add_argument("--bad", type=float, default=0.0, help="share of values that are no JSON")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--no-connector", dest="connector", action="store_false")
    parser.add_argument("--json", action="store_true", help="the numbers as one line of JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        root = Path(folder)
        with Cluster(brokers=1, log_dirs=1, data_dir=root / "cluster") as cluster:
            numbers = measure(cluster.bootstrap, root, args)
    if args.json:
        print(json.dumps(numbers))
    else:
        print(f"duckdb {duckdb.__version__}, {machine.describe()}")
        for name, value in numbers.items():
            print(f"{name:>44}: {value:,.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
