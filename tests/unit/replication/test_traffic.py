"""What went in and out is counted: by the leader, by its followers, by topic; and sums never go back."""

from __future__ import annotations

from typing import Any

from holdfast.model.config import LogConfig
from holdfast.model.errors import (
    HoldfastError,
    KafkaStorageError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
)
from holdfast.model.types import TopicPartition
from holdfast.replication.traffic import TopicCounts, TopicTraffic, Traffic
from holdfast.replication.types import ReplicationSettings, StopReplica

TP = TopicPartition("t", 0)


def counts(node: Any, topic: str = "t") -> TopicCounts:
    found: TopicCounts = node.traffic.of(topic).now()
    return found


def test_a_batch_counts_with_its_bytes_and_its_records(cluster: Any) -> None:
    cluster.create(1, 2)
    first, second = cluster.batch(b"a", b"b", b"c"), cluster.batch(b"d")
    size = len(first) + len(second)
    cluster[1].produce(data=first, acks=1)
    cluster[1].produce(data=second, acks=1)
    cluster.settle()
    leader, follower = counts(cluster[1]), counts(cluster[2])
    assert (leader.bytes_in, leader.messages_in, leader.produces) == (size, 4, 2)
    assert (follower.bytes_in, follower.messages_in, follower.produces) == (0, 0, 0)
    assert cluster[1].traffic.replication_bytes_out == cluster[2].traffic.replication_bytes_in == size
    assert cluster[1].traffic.reassignment_bytes_out == cluster[2].traffic.reassignment_bytes_in == 0


def test_what_consumers_get_is_no_replication(cluster: Any) -> None:
    cluster.create(1)
    data = cluster.batch(b"a", b"b")
    cluster[1].produce(data=data)
    answers, _ = cluster[1].consume(0)
    assert answers[0][0].data is not None
    found = counts(cluster[1])
    assert (found.bytes_out, found.fetches, found.failed_fetches) == (len(data), 1, 0)
    assert cluster[1].traffic.replication_bytes_out == 0


def test_a_fetch_whose_client_is_gone_has_sent_nothing(cluster: Any) -> None:
    cluster.create(1)
    _, wait = cluster[1].consume(0, max_wait_ms=500)
    wait.cancel()
    assert (counts(cluster[1]).bytes_out, counts(cluster[1]).fetches) == (0, 0)


def test_bytes_for_a_replica_on_its_way_are_of_a_reassignment_too(cluster: Any) -> None:
    cluster.create(1)
    data = cluster.batch(b"a")
    cluster[1].produce(data=data)
    cluster.change(replicas=(1, 2), adding_replicas=(2,), isr=(1,))
    cluster.broadcast()
    cluster.settle()
    assert cluster[1].traffic.reassignment_bytes_out == cluster[2].traffic.reassignment_bytes_in == len(data)
    assert cluster[1].traffic.replication_bytes_out == len(data)


def test_a_record_that_is_too_large_is_rejected_and_no_failure(cluster: Any) -> None:
    cluster[1].configs["t"] = LogConfig(max_message_bytes=100)
    cluster.create(1)
    data = cluster.batch(b"x" * 200)
    size = len(data)
    [result] = cluster[1].produce(data=data)
    assert isinstance(result.error, MessageTooLargeError)
    found = counts(cluster[1])
    assert (found.bytes_rejected, found.failed_produces, found.produces, found.bytes_in) == (size, 0, 1, 0)


def test_too_few_in_sync_is_a_failure_and_another_leader_is_none(cluster: Any) -> None:
    cluster[1].configs["t"] = LogConfig(min_insync_replicas=2)
    cluster.create(1, 2, isr=(1,), settle=False)
    [refused] = cluster[1].produce(b"a")
    assert isinstance(refused.error, NotEnoughReplicasError)
    [elsewhere] = cluster[2].produce(b"a")
    assert isinstance(elsewhere.error, NotLeaderOrFollowerError)
    assert counts(cluster[1]).failed_produces == 1
    assert (counts(cluster[2]).failed_produces, counts(cluster[2]).produces) == (0, 1)


def test_one_that_is_late_is_a_failure_and_its_records_are_in(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[2].queues[0].inline = False
    results = cluster[1].produce(b"a", timeout_ms=100)
    cluster.wait(200)
    assert isinstance(results[0].error, RequestTimedOutError)
    assert (counts(cluster[1]).failed_produces, counts(cluster[1]).messages_in) == (1, 1)
    cluster[2].queues[0].inline = True
    cluster.settle()


def test_how_long_an_append_waits_for_others_is_told(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[2].queues[0].inline = False
    results = cluster[1].produce(b"a")
    cluster.wait(30)
    cluster[2].queues[0].inline = True
    cluster.settle()
    assert [(r.error, r.waited_ns) for r in results] == [(None, 30_000_000)]
    assert [r.waited_ns for r in cluster[1].produce(b"b", acks=1)] == [0]


def test_a_shrunk_and_a_grown_isr_are_counted_where_it_is_led(new_cluster: Any) -> None:
    cluster = new_cluster(settings=ReplicationSettings(replica_lag_time_max_ms=1000))
    cluster.create(1, 2)
    cluster[2].queues[0].inline = False
    cluster[1].produce(b"a", acks=1)
    cluster.wait(3000)
    assert cluster.states[TP].isr == (1,)
    assert (cluster[1].traffic.isr_shrinks, cluster[1].traffic.isr_expands) == (1, 0)
    cluster[2].queues[0].inline = True
    cluster.wait(3000)
    assert cluster.states[TP].isr == (1, 2)
    assert (cluster[1].traffic.isr_shrinks, cluster[1].traffic.isr_expands) == (1, 1)
    assert (cluster[2].traffic.isr_shrinks, cluster[2].traffic.isr_expands) == (0, 0)


def test_which_fetches_have_failed() -> None:
    traffic = TopicTraffic()
    errors: list[HoldfastError] = [OffsetOutOfRangeError("x"), NotLeaderOrFollowerError("x"), KafkaStorageError("x")]
    for error in errors:
        traffic.fetch_failed(error)
    assert traffic.failed_fetches == 1


def test_a_topic_that_went_stays_in_the_sum(cluster: Any) -> None:
    cluster.create(1)
    cluster[1].produce(b"a")
    traffic = cluster[1].traffic
    cluster[1].stop(StopReplica(TP, None, delete=True))
    cluster.settle()
    traffic.keep(set(traffic.hosted()))
    assert (dict(traffic.topics), traffic.gone.messages_in) == ({}, 1)


def test_numbers_of_topics_that_went_do_not_pile_up() -> None:
    here = {"stays"}
    traffic = Traffic(lambda: 0, lambda: here)
    traffic.of("stays").bytes_in += 7
    for number in range(10_000):
        traffic.of(f"goes-{number}").bytes_in += 1
        assert len(traffic.topics) <= 130
    assert traffic.gone.bytes_in + sum(each.bytes_in for each in traffic.topics.values()) == 10_007
    assert traffic.of("stays").bytes_in == 7
