"""Consumers: what they may read, when they are answered, what they hear of changes."""

from typing import Any

from holdfast.model.errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import TopicPartition
from holdfast.records.record import decode_batches
from holdfast.replication.types import FetchPartitionQuery, FetchQuery, Isolation
from holdfast.storage.log import ColdRead

TP = TopicPartition("t", 0)


def read(result: Any) -> list[bytes]:
    return [] if result.data is None else [r.value for r in decode_batches(result.data.read())]


def test_R_16_C12_consumers_read_up_to_the_high_watermark(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster.settle()
    cluster[1].produce(b"b")
    [[result]], wait = cluster[1].consume(0)
    assert wait is None
    assert read(result) == [b"a"]
    assert (result.high_watermark, result.last_stable_offset, result.log_start_offset) == (1, 1, 0)


def test_a_fetch_waits_for_the_high_watermark(cluster: Any) -> None:
    cluster.create(1, 2)
    answers, wait = cluster[1].consume(0, max_wait_ms=500)
    assert wait is not None
    cluster[1].produce(b"a")
    assert answers == []
    cluster.settle()
    [[result]] = answers
    assert read(result) == [b"a"]
    assert cluster[1].replicas.partitions[TP].consumer_waits == {}


def test_a_fetch_ends_after_max_wait(cluster: Any) -> None:
    cluster.create(1)
    answers, _ = cluster[1].consume(0, max_wait_ms=500)
    assert cluster[1].replicas.next_deadline_ms() == cluster.now_ms + 500
    cluster.now_ms += 499
    cluster.tick()
    assert answers == []
    cluster.now_ms += 1
    cluster.tick()
    [[result]] = answers
    assert (result.error, read(result)) == (None, [])
    assert cluster[1].replicas.next_deadline_ms() is None


def test_min_bytes_are_counted_over_appends(cluster: Any) -> None:
    cluster.create(1)
    size = len(cluster.batch(b"a"))
    answers, _ = cluster[1].consume(0, max_wait_ms=500, min_bytes=2 * size + 1)
    cluster[1].produce(b"a")
    cluster[1].produce(b"b")
    assert answers == []
    cluster[1].produce(b"c")
    assert read(answers[0][0]) == [b"a", b"b", b"c"]


def test_max_bytes_is_for_all_partitions_and_the_first_batch_always_comes(cluster: Any) -> None:
    other = TopicPartition("t", 1)
    cluster.create(1)
    cluster.create(1, tp=other)
    for tp in (TP, other):
        cluster[1].produce(b"x" * 100, tp=tp)
    answers: list[Any] = []
    queries = [FetchPartitionQuery(tp, 0, 1 << 20) for tp in (TP, other)]
    query = FetchQuery(None, 0, 1, 10, Isolation.READ_UNCOMMITTED, queries)
    cluster[1].replicas.fetch(query, cluster.now_ms, answers.append)
    first, second = answers[0]
    assert (len(read(first)), len(read(second))) == (1, 0)
    assert (second.error, second.high_watermark) == (None, 1)


def test_offsets_outside_the_log(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    for offset in (2, -1):
        [[result]], _ = cluster[1].consume(offset)
        assert isinstance(result.error, OffsetOutOfRangeError)
    # Beyond the high watermark but in the log: nothing yet, and no error (H-13).
    [[result]], _ = cluster[1].consume(1)
    assert (result.error, result.data, result.high_watermark) == (None, None, 0)


def test_H_03_leader_epochs_are_checked(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster.change(leader=2)
    cluster.change(leader=1)
    cluster.broadcast()
    cluster.settle()
    for broker in (1, 2):
        [[old]], _ = cluster[broker].consume(0, current_leader_epoch=1)
        assert isinstance(old.error, FencedLeaderEpochError)
        [[new]], _ = cluster[broker].consume(0, current_leader_epoch=3)
        assert isinstance(new.error, UnknownLeaderEpochError)
    [[right]], _ = cluster[1].consume(0, current_leader_epoch=2)
    assert right.error is None


def test_H_03_a_consumer_learns_of_truncation(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster.settle()
    cluster.change(leader=2)
    cluster.change(leader=1)
    cluster.broadcast()
    cluster.settle()
    cluster[1].produce(b"b")
    cluster.settle()
    [[result]], _ = cluster[1].consume(2, last_fetched_epoch=1)
    assert result.diverging == (0, 1)
    [[result]], _ = cluster[1].consume(2, last_fetched_epoch=3)
    assert isinstance(result.error, OffsetOutOfRangeError)
    [[result]], _ = cluster[1].consume(2, last_fetched_epoch=2)
    assert (result.error, result.diverging) == (None, None)


def test_R_16_a_follower_and_a_stranger_do_not_answer_consumers(cluster: Any) -> None:
    cluster.create(1, 2)
    [[result]], _ = cluster[2].consume(0)
    assert isinstance(result.error, NotLeaderOrFollowerError)
    assert result.current_leader == (1, 0)
    [[result]], _ = cluster[3].consume(0)
    assert isinstance(result.error, NotLeaderOrFollowerError)
    [[result]], _ = cluster[3].consume(0, tp=TopicPartition("nowhere", 0))
    assert isinstance(result.error, UnknownTopicOrPartitionError)


def test_a_waiting_consumer_hears_at_once_that_the_leader_moved(cluster: Any) -> None:
    cluster.create(1, 2)
    answers, _ = cluster[1].consume(0, max_wait_ms=30_000)
    cluster.change(leader=2)
    cluster.broadcast(to=[1])
    [[result]] = answers
    assert isinstance(result.error, NotLeaderOrFollowerError)
    assert result.current_leader is None or result.current_leader == (2, 1)


def test_cancel_and_flush(cluster: Any) -> None:
    cluster.create(1)
    answers, wait = cluster[1].consume(0, max_wait_ms=500)
    wait.cancel()
    flushed, wait = cluster[1].consume(0, max_wait_ms=500)
    wait.flush()
    assert len(flushed) == 1
    cluster[1].produce(b"a")
    cluster.now_ms += 1000
    cluster.tick()
    wait.flush()
    wait.cancel()
    assert answers == []
    assert len(flushed) == 1


class ColdLog:
    """Says that everything is cold, unless it is asked on the disk's thread."""

    def __init__(self, log: Any) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def read(self, *args: Any, blocking: bool = False, **kwargs: Any) -> Any:
        if not blocking:
            raise ColdRead
        return self.log.read(*args, blocking=True, **kwargs)


def chill(node: Any) -> None:
    """No page of the log is in memory from now on."""
    partition = node.replicas.partitions[TP]
    partition.log = ColdLog(partition.log)


def test_a_cold_read_is_repeated_on_the_disks_thread(cluster: Any) -> None:
    cluster.create(1)
    cluster[1].produce(b"a")
    chill(cluster[1])
    queue = cluster[1].queues[0]
    [[result]], wait = cluster[1].consume(0)
    assert wait is None
    assert read(result) == [b"a"]
    queue.inline = False
    answers, _ = cluster[1].consume(0, max_wait_ms=0)
    cluster.now_ms += 10
    cluster.tick()
    assert answers == []  # the disk is still waited for
    queue.run()
    assert read(answers[0][0]) == [b"a"]


def test_a_cold_read_that_fails(cluster: Any) -> None:
    cluster.create(1)
    cluster[1].produce(b"a")
    chill(cluster[1])
    queue = cluster[1].queues[0]
    queue.inline = False
    answers, _ = cluster[1].consume(0, max_wait_ms=500)
    done = queue.works.popleft()[1]
    done(None, KafkaStorageError("broken"))
    assert isinstance(answers[0][0].error, KafkaStorageError)


def test_a_cold_read_of_a_request_that_is_over(cluster: Any) -> None:
    cluster.create(1)
    cluster[1].produce(b"a")
    chill(cluster[1])
    queue = cluster[1].queues[0]
    queue.inline = False
    answers, wait = cluster[1].consume(0, max_wait_ms=500)
    wait.cancel()
    queue.run()
    assert answers == []


def test_a_followers_fetch_without_a_session(cluster: Any) -> None:
    cluster.create(1, 2, isr=(1,), settle=False)
    cluster[1].produce(b"a", acks=1)
    [[result]], wait = cluster[1].consume(0, replica=(2, None), current_leader_epoch=0)
    assert wait is None
    assert read(result) == [b"a"]
    answers, wait = cluster[1].consume(1, replica=(2, None), current_leader_epoch=0, max_wait_ms=100)
    assert wait is not None
    assert cluster[1].proposals[0].isr == ((1, None), (2, None))
    wait.flush()
    assert answers[0][0].high_watermark == 1
    _, wait = cluster[1].consume(1, replica=(2, None), max_wait_ms=100)
    wait.cancel()
    [[result]], _ = cluster[1].consume(1, replica=(9, None))
    assert isinstance(result.error, NotLeaderOrFollowerError)


def test_many_finished_waits_do_not_stay_in_the_heap(cluster: Any) -> None:
    cluster.create(1)
    for _ in range(2000):
        cluster[1].consume(0, max_wait_ms=500)[1].flush()
    assert len(cluster[1].replicas._around.deadlines) < 1000
