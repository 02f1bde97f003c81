"""What a console sees in a cluster, of real brokers and of those of the tests that only answer (tests/answering).

One description, two clusters, the same tests: what is measured with answering brokers is measured with what a console
would see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.client.admin import AdminClient
from holdfast.client.blocking import BlockingClient
from holdfast.client.group_member import ConsumerGroupMember
from holdfast.client.health import Finding
from holdfast.client.log_offsets import delete_records
from holdfast.client.views import CommittedOffset
from holdfast.console.looking import Turns, look, look_on
from holdfast.console.metrics_page import MetricsAbout, metrics_lines
from holdfast.console.poller import now_ms
from holdfast.console.prepared import PreparedRows
from holdfast.console.snapshot import Snapshot
from holdfast.model.types import TopicPartition
from holdfast.testing import Cluster
from tests.answering.answers import RECORD_BYTES
from tests.answering.description import DescribedCluster, DescribedGroup, DescribedTopic
from tests.answering.server import AnsweringCluster
from tests.conftest import STEADY_DISKS

pytestmark = pytest.mark.system

IDLE, READING = "idle", "reading"
SHOP = DescribedCluster(
    brokers=(1, 2),
    log_dirs=2,
    topics=(
        DescribedTopic(name="orders", partitions=((1, 2), (2, 1), (1, 2)), records=20, trimmed=5, min_isr=2),
        DescribedTopic(name="empty", partitions=((2,),)),
    ),
    groups=(
        DescribedGroup(name=IDLE, coordinator=1, committed={("orders", 0): 7, ("orders", 2): 20}),
        DescribedGroup(name=READING, coordinator=2, committed={("orders", 1): 12}, members=1),
    ),
)
"""What both are made of."""


@pytest.fixture(scope="module", params=["real", "answering"])
def seen(request: pytest.FixtureRequest) -> Iterator[Snapshot]:
    """One full look at the one and at the other."""
    with ExitStack() as stack:
        if request.param == "answering":
            yield asyncio.run(looked(stack.enter_context(AnsweringCluster(SHOP)).bootstrap, join=False))
            return
        settings = {"default.replication.factor": "2", **STEADY_DISKS}
        cluster = stack.enter_context(Cluster(brokers=2, log_dirs=2, settings=settings))
        made(cluster)
        yield asyncio.run(looked(cluster.bootstrap, join=True))


def made(cluster: Cluster) -> None:
    """The real one."""
    for topic in SHOP.topics:
        cluster.create_topic(
            topic.name,
            assignment=dict(enumerate(topic.partitions)),
            config={"min.insync.replicas": str(topic.min_isr)},
        )
        for partition in range(len(topic.partitions)):
            cluster.produce(topic.name, [b"x" * RECORD_BYTES] * topic.records, partition=partition)
    with BlockingClient(cluster.bootstrap) as client:
        client.metadata()
        trimmed = {
            TopicPartition(topic.name, p): topic.trimmed
            for topic in SHOP.topics
            if topic.trimmed
            for p in range(len(topic.partitions))
        }
        client.run(delete_records(client.aio, trimmed))
        for group in SHOP.groups:
            offsets = {TopicPartition(*tp): CommittedOffset(offset=at) for tp, at in group.committed.items()}
            client.commit_offsets(group.name, offsets)
    cluster.wait_in_sync([topic.name for topic in SHOP.topics])


async def looked(bootstrap: str, *, join: bool) -> Snapshot:
    """With the members that the description has, where they have to be made."""
    members = [
        ConsumerGroupMember(bootstrap, group.name, ["orders"]) for group in SHOP.groups if group.members and join
    ]
    for member in members:
        await member.join()
    client = AdminClient(bootstrap, timeout_s=10.0)
    try:
        turns = Turns()
        found = await look(client, None, turns, now_ms())
        return (await look_on(client, found, turns, now_ms(), with_starts=True)).within(found)
    finally:
        client.close()
        for member in members:
            await member.leave()


def test_brokers_topics_and_partitions(seen: Snapshot) -> None:
    assert (seen.alive, set(seen.view.brokers)) == ({1, 2}, {1, 2})
    assert seen.view.controller_id in SHOP.brokers
    assert seen.view.cluster_id
    topics = {name: topic for name, topic in seen.view.topics.items() if not topic.internal}
    assert {
        name: tuple((p.partition, p.leader, p.replicas, set(p.isr), p.offline, p.error) for p in topic.partitions)
        for name, topic in topics.items()
    } == {
        topic.name: tuple((n, r[0], r, set(r), (), None) for n, r in enumerate(topic.partitions))
        for topic in SHOP.topics
    }
    assert all(topic.topic_id is not None and topic.error is None for topic in topics.values())
    assert seen.reassignments == {}
    assert {name: seen.min_isr[name] for name in topics} == {topic.name: topic.min_isr for topic in SHOP.topics}


def test_where_logs_begin_and_end(seen: Snapshot) -> None:
    tps = {TopicPartition(t.name, p): t for t in SHOP.topics for p in range(len(t.partitions))}
    assert {tp: seen.ends[tp] for tp in tps} == {tp: topic.records for tp, topic in tps.items()}
    assert {tp: seen.starts[tp] for tp in tps} == {tp: topic.trimmed for tp, topic in tps.items()}


def test_groups_their_members_and_offsets(seen: Snapshot) -> None:
    assert {g.group_id: (g.state, g.protocol_type) for g in seen.groups} == {
        IDLE: ("Empty", ""),
        READING: ("Stable", "consumer"),
    }
    assert {
        name: ({(tp.topic, tp.partition): each.offset for tp, each in at.offsets.items()}, at.members)
        for name, at in seen.positions.items()
    } == {group.name: (dict(group.committed), group.members) for group in SHOP.groups}


def test_directories_and_what_is_in_them(seen: Snapshot) -> None:
    for broker in SHOP.brokers:
        told = seen.disks[broker]
        assert (told.error, told.is_kafka, told.disks.moves) == (None, False, ())
        assert [(d.state, d.reason, d.cordoned) for d in told.disks.disks] == [("online", None, False)] * SHOP.log_dirs
        for disk in told.disks.disks:
            assert disk.total_bytes is not None and disk.usable_bytes is not None and disk.device is not None
            assert disk.total_bytes > disk.usable_bytes > 0
        here = [r for disk in told.disks.disks for r in disk.replicas if not r.tp.topic.startswith("__")]
        assert sorted(r.tp for r in here) == sorted(
            TopicPartition(t.name, p)
            for t in SHOP.topics
            for p, replicas in enumerate(t.partitions)
            if broker in replicas
        )
        assert all((r.size_bytes > 0) == (r.tp.topic == "orders") for r in here)
        assert {(r.offset_lag, r.future) for r in here} == {(0, False)}


def test_pages_show_the_same(seen: Snapshot) -> None:
    rows = PreparedRows(seen)
    assert (rows.health.problems, {found.kind for found in rows.health.notices}) == ((), {Finding.AT_MIN_ISR})
    assert {row["name"]: row["lag"] for row in rows.groups} == {IDLE: 13, READING: 8}
    topics = {row["name"]: (row["records"], row["under"], row["leaderless"]) for row in rows.topics}
    assert {t.name: topics[t.name] for t in SHOP.topics} == {"orders": (60, 0, 0), "empty": (0, 0, 0)}


def test_metrics_are_the_same(seen: Snapshot) -> None:
    text = "".join(metrics_lines(seen, lambda tp, offset: 1.0, MetricsAbout(software="1", took_s=0.1)))
    found = {
        (s.name, *(v for _, v in sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }
    assert found["kafka_brokers",] == 2
    assert found["kafka_topic_partition_oldest_offset", "0", "orders"] == 5
    assert found["kafka_consumergroup_lag_sum", READING, "orders"] == 8
    assert found["kafka_consumergroup_members", READING] == 1
    assert found["kafka_consumergroup_members", IDLE] == 0
