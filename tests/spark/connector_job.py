"""``python -m tests.spark.connector_job BOOTSTRAP TOPIC FOLDER``: Spark's own connector on these brokers.

A session of its own, since jars are named when a JVM starts. Prints what it saw as one line of JSON:

    batch       rows, sum of offsets and a hash over all columns of all rows, by the connector and by our source
    headers     rows whose headers both read alike
    from        rows of a range that startingOffsets and endingOffsets name
    streamed    rows of TOPIC-copy after two runs of availableNow with one checkpoint, 100 records between them
    names       all options, settings of Kafka's clients and settings of the session that the connector's classes know
    real_time   values that real-time mode took from TOPIC-live to TOPIC-live-copy while it ran
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.spark_read import COLUMNS, connector_jars
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.spark.session import spark_session
from holdfast.testing import wait_for

LATER, LIVE = 100, 20
LIMIT_S = 120


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, value)
    assert producer.flush(LIMIT_S) == 0


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 2, 3) for topic in topics]).values():
        future.result()


class Job:
    """The session, and what each part of the docstring needs."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.bootstrap, self.topic, self.folder = bootstrap, topic, folder
        self.spark = spark_session(
            "connector", cores=3, settings={"spark.jars": connector_jars(), "spark.sql.shuffle.partitions": "1"}
        )

    def reader(self, name: str, topic: str, **options: str) -> Any:
        reader = self.spark.read.format(name).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(subscribe=topic, includeHeaders="true", **options).load()

    def fingerprint(self, name: str) -> list[int]:
        hashed = f"bit_xor(xxhash64({', '.join(COLUMNS)}))"
        row = self.reader(name, self.topic).selectExpr("count(*)", "sum(offset)", hashed).collect()[0]
        return [int(value) for value in row]

    def headers_alike(self) -> int:
        found = [
            {(row.partition, row.offset): [(h.key, bytes(h.value or b"")) for h in row.headers or []] for row in rows}
            for rows in (self.reader(name, self.topic).collect() for name in ("kafka", "holdfast"))
        ]
        return sum(found[0].get(place) == headers and bool(headers) for place, headers in found[1].items())

    def of_range(self) -> int:
        start, end = (json.dumps({self.topic: {"0": at, "1": at}}) for at in (10, 30))
        return int(self.reader("kafka", self.topic, startingOffsets=start, endingOffsets=end).count())

    def stream(self, source: str, target: str, checkpoint: str, options: dict[str, str], **trigger: Any) -> Any:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        rows = reader.options(subscribe=source, startingOffsets="earliest", **options).load().select("key", "value")
        writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        writer = writer.options(topic=target, checkpointLocation=str(self.folder / checkpoint))
        return writer.outputMode("update").trigger(**trigger).start()

    def names(self) -> dict[str, list[str]]:
        jvm: Any = self.spark._jvm
        sources = self.constants("org.apache.spark.sql.kafka010.KafkaSourceProvider$")
        tokens = self.constants("org.apache.spark.kafka010.KafkaTokenSparkConf$")
        clients = {
            "read": jvm.org.apache.kafka.clients.consumer.ConsumerConfig.configNames(),
            "write": jvm.org.apache.kafka.clients.producer.ProducerConfig.configNames(),
        }
        entries = self.constants("org.apache.spark.sql.kafka010.package$")
        return {
            "options": [
                each for each in sources if isinstance(each, str) and re.fullmatch(r"_?[a-z]+[a-zA-Z.]*", each)
            ],
            "session": [
                *(each.key() for each in entries if hasattr(each, "key")),
                *(each for each in tokens if isinstance(each, str) and each.startswith("spark.")),
            ],
            **{place: sorted(f"kafka.{name}" for name in names) for place, names in clients.items()},
        }

    def constants(self, name: str) -> list[Any]:
        """The values of the fields of a Scala object."""
        jvm: Any = self.spark._jvm
        found = jvm.java.lang.Class.forName(name, True, jvm.Thread.currentThread().getContextClassLoader())
        instance = found.getField("MODULE$").get(None)
        values = []
        for field in found.getDeclaredFields():
            field.setAccessible(True)
            if field.getName() != "MODULE$":
                values.append(field.get(instance))
        return values

    def streamed(self) -> int:
        for later in (0, LATER):
            produce(self.bootstrap, self.topic, [b"later-%d" % number for number in range(later)])
            query = self.stream(
                self.topic, f"{self.topic}-copy", "copy", {"maxOffsetsPerTrigger": "400"}, availableNow=True
            )
            assert query.awaitTermination(LIMIT_S), "availableNow did not end"
        return int(self.reader("kafka", f"{self.topic}-copy").count())

    def real_time(self) -> list[str]:
        """Records are produced one by one, each after the one before it has come out."""
        source, target = f"{self.topic}-live", f"{self.topic}-live-copy"
        create(self.bootstrap, source, target)
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": target, "auto.offset.reset": "earliest"})
        consumer.subscribe([target])
        query = self.stream(source, target, "real-time", {}, realTime="5 seconds")
        seen: list[str] = []
        try:
            for number in range(LIVE):
                produce(self.bootstrap, source, [b"live-%d" % number])

                def came() -> bool:
                    assert query.isActive, query.exception()
                    message = consumer.poll(1)
                    if message is not None and message.error() is None:
                        seen.append(message.value().decode())
                    return len(seen) > number  # noqa: B023 - asked before the loop goes on

                wait_for(came, f"record {number} to come out of real-time mode", timeout_s=LIMIT_S)
        finally:
            query.stop()
            consumer.close()
        return seen


def main() -> None:
    """See the module."""
    job = Job(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    found = {
        "batch": [job.fingerprint("kafka"), job.fingerprint("holdfast")],
        "headers": job.headers_alike(),
        "from": job.of_range(),
        "names": job.names(),
    }
    create(job.bootstrap, f"{job.topic}-copy")
    found["streamed"] = job.streamed()
    found["real_time"] = job.real_time()
    job.spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
