"""The tables of replication's state machines, and that the code does what they say: every state, every event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.model.errors import KafkaStorageError, NetworkError, NotLeaderOrFollowerError
from holdfast.replication.follower import Followed
from holdfast.replication.isr import IsrState
from holdfast.replication.partition import Partition
from holdfast.replication.transitions import (
    FETCHING,
    PROPOSAL,
    REPLICA,
    Fetch,
    Fetching,
    Proposal,
    Standing,
    Turn,
    Word,
)
from holdfast.replication.types import FetchedPartition, IsrProposal, PartitionState, Role
from tests.unit.replication.conftest import TP, topic_id


def expect(before: Any, event: Any, moves: Any, act: Callable[[], Any], now: Callable[[], Any]) -> None:
    """``act`` leads where the table says, or is refused by it and changes nothing."""
    if (before, event) in moves:
        act()
        assert now() is moves[before, event]
    else:
        with pytest.raises(AssertionError, match=f"expected no {event.name}"):
            act()
        assert now() is before


# -- a replica on its broker -------------------------------------------------------------------------------------


def state(leader: int, epoch: int = 5) -> PartitionState:
    return PartitionState(
        topic_partition=TP, topic_id=topic_id("t"), leader=leader, leader_epoch=epoch, isr=(leader,), partition_epoch=9,
        replicas=(1, 2),
    )  # fmt: skip


def replica(cluster: Any, standing: Standing) -> Partition:
    """A replica on broker 1 that has come there by the ways that there are."""
    log = cluster[1].log()
    partition = Partition(cluster[1].replicas._around, TP, topic_id("t"))
    if standing is Standing.CREATING:
        return partition
    partition.attach(log, 0)
    if standing is Standing.OPENING:
        partition.disk_works = 1  # work of the role before
    if standing in (Standing.OPENING, Standing.LEADER):
        partition.become_leader(state(1, 4), cluster.now_ms, lambda: None)
    if standing is Standing.OFFLINE:
        partition.go_offline(KafkaStorageError("dead"), disk_is_dead=True)
    return partition


@pytest.mark.parametrize("turn", Turn)
@pytest.mark.parametrize("standing", Standing)
def test_a_replica_goes_by_its_table(cluster: Any, standing: Standing, turn: Turn) -> None:
    cluster.create(1, 2)
    partition = replica(cluster, standing)
    assert partition.standing is standing
    error = KafkaStorageError("dead")

    def lead() -> None:
        partition.disk_works = 1
        partition.become_leader(state(1), cluster.now_ms, lambda: None)

    def settled() -> None:
        if standing is not Standing.OPENING:
            REPLICA.after(partition.standing, turn)  # only who is told to lead waits for it
        partition.disk_work_done()

    acts: dict[Turn, Callable[[], Any]] = {
        Turn.LOG_MADE: lambda: partition.attach(cluster[1].log(), 0),
        Turn.LEAD: lead,
        Turn.SETTLED: settled,
        Turn.FOLLOW: lambda: partition.become_follower(state(2), lambda: None),
        Turn.RESIGN: partition.resign,
        Turn.CLOSE: lambda: partition.go_offline(error, disk_is_dead=False),
        Turn.DISK_DIED: lambda: partition.go_offline(error, disk_is_dead=True),
    }
    expect(standing, turn, REPLICA.moves, acts[turn], lambda: partition.standing)


def test_every_role_is_in_the_table_of_replicas() -> None:
    assert {standing.role for standing in REPLICA.states()} == set(Role)
    assert set(REPLICA.states()) == set(Standing)
    assert [standing for standing in Standing if standing.value[1]] == [Standing.LEADER]


# -- a leader's proposal -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", Word)
@pytest.mark.parametrize("before", Proposal)
def test_a_proposal_goes_by_its_table(before: Proposal, word: Word) -> None:
    isr = IsrState((1,), 0)
    proposal = IsrProposal(TP, topic_id("t"), 0, 0, ((1, None), (2, 7)))
    if before in (Proposal.ASKED, Proposal.IN_DOUBT):
        isr.propose(proposal)
    if before in (Proposal.IN_DOUBT, Proposal.HELD_BACK):
        isr.try_again_at(500)
    assert isr.state is before

    def later() -> None:
        if (word is Word.NO_WORD) is (isr.pending is None):
            PROPOSAL.after(isr.state, word)  # which of the two words it is, is told by the state
        isr.try_again_at(900)

    acts: dict[Word, Callable[[], Any]] = {
        Word.PROPOSED: lambda: isr.propose(proposal),
        Word.STORED: lambda: isr.commit((1, 2), 1),
        Word.REFUSED: isr.revert,
        Word.NO_WORD: later,
        Word.NOT_NOW: later,
        Word.TIME: isr.time_is_up,
    }
    expect(before, word, PROPOSAL.moves, acts[word], lambda: isr.state)
    pending = isr.state in (Proposal.ASKED, Proposal.IN_DOUBT)
    assert (isr.pending is not None) is pending
    assert pending or isr.maximal == frozenset(isr.committed)


def test_H_04_until_the_outcome_is_known_both_readings_count() -> None:
    """In every state in which a proposal may have been stored the high watermark waits for all whom it names."""
    isr = IsrState((1, 2), 0)
    isr.propose(IsrProposal(TP, topic_id("t"), 0, 0, ((1, None), (3, 7))))
    isr.try_again_at(500)
    assert isr.state is Proposal.IN_DOUBT
    assert isr.maximal == {1, 2, 3}
    isr.time_is_up()
    assert isr.maximal == {1, 2, 3}
    isr.commit((1, 3), 1)
    assert isr.maximal == {1, 3}


# -- a partition that a follower fetches -------------------------------------------------------------------------


class Source:
    """Broker 2 follows a broker 1 that the test plays; its disk moves when told."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        cluster.create(1, 2, settle=False)
        self.node = cluster[2]
        [self.fetcher] = self.node.replicas.fetchers.values()
        self.followed: Followed = self.fetcher._partitions[TP]

    def answer(self, **values: Any) -> None:
        fields = {"error": None, "high_watermark": 0, "log_start_offset": 0, "diverging": None, "records": None}
        fetched = FetchedPartition(TP, **(fields | values))
        self.fetcher._handle(self.followed, fetched, self.cluster.now_ms)

    def bring(self, state: Fetching) -> None:
        """Into ``state``, by a way that does not ask the table for the event under test alone."""
        if state is not Fetching.TO_MENTION:
            assert self.fetcher.build(self.cluster.now_ms) is not None
            self.node.queues[0].inline = False
        if state is Fetching.WORKING:
            self.answer(records=self.cluster.batch(b"a"))
        if state is Fetching.BACKING_OFF:
            self.answer(error=NotLeaderOrFollowerError("not yet"))
        self.node.queues[0].inline = False

    def places(self) -> tuple[bool, bool]:
        """Whether it is in the queue of what is asked next, and of what waits."""
        return TP in self.fetcher._to_mention, TP in self.fetcher._backing_off


@pytest.mark.parametrize("event", Fetch)
@pytest.mark.parametrize("before", Fetching)
def test_a_followed_partition_goes_by_its_table(cluster: Any, before: Fetching, event: Fetch) -> None:
    source = Source(cluster)
    source.bring(before)
    fetcher, followed, now_ms = source.fetcher, source.followed, cluster.now_ms
    assert followed.state is before

    def done() -> None:
        if before is not Fetching.WORKING:  # the second piece of an answer's work
            fetcher._working += 1
            followed.partition.disk_works += 1
        fetcher.work_done(followed, None)

    acts: dict[Fetch, Callable[[], Any]] = {
        Fetch.SENT: lambda: fetcher._query(TP),
        Fetch.WORK: lambda: source.answer(diverging=(0, 0)),
        Fetch.DONE: done,
        Fetch.FAILED: lambda: source.answer(error=NotLeaderOrFollowerError("no")),
        Fetch.PAUSED: lambda: fetcher._move(TP, followed, Fetch.PAUSED),
        Fetch.NEW_SESSION: lambda: fetcher.on_failure(NetworkError("closed"), now_ms),
    }
    expect(before, event, FETCHING.moves, acts[event], lambda: followed.state)
    if event is not Fetch.SENT:  # build empties the queue when it has asked for all
        assert source.places() == (followed.state is Fetching.TO_MENTION, followed.state is Fetching.BACKING_OFF)


def test_a_partition_that_failed_waits_though_its_disk_is_through_with_earlier_work(cluster: Any) -> None:
    """Its source said no while an append was under way: the end of that is no reason to ask at once."""
    source = Source(cluster)
    source.bring(Fetching.WORKING)
    source.answer(error=NotLeaderOrFollowerError("another leads"))
    source.node.queues[0].run()
    assert source.followed.state is Fetching.BACKING_OFF
    source.fetcher.on_response(None, 7, [], cluster.now_ms)
    plan = source.fetcher.build(cluster.now_ms)
    assert plan is not None
    assert plan.partitions == []
    source.fetcher.on_response(None, 7, [], cluster.now_ms)
    plan = source.fetcher.build(cluster.now_ms + 10)
    assert plan is not None
    assert [query.topic_partition for query in plan.partitions] == [TP]


def test_every_state_of_replication_is_in_its_table() -> None:
    assert set(PROPOSAL.states()) == set(Proposal)
    assert set(FETCHING.states()) == set(Fetching)
    for table, events in ((REPLICA, Turn), (PROPOSAL, Word), (FETCHING, Fetch)):
        assert {event for _, event in table.moves} == set(events)
