"""What a stream takes for a loss when brokers of a real cluster die and come back: nothing. Needs no JVM."""

from __future__ import annotations

import json
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
from holdfast.testing import Cluster

OFFSETS = StructType([StructField("offset", LongType())])


@pytest.mark.system
def test_spark_D4_leaders_that_change_are_no_loss() -> None:
    with Cluster(brokers=3) as cluster, BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name="t", partitions=1, replication_factor=3))
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
        seen: list[int] = []
        position: Any = None
        epochs: set[int] = set()
        for _ in range(3):
            builder = BatchBuilder()
            for number in range(10):
                builder.append(None, b"%d" % number, 0)
            client.produce("t", 0, builder.build())
            reader = HoldfastStreamReader(OFFSETS, parse_read(given, streaming=True))
            position = position or reader.initialOffset()
            end = json.loads(json.dumps(reader.latestOffset(position, ReadAllAvailable())))
            for task in reader.partitions(position, end):
                seen += [n for batch in reader.read(task) for n in batch.column("offset").to_pylist()]
            position = end
            epochs.add(end["@holdfast"]["epochs"]["t"]["0"])
            leader = client.leader(TopicPartition("t", 0))
            cluster.kill(leader)
            cluster.revive()
            cluster.wait_in_sync(["t"])
        assert seen == list(range(30))
        assert len(epochs) == 3
