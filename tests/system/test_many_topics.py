"""A hundred topics of ten partitions: created, described, and all there after a restart of the whole
cluster.
"""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import Cluster

pytestmark = pytest.mark.system

TOPICS, PARTITIONS, COPIES = 100, 10, 3
TIMEOUT_S = 60


def layout(cluster: Cluster, names: list[str]) -> dict[tuple[str, int], tuple[int, ...]]:
    """Every partition's replicas, once all of them are in sync."""
    view = cluster.wait_in_sync(names, timeout_s=TIMEOUT_S)
    return {place: partition.replicas for place, partition in view.partitions.items()}


def topic_ids(cluster: Cluster, names: list[str]) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    described = admin.describe_topics(confluent_kafka.TopicCollection(names))
    return {name: str(future.result(TIMEOUT_S).topic_id) for name, future in described.items()}


def last_record(cluster: Cluster, topic: str, partition: int) -> bytes:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "group.id": "reader"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and message.error() is None
        return message.value() or b""
    finally:
        consumer.close()


@pytest.mark.long("restarts of clusters with fewer topics are in every run")
def test_a_hundred_topics_survive_a_restart(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster()
    names = [f"many-{number:03}" for number in range(TOPICS)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, COPIES) for name in names]).values():
        future.result(TIMEOUT_S)
    before, ids = layout(cluster, names), topic_ids(cluster, names)
    assert set(before) == {(name, p) for name in names for p in range(PARTITIONS)}
    assert all(len(set(replicas)) == COPIES for replicas in before.values())
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, "acks": "all"})
    for name in names:
        producer.produce(name, name.encode(), partition=PARTITIONS - 1)
    assert producer.flush(TIMEOUT_S) == 0

    cluster.stop()
    cluster.start()
    assert layout(cluster, names) == before
    assert topic_ids(cluster, names) == ids
    assert last_record(cluster, names[-1], PARTITIONS - 1) == names[-1].encode()

    cluster.kill_all()
    cluster.start()
    assert layout(cluster, names) == before
    assert topic_ids(cluster, names) == ids
    assert last_record(cluster, names[0], PARTITIONS - 1) == names[0].encode()
