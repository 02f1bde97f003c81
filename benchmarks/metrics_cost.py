"""``python -m benchmarks.metrics_cost``: what it costs a broker to count.

Two brokers in one run, one with metrics and one without (metrics.port=0, where nothing is counted). Each round asks
both for the same, one after the other, in an order that changes from round to round; a round is one pair. Three kinds
of work, each with acks=1 and some requests under way at a time:

* small: Produce of one record of 100 bytes;
* large: Produce of a batch of 256 kB;
* fetch: Fetch of one such small batch.

Told per round and kind: CPU time of all the broker's threads by the scheduler, per request or, of the large ones, per
GB; and the requests' median and p99. The one with metrics is scraped once a second meanwhile, if asked. It prints the
median of the pairs' ratios with an interval that has the true median 19 times out of 20 (bootstrap); exit code 1 when
a median is above its limit. Instructions are counted by ``benchmarks.metrics_instructions``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine
from holdfast.client.admin import AdminClient
from holdfast.client.views import NewTopic
from holdfast.model.types import TopicPartition
from holdfast.records.record import Record, encode_batch
from holdfast.testing import Cluster

UNDER_WAY = 8
LARGE_EVERY = 20
"""One large request for so many small ones."""
LARGE_BYTES = 256 << 10
COST = {"small": "CPU us", "large": "CPU s/GB", "fetch": "CPU us"}
UNITS = {"small": 1e3, "large": LARGE_BYTES, "fetch": 1e3}
"""Nanoseconds of a request for one of these; those of a byte are seconds of a GB."""
LIMITS = {"cost": 1.05, "p99": 1.10}
RESAMPLES = 2000
UP = [sys.executable, "-m", "holdfast.cli.main", "up"]
TP = TopicPartition("t", 0)


class Round(NamedTuple):
    """One kind of work on one broker. ``cost``: CPU nanoseconds per request; p50 and p99: milliseconds."""

    cost: float
    p50: float
    p99: float


class Side:
    """A broker and who asks it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.pid = next(iter(cluster.pids().values()))
        self.kinds: dict[str, list[Round]] = {}


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.metrics_cost", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="pairs of each kind (20)")
    parser.add_argument("--requests", type=int, default=10_000, help="small requests in a round (10,000)")
    parser.add_argument("--scrape", action="store_true", help="scrape the one with metrics once a second meanwhile")
    parser.add_argument("--seed", type=int, default=1, help="of the order within rounds and of the resampling (1)")
    options = parser.parse_args()
    print(machine.headline())
    rng = random.Random(options.seed)
    with ExitStack() as stack:
        on = Side(stack.enter_context(Cluster(brokers=1, log_dirs=1, up=UP)))
        off = Side(stack.enter_context(Cluster(brokers=1, log_dirs=1, up=[*UP, "--metrics-port", "0"])))
        asyncio.run(rounds(on, off, options, rng))
    return 0 if report(on, off, rng) else 1


async def rounds(on: Side, off: Side, options: argparse.Namespace, rng: random.Random) -> None:
    """All rounds of all kinds, the first of each unmeasured."""
    clients = {side: AdminClient(side.cluster.bootstrap) for side in (on, off)}
    for client in clients.values():
        await client.create_topic(NewTopic(name="t", partitions=1, replication_factor=1))
    small, large = batch(100), batch(LARGE_BYTES)
    kinds: dict[str, tuple[int, Callable[[AdminClient], Coroutine[Any, Any, Any]]]] = {
        "small": (options.requests, lambda client: client.produce("t", 0, small, acks=1)),
        "large": (max(1, options.requests // LARGE_EVERY), lambda client: client.produce("t", 0, large, acks=1)),
        "fetch": (options.requests, lambda client: client.fetch_raw(TP, 0, max_bytes=1)),
    }
    scraping = asyncio.create_task(scrape(on)) if options.scrape else None
    for kind, (requests, ask) in kinds.items():
        for number in range(options.rounds + 1):
            order = [on, off]
            rng.shuffle(order)
            for side in order:
                found = await one_round(side, clients[side], requests, ask)
                if number:
                    side.kinds.setdefault(kind, []).append(found)
    if scraping is not None:
        scraping.cancel()
    for client in clients.values():
        client.close()


async def one_round(
    side: Side,
    client: AdminClient,
    requests: int,
    ask: Callable[[AdminClient], Coroutine[Any, Any, Any]],
) -> Round:
    """So many requests, some at a time."""
    left = iter(range(requests))
    took: list[float] = []

    async def worker() -> None:
        for _ in left:
            began = time.perf_counter()
            await ask(client)
            took.append((time.perf_counter() - began) * 1000)

    before = cpu_ns(side.pid)
    await asyncio.gather(*(worker() for _ in range(UNDER_WAY)))
    spent = cpu_ns(side.pid) - before
    took.sort()
    return Round(spent / requests, took[len(took) // 2], took[min(len(took) - 1, int(len(took) * 0.99))])


def cpu_ns(pid: int) -> int:
    """All its threads have run for so long."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat"))


async def scrape(side: Side) -> None:
    """Once a second."""
    url = f"http://127.0.0.1:{side.cluster.port + 100}/metrics"
    while True:
        await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())
        await asyncio.sleep(1)


def batch(size: int) -> bytes:
    """One record."""
    return bytes(
        encode_batch([Record(offset=0, timestamp=int(time.time() * 1000), key=None, value=b"x" * size, headers=())])
    )


# -- what came out -------------------------------------------------------------------------------------------------


def report(on: Side, off: Side, rng: random.Random) -> bool:
    """Print the table; whether every median is within its limit."""
    good = True
    print(f"\n{'kind':8}{'what':10}{'on':>12}{'off':>12}{'ratio':>8}  95 % interval  limit")
    for kind, with_metrics in on.kinds.items():
        for what in ("cost", "p50", "p99"):
            pairs = [(getattr(a, what), getattr(b, what)) for a, b in zip(with_metrics, off.kinds[kind], strict=True)]
            ratios = [a / b for a, b in pairs]
            low, high = interval(ratios, rng)
            ratio, limit = statistics.median(ratios), LIMITS.get(what)
            ones, others = (statistics.median(side) for side in zip(*pairs, strict=True))
            unit, name = (UNITS[kind], COST[kind]) if what == "cost" else (1, f"{what} ms")
            told = "" if limit is None else f"{limit:.2f}" + ("" if ratio <= limit else "  ABOVE")
            numbers = f"{ones / unit:12.2f}{others / unit:12.2f}{ratio:8.3f}"
            print(f"{kind:8}{name:10}{numbers}  {low:.3f} to {high:.3f}  {told}")
            good = good and (limit is None or ratio <= limit)
    return good


def interval(ratios: list[float], rng: random.Random) -> tuple[float, float]:
    """Of the median, by resampling."""
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[int(RESAMPLES * 0.025)], medians[int(RESAMPLES * 0.975)]


if __name__ == "__main__":
    sys.exit(main())
