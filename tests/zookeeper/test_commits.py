"""Commits to a real ZooKeeper server that goes away among them, and commits that are cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.coordination import zookeeper
from holdfast.metadata.records import ConfigRecord, MetadataRecord, PartitionRecord, ResourceType, TopicRecord
from holdfast.model.errors import FencedControllerError
from holdfast.testing import wait_for
from tests.contracts.test_metadata_store import ONE, TWO, Reign, feature
from tests.zookeeper.cluster_nodes import ClusterNodes
from tests.zookeeper.server import ZooKeeperServer

pytestmark = pytest.mark.system


@pytest.fixture
def own_nodes(tmp_path: Path) -> Iterator[ClusterNodes]:
    """On a server that the test may kill."""
    with ZooKeeperServer(tmp_path / "zookeeper") as server:
        nodes = ClusterNodes(server, "/own")
        yield nodes
        nodes.close()


def topic(number: int, partitions: int) -> list[MetadataRecord]:
    topic_id = UUID(int=100 + number)
    return [
        TopicRecord(name=f"topic-{number}", topic_id=topic_id),
        *(
            PartitionRecord(partition=n, topic_id=topic_id, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1)
            for n in range(partitions)
        ),
    ]


def test_a_commit_goes_on_when_the_server_is_back(own_nodes: ClusterNodes) -> None:
    """kill -9 of the server under commits: the session is resumed, each commit is there once, none is refused."""
    store = own_nodes.store()
    reign = Reign(store, ONE)
    done = threading.Event()
    committed: list[int] = []

    def commit() -> None:
        number = 0
        while not done.is_set():
            number += 1
            reign.commit(*topic(number, 20))
            committed.append(number)

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        for _ in range(3):
            seen = len(committed)
            wait_for(lambda s=seen: len(committed) > s + 2, "commits")  # type: ignore[misc]
            own_nodes.server.kill()
            own_nodes.server.start()
    finally:
        done.set()
        thread.join(60)
    assert not thread.is_alive() and reign.heard.lost_by == []
    reign.commit(feature(9))
    store.close()
    again = Reign(own_nodes.store(), TWO)
    assert again.image.topics == reign.image.topics and len(again.image.topics) == len(committed)
    assert again.image.offset == reign.image.next_offset  # its claim


def test_old_news_of_configurations_are_removed(cluster_nodes: ClusterNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change leaves a node, as Kafka's brokers look for them; the newest 1,000 stay."""
    monkeypatch.setattr(zookeeper, "NEWS_BETWEEN", 100)
    store = cluster_nodes.store()
    reign = Reign(store, ONE)
    reign.commit(*topic(1, 1))
    for first in range(0, 1200, 50):
        reign.commit(*(
            ConfigRecord(resource_type=ResourceType.BROKER, resource_name=str(n), name="log.retention.ms", value="7")
            for n in range(first, first + 50)
        ))  # fmt: skip
    wait_for(lambda: len(cluster_nodes.names("/config/changes")) <= 1100, "fewer news")
    names = cluster_nodes.names("/config/changes")
    assert len(names) >= 1000 and names[-1] == "config_change_0000001199"


def test_a_topic_that_is_larger_than_one_multi_is_there_whole(cluster_nodes: ClusterNodes) -> None:
    """3,330 partitions of 3 replicas; deleted again the same way."""
    first = Reign(cluster_nodes.store(), ONE)
    records = [*topic(1, 3330), feature(1), *topic(2, 3)]
    first.commit(*records)
    second_store = cluster_nodes.store()
    second_store.controller_died(wait_for(second_store.active, "the controller"))
    second = Reign(second_store, TWO)
    assert second.image.topics == first.image.topics
    assert second.image.offset == first.image.next_offset
    assert len(second.image.topics["topic-1"].partitions) == 3330


def test_a_commit_that_ends_in_the_middle_leaves_what_can_be_gone_on_from(cluster_nodes: ClusterNodes) -> None:
    """The session ends before each of the multis in turn: what is larger than one is there whole or not at all."""
    grown = 0
    for fails_at in range(1, 8):
        store = cluster_nodes.store()
        reign = Reign(store, ONE)
        before = reign.image
        client = cluster_nodes.clients[-1]
        count = 0

        def end(operations: object, client: object = client, fails_at: int = fails_at) -> None:
            nonlocal count
            count += 1
            if count == fails_at:
                client.expire()  # type: ignore[attr-defined]

        client.before_write = end
        number = 10 * fails_at
        try:
            reign.commit(*topic(number, 2), *topic(number + 1, 3000), feature(fails_at))
            ended = False
        except FencedControllerError as e:
            assert "is over" in str(e), e
            ended = True
        store.close()
        store = cluster_nodes.store()
        again = Reign(store, TWO)
        store.close()
        made = set(again.image.topics) - set(before.topics)
        if not ended:
            assert made == {f"topic-{number}", f"topic-{number + 1}"}
            break
        assert made in (set(), {f"topic-{number}"}, {f"topic-{number}", f"topic-{number + 1}"})
        for name in made:
            assert len(again.image.topics[name].partitions) in (2, 3000)
        grown += bool(made)
    assert grown
