"""Spark with a cluster that was secured by one flag: source, sink and lake, with a password and with a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.spark.lake import LakeJob, run
from holdfast.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.embedded_store("--secure refuses another one")]


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    with Cluster(brokers=1, log_dirs=1, secure=True) as cluster:
        yield cluster


@pytest.mark.parametrize("file", ["client", "client-mtls"])
def test_SEC_11_source_sink_and_lake_take_the_files_as_they_are(
    spark: SparkSession, secured: Cluster, file: str, topic: str, tmp_path: Path
) -> None:
    secured.create_topic(topic, partitions=2)
    options = {f"kafka.{name}": value for name, value in secured.properties(file).items()}
    numbers = spark.range(100).selectExpr("cast(id as string) as key", "concat('{\"id\": ', id, '}') as value")
    numbers.write.format("holdfast").options(**options).option("topic", topic).mode("append").save()
    read = spark.read.format("holdfast").options(**options).option("subscribe", topic).load()
    assert sorted(int(row.key) for row in read.select("key").collect()) == list(range(100))
    landed = run(
        LakeJob(
            bootstrap=options.pop("kafka.bootstrap.servers"), topic=topic, to=tmp_path / "table",
            checkpoint=tmp_path / "checkpoint", format="delta", available_now=True, options=options,
        ),
        spark,
    )  # fmt: skip
    assert (landed.total_records, landed.total_bad) == (100, 0)
