"""A log that begins within a batch, and replicas of it that have nothing yet (clients.md C-1, D15)."""

from typing import Any

import pytest

from holdfast.model.errors import OffsetsOutOfOrderError
from holdfast.model.types import TopicPartition
from holdfast.records.compression import Codec
from holdfast.records.record import Record, encode_batch

TP = TopicPartition("t", 0)


def batch_of(count: int, codec: Codec) -> bytearray:
    """One batch."""
    records = [Record(offset=i, timestamp=0, key=None, value=b"%d" % i, headers=()) for i in range(count)]
    return encode_batch(records, compression=codec)


def delete_before(cluster: Any, offset: int) -> None:
    done: list[Any] = []
    cluster[1].replicas.delete_records(
        TP, before=offset, timeout_ms=1000, now_ms=cluster.now_ms, done=lambda *what: done.append(what)
    )
    cluster.settle()
    assert done


def join(cluster: Any, broker: int) -> None:
    """The broker gets a replica of the partition, as in a reassignment."""
    state = cluster.states[TP]
    cluster.change(replicas=(*state.replicas, broker))
    cluster.broadcast()
    cluster.wait(2_000)


def is_whole(cluster: Any, *brokers: int) -> None:
    """All of them are in the ISR and have the same records from the same start on."""
    assert set(cluster.states[TP].isr) == set(brokers)
    ones = [cluster[b] for b in brokers]
    assert len({(n.log().view.start_offset, n.log().view.end_offset) for n in ones}) == 1
    assert all(n.values() == ones[0].values() for n in ones)
    assert all(n.mark() == ones[0].log().view.end_offset for n in ones)
    assert len({tuple(n.log().epochs.entries()) for n in ones}) == 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_C_1_a_new_replica_of_a_log_that_begins_within_a_batch(cluster: Any, codec: Codec) -> None:
    cluster.create(1)
    cluster[1].produce(data=batch_of(20, codec))
    delete_before(cluster, 5)
    join(cluster, 2)
    is_whole(cluster, 1, 2)
    assert cluster[2].log().view.start_offset == 5
    [answer] = cluster[2].produce(b"x")  # it follows: not here
    assert answer.error is not None
    acked = cluster[1].produce(b"next")
    cluster.wait(1_000)
    assert acked[0].error is None
    is_whole(cluster, 1, 2)


def test_C_1_a_follower_that_is_behind_the_leaders_start_begins_again_within_a_batch(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(data=batch_of(5, Codec.NONE))
    cluster.settle()
    cluster[2].kill()
    cluster.change(isr=(1,))
    cluster.broadcast()
    cluster[1].produce(data=batch_of(10, Codec.NONE))
    delete_before(cluster, 12)
    cluster[2].start()
    cluster.broadcast()
    cluster.wait(2_000)
    is_whole(cluster, 1, 2)
    assert cluster[2].log().view.start_offset == 12


def test_C_1_no_high_watermark_is_beyond_the_end_while_such_a_log_begins(cluster: Any) -> None:
    """At each step: the log begins before the leader's start for a moment, and without a byte."""
    cluster.create(1)
    cluster[1].produce(data=batch_of(20, Codec.NONE))
    delete_before(cluster, 5)
    state = cluster.states[TP]
    cluster.change(replicas=(*state.replicas, 2))
    cluster.broadcast()
    for _ in range(200):
        cluster.now_ms += 10
        cluster.tick()
        cluster.move()
        node = cluster[2]
        if TP in node.replicas.partitions and node.logs.get(TP) is not None:
            view = node.log().view
            assert view.start_offset <= node.mark() <= view.end_offset or not view.size
            if view.size:
                assert view.start_offset == 5, "consumers never see what was deleted"
    is_whole(cluster, 1, 2)


def test_C_1_a_batch_that_begins_before_a_log_that_has_records_is_refused(cluster: Any) -> None:
    """Only a log without a byte may begin again for it: nothing that is written is given up."""
    cluster.create(1, 2)
    cluster[1].produce(data=batch_of(5, Codec.NONE))
    cluster.settle()
    log = cluster[2].log()
    with pytest.raises(OffsetsOutOfOrderError):
        log.append_as_follower(batch_of(20, Codec.NONE), cluster.now_ms)
    assert (log.view.start_offset, log.view.end_offset) == (0, 5)


def test_records_are_deleted_once_nobody_in_the_isr_lacks_it(cluster: Any) -> None:
    """The follower that was waited for died: no fetch of it comes any more, but the news of the smaller ISR does."""
    cluster.create(1, 2)
    cluster[1].produce(data=batch_of(5, Codec.NONE))
    cluster.wait(1_000)
    cluster[2].kill()
    done: list[Any] = []
    cluster[1].replicas.delete_records(TP, before=3, timeout_ms=30_000, now_ms=cluster.now_ms, done=done.append)
    cluster.settle()
    assert done == []
    cluster.change(isr=(1,))
    cluster.broadcast()
    assert done == [3]
