"""Streams: exactly the records that there are, in limited batches, across restarts; and a live one."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.testing import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.testing import Cluster

pytestmark = pytest.mark.spark


def stream(spark: SparkSession, cluster: Cluster, topic: str, **options: str) -> Any:
    reader = spark.readStream.format("holdfast").option("kafka.bootstrap.servers", cluster.bootstrap)
    for name, value in {"subscribe": topic, "startingOffsets": "earliest", **options}.items():
        reader = reader.option(name, value)
    return reader.load()


def test_limited_batches_to_another_topic_and_on_after_a_restart(
    spark: SparkSession, cluster: Cluster, produced: Any, source: Any, topic: str, tmp_path: Path
) -> None:
    produced(topic, [b"%d" % i for i in range(1000)], partitions=2)

    def run() -> Any:
        rows = stream(spark, cluster, topic, maxOffsetsPerTrigger="400").select("key", "value")
        target = rows.writeStream.format("holdfast").option("kafka.bootstrap.servers", cluster.bootstrap)
        target = target.option("topic", f"{topic}-copy").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = target.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    query = run()
    assert [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]] == [400, 400, 200]
    place = query.lastProgress["sources"][0]
    assert json.loads(json.dumps(place["endOffset"])) in ({topic: {"0": 500, "1": 500}}, place["endOffset"])
    produced(topic, [b"%d" % i for i in range(1000, 1100)], partitions=2)
    run()
    copied = source(subscribe=f"{topic}-copy").load().collect()
    assert sorted(int(row.value) for row in copied) == list(range(1100))


def test_batches_are_limited_by_their_bytes_in_the_log(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    values = [b"%d" % i if i % 2 else b"%d " % i + bytes(1000) for i in range(1200)]
    # 600 kB in one partition and a fraction of that in the other, in batches of 16 kB at most
    produced(topic, values, partitions=2, **{"batch.size": 16384})
    got: list[list[bytes]] = []

    def take(rows: Any, batch: int) -> None:
        got.append([bytes(row.value) for row in rows.collect()])

    rows = stream(spark, cluster, topic, maxBytesPerTrigger="200000").writeStream.foreachBatch(take)
    query = rows.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    sizes = [sum(map(len, batch)) for batch in got]
    assert all(120_000 < size <= 200_000 for size in sizes[:-1]) and len(sizes) in (4, 5)
    assert sorted(value for batch in got for value in batch) == sorted(values)


def test_a_live_stream_sees_new_records_and_new_partitions(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    from holdfast.client.blocking import BlockingClient

    produced(topic, [b"0", b"1"])
    rows = stream(spark, cluster, topic, startingOffsets="latest").selectExpr("cast(value AS string) AS value")
    name = "live_" + "".join(letter for letter in topic if letter.isalnum())
    target = rows.writeStream.format("memory").queryName(name)
    query = target.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_for(lambda: query.lastProgress or not query.isActive, "the first look of the stream")
        produced(topic, [b"2"])
        wait_for(lambda: spark.table(name).count() == 1, "the new record")
        with BlockingClient(cluster.bootstrap) as client:
            client.create_partitions(topic, 2)
        produced(topic, [b"3", b"4"], partitions=2)
        wait_for(lambda: spark.table(name).count() == 3, "records of old and new partition", timeout_s=60)
        assert sorted(row.value for row in spark.table(name).collect()) == ["2", "3", "4"]
        assert query.exception() is None
    finally:
        query.stop()


def test_spark_D9_a_first_batch_that_failed_is_read_again_as_it_was(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    produced(topic, [b"0", b"1"])
    got: list[list[int]] = []
    fail = True

    def take(rows: Any, batch: int) -> None:
        got.append(sorted(int(row.value) for row in rows.collect()))
        if fail:
            raise RuntimeError("as asked")

    def start(offsets: str) -> Any:
        rows = stream(spark, cluster, topic, startingOffsets=offsets).writeStream.foreachBatch(take)
        target = rows.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = target.trigger(availableNow=True).start()
        with suppress(Exception):
            query.awaitTermination()
        return query

    start("earliest")
    fail = False
    produced(topic, [b"2", b"3"])
    # Where it begins is in the checkpoint, and not asked again: what "latest" is now would leave two records out.
    assert start("latest").exception() is None
    assert got == [[0, 1], [0, 1], [2, 3]]


def test_spark_D4_a_topic_that_was_made_again_ends_a_stream_or_is_read_from_its_start(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    from holdfast.client.blocking import BlockingClient

    def run(**options: str) -> list[int]:
        got: list[int] = []
        rows = stream(spark, cluster, topic, **options)
        target = rows.writeStream.foreachBatch(lambda batch, _: got.extend(int(row.value) for row in batch.collect()))
        query = target.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(got)

    produced(topic, [b"%d" % i for i in range(10)])
    assert run() == list(range(10))
    with BlockingClient(cluster.bootstrap) as client:
        assert client.delete_topics([topic]) == {topic: None}
        wait_for(lambda: client.metadata([topic]).topics[topic].error, "the end of the topic")
    produced(topic, [b"%d" % i for i in range(100, 130)])
    with pytest.raises(Exception, match=f"topic {topic} was deleted and made again"):
        run()
    assert run(onTopicRecreated="restart") == list(range(100, 130))
    assert run() == []


def test_records_that_are_gone_end_a_read_unless_that_is_fine(
    spark: SparkSession, cluster: Cluster, produced: Any, source: Any, topic: str, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    def run(**options: str) -> list[int]:
        got: list[int] = []
        rows = stream(spark, cluster, topic, **options)
        target = rows.writeStream.foreachBatch(lambda batch, _: got.extend(int(row.value) for row in batch.collect()))
        query = target.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(got)

    produced(topic, [b"%d" % i for i in range(10)])
    assert run() == list(range(10))
    for number in range(10, 40, 10):  # batches of their own, so that the deletion cuts between two
        produced(topic, [b"%d" % i for i in range(number, number + 10)])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    deleted = admin.delete_records([TopicPartition(topic, 0, 20)])
    for future in deleted.values():
        future.result()
    start = f'{{"{topic}":{{"0":5}}}}'
    gone = f"partition {topic}-0: offset 5 is gone, the log starts at 20"
    with pytest.raises(Exception, match=gone):
        source(subscribe=topic, startingOffsets=start).load().count()
    lenient = source(subscribe=topic, startingOffsets=start, failOnDataLoss="false").load()
    assert sorted(int(row.value) for row in lenient.collect()) == list(range(20, 40))
    with pytest.raises(Exception, match="offset 10 is gone, the log starts at 20"):
        run()
    assert run(failOnDataLoss="false") == list(range(20, 40))
