"""A stream's driver against brokers on sockets, as Spark calls it: what is planned, planned again, and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StringType, StructField, StructType

from holdfast.spark.options import OptionError, parse_read
from holdfast.spark.reader import HoldfastReader, HoldfastStreamReader
from holdfast.spark.topics import DataLossError
from tests.unit.spark.log_cluster import LogCluster

VALUES = StructType([StructField("value", StringType())])
OFFSETS = StructType([StructField("offset", LongType())])


@pytest.fixture
def cluster() -> Iterator[LogCluster]:
    with LogCluster(2) as running:
        yield running


class Query:
    """What Spark does with a reader: a checkpoint of JSON, and a new reader after each ``restart``."""

    def __init__(self, cluster: LogCluster, **options: str) -> None:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "kafka.fetch.max.wait.ms": "0"}
        self._given = given | {name.replace("__", "."): text for name, text in options.items()}
        self.committed: Any = None
        self.planned: Any = None
        self.restart()

    def restart(self, **options: str) -> None:
        self._given |= options
        self.reader = HoldfastStreamReader(OFFSETS, parse_read(self._given, streaming=True))
        self._start = self.committed

    def plan(self, limit: Any = None) -> None:
        """Spark notes the end of a batch before it reads anything."""
        self._start = self._start or json.loads(json.dumps(self.reader.initialOffset()))
        end = self.reader.latestOffset(self._start, limit or ReadAllAvailable())
        self.planned = json.loads(json.dumps(end))

    def ranges(self) -> list[tuple[int, int, int]]:
        """(partition, start, end) of the planned batch, read now; again if need be."""
        start = self._start or json.loads(json.dumps(self.reader.initialOffset()))
        tasks: Any = self.reader.partitions(start, self.planned)
        return sorted((each.tp.partition, each.start, each.end) for task in tasks for each in task.ranges)

    def commit(self) -> None:
        self.committed = self._start = self.planned

    def batch(self, limit: Any = None) -> list[tuple[int, int, int]]:
        self.plan(limit)
        found = self.ranges()
        self.commit()
        return found


def test_spark_D9_the_first_batch_is_the_same_when_it_is_read_again(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    log.append(10)
    query = Query(cluster, startingOffsets="latest")
    assert query.reader.initialOffset()["t"] == {"0": 10}
    query._start = json.loads(json.dumps(query.reader.initialOffset()))
    log.append(10)
    query.plan()
    assert query.ranges() == [(0, 10, 20)]
    log.append(10)
    query.restart()  # before the batch was done: Spark asks initialOffset again
    assert query.ranges() == [(0, 10, 20)]
    query.commit()
    assert query.batch() == [(0, 20, 30)]
    assert query.batch() == []


def test_spark_D9_a_first_batch_without_records_has_none_when_it_is_read_again(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    log.append(10)
    query = Query(cluster, startingOffsets="latest")
    query.plan()
    assert query.ranges() == []
    log.append(10)
    query.restart(startingOffsets="earliest")
    assert query.ranges() == []
    query.commit()
    assert query.batch() == [(0, 10, 20)]


def test_spark_D9_partitions_that_are_new_begin_where_they_did_when_they_are_read_again(cluster: LogCluster) -> None:
    logs = cluster.topic("t", 2)
    logs[0].append(10)
    second = cluster.topics["t"].logs.pop()
    query = Query(cluster, startingOffsets="earliest")
    assert query.batch() == [(0, 0, 10)]
    cluster.topics["t"].logs.append(second)
    second.append(10)
    second.append(10)
    query.plan()
    assert query.ranges() == [(1, 0, 20)]
    second.start, second.batches = 10, second.batches[1:]
    query.restart()
    assert query.ranges() == [(1, 0, 20)]  # and the task says what is gone


def test_spark_D3_a_log_that_is_shorter_than_the_checkpoint_is_told_with_available_now_too(cluster: LogCluster) -> None:
    cluster.topic("t")[0].append(5)
    query = Query(cluster)
    query.committed = {"t": {"0": 1000}}
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="t-0: was read up to 1000 and the log ends at 5"):
        query.plan()
    query.restart(failOnDataLoss="false")
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == []
    assert query.committed["t"] == {"0": 5}
    assert query.batch() == []


def test_available_now_from_the_latest_of_a_log_that_grows_is_no_loss(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    log.append(10)
    query = Query(cluster, startingOffsets="latest")
    query.reader.prepareForTriggerAvailableNow()
    log.append(10)  # Spark settles the target before it asks where a query begins
    assert query.batch() == []
    assert query.committed["t"] == {"0": 20}
    assert query.batch() == []


def test_an_end_that_a_leader_of_the_past_tells_is_no_loss(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    log.append(10)
    query = Query(cluster, startingOffsets="earliest")
    assert query.batch() == [(0, 0, 10)]
    cluster.ends = [7]
    assert query.batch() == []
    assert cluster.ends == []


def test_available_now_ends_where_the_log_ended_when_it_began(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    log.append(10)
    query = Query(cluster, startingOffsets="earliest")
    query.reader.prepareForTriggerAvailableNow()
    log.append(10)
    assert [query.batch(ReadMaxRows(4)) for _ in range(4)] == [[(0, 0, 4)], [(0, 4, 8)], [(0, 8, 10)], []]


@pytest.mark.parametrize("available_now", [False, True])
def test_spark_D8_a_stale_broker_does_not_end_a_stream(cluster: LogCluster, available_now: bool) -> None:
    cluster.topic("t")[0].append(5)
    query = Query(cluster, startingOffsets="earliest")
    del query._given["subscribe"]
    query.restart(subscribePattern="t.*")
    assert query.batch() == [(0, 0, 5)]
    cluster.unknown_at = {1: {"t"}}
    query.restart()
    if available_now:
        query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == []
    cluster.topics["t"].logs[0].append(5)
    query.restart()
    assert query.batch() == [(0, 5, 10)]
    del cluster.topics["t"]
    with pytest.raises(DataLossError, match="t-0 was read up to 10 and is not there any more"):
        query.plan()


@pytest.mark.parametrize("records", [50, 5000])
def test_spark_D4_a_topic_that_was_made_again_is_told_however_long_it_is(cluster: LogCluster, records: int) -> None:
    cluster.topic("t")[0].append(1000)
    old = str(cluster.topics["t"].topic_id)
    query = Query(cluster, startingOffsets="earliest")
    assert query.batch() == [(0, 0, 1000)]
    cluster.topic("t")[0].append(records)
    new = str(cluster.topics["t"].topic_id)
    query.restart()
    with pytest.raises(
        DataLossError, match=f"t was deleted and made again: its id was {old} and is {new}.*0 up to 1000"
    ):
        query.plan()


def test_spark_D4_a_topic_that_was_made_again_is_read_from_its_start_if_asked(cluster: LogCluster) -> None:
    cluster.topic("t", 2)[0].append(1000)
    query = Query(cluster, startingOffsets="earliest", onTopicRecreated="restart")
    assert query.batch() == [(0, 0, 1000)]
    cluster.topic("t")[0].append(5000)
    query.plan()
    assert query.ranges() == [(0, 0, 5000)]
    query.restart()
    assert query.ranges() == [(0, 0, 5000)]
    query.commit()
    assert query.batch() == []
    cluster.topic("t")[0].append(10)
    query.restart(onTopicRecreated="fail", failOnDataLoss="false")
    with pytest.raises(DataLossError, match="made again"):
        query.plan()


def test_spark_D4_a_batch_of_a_topic_that_is_gone_is_not_read_from_another(cluster: LogCluster) -> None:
    cluster.topic("t")[0].append(1000)
    query = Query(cluster, startingOffsets="earliest")
    query.plan()
    cluster.topic("t")[0].append(5000)
    query.restart()
    with pytest.raises(DataLossError, match="made again"):
        query.ranges()
    query.restart(onTopicRecreated="restart")
    assert query.ranges() == []
    query.commit()
    assert query.batch() == [(0, 0, 5000)]


def test_spark_D4_one_stale_broker_does_not_make_a_topic_another_one(cluster: LogCluster) -> None:
    cluster.topic("t")[0].append(10)
    query = Query(cluster, startingOffsets="earliest")
    assert query.batch() == [(0, 0, 10)]
    cluster.stale_ids = {1: {"t"}, 2: {"t"}}
    cluster.stale_answers = 2
    query.restart()
    assert query.batch() == []
    assert cluster.stale_answers == 0


def test_spark_D4_a_log_that_was_cut_and_has_grown_again_is_told(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    for _ in range(10):
        log.append(10)
    query = Query(cluster, startingOffsets="earliest")
    assert query.batch() == [(0, 0, 100)]
    log.cut(80)
    log.epoch = 1
    log.append(50)
    query.restart()
    with pytest.raises(DataLossError, match="t-0: was read up to 100, and the log was cut to 80 since: leader epoch 0"):
        query.plan()
    query.restart(failOnDataLoss="false")
    query.plan()
    assert query.ranges() == [(0, 80, 130)]
    query.restart()
    assert query.ranges() == [(0, 80, 130)]


def test_spark_D4_a_new_leader_with_everything_is_no_loss(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    log.append(100)
    query = Query(cluster, startingOffsets="earliest")
    assert query.batch(ReadMaxRows(60)) == [(0, 0, 60)]
    log.epoch, log.leader = 3, 2
    assert query.batch() == [(0, 60, 100)]
    log.append(10)
    assert query.batch() == [(0, 100, 110)]
    assert cluster.asked(23) > 0


@pytest.mark.parametrize("given", [{"t": {"0": 40}}, {"t": {"0": 40}, "@holdfast": {}}])
def test_a_checkpoint_of_sparks_own_source_is_read(cluster: LogCluster, given: Any) -> None:
    cluster.topic("t")[0].append(100)
    query = Query(cluster)
    query.committed = given
    query.restart()
    assert query.batch() == [(0, 40, 100)]
    assert query.committed["t"] == {"0": 100}


def test_on_topic_recreated_is_fail_or_restart(cluster: LogCluster) -> None:
    with pytest.raises(OptionError, match="onTopicRecreated='go': expected fail or restart"):
        Query(cluster, onTopicRecreated="go")


@pytest.mark.parametrize(("ordering", "tasks"), [({}, 1), ({"ordering": "partition"}, 1), ({"ordering": "none"}, 2)])
def test_spark_D10_a_stream_cuts_no_partition_unless_asked(
    cluster: LogCluster, ordering: dict[str, str], tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SPARK_PARALLELISM", "2")
    cluster.topic("t")[0].append(45_000)
    query = Query(cluster, startingOffsets="earliest", **ordering)
    query.plan()
    assert len(query.reader.partitions(query._start, query.planned)) == tasks
    batch = HoldfastReader(OFFSETS, parse_read({**query._given, "startingOffsets": "earliest"}, streaming=False))
    assert len(batch.partitions()) == (1 if ordering.get("ordering") == "partition" else 2)


def test_spark_D27_an_end_that_is_gone_is_no_rows_if_loss_is_fine(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    for _ in range(5):
        log.append(10)
    log.start, log.batches = 30, log.batches[3:]

    def plan(start: str, **options: str) -> list[Any]:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "startingOffsets": start}
        given |= {"endingOffsets": '{"t":{"0":20}}', **options}
        return HoldfastReader(OFFSETS, parse_read(given, streaming=False)).partitions()

    for start in ("earliest", '{"t":{"0":10}}'):
        assert plan(start, failOnDataLoss="false") == []
        with pytest.raises(DataLossError, match=r"t-0: .*the log starts at 30"):
            plan(start)
    for loss in ("true", "false"):
        with pytest.raises(OptionError, match="partition t-0 ends at 20, before its start 40"):
            plan('{"t":{"0":40}}', failOnDataLoss=loss)
