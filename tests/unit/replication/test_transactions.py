"""Where readers of committed records stop, what wakes them, and what they are told, with replicas that lag."""

from typing import Any

from holdfast.model.config import LogConfig
from holdfast.model.types import TopicPartition
from holdfast.records.markers import EndMarker, encode_marker
from holdfast.records.record import Record, encode_batch
from holdfast.replication.types import AppendTerms, FetchPartitionQuery, FetchQuery, Isolation, SpecialTimestamp

TP = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000
COMMITTED = Isolation.READ_COMMITTED
OF_COORDINATOR = AppendTerms(trusted=True)


def transactional(producer_id: int, sequence: int, *, timestamp: int = NOW_MS) -> bytearray:
    record = Record(0, timestamp, None, b"v")
    return encode_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


def end(node: Any, producer_id: int, *, is_commit: bool) -> list[Any]:
    found: list[Any] = node.produce(
        data=encode_marker(producer_id, 0, EndMarker(is_commit, 0), NOW_MS), terms=OF_COORDINATOR
    )
    return found


def read(node: Any, offset: int, **limits: Any) -> Any:
    [[result]], _ = node.consume(offset, isolation=COMMITTED, **limits)
    return result


def listed(node: Any, what: SpecialTimestamp | int, isolation: Isolation = COMMITTED) -> int | None:
    answers: list[Any] = []
    node.replicas.list_offset(TP, what, isolation=isolation, current_leader_epoch=None, done=answers.append)
    offset: int | None = answers[0].offset
    return offset


def test_readers_stop_at_the_last_stable_offset(cluster: Any) -> None:
    cluster.create(1)
    node = cluster[1]
    node.produce(b"a")
    node.produce(data=transactional(5, 0))
    node.produce(b"b")
    found = read(node, 0)
    assert (found.high_watermark, found.last_stable_offset, len(found.data) > 0, found.aborted) == (3, 1, True, ())
    found = read(node, 1)
    assert (found.last_stable_offset, found.data, found.aborted) == (1, None, ())
    [[plain]], _ = node.consume(1)
    assert (plain.last_stable_offset, len(plain.data) > 0, plain.aborted) == (1, True, None)
    end(node, 5, is_commit=False)
    found = read(node, 0)
    assert (found.high_watermark, found.last_stable_offset, found.aborted) == (4, 4, [(5, 1)])


def test_a_marker_counts_when_every_in_sync_replica_has_it(cluster: Any) -> None:
    cluster.create(1, 2)
    node = cluster[1]
    node.produce(data=transactional(5, 0))
    cluster.settle()
    done = end(node, 5, is_commit=True)
    assert (done, node.mark(), read(node, 0).last_stable_offset) == ([], 1, 0)
    cluster.settle()
    assert [r.error for r in done] == [None]
    assert (node.mark(), read(node, 0).last_stable_offset) == (2, 2)


def test_a_marker_wakes_who_waits_for_committed_records(cluster: Any) -> None:
    cluster.create(1)
    node = cluster[1]
    answers, wait = node.consume(0, max_wait_ms=500, isolation=COMMITTED)
    node.produce(data=transactional(5, 0))
    node.produce(data=transactional(5, 1))
    assert answers == [], "nothing of it is committed"
    end(node, 5, is_commit=True)
    [[found]] = answers
    assert (found.last_stable_offset, wait.finished) == (3, True)


def test_bytes_that_are_not_committed_are_not_waited_with(cluster: Any) -> None:
    cluster.create(1)
    node = cluster[1]
    size = len(transactional(5, 0))
    node.produce(data=transactional(5, 0))
    answers, _ = node.consume(0, max_wait_ms=500, min_bytes=size, isolation=COMMITTED)
    plain, _ = node.consume(0, max_wait_ms=500, min_bytes=size)
    assert (answers, len(plain)) == ([], 1)


def test_ends_and_times_are_those_of_committed_records(cluster: Any) -> None:
    cluster.create(1)
    node = cluster[1]
    node.produce(b"a")
    node.produce(data=transactional(5, 0, timestamp=NOW_MS + 50))
    assert [listed(node, SpecialTimestamp.LATEST, isolation) for isolation in Isolation] == [2, 1]
    assert [listed(node, NOW_MS + 10, isolation) for isolation in Isolation] == [1, None]
    end(node, 5, is_commit=True)
    assert (listed(node, SpecialTimestamp.LATEST), listed(node, NOW_MS + 10)) == (3, 1)


def test_a_follower_that_comes_to_lead_knows_the_same(cluster: Any) -> None:
    cluster.create(1, 2)
    node = cluster[1]
    node.produce(data=transactional(5, 0))
    node.produce(data=transactional(6, 0))
    cluster.settle()
    end(node, 5, is_commit=False)
    cluster.settle()
    cluster.change(leader=2, isr=(2,))
    cluster.broadcast()
    cluster.settle()
    found = read(cluster[2], 0)
    assert (found.last_stable_offset, found.aborted) == (1, [(5, 0)])
    end(cluster[2], 6, is_commit=True)
    cluster.settle()
    found = read(cluster[2], 0)
    assert (found.last_stable_offset, found.aborted) == (4, [(5, 0)])


def test_what_was_aborted_in_older_segments_comes_from_the_disk(new_cluster: Any) -> None:
    cluster = new_cluster(1, config=LogConfig(segment_bytes=200))
    cluster.create(1)
    node = cluster[1]
    for sequence in range(6):
        node.produce(data=transactional(5, sequence))
        end(node, 5, is_commit=False)
    [log] = [partition.log for partition in node.replicas.partitions.values()]
    assert len(log.view.segments) > 3
    log.flush_rolled()
    for segment in log.view.segments[:-1]:
        segment.release()
    assert log.view.aborting[0].aborts is None
    found = read(node, 0, max_bytes=1)
    assert (found.last_stable_offset, found.aborted) == (12, [(5, 0)])


def test_a_session_waits_while_its_records_are_of_an_open_transaction(cluster: Any) -> None:
    cluster.create(1)
    node = cluster[1]
    sessions = node.replicas.consumer_sessions(slots=1, new_id=lambda: 7, resolve=str)
    query = FetchPartitionQuery(TP, 0, 1 << 20)
    node.produce(data=transactional(5, 0))
    first = read(node, 0)
    session = sessions.open([(("t", query), first)], uses_ids=False, now_ms=NOW_MS)
    assert not session.news, "it waits for the marker"
    answers: list[Any] = []
    limits = FetchQuery(None, 500, 1, 1 << 20, COMMITTED, ())
    session.fetch(limits, NOW_MS, answers.append)
    node.produce(data=transactional(5, 1))
    assert answers == []
    end(node, 5, is_commit=True)
    [[(_, found)]] = answers
    assert (found.last_stable_offset, len(found.data) > 0) == (3, True)
