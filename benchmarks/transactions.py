"""What a transaction of one record takes, from begin to the end of its commit: Holdfast beside Apache Kafka.

    python -m benchmarks.transactions                  both, in turn, 3 brokers, replication factor 3
    python -m benchmarks.transactions --no-kafka

The client is librdkafka (transaction version 1: it adds partitions first), one producer, a topic with one partition and
min.insync.replicas=2. Both clusters run for the whole time and take turns, so that what else the machine does meets
both. Said are p50 and p99 in ms over all turns, and the ratio of the p50s.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from benchmarks import machine
from benchmarks.spark_read import say
from benchmarks.system import HOLDFAST, KAFKA, Running


class Writer:
    """One producer of one cluster."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"bench-{topic}", "linger.ms": 0, "acks": "all"}
        )
        self._producer.init_transactions(60)

    def one(self) -> float:
        """Seconds of one transaction."""
        began = time.perf_counter()
        self._producer.begin_transaction()
        self._producer.produce(self._topic, b"x" * 100)
        self._producer.commit_transaction(60)
        return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transactions", type=int, default=200, help="of each turn")
    parser.add_argument("--turns", type=int, default=5, help="after a first one that does not count")
    parser.add_argument("--no-kafka", action="store_true")
    args = parser.parse_args()
    print(json.dumps(machine.describe()))
    took: dict[str, list[float]] = {}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        writers = {}
        for kind in (HOLDFAST,) if args.no_kafka else (HOLDFAST, KAFKA):
            cluster = stack.enter_context(kind.cluster(root / kind.name.split()[0], 3))
            writers[kind.name] = Writer(cluster.bootstrap, Running(cluster).new_topic(1, 3))
        for turn in range(args.turns + 1):
            for name, writer in writers.items():
                some = [writer.one() for _ in range(args.transactions)]
                say(f"turn {turn} {name}: p50 {np.percentile(some, 50) * 1000:.1f} ms")
                if turn:
                    took.setdefault(name, []).extend(some)
    for name, times in took.items():
        half, most = np.percentile(times, [50, 99]) * 1000
        print(f"{name}: {len(times)} transactions of one record, p50 {half:.1f} ms, p99 {most:.1f} ms")
    if len(took) == 2:
        print(f"holdfast to kafka, p50: {np.median(took[HOLDFAST.name]) / np.median(took[KAFKA.name]):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
