"""One Spark session for all tests of this folder, and words for what they all do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from holdfast.testing import Cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from holdfast.spark.session import spark_session

    session = spark_session("holdfast tests", cores=2, settings={"spark.sql.shuffle.partitions": "1"})
    yield session
    session.stop()


@pytest.fixture
def source(spark: SparkSession, cluster: Cluster) -> Callable[..., DataFrameReader]:
    """``source(subscribe=topic, ...)``: a batch reader with its options set."""

    def make(**options: Any) -> DataFrameReader:
        reader = spark.read.format("holdfast").option("kafka.bootstrap.servers", cluster.bootstrap)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader

    return make


@pytest.fixture
def produced(cluster: Cluster) -> Callable[..., None]:
    """``produced(topic, values, partitions=1)``: creates the topic, writes with librdkafka, waits for all acks."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    def write(topic: str, values: Sequence[Any], *, partitions: int = 1, **settings: Any) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic(topic, partitions, 3)]).values():
            if "TOPIC_ALREADY_EXISTS" not in str(future.exception() or ""):
                future.result()
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, **settings})
        for number, value in enumerate(values):
            content = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            headers = [("n", str(number).encode()), ("none", None)] if number % 3 == 0 else None
            producer.produce(topic, content, f"k{number}".encode(), number % partitions, headers=headers)
        assert producer.flush(60) == 0

    return write


@pytest.fixture
def read_all(source: Callable[..., DataFrameReader]) -> Callable[[str], DataFrame]:
    def read(topic: str) -> DataFrame:
        return source(subscribe=topic).load()

    return read
