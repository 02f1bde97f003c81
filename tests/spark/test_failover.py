"""What a stream takes for a loss when brokers of a real cluster die and come back. Needs no JVM."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.model.types import TopicPartition
from holdfast.records.record import BatchBuilder
from holdfast.spark.options import parse_read
from holdfast.spark.reader import HoldfastStreamReader
from holdfast.spark.topics import DataLossError
from holdfast.testing import Cluster, wait_for

pytestmark = pytest.mark.system

OFFSETS = StructType([StructField("offset", LongType())])


def write(client: BlockingClient, records: int) -> None:
    builder = BatchBuilder()
    for number in range(records):
        builder.append(None, b"%d" % number, 0)
    client.produce("t", 0, builder.build(), acks=1)


def next_batch(cluster: Cluster, position: Any, **options: str) -> tuple[Any, list[int]]:
    """What a query that starts now plans from ``position``, and the offsets that its tasks read."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "startingOffsets": "earliest", **options}
    reader = HoldfastStreamReader(OFFSETS, parse_read(given, streaming=True))
    start = position or reader.initialOffset()
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    tasks = reader.partitions(start, end)
    return end, [n for task in tasks for batch in reader.read(task) for n in batch.column("offset").to_pylist()]


def test_spark_D4_a_log_that_an_unclean_election_cut_is_told_when_it_has_grown_again(tmp_path: Path) -> None:
    settings = {"default.replication.factor": "2", "min.insync.replicas": "1", "replica.lag.time.max.ms": "1500"}
    with Cluster(brokers=2, data_dir=tmp_path, settings=settings) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topic(NewTopic(name="t", assignments={0: (1, 2)}))
            write(client, 100)
            cluster.wait_in_sync(["t"])
            cluster.kill(2)
            wait_for(
                lambda: cluster.describe(["t"], broker=1).under_replicated, "broker 2 out of the ISR", timeout_s=30
            )
            write(client, 100)
            position, seen = next_batch(cluster, None)
            assert seen == list(range(200))
        cluster.kill(1)
        cluster.stop()
        for number in (1, 2):
            shutil.rmtree(tmp_path / f"broker-1/log-dir-{number}")
        cluster.start()
        elect = [sys.executable, "-m", "holdfast.cli.main", "elect", "unclean", "--topic", "t", "--yes"]
        subprocess.run([*elect, "--bootstrap-server", cluster.bootstrap], check=True, timeout=60)
        with BlockingClient(cluster.bootstrap) as client:
            write(client, 250)
        with pytest.raises(DataLossError, match="t-0: was read up to 200, and the log was cut to 100 since"):
            next_batch(cluster, position)
        assert next_batch(cluster, position, failOnDataLoss="false")[1] == list(range(100, 350))


def test_spark_D4_leaders_that_change_are_no_loss() -> None:
    with Cluster(brokers=3) as cluster, BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name="t", partitions=1, replication_factor=3))
        seen: list[int] = []
        position: Any = None
        epochs: set[int] = set()
        for _ in range(3):
            write(client, 10)
            position, offsets = next_batch(cluster, position)
            seen += offsets
            epochs.add(position["@holdfast"]["epochs"]["t"]["0"])
            cluster.kill(client.leader(TopicPartition("t", 0)))
            cluster.revive()
            cluster.wait_in_sync(["t"])
        assert seen == list(range(30))
        assert len(epochs) == 3
