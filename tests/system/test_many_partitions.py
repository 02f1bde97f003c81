"""A follower of ten thousand idle partitions: what it costs, and that its limits hold.

The figures that people should read stand in docs/benchmarks.md (``make bench``); the limits here leave room for a
machine that does other things.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.testing import Cluster, wait_for

pytestmark = pytest.mark.system

TOPICS, PARTITIONS = 100, 100
LEADER, FOLLOWER = 1, 2
TIMEOUT_S = 120
IDLE_S = 4.0
CPU_SHARE = 0.10
"""Of a core, for the follower; 0.015 was measured on a quiet machine."""
BYTES_PER_REPLICA = 17_000
"""A third of Apache Kafka's 51 kB."""
OPEN_FILES = 200


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.long("a figure, which changes with nothing but the way in which followers fetch")
def test_a_follower_of_ten_thousand_idle_partitions_costs_little(own_cluster: Callable[..., Cluster]) -> None:
    cluster = own_cluster(brokers=2)
    follower = cluster.pids()[FOLLOWER]
    empty_bytes = resident_bytes(follower)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topics = [
        NewTopic(f"idle-{number:03}", PARTITIONS, replica_assignment=[[LEADER, FOLLOWER]] * PARTITIONS)
        for number in range(TOPICS)
    ]
    for future in admin.create_topics(topics, request_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)

    def complete() -> bool:
        view = cluster.describe(broker=FOLLOWER)
        return len(view.partitions) == TOPICS * PARTITIONS and not view.under_replicated

    wait_for(complete, "ten thousand partitions", timeout_s=TIMEOUT_S, interval_s=0.5)

    def shares_of_a_core() -> dict[int, float]:
        """Of each broker, in the next seconds."""
        before, started = {each: cpu_s(pid) for each, pid in cluster.pids().items()}, time.monotonic()
        wait_for(lambda: time.monotonic() > started + IDLE_S, "time to pass", timeout_s=TIMEOUT_S)
        took_s = time.monotonic() - started
        return {each: (cpu_s(pid) - before[each]) / took_s for each, pid in cluster.pids().items()}

    # A follower that waits for its leader to make the logs is idle for a second or two; both at once are done.
    wait_for(
        lambda: max(shares_of_a_core().values()) < CPU_SHARE,
        "the end of what follows the creation", timeout_s=TIMEOUT_S,
    )  # fmt: skip
    # In one of them may be what comes every minute, of ten thousand logs: checkpoints, retention.
    share = statistics.median(shares_of_a_core()[FOLLOWER] for _ in range(3))
    per_replica = (resident_bytes(follower) - empty_bytes) / (TOPICS * PARTITIONS)
    print(f"CPU {share:.3f} of a core, {per_replica:.0f} bytes per replica, {open_files(follower)} open files")
    assert share < CPU_SHARE
    assert per_replica < BYTES_PER_REPLICA
    assert open_files(follower) < OPEN_FILES
