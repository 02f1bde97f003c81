"""``python -m benchmarks.console_search``: what a search that finds nothing costs in ``holdfast console``.

Writes records of 1 KiB (10 million, some 10 GB) to one broker and searches all of them for a text that is in none,
as the page of messages does: server-sent events of ``/messages/search``. Told: records a second; when the first
progress came; the console's memory before and at its most; p99 of small writes with acks=all at 100 a second, alone and
beside it; and how long after the page has gone the broker still reads for it. The limits are those of docs/console.md;
exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from rich.console import Console
from rich.progress import Progress

from benchmarks import machine
from holdfast.client.admin import AdminClient
from holdfast.client.views import NewTopic
from holdfast.records.record import Record, encode_batch
from holdfast.testing import Cluster
from holdfast.testing.processes import children

VALUE_BYTES = 1024
IN_A_BATCH = 900
"""Close to a megabyte, as producers that are tuned for throughput send."""
UNDER_WAY = 6
PARTITIONS = 6
NEEDLE = "a text that is in none of them"
SMALL_EVERY_S = 0.01
QUIET_S = 20.0
CANCEL_AFTER_S = 3.0

RATE_LEAST = 150_000
FIRST_MOST_S = 1.0
CANCEL_MOST_S = 1.0
P99_MOST_RATIO = 2.0
GROWN_MOST_MIB = 40.0


class Found(NamedTuple):
    """What one search told: seconds to the first progress, the longest without one, records, seconds, the most RSS."""

    first_s: float
    longest_s: float
    records: int
    seconds: float
    rss_mib: float


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.console_search", description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000, help="so many of 1 KiB (10,000,000)")
    options = parser.parse_args()
    print(machine.headline())
    with Cluster(brokers=1, log_dirs=1, console=True) as cluster:
        asyncio.run(fill(cluster.bootstrap, options.records))
        return 0 if report(cluster, measure(cluster)) else 1


async def fill(bootstrap: str, records: int) -> None:
    """The topics ``many`` and ``small``."""
    async with AdminClient(bootstrap) as client:
        for name, partitions in (("many", PARTITIONS), ("small", 1)):
            await client.create_topic(NewTopic(name=name, partitions=partitions, replication_factor=1))
        batches = [batch_of(IN_A_BATCH, random.Random(seed)) for seed in range(8)]
        left = iter(range(-(-records // IN_A_BATCH)))
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("writing", total=records)

            async def writer() -> None:
                for number in left:
                    await client.produce("many", number % PARTITIONS, batches[number % len(batches)], acks=1)
                    progress.advance(task, IN_A_BATCH)

            await asyncio.gather(*(writer() for _ in range(UNDER_WAY)))


def batch_of(count: int, rng: random.Random) -> bytes:
    """Lines of JSON, no two alike."""
    now = int(time.time() * 1000)

    def value() -> bytes:
        row = {"id": rng.getrandbits(60), "text": "".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=VALUE_BYTES))}
        return json.dumps(row).encode()[:VALUE_BYTES]

    records = [Record(offset=n, timestamp=now, key=b"%d" % n, value=value(), headers=()) for n in range(count)]
    return bytes(encode_batch(records))


# -- one search ----------------------------------------------------------------------------------------------------


class Searching:
    """A page's stream: how it answers."""

    def __init__(self, cluster: Cluster) -> None:
        parts = urlsplit(cluster.console_url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        query = urlencode({"topic": "many", "start": "earliest", "contains": NEEDLE})
        self.began_s = time.monotonic()
        self._connection.request("GET", f"/messages/search?{query}", headers={"accept": "text/event-stream"})
        self._answer = self._connection.getresponse()
        if self._answer.status != 200:
            raise RuntimeError(f"the search answered {self._answer.status}: {self._answer.read(1000)!r}")

    def told(self) -> Iterator[dict[str, Any]]:
        """Each event ``progress``, as it comes."""
        kind = ""
        for raw in self._answer:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: ") and kind == "progress":
                yield json.loads(line.removeprefix("data: "))
            elif line.startswith("data: ") and kind == "over":
                return

    def leave(self) -> None:
        """As a browser does when its page is closed."""
        self._answer.close()
        self._connection.close()


def search_all(cluster: Cluster, console_pid: int, total: int) -> Found:
    """To the end."""
    searching = Searching(cluster)
    first_s = longest_s = most = 0.0
    told_s = searching.began_s
    for progress in searching.told():
        now_s = time.monotonic()
        first_s = first_s or now_s - searching.began_s
        longest_s, told_s = max(longest_s, now_s - told_s), now_s
        most = max(most, machine.resident_mib([console_pid])[0])
        if "found in" in progress["text"] and not progress["text"].startswith("0 found"):
            raise RuntimeError(f"it found something: {progress['text']}")
    return Found(first_s, longest_s, total, time.monotonic() - searching.began_s, most)


def cancelled(cluster: Cluster, console_pid: int) -> float:
    """Seconds from when the page is gone until neither console nor broker does anything for it."""
    searching = Searching(cluster)
    for _ in searching.told():
        if time.monotonic() - searching.began_s > CANCEL_AFTER_S:
            break
    searching.leave()
    left_s = busy_s = time.monotonic()
    broker = next(iter(cluster.pids().values()))
    before = machine.cpu_seconds([console_pid, broker])
    while time.monotonic() - left_s < 10:
        time.sleep(0.1)
        now = machine.cpu_seconds([console_pid, broker])
        if now - before > 0.03:  # a third of a core
            busy_s = time.monotonic()
        before = now
        if time.monotonic() - busy_s > 1.5:
            break
    return busy_s - left_s


# -- others meanwhile ----------------------------------------------------------------------------------------------


class SmallWrites:
    """A hundred a second by a client of its own, on a thread of its own. Milliseconds each, in ``took``."""

    def __init__(self, bootstrap: str) -> None:
        self.took: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(bootstrap)))

    def __enter__(self) -> SmallWrites:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    async def _run(self, bootstrap: str) -> None:
        small = bytes(
            encode_batch([Record(offset=0, timestamp=int(time.time() * 1000), key=None, value=b"x" * 100, headers=())])
        )
        async with AdminClient(bootstrap) as client:
            await client.produce("small", 0, small)
            due_s = time.perf_counter()
            while not self._over.is_set():
                due_s += SMALL_EVERY_S
                await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
                began_s = time.perf_counter()
                await client.produce("small", 0, small)
                self.took.append((time.perf_counter() - began_s) * 1000)

    @property
    def p99_ms(self) -> float:
        """Of all there are."""
        took = sorted(self.took)
        return took[min(len(took) - 1, int(len(took) * 0.99))]


def measure(cluster: Cluster) -> dict[str, tuple[str, bool]]:
    """What was found: in words, and whether it is within its limit."""
    console_pid = console_of(cluster)
    pages = Searching(cluster)  # warm: modules, and buffers of the first fetches
    for _ in pages.told():
        if time.monotonic() - pages.began_s > CANCEL_AFTER_S:
            break
    pages.leave()
    total = asyncio.run(count(cluster.bootstrap))
    before = machine.resident_mib([console_pid])[0]
    idle = search_all(cluster, console_pid, total)
    gone_s = cancelled(cluster, console_pid)
    with SmallWrites(cluster.bootstrap) as alone:
        time.sleep(QUIET_S)
    with SmallWrites(cluster.bootstrap) as beside:
        loaded = search_all(cluster, console_pid, total)
    rate = idle.records / idle.seconds
    first_s, longest_s = max(idle.first_s, loaded.first_s), max(idle.longest_s, loaded.longest_s)
    most = max(idle.rss_mib, loaded.rss_mib)
    ratio = beside.p99_ms / alone.p99_ms
    return {
        "records": (f"{total:,} of 1 KiB", True),
        "records/s, idle broker": (f"{rate:,.0f} (at least {RATE_LEAST:,})", rate >= RATE_LEAST),
        "records/s beside writes": (f"{loaded.records / loaded.seconds:,.0f}", True),
        "first progress": (f"{first_s:.2f} s (at most {FIRST_MOST_S:g})", first_s <= FIRST_MOST_S),
        "longest without one": (f"{longest_s:.2f} s (at most {FIRST_MOST_S:g})", longest_s <= FIRST_MOST_S),
        "over after the page has gone": (f"{gone_s:.2f} s (at most {CANCEL_MOST_S:g})", gone_s <= CANCEL_MOST_S),
        "console's memory": (
            f"{before:.0f} MiB before, {most:.0f} at most (grows by at most {GROWN_MOST_MIB:g})",
            most - before <= GROWN_MOST_MIB,
        ),
        "p99 of writes": (
            f"{alone.p99_ms:.2f} ms alone, {beside.p99_ms:.2f} beside: {ratio:.2f} times (at most {P99_MOST_RATIO:g})",
            ratio <= P99_MOST_RATIO,
        ),
    }


async def count(bootstrap: str) -> int:
    """Records of the topic that is searched."""
    from holdfast.client.views import OffsetSpec
    from holdfast.model.types import TopicPartition

    async with AdminClient(bootstrap) as client:
        tps = [TopicPartition("many", p) for p in range(PARTITIONS)]
        ends = await client.list_offsets(dict.fromkeys(tps, OffsetSpec.LATEST))
        return sum(end.offset or 0 for end in ends.values())


def console_of(cluster: Cluster) -> int:
    """The process id of the console that ``up`` started."""
    (found,) = set(children(cluster.pid)) - set(cluster.pids().values())
    return found


def report(cluster: Cluster, rows: dict[str, tuple[str, bool]]) -> bool:
    """Print what was found; whether all is within its limits."""
    for name, (words, good) in rows.items():
        print(f"{name:30} {words}{'' if good else '   MISSED'}")
    return all(good for _, good in rows.values())


if __name__ == "__main__":
    sys.exit(main())
