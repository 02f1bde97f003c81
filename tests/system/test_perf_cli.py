"""``holdfast perf`` against real brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import OffsetSpec
from holdfast.model.types import TopicPartition
from holdfast.testing import Cluster, wait_for

pytestmark = pytest.mark.system

PERF = [sys.executable, "-m", "holdfast.cli.main", "perf"]


def perf(cluster: Cluster, *args: str) -> tuple[int, str, str]:
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    done = subprocess.run([*PERF, *args], capture_output=True, text=True, timeout=60, env=environment)
    return done.returncode, done.stdout, done.stderr


def test_all_that_is_written_is_read_and_both_say_how_fast(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic, partitions=3)
    code, out, err = perf(
        cluster, "produce", "--topic", topic, "--records", "20000", "--size", "200", "--compression", "lz4", "--json"
    )
    told = json.loads(out)
    assert (code, err, told["records"], told["bytes"]) == (0, "", 20_000, 20_000 * 200)
    found = told["latency_ms"]
    assert 0 < found["p50"] <= found["p95"] <= found["p99"] <= found["p999"] <= found["max"] <= told["seconds"] * 1000
    assert sum(map(len, cluster.consume(topic).values())) == 20_000

    code, out, err = perf(
        cluster, "produce", "--topic", topic, "--records", "100", "--throughput", "200", "--acks", "1"
    )
    assert (code, err, out.startswith("100 records sent, ")) == (0, "", True)
    assert float(out.split()[3]) <= 210, "it takes half a second, however fast the brokers are"

    code, out, err = perf(cluster, "consume", "--topic", topic, "--hide-header")
    assert (code, err, out.split(", ")[4]) == (0, "", "20100")
    code, out, err = perf(cluster, "consume", "--topic", topic, "--records", "30000", "--timeout", "100", "--json")
    assert (code, json.loads(out)["records"]) == (1, 20_100)
    assert err == f"holdfast perf: topic {topic}: 20100 records within 100 ms of silence: expected 30000\n"


def test_with_a_producer_id_nothing_is_there_twice_though_a_leader_is_killed(
    own_cluster: Callable[..., Cluster], topic: str
) -> None:
    """Five batches of a partition are on their way: those behind one that is sent again are sent again behind it."""
    cluster = own_cluster(brokers=3)
    cluster.create_topic(topic, assignment={0: (1, 2, 3), 1: (2, 3, 1)})
    cluster.wait_in_sync([topic])
    command = [
        *PERF, "produce", "--topic", topic, "--records", "60000", "--size", "100", "--throughput", "30000",
        "--batch-size", "2000", "--json", "-b", cluster.bootstrap, "--producer-property", "enable.idempotence=true",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: ends(cluster, topic) > 10_000, "the first records")
        cluster.kill(1)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (0, "")
    assert json.loads(out)["records"] == 60_000
    cluster.revive()
    found = cluster.consume(topic)
    assert sum(map(len, found.values())) == 60_000


def ends(cluster: Cluster, topic: str) -> int:
    """Records of a topic by the ends of its logs."""
    with BlockingClient(cluster.bootstrap) as client:
        places = dict.fromkeys((TopicPartition(topic, p) for p in range(2)), OffsetSpec.LATEST)
        return sum(each.offset or 0 for each in client.list_offsets(places).values())


def test_a_topic_that_is_not_there_is_named(cluster: Cluster, topic: str) -> None:
    for command in (["produce", "--records", "1"], ["consume"]):
        code, _, err = perf(cluster, *command, "--topic", topic)
        assert (code, err) == (1, f"holdfast perf: topic {topic!r} does not exist: holdfast topics list\n")
