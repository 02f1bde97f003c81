"""The data source in batch: what is read is what was written; what cannot be done is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from holdfast.client.partitioner import partition_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from holdfast.testing import Cluster

pytestmark = pytest.mark.spark

KAFKA_COLUMNS = "key:binary value:binary topic:string partition:int offset:bigint timestamp:timestamp timestampType:int"


def kinds(frame: DataFrame) -> str:
    return " ".join(f"{field.name}:{field.dataType.simpleString()}" for field in frame.schema.fields)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_column_of_every_record(source: Any, produced: Any, topic: str, codec: str) -> None:
    values = [b"value %d" % i if i % 7 else None for i in range(600)]
    produced(topic, values, partitions=3, **{"compression.type": codec})
    frame = source(subscribe=topic, includeHeaders="true").load()
    assert kinds(frame) == KAFKA_COLUMNS + " headers:array<struct<key:string,value:binary>>"
    rows = sorted(frame.collect(), key=lambda row: row.offset * 3 + row.partition)
    assert [(row.partition, row.offset) for row in rows] == [(i % 3, i // 3) for i in range(600)]
    assert [None if row.value is None else bytes(row.value) for row in rows] == values
    assert [bytes(row.key) for row in rows] == [b"k%d" % i for i in range(600)]
    assert {row.topic for row in rows} == {topic} and {row.timestampType for row in rows} == {0}
    headers = [row.headers and [(h.key, h.value and bytes(h.value)) for h in row.headers] for row in rows]
    assert headers == [[("n", b"%d" % i), ("none", None)] if i % 3 == 0 else None for i in range(600)]
    assert kinds(source(subscribe=topic).load()) == KAFKA_COLUMNS


def test_ranges_of_offsets_and_a_schema_as_projection(source: Any, produced: Any, topic: str) -> None:
    produced(topic, [b"%d" % i for i in range(300)], partitions=2)
    frame = source(
        assign=f'{{"{topic}":[1]}}',
        startingOffsets=f'{{"{topic}":{{"1":10}}}}',
        endingOffsets=f'{{"{topic}":{{"1":140}}}}',
        minPartitions="4",
    )
    part = frame.schema("offset bigint, value binary").load()
    assert part.columns == ["offset", "value"]
    assert part.rdd.getNumPartitions() == 4
    assert [(row.offset, int(row.value)) for row in part.orderBy("offset").collect()] == [
        (i, 2 * i + 1) for i in range(10, 140)
    ]
    none = source(subscribe=topic, startingTimestamp="1", endingTimestamp="1").load()
    assert none.count() == 0
    pattern = source(subscribePattern=topic[:-1] + "[0-9]", startingOffsetsByTimestampStrategy="latest")
    assert pattern.load().where(F.col("topic") == topic).count() == 300
    assert pattern.option("startingTimestamp", str(2**42)).load().count() == 0


def test_what_is_wrong_is_said_by_name(source: Any, produced: Any, topic: str) -> None:
    produced(topic, [b"x"] * 5)

    def complaint(reader: DataFrameReader) -> str:
        with pytest.raises(PySparkException) as raised:
            reader.load().count()
        return str(raised.value)

    assert f"topic '{topic}-not' does not exist" in complaint(source(subscribe=f"{topic},{topic}-not"))
    assert "did you mean startingOffsets" in complaint(source(subscribe=topic, startingOffset="earliest"))
    assert f"topic {topic} has no partition 7" in complaint(source(assign=f'{{"{topic}":[7]}}'))
    beyond = source(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":99}}}}')
    assert f"partition {topic}-0: offset 99 is beyond the end of the log, 5" in complaint(beyond)
    assert beyond.option("failOnDataLoss", "false").load().count() == 0
    unnamed = source(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":0,"1":0}}}}')
    assert f"names {topic}-1, which is not subscribed to" in complaint(unnamed)
    assert "there is no column 'colour'" in complaint(source(subscribe=topic).schema("colour string"))
    assert "column offset is bigint, not string" in complaint(source(subscribe=topic).schema("offset string"))
    late = source(subscribe=topic, startingTimestamp=str(2**42))
    assert "no record at or after" in complaint(late)


def test_what_is_written_is_read_and_sits_where_clients_put_it(
    spark: SparkSession, cluster: Cluster, source: Any, produced: Any, topic: str
) -> None:
    produced(topic, [], partitions=3)
    rows = spark.range(500).selectExpr(
        "id AS row_of_no_record",
        "concat('k', id) AS key",
        "CASE WHEN id % 5 > 0 THEN cast(concat('v', id) AS binary) END AS value",
        "CASE WHEN id = 0 THEN 2 END AS partition",
        "array(struct('h' AS key, cast(cast(id AS string) AS binary) AS value)) AS headers",
    )
    target = rows.write.format("holdfast").option("kafka.bootstrap.servers", cluster.bootstrap)
    target.option("topic", topic).option("kafka.compression.type", "lz4").mode("append").save()
    found = source(subscribe=topic, includeHeaders="true").load().collect()
    assert sorted(int(bytes(row.key)[1:]) for row in found) == list(range(500))
    for row in found:
        number = int(bytes(row.key)[1:])
        assert row.partition == (2 if number == 0 else partition_of(bytes(row.key), 3))
        assert row.value == (None if number % 5 == 0 else f"v{number}".encode())
        assert [(h.key, bytes(h.value)) for h in row.headers] == [("h", b"%d" % number)]
    for rows_given, words in (
        (spark.range(1), "there is no column value; there are id"),
        (spark.range(1).selectExpr("id AS value"), "column value is bigint: expected binary or string"),
        (spark.range(1).selectExpr("'x' AS key"), "there is no column value"),
    ):
        bad = rows_given.write.format("holdfast").option("kafka.bootstrap.servers", cluster.bootstrap)
        with pytest.raises(Exception, match=words):
            bad.option("topic", topic).mode("append").save()


def read_values(read_all: Callable[[str], DataFrame], topic: str) -> list[str]:
    return sorted(bytes(row.value).decode() for row in read_all(topic).collect())


def test_the_topic_may_stand_in_a_column(
    spark: SparkSession, cluster: Cluster, read_all: Callable[[str], DataFrame], topic: str
) -> None:
    rows = spark.range(10).selectExpr(f"concat('{topic}-', id % 2) AS topic", "cast(id AS string) AS value")
    target = rows.write.format("holdfast").option("kafka.bootstrap.servers", cluster.bootstrap)
    target.mode("append").save()  # creates the topics
    assert read_values(read_all, f"{topic}-0") == ["0", "2", "4", "6", "8"]
    assert read_values(read_all, f"{topic}-1") == ["1", "3", "5", "7", "9"]
