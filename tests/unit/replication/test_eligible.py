"""A leader and those outside its ISR: who may still be elected (KIP-966), who may join, and an unclean leader's start
(KIP-704)."""

from collections.abc import Callable
from typing import Any

from holdfast.model.config import LogConfig
from holdfast.model.errors import NotEnoughReplicasAfterAppendError, OperationNotAttemptedError
from holdfast.model.types import TopicPartition
from holdfast.replication.types import EpochEnd, IsrOutcome

TP = TopicPartition("t", 0)
TWO = LogConfig(min_insync_replicas=2)


def pull_the_plug(cluster: Any) -> None:
    """Nobody fetches any more."""
    for link in list(cluster.links.values()):
        link.close()
    cluster.links.clear()


def test_H_07_nothing_is_committed_below_min_insync_replicas(new_cluster: Callable[..., Any]) -> None:
    """Whoever left the ISR when it became too small still has all that is committed."""
    cluster = new_cluster(2, config=TWO)
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster.settle()
    pull_the_plug(cluster)
    waiting = cluster[1].produce(b"b")
    cluster.change(isr=(1,))
    cluster.broadcast(to=[1])
    assert cluster[1].mark() == 1
    cluster.change(isr=(1,), eligible=(2,))
    cluster.broadcast(to=[1])
    assert isinstance(waiting[0].error, NotEnoughReplicasAfterAppendError)
    assert [r.error for r in cluster[1].produce(b"c", acks=1)] == [None]
    assert (cluster[1].mark(), cluster[1].log().view.end_offset) == (1, 3)
    # It leads now, alone: it has everything committed, and commits nothing either.
    cluster[1].kill()
    cluster.change(leader=2, isr=(2,), eligible=(1,))
    cluster.broadcast()
    cluster[2].produce(b"d", acks=1)
    cluster.settle()
    assert cluster[2].values() == [(0, b"a"), (1, b"d")]
    assert cluster[2].mark() <= 1
    cluster[1].start()
    cluster.broadcast()
    cluster.wait(1000)
    assert cluster.states[TP].isr == (2, 1)
    assert cluster[1].values() == cluster[2].values()
    assert cluster[2].mark() == cluster[1].mark() == 2


def test_H_07_nothing_is_committed_while_the_controller_counts_on_another_replica(cluster: Any) -> None:
    """Its min.insync.replicas may be another one than ours: what it says of the partition counts."""
    cluster.create(1, 2, isr=(1,))
    cluster.settle()
    pull_the_plug(cluster)
    [proposal] = propose_to_drop_2(cluster)
    outcome = IsrOutcome(1, 0, (1,), proposal.partition_epoch + 1, eligible=(2,))
    cluster[1].replicas.alter_partition_result(proposal, outcome, cluster.now_ms)
    waiting = cluster[1].produce(b"a")
    assert (waiting, cluster[1].mark()) == ([], 0)
    cluster.change(isr=(1,), eligible=(2,))  # as it was answered
    cluster.change(eligible=())
    cluster.broadcast(to=[1])
    assert [r.error for r in waiting] == [None]
    assert cluster[1].mark() == 2


def propose_to_drop_2(cluster: Any) -> list[Any]:
    """2 was in the ISR and says nothing any more."""
    cluster.wait(1000)
    cluster[2].kill()
    assert cluster.states[TP].isr == (1, 2)
    cluster[1].produce(b"lags", acks=0)
    node = cluster[1]
    while not node.proposals:
        cluster.now_ms += 1000
        node.replicas.tick(cluster.now_ms)
    proposals, node.proposals = node.proposals, []
    return list(proposals)


def test_H_02_nobody_joins_before_it_has_what_was_there_when_the_epoch_began(cluster: Any) -> None:
    """The new leader's high watermark is behind what is committed: to have reached it is not enough."""
    cluster.create(1, 2, 3)
    link = next(k for k in cluster.links.values() if k.node.id == 2)
    acked = cluster[1].produce(b"a")
    for each in list(cluster.links.values()):
        assert each.answer() and each.send() and each.serve()
    assert [r.error for r in acked] == [None]
    assert (cluster[2].mark(), cluster[2].log().view.end_offset) == (0, 1)
    link.close()
    cluster[1].kill()
    cluster[3].kill()
    cluster.change(leader=2, isr=(2, 1))
    cluster.broadcast(to=[2])
    # 3 comes with nothing. It is past the high watermark as it is known, but lacks what was acknowledged.
    cluster[2].consume(0, replica=(3, None), current_leader_epoch=1, last_fetched_epoch=0)
    assert cluster[2].mark() == 0
    assert cluster[2].proposals == []
    cluster[2].consume(1, replica=(3, None), current_leader_epoch=1, last_fetched_epoch=0)
    [proposal] = cluster[2].proposals
    assert [b for b, _ in proposal.isr] == [2, 1, 3]


def test_H_02_the_end_of_an_epoch_in_which_nothing_was_written(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[1].produce(b"a")
    cluster.settle()
    for leader in (2, 1, 2):  # they lead for a moment
        cluster.change(leader=leader)
        cluster.broadcast()
        cluster.settle()
    epochs = cluster[2].log().epochs.entries()
    assert epochs == [(0, 0), (3, 1)]
    ends = [cluster[2].replicas.offset_for_leader_epoch(TP, e, current_leader_epoch=3) for e in range(5)]
    assert ends == [EpochEnd(0, 1), EpochEnd(0, 1), EpochEnd(0, 1), EpochEnd(3, 1), EpochEnd(None, None)]
    cluster[2].produce(b"b")
    cluster.wait(600)
    assert cluster[1].log().epochs.entries() == cluster[2].log().epochs.entries() == [(0, 0), (3, 1)]
    assert cluster[1].values() == cluster[2].values()


def test_H_26_an_unclean_leader_says_that_it_is_ready_before_anybody_joins(cluster: Any) -> None:
    cluster.create(1, 2)
    cluster[2].kill()
    cluster[1].kill()
    cluster[2].start()
    cluster.change(leader=2, isr=(2,), recovering=True)
    cluster.broadcast()
    node = cluster[2]
    [proposal] = node.proposals
    assert ([b for b, _ in proposal.isr], proposal.recovered) == ([2], True)
    cluster[1].start()
    cluster.broadcast()
    cluster.open_links()
    link = next(k for k in cluster.links.values() if k.node.id == 1)
    assert link.send() and link.serve()
    assert node.proposals == [proposal]  # 1 has caught up, and waits
    node.proposals.clear()
    node.replicas.alter_partition_result(proposal, OperationNotAttemptedError("not now"), cluster.now_ms)
    node.produce(b"a", acks=1)
    assert link.answer() and link.send() and link.serve()
    assert node.proposals == []
    cluster.now_ms += cluster.settings.alter_partition_retry_ms
    node.replicas.tick(cluster.now_ms)
    assert node.proposals == [proposal]
    state = cluster.change(recovering=False)
    node.proposals.clear()
    outcome = IsrOutcome(2, state.leader_epoch, (2,), state.partition_epoch)
    node.replicas.alter_partition_result(proposal, outcome, cluster.now_ms)
    [proposal] = node.proposals
    assert [b for b, _ in proposal.isr] == [2, 1]
    cluster.settle()
    assert cluster.states[TP].isr == (2, 1)
