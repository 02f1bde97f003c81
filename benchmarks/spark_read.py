"""Spark's batch read of a topic: the data source ``holdfast`` beside Spark's own Kafka connector, in one session.

    python -m benchmarks.spark_read                          5 M records of 100 B, as docs/spark.md quotes
    python -m benchmarks.spark_read --value-bytes 1024 --codec zstd --partitions 6
    python -m benchmarks.spark_read --batch-records 1 --records 1000000
    python -m benchmarks.spark_read --value-only             only ``value`` is asked for, which the connector cannot

Readers take turns within one session, the best of the passes counts, and every reader's count and hash over all
columns must be equal. The connector runs with its defaults (500 records a poll) and tuned. Its jars come by Maven; for
the installed PySpark's version the registry lacks one of them, its token provider, for which an older one stands in:
that one is not on the data path.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.peers.kafka import cache_dir
from holdfast.testing import Cluster

CORES = 2
KEY_BYTES = 16
DISTINCT = 20_000
TUNED = {"kafka.max.poll.records": "50000", "kafka.max.partition.fetch.bytes": "8388608"}
TOKEN_PROVIDER = "4.0.0"
KAFKA_CLIENTS = "3.9.2"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def as_installed() -> None:
    """Processes that begin from now on, those of Spark, do without what only tests need."""
    ours = str(Path(__file__).parent / "as_installed")
    os.environ["PYTHONPATH"] = os.pathsep.join([ours, *filter(None, [os.environ.get("PYTHONPATH")])])


def connector_jars() -> str:
    """Paths of the connector's jars, fetched once; raises when Maven cannot."""
    import pyspark

    version = pyspark.__version__
    wanted = [
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", version),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", TOKEN_PROVIDER),
        ("org.apache.kafka", "kafka-clients", KAFKA_CLIENTS),
        ("org.apache.commons", "commons-pool2", "2.13.1"),
    ]
    return fetched(f"spark-kafka-{version}", wanted)


def fetched(name: str, wanted: list[tuple[str, str, str]]) -> str:
    """Paths of these artifacts' jars, and of none that they depend on; RuntimeError when Maven cannot."""
    place = cache_dir() / name
    if not (place / "complete").exists():
        place.mkdir(parents=True, exist_ok=True)
        alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        dependencies = "".join(
            f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version>{alone}</dependency>"
            for g, a, v in wanted
        )
        (place / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            f"<groupId>holdfast.bench</groupId><artifactId>{name}</artifactId><version>1</version>"
            f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
        )
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={place}"]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Maven could not fetch {name}: {(done.stdout + done.stderr)[-600:]}")
        (place / "complete").touch()
    return ",".join(str(each) for each in sorted(place.glob("*.jar")))


def load(bootstrap: str, topic: str, args: argparse.Namespace) -> None:
    """Writes the records as an ordinary librdkafka producer does."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, args.partitions, 1)]).values():
        future.result()
    chance = random.Random(1)
    values = []
    for number in range(DISTINCT):
        head = (
            f'{{"id":{number:07d},"noise":"{chance.getrandbits(4 * (args.value_bytes // 2 - 20)):x}","pad":"'.encode()
        )
        values.append(head + b"x" * (args.value_bytes - len(head) - 2) + b'"}')
    keys = [f"key-{number:012d}".encode() for number in range(DISTINCT)]
    assert {len(value) for value in values} == {args.value_bytes} and {len(key) for key in keys} == {KEY_BYTES}
    settings = {"acks": "all", "linger.ms": 20, "batch.size": 65536, "compression.type": args.codec}
    if getattr(args, "batch_records", 0):
        settings["batch.num.messages"] = args.batch_records
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 500_000, **settings})
    for number in range(args.records):
        while True:
            try:
                producer.produce(topic, values[number % DISTINCT], keys[number % DISTINCT])
                break
            except BufferError:
                producer.poll(0.05)
        if number % 20_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")


class Readers:
    """The readers that are compared, by name."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, with_connector: bool, value_only: bool = False) -> None:
        self._spark, self._bootstrap, self._topic, self._value_only = spark, bootstrap, topic, value_only
        self.names = ["holdfast"] + (["connector", "connector tuned"] if with_connector else [])

    def frame(self, name: str, *, value_only: bool = False) -> Any:
        reader = self._spark.read.format("holdfast" if name == "holdfast" else "kafka")
        reader = reader.option("kafka.bootstrap.servers", self._bootstrap).option("subscribe", self._topic)
        for key, value in (TUNED if name == "connector tuned" else {}).items():
            reader = reader.option(key, value)
        return (reader.schema("value binary") if value_only and name == "holdfast" else reader).load()

    def fingerprint(self, name: str) -> tuple[int, int, int]:
        """Records, sum of offsets and a hash over all columns of all records."""
        hashed = f"bit_xor(xxhash64({', '.join(COLUMNS)}))"
        row = self.frame(name).selectExpr("count(*)", "sum(offset)", hashed).collect()[0]
        return row[0], row[1], row[2]

    def timed(self, name: str) -> float:
        began = time.perf_counter()
        columns = ("value",) if self._value_only else ("key", "value")
        sums = (f"sum(length({each}))" for each in columns)
        row = self.frame(name, value_only=self._value_only).selectExpr(*sums).collect()[0]
        seconds = time.perf_counter() - began
        assert all(row)
        return seconds


def measure(bootstrap: str, args: argparse.Namespace) -> dict[str, float]:
    from holdfast.spark.session import spark_session

    topic = f"spark-read-{time.time_ns() // 1_000_000}"
    say(f"loading {args.records:,} records of {args.value_bytes} B")
    load(bootstrap, topic, args)
    settings = {} if args.no_connector else {"spark.jars": connector_jars()}
    say("starting Spark")
    spark = spark_session("spark_read", cores=CORES, driver_memory="2g", settings=settings)
    readers = Readers(spark, bootstrap, topic, not args.no_connector, args.value_only)
    try:
        prints = {name: readers.fingerprint(name) for name in readers.names}
        say(f"count, sum of offsets, hash: {prints}")
        seconds: dict[str, list[float]] = {name: [] for name in readers.names}
        for number in range(args.passes):
            for name in readers.names:
                foreign = machine.busy_seconds() - sum(os.times()[:4])
                took = readers.timed(name)
                seconds[name].append(took)
                busy = machine.busy_seconds() - sum(os.times()[:4]) - foreign
                say(f"pass {number + 1} {name}: {args.records / took / 1e6:.2f} M rows/s ({busy:.1f} CPU s in all)")
    finally:
        spark.stop()
    numbers: dict[str, float] = {f"{name} rows/s": args.records / min(each) for name, each in seconds.items()}
    for name in readers.names[1:]:
        numbers[f"ratio to {name}"] = min(seconds[name]) / min(seconds["holdfast"])
    same = len(set(prints.values())) == 1 and next(iter(prints.values()))[0] == args.records
    numbers["equal"] = float(same)
    if not same:
        raise RuntimeError(f"the readers disagree: {prints}")
    return numbers


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--codec", default="none", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--value-only", action="store_true")
    parser.add_argument("--batch-records", type=int, default=0, help="records in a record batch at most")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--bootstrap", help="a running cluster (default: a broker of Holdfast's own)")
    parser.add_argument("--no-connector", action="store_true", help="Spark's own connector is left out")
    parser.add_argument("--json", action="store_true", help="the numbers as one line of JSON")
    args = parser.parse_args()
    as_installed()
    if not args.no_connector and (shutil.which("mvn") is None or shutil.which("java") is None):
        say("no Maven or Java on the PATH: Spark's own connector is left out")
        args.no_connector = True
    if args.bootstrap:
        numbers = measure(args.bootstrap, args)
    else:
        with (
            tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
            Cluster(brokers=1, log_dirs=1, data_dir=Path(folder)) as cluster,
        ):
            numbers = measure(cluster.bootstrap, args)
    if args.json:
        print(json.dumps(numbers))
    else:
        for name, value in numbers.items():
            print(f"{name:>28}: {value:,.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
