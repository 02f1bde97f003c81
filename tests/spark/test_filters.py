"""Filters of a query on Spark: fewer records are read, and the rows are those of a read without."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, LessThan

from holdfast.spark.filtering_reader import FilteringReader
from holdfast.spark.options import parse_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.testing import Cluster

pytestmark = pytest.mark.spark

RECORDS = 3000
FIRST = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
"""Not so old that retention takes the records."""


def time_of(number: int) -> datetime:
    """Later with each record, but for every tenth, which is an hour early or late."""
    jump = timedelta(hours=(1, -1)[number // 10 % 2]) if number % 10 == 0 else timedelta()
    return FIRST + timedelta(seconds=number) + jump


@pytest.fixture
def filled(cluster: Cluster, produced: Any, topic: str) -> str:
    from confluent_kafka import Producer

    produced(topic, [], partitions=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "batch.size": 4096})
    for number in range(RECORDS):
        time_ms = int(time_of(number).timestamp() * 1000)
        producer.produce(topic, b'{"n":%d}' % number, partition=number % 3, timestamp=time_ms)
    assert producer.flush(60) == 0
    return topic


def read_rows(frame: DataFrame) -> int:
    """Rows that came out of the source when the frame was collected last."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    metrics = leaves.head().metrics()
    return int(metrics.apply("numOutputRows").value())


COLUMNS = "topic string, partition int, offset bigint, timestamp timestamp, n int"


def test_rows_are_those_of_a_read_without_and_fewer_are_read(spark: SparkSession, source: Any, filled: str) -> None:
    typed = {"subscribe": filled, "value.format": "json"}
    frame = source(**typed).schema(COLUMNS).load()
    everything = frame.collect()
    assert read_rows(frame) == len(everything) == RECORDS

    def at(seconds: int) -> str:
        return f"timestamp'{(FIRST + timedelta(seconds=seconds)).strftime('%Y-%m-%d %H:%M:%S')}'"

    def age(row: Any) -> float:
        return float(row.timestamp.timestamp() - FIRST.timestamp())

    for where, wanted, most in (
        ("partition <> 1 AND offset >= 400 AND offset < 450", lambda r: r[1] != 1 and 400 <= r[2] < 450, 100),
        ("topic LIKE '%z' OR offset IN (3, 900)", lambda r: r[2] in (3, 900), RECORDS),
        (f"timestamp >= {at(5000)} AND partition = 0 AND n % 7 = 0", lambda r: age(r) >= 5000 and not r[4] % 21, 51),
        (f"timestamp > {at(3500)} AND timestamp <= {at(4000)}", lambda r: 3500 < age(r) <= 4000, 80),
    ):
        found = source(**typed, pushDownFilters="true").schema(COLUMNS).load().where(where)
        rows = sorted(map(tuple, found.collect()))
        assert rows == sorted(tuple(row) for row in everything if wanted(row)), where
        assert len(rows) <= read_rows(found) <= most, where
    unasked = frame.where("offset = 7")
    assert len(unasked.collect()) == 3 and read_rows(unasked) == RECORDS
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        with pytest.raises(PySparkException, match=r"spark\.sql\.python\.filterPushdown\.enabled"):
            source(subscribe=filled, pushDownFilters="true").load().where("offset = 7").collect()
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_spark_itself_reads_a_data_frame_by_the_filters_of_its_last_use(source: Any, filled: str) -> None:
    """Why pushDownFilters is false by default, and docs/spark.md warns of it. Where this fails, Spark has mended it."""
    twice = source(subscribe=filled, pushDownFilters="true").schema("partition int").load()
    assert twice.where("partition = 0").count() == RECORDS // 3
    assert twice.count() == RECORDS // 3, "Spark plans each use of a DataFrame by itself: the default can be true"
    once = source(subscribe=filled).schema("partition int").load()
    assert once.where("partition = 0").count() == RECORDS // 3
    assert once.count() == RECORDS


def test_a_time_cuts_ranges_before_the_first_record_that_is_as_young(cluster: Cluster, filled: str) -> None:
    from pyspark.sql.types import StructField, StructType, TimestampType

    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": filled}
    schema = StructType([StructField("timestamp", TimestampType())])

    def ranges(*filters: Any, **options: str) -> list[tuple[int, int, int]]:
        reader = FilteringReader(schema, parse_read(given | options, streaming=False))
        rest: list[Any] = list(reader.pushFilters(list(filters)))
        assert [each for each in rest if each.attribute == ("timestamp",)] == rest
        tasks: Any = reader.partitions()
        return sorted((each.tp.partition, each.start, each.end) for task in tasks for each in task.ranges)

    since = FIRST + timedelta(seconds=4000)
    first = [
        min(n // 3 for n in range(RECORDS) if n % 3 == partition and time_of(n) >= since) for partition in range(3)
    ]
    assert all(first)
    bound = GreaterThanOrEqual(("timestamp",), since)
    assert ranges(bound) == [(partition, first[partition], 1000) for partition in range(3)]
    assert ranges(bound, EqualTo(("partition",), 2)) == [(2, first[2], 1000)]
    assert ranges(GreaterThanOrEqual(("timestamp",), FIRST + timedelta(days=1))) == []
    assert ranges(LessThan(("timestamp",), FIRST)) == [(partition, 0, 1000) for partition in range(3)]
    ending = f'{{"{filled}":{{"0":{first[0] + 9},"1":10,"2":1000}}}}'
    assert ranges(bound, endingOffsets=ending) == [(0, first[0], first[0] + 9), (2, first[2], 1000)]
    assert ranges(EqualTo(("offset",), 5), bound) == []
