"""Fetch sessions of consumers (KIP-227): who gets one, which answers, what an incremental fetch is told."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from holdfast.model.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.types import TopicPartition
from holdfast.records.record import decode_batches
from holdfast.replication.consumer_session import Served
from holdfast.replication.fetch_sessions import EVICTION_MS, FetchSessions
from holdfast.replication.surroundings import Surroundings
from holdfast.replication.types import FetchPartitionQuery, FetchQuery, FetchResult, Isolation, ReplicationSettings

Answer = list[tuple[str | UUID, FetchResult]]
IDS: dict[UUID, str] = {}


@pytest.fixture(autouse=True)
def _no_ids() -> None:
    IDS.clear()


def resolved(topic: str | UUID) -> str | None:
    return topic if isinstance(topic, str) else IDS.get(topic)


def sessions_of(node: Any) -> FetchSessions:
    """Those of a broker, with ids 1, 2, 3 ..."""
    sessions = node.replicas.consumer_sessions(slots=1000, new_id=itertools.count(1).__next__, resolve=resolved)
    assert isinstance(sessions, FetchSessions)
    return sessions


def sessions_of_nothing(slots: int = 1000, max_partitions: int = 100, numbers: Iterable[int] = ()) -> FetchSessions:
    """Of a broker without partitions."""
    outbox: Any = None
    around = Surroundings(1, ReplicationSettings(), outbox, int)
    served = Served(around, {}, lambda tp: UnknownTopicOrPartitionError(str(tp)), resolved)
    new_id = iter(numbers or itertools.count(1)).__next__
    return FetchSessions(served, slots=slots, new_id=new_id, max_partitions=max_partitions)


def query(partition: int, offset: int, *, topic: str = "t", max_bytes: int = 1 << 20) -> FetchPartitionQuery:
    return FetchPartitionQuery(TopicPartition(topic, partition), offset, max_bytes)


class Consumer:
    """Sends full and incremental fetches of one session to a broker."""

    def __init__(self, node: Any, sessions: FetchSessions) -> None:
        self.node, self.sessions = node, sessions
        self.session: Any = None
        self.epoch = 1
        self.answers: list[Answer] = []

    @property
    def now_ms(self) -> int:
        return int(self.node.cluster.now_ms)

    def open(self, *queries: FetchPartitionQuery) -> list[FetchResult]:
        answers: list[list[FetchResult]] = []
        self.node.replicas.fetch(limits()._replace(partitions=queries), self.now_ms, answers.append)
        asked = [((q.topic_partition.topic, q), r) for q, r in zip(queries, answers[0], strict=True)]
        self.session = self.sessions.open(asked, uses_ids=False, now_ms=self.now_ms)
        return answers[0]

    def fetch(self, *queries: FetchPartitionQuery, forget: tuple[int, ...] = (), **limit: int) -> list[Answer]:
        """One incremental fetch; its answer comes at the end of what is returned."""
        session = self.sessions.resume(self.session.id, self.epoch, uses_ids=False, now_ms=self.now_ms)
        assert session is self.session
        self.epoch += 1
        error = self.sessions.update(self.session, [(q.topic_partition.topic, q) for q in queries],
                                     [("t", p) for p in forget])  # fmt: skip
        assert error is None
        self.session.fetch(limits(**limit), self.now_ms, self.answers.append)
        return self.answers


def limits(max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20) -> FetchQuery:
    return FetchQuery(None, max_wait_ms, min_bytes, max_bytes, Isolation.READ_UNCOMMITTED, ())


def told(answer: Answer) -> dict[int, tuple[list[bytes | None], int | None]]:
    """Of each partition in the answer: values and high watermark."""
    found = {}
    for _, r in answer:
        assert not isinstance(r.data, bytes)
        values = [] if r.data is None else [record.value for record in decode_batches(r.data.read())]
        found[r.topic_partition.partition] = values, r.high_watermark
    return found


def partitions(cluster: Any, count: int, *replicas: int) -> None:
    for i in range(count):
        cluster.create(*(replicas or (1,)), tp=TopicPartition("t", i))


def test_only_what_changed_is_told(cluster: Any) -> None:
    partitions(cluster, 3)
    node = cluster[1]
    consumer = Consumer(node, sessions_of(node))
    assert len(consumer.open(*(query(p, 0) for p in range(3)))) == 3
    assert consumer.fetch()[-1] == []
    node.produce(b"a", tp=TopicPartition("t", 1))
    assert told(consumer.fetch()[-1]) == {1: ([b"a"], 1)}
    # Not asked for anew: it is given again, as in a full fetch.
    assert told(consumer.fetch()[-1]) == {1: ([b"a"], 1)}
    assert consumer.fetch(query(1, 1))[-1] == []
    assert consumer.fetch(query(1, 0))[-1] != []


def test_an_idle_fetch_looks_at_nothing_and_waits(cluster: Any) -> None:
    partitions(cluster, 3)
    node = cluster[1]
    consumer = Consumer(node, sessions_of(node))
    consumer.open(*(query(p, 0) for p in range(3)))
    assert not consumer.session.news
    consumer.fetch(max_wait_ms=500)
    assert consumer.answers == []
    node.produce(b"a", tp=TopicPartition("t", 2))
    assert told(consumer.answers[0]) == {2: ([b"a"], 1)}
    assert [e.query.topic_partition.partition for e in consumer.session.news] == [2]
    consumer.fetch(query(2, 1), max_wait_ms=500)
    cluster.now_ms += 500
    cluster.tick()
    assert consumer.answers[1] == []
    assert node.replicas.next_deadline_ms() is None


def test_min_bytes_are_counted_over_partitions_with_news(cluster: Any) -> None:
    partitions(cluster, 2)
    node = cluster[1]
    consumer = Consumer(node, sessions_of(node))
    consumer.open(query(0, 0), query(1, 0))
    consumer.fetch(max_wait_ms=500, min_bytes=2 * len(cluster.batch(b"a")))
    node.produce(b"a", tp=TopicPartition("t", 0))
    assert consumer.answers == []
    node.produce(b"b", tp=TopicPartition("t", 1))
    assert told(consumer.answers[0]) == {0: ([b"a"], 1), 1: ([b"b"], 1)}


def test_news_while_nobody_fetches_are_noted_once(cluster: Any) -> None:
    partitions(cluster, 1)
    node = cluster[1]
    consumer = Consumer(node, sessions_of(node))
    consumer.open(query(0, 0))
    waits = node.replicas.partitions[TopicPartition("t", 0)].consumer_waits
    assert len(waits) == 1
    node.produce(b"a", tp=TopicPartition("t", 0))
    assert not waits
    node.produce(b"b", tp=TopicPartition("t", 0))
    assert told(consumer.fetch()[-1]) == {0: ([b"a", b"b"], 2)}


def test_none_starves_where_an_answer_has_room_for_one(cluster: Any) -> None:
    partitions(cluster, 3)
    node = cluster[1]
    for p in range(3):
        node.produce(b"x" * 100, tp=TopicPartition("t", p))
    consumer = Consumer(node, sessions_of(node))
    consumer.open(*(query(p, 1) for p in range(3)))
    firsts = []
    answer = consumer.fetch(*(query(p, 0) for p in range(3)), max_bytes=10)[-1]
    for _ in range(6):
        firsts.append(next(p for p, (values, _) in told(answer).items() if values))
        answer = consumer.fetch(max_bytes=10)[-1]
    assert firsts == [0, 1, 2, 0, 1, 2]


def test_a_lost_leader_is_told_and_the_partition_again_when_it_is_back(cluster: Any) -> None:
    partitions(cluster, 2, 1, 2)
    node = cluster[1]
    consumer = Consumer(node, sessions_of(node))
    consumer.open(query(0, 0), query(1, 0))
    consumer.fetch(max_wait_ms=500)
    tp = TopicPartition("t", 0)
    cluster.change(tp, leader=2)
    cluster.broadcast(tp)
    cluster.settle()
    [[(_, result)]] = consumer.answers
    assert isinstance(result.error, NotLeaderOrFollowerError)
    [(_, result)] = consumer.fetch(max_wait_ms=500)[-1]  # each answer says it until it is forgotten or right
    assert isinstance(result.error, NotLeaderOrFollowerError)
    cluster.change(tp, leader=1)
    cluster.broadcast(tp)
    cluster.settle()
    assert told(consumer.fetch()[-1]) == {0: ([], 0)}
    assert consumer.fetch()[-1] == []


def test_a_log_start_that_moves_is_told(cluster: Any) -> None:
    partitions(cluster, 1)
    node = cluster[1]
    node.produce(b"a", tp=TopicPartition("t", 0))
    consumer = Consumer(node, sessions_of(node))
    consumer.open(query(0, 1))
    answers: list[Any] = []
    node.replicas.delete_records(TopicPartition("t", 0), 1, timeout_ms=10, now_ms=consumer.now_ms, done=answers.append)
    cluster.settle()
    [(_, result)] = consumer.fetch()[-1]
    assert (answers, result.log_start_offset, result.error) == ([1], 1, None)
    assert consumer.fetch()[-1] == []


def test_partitions_are_added_and_forgotten_and_an_empty_session_ends(cluster: Any) -> None:
    partitions(cluster, 2)
    node = cluster[1]
    sessions = sessions_of(node)
    consumer = Consumer(node, sessions)
    consumer.open(query(0, 0))
    assert told(consumer.fetch(query(1, 0))[-1]) == {1: ([], 0)}
    assert (sessions.partitions, len(sessions)) == (2, 1)
    consumer.fetch(forget=(0, 7))
    node.produce(b"a", tp=TopicPartition("t", 0))
    assert consumer.fetch()[-1] == []
    consumer.fetch(forget=(1,))
    assert (sessions.partitions, len(sessions)) == (0, 0)
    assert not any(p.consumer_waits for p in node.replicas.partitions.values())


def test_a_closed_session_leaves_nothing_and_answers_who_waits(cluster: Any) -> None:
    partitions(cluster, 2)
    node = cluster[1]
    sessions = sessions_of(node)
    consumer = Consumer(node, sessions)
    consumer.open(query(0, 0), query(1, 0))
    consumer.fetch(max_wait_ms=500)
    sessions.close(consumer.session.id)
    sessions.close(consumer.session.id)
    assert consumer.answers == [[]]
    assert (sessions.partitions, len(sessions), node.replicas.next_deadline_ms()) == (0, 0, None)
    assert not any(p.consumer_waits for p in node.replicas.partitions.values())


def test_a_fetch_that_waits_is_answered_when_the_next_one_comes(cluster: Any) -> None:
    partitions(cluster, 1)
    node = cluster[1]
    consumer = Consumer(node, sessions_of(node))
    consumer.open(query(0, 0))
    consumer.fetch(max_wait_ms=500)
    consumer.fetch(max_wait_ms=500)
    assert consumer.answers == [[]]
    node.produce(b"a", tp=TopicPartition("t", 0))
    assert told(consumer.answers[1]) == {0: ([b"a"], 1)}


def test_a_fetch_whose_connection_is_gone_has_told_nothing(cluster: Any) -> None:
    partitions(cluster, 1)
    node = cluster[1]
    consumer = Consumer(node, sessions_of(node))
    consumer.open(query(0, 0))
    resumed = consumer.sessions.resume(consumer.session.id, 1, uses_ids=False, now_ms=consumer.now_ms)
    consumer.epoch = 2
    wait = resumed.fetch(limits(500, min_bytes=1000), consumer.now_ms, consumer.answers.append)  # type: ignore[union-attr]
    node.produce(b"a", tp=TopicPartition("t", 0))
    wait.cancel()
    assert consumer.answers == []
    assert told(consumer.fetch()[-1]) == {0: ([b"a"], 1)}


def test_a_topic_made_again_is_unknown_by_its_old_id_and_found_by_a_new_one(cluster: Any) -> None:
    partitions(cluster, 1)
    node = cluster[1]
    old, new = UUID(int=1), UUID(int=2)
    IDS[old] = "t"
    sessions = sessions_of(node)
    asked = [((old, query(0, 0)), FetchResult(TopicPartition("t", 0), None, 0, 0, 0)),
             ((new, query(0, 0, topic="")), FetchResult(TopicPartition("", 0), UnknownTopicIdError()))]  # fmt: skip
    session = sessions.open(asked, uses_ids=True, now_ms=0)
    assert session is not None
    answers: list[Answer] = []
    session.fetch(limits(500), 0, answers.append)
    [[(topic, result)]] = answers  # at once, whatever the time that it may take
    assert (topic, type(result.error)) == (new, UnknownTopicIdError)
    del IDS[old]
    IDS[new] = "t"
    node.produce(b"a", tp=TopicPartition("t", 0))
    session.fetch(limits(), 0, answers.append)
    by_topic = dict(answers[1])
    assert isinstance(by_topic[old].error, UnknownTopicIdError)
    assert told([(new, by_topic[new])]) == {0: ([b"a"], 1)}


# -- ids, epochs, slots ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "epoch", "uses_ids", "error"),
    [
        (1, 1, False, None),
        (2, 1, False, FetchSessionIdNotFoundError),
        (0, 1, False, FetchSessionIdNotFoundError),
        (1, 2, False, InvalidFetchSessionEpochError),
        (1, -2, False, InvalidFetchSessionEpochError),
        (1, 1, True, FetchSessionTopicIdError),
        (1, 2, True, InvalidFetchSessionEpochError),
    ],
)
def test_which_requests_go_on_with_a_session(
    number: int, epoch: int, uses_ids: bool, error: type[Exception] | None
) -> None:
    sessions = sessions_of_nothing()
    opened = opened_with(sessions, 1, 0)
    found = sessions.resume(number, epoch, uses_ids=uses_ids, now_ms=0)
    if error is None:
        assert found is opened
    else:
        assert type(found) is error
        # What is refused changes nothing.
        assert sessions.resume(1, 1, uses_ids=False, now_ms=0) is opened


def opened_with(sessions: FetchSessions, size: int, now_ms: int) -> Any:
    """A session of so many partitions, none of which is here."""
    unknown = NotLeaderOrFollowerError("not here")
    asked = [(("t", query(p, 0)), FetchResult(TopicPartition("t", p), unknown)) for p in range(size)]
    return sessions.open(asked, uses_ids=False, now_ms=now_ms)


def test_the_epoch_after_the_last_is_1() -> None:
    sessions = sessions_of_nothing()
    session = opened_with(sessions, 1, 0)
    session.epoch = 0x7FFFFFFF
    assert sessions.resume(1, 0x7FFFFFFF, uses_ids=False, now_ms=0) is session
    assert sessions.resume(1, 1, uses_ids=False, now_ms=0) is session


LATER = EVICTION_MS + 1


@pytest.mark.parametrize(
    ("sizes", "used_ms", "size", "now_ms", "gone"),
    [
        pytest.param([1], {}, 1, 0, [], id="a slot is free"),
        pytest.param([1, 1], {}, 5, EVICTION_MS, None, id="none is old"),
        pytest.param([1, 1], {}, 1, LATER, [1], id="the one unused longest goes"),
        pytest.param([1, 1], {1: 10}, 1, LATER, [2], id="not the one that was made first but used since"),
        pytest.param([2, 3], {1: 10, 2: 10}, 2, LATER, None, id="in use, and none is smaller"),
        pytest.param([3, 2], {1: 10, 2: 10}, 3, LATER, [2], id="the smallest goes for a larger one"),
        pytest.param([1, 1], {1: 10, 2: 10}, 1, LATER, None, id="one partition drives nobody out"),
        pytest.param([2, 2], {1: 10, 2: 10}, 0, LATER, None, id="nothing is asked for"),
    ],
)
def test_who_gets_a_slot_of_two(
    sizes: list[int], used_ms: dict[int, int], size: int, now_ms: int, gone: list[int] | None
) -> None:
    sessions = sessions_of_nothing(slots=2)
    for each in sizes:
        assert opened_with(sessions, each, 0) is not None
    for number, at_ms in used_ms.items():
        sessions.resume(number, 1, uses_ids=False, now_ms=at_ms)
    got = opened_with(sessions, size, now_ms)
    assert (got is None) == (gone is None)
    known = [sessions.resume(number, 9, uses_ids=False, now_ms=0) for number in range(1, len(sizes) + 1)]
    assert [n for n, found in enumerate(known, 1) if isinstance(found, FetchSessionIdNotFoundError)] == (gone or [])
    assert sessions.evictions == len(gone or ())


def test_no_slots_no_sessions_and_ids_are_not_taken_twice() -> None:
    assert opened_with(sessions_of_nothing(slots=0), 1, 0) is None
    sessions = sessions_of_nothing(numbers=[0, 5, 5, 0, 6])
    assert [opened_with(sessions, 1, 0).id for _ in range(2)] == [5, 6]


def test_all_sessions_together_have_so_many_partitions_and_no_more() -> None:
    sessions = sessions_of_nothing(max_partitions=5)
    first = opened_with(sessions, 3, 0)
    assert opened_with(sessions, 3, 0) is None
    assert opened_with(sessions, 2, 0) is not None
    assert sessions.update(first, [("t", query(0, 7))], []) is None  # it does not grow
    assert sessions.resume(2, 1, uses_ids=False, now_ms=10) is not None
    assert sessions.resume(first.id, 1, uses_ids=False, now_ms=10) is first
    error = sessions.update(first, [("t", query(8, 0))], [])
    assert isinstance(error, FetchSessionIdNotFoundError)
    assert (sessions.partitions, len(sessions)) == (2, 1)
    assert opened_with(sessions, 3, 0) is not None


def test_room_for_partitions_is_made_by_sessions_that_nobody_uses() -> None:
    sessions = sessions_of_nothing(max_partitions=5)
    for size in (2, 2):
        assert opened_with(sessions, size, 0) is not None
    assert sessions.resume(2, 1, uses_ids=False, now_ms=LATER) is not None
    assert opened_with(sessions, 6, LATER) is None  # whoever goes
    assert (len(sessions), sessions.evictions) == (2, 0)
    third = opened_with(sessions, 3, LATER)
    assert third is not None
    assert (sessions.partitions, len(sessions), sessions.evictions) == (5, 2, 1)
    assert sessions.resume(third.id, 1, uses_ids=False, now_ms=2 * LATER) is third
    assert sessions.update(third, [("t", query(9, 0))], []) is None
    assert (sessions.partitions, len(sessions), sessions.evictions) == (4, 1, 2)
