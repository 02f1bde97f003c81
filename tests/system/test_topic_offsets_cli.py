"""``holdfast topics offsets`` and ``trim`` against real brokers, beside what stock clients see."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from holdfast.testing import Cluster, wait_for
from tests.system.on_disks import QUIET, TIMEOUT_S, create

pytestmark = pytest.mark.system
BORN_MS = 1_700_000_000_000
"""Of the first record of each partition; each that follows is a second younger."""


def run(cluster: Cluster, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HOLDFAST_BOOTSTRAP_SERVER": cluster.bootstrap}
    command = [sys.executable, "-m", "holdfast.cli.main", "topics", *args]
    options = {"stdin": subprocess.DEVNULL, **options}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, **options)


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def trim(cluster: Cluster, *args: str, **options: Any) -> tuple[int, list[str], list[str]]:
    """Exit code, standard output, standard error."""
    done = run(cluster, "trim", *args, **options)
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


def fill(cluster: Cluster, topic: str, *counts: int, **config: str) -> None:
    """A topic with so many records in each partition, which are old and stay all the same."""
    config = {"retention_ms": "-1", **config}
    create(cluster, topic, [[1 + n % 3, 1 + (n + 1) % 3] for n in range(len(counts))], **config)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **QUIET})
    for partition, count in enumerate(counts):
        for n in range(count):
            producer.produce(topic, str(n), str(n), partition=partition, timestamp=BORN_MS + 1000 * n)
    assert producer.flush(TIMEOUT_S) == 0


def watermarks(cluster: Cluster, topic: str, partitions: int) -> list[tuple[int, int]]:
    """As a stock consumer asks for them."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", **QUIET})
    found = [
        consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S, cached=False)
        for number in range(partitions)
    ]
    consumer.close()
    return [(int(low), int(high)) for low, high in found]


def test_offsets_by_name_and_by_time(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 10, 0, 5)
    all_of_it = [f"{topic}:0:10", f"{topic}:1:0", f"{topic}:2:5"]
    assert lines(run(cluster, "offsets", topic)) == all_of_it
    assert [line for line in lines(run(cluster, "offsets")) if line.startswith(f"{topic}:")] == all_of_it
    assert (
        lines(run(cluster, "offsets", "--topic", f"{topic[0]}.*{topic[1:]}", "--partitions", "0,2,7")) == all_of_it[::2]
    )
    assert lines(run(cluster, "offsets", "--topic-partitions", f"{topic}:1-,no")) == all_of_it[1:]
    earliest = [f"{topic}:{partition}:0" for partition in range(3)]
    assert lines(run(cluster, "offsets", topic, "--time", "earliest")) == earliest
    assert lines(run(cluster, "offsets", topic, "--time", "-2")) == earliest
    assert lines(run(cluster, "offsets", topic, "--time", "max-timestamp")) == [f"{topic}:0:9", f"{topic}:2:4"]
    assert lines(run(cluster, "offsets", topic, "--time", str(BORN_MS + 6_500))) == [f"{topic}:0:7"]
    assert lines(run(cluster, "offsets", topic, "--time", "2023-11-14T23:13:23+01:00")) == [
        f"{topic}:0:3",
        f"{topic}:2:3",
    ]


def test_offsets_as_a_table_and_as_json(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 10, 5)
    assert trim(cluster, topic, "--partition", "0", "--before-offset", "4", "--yes")[0] == 0
    assert watermarks(cluster, topic, 2) == [(4, 10), (0, 5)]
    header, *rows = lines(run(cluster, "offsets", topic, "--table"))
    assert header.split() == ["TOPIC", "PARTITION", "EARLIEST", "LATEST", "RECORDS"]
    assert [row.split() for row in rows] == [[topic, "0", "4", "10", "6"], [topic, "1", "0", "5", "5"]]
    assert json.loads("".join(lines(run(cluster, "offsets", topic, "--json")))) == {
        "partitions": [
            {"topic": topic, "partition": 0, "earliest": 4, "latest": 10, "records": 6},
            {"topic": topic, "partition": 1, "earliest": 0, "latest": 5, "records": 5},
        ]
    }


def test_what_is_not_there_is_named(cluster: Cluster, topic: str) -> None:
    for args, says in (
        (("offsets", topic), f"topic '{topic}' does not exist"),
        (("offsets", "--topic", topic), "Could not match any topic-partitions with the specified filters"),
        (("trim", topic, "--to-latest", "--yes"), f"topic '{topic}' does not exist"),
    ):
        done = run(cluster, *args)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"holdfast topics: {says}\n")


def test_a_partition_without_a_leader_does_not_hide_the_others(own_cluster: Callable[..., Cluster], topic: str) -> None:
    cluster = own_cluster(brokers=2, log_dirs=1)
    create(cluster, topic, [[1], [2]])
    cluster.kill(2)
    wait_for(
        lambda: cluster.describe([topic], broker=1).partitions[topic, 1].leader is None,
        "partition 1 to be without a leader",
        timeout_s=TIMEOUT_S,
    )
    done = run(cluster, "offsets", topic)
    assert (done.returncode, done.stdout) == (1, f"{topic}:0:0\n")
    assert done.stderr == (f"holdfast topics: offsets of {topic}-1 cannot be told: partition {topic}-1 has no leader\n")
    document = json.loads(run(cluster, "offsets", topic, "--json").stdout)
    assert document["partitions"][1] == {
        "topic": topic, "partition": 1, "error": f"partition {topic}-1 has no leader",
    }  # fmt: skip
    code, out, err = trim(cluster, topic, "--to-latest", "--yes")
    assert (code, out) == (1, [])
    assert err == [f"holdfast topics: offsets of {topic}-1 cannot be told: partition {topic}-1 has no leader"]


def test_a_trim_says_what_goes_and_then_where_logs_begin(cluster: Cluster, topic: str, tmp_path: pathlib.Path) -> None:
    fill(cluster, topic, 10, 5)
    code, out, err = trim(cluster, topic, "--before-offset", "3", "--yes")
    assert (code, err) == (
        0,
        [f"{topic}-0: 3 of 10 records go: offsets 0 to 2", f"{topic}-1: 3 of 5 records go: offsets 0 to 2"],
    )
    assert out == [
        "Executing records delete operation",
        "Records delete operation completed:",
        f"partition: {topic}-0\tlow_watermark: 3",
        f"partition: {topic}-1\tlow_watermark: 3",
    ]
    assert watermarks(cluster, topic, 2) == [(3, 10), (3, 5)]
    code, out, err = trim(cluster, topic, "--before-time", str(BORN_MS + 6_000), "--yes")
    assert (code, out[2:]) == (
        0,
        [f"partition: {topic}-0\tlow_watermark: 6", f"partition: {topic}-1\tlow_watermark: 5"],
    )
    # Nothing goes, so that nobody has to be asked.
    code, out, err = trim(cluster, topic, "--partition", "0", "--before-offset", "2")
    assert (code, err) == (0, [f"{topic}-0: nothing goes: it begins at 6"])
    assert out[2:] == [f"partition: {topic}-0\tlow_watermark: 6"]
    plan = tmp_path / "delete.json"
    partitions = [{"topic": topic, "partition": 0, "offset": 8}, {"topic": topic, "partition": 1, "offset": -1}]
    plan.write_text(json.dumps({"partitions": partitions, "version": 1}))
    code, out, err = trim(cluster, "--offset-json-file", str(plan), "--yes")
    assert (code, out[2:]) == (
        0,
        [f"partition: {topic}-0\tlow_watermark: 8", f"partition: {topic}-1\tlow_watermark: 5"],
    )
    assert trim(cluster, topic, "--to-latest", "--yes")[0] == 0
    assert watermarks(cluster, topic, 2) == [(10, 10), (5, 5)]


def test_nothing_goes_unless_somebody_says_yes(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 10, 5)
    code, out, err = trim(cluster, topic, "--to-latest")
    assert (code, out) == (2, [])
    assert err[2:] == ["holdfast topics: delete for good 15 records of 2 partitions: --yes says so without being asked"]
    for answer, expected in ((b"n\n", 1), (b"y\n", 0)):
        assert watermarks(cluster, topic, 2) == [(0, 10), (0, 5)]
        ours, theirs = pty.openpty()
        try:
            os.write(ours, answer)
            code, out, err = trim(cluster, topic, "--to-latest", stdin=theirs)
        finally:
            os.close(ours)
            os.close(theirs)
        assert code == expected, err
        assert any("delete for good 15 records of 2 partitions? [y/N]" in line for line in err), err
    assert watermarks(cluster, topic, 2) == [(10, 10), (5, 5)]


def test_what_cannot_be_cut_is_refused_and_nothing_is(cluster: Cluster, topic: str) -> None:
    fill(cluster, topic, 10, 5)
    code, out, err = trim(cluster, topic, "--before-offset", "7", "--yes")
    assert (code, out) == (1, [])
    assert err == [f"holdfast topics: {topic}-1 before 7, and it ends at 5: expected its end at most"]
    code, out, err = trim(cluster, topic, "--partition", "2", "--to-latest", "--yes")
    assert (code, err) == (1, [f"holdfast topics: topic '{topic}' has no partition 2: expected 0 to 1"])
    assert watermarks(cluster, topic, 2) == [(0, 10), (0, 5)]
    kept = f"kept-{topic}"
    fill(cluster, kept, 3, cleanup_policy="compact")
    code, out, err = trim(cluster, kept, "--to-latest", "--yes")
    assert (code, out) == (1, ["Executing records delete operation", "Records delete operation completed:"])
    assert err[1:] == [f"holdfast topics: {kept}-0: no record was deleted: its cleanup.policy is without delete"]
    assert watermarks(cluster, kept, 1) == [(0, 3)]


def test_topics_as_json(cluster: Cluster, topic: str) -> None:
    create(cluster, topic, [[1, 2], [3, 1]], retention_ms="3600000")
    [listed] = [t for t in json.loads("".join(lines(run(cluster, "list", "--json"))))["topics"] if t["name"] == topic]
    assert (listed["partition_count"], listed["replication_factor"], listed["internal"]) == (2, 2, False)
    [described] = json.loads("".join(lines(run(cluster, "describe", topic, "--json"))))["topics"]
    assert (described["topic_id"], described["configs"]) == (listed["topic_id"], {"retention.ms": "3600000"})
    assert [(p["partition"], p["replicas"], p["offline"]) for p in described["partitions"]] == [
        (0, [1, 2], []),
        (1, [3, 1], []),
    ]
    missing = run(cluster, "describe", f"no-{topic}", "--json")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == f"holdfast topics: there is no topic 'no-{topic}'\n"
