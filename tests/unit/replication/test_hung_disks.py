"""A directory hangs: what the controller's orders are answered, and where new replicas go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.model.errors import KafkaStorageError, NotLeaderOrFollowerError
from holdfast.model.fates import ReplicaFate
from holdfast.model.types import TopicPartition
from holdfast.replication.types import (
    FetchPartitionQuery,
    FetchQuery,
    FetchResult,
    Isolation,
    PartitionState,
    StopReplica,
)
from holdfast.storage.dir_state import DirNews, DirState
from tests.unit.replication.conftest import TP, Node, topic_id

PATIENCE_MS = 700


def state(
    tp: TopicPartition = TP, *, epoch: int = 1, is_new: bool = True, partition_epoch: int = 0, recovering: bool = False
) -> PartitionState:
    return PartitionState(
        topic_partition=tp, topic_id=topic_id(tp.topic), leader=1, leader_epoch=epoch, isr=(1,),
        partition_epoch=partition_epoch, replicas=(1,), is_new=is_new, recovering=recovering,
    )  # fmt: skip


class Asked:
    """An order and its answers."""

    def __init__(self, node: Node, *states: PartitionState, stop: StopReplica | None = None) -> None:
        self.answers: dict[TopicPartition, Any] | None = None
        if stop is None:
            node.replicas.apply_leader_and_isr(
                states, controller_epoch=1, now_ms=node.cluster.now_ms, done=self._answered
            )
        else:
            node.replicas.stop_replicas([stop], controller_epoch=1, now_ms=node.cluster.now_ms, done=self._answered)

    def _answered(self, answers: dict[TopicPartition, Any]) -> None:
        assert self.answers is None, "once"
        self.answers = answers

    @property
    def refused(self) -> bool:
        return self.answers is not None and all(isinstance(e, KafkaStorageError) for e in self.answers.values())

    @property
    def done(self) -> bool:
        return self.answers is not None and set(self.answers.values()) == {None}


def wait(node: Node, ms: int) -> None:
    """Time passes."""
    node.cluster.now_ms += ms
    node.replicas.tick(node.cluster.now_ms)


def hang(node: Node, *dirs: int) -> None:
    for number in dirs:
        node.queues[number].inline = False


def thaw(node: Node) -> None:
    for queue in node.queues:
        queue.inline = True
        queue.run()


def test_D2_every_order_for_a_log_on_a_hung_disk_is_answered(new_cluster: Any) -> None:
    """Seen: only the first was, after 20 s; the controller's line waited for the others for ever."""
    node = new_cluster(1)[1]
    hang(node, 0)
    first = Asked(node, state())
    wait(node, PATIENCE_MS - 1)
    second = Asked(node, state(partition_epoch=1))
    assert first.answers is None
    wait(node, 1)
    assert first.refused and second.answers is None
    third = Asked(node, state(partition_epoch=2))
    assert third.refused, "at once: it is known by now"
    wait(node, PATIENCE_MS)
    assert second.refused
    thaw(node)
    assert node.logs.get(TP) is not None
    assert node.logs.standings.returned == {TP: ReplicaFate.DAMAGED}, (
        "the controller is told that it can be used after all"
    )
    assert not node.replicas.is_leader(TP)
    node.logs.standings.confirmed(TP, ReplicaFate.DAMAGED)
    assert Asked(node, state(epoch=2, recovering=True)).done and node.replicas.is_leader(TP)


def test_D2_a_disk_that_gets_something_done_is_waited_for(new_cluster: Any) -> None:
    node = new_cluster(1)[1]
    hang(node, 0)
    tps = [TopicPartition("t", i) for i in range(5)]
    asked = Asked(node, *(state(tp) for tp in tps))
    for _ in tps:
        assert asked.answers is None
        wait(node, PATIENCE_MS - 1)
        assert node.queues[0].work() and node.queues[0].complete()
    thaw(node)
    assert asked.done


def test_D2_K112_09_a_new_replica_goes_to_another_directory(new_cluster: Any) -> None:
    """What the hung thread makes at last is removed."""
    node = new_cluster(1, dirs=2)[1]
    hang(node, 0)
    asked = Asked(node, state())
    wait(node, PATIENCE_MS)
    assert asked.done and node.replicas.is_leader(TP)
    made = node.logs.get(TP)
    assert made is not None and made.dir is node.dirs[1] and [node.logs.held.count(d) for d in node.dirs] == [0, 1]
    at_once = Asked(node, state(TopicPartition("u", 0)))
    assert at_once.done and node.logs.dir_of(TopicPartition("u", 0)) == node.paths[1], "nobody waits for it again"
    thaw(node)
    assert node.logs.get(TP) is made and node.replicas.is_leader(TP)
    assert not list(Path(node.paths[0]).glob("t-0")), "it is on its way out"
    assert [each.name for each in Path(node.paths[1]).glob("t-0/moved-from")] == []


def test_D2_a_kill_before_what_came_too_late_is_removed(new_cluster: Any) -> None:
    """The next start finds both, and knows which one counts."""
    node = new_cluster(1, dirs=2)[1]
    hang(node, 0)
    Asked(node, state())
    wait(node, PATIENCE_MS)
    node.queues[0].work()
    assert all((Path(path) / "t-0").is_dir() for path in node.paths)
    node.kill()
    for directory in node.dirs:
        directory.close()
    node.start()
    assert node.logs.dir_of(TP) == node.paths[1]


@pytest.mark.parametrize("what", ["silent", "one order has waited"])
def test_D2_a_replica_on_a_hung_disk_is_stopped_and_deleted(new_cluster: Any, what: str) -> None:
    node = new_cluster(1)[1]
    assert Asked(node, state()).done
    hang(node, 0)
    stop = StopReplica(TP, None, True, topic_id("t"))
    if what == "silent":
        node.dirs[0].note_pace(DirNews.HUNG, "a probe has no answer")
        assert Asked(node, stop=stop).refused, "at once"
    else:
        asked = Asked(node, stop=stop)
        assert asked.answers is None
        wait(node, PATIENCE_MS)
        assert asked.refused
    assert node.logs.get(TP) is None and not node.replicas.is_leader(TP)
    thaw(node)
    assert not (Path(node.paths[0]) / "t-0").exists()
    assert node.dirs[0].answers is (what != "silent")


def test_D2_a_creation_whose_directory_is_taken_offline_is_over(new_cluster: Any) -> None:
    """Its thread never says so."""
    node = new_cluster(1, dirs=2)[1]
    hang(node, 0, 1)
    asked = Asked(node, state())
    wait(node, PATIENCE_MS)  # the other one is tried, and hangs as well
    wait(node, PATIENCE_MS)
    assert asked.refused
    on = node.logs.waits_on(TP)
    assert on is not None
    on.mark_offline(KafkaStorageError("by hand"))
    node.logs.new.dir_failed(on)
    assert node.logs.waits_on(TP) is None and node.logs.standings.is_refused(TP)
    thaw(node)
    assert node.logs.get(TP) is None


@pytest.mark.parametrize(("news", "taken"), [(DirNews.SLOW, DirState.DEGRADED), (DirNews.HUNG, DirState.SILENT)])
def test_D3_no_new_replica_on_a_directory_that_is_slow_or_silent(new_cluster: Any, news: Any, taken: Any) -> None:
    node = new_cluster(1, dirs=2)[1]
    node.dirs[0].note_pace(news, "probes say so")
    assert node.dirs[0].state is taken
    tps = [TopicPartition("t", i) for i in range(4)]
    assert Asked(node, *(state(tp) for tp in tps)).done
    assert {node.logs.dir_of(tp) for tp in tps} == {node.paths[1]}


def test_D3_where_all_are_silent_a_new_replica_is_refused_at_once_and_made_later(new_cluster: Any) -> None:
    node = new_cluster(1)[1]
    node.dirs[0].note_pace(DirNews.HUNG, "a probe has no answer")
    assert Asked(node, state()).refused
    assert node.logs.standings.is_refused(TP) and not node.logs.new.has_place(TP)
    node.dirs[0].note_pace(DirNews.ANSWERED, "it was slow")
    assert node.logs.new.has_place(TP), "slow, and the only one"
    assert Asked(node, state()).done and not node.logs.standings.is_refused(TP)


def test_K112_06_a_consumer_of_a_silent_directory_gets_what_is_on_the_others(new_cluster: Any) -> None:
    node = new_cluster(1, dirs=2)[1]
    tps = [TopicPartition("t", i) for i in range(2)]
    for tp in tps:
        assert Asked(node, state(tp)).done
        node.produce(b"a", tp=tp)
    silent = node.dirs[1]
    assert [node.log(tp).dir for tp in tps] == node.dirs
    silent.note_pace(DirNews.HUNG, "a probe has no answer")
    hang(node, 1)

    def fetch(max_wait_ms: int) -> list[list[FetchResult]]:
        answers: list[list[FetchResult]] = []
        queries = [FetchPartitionQuery(tp, 0, 1 << 20) for tp in reversed(tps)]
        query = FetchQuery(None, max_wait_ms, 1, 1 << 20, Isolation.READ_UNCOMMITTED, queries)
        node.replicas.fetch(query, node.cluster.now_ms, answers.append)
        return answers

    [[mute, well]] = fetch(500)
    assert (mute.error, mute.data, mute.high_watermark) == (None, None, 1)
    assert well.error is None and well.data is not None
    # Nobody has to ask again and again for what is on no other directory.
    answers, _ = node.consume(0, tp=tps[1], max_wait_ms=500)
    assert answers == [] and not node.queues[1].works
    wait(node, 500)
    assert [each.data for each in answers[0]] == [None]
    silent.note_pace(DirNews.ANSWERED, "a probe took 9000 ms")
    thaw(node)
    [both] = fetch(500)
    assert all(each.data is not None for each in both)


def test_K112_06_a_produce_to_a_silent_directory_is_refused_at_once_where_nobody_else_can_lead(
    new_cluster: Any,
) -> None:
    """Seen: it was neither refused nor timed out, and its bytes were kept for as long as the disk hung."""
    node = new_cluster(1)[1]
    assert Asked(node, state()).done
    node.dirs[0].note_pace(DirNews.HUNG, "a probe has no answer")
    hang(node, 0)
    for acks in (-1, 1, 0):
        [result] = node.produce(b"a", acks=acks)
        assert isinstance(result.error, KafkaStorageError) and "does not answer" in str(result.error)
    assert not node.queues[0].works and not node.replicas.partitions[TP].appends
    node.dirs[0].note_pace(DirNews.ANSWERED, "a probe took 9000 ms")
    thaw(node)
    [result] = node.produce(b"b")
    assert result.error is None and node.values() == [(0, b"b")]


def test_K112_06_a_produce_to_a_silent_directory_is_answered_when_another_replica_leads(new_cluster: Any) -> None:
    cluster = new_cluster(2)
    cluster.create(1, 2)
    node = cluster[1]
    node.dirs[0].note_pace(DirNews.HUNG, "a probe has no answer")
    hang(node, 0)
    results = node.produce(b"a")
    assert results == []
    cluster.change(leader=2)
    cluster.broadcast()
    [result] = results
    assert isinstance(result.error, NotLeaderOrFollowerError)
    thaw(node)
    cluster.settle()
    assert node.values() == []
