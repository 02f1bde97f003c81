"""``python -m benchmarks.disk_isolation``: what a disk that hangs does to the other disks of its broker.

One broker, two log directories, one of which is an ext4 that is frozen (fsfreeze): whatever writes to it blocks in the
kernel. A client writes a record every few ms to a partition on the good directory (acks=1) and another one reads it;
a third keeps writing to the directory that hangs. Told are the latencies of writing and reading before and while it
hangs, in the same run; what DescribeLogDirs takes meanwhile; and what SIGTERM takes until the broker has closed what it
can and is ready to go (the kernel keeps a process with a thread that hangs in it until the disk answers).
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine
from benchmarks.failover import IMPATIENT, LIMIT_S, Writer
from holdfast.testing import Cluster, wait_for
from holdfast.testing.disks import FrozenDisk

TOPIC = "isolation"
NAP_S = 0.005


def main() -> int:
    """Run it, print a table; exit code 1 if the good directory was disturbed (p99 more than 5 times and 20 ms)."""
    parser = argparse.ArgumentParser(prog="benchmarks.disk_isolation", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the disk hangs (30)")
    options = parser.parse_args()
    with Cluster(brokers=1, disks={(1, 2): FrozenDisk}) as cluster:
        good, bad = place(cluster)
        settings: dict[str, str | int | bool] = {"acks": "1", "message.timeout.ms": 3000}
        at = cluster.bootstrap
        with Writer(at, TOPIC, good, settings) as writer, Writer(at, TOPIC, bad, settings):
            before_write, before_read = measure(cluster, writer, good, options.seconds / 3)
            cluster.disks[1, 2].fail()
            try:
                write, read = measure(cluster, writer, good, options.seconds)
                began = time.perf_counter()
                cluster.describe_log_dirs(1)
                described = time.perf_counter() - began
                began = time.perf_counter()
                os.kill(cluster.pids()[1], signal.SIGTERM)
                wait_for(lambda: is_done(cluster), "the end of the broker", timeout_s=LIMIT_S)
                stopped = time.perf_counter() - began
            finally:
                cluster.disks[1, 2].heal()
    print(f"commit {machine.commit()}\n")
    print(f"| good directory, ms p50 / p99 / max | before | while the other hangs for {options.seconds:.0f} s |")
    print("|---|--:|--:|")
    print(f"| write, acks=1 | {spread(before_write)} | {spread(write)} |")
    print(f"| read of 1 MiB at most | {spread(before_read)} | {spread(read)} |")
    print(f"\nDescribeLogDirs meanwhile: {described * 1000:.0f} ms")
    print(f"SIGTERM until the broker has ended: {stopped:.1f} s")
    pairs = ((before_write, write), (before_read, read))
    return int(any(p99(now) > max(20.0, 5 * p99(then)) for then, now in pairs))


def is_done(cluster: Cluster) -> bool:
    """All that is left of the process is what the kernel holds."""
    return "did not close within" in Path(cluster.data_dir / "broker-1.log").read_text() or not cluster.live()


def place(cluster: Cluster) -> tuple[int, int]:
    """Partitions on the good and on the bad directory."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(LIMIT_S)
    cluster.wait_in_sync([TOPIC])
    on_bad = [p for p in (0, 1) if cluster.folder_of(1, TOPIC, p).is_relative_to(cluster.disks[1, 2].path)]
    assert len(on_bad) == 1, "one partition for each directory"
    return 1 - on_bad[0], on_bad[0]


def measure(cluster: Cluster, writer: Writer, partition: int, seconds: float) -> tuple[list[float], list[float]]:
    """Latencies in ms of writes, and of reads by a consumer that jumps back, for so long."""
    first, reads = len(writer.acked), []
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False, **IMPATIENT}
    )
    end = time.perf_counter() + seconds
    try:
        while time.perf_counter() < end:
            began = time.perf_counter()
            consumer.assign([TopicPartition(TOPIC, partition, max(0, first - 50))])
            assert consumer.poll(LIMIT_S) is not None, "a record"
            reads.append((time.perf_counter() - began) * 1000)
            time.sleep(NAP_S)
    finally:
        consumer.close()
    pairs = zip(writer.acked[first:], writer.sent[first:], strict=False)
    return [(acked - sent) * 1000 for (acked, _), sent in pairs], reads


def p99(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else float("inf")


def spread(values: Sequence[float]) -> str:
    if not values:
        return "nothing came"
    return f"{statistics.median(values):.1f} / {p99(values):.1f} / {max(values):.1f} ({len(values)})"


if __name__ == "__main__":
    sys.exit(main())
