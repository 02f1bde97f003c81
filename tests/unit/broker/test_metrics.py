"""Prometheus' text of a reading: names, labels, values; read back by Prometheus' own parser."""

import dataclasses
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from holdfast.broker.gate import LoginCounts
from holdfast.broker.metrics import (
    STATES,
    BrokerReading,
    DirCounts,
    DirReading,
    MoveReading,
    Reading,
    RequestsReading,
    TrafficReading,
)
from holdfast.broker.metrics_names import kafka_name
from holdfast.broker.metrics_partitions import PartitionRow, TopicRow
from holdfast.broker.metrics_security import SecurityReading
from holdfast.broker.metrics_text import text
from holdfast.broker.quotas import Throttled
from holdfast.broker.request_times import NO_STAGES, STAGES, ApiReading
from holdfast.metadata.store import CopyState
from holdfast.model.histogram import Histogram, Observed
from holdfast.model.types import TopicPartition
from holdfast.replication.traffic import TopicCounts

GOOD = DirReading(
    path="/d1", state="online", since_ms=1_000, total_bytes=100, usable_bytes=40, probe_ms=2.5, replicas=3
)
BAD = DirReading(
    path="/d 2", state="offline", since_ms=2_000, total_bytes=None, usable_bytes=None, probe_ms=None, replicas=2
)
Labels = frozenset[tuple[str, str]]


def seen(*times: int) -> Observed:
    histogram = Histogram()
    for us in times:
        histogram.add(us)
    return histogram.now()


def full() -> Reading:
    """Something of everything."""
    tp = TopicPartition("t", 0)
    counts = DirCounts(appended_bytes=4096, appends=seen(100, 300), flushes=seen(5_000), errors=1)
    stages = tuple(seen(200, 900) for _ in STAGES)
    return Reading(
        dirs=(dataclasses.replace(GOOD, counts=counts, log_bytes=70, waiting=3, cordoned=True), BAD),
        metadata_copies=(CopyState(path="/m1", is_good=True, answers=True),),
        traffic=TrafficReading(topics=(("t", TopicCounts(bytes_in=300)),)),
        requests=RequestsReading(
            apis=(ApiReading("Produce", stages, NO_STAGES),), counts={("Produce", 9): 2}, errors={("Produce", 56): 1}
        ),
        broker=BrokerReading(
            lags=((tp, 5),), max_lag=5, connected={"PLAINTEXT": 2}, accepted={"PLAINTEXT": 9}, groups={"Stable": 4}
        ),
        security=SecurityReading(
            logins={"CLIENTS": LoginCounts(succeeded=7, failed=3, renewed=2, not_renewed=1)},
            throttled={"producer_byte_rate": Throttled(requests=4, told_ms=1500)},
            ends={"CLIENTS": 1_800_000_000},
        ),
        topic_rows=(("t", TopicRow(3, 2, 1, 70)),),
        partition_rows=(
            PartitionRow(tp, 70, 1, 9, 2, True, 3, 2, 2, 4),
            PartitionRow(tp._replace(partition=1), 8, 0, 1, 1),
        ),
    )


def parsed(reading: Reading) -> dict[str, dict[Labels, float]]:
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text(reading).decode()):
        found[family.name] = {frozenset(s.labels.items()): s.value for s in family.samples}
    return found


def of(value: dict[Labels, float], **labels: str) -> float:
    return value[frozenset(labels.items())]


def test_names_are_those_of_the_jmx_exporter() -> None:
    assert kafka_name("kafka.log:type=LogManager,name=OfflineLogDirectoryCount") == (
        "kafka_log_logmanager_offlinelogdirectorycount"
    )


def test_K112_95_K112_96_dead_directories_and_their_replicas_are_counted() -> None:
    found = parsed(Reading(offline_replicas=2, partitions=5, dirs=(GOOD, BAD)))
    assert of(found["kafka_server_replicamanager_offlinereplicacount"]) == 2
    assert of(found["kafka_log_logmanager_offlinelogdirectorycount"]) == 1
    offline = found["kafka_log_logmanager_logdirectoryoffline"]
    assert (of(offline, logDirectory="/d1"), of(offline, logDirectory="/d 2")) == (0, 1)
    states = found["holdfast_log_directory_state"]
    assert [of(states, logDirectory="/d 2", state=s) for s in STATES] == [0, 0, 0, 0, 1]
    assert of(found["holdfast_log_directory_probe_seconds"], logDirectory="/d1") == 0.0025
    assert of(found["holdfast_log_directory_state_since_seconds"], logDirectory="/d 2") == 2
    assert of(found["holdfast_log_directory_usable_bytes"], logDirectory="/d1") == 40


def test_fetch_sessions_are_counted() -> None:
    found = parsed(Reading(fetch_sessions=2, fetch_session_partitions=7, fetch_session_evictions=3))
    cache = "kafka_server_fetchsessioncache_"
    assert of(found[f"{cache}numincrementalfetchsessions"]) == 2
    assert of(found[f"{cache}numincrementalfetchpartitionscached"]) == 7
    assert of(found[f"{cache}incrementalfetchsessionevictions"]) == 3


def test_traffic_is_there_for_all_topics_and_for_each() -> None:
    mine = TopicCounts(bytes_in=300, messages_in=4)
    traffic = TrafficReading(
        topics=(("t", mine),), total=TopicCounts(bytes_in=500, messages_in=9), replication_bytes_in=70
    )
    found = parsed(Reading(traffic=traffic))
    bytes_in = found["kafka_server_brokertopicmetrics_bytesin"]
    assert (of(bytes_in), of(bytes_in, topic="t")) == (500, 300)
    assert of(found["kafka_server_brokertopicmetrics_messagesin"], topic="t") == 4
    assert of(found["kafka_server_brokertopicmetrics_replicationbytesin"]) == 70
    assert "kafka_server_brokertopicmetrics_bytesin_total 500.0\n" in text(Reading(traffic=traffic)).decode()


def test_transactions_that_hang_are_counted() -> None:
    found = parsed(Reading(late_transactions=3))
    assert of(found["kafka_server_replicamanager_partitionswithlatetransactionscount"]) == 3


def test_each_directory_tells_what_it_did() -> None:
    found = parsed(full())
    mine = {"logDirectory": "/d1"}
    for name, value in (("bytes", 70), ("queue_depth", 3), ("cordoned", 1), ("appended_bytes", 4096), ("errors", 1)):
        assert of(found[f"holdfast_log_directory_{name}"], **mine) == value
    page = text(full()).decode()
    assert 'holdfast_log_directory_append_seconds_count{logDirectory="/d1"} 2.0' in page
    assert 'holdfast_log_directory_append_seconds_bucket{le="0.000128",logDirectory="/d1"} 1.0' in page
    assert 'holdfast_log_directory_flush_seconds_sum{logDirectory="/d1"} 0.005' in page
    assert "kafka_log_logflushstats_logflushrateandtimems_count 1.0" in page


def test_partitions_are_told_apart_where_that_is_wanted() -> None:
    found = parsed(full())
    row = {"topic": "t", "partition": "0"}
    size, under = found["kafka_log_log_size"], found["kafka_cluster_partition_underreplicated"]
    assert (of(size, **row), of(size, topic="t", partition="1")) == (70, 8)
    assert under == {frozenset(row.items()): 1}  # of those it leads alone
    assert of(found["kafka_cluster_partition_atminisr"], **row) == 1
    assert of(found["kafka_cluster_partition_laststableoffsetlag"], **row) == 4
    assert of(found["kafka_server_fetcherlagmetrics_consumerlag"], clientId="Replica", **row) == 5
    assert of(found["holdfast_topic_under_replicated_partitions"], topic="t") == 1
    assert not [name for name in parsed(Reading()) if name.startswith(("kafka_log_log_", "kafka_cluster_partition_"))]


def test_requests_have_buckets_quantiles_and_errors_by_name() -> None:
    page = text(full()).decode()
    for line in (
        'holdfast_request_seconds_bucket{le="0.000256",request="Produce",stage="total"} 1.0',
        'holdfast_request_seconds_count{request="Produce",stage="remote"} 2.0',
        'kafka_network_requestmetrics_totaltimems_count{request="Produce"} 2.0',
        'kafka_network_requestmetrics_requests_total{request="Produce",version="9"} 2.0',
        'kafka_network_requestmetrics_errors_total{error="KAFKA_STORAGE_ERROR",request="Produce"} 1.0',
    ):
        assert line in page
    assert 'kafka_network_requestmetrics_totaltimems{quantile="0.999",request="Produce"}' in page


def test_when_a_certificate_ends_is_told_by_listener() -> None:
    found = parsed(full())["holdfast_certificate_not_after_timestamp_seconds"]
    assert found == {frozenset({("listener", "CLIENTS")}): 1_800_000_000}


def test_logins_are_told_by_listener_and_waits_by_quota() -> None:
    found = parsed(full())
    logins = [
        of(found[f"kafka_server_socket_server_metrics_{kind}authentication"], listener="CLIENTS", networkProcessor="0")
        for kind in ("successful_", "failed_", "successful_re", "failed_re")
    ]
    assert logins == [7, 3, 2, 1]
    assert of(found["holdfast_throttled_requests"], quota="producer_byte_rate") == 4
    assert of(found["holdfast_throttle_seconds"], quota="producer_byte_rate") == 1.5


def test_what_is_not_known_is_left_out() -> None:
    found = parsed(Reading(dirs=(BAD,)))
    for name in ("probe_seconds", "total_bytes", "usable_bytes"):
        assert found[f"holdfast_log_directory_{name}"] == {}


def test_a_move_has_its_lag_and_its_rate() -> None:
    move = MoveReading(topic_partition=TopicPartition("t", 3), source="/d1", target="/d2", lag=70, bytes_per_s=9.5)
    found = parsed(Reading(moves=(move,)))
    labels = {"topic": "t", "partition": "3", "from": "/d1", "to": "/d2"}
    assert of(found["holdfast_moves"]) == 1
    assert of(found["holdfast_move_lag"], **labels) == 70
    assert of(found["holdfast_move_bytes_per_second"], **labels) == 9.5


def test_A5_a_metadata_copy_that_is_left_out_is_told() -> None:
    copies = (
        CopyState(path="/m1", is_good=True, answers=True),
        CopyState(path="/m2", is_good=False, answers=True, reason="[Errno 5] Input/output error"),
    )
    found = parsed(Reading(metadata_copies=copies))
    good = found["holdfast_metadata_copy_good"]
    assert (of(good, directory="/m1"), of(good, directory="/m2")) == (1, 0)
    assert of(found["holdfast_metadata_decisions_wait"]) == 0


def test_D10_decisions_that_wait_for_every_copy_are_told() -> None:
    copies = tuple(CopyState(path=path, is_good=True, answers=False) for path in ("/m1", "/m2"))
    assert of(parsed(Reading(metadata_copies=copies))["holdfast_metadata_decisions_wait"]) == 1


def test_only_the_controller_speaks_of_metadata_copies() -> None:
    found = parsed(Reading())
    assert found["holdfast_metadata_copy_good"] == {}
    assert of(found["holdfast_metadata_decisions_wait"]) == 0


def test_every_help_text_of_a_kafka_metric_begins_with_its_mbean() -> None:
    for line in text(full()).decode().splitlines():
        if line.startswith("# HELP kafka_") and "socket_server_metrics" not in line:
            _, _, name, mbean, *_ = line.split(" ")
            mbean = re.sub(r",\w+=(?:PATH|API|N|NAME|T|Replica)(?=[.,]|$)", "", mbean.rstrip(".")).removesuffix(
                "PerSec"
            )
            assert kafka_name(mbean) == name.removesuffix("_total")


def test_K112_99_every_alert_is_about_a_metric_that_exists() -> None:
    rules = (Path(__file__).parents[3] / "examples/prometheus/rules.yml").read_text()
    page = text(full()).decode()
    exists = {re.split(r"[{ ]", line, maxsplit=1)[0] for line in page.splitlines() if not line.startswith("#")}
    asked = set(re.findall(r"\b(?:kafka|holdfast)_\w+", rules))
    assert asked <= exists
    assert {
        "kafka_log_logmanager_logdirectoryoffline",
        "kafka_log_logmanager_offlinelogdirectorycount",
        "holdfast_log_directory_state",
        "holdfast_metadata_copy_good",
        "holdfast_metadata_decisions_wait",
    } <= asked
    states = set(re.findall(r'state="(\w+)"', rules))
    assert states <= set(STATES)
    assert rules.count("- alert:") == rules.count("expr:") == rules.count("summary:") == rules.count("severity:")
