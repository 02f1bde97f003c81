"""The port that Prometheus scrapes, on real brokers: what it says, what it refuses, and a directory that dies."""

from __future__ import annotations

import gzip
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.testing import Cluster, wait_for

pytestmark = pytest.mark.system

OFFLINE_REPLICAS = "kafka_server_replicamanager_offlinereplicacount"
OFFLINE_DIRS = "kafka_log_logmanager_offlinelogdirectorycount"
REPLICATED_IN = "kafka_server_brokertopicmetrics_replicationbytesin"
DIR_OFFLINE = "kafka_log_logmanager_logdirectoryoffline"


def scrape(cluster: Cluster, broker: int = 1) -> dict[str, dict[tuple[str, ...], float]]:
    """Metric -> label values -> value."""
    url = f"http://127.0.0.1:{cluster.port + 99 + broker}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        page = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(page):
        found[family.name] = {tuple(s.labels.values()): s.value for s in family.samples}
    return found


def test_every_broker_is_scraped_and_they_add_up(cluster: Cluster, topic: str) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name=topic, partitions=6, replication_factor=3))
        cluster.wait_in_sync([topic])

        def adds_up() -> bool:
            pages = [scrape(cluster, broker) for broker in (1, 2, 3)]
            view = cluster.describe()

            def total(name: str) -> float:
                return sum(page[name][()] for page in pages)

            held = [len(seen.replicas) for b in (1, 2, 3) for seen in cluster.describe_log_dirs(b).values()]
            told = [count for page in pages for count in page["holdfast_log_directory_replicas"].values()]
            led = total("kafka_server_replicamanager_leadercount")
            here = total("kafka_server_replicamanager_partitioncount")
            return (
                sorted(told) == sorted(held)
                and led == len(view.partitions)
                and here == sum(len(p.replicas) for p in view.partitions.values())
                and total("kafka_controller_kafkacontroller_globalpartitioncount") == len(view.partitions)
                and total("kafka_controller_kafkacontroller_globaltopiccount") == len(view.topics)
                and total("kafka_controller_kafkacontroller_activecontrollercount") == 1
                and total("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
                and total("kafka_server_replicamanager_underreplicatedpartitions") == 0
                and total("kafka_server_replicamanager_underminisrpartitioncount") == 0
                and total(OFFLINE_REPLICAS) == total(OFFLINE_DIRS) == 0
            )

        wait_for(adds_up, "metrics that agree with the metadata", timeout_s=20)


def page_of(cluster: Cluster, broker: int = 1) -> str:
    """The text."""
    return page_at(cluster.port + 99 + broker)


def page_at(port: int) -> str:
    """The same of a broker whose metrics are at this port."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def values(page: str) -> dict[str, float]:
    """``name{labels}`` -> value, as they stand there."""
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in lines}


def logins(page: str, listener: str) -> list[int]:
    """Those by the listener, failed ones, renewed ones, and those that were refused to be renewed."""
    found, mark = values(page), f'listener="{listener}",networkProcessor="0"'
    kinds = (
        "successful_authentication", "failed_authentication", "successful_reauthentication", "failed_reauthentication",
    )  # fmt: skip
    return [int(found[f"kafka_server_socket_server_metrics_{kind}_total{{{mark}}}"]) for kind in kinds]


def test_how_long_requests_take_is_told_by_api_and_stage(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster(brokers=2, settings={"min.insync.replicas": "1"})
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name="t", partitions=1, replication_factor=2))
        cluster.wait_in_sync(["t"])
        leader = cluster.describe().partitions["t", 0].leader
        assert leader is not None
        batch = encode_batch([Record(offset=0, timestamp=1, key=None, value=b"x", headers=())])
        for _ in range(20):
            client.produce("t", 0, bytearray(batch))
        client.fetch_raw(TopicPartition("t", 0), 0)
        with pytest.raises(HoldfastError):
            client.produce("t", 0, bytearray(batch[:-1] + b"!"), retry=False)

    def told() -> bool:
        return 'kafka_network_requestmetrics_errors_total{error="CORRUPT_MESSAGE",request="Produce"} 1.0' in page_of(
            cluster, leader
        )

    wait_for(told, "the last request to be on the page", timeout_s=20)
    page = page_of(cluster, leader)
    found = values(page)

    def seconds(stage: str, what: str) -> float:
        return found.get(f'holdfast_request_seconds_{what}{{request="Produce",stage="{stage}"}}', 0)

    stages = ("request_queue", "local", "remote", "response_queue", "response_send")
    assert [seconds(stage, "count") for stage in ("total", "request_queue", "local", "remote")] == [21] * 4
    assert seconds("remote", "sum") > 0
    assert seconds("local", "sum") > 0
    assert sum(seconds(stage, "sum") for stage in stages) == pytest.approx(seconds("total", "sum"), abs=0.001)
    times = 'kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Produce"}'
    assert 0 < found[times] < 10_000
    assert "# TYPE kafka_network_requestmetrics_totaltimems summary" in page
    assert found['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] == 21
    for who in ("FetchConsumer", "FetchFollower", "Fetch"):
        assert any(
            series.startswith(f'kafka_network_requestmetrics_requests_total{{request="{who}"') for series in found
        )


def health(cluster: Cluster, question: str, broker: int = 1) -> tuple[int, dict[str, Any]]:
    """Status and JSON."""
    url = f"http://127.0.0.1:{cluster.port + 99 + broker}/health/{question}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.headers["Content-Type"] == "application/json"
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def test_who_restarts_brokers_hears_whether_this_one_may_stop(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster(brokers=3, settings={"min.insync.replicas": "2"})
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name="t", partitions=2, replication_factor=3))
        cluster.wait_in_sync(["t"])
    good = (200, {"ok": True, "reasons": []})
    for broker in (1, 2, 3):
        assert health(cluster, "live", broker) == good
        assert health(cluster, "ready", broker) == good
    safe = (200, {"ok": True, "reasons": [], "partitions": 0})
    wait_for(
        lambda: all(health(cluster, "safe-to-stop", broker) == safe for broker in (1, 2, 3)),
        "each of them to be safe to stop",
        timeout_s=20,
    )
    cluster.kill(3)
    wait_for(lambda: health(cluster, "safe-to-stop")[0] == 503, "it to be unsafe beside a dead one", timeout_s=20)
    _, told = health(cluster, "safe-to-stop")
    assert (told["ok"], told["partitions"]) == (False, 2)
    assert {(r["topic"], r["partition"]) for r in told["reasons"]} == {("t", 0), ("t", 1)}
    text = "t-0: 1 in sync without broker 1, expected min.insync.replicas=2"
    assert text in {r["text"] for r in told["reasons"]}
    assert health(cluster, "ready") == good
    cluster.revive()
    wait_for(lambda: health(cluster, "safe-to-stop")[0] == 200, "it to be safe again", timeout_s=30)


def test_a_page_is_compressed_for_who_takes_that(cluster: Cluster) -> None:
    url = f"http://127.0.0.1:{cluster.port + 100}/metrics"
    request = urllib.request.Request(url, headers={"Accept-Encoding": "deflate, gzip;q=0.5"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert (answer.headers["Content-Encoding"], answer.headers["Vary"]) == ("gzip", "Accept-Encoding")
        packed = answer.read()
    page = gzip.decompress(packed).decode()
    assert "holdfast_build_info{" in page
    assert len(packed) < len(page) / 4
    refused = urllib.request.Request(url, headers={"Accept-Encoding": "gzip;q=0"})
    with urllib.request.urlopen(refused, timeout=10) as answer:
        assert answer.headers["Content-Encoding"] is None


def raw(cluster: Cluster, data: bytes) -> bytes:
    """What is answered to bytes, until the broker closes."""
    received = bytearray()
    with socket.create_connection(("127.0.0.1", cluster.port + 100), timeout=10) as connection:
        connection.sendall(data)
        while part := connection.recv(4096):
            received += part
    return bytes(received)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /metrics HTTP/1.1", b"200"),
        (b"GET /metrics?name[]=x HTTP/1.0", b"200"),
        (b"GET / HTTP/1.1", b"404"),
        (b"GET /health/nope HTTP/1.1", b"404"),
        (b"POST /health/live HTTP/1.1", b"405"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"GET /metrics", b"400"),
        (b"\x00\xff", b"400"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1", b"431"),
    ],
    ids=lambda v: v[:20].decode(errors="replace"),
)
def test_what_is_not_a_scrape_is_refused_in_http(cluster: Cluster, request_line: bytes, status: bytes) -> None:
    assert raw(cluster, request_line + b"\r\nHost: x\r\n\r\n").split(b" ")[:2] == [b"HTTP/1.1", status]


def test_head_has_no_body(cluster: Cluster) -> None:
    head, _, body = raw(cluster, b"HEAD /metrics HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 OK", b"")


def bound(sock: socket.socket, port: int) -> bool:
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def test_a_taken_port_costs_the_metrics_and_nothing_else(own_cluster: Callable[..., Cluster]) -> None:
    """It is taken while the broker is down: ``up`` looks for a free one only when it starts itself."""
    cluster = own_cluster(brokers=1)
    cluster.kill(1)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wait_for(lambda: bound(other, cluster.port + 100), "the port", timeout_s=15)
        other.listen()
        cluster.revive()
        said, told = "no metrics for now: metrics.port: cannot listen on", cluster.data_dir / "broker-1.log"
        wait_for(lambda: said in told.read_text(), said, timeout_s=15)  # a thread writes it

    def comes() -> bool:
        try:
            return bool(scrape(cluster))
        except (OSError, urllib.error.URLError):
            return False

    wait_for(comes, "metrics once the port is free", timeout_s=20)


def test_K112_95_K112_96_C9_a_directory_that_dies_is_counted_with_its_replicas(
    own_cluster: Callable[..., Cluster],
) -> None:
    cluster = own_cluster(brokers=1, settings={"log.dir.probe.interval.ms": "200"})
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name="t", partitions=5, replication_factor=1))
        cluster.wait_in_sync(["t"])
        bad, good = client.describe_log_dirs()[1]
    assert len(bad.replicas) > 0
    assert scrape(cluster)[OFFLINE_REPLICAS][()] == 0
    Path(bad.path).rename(f"{bad.path}.gone")
    Path(bad.path).write_text("a file where a directory was")

    def counted() -> bool:
        return scrape(cluster)[OFFLINE_DIRS][()] == 1

    wait_for(counted, "one directory to be offline", timeout_s=20)
    page = scrape(cluster)
    assert page[OFFLINE_REPLICAS][()] == len(bad.replicas)
    assert page[DIR_OFFLINE] == {(bad.path,): 1, (good.path,): 0}
    assert page["holdfast_log_directory_state"][(bad.path, "offline")] == 1


def test_what_goes_in_and_out_is_counted_by_topic(cluster: Cluster, topic: str) -> None:
    records = [Record(offset=i, timestamp=1, key=None, value=b"x" * 100, headers=()) for i in range(10)]
    batch = encode_batch(records)
    size = len(batch)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(NewTopic(name=topic, partitions=1, replication_factor=3))
        cluster.wait_in_sync([topic])
        leader = cluster.describe().partitions[topic, 0].leader
        assert leader is not None
        followed = [scrape(cluster, b)[REPLICATED_IN][()] for b in (1, 2, 3) if b != leader]
        for _ in range(3):
            client.produce(topic, 0, bytearray(batch))
        read = 0
        while read < 3:
            fetched = client.fetch_raw(TopicPartition(topic, 0), 10 * read, max_bytes=1 << 20)
            read += len(fetched.records) // size

    def of(name: str) -> float:
        return scrape(cluster, leader)[f"kafka_server_brokertopicmetrics_{name}"].get((topic,), 0)

    wait_for(lambda: of("bytesin") == of("bytesout") == 3 * size, "a page made after the batches", timeout_s=20)
    assert (of("messagesin"), of("totalproducerequests")) == (30, 3)
    assert (of("failedproducerequests"), of("failedfetchrequests"), of("bytesrejected")) == (0, 0, 0)
    assert scrape(cluster, leader)["kafka_server_brokertopicmetrics_bytesin"][()] >= 3 * size
    others = [b for b in (1, 2, 3) if b != leader]

    def replicated() -> bool:
        now = [scrape(cluster, b)[REPLICATED_IN][()] for b in others]
        return all(after - before >= 3 * size for before, after in zip(followed, now, strict=True))

    wait_for(replicated, "the followers to have counted it", timeout_s=20)
