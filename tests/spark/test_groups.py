"""The source beside consumer groups, against a real cluster; nothing here needs the JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from holdfast.spark.options import OptionError, parse_read
from holdfast.spark.reader import HoldfastReader, HoldfastStreamReader

if TYPE_CHECKING:
    from holdfast.testing import Cluster

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
