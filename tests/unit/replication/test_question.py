"""A damaged batch of a leader's log on a disk that works (K18-03): who notices, and what is found."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import CorruptRecordError, KafkaStorageError
from holdfast.model.types import TopicPartition

TP = TopicPartition("t", 0)


def damage(cluster: Any, broker: int, batch: int, byte: int = -1) -> None:
    """One byte of one batch in the leader's file is another."""
    path = Path(cluster[broker].log().path) / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big"))
    at = starts[batch + 1] + byte if byte < 0 else starts[batch] + byte
    data[at] ^= 0x10
    path.write_bytes(data)


def new_follower(cluster: Any, batches: int = 3) -> None:
    """1 and 3 have all; 2 is to get it."""
    cluster.create(1, 3)
    for number in range(batches):
        cluster[1].produce(b"%d" % number)
        cluster.settle()


def follow(cluster: Any) -> None:
    cluster.change(replicas=(1, 3, 2))
    cluster.broadcast()
    cluster.wait(2_000)


@pytest.mark.parametrize("byte", [-1, 16, 8], ids=["record", "magic", "length"])
def test_K18_03_a_follower_that_cannot_take_a_batch_makes_the_leader_read_it_again(cluster: Any, byte: int) -> None:
    new_follower(cluster)
    damage(cluster, 1, batch=1, byte=byte)
    follow(cluster)
    [(tp, error)] = cluster[1].corrupt
    assert tp == TP
    assert isinstance(error, CorruptRecordError)
    assert "/t-0" in str(error)
    assert cluster[2].log().view.end_offset == 1, "what is before it is as good as any"
    assert cluster[3].corrupt == []


def test_K18_03_bytes_that_are_right_on_the_disk_are_no_sign_against_it(cluster: Any) -> None:
    """The follower's disk is full, or its memory is bad."""
    new_follower(cluster)
    before = cluster[2].logs
    assert before is not None
    cluster.change(replicas=(1, 3, 2))
    cluster.broadcast()
    cluster[2].queues[0].inline = False
    for _ in range(50):
        cluster.now_ms += 10
        cluster.tick()
        cluster.move()
        while cluster[2].queues[0].works:
            _, done = cluster[2].queues[0].works.popleft()
            done(None, KafkaStorageError("no room"))
    asked = cluster[1].replicas.partitions[TP].questioned
    assert asked == 0, "it was read again"
    assert cluster[1].corrupt == []


def test_K18_03_a_consumer_that_reads_a_batch_again_and_again_makes_the_leader_look(cluster: Any) -> None:
    new_follower(cluster)
    damage(cluster, 1, batch=1)
    for _ in range(2):
        cluster[1].consume(1)
        cluster.settle()
    assert cluster[1].corrupt == []
    cluster[1].consume(1)
    cluster.settle()
    assert len(cluster[1].corrupt) == 1
    for _ in range(10):  # once is enough
        cluster[1].consume(1)
        cluster.settle()
    assert len(cluster[1].corrupt) == 1


def test_K18_03_readers_of_a_sound_log_do_not_make_it_suspect(cluster: Any) -> None:
    new_follower(cluster)
    for _ in range(5):
        cluster[1].consume(0)
        cluster.settle()
    assert cluster[1].corrupt == []
    assert cluster[1].replicas.partitions[TP].questioned == 0


def test_K18_03_a_session_goes_on_after_a_read_that_finds_no_batch(cluster: Any) -> None:
    """The other partitions of the follower are answered."""
    other = TopicPartition("t", 1)
    new_follower(cluster)
    cluster.create(1, 2, tp=other)
    damage(cluster, 1, batch=0, byte=8)
    cluster[1].log().view.segments[-1].tail = None  # the table of the last batches would not look at the file
    follow(cluster)
    acked = cluster[1].produce(b"x", tp=other)
    cluster.wait(1_000)
    assert acked
    assert acked[0].error is None
    assert [tp for tp, _ in cluster[1].corrupt] == [TP]
