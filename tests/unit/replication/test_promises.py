"""What each kind of acknowledgement promises when the leader dies, and what a role lets through (SPEC 1.4)."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.model.errors import (
    HoldfastError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import TopicPartition
from holdfast.replication.types import Isolation, Role, SpecialTimestamp, StopReplica

TP = TopicPartition("t", 0)


def errors(results: list[Any]) -> list[HoldfastError | None]:
    return [r.error for r in results]


def end_offset(cluster: Any, broker: int) -> int | HoldfastError:
    """What a consumer is told that asks for the end."""
    answers: list[Any] = []
    cluster[broker].replicas.list_offset(
        TP,
        SpecialTimestamp.LATEST,
        isolation=Isolation.READ_UNCOMMITTED,
        current_leader_epoch=None,
        done=answers.append,
    )
    [answer] = answers
    return answer if isinstance(answer, HoldfastError) else int(answer.offset)


@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("acks", [0, 1, -1])
def test_R_01_what_each_acks_promises_when_the_leader_dies(cluster: Any, acks: int, replicated: bool) -> None:
    """0 and 1 are told success at once, and may be lost; all is told success when nothing can be lost any more."""
    cluster.create(1, 2)
    results = cluster[1].produce(b"x", acks=acks)
    if replicated:
        cluster.settle()
    acked = errors(results) == [None]
    assert acked == (acks != -1 or replicated)
    cluster[1].kill()
    cluster.change(leader=2, isr=(2,))
    cluster.broadcast()
    there = cluster[2].values() == [(0, b"x")]
    assert there == replicated
    assert there or not acked or acks != -1
    cluster[1].start()
    cluster.broadcast()
    cluster.settle()
    assert cluster[1].values() == cluster[2].values()  # kept or lost, but never one thing here and another there


def test_R_20_the_leader_dies_before_it_has_written_and_the_client_sends_again(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].queues[0].inline = False  # its disk is slow
    results = cluster[1].produce(data=cluster.batch(b"x", producer_id=5, sequence=0))
    cluster[1].kill()
    assert results == []  # the client hears nothing, and looks for the new leader
    cluster.change(leader=2, isr=(2,))
    cluster.broadcast()
    again = cluster[2].produce(data=cluster.batch(b"x", producer_id=5, sequence=0))
    assert (errors(again), again[0].base_offset) == ([None], 0)
    cluster[1].start()
    cluster.broadcast()
    cluster.settle()
    assert cluster[1].values() == cluster[2].values() == [(0, b"x")]


@pytest.mark.parametrize("reached", [(), (2,), (2, 3)])
def test_R_21_the_leader_dies_between_its_write_and_its_answer(cluster: Any, reached: tuple[int, ...]) -> None:
    """All of the survivors have it or none, and sending it again does not write it twice."""
    cluster.create(1, 2, 3)
    for broker in (2, 3):
        if broker not in reached:
            for link in [k for k in cluster.links.values() if k.node.id == broker]:
                link.close()
            cluster[broker].ready.clear()
            cluster.links = {f: k for f, k in cluster.links.items() if k.node.id != broker}
    results = cluster[1].produce(data=cluster.batch(b"x", producer_id=5, sequence=0))
    for link in list(cluster.links.values()):
        link.answer()
    assert results == []
    cluster[1].kill()
    cluster.change(leader=2, isr=(2, 3))
    cluster.broadcast()
    cluster.settle()
    assert cluster[2].values() == cluster[3].values() == ([(0, b"x")] if 2 in reached else [])
    again = cluster[2].produce(data=cluster.batch(b"x", producer_id=5, sequence=0))
    cluster.settle()
    assert (errors(again), again[0].base_offset) == ([None], 0)
    assert cluster[2].values() == cluster[3].values() == [(0, b"x")]


def test_H_14_R_46_a_batch_that_is_sent_three_times_is_there_once(cluster: Any) -> None:
    """Twice to one leader, then to the next one, then to the first one when it leads again after a restart."""
    cluster.create(1, 2)
    sent = [cluster.batch(b"%d" % n, producer_id=9, sequence=n) for n in range(5)]
    for data in sent:
        cluster[1].produce(data=bytearray(data))
    cluster.settle()
    for leader in (1, 2, 1):
        if cluster.states[TP].leader != leader:
            cluster[3 - leader].kill()
            cluster.change(leader=leader, isr=(leader,))
            cluster.broadcast()
            cluster[3 - leader].start()
            cluster.broadcast()
            cluster.wait(600)
        for n, data in enumerate(sent):  # the last five are remembered
            again = cluster[leader].produce(data=bytearray(data))
            cluster.settle()
            assert (errors(again), again[0].base_offset) == ([None], n)
    assert cluster[1].values() == cluster[2].values() == [(n, b"%d" % n) for n in range(5)]


def test_R_23_the_end_never_goes_back_for_a_consumer(cluster: Any) -> None:
    """A new leader may not know yet what was committed; then it says so instead of a smaller offset (KIP-207)."""
    cluster.create(1, 2, 3)
    told = [0]
    for leader in (1, 2, 3, 1, 2):
        if cluster.states[TP].leader != leader:
            cluster.change(leader=leader)
            cluster.broadcast()
        for _ in range(3):
            cluster[leader].produce(b"x")
            for _ in range(4):
                found = end_offset(cluster, leader)
                if isinstance(found, int):
                    assert found >= told[-1]
                    told.append(found)
                else:
                    assert isinstance(found, OffsetNotAvailableError)
                cluster.move()
        cluster.wait(1500, step_ms=100)
        told.append(end_offset(cluster, leader))
    assert told[-1] == 15


def test_R_25_R_38_nothing_is_taken_while_leadership_moves_and_everything_after_it(cluster: Any) -> None:
    """The controller has stored the ISR before it orders; before the order nobody writes, neither old nor new."""
    cluster.create(1, 2)
    cluster.change(leader=2)
    for broker in (1, 2):  # 1 is told first
        cluster.broadcast(to=[1])
        assert isinstance(cluster[broker].produce(b"early")[0].error, NotLeaderOrFollowerError)  # clients try again
    queue = cluster[2].queues[0]
    queue.inline = False
    cluster.broadcast(to=[2])
    later = cluster[2].produce(b"x", acks=1)
    queue.inline = True
    cluster.settle()
    assert errors(later) == [None]
    assert cluster[1].values() == cluster[2].values() == [(0, b"x")]
    assert cluster[2].epochs() == [1]


def test_R_38_the_order_of_becoming_leader(cluster: Any) -> None:
    """Old work ends, then the epoch begins, then it serves; it is told to the group coordinator when it does."""
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster.settle()
    queue = cluster[2].queues[0]
    queue.inline = False
    cluster[1].produce(b"b", acks=1)
    cluster.move()
    cluster.move()  # the follower's disk has it to write
    assert queue.works
    before = list(cluster[2].leaderships)
    cluster.change(leader=2)
    cluster.broadcast(to=[2])
    assert isinstance(cluster[2].produce(b"c", acks=1)[0].error, NotLeaderOrFollowerError)
    assert cluster[2].leaderships == before
    queue.run()
    assert cluster[2].leaderships == [*before, (TP, True, 1)]
    assert cluster[2].log().epochs.entries()[-1] == (1, cluster[2].log().view.end_offset)


def test_R_34_follow(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster.change(leader=2)
    cluster.broadcast()
    cluster.settle()
    assert [f.source for f in cluster[1].replicas.fetchers.values() if not f.is_empty] == [2]
    assert isinstance(cluster[1].produce(b"x")[0].error, NotLeaderOrFollowerError)


def test_R_34_close(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster.settle()
    path = cluster[2].log().path
    assert cluster[2].stop(StopReplica(TP, None, False)) == [{TP: None}]
    assert TP not in cluster[2].replicas.partitions
    assert all(f.is_empty for f in cluster[2].replicas.fetchers.values())
    assert cluster[2].log().path == path
    assert cluster[2].values() == [(0, b"a")]


def test_R_34_delete(cluster: Any) -> None:
    cluster.create(1, 2)
    assert cluster[2].stop(StopReplica(TP, None, True)) == [{TP: None}]
    assert (cluster[2].logs.get(TP), TP in cluster[2].replicas.partitions) == (None, False)


def test_R_34_start(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster[2].stop(StopReplica(TP, None, True))
    cluster.change(replicas=(1, 3), isr=(1,))
    cluster.broadcast()
    cluster.settle()
    assert cluster[3].values() == [(0, b"a")]
    assert cluster[3].replicas.partitions[TP].role is Role.FOLLOWER


def test_R_44_a_followers_fetch(cluster: Any) -> None:
    """The leader takes the offset as what the follower has, and answers with the high watermark and what comes next."""
    cluster.create(1, 2)
    cluster.settle()
    for link in list(cluster.links.values()):
        link.close()
    cluster.links.clear()
    waiting = cluster[1].produce(b"a", b"b")
    answers, _ = cluster[1].consume(0, replica=(2, None), current_leader_epoch=0)
    [[result]] = answers
    assert (result.error, result.high_watermark) == (None, 0)
    assert result.data is not None and len(result.data) == cluster[1].log().view.size
    assert waiting == []
    answers, _ = cluster[1].consume(2, replica=(2, None), current_leader_epoch=0, last_fetched_epoch=0)
    [[result]] = answers
    assert (result.error, result.high_watermark, result.data) == (None, 2, None)
    assert errors(waiting) == [None]
    # A replica that does not lead, one of nobody's, and a broker that has none.
    answers, _ = cluster[2].consume(0, replica=(1, None))
    assert isinstance(answers[0][0].error, NotLeaderOrFollowerError)
    cluster.change(leader=None)
    cluster.broadcast()
    answers, _ = cluster[1].consume(0, replica=(2, None))
    assert isinstance(answers[0][0].error, NotLeaderOrFollowerError)
    answers, _ = cluster[3].consume(0, tp=TopicPartition("other", 0), replica=(2, None))
    assert isinstance(answers[0][0].error, UnknownTopicOrPartitionError)


def test_H_12_a_follower_that_is_gone_holds_up_only_its_own_partitions(cluster: Any) -> None:
    mine, others = TP, [TopicPartition("u", n) for n in range(20)]
    cluster.create(1, 3, tp=mine)
    for tp in others:
        cluster.create(1, 2, tp=tp)
    cluster[3].kill()
    stuck = cluster[1].produce(b"x", tp=mine)
    before_ms = cluster.now_ms
    for _ in range(3):
        waiting = [cluster[1].produce(b"x", tp=tp) for tp in others]
        cluster.settle()
        assert all(errors(results) == [None] for results in waiting)
    assert cluster.now_ms == before_ms  # not one timer
    assert stuck == []
    cluster.wait(cluster.settings.replica_lag_time_max_ms * 2, step_ms=1000)
    assert len(stuck) == 1
    assert cluster.states[mine].isr == (1,)


def test_H_20_a_new_replica_is_made_though_another_directory_is_bad(new_cluster: Callable[..., Any]) -> None:
    """The order may come twice, from the controller that died and from the next one."""
    cluster = new_cluster(2, dirs=2)
    cluster[2].dirs[1].mark_offline(KafkaStorageError("bad disk"))
    cluster.create(1, 2)
    state = cluster.states[TP]
    assert cluster[2].order(state, controller_epoch=2) == [{TP: None}]
    assert cluster[2].log().dir is cluster[2].dirs[0]


def test_R_14_a_followers_high_watermark_comes_with_its_fetches_and_is_never_ahead_of_the_leaders(cluster: Any) -> None:
    """At every step of requests, answers and appends, in whatever order they move."""
    cluster.create(1, 2, 3)
    moved = set()
    for step in range(600):
        if step % 7 == 0:
            cluster[1].produce(b"%d" % step)
        cluster.open_links()
        for link in list(cluster.links.values()):
            cluster.rng.choice((link.send, link.serve, link.answer))()
        if step % 50 == 0:
            cluster.now_ms += 100
            cluster.tick()
        mark, end = cluster[1].mark(), cluster[1].log().view.end_offset
        assert mark <= end
        for follower in (2, 3):
            assert cluster[follower].mark() <= min(mark, cluster[follower].log().view.end_offset)
            moved.add((follower, cluster[follower].mark()))
    assert len(moved) > 20, "they did move"
