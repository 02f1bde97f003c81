"""Many partitions in one fetch: each record is read once and in order, whatever an answer lacks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from holdfast.model.types import TopicPartition
from holdfast.protocol.fetch_codec import FetchAnswer
from holdfast.spark import fetching
from holdfast.spark.options import parse_read
from holdfast.spark.ranges import Range
from holdfast.spark.reader import read_ranges
from holdfast.spark.topics import Topics
from tests.unit.spark.log_cluster import LogCluster, failed

SCHEMA = StructType([StructField("partition", IntegerType()), StructField("offset", LongType())])
FETCH = 1


@pytest.fixture
def cluster() -> Iterator[LogCluster]:
    with LogCluster(2) as running:
        yield running


def read(cluster: LogCluster, wanted: dict[int, tuple[int, int]], **options: str) -> list[tuple[int, int]]:
    """The (partition, offset) of the rows that one task gets from these ranges."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "kafka.fetch.max.wait.ms": "0"}
    parsed = parse_read(given | {name.replace("__", "."): text for name, text in options.items()}, streaming=True)
    topics = Topics(parsed)
    tps = [TopicPartition("t", partition) for partition in wanted]
    leaders, ids = topics.leaders(tps), topics.topic_ids({})
    ranges = tuple(
        Range(tp=tp, start=start, end=end, leader=leaders[tp], topic_id=ids["t"])
        for tp, (start, end) in zip(tps, wanted.values(), strict=True)
    )
    return [
        (partition, offset)
        for batch in read_ranges(ranges, SCHEMA, parsed)
        for partition, offset in zip(batch[0].to_pylist(), batch[1].to_pylist(), strict=True)
    ]


def rows(wanted: dict[int, tuple[int, int]]) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, (start, end) in wanted.items() for offset in range(start, end)]


@pytest.mark.parametrize("latest", [11, 13])
def test_partitions_of_a_leader_come_with_one_request(cluster: LogCluster, latest: int) -> None:
    cluster.spoken[FETCH] = (4, latest)
    for number, log in enumerate(cluster.topic("t", 40)):
        log.leader = 1 + number % 2
        log.append(5)
        log.append(5)
    wanted = dict.fromkeys(range(40), (2, 9))
    assert read(cluster, wanted) == rows(wanted)
    assert [cluster.asked(FETCH, broker) for broker in (1, 2)] == [1, 1]


def test_no_request_has_more_partitions_than_the_limit(cluster: LogCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MOST_PARTITIONS", 4)
    for log in cluster.topic("t", 10):
        log.append(5)
    wanted = dict.fromkeys(range(10), (0, 5))
    assert read(cluster, wanted) == rows(wanted)
    assert cluster.asked(FETCH) == 3


def test_records_that_do_not_fit_in_an_answer_are_not_asked_for_beside_others(cluster: LogCluster) -> None:
    for log in cluster.topic("t", 4):
        log.append(50)
    wanted = dict.fromkeys(range(4), (0, 50))
    assert read(cluster, wanted, kafka__max__partition__fetch__bytes="1000") == rows(wanted)
    assert cluster.asked(FETCH) == 4


@pytest.mark.parametrize("code", [1, 3, 6, 74, 100])
def test_a_partition_that_fails_beside_others_is_asked_again_alone(cluster: LogCluster, code: int) -> None:
    for log in cluster.topic("t", 6):
        log.append(5)
    wanted = dict.fromkeys(range(6), (0, 5))
    usual: Any = lambda *_: None  # noqa: E731
    cluster.fetch_script = [usual, usual, failed(code, 2), usual, failed(code, 4)]
    assert read(cluster, wanted) == rows(wanted)
    assert [offset for _, offset, _ in cluster.fetched] == [0] * 8
    assert cluster.asked(FETCH) == 3


def test_a_partition_that_moves_while_answers_wait_loses_none_of_them(cluster: LogCluster) -> None:
    """Its connection is given up with what it had brought for others; that is still good."""
    logs = cluster.topic("t", 5)
    for log in logs:
        log.append(5)
        log.append(5)
    wanted = dict.fromkeys(range(5), (0, 10))

    def moved(broker: int, offset: int) -> FetchAnswer[bytes]:
        logs[1].leader = 2
        return failed(6, 1)

    usual: Any = lambda *_: None  # noqa: E731
    half = FetchAnswer(1, 0, 10, 10, 0, logs[1].batches[0][3])
    cluster.fetch_script = [usual, half, usual, usual, usual, moved]
    assert read(cluster, wanted) == rows(wanted)


def test_a_reader_with_a_rack_has_many_partitions_of_the_nearer_replica_with_one_request(cluster: LogCluster) -> None:
    for log in cluster.topic("t", 6):
        log.append(5)
    cluster.nearer = {"east": 2}
    wanted = dict.fromkeys(range(6), (0, 5))
    assert read(cluster, wanted, kafka__client__rack="east") == rows(wanted)
    assert [cluster.asked(FETCH, broker) for broker in (1, 2)] == [1, 1]


@pytest.mark.parametrize("seed", range(25))
def test_whatever_an_answer_lacks_each_record_is_read_once_and_in_order(cluster: LogCluster, seed: int) -> None:
    rng = random.Random(seed)
    logs = cluster.topic("t", rng.randint(2, 12))
    for log in logs:
        log.leader = rng.randint(1, 2)
        for _ in range(rng.randint(1, 5)):
            log.append(rng.randint(1, 9))
    wanted = {}
    for partition, log in enumerate(logs):
        start = rng.randint(0, log.end - 1)
        wanted[partition] = start, rng.randint(start + 1, log.end)

    cluster.fetch_lacks = lambda: rng.random() < 0.3
    most = rng.choice(["1", "2000", "1000000"])
    assert read(cluster, wanted, kafka__max__partition__fetch__bytes=most) == rows(wanted)
