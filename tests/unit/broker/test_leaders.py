"""Whom an answer names as leader (KIP-951)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from holdfast.broker.handlers.leaders import endpoints, leader_of
from holdfast.broker.metadata_cache import LiveBroker, MetadataCache, PartitionInfo
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition

TP = TopicPartition("t", 0)
NOW, EARLIER = UUID(int=2), UUID(int=1)


def broker(*, leader: int | None = 2, replica: tuple[int | None, int] | None = None, topic_id: UUID = NOW) -> Any:
    """Broker 1, whose metadata is of epoch 5; ``replica``: leader and epoch of the last order for its replica."""
    cache = MetadataCache()
    cache.brokers = {b: LiveBroker(b, Endpoints.one("host", 9000 + b), "rack") for b in (1, 2, 3)}
    cache.topics["t"] = {0: PartitionInfo(leader=leader, leader_epoch=5, isr=(2,), replicas=(1, 2), offline=())}
    cache.topic_ids["t"] = NOW
    partitions = {}
    if replica is not None:
        partitions[TP] = SimpleNamespace(leader=replica[0], leader_epoch=replica[1], topic_id=topic_id)
    return SimpleNamespace(broker_id=1, metadata=cache, replicas=SimpleNamespace(partitions=partitions))


@pytest.mark.parametrize(
    ("replica", "named"),
    [(None, (2, 5)), ((3, 4), (2, 5)), ((2, 5), (2, 5)), ((3, 6), (3, 6)), ((None, 6), None), ((1, 6), None)],
)
def test_R_40_the_newest_word_names_the_leader(replica: Any, named: Any) -> None:
    assert leader_of(broker(replica=replica), TP) == named


def test_R_40_a_broker_that_was_just_told_to_follow_does_not_name_itself() -> None:
    told = broker(leader=1, replica=(3, 6))
    assert leader_of(told, TP) == (3, 6)
    assert leader_of(broker(leader=1), TP) is None
    told.metadata.suspects.add(3)
    assert leader_of(told, TP) is None, "clients are not sent to who may be dead"


def test_a_replica_of_an_earlier_topic_of_that_name_says_nothing() -> None:
    assert leader_of(broker(replica=(3, 9), topic_id=EARLIER), TP) == (2, 5)


def test_what_nobody_has_heard_of_has_no_leader() -> None:
    assert leader_of(broker(), TopicPartition("u", 0)) is None


def test_each_leader_is_listed_once_with_its_address() -> None:
    assert endpoints(broker(), [3, 2, 3], "PLAINTEXT") == [(3, "host", 9003, "rack"), (2, "host", 9002, "rack")]
