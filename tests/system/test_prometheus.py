"""What Prometheus makes of us: its own tool finds nothing wrong, boards and rules name what there is, alerts fire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.testing import Cluster, wait_for
from tests.conftest import ONE_COPY, STEADY_DISKS, up_command
from tests.system.test_metrics import page_of

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/prometheus"
NAME = re.compile(r"\b(?:kafka|holdfast|process)_[a-z0-9_]+")
ALERT = re.compile(r"- alert: (\w+)")
FINDINGS = {
    "label names should be written in 'snake_case' not 'camelCase'": "logDirectory, clientId and the like are Kafka's",
    'non-histogram and non-summary metrics should not have "_count" suffix': "jmx_exporter's names of Kafka's metrics",
}
"""What promtool may say, and why it stays."""
STRIMZI = {
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_underminisr",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_log_log_size",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_kafkaserver_linux_disk_read_bytes",
    "kafka_server_kafkaserver_linux_disk_write_bytes",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_socket_server_metrics_connection_count",
    "process_open_fds",
}
"""What the Kafka board of Strimzi reads of brokers."""


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.fail("promtool is not on the PATH: apt-get install prometheus")
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page of a broker that leads, follows, has been asked and has answered with an error, by partition."""
    settings = {**ONE_COPY, **STEADY_DISKS, "metrics.level": "partition", "log.flush.interval.messages": "1"}
    with Cluster(
        data_dir=tmp_path_factory.mktemp("prometheus"), up=up_command(), brokers=2, log_dirs=1, settings=settings
    ) as cluster:
        with BlockingClient(cluster.bootstrap) as client:
            client.create_topic(NewTopic(name="t", partitions=4, replication_factor=2))
            view = cluster.wait_in_sync(["t"])
            led = next(number for (_, number), p in view.partitions.items() if p.leader == 1)
            batch = encode_batch([Record(offset=0, timestamp=1, key=None, value=b"x", headers=())])
            for number in range(4):
                client.produce("t", number, bytearray(batch))
            assert len(client.fetch_raw(TopicPartition("t", led), 0).records)
            wait_for(
                lambda: 'kafka_server_brokertopicmetrics_bytesout_total{topic="t"}' in page_of(cluster),
                "a page with the fetch",
                timeout_s=20,
            )
        yield page_of(cluster)


def families(page: str) -> set[str]:
    """Every name that a query may use: of series, and of families that have none at the moment."""
    told = {line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE ")}
    return told | {re.split(r"[{ ]", line, maxsplit=1)[0] for line in page.splitlines() if not line.startswith("#")}


def test_all_that_strimzis_board_reads_of_a_broker_is_there(page: str) -> None:
    series = {re.split(r"[{ ]", line, maxsplit=1)[0] for line in page.splitlines() if not line.startswith("#")}
    assert STRIMZI - series == set()
    for name in ("bytesin", "bytesout", "messagesin", "totalproducerequests", "totalfetchrequests"):
        assert f'kafka_server_brokertopicmetrics_{name}_total{{topic="t"}}' in page
    assert 'kafka_log_log_size{partition="0",topic="t"}' in page
    assert 'kafka_server_socket_server_metrics_connection_count{listener="' in page


@pytest.mark.parametrize("name", ["board.json", "rules.yml", "recording.yml"])
def test_what_boards_and_rules_name_exists(page: str, name: str) -> None:
    asked = set(NAME.findall((EXAMPLES / name).read_text()))
    made = set(re.findall(r"- record: (\w+)", (EXAMPLES / name).read_text()))
    assert len(asked - made) > 5
    assert asked - made - families(page) == set()


def test_every_panel_of_the_board_asks_for_something() -> None:
    board = json.loads((EXAMPLES / "board.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        assert panel["targets"], panel["title"]
        assert all(NAME.search(target["expr"]) for target in panel["targets"]), panel["title"]


def test_promtool_finds_nothing_in_a_page_but_what_is_kafkas(promtool: str, page: str) -> None:
    done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, text=True, timeout=60)
    said = (done.stdout + done.stderr).splitlines()
    assert [line for line in said if not any(line.endswith(known) for known in FINDINGS)] == []
    lines = " ".join(said)
    assert all(known in lines for known in FINDINGS), "one that is not found any more: take its entry out"


@pytest.mark.parametrize("name", ["rules.yml", "recording.yml"])
def test_promtool_reads_the_rules(promtool: str, name: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", str(EXAMPLES / name)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_query_of_the_board_can_be_read(promtool: str, tmp_path: Path) -> None:
    """Each as a recording rule, with a value in the place of what Grafana fills in."""
    board = json.loads((EXAMPLES / "board.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    filled = [
        query.replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$topic", ".*") for query in queries
    ]
    assert not [query for query in filled if "$" in query]
    rules = [{"record": f"q{number}", "expr": query} for number, query in enumerate(filled)]
    path = tmp_path / "board.yml"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


DIR = 'instance="b1", logDirectory="/d1"'
FLUSHES = f'holdfast_log_directory_flush_seconds_bucket{{{DIR}, le="%s"}}'
STATE = f'holdfast_log_directory_state{{{DIR}, state="%s"}}'
FAULTS = {
    "LogDirectoryOffline": (f"kafka_log_logmanager_logdirectoryoffline{{{DIR}}}", "0x5 1x20 0x60", "6m", "80m"),
    "LogDirectoryFull": (STATE % "full", "0x5 1x20 0x60", "8m", "80m"),
    "LogDirectoryDegraded": (STATE % "degraded", "0x5 1x20 0x60", "9m", "80m"),
    "LogDirectorySilent": (STATE % "silent", "0x5 1x20 0x60", "7m", "80m"),
    "LogDirectoryErrors": (f"holdfast_log_directory_errors_total{{{DIR}}}", "0x5 2x80", "7m", "80m"),
    "LogDirectoryQueueGrows": (f"holdfast_log_directory_queue_depth{{{DIR}}}", "0x5 3000x20 0x60", "12m", "80m"),
    "LogDirectorySlowFlush": (FLUSHES % "+Inf", "0+60x5 300+2x25 350x90", "28m", "80m"),
    "LogDirectoryFillsUp": (f"holdfast_log_directory_usable_bytes{{{DIR}}}", "9e5-9e3x90 9e6x900", "80m", "15h"),
    "OfflineReplicasFromTheStart": (
        'kafka_log_logmanager_offlinelogdirectorycount{instance="b1"}', "0x5 1x1500 0x60", "1450m", "1530m",
    ),
    "OfflineReplicas": ('kafka_server_replicamanager_offlinereplicacount{instance="b1"}', "0x5 3x20 0x60", "6m", "80m"),
    "BrokerDown": ('up{job="holdfast", instance="b1"}', "1x5 0x20 1x60", "9m", "80m"),
    "BrokerFenced": ('kafka_controller_kafkacontroller_fencedbrokercount{instance="b1"}', "0x5 1x20 0x60", "9m", "80m"),
    "PartitionsUnderMinIsr": (
        'kafka_server_replicamanager_underminisrpartitioncount{instance="b1"}', "0x5 1x20 0x60", "9m", "80m",
    ),
    "UncleanLeaderElection": (
        'kafka_controller_controllerstats_uncleanleaderelections_total{instance="b1"}', "0x5 1x80", "7m", "80m",
    ),
    "LoginsFail": (
        'kafka_server_socket_server_metrics_failed_authentication_total{instance="b1", listener="CLIENTS"}',
        "0x5 0+600x20 12000x60", "16m", "80m",
    ),
    "CertificateEnds": (  # the clock of these tests begins in 1970: it ends 8 days after, and is renewed after 2
        'holdfast_certificate_not_after_timestamp_seconds{instance="b1", listener="CLIENTS"}',
        "691200x2880 7776000x60", "25h", "2900m",
    ),
}  # fmt: skip
"""Alert -> a series, its values by the minute, when the alert fires, when it does no more."""
BESIDE = {
    "LogDirectorySlowFlush": [(FLUSHES % bound, values) for bound, values in (
        ("2.097152", "0+60x5 300x120"), ("4.194304", "0+60x5 300x120"), ("8.388608", "0+60x5 300+2x25 350x90"),
    )],
}  # fmt: skip
"""What else is fed to those that look at several series."""


def alerts_of_disks() -> set[str]:
    """Those of the group for disks."""
    _, group, *_ = (EXAMPLES / "rules.yml").read_text().split("- name: ")
    assert group.startswith("holdfast-disks\n")
    return set(ALERT.findall(group))


def test_alerts_as_shipped_fire_and_end(promtool: str, tmp_path: Path) -> None:
    assert alerts_of_disks() <= FAULTS.keys()
    tests = []
    for alert, (series, numbers, fires, ended) in FAULTS.items():
        firing = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
        expected = [("0m", 0), (fires, 1), (ended, 0)]
        tests.append(
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values} for name, values in [(series, numbers), *BESIDE.get(alert, [])]
                ],
                "promql_expr_test": [
                    {"expr": firing, "eval_time": at, "exp_samples": [{"labels": "{}", "value": value}]}
                    for at, value in expected
                ],
            }
        )
    path = tmp_path / "test.yml"
    path.write_text(
        json.dumps({"rule_files": [str(EXAMPLES / "rules.yml")], "evaluation_interval": "1m", "tests": tests})
    )
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_recorded_names_are_kafkas_counters_in_other_words(promtool: str, tmp_path: Path) -> None:
    counted = 'kafka_server_brokertopicmetrics_bytesin_total{topic="t"}'
    other = ("kafka_server_brokertopicmetrics_bytesinpersec_total", "kafka_server_brokertopicmetrics_bytesinpersec")
    test = {
        "interval": "1m",
        "input_series": [{"series": counted, "values": "0+60x10"}],
        "promql_expr_test": [
            {
                "expr": name,
                "eval_time": "5m",
                "exp_samples": [{"labels": f'{name}{{topic="t"}}', "value": 300}],
            }
            for name in other
        ],
    }
    path = tmp_path / "test.yml"
    path.write_text(
        json.dumps({"rule_files": [str(EXAMPLES / "recording.yml")], "evaluation_interval": "1m", "tests": [test]})
    )
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_paragraph_in_the_runbook_and_points_to_it() -> None:
    rules = (EXAMPLES / "rules.yml").read_text()
    runbook = (ROOT / "docs/runbook.md").read_text()
    alerts = ALERT.findall(rules)
    assert re.findall(r"^### (\w+)$", runbook, flags=re.M) == alerts
    assert [f"docs/runbook.md#{alert.lower()}" for alert in alerts] == re.findall(r"runbook: (\S+)", rules)
