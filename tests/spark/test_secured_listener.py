"""Spark over SASL_SSL with our own brokers: the sink, the source and the lake, by options of Kafka's names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from holdfast.model.config import read_properties
from tests.system.test_secured_brokers import TIMEOUT_S, SecuredBrokers, running

pytestmark = [pytest.mark.spark, pytest.mark.embedded_store("brokers of its own")]

ROWS = 500


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    made = SecuredBrokers(tmp_path_factory.mktemp("secured"), "SASL_SSL", "SCRAM-SHA-512")
    with running(made):
        admin = AdminClient(made.client())
        admin.create_topics([NewTopic("t", 2, 3)])["t"].result(TIMEOUT_S)
        yield made


def test_the_sink_the_source_and_the_lake_log_in(spark: SparkSession, brokers: SecuredBrokers, tmp_path: Path) -> None:
    """Sessions end every two seconds meanwhile."""
    path = brokers.client_file()
    options = {f"kafka.{name}": text for name, text in read_properties(path.read_text()).items()}
    frame = spark.range(ROWS).selectExpr("cast(id as string) key", "concat('{\"id\":', id, '}') value")
    frame.write.format("holdfast").mode("append").options(**options, topic="t").save()
    read = spark.read.format("holdfast").options(**options, subscribe="t").load()
    assert sorted(int(row.key) for row in read.select("key").collect()) == list(range(ROWS))
    command = [
        sys.executable, "-m", "holdfast.cli.main", "lake", "--topic", "t", "--to", str(tmp_path / "table"),
        "--checkpoint", str(tmp_path / "checkpoint"), "--available-now", "--command-config", str(path),
    ]  # fmt: skip
    landed = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert landed.returncode == 0, landed.stderr
    status = subprocess.run(
        [
            *command[:4],
            "status",
            "--to",
            str(tmp_path / "table"),
            "-b",
            brokers.bootstrap,
            "--command-config",
            str(path),
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert status.returncode == 0 and f"{ROWS} rows" in status.stdout, status.stdout + status.stderr
