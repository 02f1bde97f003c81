"""What a follower asks, what it does with answers, and the session that its leader keeps."""

from typing import Any

from holdfast.model.errors import (
    FetchSessionIdNotFoundError,
    KafkaStorageError,
    NetworkError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
)
from holdfast.model.types import TopicPartition
from holdfast.replication.follower import FetcherState
from holdfast.replication.isr import FollowerProgress
from holdfast.replication.types import FetchedPartition, FetchPartitionQuery, FetchPlan
from holdfast.storage.dir_state import DirNews
from holdfast.storage.log import ColdRead

TP = TopicPartition("t", 0)
TP1 = TopicPartition("t", 1)


def only_fetcher(node: Any) -> FetcherState:
    [fetcher] = node.replicas.fetchers.values()
    return fetcher


def fetched(tp: TopicPartition = TP, **values: Any) -> FetchedPartition:
    fields = {
        "error": None,
        "high_watermark": 0,
        "log_start_offset": 0,
        "diverging": None,
        "records": None,
    } | values
    return FetchedPartition(tp, **fields)


def follower(cluster: Any, *tps: TopicPartition) -> tuple[Any, FetcherState]:
    """Broker 2 follows broker 1, which the test plays itself."""
    for tp in tps or (TP,):
        cluster.create(1, 2, tp=tp, settle=False)
    return cluster[2], only_fetcher(cluster[2])


def build(cluster: Any, fetcher: FetcherState) -> FetchPlan:
    plan = fetcher.build(cluster.now_ms)
    assert plan is not None
    return plan


# -- what is asked -----------------------------------------------------------------------------------------------


def test_a_session_asks_only_for_what_changed(cluster: Any) -> None:
    node, fetcher = follower(cluster, TP, TP1)
    first = build(cluster, fetcher)
    assert (first.session_id, first.session_epoch, len(first.partitions)) == (None, 0, 2)
    assert first.partitions[0] == FetchPartitionQuery(TP, 0, 1 << 20, 0, None, 0)
    assert fetcher.build(cluster.now_ms) is None
    records = cluster.batch(b"a")
    fetcher.on_response(None, 7, [fetched(records=records, high_watermark=5)], cluster.now_ms)
    second = build(cluster, fetcher)
    assert (second.session_id, second.session_epoch) == (7, 1)
    assert [(q.topic_partition, q.offset) for q in second.partitions] == [(TP, 1)]
    assert node.mark() == 1  # as far as the log goes
    fetcher.on_response(None, 7, [], cluster.now_ms)
    third = build(cluster, fetcher)
    assert (third.session_epoch, third.partitions, third.forgotten) == (2, [], [])


def test_R_45_nothing_is_asked_before_the_append_is_in_the_log(cluster: Any) -> None:
    node, fetcher = follower(cluster)
    build(cluster, fetcher)
    node.queues[0].inline = False
    fetcher.on_response(None, 7, [fetched(records=cluster.batch(b"a"))], cluster.now_ms)
    assert fetcher.build(cluster.now_ms) is None
    node.queues[0].work()
    assert fetcher.build(cluster.now_ms) is None
    node.ready.clear()
    node.queues[0].complete()
    assert list(node.ready) == [fetcher]
    assert build(cluster, fetcher).partitions[0].offset == 1


def test_a_new_partition_does_not_wait_for_the_parked_fetch(cluster: Any) -> None:
    _, fetcher = follower(cluster)
    assert build(cluster, fetcher).session_epoch == 0
    cluster.create(1, 2, tp=TP1, settle=False)
    assert fetcher.build(cluster.now_ms) is None  # the session has no id yet
    fetcher.on_response(None, 7, [], cluster.now_ms)
    assert [q.topic_partition for q in build(cluster, fetcher).partitions] == [TP1]
    other = TopicPartition("t", 2)
    cluster.create(1, 2, tp=other, settle=False)
    assert [q.topic_partition for q in build(cluster, fetcher).partitions] == [other]
    cluster.create(1, 2, tp=TopicPartition("t", 3), settle=False)
    assert fetcher.build(cluster.now_ms) is None  # two under way are enough
    assert "3 " not in repr(fetcher)


def test_a_partition_that_went_is_forgotten_at_the_source(cluster: Any) -> None:
    _, fetcher = follower(cluster, TP, TP1)
    build(cluster, fetcher)
    fetcher.on_response(None, 7, [], cluster.now_ms)
    build(cluster, fetcher)
    cluster.change(TP1, leader=2)
    cluster.broadcast(TP1)
    assert list(fetcher.partitions) == [TP]
    fetcher.on_response(None, 7, [fetched(TP1, records=cluster.batch(b"late"))], cluster.now_ms)
    assert cluster[2].log(TP1).view.end_offset == 0
    assert build(cluster, fetcher).forgotten == [TP1]


def test_answers_from_before_a_partition_came_back_are_not_for_it(cluster: Any) -> None:
    node, fetcher = follower(cluster, TP, TP1)
    build(cluster, fetcher)
    fetcher.on_response(None, 7, [], cluster.now_ms)
    build(cluster, fetcher)
    cluster.change(leader_epoch=4)
    cluster.broadcast(to=[2])
    fetcher.on_response(None, 7, [fetched(records=cluster.batch(b"old epoch"))], cluster.now_ms)
    assert node.log().view.end_offset == 0
    assert build(cluster, fetcher).partitions[0].current_leader_epoch == 4


# -- errors ------------------------------------------------------------------------------------------------------


def test_errors_back_off_and_end(cluster: Any) -> None:
    node, fetcher = follower(cluster)
    waits = []
    for _ in range(9):
        build(cluster, fetcher)
        fetcher.on_response(None, 7, [fetched(error=NotLeaderOrFollowerError())], cluster.now_ms)
        due = fetcher.next_deadline_ms()
        assert due is not None
        assert node.replicas.next_deadline_ms() == due
        waits.append(due - cluster.now_ms)
        node.ready.clear()
        cluster.now_ms = due
        node.replicas.tick(cluster.now_ms)
        assert list(node.ready) == [fetcher]
    assert waits == [10, 20, 40, 80, 160, 320, 640, 1000, 1000]
    assert fetcher.next_deadline_ms() is None


def test_a_lost_session_is_opened_again(cluster: Any) -> None:
    _node, fetcher = follower(cluster)
    build(cluster, fetcher)
    fetcher.on_response(None, 7, [], cluster.now_ms)
    build(cluster, fetcher)
    fetcher.on_response(FetchSessionIdNotFoundError(), None, [], cluster.now_ms)
    assert fetcher.build(cluster.now_ms) is None
    cluster.now_ms += 10
    again = build(cluster, fetcher)
    assert (again.session_id, again.session_epoch, len(again.partitions)) == (None, 0, 1)


def test_a_lost_connection(cluster: Any) -> None:
    node, fetcher = follower(cluster)
    build(cluster, fetcher)
    for expected in (10, 20):
        fetcher.on_failure(NetworkError("reset"), cluster.now_ms)
        assert fetcher.next_deadline_ms() == cluster.now_ms + expected
        assert fetcher.build(cluster.now_ms) is None
        cluster.now_ms += expected
        fetcher.tick(cluster.now_ms)
        assert build(cluster, fetcher).session_epoch == 0
    fetcher.on_failure(NetworkError("reset"), cluster.now_ms)
    # What comes for a plan that nobody waits for any more is dropped.
    fetcher.on_response(None, 7, [fetched(records=cluster.batch(b"a"))], cluster.now_ms)
    assert node.log().view.end_offset == 0


def test_a_source_that_keeps_no_sessions(cluster: Any) -> None:
    _, fetcher = follower(cluster)
    for _ in range(2):
        plan = build(cluster, fetcher)
        assert (plan.session_id, plan.session_epoch, len(plan.partitions)) == (None, 0, 1)
        fetcher.on_response(None, None, [fetched()], cluster.now_ms)


def test_out_of_range_starts_over_where_the_leader_starts(cluster: Any) -> None:
    node, fetcher = follower(cluster)
    build(cluster, fetcher)
    fetcher.on_response(None, 7, [fetched(records=cluster.batch(b"a"), high_watermark=1)], cluster.now_ms)
    build(cluster, fetcher)
    error = OffsetOutOfRangeError()
    fetcher.on_response(None, 7, [fetched(error=error, log_start_offset=40)], cluster.now_ms)
    plan = build(cluster, fetcher)
    assert (plan.partitions[0].offset, plan.partitions[0].last_fetched_epoch) == (40, None)
    assert node.mark() == 40


def test_records_that_do_not_fit_are_fetched_again(cluster: Any) -> None:
    node, fetcher = follower(cluster)
    build(cluster, fetcher)
    bad = cluster.batch(b"a")
    bad[-1] ^= 0xFF
    for records in (bad, bad[:30]):
        fetcher.on_response(None, 7, [fetched(records=records)], cluster.now_ms)
        due = fetcher.next_deadline_ms()
        assert due is not None
        cluster.now_ms = due
        assert build(cluster, fetcher).partitions[0].offset == 0
    assert node.log().view.end_offset == 0


def test_the_leaders_log_start_is_taken_over(cluster: Any) -> None:
    node, fetcher = follower(cluster)
    build(cluster, fetcher)
    fetcher.on_response(None, 7, [fetched(records=cluster.batch(b"a", b"b"))], cluster.now_ms)
    build(cluster, fetcher)
    fetcher.on_response(None, 7, [fetched(log_start_offset=1, high_watermark=2)], cluster.now_ms)
    assert node.log().view.start_offset == 1
    assert build(cluster, fetcher).partitions[0].log_start_offset == 1


def test_cuts_and_appends_of_an_old_epoch_do_not_touch_the_log(cluster: Any) -> None:
    node, fetcher = follower(cluster)
    build(cluster, fetcher)
    fetcher.on_response(None, 7, [fetched(records=cluster.batch(b"a"))], cluster.now_ms)
    for values in ({"diverging": (0, 0)}, {"records": cluster.batch(b"x")}):
        build(cluster, only_fetcher(node))
        node.queues[0].inline = False
        fetcher.on_response(None, 7, [fetched(**values)], cluster.now_ms)
        cluster.change(leader_epoch=cluster.states[TP].leader_epoch + 1)
        cluster.broadcast(to=[2])
        assert node.log().view.end_offset == 1
        node.queues[0].inline = True
        node.queues[0].run()
        assert node.log().view.end_offset == 1
        assert build(cluster, fetcher).session_epoch == 0
        fetcher.on_response(None, 7, [], cluster.now_ms)


def test_replica_that_has_no_disk_any_more_leaves_the_fetcher(cluster: Any) -> None:
    node, fetcher = follower(cluster)
    build(cluster, fetcher)
    node.queues[0].inline = False
    fetcher.on_response(None, 7, [fetched(records=cluster.batch(b"a"))], cluster.now_ms)
    node.dirs[0].mark_offline(KafkaStorageError("EIO"))
    node.replicas.log_dir_failed(node.dirs[0], cluster.now_ms)
    node.queues[0].run()
    assert fetcher.is_empty
    assert fetcher.build(cluster.now_ms) is None


# -- the leader's side of the session ----------------------------------------------------------------------------


class Session:
    """A follower's session at broker 1, driven by hand."""

    def __init__(self, cluster: Any, replica: int = 2) -> None:
        self.cluster = cluster
        self.session = cluster[1].replicas.open_session((replica, cluster[replica].epoch))
        self.answers: list[Any] = []

    def fetch(
        self,
        *queries: FetchPartitionQuery,
        forgotten: tuple[TopicPartition, ...] = (),
        max_bytes: int = 1 << 20,
        max_wait_ms: int = 500,
    ) -> None:
        self.session.fetch(
            queries,
            forgotten,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            now_ms=self.cluster.now_ms,
            done=self.answers.append,
        )


def query(offset: int, tp: TopicPartition = TP, epoch: int | None = None) -> FetchPartitionQuery:
    return FetchPartitionQuery(tp, offset, 1 << 20, 0, epoch, 0)


def test_only_partitions_with_news_are_in_the_answer(cluster: Any) -> None:
    cluster.create(1, 2, settle=False)
    cluster.create(1, 2, tp=TP1, settle=False)
    session = Session(cluster)
    session.fetch(query(0), query(0, TP1))
    cluster[1].produce(b"a")
    assert [r.topic_partition for r in session.answers[0]] == [TP, TP1]  # the first answer tells all marks
    cluster[1].produce(b"b")
    session.fetch(query(1))
    assert [r.topic_partition for r in session.answers[1]] == [TP]
    session.fetch(query(2))
    cluster.now_ms += 500
    cluster.tick()
    [news] = session.answers[2]
    assert (news.topic_partition, news.high_watermark, news.data) == (TP, 2, None)
    session.fetch()
    cluster.now_ms += 500
    cluster.tick()
    assert session.answers[3] == []


def test_what_was_sent_is_not_sent_again_until_it_is_mentioned(cluster: Any) -> None:
    cluster.create(1, 2, settle=False)
    session = Session(cluster)
    session.fetch(query(0))
    cluster[1].produce(b"a", acks=1)
    session.fetch()
    cluster[1].produce(b"b", acks=1)
    session.session.flush()
    assert session.answers[1] == []
    session.fetch(query(0))
    assert session.answers[2][0].data is not None


def test_a_second_fetch_answers_the_parked_one(cluster: Any) -> None:
    cluster.create(1, 2, settle=False)
    cluster.create(1, 2, tp=TP1, settle=False)
    session = Session(cluster)
    session.fetch(query(0))
    session.fetch(query(0, TP1))
    assert len(session.answers) == 1
    session.fetch(forgotten=(TP, TopicPartition("no", 0)))
    cluster[1].produce(b"a", acks=1)
    assert len(session.answers) == 2
    cluster[1].produce(b"a", acks=1, tp=TP1)
    assert len(session.answers) == 3


def test_a_small_answer_leaves_the_rest_for_the_next(cluster: Any) -> None:
    tps = [TopicPartition("t", i) for i in range(3)]
    for tp in tps:
        cluster.create(1, 2, tp=tp, settle=False)
        cluster[1].produce(b"x" * 1000, acks=1, tp=tp)
    session = Session(cluster)
    session.fetch(*(query(0, tp) for tp in tps), max_bytes=1500)
    session.fetch(max_bytes=1500)
    session.fetch(max_bytes=1)
    sent = [[r.topic_partition for r in answer if r.data is not None] for answer in session.answers]
    assert sent == [[tp] for tp in tps]


def test_two_sessions_of_one_follower(cluster: Any) -> None:
    cluster.create(1, 2, settle=False)
    old, new = Session(cluster), Session(cluster)
    old.fetch(query(0))
    new.fetch(query(0))
    cluster[1].produce(b"a", acks=1)
    assert len(new.answers) == 1
    [[told]] = old.answers
    assert isinstance(told.error, ReplicaNotAvailableError), "else it would wait for a partition that it lost"
    old.session.close()
    new.fetch(query(1))
    cluster[1].produce(b"b", acks=1)
    assert len(new.answers) == 2
    new.session.close()
    assert cluster[1].replicas.partitions[TP].entries == {}


def test_a_fetch_in_a_followers_name_does_not_stop_it(cluster: Any) -> None:
    """One fetch without a session, from whoever; the follower comes back and writes are committed again."""
    cluster.create(1, 2, settle=False)
    follower, stranger = Session(cluster), Session(cluster)
    follower.fetch(query(0))
    stranger.fetch(query(0))
    stranger.session.close()
    follower.fetch(query(0))
    done = cluster[1].produce(b"a", acks=-1)
    follower.fetch(query(1))
    assert done[0].error is None


def test_a_follower_hears_at_once_that_the_leader_moved(cluster: Any) -> None:
    cluster.create(1, 2, settle=False)
    session = Session(cluster)
    session.fetch(query(0))
    cluster.change(leader=2)
    cluster.broadcast(to=[1])
    [[result]] = session.answers
    assert isinstance(result.error, NotLeaderOrFollowerError)
    session.fetch(query(0))
    assert session.answers[1][0].error is not None


def test_a_partition_that_is_unknown_or_gone(cluster: Any) -> None:
    cluster.create(1, 2, settle=False)
    session = Session(cluster)
    session.fetch(query(0))
    session.fetch(query(9), query(0, TopicPartition("no", 0)))
    errors = [type(r.error).__name__ for r in session.answers[1]]
    assert errors == ["OffsetOutOfRangeError", "UnknownTopicOrPartitionError"]
    assert session.answers[1][0].log_start_offset == 0


class FailingLog:
    """Reads do what the test says."""

    def __init__(self, log: Any, error: Exception) -> None:
        self.log = log
        self.error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def read(self, *args: Any, blocking: bool = False, **kwargs: Any) -> Any:
        if not blocking:
            raise self.error
        return self.log.read(*args, blocking=True, **kwargs)


def test_H_15_cold_reads_of_a_session(cluster: Any) -> None:
    cluster.create(1, 2, settle=False)
    cluster[1].produce(b"a", acks=1)
    partition = cluster[1].replicas.partitions[TP]
    partition.log = FailingLog(partition.log, ColdRead())
    session = Session(cluster)
    session.fetch(query(0))  # a queue that answers at once
    assert session.answers[0][0].data is not None
    queue = cluster[1].queues[0]
    queue.inline = False
    session.fetch(query(0))
    assert partition.followers[2].reading_since_ms == cluster.now_ms
    cluster.now_ms += 400
    cluster.tick()
    assert len(session.answers) == 1
    queue.run()
    assert session.answers[1][0].data is not None
    assert partition.followers[2].reading_since_ms is None
    # The follower moved on meanwhile.
    session.fetch(query(0))
    session.fetch(query(1))
    queue.run()
    assert [len(a) for a in session.answers] == [1, 1, 0]
    # The disk says no.
    session.fetch(query(0))
    queue.works.popleft()[1](None, KafkaStorageError("EIO"))
    assert isinstance(session.answers[-1][-1].error, KafkaStorageError)


def test_K112_06_a_follower_of_a_silent_directory_gets_its_data_when_that_answers(cluster: Any) -> None:
    cluster.create(1, 2, settle=False)
    cluster[1].produce(b"a", acks=1)
    partition, [directory] = cluster[1].replicas.partitions[TP], cluster[1].dirs
    directory.note_pace(DirNews.HUNG, "a probe has no answer")
    queue = cluster[1].queues[0]
    queue.inline = False
    session = Session(cluster)
    session.fetch(query(0))
    assert [each.data for answer in session.answers for each in answer] == [None], "the mark, and no data"
    assert partition.followers[2].reading_since_ms == cluster.now_ms, "it is not to blame"
    session.fetch()
    cluster.now_ms += 500
    cluster.tick()
    assert session.answers[1:] == [[]] and len(queue.works) == 1, "asked for once"
    session.fetch()
    directory.note_pace(DirNews.ANSWERED, "a probe took 9000 ms")
    queue.run()
    assert session.answers[2][0].data is not None


def test_a_read_that_fails_takes_the_partition_out(cluster: Any) -> None:
    cluster.create(1, 2, settle=False)
    cluster[1].produce(b"a", acks=1)
    partition = cluster[1].replicas.partitions[TP]
    partition.log = FailingLog(partition.log, KafkaStorageError("EIO"))
    session = Session(cluster)
    session.fetch(query(0))
    assert isinstance(session.answers[0][0].error, KafkaStorageError)
    assert partition.entries == {}


def test_closing_a_session_frees_the_high_watermark(cluster: Any) -> None:
    """A follower that was about to join goes: nobody waits for it any more."""
    cluster.create(1, 2, isr=(1,), settle=False)
    session = Session(cluster)
    cluster[1].produce(b"a", acks=1)
    session.fetch(query(0))
    session.fetch(query(1, epoch=0))  # caught up: proposed
    [_proposal] = cluster[1].proposals
    results = cluster[1].produce(b"b", b"c")
    cluster.fenced = {2}
    cluster.answer_proposals(cluster[1])
    assert [r.error for r in results] == [None]  # it was refused, so it is not waited for
    cluster.now_ms += 300
    session.fetch(query(3, epoch=0))  # it keeps up, and is not proposed again yet
    cluster.now_ms += 300
    waiting = cluster[1].produce(b"d")
    assert waiting == []
    session.session.close()
    assert [r.error for r in waiting] == [None]


def test_who_stops_to_keep_up_outside_of_the_isr_is_not_waited_for(cluster: Any) -> None:
    """A full disk, say: it was caught up a moment ago, and would have 30 s before it counts as lagging."""
    cluster.create(1, 2, isr=(1,), settle=False)
    session = Session(cluster)
    cluster[1].produce(b"a", acks=1)
    session.fetch(query(0))
    cluster.fenced = {2}
    session.fetch(query(1, epoch=0))
    cluster.answer_proposals(cluster[1])
    cluster.now_ms += 300
    session.fetch(query(1, epoch=0))
    cluster.now_ms += 300
    waiting = cluster[1].produce(b"b")
    assert waiting == []
    cluster.now_ms += 600
    more = cluster[1].produce(b"c")
    assert [r.error for r in (*waiting, *more)] == [None, None]


def test_who_has_everything_is_proposed_however_long_it_was_behind(cluster: Any) -> None:
    """Simulation, seed 2136768555: of an idle partition it does not ask again."""
    cluster.create(1, 2, isr=(1,), settle=False)
    session = Session(cluster)
    cluster[1].produce(b"a", acks=1)
    session.fetch(query(0))
    cluster.fenced = {2}
    session.fetch(query(1, epoch=0))
    cluster.answer_proposals(cluster[1])
    cluster[1].replicas.partitions[TP].followers[2].behind_since_ms = cluster.now_ms
    cluster.fenced = set()
    cluster.now_ms += 60_000
    cluster[1].replicas.tick(cluster.now_ms)
    assert [dict(p.isr).keys() for p in cluster[1].proposals] == [{1, 2}]


# -- progress ----------------------------------------------------------------------------------------------------


def test_lag_is_counted_from_when_it_was_last_caught_up() -> None:
    progress = FollowerProgress(2, 0)
    assert progress.lags(1000, 500)
    progress.fetched(10, 10, 0, None, 1000)
    assert not progress.lags(9000, 500)
    progress.fetched(10, 20, 0, None, 2000)
    assert not progress.lags(2500, 500)
    assert progress.lags(2501, 500)
    progress.fetched(20, 30, 0, None, 3000)  # it has what there was at 2000
    assert progress.behind_since_ms == 2000
    progress.fetched(25, 40, 0, None, 4000)  # it has not what there was at 3000
    assert progress.behind_since_ms == 2000
    progress.fetched(40, 40, 0, None, 5000)
    assert progress.behind_since_ms is None


def test_H_15_time_that_our_own_disk_took_is_given_back() -> None:
    progress = FollowerProgress(2, 1000)
    progress.reading(1100)
    assert not progress.lags(60_000, 500)
    progress.reading(2000)
    progress.read(60_100)
    assert progress.behind_since_ms == 60_000
    progress.read(70_000)
    assert progress.behind_since_ms == 60_000
