"""``python -m benchmarks.scrape_turns``: what a scrape does to a broker's event loop.

Three brokers with 3,330 partitions of three replicas each, so that every broker has 3,330 replicas. A client writes
small records to one of them meanwhile, one at a time. All brokers are scraped at once, as Prometheus asks (gzip), ten
times, a second apart as a page serves for that long; then nobody asks for as long; and so on, until there were a
hundred scrapes.

Told: CPU of the loop's turns while a scrape was under way, and in the pauses (in_broker/sitecustomize.py notes them in
the brokers): the median, p99, the longest; and how long the writes took in both. Exit code 1 when the p99 of the turns
under scrapes is above 5 ms, or one of them took more than 20 ms longer than the longest without.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks import loop_turns, machine, wire
from benchmarks.system import HOLDFAST
from holdfast.testing import Cluster, wait_for

BROKERS, COPIES, PER_TOPIC = 3, 3, 10
AT_ONCE: Final = 10
"""Scrapes in a row, and topics that are made in one request."""
APART_S = 1.1
P99_MS, MORE_MS = 5.0, 20.0
LIMIT_S = 300
Times = list[tuple[float, float]]


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.scrape_turns", description=__doc__.split("\n")[0])
    parser.add_argument("--scrapes", type=int, default=100, help="of every broker (100)")
    parser.add_argument("--partitions", type=int, default=3330, help="with three replicas (3330)")
    parser.add_argument("--per-topic", type=int, default=PER_TOPIC, help="partitions of a topic (10)")
    parser.add_argument("--level", default="partition", choices=("broker", "topic", "partition"), help="metrics.level")
    options = parser.parse_args()
    print(machine.headline())
    print(f"{options.partitions} partitions, {options.per_topic} a topic, metrics.level={options.level}", flush=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as scratch:
        turns = Path(scratch) / "turns"
        settings = {"metrics.level": options.level}
        cluster = Cluster(
            brokers=BROKERS, data_dir=Path(scratch) / "data", up=HOLDFAST.up, ready_timeout_s=120, settings=settings
        )
        with loop_turns.noted(turns, above_ms=0), cluster:
            make(cluster, options.partitions, options.per_topic)
            with Writer(cluster) as writer:
                scraped, pauses, size = scrapes(cluster, options.scrapes)
            brokers = [turns / str(pid) for pid in cluster.pids().values()]
            under, without = ([took for path in brokers for took in loop_turns.turns_ms(path, each)]
                              for each in (scraped, pauses))  # fmt: skip
    took = [end - start for start, end in scraped]
    print(f"{len(scraped)} scrapes of {BROKERS} brokers, the largest page {size / 1e6:.2f} MB compressed; "
          f"one took {quantile(took, 0.5) * 1e3:.0f} ms, at most {max(took) * 1e3:.0f}")  # fmt: skip
    print(f"\n{'':28}{'number':>9}{'p50':>9}{'p99':>9}{'longest':>9}   ms")
    row("turns under scrapes, CPU", under)
    row("turns without, CPU", without)
    row("writes under scrapes", writer.during(scraped))
    row("writes without", writer.during(pauses))
    good = quantile(under, 0.99) <= P99_MS and max(under) <= max(without) + MORE_MS
    print(f"\nexpected of turns under scrapes: p99 {P99_MS:g} ms at most, none {MORE_MS:g} ms longer than without: "
          + ("so it is" if good else "NOT SO"))  # fmt: skip
    return 0 if good else 1


def make(cluster: Cluster, partitions: int, per_topic: int) -> None:
    """All topics, and wait until every replica is in sync and on disk."""
    names = [f"many-{number:05}" for number in range(partitions // per_topic)]
    for at in range(0, len(names), AT_ONCE):
        with wire.Connection(cluster.addresses()[0], timeout_s=LIMIT_S) as connection:
            connection.create_topics(names[at : at + AT_ONCE], per_topic, COPIES, timeout_s=LIMIT_S)
    with wire.Connection(cluster.addresses()[0], timeout_s=LIMIT_S) as connection:
        connection.create_topic("written", 1, COPIES)
    cluster.wait_in_sync(timeout_s=LIMIT_S)
    wanted = len(names) * per_topic

    def all_there() -> bool:
        return all(
            sum(1 for _ in cluster.data_dir.glob(f"broker-{broker}/log-dir-*/many-*")) >= wanted
            for broker in range(1, BROKERS + 1)
        )

    wait_for(all_there, "all replicas on disk", timeout_s=LIMIT_S, interval_s=0.5)


def scrapes(cluster: Cluster, count: int) -> tuple[Times, Times, int]:
    """When every broker was scraped, when nobody was, and bytes of the largest page."""
    scraped, pauses, size = Times(), Times(), 0
    urls = [f"http://127.0.0.1:{cluster.port + 99 + broker}/metrics" for broker in range(1, BROKERS + 1)]
    with ThreadPoolExecutor(BROKERS) as pool:
        list(pool.map(page, urls))  # the first has to load what it needs
        time.sleep(APART_S)
        while len(scraped) < count:
            began_s = time.monotonic()
            for _ in range(AT_ONCE):
                start_s = time.monotonic()
                size = max(size, *pool.map(page, urls))
                scraped.append((start_s, time.monotonic()))
                time.sleep(max(0.0, start_s + APART_S - time.monotonic()))
            start_s = time.monotonic()
            time.sleep(start_s - began_s)
            pauses.append((start_s, time.monotonic()))
    return scraped, pauses, size


def page(url: str) -> int:
    """Bytes of one."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return len(answer.read())


class Writer:
    """Small records to the first broker that leads ``written``, one at a time, a hundred a second at most."""

    def __init__(self, cluster: Cluster) -> None:
        view = cluster.describe(["written"])
        leader = view.partitions["written", 0].leader
        assert leader is not None
        self._address = view.brokers[leader]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._written: list[tuple[float, float]] = []

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def during(self, times: Times) -> list[float]:
        """Milliseconds of each write that was under way in one of these times."""
        found, left = list[float](), list(reversed(times))
        for start_s, end_s in self._written:
            while left and left[-1][1] <= start_s:
                left.pop()
            if left and end_s > left[-1][0]:
                found.append((end_s - start_s) * 1000)
        return found

    def _run(self) -> None:
        request = wire.produce_frame("written", 0, b"x" * 100, 1)
        with wire.Connection(self._address) as connection:
            while not self._over.wait(0.01):
                start_s = time.monotonic()
                connection.call(request)
                self._written.append((start_s, time.monotonic()))


def row(name: str, found: Sequence[float]) -> None:
    """One line of the table, of milliseconds."""
    numbers = [quantile(found, share) for share in (0.5, 0.99, 1)]
    print(f"{name:28}{len(found):9,}" + "".join(f"{number:9.2f}" for number in numbers))


def quantile(found: Sequence[float], share: float) -> float:
    """Of at least one number."""
    ordered = sorted(found)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


if __name__ == "__main__":
    sys.exit(main())
