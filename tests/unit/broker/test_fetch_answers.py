"""One partition's errors in the words of a Fetch version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.handlers.fetch import answer_of
from holdfast.broker.metadata_cache import LiveBroker, MetadataCache, PartitionInfo
from holdfast.model.errors import (
    FencedLeaderEpochError,
    HoldfastError,
    KafkaStorageError,
    LogReadError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.listeners import Endpoints
from holdfast.model.types import TopicPartition
from holdfast.replication.types import FetchResult

TP = TopicPartition("t", 0)


def answered(version: int, error: HoldfastError, *, follower: bool = False) -> tuple[Any, list[int]]:
    cache = MetadataCache()
    cache.topics["t"] = {0: PartitionInfo(leader=2, leader_epoch=5, isr=(2,), replicas=(1, 2), offline=())}
    cache.brokers[2] = LiveBroker(2, Endpoints.one("host", 9002), None)
    moved: list[int] = []
    result = FetchResult(TP, error, log_start_offset=30)
    broker: Any = SimpleNamespace(
        broker_id=1,
        metadata=cache,
        replicas=SimpleNamespace(partitions={}),
        membership=SimpleNamespace(is_current=True),
    )
    return answer_of(broker, version, result, moved, follower=follower), moved


@pytest.mark.parametrize("error", [KafkaStorageError("disk"), LogReadError("disk")])
def test_K112_94_clients_that_do_not_know_56_are_sent_for_new_metadata(error: HoldfastError) -> None:
    assert [answered(version, error)[0].error_code for version in (4, 5, 6, 17)] == [6, 6, 56, 56]


@pytest.mark.parametrize("error", [NotLeaderOrFollowerError("moved"), FencedLeaderEpochError("old")])
def test_the_new_leader_is_named_from_version_16(error: HoldfastError) -> None:
    before, moved = answered(15, error)
    assert (before.current_leader, moved) == (None, [])
    after, moved = answered(16, error)
    assert (after.current_leader, moved) == ((2, 5), [2])
    other, moved = answered(16, OffsetOutOfRangeError("far"))
    assert (other.current_leader, moved) == (None, [])


def test_an_error_has_no_offsets_but_a_follower_learns_where_the_log_starts() -> None:
    error = OffsetOutOfRangeError("far")
    consumers, followers = answered(12, error)[0], answered(17, error, follower=True)[0]
    assert (consumers.high_watermark, consumers.last_stable_offset, consumers.log_start_offset) == (-1, -1, -1)
    assert (followers.high_watermark, followers.last_stable_offset, followers.log_start_offset) == (-1, -1, 30)


def test_what_is_not_there_has_no_aborted_transactions_either() -> None:
    assert answered(12, UnknownTopicOrPartitionError("no"))[0].aborted == ()
    assert answered(12, OffsetOutOfRangeError("far"))[0].aborted is None
