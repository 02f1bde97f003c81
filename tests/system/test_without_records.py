"""A Produce without records, which no client sends: Kafka never answers it."""

from __future__ import annotations

import datetime
from importlib import import_module

import pytest
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32, i32Timedelta

from holdfast.records.record import Record, encode_batch
from holdfast.testing import Cluster
from holdfast.testing.view import ask_only
from tests.system.on_disks import TIMEOUT_S, create, produce_error

pytestmark = pytest.mark.system


def test_D9_a_produce_without_records_ends_its_connection(cluster: Cluster, topic: str) -> None:
    """Left unanswered and open it would keep its bytes until the client goes. Other connections notice nothing."""
    create(cluster, topic, [[1]])
    parts = import_module("kio.schema.produce.v8.request")
    nothing = parts.PartitionProduceData(index=i32(0), records=None)
    some = parts.PartitionProduceData(index=i32(0), records=bytes(encode_batch([Record(0, 1, None, b"x")])))
    for data in ((nothing,), (some, nothing)):
        topics = (parts.TopicProduceData(name=TopicName(topic), partition_data=data),)
        wait = i32Timedelta.parse(datetime.timedelta(seconds=5))
        request = parts.ProduceRequest(transactional_id=None, acks=i16(1), timeout=wait, topic_data=topics)
        with ask_only(*cluster.addresses()[0], request, timeout_s=TIMEOUT_S) as connection:
            connection.settimeout(TIMEOUT_S)
            assert connection.recv(1) == b""
    assert produce_error(cluster, 1, topic, 0) == 0
