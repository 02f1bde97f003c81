"""A micro-batch over many partitions with few records: the source ``holdfast`` beside Spark's own Kafka connector.

    python -m benchmarks.spark_many_partitions             5,000 partitions of 5 records in each micro-batch

Each reader has a stream of its own, with a checkpoint; before each turn every partition gets its records, and the time
is that of the trigger which reads them (``triggerExecution`` of its progress). The first turn warms up. The number of
rows of each trigger and the sum of their hashes must be equal.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.spark_read import CORES, TUNED, connector_jars, say
from benchmarks.system import HOLDFAST

READERS = ("holdfast", "connector", "connector tuned")
TOPIC = "many"
HASH = "sum(cast(xxhash64(topic, partition, offset, timestamp, key, value) as decimal(38, 0)))"


def produce(bootstrap: str, partitions: int, records: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    for number in range(partitions * records):
        producer.produce(TOPIC, b"value-%d" % number, partition=number % partitions)
        producer.poll(0)
    left = producer.flush(300)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")


class Streams:
    """A stream of each reader, trigger by trigger."""

    def __init__(self, spark: Any, bootstrap: str, root: Path) -> None:
        self._spark, self._bootstrap, self._root = spark, bootstrap, root

    def trigger(self, name: str) -> tuple[float, int, int]:
        """Reads what is new: seconds of the trigger, rows, and the sum of their hashes."""
        found: list[tuple[int, int]] = []

        def batch(frame: Any, _number: int) -> None:
            row = frame.selectExpr("count(*)", HASH).collect()[0]
            found.append((row[0], int(row[1] or 0)))

        reader = self._spark.readStream.format("holdfast" if name == "holdfast" else "kafka")
        reader = reader.option("kafka.bootstrap.servers", self._bootstrap).option("subscribe", TOPIC)
        reader = reader.option("startingOffsets", "earliest").options(**(TUNED if name == "connector tuned" else {}))
        place = str(self._root / name.replace(" ", "-"))
        writer = reader.load().writeStream.foreachBatch(batch).option("checkpointLocation", place)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        took = sum(each["durationMs"]["triggerExecution"] for each in query.recentProgress if each["numInputRows"])
        return took / 1000, sum(rows for rows, _ in found), sum(hashes for _, hashes in found)


def measure(bootstrap: str, root: Path, args: argparse.Namespace) -> dict[str, float]:
    from confluent_kafka.admin import AdminClient, NewTopic

    from holdfast.spark.session import spark_session

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, args.partitions, 1)], operation_timeout=300).values():
        future.result()
    spark = spark_session(
        "spark_many_partitions", cores=CORES, driver_memory="3g", settings={"spark.jars": connector_jars()}
    )
    streams, best = Streams(spark, bootstrap, root), {}
    names = READERS if args.connector else READERS[:1]
    try:
        for number in range(args.turns + 1):
            produce(bootstrap, args.partitions, args.records)
            results = {}
            for name in names:
                busy = machine.busy_seconds()
                seconds, *results[name] = streams.trigger(name)
                busy = machine.busy_seconds() - busy
                say(f"turn {number} {name}: {seconds:.2f} s, {results[name][0]} rows ({busy:.1f} CPU s in all)")
                if number:
                    best[name] = min(seconds, best.get(name, seconds))
            wanted = args.partitions * args.records
            if len({tuple(each) for each in results.values()}) != 1 or results["holdfast"][0] != wanted:
                raise RuntimeError(f"of {wanted} rows the readers found {results}")
    finally:
        spark.stop()
    numbers: dict[str, float] = {f"{name} s": seconds for name, seconds in best.items()}
    numbers.update({f"holdfast to {name}": best["holdfast"] / best[name] for name in names[1:]})
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--records", type=int, default=5, help="of each partition in a micro-batch")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--no-connector", dest="connector", action="store_false")
    parser.add_argument("--json", action="store_true", help="the numbers as one line of JSON")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        HOLDFAST.cluster(Path(folder) / "cluster", 1) as cluster,
    ):
        numbers = measure(cluster.bootstrap, Path(folder), args)
    if args.json:
        print(json.dumps(numbers))
    else:
        print(json.dumps({"commit": machine.commit(), **machine.describe()}))
        for name, value in numbers.items():
            print(f"{name:>32}: {value:,.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
