"""What the driver takes for gone, and what for a broker that is behind or busy."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from holdfast.client.blocking import BlockingClient
from holdfast.model.errors import HoldfastError, LeaderNotAvailableError
from holdfast.model.types import TopicPartition
from holdfast.spark import topics as topics_module
from holdfast.spark.options import OptionError, parse_read
from holdfast.spark.topics import MOST_CLIENTS, Topics, client_of
from tests.unit.spark.log_cluster import LogCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster() -> Iterator[LogCluster]:
    with LogCluster(2) as running:
        yield running


def topics(cluster: LogCluster, **options: str) -> Topics:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t"}
    if "subscribePattern" in options or "assign" in options:
        del given["subscribe"]
    given |= {name.replace("__", "."): text for name, text in options.items()}
    return Topics(parse_read(given, streaming=True))


WAYS = [{"subscribe": "t"}, {"subscribePattern": "t.*"}, {"assign": '{"t":[0,1]}'}]


@pytest.mark.parametrize("how", WAYS)
def test_spark_D8_an_error_that_passes_is_waited_out(cluster: LogCluster, how: dict[str, str]) -> None:
    cluster.topic("t", 2)
    cluster.topic_errors["t"] = [ErrorCode.leader_not_available, ErrorCode.leader_not_available]
    assert topics(cluster, **how).partitions() == [T0, T1]
    assert cluster.topic_errors["t"] == [], "it was not the errors that were asked about"


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("stale", [1, 2])
def test_spark_D8_a_topic_that_one_stale_broker_does_not_know_is_not_gone(
    cluster: LogCluster, how: dict[str, str], stale: int
) -> None:
    cluster.topic("t", 2)
    seen = topics(cluster, **how)
    cluster.unknown_at = {stale: {"t"}}
    assert seen.partitions([T0, T1]) == [T0, T1]


@pytest.mark.parametrize("how", WAYS[::2])
def test_spark_D8_a_named_topic_is_missing_at_two_brokers_before_a_query_is_refused(
    cluster: LogCluster, how: dict[str, str]
) -> None:
    cluster.topic("t", 2)
    cluster.unknown_at = {1: {"t"}}
    assert topics(cluster, **how).partitions() == [T0, T1]
    cluster.unknown_at = {1: {"t"}, 2: {"t"}}
    with pytest.raises(OptionError, match="topic 't' does not exist"):
        topics(cluster, **how).partitions()


@pytest.mark.parametrize("how", WAYS)
def test_spark_D8_what_two_brokers_do_not_know_is_gone(cluster: LogCluster, how: dict[str, str]) -> None:
    cluster.topic("t", 2)
    seen = topics(cluster, **how)
    assert seen.partitions() == [T0, T1]
    del cluster.topics["t"]
    assert seen.partitions([T0, T1]) == []
    assert cluster.asked(3, broker=2) > 0, "only one broker was asked"


def test_spark_D24_a_pattern_leaves_internal_topics_out(cluster: LogCluster) -> None:
    cluster.topic("t", 2)
    cluster.topic("__consumer_offsets", 3, internal=True)
    assert topics(cluster, subscribePattern=".*").partitions() == [T0, T1]


def test_spark_D28_offsets_are_asked_for_again_as_often_and_as_slowly_as_the_options_say(cluster: LogCluster) -> None:
    cluster.topic("t", 1)[0].append(5)
    given = {"fetchOffset__numRetries": "2", "fetchOffset__retryIntervalMs": "100"}
    cluster.offset_errors = [ErrorCode.leader_not_available] * 2
    began_s = time.monotonic()
    assert topics(cluster, **given).latest([T0]) == {T0: 5}
    assert time.monotonic() - began_s >= 0.2
    cluster.offset_errors = [ErrorCode.leader_not_available] * 3
    with pytest.raises(LeaderNotAvailableError):
        topics(cluster, **given).latest([T0])
    assert cluster.offset_errors == []
    cluster.topic_errors["t"] = [ErrorCode.leader_not_available] * 9
    with pytest.raises(HoldfastError):
        topics(cluster, **given).partitions()
    assert len(cluster.topic_errors["t"]) == 6


def test_spark_D7_a_throttled_wait_for_records_is_no_busy_loop(cluster: LogCluster) -> None:
    cluster.topic("t", 1)[0].append(5)
    seen = topics(cluster, kafka__fetch__max__wait__ms="300")
    seen.wait_beyond({T0: 0})  # connects
    cluster.fetch_script = [1000]
    began_s = time.monotonic()
    seen.wait_beyond({T0: 0})
    assert time.monotonic() - began_s >= 0.3


def test_spark_D7_a_client_that_is_throttled_asks_again(cluster: LogCluster) -> None:
    cluster.topic("t", 1)[0].append(5)
    cluster.fetch_script = [20, 20]
    with BlockingClient(cluster.bootstrap) as client:
        assert len(client.fetch_raw(T0, 0).records) > 0
    assert cluster.fetch_script == []


def test_a_process_keeps_so_many_clients_and_no_reader_loses_its_own() -> None:
    first = client_of("127.0.0.1:1", "first", security=None)
    assert client_of("127.0.0.1:1", "first", security=None) is first
    for number in range(MOST_CLIENTS):
        client_of("127.0.0.1:1", f"later-{number}", security=None)
    assert len(topics_module._clients) == MOST_CLIENTS
    assert client_of("127.0.0.1:1", "first", security=None) is not first
    assert first.run(asyncio.sleep(0, "here")) == "here"
    thread = first._thread
    del first
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_a_wait_that_a_broker_gives_no_session_for_names_its_partitions_each_time(cluster: LogCluster) -> None:
    cluster.topic("t", 2)
    seen = topics(cluster, kafka__fetch__max__wait__ms="1")
    for _ in range(3):
        seen.wait_beyond({T0: 0, T1: 0})
    assert len(cluster.fetched) == 6
