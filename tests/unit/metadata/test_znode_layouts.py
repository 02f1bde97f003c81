"""R-28: the same metadata as Kafka's nodes and as those of the replication design."""

from __future__ import annotations

import json
from uuid import UUID

from holdfast.metadata import znode_layouts
from holdfast.metadata.image import ClusterImage
from holdfast.metadata.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from holdfast.model.listeners import Endpoint

T = UUID(int=7)
RECORDS = (
    *(
        RegisterBrokerRecord(
            broker_id=broker, incarnation_id=UUID(int=broker), broker_epoch=broker, fenced=broker == 3,
            endpoints=(Endpoint(name="A", host=f"h{broker}", port=9092),),
        )
        for broker in (1, 2, 3)
    ),
    TopicRecord(name="t", topic_id=T),
    PartitionRecord(partition=0, topic_id=T, replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=2, created=0),
    PartitionRecord(partition=1, topic_id=T, replicas=(2, 1, 3), isr=(2,), leader=None, leader_epoch=4, created=0,
                    adding=(1,), removing=(3,)),
)  # fmt: skip
IMAGE, _ = ClusterImage.empty("A" * 22).apply(RECORDS, 0)


def test_R_28_the_layout_of_the_replication_design() -> None:
    assert znode_layouts.design(IMAGE) == {
        "/brokers/ids/1": "h1:9092",
        "/brokers/ids/2": "h2:9092",
        "/brokers/partitions_reassigned/t/1": "2,1",
        "/brokers/topics/t/0/ISR": "1,2",
        "/brokers/topics/t/0/leader": "1",
        "/brokers/topics/t/0/replicas": "1,2,3",
        "/brokers/topics/t/1/ISR": "2",
        "/brokers/topics/t/1/replicas": "2,1,3",
    }


def test_R_28_the_layout_of_kafka_is_what_the_zookeeper_store_writes() -> None:
    tree = znode_layouts.kafka(IMAGE)
    topic = json.loads(tree["/brokers/topics/t"])
    assert topic["partitions"] == {"0": [1, 2, 3], "1": [2, 1, 3]}
    assert topic["adding_replicas"] == {"1": [1]}
    assert topic["removing_replicas"] == {"1": [3]}
    state = json.loads(tree["/brokers/topics/t/partitions/0/state"])
    assert (state["leader"], state["leader_epoch"], state["isr"]) == (1, 2, [1, 2])
    assert json.loads(tree["/cluster/id"])["id"] == "A" * 22
    assert tree["/isr_change_notification"] == ""
    assert list(tree) == sorted(tree)
