"""``holdfast perf`` against real brokers."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from holdfast.testing import Cluster

pytestmark = pytest.mark.system


def perf(cluster: Cluster, *args: str) -> tuple[int, str, str]:
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    command = [sys.executable, "-m", "holdfast.cli.main", "perf", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
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


def test_a_topic_that_is_not_there_is_named(cluster: Cluster, topic: str) -> None:
    for command in (["produce", "--records", "1"], ["consume"]):
        code, _, err = perf(cluster, *command, "--topic", topic)
        assert (code, err) == (1, f"holdfast perf: topic {topic!r} does not exist: holdfast topics list\n")
