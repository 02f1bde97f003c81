"""maxBytesPerTrigger: how far a batch goes by what its records weigh, against brokers on sockets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from holdfast.spark.byte_limit import ByteLimit
from holdfast.spark.lake import LakeJob, source_options
from holdfast.spark.options import parse_read
from tests.unit.spark.log_cluster import Log, LogCluster
from tests.unit.spark.test_stream_reader import Query


@pytest.fixture
def cluster() -> Iterator[LogCluster]:
    with LogCluster(2) as running:
        yield running


def weight(log: Log, start: int, end: int) -> float:
    """Bytes of the record batches between two offsets, of a batch that is cut its part."""
    return sum(
        len(data) * max(0, min(end, last) - max(start, first)) / (last - first) for first, last, _, data in log.batches
    )


def planned(query: Query) -> list[tuple[int, int, int]]:
    return query.batch(query.reader.getDefaultReadLimit())


def fat(log: Log, batches: int, records: int, size: int) -> None:
    """Batches whose records have headers of ``size`` bytes."""
    for _ in range(batches):
        log.append(records, headers=[("h", b"x" * size)])


def test_batches_have_no_more_bytes_than_asked_for_and_nearly_that(cluster: LogCluster) -> None:
    logs = cluster.topic("t", 2)
    logs[1].leader = 2
    fat(logs[0], 100, 10, 1000)
    fat(logs[1], 50, 10, 100)
    query = Query(cluster, startingOffsets="earliest", maxBytesPerTrigger="200000")
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(200_000)
    sizes, read = [], []
    while ranges := planned(query):
        sizes.append(sum(weight(logs[partition], start, end) for partition, start, end in ranges))
        read += ranges
    assert all(190_000 < size <= 201_000 for size in sizes[:-1]) and len(sizes) == 6
    for partition, log in enumerate(logs):
        mine = [(start, end) for number, start, end in read if number == partition]
        assert [start for start, _ in mine] == [0, *(end for _, end in mine[:-1])] and mine[-1][1] == log.end


@pytest.mark.parametrize("sizes", [(10, 2000), (2000, 10)])
def test_where_records_get_larger_or_smaller_the_larger_ones_count(cluster: LogCluster, sizes: tuple[int, int]) -> None:
    (log,) = cluster.topic("t")
    for size in sizes:
        fat(log, 50, 10, size)
    query = Query(cluster, startingOffsets="earliest", maxBytesPerTrigger="100000")
    taken = []
    while ranges := planned(query):
        taken.append(sum(weight(log, start, end) for _, start, end in ranges))
    assert max(taken) <= 101_000
    assert query.committed["t"] == {"0": 1000}
    assert 10 <= len(taken) <= 40  # a megabyte


def test_a_limit_that_no_record_batch_fits_in_lets_one_through(cluster: LogCluster) -> None:
    logs = cluster.topic("t", 2)
    fat(logs[0], 3, 10, 1000)
    fat(logs[1], 2, 10, 1000)
    query = Query(cluster, startingOffsets="earliest", maxBytesPerTrigger="1")
    read = [planned(query) for _ in range(5)]
    assert all(len(ranges) == 1 for ranges in read)
    assert sorted(ranges[0] for ranges in read) == [(0, 0, 10), (0, 10, 20), (0, 20, 30), (1, 0, 10), (1, 10, 20)]
    assert planned(query) == []


def test_with_a_limit_of_records_the_smaller_one_holds(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    fat(log, 100, 10, 1000)
    options = {"startingOffsets": "earliest", "maxBytesPerTrigger": "100000"}
    few = Query(cluster, **options, maxOffsetsPerTrigger="30")
    assert few.reader.getDefaultReadLimit() == ReadMaxRows(30)
    assert planned(few) == [(0, 0, 30)]
    ((_, start, end),) = planned(Query(cluster, **options, maxOffsetsPerTrigger="500"))
    assert 90_000 < weight(log, start, end) <= 101_000
    tiny = Query(cluster, startingOffsets="earliest", maxBytesPerTrigger="1", maxOffsetsPerTrigger="4")
    assert planned(tiny) == [(0, 0, 4)]
    assert few.batch(ReadAllAvailable()) == [(0, 30, 1000)]  # Trigger.Once takes all


def test_what_is_not_measured_counts_as_large_until_it_is(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    fat(log, 100, 10, 1000)
    query = Query(cluster, startingOffsets="earliest", maxBytesPerTrigger=str(5 << 20))
    cluster.fetch_script = [1, 1]  # the broker throttles the reader, and answers with nothing
    assert planned(query) == [(0, 0, 5)]
    assert planned(query) == [(0, 5, 1000)]


def test_samples_are_bounded_and_take_turns(cluster: LogCluster) -> None:
    logs = cluster.topic("t", 40)
    for log in logs:
        fat(log, 20, 100, 1000)
    query = Query(cluster, startingOffsets="earliest", maxBytesPerTrigger=str(1 << 20))
    asked: list[tuple[int, int, list[int]]] = []
    sample = query.reader._topics().sample

    def seen(positions: dict, *, max_bytes: int, partition_max_bytes: int) -> dict:  # type: ignore[type-arg]
        asked.append((max_bytes, partition_max_bytes, [tp.partition for tp in positions]))
        part = dict(list(positions.items())[:10])  # as a broker that has no room for more
        found: dict = sample(part, max_bytes=max_bytes, partition_max_bytes=partition_max_bytes)  # type: ignore[type-arg]
        return found

    query.reader._topics().sample = seen
    for _ in range(3):
        planned(query)
    assert {(total, each) for total, each, _ in asked} == {(65536, 65536)}
    assert [order[:10] for _, _, order in asked[:4]] == [list(range(n, n + 10)) for n in (0, 10, 20, 30)]
    assert len(query.reader._byte_limit._sizes) == 40


def test_a_lake_hands_its_limit_to_the_source() -> None:
    job = LakeJob(bootstrap="h:1", topic="t", to="t", checkpoint=Path("c"), max_bytes_per_batch=7)
    assert parse_read(source_options(job), streaming=True).max_bytes == 7
    by_option = replace(job, max_bytes_per_batch=None, options={"maxBytesPerTrigger": "8"})
    assert parse_read(source_options(by_option), streaming=True).max_bytes == 8


def test_partitions_that_are_gone_are_forgotten() -> None:
    limit = ByteLimit(100)
    options = parse_read({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}, streaming=True)
    assert options.max_bytes is None
    limit._sizes = {("t", 0): 5.0, ("t", 1): 7.0}  # type: ignore[dict-item]
    limit._forget([("t", 1)])  # type: ignore[list-item]
    assert limit._sizes == {("t", 1): 7.0}
