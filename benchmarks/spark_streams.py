"""Spark's streams, first queries and writes: the data source ``holdfast`` beside Spark's own Kafka connector.

    python -m benchmarks.spark_streams available     Trigger.AvailableNow over 5 M records into nothing, warm
    python -m benchmarks.spark_streams idle          a row a second, topic to topic: produce to row in the sink
    python -m benchmarks.spark_streams trickle       the same with 10 rows a second
    python -m benchmarks.spark_streams write         5 M rows of a cached DataFrame into a topic
    python -m benchmarks.spark_streams first         the first query of a session, in JVMs of their own
    python -m benchmarks.spark_streams forks         the first query and a small availableNow, with and without forks
    python -m benchmarks.spark_streams realtime      the connector's real-time mode on our broker and on Kafka's

All on one broker of Holdfast's (``realtime``: and on one of Apache Kafka's), ``local[2]``. Readers take turns, and what
came out is counted. The connector runs with its defaults and tuned: TUNED of spark_read for what reads, and
``linger.ms=20``, ``batch.size=131072``, ``compression.type=lz4`` for what writes. What the machine did beside it is
stated as CPU seconds of others, the broker among them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.peers.kafka import missing_tool
from benchmarks.spark_read import CORES, TUNED, Readers, as_installed, connector_jars, load, say
from benchmarks.system import HOLDFAST, KAFKA, ROOT

READERS = ("holdfast", "connector", "connector tuned")
FORKS, NO_FORKS = "with forks", "without forks"
TUNED_WRITES = {"kafka.linger.ms": "20", "kafka.batch.size": "131072", "kafka.compression.type": "lz4"}
WARM_UP = 10
"""Rows at the start of a latency case that do not count: the first triggers compile."""
Numbers = dict[str, float]


def session(*, forks: bool = True, **settings: str) -> Any:
    from holdfast.spark.session import spark_session

    settings = {"spark.jars": connector_jars(), **settings}
    return spark_session("spark_streams", cores=CORES, driver_memory="2g", settings=settings, forks=forks)


def source(name: str) -> str:
    return "holdfast" if name == "holdfast" else "kafka"


def create(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result()


def ends(bootstrap: str, topic: str, partitions: int) -> int:
    """Records of a topic whose log begins at 0."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "spark-streams"})
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, n))[1] for n in range(partitions))
    finally:
        consumer.close()


def in_turn(
    names: tuple[str, ...], passes: int, records: int, brokers: frozenset[int], run: Callable[[str], float]
) -> Numbers:
    """The best of each, warm: a first pass of all does not count."""
    best: dict[str, float] = {}
    for number in range(passes + 1):
        for name in names:
            cpu, busy = machine.tree_cpu_s(brokers), machine.busy_seconds()
            seconds = run(name)
            own = machine.tree_cpu_s(brokers) - cpu
            others = machine.busy_seconds() - busy - own
            what = f"pass {number}" if number else "warm-up"
            say(f"{what} {name}: {records / seconds / 1e6:.2f} M rows/s, CPU {own:.1f} s, others {others:.1f} s")
            if number:
                best[name] = min(seconds, best.get(name, seconds))
    numbers: Numbers = {f"{name} M rows/s": records / seconds / 1e6 for name, seconds in best.items()}
    numbers.update({f"ratio to {name}": best[name] / best["holdfast"] for name in names if name != "holdfast"})
    return numbers


# -- throughput ------------------------------------------------------------------------------------------------------


def available(bootstrap: str, args: argparse.Namespace, root: Path) -> Numbers:
    """``noop`` takes the rows; the connector names all columns, so do we."""
    load(bootstrap, "available", args)
    brokers = machine.descendants()
    spark, number = session(), 0

    def run(name: str) -> float:
        nonlocal number
        number += 1
        reader = spark.readStream.format(source(name)).option("kafka.bootstrap.servers", bootstrap)
        reader = reader.options(subscribe="available", startingOffsets="earliest")
        rows = reader.options(**(TUNED if name == "connector tuned" else {})).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(root / f"checkpoint-{number}"))
        began = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - began
        seen = sum(each["numInputRows"] for each in query.recentProgress)
        if seen != args.records:
            raise RuntimeError(f"{name} read {seen} rows of {args.records}")
        return seconds

    try:
        return in_turn(READERS, args.passes, args.records, brokers, run)
    finally:
        spark.stop()


def write(bootstrap: str, args: argparse.Namespace, _: Path) -> Numbers:
    brokers = machine.descendants()
    spark, number = session(**{"spark.driver.memory": "4g"}), 0
    value = f"rpad(concat('v', id), {args.value_bytes}, 'x')"
    rows = spark.range(0, args.records, 1, CORES).selectExpr(
        "lpad(cast(id as string), 16, '0') AS key", f"{value} AS value"
    )
    rows = rows.cache()
    assert rows.count() == args.records

    def run(name: str) -> float:
        nonlocal number
        number += 1
        topic = f"write-{number}"
        create(bootstrap, topic, args.partitions)
        writer = rows.write.format(source(name)).option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        writer = writer.options(**(TUNED_WRITES if name != "connector" and name != "holdfast" else {})).mode("append")
        began = time.perf_counter()
        writer.save()
        seconds = time.perf_counter() - began
        found = ends(bootstrap, topic, args.partitions)
        if found != args.records:
            raise RuntimeError(f"{name} wrote {found} rows of {args.records}")
        return seconds

    try:
        return in_turn(READERS, args.passes, args.records, brokers, run)
    finally:
        spark.stop()


# -- the first query ---------------------------------------------------------------------------------------------------


def first(bootstrap: str, args: argparse.Namespace, _: Path) -> Numbers:
    """Each in a JVM of its own, whose start is left out; who goes first changes from run to run."""
    load(bootstrap, "first", args)
    took = in_sessions(READERS, bootstrap, args)
    numbers = {f"{name} s (median)": statistics.median(each) for name, (each, *_) in took.items()}
    for name in READERS[1:]:
        numbers[f"holdfast to {name}"] = statistics.median(took["holdfast"][0]) / statistics.median(took[name][0])
    return numbers


def forks(bootstrap: str, args: argparse.Namespace, _: Path) -> Numbers:
    """What forks save a session: its first query, and streams of a hundred records after it."""
    load(bootstrap, "first", args)
    load(bootstrap, "few", argparse.Namespace(**{**vars(args), "records": 100}))
    took = in_sessions((FORKS, NO_FORKS), bootstrap, args)
    return {
        f"{name}, {what} s (median)": statistics.median(each)
        for name, found in took.items()
        for what, each in zip(("first query", "availableNow of 100 records"), found, strict=True)
    }


def in_sessions(names: Sequence[str], bootstrap: str, args: argparse.Namespace) -> dict[str, tuple[list[float], ...]]:
    """For each name what its sessions took, each in a process of its own: the first query; with or without forks a
    stream, too."""
    took: dict[str, tuple[list[float], ...]] = {name: ([], []) for name in names}
    for number in range(args.runs):
        for name in names if number % 2 == 0 else names[::-1]:
            command = [sys.executable, "-m", "benchmarks.spark_streams", "first", "--child", name]
            done = subprocess.run(
                [*command, "--bootstrap", bootstrap, "--records", str(args.records)],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise RuntimeError(f"{name}: {done.stderr[-800:]}")
            for seconds, told in zip(done.stdout.strip().splitlines()[-1].split(), took[name], strict=False):
                told.append(float(seconds))
            say(f"run {number + 1} {name}: first query {took[name][0][-1]:.2f} s")
    return took


def first_child(bootstrap: str, name: str, records: int) -> None:
    spark = session(forks=name != NO_FORKS)
    readers = Readers(spark, bootstrap, "first", with_connector=True)
    began = time.perf_counter()
    frame = readers.frame("holdfast" if name in (FORKS, NO_FORKS) else name)
    found = frame.selectExpr("count(value)", "sum(length(value))").collect()[0]
    seconds = [time.perf_counter() - began]
    assert found[0] == records, found
    if name in (FORKS, NO_FORKS):
        with tempfile.TemporaryDirectory() as folder:
            seconds.append(statistics.median(small_stream(spark, bootstrap, f"{folder}/{n}") for n in range(5)))
    spark.stop()
    print(*seconds)


def small_stream(spark: Any, bootstrap: str, checkpoint: str) -> float:
    rows = spark.readStream.format("holdfast").option("kafka.bootstrap.servers", bootstrap)
    rows = rows.options(subscribe="few", startingOffsets="earliest").load()
    began = time.perf_counter()
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.perf_counter() - began
    assert sum(each["numInputRows"] for each in query.recentProgress) == 100
    return seconds


# -- latency -----------------------------------------------------------------------------------------------------------


class Watch(threading.Thread):
    """When each row came out of the sink, by its value."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Consumer

        super().__init__(name="sink-watch", daemon=True)
        self.seen: dict[bytes, float] = {}
        self.stop = threading.Event()
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{topic}-watch", "auto.offset.reset": "earliest",
             "fetch.wait.max.ms": 100}
        )  # fmt: skip
        self._consumer.subscribe([topic])

    def run(self) -> None:
        while not self.stop.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.seen.setdefault(message.value(), time.monotonic())
        self._consumer.close()


def latencies(
    spark: Any, bootstrap: str, name: str, topic: str, gap_s: float, rows: int, root: Path, **trigger: str
) -> list[float]:
    """Milliseconds from produce to the row in the sink's topic, by a consumer that sits on it; of ``rows`` rows that
    are produced one by one."""
    from confluent_kafka import Producer

    for each in (topic, f"{topic}-out"):
        create(bootstrap, each, 1)
    watch = Watch(bootstrap, f"{topic}-out")
    watch.start()
    reader = spark.readStream.format(source(name)).option("kafka.bootstrap.servers", bootstrap)
    reader = reader.options(subscribe=topic, startingOffsets="earliest")
    frame = reader.options(**(TUNED if name == "connector tuned" else {})).load().select("key", "value")
    writer = frame.writeStream.format(source(name)).option("kafka.bootstrap.servers", bootstrap)
    writer = writer.options(topic=f"{topic}-out", checkpointLocation=str(root / f"checkpoint-{topic}"))
    if trigger:
        writer = writer.outputMode("update").trigger(**trigger)
    query = writer.start()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    sent: dict[bytes, float] = {}
    try:
        due = time.monotonic()
        for number in range(rows + WARM_UP):
            due += gap_s
            value = b"%s-%d" % (topic.encode(), number)
            while time.monotonic() < due:
                producer.poll(max(0.0, min(0.05, due - time.monotonic())))
            sent[value] = time.monotonic()
            producer.produce(topic, value)
            producer.poll(0)
            if number == 0:  # the first trigger starts processes
                _until(lambda: bool(watch.seen), query)
                due = time.monotonic()
        producer.flush(30)
        _until(lambda: len(watch.seen) == len(sent), query)
    finally:
        query.stop()
        watch.stop.set()
        watch.join()
    counted = list(sent)[WARM_UP:]
    return [(watch.seen[value] - sent[value]) * 1000 for value in counted]


def _until(done: Callable[[], bool], query: Any) -> None:
    limit = time.monotonic() + 120
    while not done():
        if query.exception() is not None or time.monotonic() > limit:
            raise RuntimeError(f"rows did not come out: {query.exception()}")
        time.sleep(0.01)


def told(found: dict[str, list[float]]) -> Numbers:
    numbers: Numbers = {}
    for name, each in found.items():
        numbers[f"{name} p50 ms"], numbers[f"{name} p99 ms"] = (float(np.percentile(each, q)) for q in (50, 99))
    return numbers


def trickled(bootstrap: str, args: argparse.Namespace, root: Path, per_second: float) -> Numbers:
    spark = session()
    found: dict[str, list[float]] = {name: [] for name in READERS}
    try:
        for number in range(args.turns + 1):
            for name in READERS:
                topic = f"t{number}-{name.replace(' ', '-')}"
                busy = machine.busy_seconds()
                each = latencies(spark, bootstrap, name, topic, 1 / per_second, args.rows, root)
                busy = machine.busy_seconds() - busy
                found[name] += each if number else []
                what = f"turn {number}" if number else "warm-up"
                say(f"{what} {name}: p50 {np.median(each):.0f} ms ({busy:.1f} CPU s in all)")
    finally:
        spark.stop()
    numbers = told(found)
    for name in READERS[1:]:
        numbers[f"holdfast to {name}, p50"] = numbers["holdfast p50 ms"] / numbers[f"{name} p50 ms"]
    return numbers


def idle(bootstrap: str, args: argparse.Namespace, root: Path) -> Numbers:
    return trickled(bootstrap, args, root, 1)


def trickle(bootstrap: str, args: argparse.Namespace, root: Path) -> Numbers:
    return trickled(bootstrap, args, root, 10)


def realtime(bootstrap: str, args: argparse.Namespace, root: Path) -> Numbers:
    """The connector in real-time mode, on our broker and on Kafka's in turn, 10 rows a second."""
    missing = missing_tool()
    if missing:
        raise RuntimeError(f"no {missing} on the PATH: there is no Apache Kafka to compare with")
    spark = session()
    p50s: dict[str, list[float]] = {}
    p99s: dict[str, list[float]] = {}
    try:
        with KAFKA.cluster(root / "kafka", 1) as peer:
            brokers = {"holdfast": bootstrap, "kafka": peer.bootstrap}
            for number in range(args.runs):
                for name, address in brokers.items():
                    each = latencies(
                        spark, address, "connector", f"rt{number}-{name}", 0.1, args.rows, root, realTime="2 minutes"
                    )
                    p50, p99 = np.percentile(each, [50, 99])
                    say(f"run {number + 1} on {name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
                    p50s.setdefault(name, []).append(float(p50))
                    p99s.setdefault(name, []).append(float(p99))
    finally:
        spark.stop()
    numbers: Numbers = {}
    for what, found in (("p50", p50s), ("p99", p99s)):
        numbers.update({f"{name} {what} ms (median)": statistics.median(each) for name, each in found.items()})
        numbers[f"holdfast to kafka, {what}"] = statistics.median(found["holdfast"]) / statistics.median(found["kafka"])
    return numbers


CASES: dict[str, Callable[[str, argparse.Namespace, Path], Numbers]] = {
    "available": available, "idle": idle, "trickle": trickle, "write": write, "first": first, "forks": forks,
    "realtime": realtime,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=tuple(CASES))
    parser.add_argument("--records", type=int, default=5_000_000, help="of available, write, first and forks")
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--codec", default="none", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--passes", type=int, default=5, help="of available and write, after the one that warms up")
    parser.add_argument("--runs", type=int, default=5, help="of first, forks and realtime")
    parser.add_argument("--rows", type=int, default=60, help="of a turn, where latency is measured")
    parser.add_argument("--turns", type=int, default=2, help="of idle and trickle, after the one that warms up")
    parser.add_argument("--json", action="store_true", help="the numbers as one line of JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        first_child(args.bootstrap, args.child, args.records)
        return 0
    as_installed()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        root = Path(folder)
        with HOLDFAST.cluster(root / "cluster", 1) as cluster:
            numbers = CASES[args.case](cluster.bootstrap, args, root)
    if args.json:
        print(json.dumps(numbers))
    else:
        print(json.dumps({"commit": machine.commit(), **machine.describe()}))
        for name, value in numbers.items():
            print(f"{name:>32}: {value:,.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
