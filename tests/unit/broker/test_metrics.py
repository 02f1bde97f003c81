"""Prometheus' text of a reading: names, labels, values; read back by Prometheus' own parser."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from holdfast.broker.metrics import STATES, DirReading, MoveReading, Reading, TrafficReading
from holdfast.broker.metrics_names import kafka_name
from holdfast.broker.metrics_text import text
from holdfast.metadata.store import CopyState
from holdfast.model.types import TopicPartition
from holdfast.replication.traffic import TopicCounts

GOOD = DirReading(
    path="/d1", state="online", since_ms=1_000, total_bytes=100, usable_bytes=40, probe_ms=2.5, replicas=3
)
BAD = DirReading(
    path="/d 2", state="offline", since_ms=2_000, total_bytes=None, usable_bytes=None, probe_ms=None, replicas=2
)
Labels = frozenset[tuple[str, str]]


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
    for line in text(Reading(dirs=(GOOD,))).decode().splitlines():
        if line.startswith("# HELP kafka_"):
            _, _, name, mbean, *_ = line.split(" ")
            mbean = mbean.rstrip(".").removesuffix(",logDirectory=PATH").removesuffix("PerSec")
            assert kafka_name(mbean) == name.removesuffix("_total")


def test_K112_99_every_alert_is_about_a_metric_that_exists() -> None:
    rules = (Path(__file__).parents[3] / "examples/prometheus/rules.yml").read_text()
    exists = set(parsed(Reading(dirs=(GOOD, BAD))))
    asked = {
        name
        for expression in re.findall(r"expr: (.*)", rules)
        for name in re.findall(r"\b(?:kafka|holdfast)_\w+", expression)
    }
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
