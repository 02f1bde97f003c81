"""``holdfast cluster describe`` and ``health`` against real brokers that are killed and lose directories."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.client.blocking import BlockingClient
from holdfast.client.views import NewTopic
from holdfast.model.features import NEW_CLUSTER
from holdfast.testing import Cluster, wait_for

pytestmark = pytest.mark.system


def run(cluster: Cluster, *args: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "holdfast.cli.main", *args]
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    return done.returncode, done.stdout, done.stderr


def health(cluster: Cluster) -> tuple[int, list[str], dict[str, Any]]:
    """Exit code, lines, and the JSON, which says the same."""
    code, out, err = run(cluster, "cluster", "health")
    assert (err, len(out.splitlines()) <= 24) == ("", True)
    as_json, text, err = run(cluster, "cluster", "health", "--json")
    document = json.loads(text)
    assert (as_json, err, document["healthy"]) == (code, "", code == 0)
    return code, out.splitlines(), document


def kinds(document: dict[str, Any]) -> list[str]:
    return [found["kind"] for found in document["problems"]]


def of_kind(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [found for found in (*document["problems"], *document["notices"]) if found["kind"] == kind]


def test_the_cluster_is_described_on_one_screen(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster(brokers=2)
    with BlockingClient(cluster.bootstrap) as client:
        view = client.run(client.aio.metadata(()))
    code, out, err = run(cluster, "cluster", "describe")
    lines = out.splitlines()
    assert (code, err, lines[0]) == (0, "", f"cluster id  {view.cluster_id}")
    assert lines[1] == f"controller  broker {view.controller_id}"
    assert lines[-3].split() == ["BROKER", "ADDRESS", "RACK", "PROTOCOL", "FEATURES"]
    for line, broker, address in zip(lines[-2:], (1, 2), cluster.bootstrap.split(","), strict=True):
        assert line.split()[:3] == [str(broker), address, "-"]
    assert max(map(len, lines)) <= 80
    code, out, _ = run(cluster, "cluster", "describe", "--json")
    document = json.loads(out)
    assert (code, document["cluster_id"], document["controller"]) == (0, view.cluster_id, view.controller_id)
    assert document["features"]["levels"] == {name: level for name, level in NEW_CLUSTER.items() if level}
    assert [f"{b['host']}:{b['port']}" for b in document["brokers"]] == cluster.bootstrap.split(",")
    assert all(b["protocol"] and b["features"] and b["error"] is None for b in document["brokers"])


def test_health_says_what_is_wrong_until_it_is_right_again(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster(brokers=3)
    with BlockingClient(cluster.bootstrap) as client:
        replicas = {0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)}
        client.create_topic(NewTopic(name="three", assignments=replicas, configs={"min.insync.replicas": "2"}))
        client.create_topic(NewTopic(name="strict", assignments={0: (1, 2, 3)}, configs={"min.insync.replicas": "3"}))
        client.create_topic(NewTopic(name="one", assignments={0: (3,)}))
    cluster.wait_in_sync(["three", "strict", "one"])

    code, lines, document = health(cluster)
    assert (code, document["problems"]) == (0, [])
    assert lines[0] == f"cluster {document['cluster_id']}: healthy"
    assert lines[1].startswith("brokers: 3 alive, controller ")
    assert lines[2:4] == ["topics: 3, partitions: 5", "log directories: 6 online"]
    assert [found["kind"] for found in document["notices"]] == ["at_min_isr"], "strict: a broker less and it is refused"

    lost = cluster.folder_of(1, "three", 0).parent
    assert run(cluster, "log-dirs", "offline", "--broker", "1", str(lost))[0] == 0
    wait_for(lambda: not health(cluster)[2]["healthy"], "a finding", timeout_s=30)
    code, lines, document = health(cluster)
    (found,) = of_kind(document, "log_dir")
    assert (code, found["broker"], found["log_dir"], found["state"]) == (1, 1, str(lost), "offline")
    assert "was taken offline by hand" in found["reason"]
    assert f"  broker 1: {lost} is offline: was taken offline by hand" in lines
    assert "log directories: 1 offline, 5 online" in lines
    assert run(cluster, "log-dirs", "online", "--broker", "1", str(lost))[0] == 0
    cluster.wait_in_sync(["three", "strict"])
    wait_for(lambda: health(cluster)[2]["healthy"], "health", timeout_s=30)

    cluster.kill(3)
    wait_for(lambda: kinds(health(cluster)[2])[:1] == ["no_leader"], "the loss to be known", timeout_s=30)
    wait_for(lambda: len(of_kind(health(cluster)[2], "at_min_isr")) == 1, "the ISRs without broker 3", timeout_s=30)
    code, lines, document = health(cluster)
    assert (code, kinds(document)) == (1, ["no_leader", "under_min_isr", "broker_missing", "under_replicated"])
    assert "  1 partition has no leader: nobody can read or write: one-0" in lines
    assert "  1 partition is under min.insync.replicas: acks=all is refused: strict-0" in lines
    assert "  broker 3 is missing: it has 5 replicas" in lines
    assert "  4 partitions are under-replicated: strict-0, three-0, three-1, three-2" in lines
    (notice,) = of_kind(document, "at_min_isr")
    assert [f"{p['topic']}-{p['partition']}" for p in notice["partitions"]] == ["three-0", "three-1", "three-2"]
    assert [b["id"] for b in json.loads(run(cluster, "cluster", "describe", "--json")[1])["brokers"]] == [1, 2]

    cluster.revive()
    cluster.wait_in_sync(["three", "strict", "one"])
    wait_for(lambda: health(cluster)[0] == 0, "health", timeout_s=30)


def test_a_broker_that_hangs_is_a_problem_and_holds_nobody_up(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster(brokers=2, settings={"broker.session.timeout.ms": "60000"})
    other = next(b for b in (1, 2) if b != cluster.describe().controller_id)
    asked = cluster.bootstrap.split(",")[2 - other]
    os.kill(cluster.pids()[other], signal.SIGSTOP)
    try:
        code, out, err = run(cluster, "cluster", "health", "--bootstrap-server", asked)
        assert (code, err) == (1, "")
        assert f"  broker {other} does not answer: " in out
    finally:
        os.kill(cluster.pids()[other], signal.SIGCONT)
