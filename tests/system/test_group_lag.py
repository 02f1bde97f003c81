"""Lag of groups for Prometheus: the console's /metrics on a real cluster, with pages and without."""

from __future__ import annotations

import gzip
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import CommittedOffset
from holdfast.console.host import FRESH_S
from holdfast.console.metrics_routes import PATIENCE_S
from holdfast.model.types import TopicPartition
from holdfast.testing import Cluster, wait_for
from tests.system.console_pages import ConsolePages

pytestmark = pytest.mark.system

GROUP = "readers"
Scraped = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, console=True) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, topic: str) -> str:
    """Twenty records, of which the group has read five."""
    cluster.create_topic(topic, partitions=2)
    cluster.produce(topic, [b"x"] * 20, partition=0)
    commit(cluster, 5, topic)
    return topic


@pytest.fixture(scope="module")
def exporter(cluster: Cluster) -> Iterator[ConsolePages]:
    """``holdfast console --metrics-only`` for everybody on the network."""
    command = [sys.executable, "-m", "holdfast.cli.main", "console", "--metrics-only", "--host", "0.0.0.0"]
    console = subprocess.Popen(
        [*command, "--bootstrap-server", cluster.bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert console.stdout is not None
        line = console.stdout.readline()
        assert line.endswith("/metrics\n"), line
        yield ConsolePages(f"http://127.0.0.1:{line.removesuffix('/metrics' + chr(10)).rpartition(':')[2]}/")
        console.terminate()
        assert console.wait(10) == 0
    finally:
        console.kill()


def commit(cluster: Cluster, offset: int, topic: str) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.commit_offsets(GROUP, {TopicPartition(topic, 0): CommittedOffset(offset=offset)})


def scrape(pages: ConsolePages) -> Scraped:
    """(name, values of its labels in their order) -> value."""
    answer = pages.get("/metrics")
    assert answer.status == 200, answer.text
    return {
        (s.name, *(v for _, v in sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(answer.text)
        for s in family.samples
    }


def raw(pages: ConsolePages, accepted: str) -> tuple[dict[str, str], bytes]:
    """Headers and bytes of the metrics."""
    connection = http.client.HTTPConnection(pages.host, pages.port, timeout=20)
    try:
        connection.request("GET", "/metrics", headers={"accept-encoding": accepted})
        answer = connection.getresponse()
        return {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def lag_s(found: Scraped, topic: str) -> float:
    return found["holdfast_consumergroup_lag_seconds", GROUP, "0", topic]


def test_a_scrape_is_a_look(cluster: Cluster, exporter: ConsolePages, topic: str) -> None:
    def lag() -> float | None:
        return scrape(exporter).get(("kafka_consumergroup_lag", GROUP, "0", topic))

    wait_for(lambda: lag() == 15, "the first commit", timeout_s=10)
    cluster.produce(topic, [b"x"] * 10, partition=0)
    wait_for(lambda: lag() == 25, "a scrape that is later by a second to see what was written", timeout_s=10)
    commit(cluster, 30, topic)
    wait_for(lambda: scrape(exporter)["kafka_consumergroup_lag_sum", GROUP, topic] == 0, "the commit", timeout_s=10)
    found = scrape(exporter)
    assert lag_s(found, topic) == 0
    assert found["kafka_consumergroup_current_offset", GROUP, "0", topic] == 30
    assert found["kafka_topic_partition_current_offset", "0", topic] == 30
    assert found["kafka_topic_partition_oldest_offset", "0", topic] == 0
    assert found["kafka_consumergroup_members", GROUP] == 0
    assert found["kafka_brokers",] == 1


def test_a_scrape_is_answered_when_its_look_has_ended(exporter: ConsolePages) -> None:
    """A scrape was told of the look and not of the page that was made of it: most were answered after eight seconds."""
    until_s = time.monotonic() + 3 * FRESH_S
    longest_s = 0.0
    while (asked_s := time.monotonic()) < until_s:
        scrape(exporter)
        longest_s = max(longest_s, time.monotonic() - asked_s)
    assert longest_s < PATIENCE_S / 2


def test_lag_in_seconds_grows_while_nobody_reads(cluster: Cluster, exporter: ConsolePages, topic: str) -> None:
    commit(cluster, 20, topic)
    asked_s = time.monotonic()
    wait_for(
        lambda: (
            ("holdfast_consumergroup_lag_seconds", GROUP, "0", topic) in (found := scrape(exporter))
            and lag_s(found, topic) == 0
        ),
        "the group to be at the end",
        timeout_s=10,
    )
    cluster.produce(topic, [b"x"] * 5, partition=0)
    wait_for(lambda: lag_s(scrape(exporter), topic) > 0, "the first seconds of lag", timeout_s=10)
    first = lag_s(scrape(exporter), topic)
    assert first < FRESH_S + time.monotonic() - asked_s
    wait_for(lambda: lag_s(scrape(exporter), topic) > first + 1, "it to grow", timeout_s=10)
    commit(cluster, 25, topic)
    wait_for(lambda: lag_s(scrape(exporter), topic) == 0, "it to end", timeout_s=10)


def test_a_deleted_topic_has_no_series(cluster: Cluster, exporter: ConsolePages, topic: str) -> None:
    wait_for(lambda: topic in exporter.get("/metrics").text, "the topic", timeout_s=10)
    with BlockingClient(cluster.bootstrap) as client:
        assert client.delete_topics([topic]) == {topic: None}
    wait_for(lambda: topic not in exporter.get("/metrics").text, "nothing of it", timeout_s=10)


def test_nothing_else_is_served_and_it_is_compressed_for_who_takes_that(exporter: ConsolePages, topic: str) -> None:
    for path in ("/", "/topics", "/acts", "/static/console.js", "/events"):
        answer = exporter.get(path)
        assert (answer.status, answer.text) == (
            404, "expected one of /metrics, /health, /health/live, /health/ready\n",
        ), path  # fmt: skip
    assert exporter.ask("POST", "/metrics", origin=exporter.origin).status == 403
    assert exporter.ask("GET", "/metrics", host="evil.example").status == 403
    assert exporter.get("/health").text == '{"ok":true,"reasons":[]}'
    assert exporter.get("/health/live").status == 200
    headers, body = raw(exporter, "gzip")
    assert headers["content-encoding"] == "gzip"
    assert b"kafka_consumergroup_lag{" in gzip.decompress(body)
    headers, body = raw(exporter, "identity")
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "content-encoding" not in headers
    assert b"kafka_consumergroup_lag{" in body


def test_the_console_with_pages_tells_the_same(cluster: Cluster, exporter: ConsolePages) -> None:
    names = {name for name, *_ in scrape(ConsolePages(cluster.console_url))}
    assert names == {name for name, *_ in scrape(exporter)}


def test_a_cluster_that_is_gone_has_no_numbers(cluster: Cluster, exporter: ConsolePages) -> None:
    cluster.kill(1)
    wait_for(
        lambda: scrape(exporter) and ("kafka_brokers",) not in scrape(exporter),
        "the cluster to be missed",
        timeout_s=20,
    )
    assert scrape(exporter)["holdfast_console_cluster_reached",] == 0
    answer = exporter.get("/health/ready")
    assert (answer.status, '"reason":"cluster"' in answer.text) == (503, True)
    cluster.revive()
    wait_for(lambda: ("kafka_brokers",) in scrape(exporter), "the cluster to be back", timeout_s=30)
