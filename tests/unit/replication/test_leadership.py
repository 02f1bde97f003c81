"""Leader changes, the in-sync replicas, truncation, and the order of things around them."""

from pathlib import Path
from typing import Any
from uuid import UUID

from holdfast.model.errors import (
    FencedLeaderEpochError,
    InvalidUpdateVersionError,
    KafkaStorageError,
    NetworkError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    StaleControllerEpochError,
    UnknownLeaderEpochError,
)
from holdfast.model.types import TopicPartition
from holdfast.replication.types import (
    EpochEnd,
    FetchPartitionQuery,
    IsrOutcome,
    OffsetResult,
    PartitionState,
    Role,
    SpecialTimestamp,
    StopReplica,
)
from holdfast.storage import dir_changes
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import InlineQueue, LogDir

TP = TopicPartition("t", 0)


def list_offset(cluster: Any, broker: int, what: SpecialTimestamp | int, epoch: int | None = None) -> Any:
    answers: list[Any] = []
    cluster[broker].replicas.list_offset(TP, what, isolation=None, current_leader_epoch=epoch, done=answers.append)
    [answer] = answers
    return answer


def test_H_13_the_in_sync_replicas_that_go_on_asking_say_that_nobody_else_leads(cluster: Any) -> None:
    """One of them would ask nobody if it led, and another leader if it had been told of one."""
    cluster.create(1, 2, 3)
    led, moment_ms = cluster[1].replicas.partitions[TP], cluster.now_ms
    assert not led.is_followed_since(moment_ms), "they wait for news, and have been for a while"
    cluster.wait(600)
    assert led.is_followed_since(moment_ms)
    assert not cluster[2].replicas.partitions[TP].is_followed_since(0), "it does not lead"
    cluster.change(leader=2, isr=(2, 3))  # the first is cut off, and not told
    cluster.broadcast(to=(2, 3))
    moment_ms = cluster.now_ms
    cluster.wait(2_000)
    assert led.is_open and not led.is_followed_since(moment_ms)
    assert cluster[2].replicas.partitions[TP].is_followed_since(moment_ms)


def test_H_13_one_that_is_in_sync_alone_needs_nobody_to_say_so(cluster: Any) -> None:
    cluster.create(1, 2, isr=(1,), settle=False)
    led = cluster[1].replicas.partitions[TP]
    assert led.is_followed_since(cluster.now_ms) is led.is_open


# -- leader changes ----------------------------------------------------------------------------------------------


def test_H_01_an_acked_record_survives_a_double_failure(cluster: Any) -> None:
    """2 has the record but an old high watermark; it restarts, the leader dies, 2 leads: the record is there."""
    cluster.create(1, 2)
    link = next(iter(cluster.links.values()))
    results = cluster[1].produce(b"a")
    assert link.answer() and link.send() and link.serve()
    assert [r.error for r in results] == [None]
    assert cluster[2].mark() == 0
    cluster[2].kill()
    cluster[2].start()
    cluster[1].kill()
    cluster.change(leader=2, isr=(2,))
    cluster.broadcast()
    cluster.settle()
    assert cluster[2].values() == [(0, b"a")]
    assert cluster[2].mark() == 1


def test_a_follower_cuts_what_the_new_leader_does_not_have(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster.settle()
    for link in list(cluster.links.values()):
        link.close()
    cluster.links.clear()
    cluster[1].produce(b"lost 1", b"lost 2", acks=1)
    cluster.change(leader=2)
    cluster.broadcast()
    cluster[2].produce(b"kept", acks=1)
    cluster.settle()
    assert cluster[1].values() == cluster[2].values() == [(0, b"a"), (1, b"kept")]
    cluster.wait(600)
    assert cluster[1].mark() == 2


def test_H_02_logs_are_equal_after_alternating_leaders(cluster: Any) -> None:
    """Each leads for a moment with nobody following, then the other: the cut must be found over many epochs."""
    cluster.create(1, 2, settle=False)
    for i, leader in enumerate((1, 2, 1, 2, 1, 2)):
        if i:
            cluster.change(leader=leader)
        cluster.broadcast(to=[leader])
        cluster[leader].produce(b"%d" % i, b"-%d" % i, acks=1)
    cluster.broadcast()
    cluster.settle()
    assert cluster[1].values() == cluster[2].values()
    assert cluster[1].epochs() == cluster[2].epochs()


def test_an_append_in_the_queue_when_the_leader_changes(cluster: Any) -> None:
    cluster.create(1, 2)
    queue = cluster[1].queues[0]
    queue.inline = False
    results = cluster[1].produce(b"a", acks=1)
    cluster.change(leader=2)
    cluster.broadcast()
    cluster.move()
    [answer] = results  # at once: the disk may hang
    assert isinstance(answer.error, NotLeaderOrFollowerError)
    assert cluster[1].replicas.fetchers == {}  # nothing is fetched into a log that may still move
    queue.run()
    assert results == [answer]
    assert cluster[1].values() == []
    cluster[2].produce(b"b", acks=1)
    queue.inline = True
    cluster.settle()
    assert cluster[1].values() == [(0, b"b")]


def test_an_append_completes_after_the_leader_changed(cluster: Any) -> None:
    cluster.create(1, 2)
    queue = cluster[1].queues[0]
    queue.inline = False
    results = cluster[1].produce(b"a", acks=1)
    queue.work()
    cluster.change(leader=2)
    cluster.broadcast()
    assert cluster[1].replicas.fetchers == {}  # the log does not stand still before the loop has heard of it
    queue.inline = True
    queue.run()
    assert isinstance(results[0].error, NotLeaderOrFollowerError)
    cluster[2].produce(b"b", acks=1)
    cluster.settle()
    assert cluster[1].values() == cluster[2].values() == [(0, b"b")]


def test_waiters_of_an_old_epoch_fail_and_do_not_complete_later(cluster: Any) -> None:
    cluster.create(1, 2)
    waiting = cluster[1].produce(b"a")
    cluster.change(leader=1, leader_epoch=5)
    cluster.broadcast(to=[1])
    assert isinstance(waiting[0].error, NotLeaderOrFollowerError)
    newer = cluster[1].produce(b"b")
    cluster.broadcast()
    cluster.wait(100)
    assert [r.error for r in newer] == [None]
    assert len(waiting) == 1
    assert cluster[2].epochs() == [0, 5]


def test_a_followers_fetch_with_an_old_leader_epoch_counts_for_nothing(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster.change(leader=1, leader_epoch=5)
    cluster.broadcast(to=[1])
    results = cluster[1].produce(b"a")
    answers: list[Any] = []
    session = cluster[1].replicas.open_session((2, cluster[2].epoch))
    session.fetch(
        [FetchPartitionQuery(TP, 1, 1 << 20, 0, 5, 0)],
        [],
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        now_ms=cluster.now_ms,
        done=answers.append,
    )
    assert isinstance(answers[0][0].error, FencedLeaderEpochError)
    assert results == []
    assert cluster[1].mark() == 0


def test_H_06_a_fetch_of_an_earlier_incarnation_counts_for_nothing(cluster: Any) -> None:
    cluster.create(1, 2)
    answers: list[Any] = []
    session = cluster[1].replicas.open_session((2, cluster[2].epoch - 1))
    query = FetchPartitionQuery(TP, 0, 1 << 20, 0, None, 0)
    options = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "now_ms": cluster.now_ms}
    session.fetch([query], [], **options, done=answers.append)
    assert isinstance(answers[0][0].error, NotLeaderOrFollowerError)


def test_H_13_a_new_leader_keeps_its_high_watermark(cluster: Any) -> None:
    cluster.create(1, 2, 3)
    cluster[1].produce(b"a")
    link = next(k for k in cluster.links.values() if k.node.id == 2)
    link.answer()
    cluster[1].kill()
    cluster.change(leader=2, isr=(2, 3))
    cluster.broadcast(to=[2])
    assert (cluster[2].mark(), cluster[2].log().view.end_offset) == (0, 1)
    assert isinstance(list_offset(cluster, 2, SpecialTimestamp.LATEST), OffsetNotAvailableError)
    assert isinstance(list_offset(cluster, 2, cluster.now_ms - 1), OffsetNotAvailableError)
    cluster.broadcast()
    cluster.settle()
    assert list_offset(cluster, 2, SpecialTimestamp.LATEST) == OffsetResult(1, None, 1)


def test_a_new_leader_waits_for_what_its_old_role_left_in_the_queue(cluster: Any) -> None:
    cluster.create(1, 2)
    queue = cluster[2].queues[0]
    queue.inline = False
    cluster[1].produce(b"a", acks=1)
    link = next(iter(cluster.links.values()))
    link.answer()
    queue.work()
    cluster.change(leader=2)
    cluster.broadcast(to=[2])
    assert not cluster[2].replicas.is_leader(TP)
    [early] = cluster[2].produce(b"b")
    assert isinstance(early.error, NotLeaderOrFollowerError)
    queue.run()
    assert cluster[2].replicas.is_leader(TP)
    assert cluster[2].replicas.leader_epoch(TP) == 1
    assert cluster[2].replicas.partitions[TP].epoch_start == 1
    assert cluster[2].leaderships == [(TP, True, 1)]


def test_records_of_an_old_leader_do_not_reach_a_log_that_leads(cluster: Any) -> None:
    cluster.create(1, 2)
    queue = cluster[2].queues[0]
    queue.inline = False
    cluster[1].produce(b"a", acks=1)
    next(iter(cluster.links.values())).answer()
    cluster.change(leader=2)
    cluster.broadcast(to=[2])
    queue.inline = True
    queue.run()
    assert cluster[2].replicas.is_leader(TP)
    assert cluster[2].values() == []


def test_leadership_is_told_in_order(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster.change(leader=2)
    cluster.broadcast()
    cluster.change(leader=1)
    cluster.broadcast()
    assert cluster[1].leaderships == [(TP, True, 0), (TP, False, 1), (TP, True, 2)]
    assert cluster[2].leaderships == [(TP, True, 1), (TP, False, 2)]


def test_no_leader_at_all(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster.change(leader=None)
    cluster.broadcast()
    cluster.settle()
    [result] = cluster[1].produce(b"a")
    assert isinstance(result.error, NotLeaderOrFollowerError)
    assert cluster[2].replicas.partitions[TP].role is Role.FOLLOWER
    assert all(f.is_empty for f in cluster[2].replicas.fetchers.values())


def test_controlled_resignation_answers_everybody(cluster: Any) -> None:
    cluster.create(1, 2)
    waiting = cluster[1].produce(b"a")
    consumer, _ = cluster[1].consume(0, max_wait_ms=30_000)
    cluster[1].replicas.resign(cluster.now_ms)
    assert isinstance(waiting[0].error, NotLeaderOrFollowerError)
    assert isinstance(consumer[0][0].error, NotLeaderOrFollowerError)
    assert cluster[1].leaderships[-1] == (TP, False, 0)
    [late] = cluster[1].produce(b"b")
    assert isinstance(late.error, NotLeaderOrFollowerError)
    [answer] = cluster[1].order(cluster.states[TP])
    assert answer[TP] is not None
    cluster[2].replicas.resign(cluster.now_ms)
    assert all(f.is_empty for f in cluster[2].replicas.fetchers.values())


# -- the ISR -----------------------------------------------------------------------------------------------------


def test_R_18_R_41_a_follower_that_stays_behind_leaves_the_isr_and_comes_back(cluster: Any) -> None:
    cluster.create(1, 2, 3)
    queue = cluster[3].queues[0]
    queue.inline = False
    results = cluster[1].produce(b"a", timeout_ms=60_000)
    cluster.wait(29_000, 1000)
    assert results == []
    cluster.wait(12_000, 1000)
    assert cluster.states[TP].isr == (1, 2)
    assert [r.error for r in results] == [None]
    cluster[1].produce(b"b")
    cluster.settle()
    assert cluster[1].mark() == 2
    queue.inline = True
    cluster.settle()
    cluster.wait(600)
    assert cluster.states[TP].isr == (1, 2, 3)


def test_an_idle_partition_is_not_looked_at(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster.wait(40_000, 1000)
    assert cluster[1].replicas._around.watched == {}
    assert cluster.states[TP].isr == (1, 2)
    cluster[1].produce(b"a")
    assert list(cluster[1].replicas._around.watched) == [cluster[1].replicas.partitions[TP]]
    cluster.settle()
    cluster.wait(10_000, 1000)
    assert cluster[1].replicas._around.watched == {}


def test_H_15_a_follower_is_not_blamed_for_the_leaders_disk(cluster: Any) -> None:
    cluster.create(1, 2)
    queue = cluster[1].queues[0]
    queue.inline = False
    results = cluster[1].produce(b"a")
    cluster.wait(40_000, 1000)
    queue.inline = True
    queue.run()
    cluster.settle()
    cluster.wait(8_000, 1000)
    assert cluster.states[TP].isr == (1, 2)
    assert len(results) == 1


def test_H_04_the_high_watermark_waits_for_a_proposed_member(cluster: Any) -> None:
    cluster.create(1, 2, isr=(1,), settle=False)
    cluster.broadcast()
    while not cluster[1].proposals:
        cluster.open_links()
        for link in list(cluster.links.values()):
            link.send(), link.serve(), link.answer()
    [proposal] = cluster[1].proposals
    assert proposal.isr == ((1, None), (2, cluster[2].epoch))
    results = cluster[1].produce(b"a")
    assert (cluster[1].mark(), results) == (0, [])
    # Stored or not: nobody knows. The high watermark must not move by the leader alone.
    cluster[1].proposals.clear()
    cluster[1].replicas.alter_partition_result(proposal, NetworkError("timeout"), cluster.now_ms)
    assert (cluster[1].mark(), results) == (0, [])
    cluster.now_ms += 600
    cluster.tick()
    assert cluster[1].proposals == [proposal]
    cluster.settle()
    assert cluster.states[TP].isr == (1, 2)
    assert [r.error for r in results] == [None]


def test_H_04_a_stale_partition_epoch_waits_for_the_order_that_explains_it(cluster: Any) -> None:
    cluster.create(1, 2, isr=(1,), settle=False)
    cluster.change(isr=(1,))
    cluster.wait(700)
    replicas = cluster[1].replicas
    pending = replicas.partitions[TP].isr.pending
    assert pending is not None and pending.partition_epoch == 0
    cluster.broadcast(to=[1])
    cluster.wait(700)
    assert cluster.states[TP].isr == (1, 2)
    # Answers to what is long settled change nothing.
    replicas.alter_partition_result(pending, InvalidUpdateVersionError("late"), cluster.now_ms)
    replicas.alter_partition_result(pending, IsrOutcome(1, 0, (1,), 9), cluster.now_ms)
    assert replicas.partitions[TP].isr.committed == (1, 2)


def test_H_05_a_refused_replica_is_proposed_again_later_and_holds_up_nobody(cluster: Any) -> None:
    cluster.create(1, 2, 3, isr=(1, 3))
    assert cluster.states[TP].isr == (1, 3, 2)
    cluster.change(isr=(1, 3))
    cluster.fenced = {2}
    cluster.broadcast()
    cluster.wait(1200)
    assert cluster.states[TP].isr == (1, 3)
    results = cluster[1].produce(b"a")
    cluster.settle()
    assert [r.error for r in results] == [None]
    cluster.fenced = set()
    cluster.wait(2000)  # it is asked for less often each time
    assert cluster.states[TP].isr == (1, 3, 2)


def test_H_05_a_replica_that_is_alive_again_is_proposed_at_once(cluster: Any) -> None:
    cluster.create(1, 2, 3)
    cluster.change(isr=(1, 3))
    cluster.fenced = {2}
    cluster.broadcast()
    cluster.settle()
    assert cluster.states[TP].isr == (1, 3)
    cluster.fenced = set()
    cluster[1].replicas.brokers_are_back({3}, cluster.now_ms)
    cluster[1].replicas.tick(cluster.now_ms)
    assert cluster[1].proposals == [], "it was not this one that was missing"
    cluster[1].replicas.brokers_are_back({2}, cluster.now_ms)
    deadline = cluster[1].replicas.next_deadline_ms()
    assert deadline is not None
    assert deadline <= cluster.now_ms
    cluster[1].replicas.tick(cluster.now_ms)
    assert [dict(p.isr).keys() for p in cluster[1].proposals] == [{1, 2, 3}]
    cluster.settle()
    assert set(cluster.states[TP].isr) == {1, 2, 3}


def test_H_05_a_refusal_does_not_count_for_the_next_incarnation(cluster: Any) -> None:
    cluster.create(1, 2, 3)
    cluster.change(isr=(1, 3))  # broker 2 shuts down: it is taken out, and not proposed again for a while
    cluster.broadcast()
    cluster.settle()
    assert cluster.states[TP].isr == (1, 3)
    cluster[2].kill()
    cluster[2].start()
    cluster.broadcast()
    cluster.settle()
    assert set(cluster.states[TP].isr) == {1, 2, 3}


def test_H_04_a_proposal_is_never_under_way_twice(cluster: Any) -> None:
    """Found by the property test (seed 5580): a retry that was due before the same proposal went out again by itself
    sent it twice; the first copy was refused, the second stored, and the high watermark had moved in between."""
    cluster.create(1, 2, isr=(1,))
    cluster.change(isr=(1,))
    cluster.fenced = {2}
    cluster.broadcast()
    link = next(iter(cluster.links.values()))
    cluster.now_ms += 499
    cluster.tick()
    cluster.now_ms += 1
    cluster[1].produce(b"a", acks=1)
    for _ in range(2):  # the follower's own fetch has it proposed, and then the retry is due
        link.answer()
        link.send()
        link.serve()
    cluster.tick()
    cluster.now_ms += 600
    cluster.tick()
    assert len(cluster[1].proposals) == 1


def test_an_answer_of_another_epoch_is_not_taken(cluster: Any) -> None:
    cluster.create(1, 2, isr=(1,), settle=False)
    while not cluster[1].proposals:
        cluster.open_links()
        for link in list(cluster.links.values()):
            link.send(), link.serve(), link.answer()
    [proposal] = cluster[1].proposals
    cluster[1].replicas.alter_partition_result(proposal, IsrOutcome(2, 7, (2,), 9), cluster.now_ms)
    isr = cluster[1].replicas.partitions[TP].isr
    assert (isr.committed, isr.pending) == ((1,), proposal)


# -- orders ------------------------------------------------------------------------------------------------------


def test_K112_11_C16_repeated_and_old_orders(cluster: Any) -> None:
    cluster.create(1, 2)
    old = cluster.states[TP]
    assert cluster[1].order(old) == [{TP: None}]
    cluster.change(leader=2)
    cluster.broadcast()
    [answer] = cluster[1].order(old)
    assert isinstance(answer[TP], StaleControllerEpochError)
    assert cluster[1].replicas.partitions[TP].leader == 2


def test_H_08_orders_of_an_old_controller_are_refused(cluster: Any) -> None:
    cluster.create(1)
    state = cluster.states[TP]
    assert cluster[1].order(state, controller_epoch=5) == [{TP: None}]
    [answer] = cluster[1].order(state, controller_epoch=4)
    assert isinstance(answer[TP], StaleControllerEpochError)
    answers: list[Any] = []
    cluster[1].replicas.stop_replicas(
        [StopReplica(TP, None, True)], controller_epoch=4, now_ms=cluster.now_ms, done=answers.append
    )
    assert isinstance(answers[0][TP], StaleControllerEpochError)
    assert cluster[1].replicas.is_leader(TP)


def test_an_empty_order(cluster: Any) -> None:
    answers: list[Any] = []
    cluster[1].replicas.apply_leader_and_isr([], controller_epoch=1, now_ms=cluster.now_ms, done=answers.append)
    assert answers == [{}]


def test_R_36_stop_with_and_without_deletion(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster.wait(600)
    assert cluster[2].stop(StopReplica(TP, 0, False)) == [{TP: None}]
    assert cluster[2].logs.get(TP) is not None
    assert all(f.is_empty for f in cluster[2].replicas.fetchers.values())
    [[result]], _ = cluster[2].consume(0)
    assert isinstance(result.error, NotLeaderOrFollowerError)
    cluster.broadcast(to=[2])
    assert cluster[2].mark() == 1
    waiting = cluster[1].produce(b"b")
    assert cluster[1].stop(StopReplica(TP, None, True)) == [{TP: None}]
    assert isinstance(waiting[0].error, NotLeaderOrFollowerError)
    assert cluster[1].logs.get(TP) is None
    assert cluster[1].leaderships[-1] == (TP, False, 0)
    assert cluster[1].stop(StopReplica(TP, None, True)) == [{TP: None}]


def test_an_old_stop_is_refused(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster.change(leader=2)
    cluster.broadcast()
    [answer] = cluster[1].stop(StopReplica(TP, 0, True))
    assert isinstance(answer[TP], StaleControllerEpochError)


def test_orders_while_the_log_is_being_made(cluster: Any) -> None:
    queue = cluster[1].queues[0]
    queue.inline = False
    cluster.create(1, 2, settle=False)
    state = cluster.states[TP]
    again = cluster[1].order(state)
    newer = cluster[1].order(cluster.change(leader=2))
    older = cluster[1].order(state)
    assert again == newer == older == []
    [early] = cluster[1].produce(b"a")
    assert isinstance(early.error, NotLeaderOrFollowerError)
    queue.run()
    assert again == newer == older == [{TP: None}]
    assert cluster[1].replicas.partitions[TP].leader == 2


def test_a_log_is_stopped_while_it_is_being_made(cluster: Any) -> None:
    queue = cluster[1].queues[0]
    queue.inline = False
    cluster.create(1, settle=False)
    stopped = cluster[1].stop(StopReplica(TP, None, True))
    queue.run()
    assert stopped == [{TP: None}]
    assert cluster[1].logs.get(TP) is None
    assert TP not in cluster[1].replicas.partitions


def test_a_disk_that_hangs_does_not_hold_up_the_answer(new_cluster: Any) -> None:
    cluster = new_cluster(1, dirs=2)
    cluster[1].queues[0].inline = False
    answers: list[Any] = []
    states = []
    for i in range(4):
        tp = TopicPartition("t", i)
        cluster.create(1, tp=tp, settle=False)
        states.append(cluster.states[tp])
    cluster[1].replicas.apply_leader_and_isr(states, controller_epoch=1, now_ms=cluster.now_ms, done=answers.append)
    cluster.wait(21_000, 1000)
    assert set(answers[0].values()) == {None}, "what was to be on the one that hangs is on the other"
    cluster[1].queues[0].run()
    assert all(cluster[1].replicas.is_leader(s.topic_partition) for s in states)


def test_H_24_a_topic_that_was_made_again(cluster: Any) -> None:
    cluster.create(1)
    cluster[1].produce(b"old")
    waiting, _ = cluster[1].consume(1, max_wait_ms=500)
    state = cluster.states[TP]
    values = {f: getattr(state, f) for f in PartitionState.__slots__}
    again = PartitionState(**values | {"topic_id": UUID(int=99)})
    assert cluster[1].order(again) == [{TP: None}]
    assert len(waiting) == 1
    assert cluster[1].values() == []
    assert cluster[1].log().topic_id == again.topic_id
    # Also when the old log was found at the start.
    cluster[1].kill()
    cluster[1].start()
    third = PartitionState(**values | {"topic_id": UUID(int=100)})
    assert cluster[1].order(third) == [{TP: None}]
    assert cluster[1].log().topic_id == third.topic_id


def made_again(state: PartitionState, topic_id: int) -> PartitionState:
    """The same order for a later topic of that name."""
    values = {f: getattr(state, f) for f in PartitionState.__slots__}
    return PartitionState(**values | {"topic_id": UUID(int=topic_id)})


def test_H_24_a_topic_made_again_while_the_old_log_is_being_made(cluster: Any) -> None:
    queue = cluster[1].queues[0]
    queue.inline = False
    cluster.create(1, settle=False)
    state = cluster.states[TP]
    second = cluster[1].order(made_again(state, 98))
    third = cluster[1].order(made_again(state, 99))
    assert second == third == []
    queue.run()
    assert second == third == [{TP: None}]
    assert cluster[1].log().topic_id == UUID(int=99)
    assert cluster[1].replicas.is_leader(TP)


def test_H_24_the_second_topic_is_deleted_before_the_log_of_the_first_is_made(cluster: Any) -> None:
    queue = cluster[1].queues[0]
    queue.inline = False
    cluster.create(1, settle=False)
    second = cluster[1].order(made_again(cluster.states[TP], 98))
    stopped = cluster[1].stop(StopReplica(TP, None, True, UUID(int=98)))
    assert stopped == [{TP: None}]
    assert isinstance(second[0][TP], NotLeaderOrFollowerError)
    queue.run()
    assert cluster[1].logs.get(TP) is None
    assert TP not in cluster[1].replicas.partitions


def test_H_24_a_late_deletion_of_an_earlier_topic_does_not_touch_the_new_one(cluster: Any) -> None:
    cluster.create(1)
    old = cluster.states[TP].topic_id
    cluster[1].order(made_again(cluster.states[TP], 99))
    cluster[1].produce(b"new")
    assert cluster[1].stop(StopReplica(TP, None, True, old)) == [{TP: None}]
    assert cluster[1].values() == [(0, b"new")]
    assert cluster[1].replicas.is_leader(TP)
    # Nor when its log was found at the start and no order for it has come.
    cluster[1].kill()
    cluster[1].start()
    assert cluster[1].stop(StopReplica(TP, None, True, old)) == [{TP: None}]
    assert cluster[1].log().topic_id == UUID(int=99)
    assert cluster[1].stop(StopReplica(TP, None, True, UUID(int=99))) == [{TP: None}]
    assert cluster[1].logs.get(TP) is None


def test_C19_what_was_deleted_while_a_broker_was_away_is_deleted_when_it_is_back(cluster: Any) -> None:
    other = TopicPartition("u", 0)
    cluster.create(1)
    cluster.create(1, tp=other)
    cluster[1].produce(b"a")
    cluster[1].produce(b"b", tp=other)
    cluster[1].kill()
    foreign = Path(cluster[1].paths[0]) / "backup-2"  # looks like a replica, and is somebody's own
    foreign.mkdir()
    cluster[1].start()
    cluster[1].order(cluster.states[other])
    cluster[1].replicas.remove_strays(lambda tp: tp == other, controller_epoch=1, now_ms=cluster.now_ms)
    assert cluster[1].logs.get(TP) is None
    assert cluster[1].values(other) == [(0, b"b")]
    assert foreign.is_dir()
    # A replica that is served goes as well: a controller that died may not have come to tell of the deletion.
    cluster[1].replicas.remove_strays(lambda tp: False, controller_epoch=0, now_ms=cluster.now_ms)
    assert cluster[1].replicas.is_leader(other), "an old controller has nothing to say"
    waiting, _ = cluster[1].consume(1, tp=other, max_wait_ms=500)
    cluster[1].replicas.remove_strays(lambda tp: False, controller_epoch=1, now_ms=cluster.now_ms)
    assert len(waiting) == 1
    assert other not in cluster[1].replicas.partitions
    assert foreign.is_dir()


def test_C19_what_was_deleted_meanwhile_is_deleted_though_a_dead_disk_lost_which_topic_it_was_of(cluster: Any) -> None:
    """Chaos, seed 510001: partition.metadata was empty when the disk was back; the replica stayed for ever."""
    cluster.create(1)
    metadata = Path(cluster[1].log().path) / "partition.metadata"
    cluster[1].kill()
    metadata.write_bytes(b"")
    cluster[1].start()
    cluster[1].replicas.remove_strays(lambda tp: True, controller_epoch=1, now_ms=cluster.now_ms)
    assert cluster[1].logs.get(TP) is not None
    cluster[1].replicas.remove_strays(lambda tp: False, controller_epoch=1, now_ms=cluster.now_ms)
    assert cluster[1].logs.get(TP) is None
    assert not metadata.exists()


def test_a_log_that_comes_after_the_broker_has_resigned_is_not_served(cluster: Any) -> None:
    queue = cluster[1].queues[0]
    queue.inline = False
    cluster.create(1, settle=False)
    cluster[1].replicas.resign(cluster.now_ms)
    queue.run()
    [refused] = cluster[1].produce(b"late")
    assert isinstance(refused.error, NotLeaderOrFollowerError)
    assert cluster[1].leaderships == []


# -- disks that die ----------------------------------------------------------------------------------------------


def fail(node: Any, index: int = 0) -> None:
    node.dirs[index].mark_offline(KafkaStorageError("EIO"))
    node.replicas.log_dir_failed(node.dirs[index], node.cluster.now_ms)


def test_K112_21_everybody_who_waits_is_answered_at_once(cluster: Any) -> None:
    cluster.create(1, 2)
    queue = cluster[1].queues[0]
    waiting = cluster[1].produce(b"a")
    consumer, _ = cluster[1].consume(0, max_wait_ms=30_000)
    queue.inline = False
    queued = cluster[1].produce(b"b")
    begun = cluster[1].produce(b"c", acks=1)
    fail(cluster[1])
    for results in (waiting, queued, begun):
        assert isinstance(results[0].error, KafkaStorageError)
    assert isinstance(consumer[0][0].error, KafkaStorageError)
    queue.run()
    assert [len(r) for r in (waiting, queued, begun)] == [1, 1, 1]
    assert cluster[1].leaderships[-1] == (TP, False, 0)
    [late] = cluster[1].produce(b"d")
    assert isinstance(late.error, KafkaStorageError)
    [[read]], _ = cluster[1].consume(0)
    assert isinstance(read.error, KafkaStorageError)
    [answer] = cluster[1].order(cluster.change(leader=2))
    assert isinstance(answer[TP], KafkaStorageError)
    [answer] = cluster[1].stop(StopReplica(TP, None, True))
    assert isinstance(answer[TP], KafkaStorageError)
    assert cluster[1].replicas.offline_count() == 1
    assert cluster[1].replicas.high_watermarks() == {}


def test_K112_71_what_a_dir_that_is_back_has_may_be_deleted_before_it_is_served_again(cluster: Any) -> None:
    cluster.create(1, 2)
    node = cluster[2]
    old = node.dirs[0]
    fail(node)
    old.close()
    new, errors = LogDir(old.path, OsFiles(), InlineQueue()), []
    dir_changes.restore(node.logs, old, new, cluster.now_ms, errors.append)
    assert errors == [None]
    log, path = node.log(TP), Path(node.log(TP).path)
    assert log.dir is new
    assert node.stop(StopReplica(TP, None, True)) == [{TP: None}]
    assert node.logs.get(TP) is None
    assert not path.exists()
    assert node.replicas.offline_count() == 0


def test_K112_27_the_other_dir_never_notices(new_cluster: Any) -> None:
    cluster = new_cluster(2, dirs=2)
    tps = [TopicPartition("t", i) for i in range(2)]
    for tp in tps:
        cluster.create(1, 2, tp=tp)
    dead, alive = tps
    assert cluster[2].log(dead).dir is not cluster[2].log(alive).dir
    fail(cluster[2], cluster[2].dirs.index(cluster[2].log(dead).dir))
    results = cluster[1].produce(b"a", tp=alive)
    cluster.settle()
    assert [r.error for r in results] == [None]


def test_K112_06_a_hanging_disk_holds_up_only_its_own_partitions(new_cluster: Any) -> None:
    cluster = new_cluster(2, dirs=2)
    tps = [TopicPartition("t", i) for i in range(2)]
    for tp in tps:
        cluster.create(1, 2, tp=tp)
    cluster[2].queues[cluster[2].dirs.index(cluster[2].log(tps[0]).dir)].inline = False
    slow, quick = (cluster[1].produce(b"a", tp=tp) for tp in tps)
    cluster.settle()
    assert slow == []
    assert [r.error for r in quick] == [None]


def test_K112_08_a_missing_replica_is_not_made_while_a_dir_is_offline(new_cluster: Any) -> None:
    cluster = new_cluster(1, dirs=2)
    fail(cluster[1])
    state = PartitionState(
        topic_partition=TP,
        topic_id=UUID(int=5),
        leader=1,
        leader_epoch=0,
        isr=(1,),
        partition_epoch=0,
        replicas=(1,),
    )
    [answer] = cluster[1].order(state)
    assert isinstance(answer[TP], KafkaStorageError)
    assert cluster[1].replicas.offline_count() == 1, "clients hear 56"
    values = {f: getattr(state, f) for f in PartitionState.__slots__}
    assert cluster[1].order(PartitionState(**values | {"is_new": True})) == [{TP: None}]


# -- offsets -----------------------------------------------------------------------------------------------------


def test_list_offsets(cluster: Any) -> None:
    cluster.create(1)
    now = cluster.now_ms
    assert list_offset(cluster, 1, SpecialTimestamp.LATEST) == OffsetResult(0, None, 0)
    cluster[1].produce(b"a", b"b")
    assert list_offset(cluster, 1, SpecialTimestamp.EARLIEST) == OffsetResult(0, None, 0)
    assert list_offset(cluster, 1, SpecialTimestamp.LATEST) == OffsetResult(2, None, 0)
    found = list_offset(cluster, 1, SpecialTimestamp.MAX_TIMESTAMP)
    assert found.timestamp_ms is not None and found.offset in (0, 1)
    assert list_offset(cluster, 1, found.timestamp_ms) == OffsetResult(0, found.timestamp_ms, 0)
    assert list_offset(cluster, 1, now + 10_000) == OffsetResult(None)
    assert list_offset(cluster, 1, SpecialTimestamp.LATEST_TIERED) == OffsetResult(None)
    assert isinstance(list_offset(cluster, 2, SpecialTimestamp.LATEST), NotLeaderOrFollowerError)
    assert isinstance(list_offset(cluster, 1, SpecialTimestamp.LATEST, 9), UnknownLeaderEpochError)


def test_a_search_by_time_that_ends_after_the_leadership(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster.settle()
    queue = cluster[1].queues[0]
    queue.inline = False
    answers: list[Any] = []
    cluster[1].replicas.list_offset(TP, 0, isolation=None, current_leader_epoch=0, done=answers.append)
    cluster.change(leader=2)
    cluster.broadcast()
    queue.run()
    assert isinstance(answers[0], NotLeaderOrFollowerError)


def test_offset_for_leader_epoch(cluster: Any) -> None:
    cluster.create(1, 2)
    replicas = cluster[1].replicas
    assert replicas.offset_for_leader_epoch(TP, 0, current_leader_epoch=0) == EpochEnd(0, 0)
    cluster[1].produce(b"a")
    cluster.settle()
    cluster.change(leader=1, leader_epoch=5)
    cluster.broadcast()
    ask = replicas.offset_for_leader_epoch
    assert ask(TP, 5, current_leader_epoch=5) == EpochEnd(5, 1)
    assert ask(TP, 3, current_leader_epoch=5) == EpochEnd(0, 1)
    assert ask(TP, 0, current_leader_epoch=5) == EpochEnd(0, 1)
    assert ask(TP, 9, current_leader_epoch=None) == EpochEnd(None, None)
    assert ask(TP, -1, current_leader_epoch=None) == EpochEnd(None, None)
    assert isinstance(ask(TP, 0, current_leader_epoch=4), FencedLeaderEpochError)
    assert isinstance(ask(TopicPartition("no", 0), 0, current_leader_epoch=None), Exception)


def test_delete_records_waits_for_the_followers(cluster: Any) -> None:
    cluster.create(1, 2)
    for value in (b"a", b"b", b"c"):
        cluster[1].produce(value)
    cluster.settle()
    answers: list[Any] = []

    def delete(before: int | None, timeout_ms: int = 1000) -> None:
        cluster[1].replicas.delete_records(
            TP, before, timeout_ms=timeout_ms, now_ms=cluster.now_ms, done=answers.append
        )

    delete(2)
    assert answers == []
    cluster.settle()
    assert answers == [2]
    assert [n.log().view.start_offset for n in (cluster[1], cluster[2])] == [2, 2]
    delete(4)
    assert isinstance(answers.pop(), Exception)
    cluster[2].queues[0].inline = False
    delete(None)
    cluster.wait(1100)
    assert len(answers) == 2 and isinstance(answers[1], Exception)
    cluster[2].queues[0].inline = True
    delete(None)
    cluster.change(leader=2)
    cluster.broadcast()
    assert len(answers) == 3
    for tp in (TP, TopicPartition("no", 0)):
        cluster[1].replicas.delete_records(tp, 0, timeout_ms=1, now_ms=cluster.now_ms, done=answers.append)
    assert all(isinstance(a, Exception) for a in answers[3:])


def test_offset_lag_and_marks(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster.settle()
    assert cluster[1].replicas.high_watermarks() == {TP: 1}
    assert [cluster[b].replicas.offset_lag(TP) for b in (1, 2, 3)] == [0, 0, -1]
    assert cluster[3].replicas.high_watermark(TP) is None
    assert cluster[3].replicas.leader_epoch(TP) is None
