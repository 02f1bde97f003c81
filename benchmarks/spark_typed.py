"""Typed columns of a topic: ``value.format`` beside Spark's connector with SQL on top, in one session.

    python -m benchmarks.spark_typed                          5 M rows of 4 fields in 100 B: JSON, Avro, fixed width
    python -m benchmarks.spark_typed --formats avro --records 1000000

All read one topic of a Holdfast broker on the same cores, in turn, and aggregate all four fields. The connector is
tuned (TUNED in spark_read). On top of it: from_json; for Avro a pandas_udf with fastavro; for fixed widths substring,
hex and conv, and, beside that, mapInArrow with numpy. The answers of every pass must be equal, and so must be a hash
over the fields of all rows, taken in the warm-up. The best of the passes counts. CPU is that of the JVM and its Python
workers; that of everything else meanwhile, the broker too, is stated.
"""

import argparse
import io
import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks import machine, spark_lake
from benchmarks.spark_lake import PARTITIONS
from benchmarks.spark_read import CORES, TUNED, connector_jars, say
from holdfast.testing import Cluster

DISTINCT = 20_000
BYTES = 100
FIELDS = "id BIGINT, name STRING, price DOUBLE, ok BOOLEAN"
AVSC = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "ok", "type": "boolean"},
    ],
}
FIXED = "id BIGINT, customer INT, day INT, kind SMALLINT"
HEAD = ">qiih"
FILLING = BYTES - struct.calcsize(HEAD)
LAYOUT = "id:>i8, customer:>i4, day:>i4, kind:>i2, " + ", ".join(
    [f"eight{n}:>i8" for n in range(FILLING // 8)] + [f"one{n}:u1" for n in range(FILLING % 8)]
)
ROW = np.dtype([("id", ">i8"), ("customer", ">i4"), ("day", ">i4"), ("kind", ">i2"), ("rest", f"V{FILLING}")])


def json_values() -> list[bytes]:
    return spark_lake.values(DISTINCT, BYTES, 0.0)


def avro_values() -> list[bytes]:
    schema, found = fastavro.parse_schema(AVSC), []
    for number in range(DISTINCT):
        name = f"n{number % 1000}-".ljust(BYTES - 15, "x")
        row = {"id": 10_000_000 + number, "name": name, "price": number / 4, "ok": number % 3 == 0}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        found.append(out.getvalue())
    return found


def fixed_values() -> list[bytes]:
    filling = b"x" * FILLING
    return [struct.pack(HEAD, 10**12 + n * 7919, n, 20_000 + n % 365, n % 9) + filling for n in range(DISTINCT)]


def from_json(frame: Any) -> Any:
    from pyspark.sql import functions as F

    return frame.select(F.from_json(F.col("value").cast("string"), FIELDS).alias("row")).select("row.*")


def from_avro(frame: Any) -> Any:
    from pyspark.sql.functions import pandas_udf

    schema = fastavro.parse_schema(AVSC)
    names = [each["name"] for each in AVSC["fields"]]  # type: ignore[index]

    def decoded(values: pd.Series) -> pd.DataFrame:
        rows = [fastavro.schemaless_reader(io.BytesIO(value), schema) for value in values]
        return pd.DataFrame(rows, columns=names)

    return frame.select(pandas_udf(decoded, FIELDS)("value").alias("row")).select("row.*")  # type: ignore[call-overload]


def from_fixed(frame: Any) -> Any:
    def number(at: int, size: int, kind: str) -> str:
        return f"cast(conv(hex(substring(value, {at}, {size})), 16, 10) AS {kind})"

    return frame.selectExpr(
        f"{number(1, 8, 'BIGINT')} AS id",
        f"{number(9, 4, 'INT')} AS customer",
        f"{number(13, 4, 'INT')} AS day",
        f"{number(17, 2, 'SMALLINT')} AS kind",
    )


def from_fixed_by_numpy(frame: Any) -> Any:
    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = ("id", "customer", "day", "kind")
        for batch in batches:
            values = batch.column(0)
            _, offsets, data = values.buffers()
            starts = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
            table = np.frombuffer(data, ROW, len(values), int(starts[0]))
            columns = [pa.array(table[name].astype(table[name].dtype.newbyteorder("="))) for name in names]
            yield pa.RecordBatch.from_arrays(columns, names=list(names))

    return frame.select("value").mapInArrow(decoded, FIXED)


@dataclass(frozen=True, kw_only=True)
class Format:
    """One kind of values, and the ways to read them."""

    values: Callable[[], list[bytes]]
    options: dict[str, str]
    schema: str
    sums: tuple[str, ...]
    """Of all fields."""
    others: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    """On top of the connector."""

    @property
    def names(self) -> str:
        return ", ".join(each.split()[0] for each in self.schema.split(", "))


ROWS = ("count(*)", "sum(id)", "sum(length(name))", "sum(price)", "count_if(ok)")
FORMATS = {
    "json": Format(
        values=json_values,
        options={"value.format": "json"},
        schema=FIELDS,
        sums=ROWS,
        others={"from_json": from_json},
    ),
    "avro": Format(
        values=avro_values,
        options={"value.format": "avro", "value.schema": json.dumps(AVSC)},
        schema=FIELDS,
        sums=ROWS,
        others={"pandas_udf": from_avro},
    ),
    "struct": Format(
        values=fixed_values,
        options={"value.format": "struct", "value.schema": LAYOUT},
        schema=FIXED,
        sums=("count(*)", "sum(id)", "sum(customer)", "sum(day)", "sum(kind)"),
        others={"conv": from_fixed, "mapInArrow": from_fixed_by_numpy},
    ),
}


def load(bootstrap: str, topic: str, values: list[bytes], records: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 65536, "queue.buffering.max.messages": 500_000}
    )
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % len(values)], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")


class Ways:
    """Each way to read a format's topic, by name."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, form: Format, connector: bool) -> None:
        self._spark, self._bootstrap, self._topic, self._form = spark, bootstrap, topic, form
        self.names = ["holdfast", *(form.others if connector else ())]

    def frame(self, name: str) -> Any:
        reader = self._spark.read.format("holdfast" if name == "holdfast" else "kafka")
        reader = reader.option("kafka.bootstrap.servers", self._bootstrap).option("subscribe", self._topic)
        if name == "holdfast":
            return reader.options(**self._form.options).schema(self._form.schema).load()
        return self._form.others[name](reader.options(**TUNED).load())

    def aggregated(self, name: str) -> tuple[Any, ...]:
        return tuple(self.frame(name).selectExpr(*self._form.sums).collect()[0])

    def hashed(self, name: str) -> int:
        # A sum, since values come again: the exclusive or of an even number of equal hashes is 0.
        found = self.frame(name).selectExpr(f"sum(pmod(xxhash64({self._form.names}), 1000000007))").collect()[0][0]
        return int(found)


def measure(spark: Any, bootstrap: str, name: str, args: argparse.Namespace) -> dict[str, float]:
    form, topic = FORMATS[name], f"typed-{name}"
    values = form.values()
    assert {len(value) for value in values} == {BYTES}, {len(value) for value in values}
    say(f"loading {args.records:,} values of {name}")
    load(bootstrap, topic, values, args.records)
    ways = Ways(spark, bootstrap, topic, form, args.connector)
    # Twice: the first compiles what the second runs.
    prints = {way: (ways.aggregated(way), ways.hashed(way)) for _ in range(2) for way in ways.names}
    say(f"{name}: sums and hash: {prints}")
    if len(set(prints.values())) != 1 or prints["holdfast"][0][0] != args.records:
        raise RuntimeError(f"the ways differ: {prints}")
    jvm = spark.sparkContext._gateway.proc.pid
    best: dict[str, tuple[float, float]] = {}
    for number in range(args.passes):
        for way in ways.names:
            cpu, busy, began = machine.tree_cpu_s(root=jvm), machine.busy_seconds(), time.perf_counter()
            answer = ways.aggregated(way)
            seconds, own = time.perf_counter() - began, machine.tree_cpu_s(root=jvm) - cpu
            others = machine.busy_seconds() - busy - own
            if answer != prints[way][0]:
                raise RuntimeError(f"{name} {way}: {answer}, before {prints[way][0]}")
            rate, cost = args.records / seconds / 1e6, own / args.records * 1e6
            told = f"{rate:.2f} M rows/s, {cost:.2f} us of CPU a row; others {others:.1f} s"
            say(f"pass {number + 1} {name} {way}: {told}")
            if own < seconds / 10:
                say("Spark has let workers go meanwhile, whose CPU nobody counts: the pass is left out")
            elif way not in best or seconds < best[way][0]:
                best[way] = seconds, own
    if len(best) < len(ways.names):
        raise RuntimeError(f"{name}: no pass of some way counts; {', '.join(best)} have one")
    numbers = {f"{name} equal": 1.0}
    for way, (seconds, own) in best.items():
        numbers[f"{name} {way} M rows/s"] = args.records / seconds / 1e6
        numbers[f"{name} {way} us of CPU a row"] = own / args.records * 1e6
    for way in ways.names[1:]:
        numbers[f"{name} times {way}"] = best[way][0] / best["holdfast"][0]
        numbers[f"{name} CPU to {way}"] = best["holdfast"][1] / best[way][1]
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--no-connector", dest="connector", action="store_false")
    parser.add_argument("--json", action="store_true", help="the numbers as one line of JSON")
    args = parser.parse_args()
    from holdfast.spark.session import spark_session

    settings = {"spark.jars": connector_jars()} if args.connector else {}
    numbers: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        Cluster(brokers=1, log_dirs=1, data_dir=Path(folder)) as cluster,
    ):
        spark = spark_session("spark_typed", cores=CORES, driver_memory="2g", settings=settings)
        try:
            for name in args.formats:
                numbers |= measure(spark, cluster.bootstrap, name, args)
        finally:
            spark.stop()
    if args.json:
        print(json.dumps(numbers))
    else:
        print(machine.describe())
        for title, value in numbers.items():
            print(f"{title:>40}: {value:,.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
