"""What a task does when a fetch is not answered with records: which of it is a loss, and which passes by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.protocol.fetch_codec import FetchAnswer
from holdfast.spark.options import parse_read
from holdfast.spark.ranges import Range
from holdfast.spark.reader import read_ranges
from holdfast.spark.topics import DataLossError, Topics
from tests.unit.spark.log_cluster import LogCluster, failed

TP = TopicPartition("t", 0)
OFFSETS = StructType([StructField("offset", LongType())])
OUT_OF_RANGE = failed(1)
EMPTY = failed(0)


@pytest.fixture
def cluster() -> Iterator[LogCluster]:
    with LogCluster(2) as running:
        yield running


HEADERS = StructType(
    [
        StructField(
            "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        )
    ]
)


def read(cluster: LogCluster, start: int, end: int, **options: str) -> list[int]:
    """The offsets that a task gets from the range."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "kafka.fetch.max.wait.ms": "0"}
    parsed = parse_read(given | {name.replace("__", "."): text for name, text in options.items()}, streaming=True)
    topics = Topics(parsed)
    leader = topics.leaders([TP])[TP]
    ranges = (Range(tp=TP, start=start, end=end, leader=leader, topic_id=topics.topic_ids({}).get("t")),)
    return [offset for batch in read_ranges(ranges, OFFSETS, parsed) for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("strict", ["true", "false"])
def test_spark_D5_an_out_of_range_that_has_passed_when_bounds_are_asked_is_asked_again(
    cluster: LogCluster, strict: str
) -> None:
    cluster.topic("t")[0].append(500)
    cluster.fetch_script = [OUT_OF_RANGE, OUT_OF_RANGE]
    assert read(cluster, 100, 400, failOnDataLoss=strict) == list(range(100, 400))


def test_spark_D5_only_what_is_outside_of_the_log_is_skipped(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    for _ in range(5):
        log.append(100)
    log.start, log.batches = 200, log.batches[2:]
    assert read(cluster, 100, 400, failOnDataLoss="false") == list(range(200, 400))
    with pytest.raises(DataLossError, match="t-0: offset 100 is gone, the log starts at 200"):
        read(cluster, 100, 400)


def test_spark_D5_an_out_of_range_that_does_not_pass_ends_with_the_poll_timeout(cluster: LogCluster) -> None:
    cluster.topic("t")[0].append(500)
    cluster.fetch_script = [lambda *_: OUT_OF_RANGE] * 10_000
    with pytest.raises(HoldfastError, match=r"no records at offset 100 .* within 0.3 s"):
        read(cluster, 100, 400, kafkaConsumer__pollTimeoutMs="300")


def test_spark_D6_a_planned_end_beyond_the_log_is_a_loss_at_once(cluster: LogCluster) -> None:
    cluster.topic("t")[0].append(50)
    began_s = time.monotonic()
    with pytest.raises(DataLossError, match=r"t-0: the log ends at 50, .* read up to 400"):
        read(cluster, 0, 400)
    with pytest.raises(DataLossError, match=r"t-0: the log ends at 50, offset 300 .* read up to 400"):
        read(cluster, 300, 400)
    assert read(cluster, 0, 400, failOnDataLoss="false") == list(range(50))
    assert read(cluster, 300, 400, failOnDataLoss="false") == []
    assert time.monotonic() - began_s < 60  # and not the poll timeout, twice that, each time


def test_spark_D6_an_empty_answer_within_the_log_is_asked_again(cluster: LogCluster) -> None:
    cluster.topic("t")[0].append(50)
    cluster.fetch_script = [EMPTY, EMPTY]
    assert read(cluster, 0, 50) == list(range(50))
    assert cluster.asked(2) > 0, "nobody asked where the log ends"


def test_spark_D7_a_throttled_answer_without_topics_is_waited_out_and_asked_again(cluster: LogCluster) -> None:
    cluster.topic("t")[0].append(50)
    cluster.fetch_script = [200, 200]
    began_s = time.monotonic()
    # What a broker throttles does not count as silence.
    assert read(cluster, 0, 50, kafkaConsumer__pollTimeoutMs="100") == list(range(50))
    assert time.monotonic() - began_s >= 0.4
    assert len(cluster.fetched) == 3


def test_spark_D7_a_throttled_answer_to_a_fetch_that_was_sent_ahead(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    for _ in range(6):
        log.append(10)
    usual: Any = lambda *_: None  # noqa: E731
    cluster.fetch_script = [usual, 100, usual, 50]
    assert read(cluster, 0, 60, kafka__max__partition__fetch__bytes="1") == list(range(60))


def test_spark_D4_a_fetch_has_the_epoch_of_the_leader_and_finds_the_next_one(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    log.epoch = 4
    log.append(10)
    log.append(10)

    def moved(broker: int, offset: int) -> None:
        log.epoch, log.leader = 5, 2

    cluster.fetch_script = [lambda *_: None, moved]
    assert read(cluster, 0, 20, kafka__max__partition__fetch__bytes="1") == list(range(20))
    assert [(broker, epoch) for broker, _, epoch in cluster.fetched] == [(1, 4), (1, 4), (2, 5)]


def test_spark_D23_a_header_key_that_is_no_text_ends_no_read(
    cluster: LogCluster, caplog: pytest.LogCaptureFixture
) -> None:
    (log,) = cluster.topic("t")
    log.append(2, headers=[("ok", b"1"), ("a~b", b"2")])
    log.append(1, headers=[("é", b"3")])
    first, end, epoch, data = log.batches[0]
    log.batches[0] = first, end, epoch, data.replace(b"a~b", b"a\xffb")
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", "includeHeaders": "true"}
    options = parse_read(given | {"kafka.check.crcs": "false"}, streaming=False)
    ranges = (Range(tp=TP, start=0, end=3, leader=Topics(options).leader(TP)),)
    rows = [row for batch in read_ranges(ranges, HEADERS, options) for row in batch.column("headers").to_pylist()]
    one = [{"key": "ok", "value": b"1"}, {"key": "a\ufffdb", "value": b"2"}]
    assert rows == [one, one, [{"key": "é", "value": b"3"}]]
    assert "2 headers have a key that is not UTF-8" in caplog.text


@pytest.mark.parametrize("latest", [11, 12, 13, 18])
def test_fetches_go_by_the_topics_id_where_the_broker_takes_that(cluster: LogCluster, latest: int) -> None:
    cluster.spoken[1] = (4, latest)
    cluster.topic("t")[0].append(20)
    assert read(cluster, 0, 20) == list(range(20))
    versions = {version for each in cluster.brokers.values() for key, version, _ in each.seen if key == 1}
    assert versions == {13 if latest >= 13 else 11}


def test_a_broker_that_is_too_old_is_named(cluster: LogCluster) -> None:
    cluster.spoken[1] = (4, 10)
    cluster.topic("t")[0].append(20)
    with pytest.raises(HoldfastError, match=f"{cluster.bootstrap} takes Fetch up to version 10, expected 11 at least"):
        read(cluster, 0, 20)


def test_spark_D4_a_topic_that_is_made_again_while_a_task_reads_is_not_read_on(cluster: LogCluster) -> None:
    def prepare() -> str:
        logs = cluster.topic("t")
        for _ in range(2):
            logs[0].append(10)
        cluster.fetch_script = [lambda *_: None, made_again]
        return str(cluster.topics["t"].topic_id)

    def made_again(broker: int, offset: int) -> FetchAnswer[bytes]:
        cluster.topic("t")[0].append(500)
        return failed(100)

    old = prepare()
    with pytest.raises(DataLossError, match=f"t-0: the topic with id {old} was deleted.* read from 10 to 20"):
        read(cluster, 0, 20, kafka__max__partition__fetch__bytes="1")
    prepare()
    assert read(cluster, 0, 20, failOnDataLoss="false", kafka__max__partition__fetch__bytes="1") == list(range(10))


def test_a_broker_that_does_not_know_of_a_topic_yet_is_asked_again(cluster: LogCluster) -> None:
    cluster.topic("t")[0].append(20)
    cluster.fetch_script = [failed(100), failed(100)]
    assert read(cluster, 0, 20) == list(range(20))


def test_a_reader_with_a_rack_reads_the_replica_that_the_leader_names(cluster: LogCluster) -> None:
    (log,) = cluster.topic("t")
    for _ in range(3):
        log.append(10)
    cluster.nearer = {"east": 2}
    one = {"kafka__max__partition__fetch__bytes": "1"}
    assert read(cluster, 0, 30, **one) == list(range(30))
    assert {broker for broker, _, _ in cluster.fetched} == {1}
    cluster.fetched.clear()
    assert read(cluster, 0, 30, kafka__client__rack="east", **one) == list(range(30))
    assert [broker for broker, _, _ in cluster.fetched] == [1, 2, 2, 2]
    assert set(cluster.racks) == {"", "east"}


def test_a_replica_that_fails_sends_the_reader_back_to_the_leader(cluster: LogCluster) -> None:
    cluster.topic("t")[0].append(30)

    def fails(broker: int, offset: int) -> FetchAnswer[bytes]:
        cluster.nearer = {}
        return failed(1)  # it is behind the leader

    cluster.nearer = {"east": 2}
    cluster.fetch_script = [lambda *_: None, fails]
    assert read(cluster, 0, 30, kafka__client__rack="east") == list(range(30))
    assert [broker for broker, _, _ in cluster.fetched] == [1, 2, 1]
