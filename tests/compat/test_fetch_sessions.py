"""Stock consumers with fetch sessions (KIP-227) on real brokers; who uses them is told by the brokers' metrics."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable

import confluent_kafka
import kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.testing import Cluster, wait_for

pytestmark = pytest.mark.system

PARTITIONS = 12
CACHED = "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached"


def cached(cluster: Cluster, *brokers: int) -> int:
    """Partitions in the fetch sessions of these brokers."""
    total = 0.0
    for broker in brokers:
        with urllib.request.urlopen(f"http://127.0.0.1:{cluster.port + 99 + broker}/metrics", timeout=10) as page:
            for family in text_string_to_metric_families(page.read().decode()):
                if family.name == CACHED:
                    total += sum(sample.value for sample in family.samples)
    return int(total)


def write(cluster: Cluster, topic: str, first: int, count: int) -> set[tuple[int, bytes]]:
    """Records of every partition, written and acknowledged."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    sent = {(p, b"%d" % n) for p in range(PARTITIONS) for n in range(first, first + count)}
    failed: list[object] = []
    for partition, value in sorted(sent):
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert (producer.flush(30), failed) == (0, [])
    return sent


def test_kafka_python_reads_all_over_sessions_across_a_leader_change(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    cluster = own_cluster()
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name=topic, partitions=PARTITIONS, replication_factor=3))
    cluster.wait_in_sync([topic])
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap.split(","), group_id=None, auto_offset_reset="earliest",
        enable_incremental_fetch_sessions=True, fetch_max_wait_ms=100, metadata_max_age_ms=1000,
    )  # fmt: skip
    seen: list[tuple[int, bytes]] = []

    def read(wanted: set[tuple[int, bytes]]) -> None:
        def has_all() -> bool:
            seen.extend((r.partition, r.value) for some in consumer.poll(timeout_ms=100).values() for r in some)
            return set(seen) >= wanted

        wait_for(has_all, "every record", timeout_s=60)

    try:
        consumer.assign([kafka.TopicPartition(topic, p) for p in range(PARTITIONS)])
        wanted = write(cluster, topic, 0, 5)
        read(wanted)
        assert cached(cluster, 1, 2, 3) == PARTITIONS
        wanted |= write(cluster, topic, 5, 1)  # of every partition, over the sessions that there are
        read(wanted)
        cluster.kill(3)
        wanted |= write(cluster, topic, 6, 5)
        read(wanted)
        assert sorted(seen) == sorted(wanted)  # none twice
        wait_for(lambda: consumer.poll(timeout_ms=100) is not None and cached(cluster, 1, 2) == PARTITIONS,
                 "sessions of the leaders that there are now")  # fmt: skip
    finally:
        consumer.close()
