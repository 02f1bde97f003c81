"""The source beside consumer groups, against a real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from holdfast.spark.group_commit import commit_group
from holdfast.spark.options import OptionError, parse_read
from holdfast.spark.reader import HoldfastReader, HoldfastStreamReader
from holdfast.testing import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.testing import Cluster

pytestmark = pytest.mark.spark
OFFSETS = StructType([StructField("offset", LongType())])


def test_reading_begins_where_a_group_stands(cluster: Cluster, produced: Any, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    produced(topic, [b"%d" % i for i in range(30)], partitions=3)
    group = f"{topic}-group"
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": f"group:{group}"}
    with pytest.raises(OptionError, match=f"group '{group}' has committed no offset of subscribe={topic}"):
        HoldfastReader(OFFSETS, parse_read(given, streaming=False)).partitions()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 2, 10)], asynchronous=False)
    consumer.close()
    # Partition 1 was not committed: it is read whole.
    stream = HoldfastStreamReader(OFFSETS, parse_read(given, streaming=True))
    assert stream.initialOffset()[topic] == {"0": 4, "1": 0, "2": 10}
    reader = HoldfastReader(OFFSETS, parse_read(given, streaming=False))
    rows = [
        n for task in reader.partitions() for batch in reader.read(task) for n in batch.column("offset").to_pylist()
    ]
    assert sorted(rows) == sorted([*range(4, 10), *range(10)])


def lags(cluster: Cluster, group: str, topic: str, partitions: int) -> dict[int, int]:
    """As Kafka's tools find them, by librdkafka's admin client: the log's end less what the group has committed."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = [TopicPartition(topic, number) for number in range(partitions)]
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    at = {each.partition: each.offset for each in committed.topic_partitions if each.topic == topic}
    ends = admin.list_offsets({each: OffsetSpec.latest() for each in asked})
    return {each.partition: found.result(30).offset - at[each.partition] for each, found in ends.items() if
            each.partition in at}  # fmt: skip


def test_a_group_is_told_of_batches_that_are_in_the_checkpoint(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    produced(topic, [b"%d" % i for i in range(30)], partitions=3)
    group, checkpoint, seen = f"{topic}-lag", tmp_path / "checkpoint", {}

    def look(_: Any, batch: int) -> None:
        finished = {int(each.name) for each in (checkpoint / "commits").glob("[0-9]*")}
        seen[batch] = (finished, sum(lags(cluster, group, topic, 3).values()))

    stream = spark.readStream.format("holdfast").option("kafka.bootstrap.servers", cluster.bootstrap)
    stream = stream.option("subscribe", topic).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 15)
    landing = stream.option("commitOffsetsToGroup", group).load().writeStream.foreachBatch(look)
    query = landing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert query.exception() is None
    # While a batch runs the group stands where the last one ended, and at the end when all is read.
    assert seen == {0: (set(), 30), 1: ({0}, 15)}
    assert lags(cluster, group, topic, 3) == {0: 0, 1: 0, 2: 0}


def test_a_group_stands_where_the_last_finished_batch_ended(cluster: Cluster, produced: Any, topic: str) -> None:
    """Called in Spark's order: it asks for the next batch when the one before is in its log of commits."""
    produced(topic, [b"%d" % i for i in range(20)], partitions=2)
    group = f"{topic}-steps"
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "commitOffsetsToGroup": group}
    stream = HoldfastStreamReader(OFFSETS, parse_read(given | {"startingOffsets": "earliest"}, streaming=True))
    start = stream.initialOffset()
    first = stream.latestOffset(start, ReadMaxRows(12))
    stream.partitions(start, first)
    assert sum(lags(cluster, group, topic, 2).values()) == 20, "the first batch is under way"
    second = stream.latestOffset(first, ReadMaxRows(12))
    assert sum(lags(cluster, group, topic, 2).values()) == 8
    assert stream.latestOffset(second, ReadMaxRows(12)) == second
    assert lags(cluster, group, topic, 2) == {0: 0, 1: 0}


def test_a_commit_has_the_leader_epoch_and_the_lag_is_that_of_the_offset(
    cluster: Cluster, produced: Any, topic: str
) -> None:
    from holdfast.client.blocking import BlockingClient
    from holdfast.model.types import TopicPartition

    produced(topic, [b"v"] * 10)
    tp = TopicPartition(topic, 0)
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "commitOffsetsToGroup": f"{topic}-g"}
    commit_group(parse_read(given, streaming=True), {tp: 7}, {tp: 0})
    with BlockingClient(cluster.bootstrap) as client:
        (committed,) = client.committed(f"{topic}-g").values()
    assert (committed.offset, committed.leader_epoch) == (7, 0)
    assert lags(cluster, f"{topic}-g", topic, 1) == {0: 3}


def test_a_group_with_members_is_refused_by_name(cluster: Cluster, produced: Any, topic: str) -> None:
    from confluent_kafka import Consumer

    produced(topic, [b"v"] * 3)
    group = f"{topic}-live"
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    wait_for(lambda: consumer.poll(0.2) is not None, "a member of the group")
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "commitOffsetsToGroup": group}
    stream = HoldfastStreamReader(OFFSETS, parse_read(given, streaming=True))
    with pytest.raises(OptionError, match=f"commitOffsetsToGroup='{group}': the group has members"):
        stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    consumer.close()


def test_an_empty_name_of_a_group_is_refused() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "commitOffsetsToGroup": " "}
    with pytest.raises(OptionError, match="expected the name of a consumer group"):
        parse_read(given, streaming=True)
