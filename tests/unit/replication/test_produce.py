"""Appending, committing, answering."""

from typing import Any

from holdfast.model.config import LogConfig
from holdfast.model.errors import (
    CorruptRecordError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.replication.refused import KEPT_MS, RefusedBatches

TP = TopicPartition("t", 0)


def test_one_replica_commits_at_once(cluster: Any) -> None:
    cluster.create(1)
    [result] = cluster[1].produce(b"a", b"b")
    assert result.error is None
    assert (result.base_offset, cluster[1].mark()) == (0, 2)
    [second] = cluster[1].produce(b"c")
    assert second.base_offset == 2


def test_R_11_acks_all_waits_for_every_in_sync_replica(cluster: Any) -> None:
    cluster.create(1, 2, 3)
    one = cluster[1].produce(b"a", acks=1)
    every = cluster[1].produce(b"b", acks=-1)
    assert [r.error for r in one] == [None]
    assert every == []
    cluster.settle()
    assert [(r.error, r.base_offset) for r in every] == [(None, 1)]
    assert cluster[2].values() == cluster[3].values() == [(0, b"a"), (1, b"b")]


def test_R_12_the_parked_fetch_is_answered_in_the_turn_of_the_append(cluster: Any) -> None:
    cluster.create(1, 2)
    link = next(iter(cluster.links.values()))
    assert link.parked and not link.answers
    cluster[1].produce(b"a")
    assert not link.parked and len(link.answers) == 1


def test_the_followers_fetch_answers_the_producer_in_the_same_turn(cluster: Any) -> None:
    cluster.create(1, 2)
    link = next(iter(cluster.links.values()))
    results = cluster[1].produce(b"a")
    assert link.answer() and link.send()
    assert results == []
    link.serve()
    assert [r.error for r in results] == [None]


def test_R_30_answers_come_in_order(cluster: Any) -> None:
    cluster.create(1, 2)
    order: list[int] = []
    for i in range(10):
        cluster[1].replicas.append(
            TP,
            cluster.batch(b"%d" % i),
            acks=-1,
            timeout_ms=1000,
            now_ms=cluster.now_ms,
            done=lambda r, i=i: order.append(i),
        )
    cluster.settle()
    assert order == list(range(10))


def test_R_40_produce_at_a_follower_and_at_a_stranger(cluster: Any) -> None:
    cluster.create(1, 2)
    for broker in (2, 3):
        [result] = cluster[broker].produce(b"a")
        assert isinstance(result.error, NotLeaderOrFollowerError)
    [result] = cluster[1].produce(b"a", tp=TopicPartition("nowhere", 0))
    assert isinstance(result.error, UnknownTopicOrPartitionError)


def test_H_25_min_insync_replicas(new_cluster: Any) -> None:
    cluster = new_cluster(config=LogConfig(min_insync_replicas=2))
    cluster.create(1, 2, 3)
    cluster.change(isr=(1,))
    cluster.fenced = {2, 3}
    cluster.broadcast()
    [refused] = cluster[1].produce(b"a", acks=-1)
    assert isinstance(refused.error, NotEnoughReplicasError)
    assert cluster[1].log().view.end_offset == 0
    [taken] = cluster[1].produce(b"a", acks=1)
    assert taken.error is None


def test_H_25_C23_the_limit_is_never_above_the_number_of_replicas(new_cluster: Any) -> None:
    cluster = new_cluster(config=LogConfig(min_insync_replicas=3))
    cluster.create(1, 2)
    results = cluster[1].produce(b"a", acks=-1)
    cluster.settle()
    assert [r.error for r in results] == [None]


def test_the_isr_shrinks_below_the_limit_after_the_append(new_cluster: Any) -> None:
    cluster = new_cluster(config=LogConfig(min_insync_replicas=2))
    cluster.create(1, 2)
    results = cluster[1].produce(b"a", acks=-1)
    cluster.nodes[2].kill()
    cluster.elect()
    cluster.broadcast()
    [result] = results
    assert isinstance(result.error, NotEnoughReplicasAfterAppendError)


def test_a_request_times_out_and_the_record_stays(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[2].queues[0].inline = False
    results = cluster[1].produce(b"a", acks=-1, timeout_ms=100)
    cluster.wait(90)
    assert results == []
    cluster.wait(20)
    [result] = results
    assert isinstance(result.error, RequestTimedOutError)
    cluster[2].queues[0].inline = True
    cluster.settle()
    assert cluster[1].mark() == 1
    assert len(results) == 1


def test_a_request_does_not_time_out_while_the_disk_has_its_buffer(cluster: Any) -> None:
    cluster.create(1, 2)
    queue = cluster[1].queues[0]
    queue.inline = False
    results = cluster[1].produce(b"a", acks=-1, timeout_ms=100)
    cluster.wait(500)
    assert results == []
    queue.run()
    [result] = results
    assert isinstance(result.error, RequestTimedOutError)


def test_a_bad_batch_is_refused_by_the_log(cluster: Any) -> None:
    cluster.create(1)
    data = cluster.batch(b"a")
    data[-1] ^= 0xFF
    [result] = cluster[1].produce(data=data)
    assert isinstance(result.error, CorruptRecordError)
    assert cluster[1].produce(b"good")[0].error is None


def test_R_21_a_repeated_batch_gets_its_first_offset_when_that_is_committed(cluster: Any) -> None:
    def make() -> bytearray:
        return bytearray(cluster.batch(b"x", producer_id=7, sequence=0))

    cluster.create(1, 2)
    first = cluster[1].produce(data=make())
    later = cluster[1].produce(b"between")
    again = cluster[1].produce(data=make())
    assert first == later == again == []
    cluster.settle()
    assert [r.base_offset for r in first + again] == [0, 0]
    assert cluster[1].values() == [(0, b"x"), (1, b"between")]


# -- batches behind a refused one --------------------------------------------------------------------------------


def test_R_46_what_was_sent_behind_a_refused_batch_is_refused_for_the_same_reason(new_cluster: Any) -> None:
    cluster = new_cluster(config=LogConfig(min_insync_replicas=2))
    cluster.create(1, 2)

    def send(sequence: int, **options: Any) -> Any:
        values = [b"%d" % sequence]
        [result] = cluster[1].produce(data=cluster.batch(*values, producer_id=7, sequence=sequence), **options)
        return result

    first = cluster[1].produce(data=cluster.batch(b"0", producer_id=7, sequence=0))
    cluster.settle()
    assert [r.error for r in first] == [None]
    cluster.change(isr=(1,))
    cluster.broadcast()
    assert isinstance(send(1).error, NotEnoughReplicasError)
    cluster.change(isr=(1, 2))
    cluster.broadcast()
    # These were on their way before the producer knew of the first one's fate.
    assert isinstance(send(2).error, NotEnoughReplicasError)
    assert isinstance(send(3).error, NotEnoughReplicasError)
    again = [cluster[1].produce(data=cluster.batch(b"%d" % i, producer_id=7, sequence=i)) for i in (1, 2, 3)]
    cluster.settle()
    assert [result.error for results in again for result in results] == [None] * 3
    assert [value for _, value in cluster[1].values()] == [b"0", b"1", b"2", b"3"]
    # The gap is filled: another one is the producer's fault.
    assert isinstance(send(9).error, OutOfOrderSequenceError)


def test_R_46_the_first_of_two_refused_batches_that_comes_again_leaves_the_gap_of_the_second(new_cluster: Any) -> None:
    """Chaos, seed 620002: a producer began a new epoch, and a batch of another partition was written twice."""
    cluster = new_cluster(config=LogConfig(min_insync_replicas=2))
    cluster.create(1, 2)

    def send(sequence: int) -> list[Any]:
        sent: list[Any] = cluster[1].produce(data=cluster.batch(b"%d" % sequence, producer_id=7, sequence=sequence))
        cluster.settle()
        return [result.error for result in sent]

    assert send(0) == [None]
    cluster.change(isr=(1,))
    cluster.broadcast()
    for sequence in (1, 2):
        [error] = send(sequence)
        assert isinstance(error, NotEnoughReplicasError)
    cluster.change(isr=(1, 2))
    cluster.broadcast()
    assert send(1) == [None]
    [behind] = send(3)
    assert isinstance(behind, NotEnoughReplicasError)
    assert [send(2), send(3)] == [[None], [None]]
    [gap] = send(9)
    assert isinstance(gap, OutOfOrderSequenceError)


def test_R_46_what_is_missing_of_an_earlier_epoch_is_forgotten_when_a_new_one_is_written() -> None:
    record = Record(offset=0, timestamp=0, key=None, value=b"x", headers=())

    def sent(epoch: int, sequence: int) -> bytearray:
        return encode_batch([record], producer_id=7, producer_epoch=epoch, base_sequence=sequence)

    refused = RefusedBatches()
    refused.add(sent(0, 5), NotEnoughReplicasError(), 0)
    assert refused
    refused.appended(sent(1, 0))
    assert not refused, "each append would look for it"


def test_R_46_a_gap_is_told_when_its_refused_batch_does_not_come_again(cluster: Any) -> None:
    cluster.create(1)
    cluster[1].produce(data=cluster.batch(b"0", producer_id=7, sequence=0))
    cluster.change(leader=None)
    cluster.broadcast()
    [refused] = cluster[1].produce(data=cluster.batch(b"1", producer_id=7, sequence=1))
    assert isinstance(refused.error, NotLeaderOrFollowerError)
    cluster.change(leader=1)
    cluster.broadcast()
    [behind] = cluster[1].produce(data=cluster.batch(b"2", producer_id=7, sequence=2))
    assert isinstance(behind.error, NotLeaderOrFollowerError)
    # Another producer, and another epoch of this one, have nothing to do with it.
    cluster[1].produce(data=cluster.batch(b"x", producer_id=8, sequence=0))
    [other] = cluster[1].produce(data=cluster.batch(b"x", producer_id=8, sequence=5))
    assert isinstance(other.error, OutOfOrderSequenceError)
    # It was told why for long enough for what a network held back, and being told so does not make it longer.
    for _ in range(2):
        cluster.now_ms += KEPT_MS // 2
        [behind] = cluster[1].produce(data=cluster.batch(b"2", producer_id=7, sequence=2))
        assert isinstance(behind.error, NotLeaderOrFollowerError)
    assert KEPT_MS > 30_000
    cluster.now_ms += 1
    [late] = cluster[1].produce(data=cluster.batch(b"2", producer_id=7, sequence=2))
    assert isinstance(late.error, OutOfOrderSequenceError)
