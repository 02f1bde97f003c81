"""``make console-bench``: whether the console is quick, small and cheap where a cluster is large.

* large: 10,000 partitions on three real brokers, one replica each: first paint and usable in a real Chromium, and the
  longest answer.
* huge: 39,000 partitions of 9,000 topics, and 2,200 groups, by brokers of the tests that only answer on the wire
  (tests/answering; tests/system/test_console_contract.py holds them against real ones). Every log grows. Ten viewers
  ask for a page a second each, while the snapshot is renewed: p99 from when a page was due, and memory.
* tabs: ten tabs of one browser: how long until all show a change, and what brokers are asked meanwhile, against one.
* idle: 1,000 partitions and nobody there: memory, and CPU of the console and of what it adds to its brokers; the same
  with a page open.

Exit code 1 when a figure misses its target. ``--only CASE`` for one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from playwright.sync_api import Browser

from benchmarks import machine
from benchmarks.console_under_test import (
    ROOT,
    USABLE,
    ConsoleProcess,
    cpu_ns,
    largest_answer,
    loaded,
    machine_is_quiet,
    page_times,
    pages_of,
    seen,
    stream_open,
    watched,
)
from holdfast.client.blocking import BlockingClient
from holdfast.client.versions import LIST_GROUPS, OFFSET_FETCH
from holdfast.client.views import NewTopic
from holdfast.testing import Cluster, wait_for
from tests import browsers

LARGE, LARGE_TOPICS = 10_000, 200
HUGE = {"brokers": 3, "topics": 9_000, "partitions": 39_000, "groups": 2_200, "copies": 3, "grows": 1.0}
SMALL, SMALL_TOPICS = 1_000, 50
TOPICS_A_REQUEST = 20
ALL_GROUPS = 30
"""Requests for the offsets of groups after which all of them were asked for."""
LOADS = 10
VIEWERS = 10
TABS = 10
CHANGES = 5
BROWSED = ("disks", "topics", "partitions", "a topic")


class Figure(NamedTuple):
    """One number beside its target; ``limit`` None: it is only told."""

    case: str
    what: str
    value: float
    unit: str
    limit: float | None

    @property
    def holds(self) -> bool:
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        told = "" if self.limit is None else f"at most {self.limit:g}" + ("" if self.holds else "  MISSED")
        return f"{self.case:6} {self.what:58} {self.value:10.2f} {self.unit:8} {told}"


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.console_bench", description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=CASES, action="append", help="this case alone; may be given more than once")
    parser.add_argument("--seconds", type=int, default=120, help="of the measured times of huge and idle (120)")
    parser.add_argument("--copies", type=int, default=HUGE["copies"], help="replicas of each partition of huge (3)")
    options = parser.parse_args()
    about = machine.describe()
    print(
        f"commit {machine.commit()}; {about['cpu']}, {about['cores']} cores, Linux {about['kernel']}, Python "
        f"{about['python']}; load of the last minute {machine_is_quiet():.2f} a core"
    )
    figures: list[Figure] = []
    for name, case in CASES.items():
        if not options.only or name in options.only:
            for figure in case(options):
                print(figure, flush=True)
                figures.append(figure)
    missed = [figure for figure in figures if not figure.holds]
    print(f"{len(figures)} figures, {len(missed)} missed their target")
    return 1 if missed else 0


@contextmanager
def real(partitions: int, topics: int) -> Iterator[Cluster]:
    """Three brokers with partitions of one replica, without a console of their own."""
    settings = {"default.replication.factor": "1", "min.insync.replicas": "1"}
    with Cluster(brokers=3, log_dirs=2, settings=settings, ready_timeout_s=120) as cluster:
        names = [f"orders-{number:04}" for number in range(topics)]
        with BlockingClient(cluster.bootstrap, timeout_s=300.0) as client:
            for at in range(0, topics, TOPICS_A_REQUEST):
                made = client.create_topics(
                    [
                        NewTopic(name=name, partitions=partitions // topics, replication_factor=1)
                        for name in names[at : at + TOPICS_A_REQUEST]
                    ]
                )
                refused = {name: error for name, error in made.items() if error is not None}
                if refused:
                    raise RuntimeError(f"topics were not made: {refused}")
        cluster.wait_for_leaders(names, timeout_s=300.0)
        yield cluster


@contextmanager
def browsing(console: ConsoleProcess) -> Iterator[Browser]:
    with browsers.browser() as running:
        yield running


# -- large ---------------------------------------------------------------------------------------------------------


def large(options: argparse.Namespace) -> Iterator[Figure]:
    """Each page is loaded as by somebody who comes anew, files in no cache."""
    with real(LARGE, LARGE_TOPICS) as cluster, closing(ConsoleProcess(cluster.bootstrap)) as console:
        console.wait_ready()
        wait_for(lambda: f"of {LARGE:,}" in console.get("/partitions")[1].decode(), "all partitions", timeout_s=60)
        pages = pages_of(console)
        size, path = largest_answer(console, list(pages.values()))
        with browsing(console) as chromium:
            for name in BROWSED:
                loads = []
                for _ in range(LOADS + 1):
                    context = chromium.new_context(base_url=console.url, viewport={"width": 1280, "height": 900})
                    context.add_init_script(f"({USABLE})()")
                    loads.append(loaded(context.new_page(), pages[name]))
                    context.close()
                paints, usables = zip(*loads[1:], strict=True)
                yield Figure(
                    "large", f"{name}: first paint, the median of {LOADS}", statistics.median(paints), "ms", 500
                )
                yield Figure("large", f"{name}: usable, the median of {LOADS}", statistics.median(usables), "ms", 1000)
                yield Figure("large", f"{name}: usable, the slowest", max(usables), "ms", None)
        yield Figure("large", f"the longest answer ({path[:30]})", size / 1000, "kB", 300)
        yield Figure("large", "the most memory of the console", console.peak_mib, "MiB", None)


# -- huge ----------------------------------------------------------------------------------------------------------


@contextmanager
def answering(copies: int) -> Iterator[tuple[str, Callable[[], dict[int, int]]]]:
    """Where the brokers of the tests are, and what they were asked so far, by API."""
    asked = HUGE | {"copies": copies}
    command = [sys.executable, "-m", "tests.answering", *(f"--{name}={value}" for name, value in asked.items())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.startswith("ready: "):
            raise RuntimeError(f"the answering brokers did not start: {line!r}")

        def counts() -> dict[int, int]:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            return {int(api): count for api, count in json.loads(process.stdout.readline()).items()}

        yield line.split("=", 1)[1].strip(), counts
    finally:
        process.stdin.close()
        process.wait(30)


def huge(options: argparse.Namespace) -> Iterator[Figure]:
    """With an open page and its stream all the time."""
    with answering(options.copies) as (bootstrap, counts), closing(ConsoleProcess(bootstrap)) as console:
        console.wait_ready()
        with stream_open(console) as told:
            count = f"of {HUGE['partitions']:,}"
            wait_for(lambda: count in console.get("/partitions")[1].decode(), "all partitions", timeout_s=120)
            wait_for(
                lambda: counts().get(OFFSET_FETCH, 0) >= ALL_GROUPS,
                "offsets of all groups to be asked for",
                timeout_s=300,
            )
            pages = pages_of(console)
            size, path = largest_answer(console, list(pages.values()))
            before, heard = counts(), len(told)
            began_s, began_ns = time.monotonic(), cpu_ns([console.pid])
            times = page_times(console, pages, viewers=VIEWERS, seconds=options.seconds)
            seconds = time.monotonic() - began_s
            after = counts()
            spent_ns = cpu_ns([console.pid]) - began_ns
        took = [ms for ms, _ in times.took]
        yield Figure("huge", f"{len(took)} pages, {VIEWERS} a second: p50", took[len(took) // 2], "ms", None)
        yield Figure("huge", "p99", took[int(len(took) * 0.99)], "ms", 200)
        yield Figure("huge", "the slowest", took[-1], "ms", None)
        late_ms = times.late_ms[int(len(times.late_ms) * 0.99)]
        yield Figure("huge", "of that, how late who measures was woken: p99", late_ms, "ms", None)
        yield Figure("huge", f"pages not answered by 200 {times.wrong[:1] or ''}", len(times.wrong), "", 0)
        for name in pages:
            worst = max(ms for ms, page in times.took if page == name)
            yield Figure("huge", f"the slowest: {name}", worst, "ms", None)
        renewals = (after[LIST_GROUPS] - before[LIST_GROUPS]) / HUGE["brokers"]
        yield Figure("huge", "between two full looks at the cluster", seconds / max(renewals, 0.01), "s", 12)
        yield Figure("huge", "between two looks of any kind", seconds / max(1, len(told) - heard), "s", None)
        yield Figure("huge", "CPU of the console meanwhile", spent_ns / seconds / 1e7, "%", None)
        yield Figure("huge", f"the longest answer ({path[:30]})", size / 1000, "kB", 300)
        yield Figure("huge", "the most memory of the console", console.peak_mib, "MiB", 200)
        began_s = time.monotonic()
        status, page = console.get("/metrics")
        if status != 200:
            raise RuntimeError(f"/metrics: {status} {page[:200]!r}")
        yield Figure("huge", "a scrape of /metrics, the look included", time.monotonic() - began_s, "s", None)
        yield Figure("huge", "the most memory of the console, a scrape included", console.peak_mib, "MiB", 200)


# -- tabs ----------------------------------------------------------------------------------------------------------


def tabs(options: argparse.Namespace) -> Iterator[Figure]:
    """Of one browser context, so that they share its six connections."""
    with real(SMALL, SMALL_TOPICS) as cluster, closing(ConsoleProcess(cluster.bootstrap)) as console:
        console.wait_ready()
        with browsing(console) as chromium:
            costs = {}
            for count in (1, TABS):
                context = chromium.new_context(base_url=console.url)
                watched(context, "news-")
                opened = [context.new_page() for _ in range(count)]
                for page in opened:
                    page.goto("/topics?q=news")
                    seen(page, "window.htmx")
                time.sleep(3)
                began_s, before, cpu = time.monotonic(), requests(cluster), cpu_ns(list(cluster.pids().values()))
                time.sleep(20)
                seconds = time.monotonic() - began_s
                costs[count] = (
                    (requests(cluster) - before) / seconds,
                    (cpu_ns(list(cluster.pids().values())) - cpu) / seconds / 1e7,
                )
                if count == TABS:
                    yield from changes_seen(cluster, opened)
                context.close()
        one, many = costs[1], costs[TABS]
        yield Figure("tabs", "requests a second to all brokers with one tab", one[0], "", None)
        yield Figure("tabs", f"requests a second with {TABS} tabs, against one", many[0] / one[0], "times", 1.1)
        yield Figure("tabs", f"CPU of all brokers with one tab ({TABS}: {many[1]:.2f} %)", one[1], "%", None)


def changes_seen(cluster: Cluster, opened: list[Any]) -> Iterator[Figure]:
    """A topic is made; how long until the last tab shows it."""
    slowest = []
    for number in range(CHANGES):
        name = f"news-{number}"
        began_ms = time.time() * 1000
        cluster.create_topic(name)
        for page in opened:
            seen(page, f"window.sawIt['{name}']")
        slowest.append(max(page.evaluate(f"window.sawIt['{name}']") for page in opened) - began_ms)
    slowest.sort()
    what = f"a topic is made: until the last of {TABS} tabs shows it"
    yield Figure("tabs", f"{what}, the median of {CHANGES}", slowest[CHANGES // 2], "ms", None)
    yield Figure("tabs", f"{what}, the slowest", slowest[-1], "ms", 2000)


def requests(cluster: Cluster) -> int:
    """That the brokers have answered since they run, this question aside: metrics are no request of Kafka's."""
    found = 0.0
    metrics = json.loads((cluster.data_dir / "endpoints.json").read_text())["metrics"]
    for url in metrics.values():
        with urllib.request.urlopen(url, timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("kafka_network_requestmetrics_requests_total{") and _is_asked_by_clients(line):
                    found += float(line.rsplit(" ", 1)[1])
    return round(found)


def _is_asked_by_clients(line: str) -> bool:
    """Not what brokers ask each other by themselves."""
    return any(f'request="{name}"' in line for name in ASKED_BY_A_CONSOLE)


ASKED_BY_A_CONSOLE = (
    "Metadata", "DescribeCluster", "ManageLogDirs", "ListOffsets", "ListGroups", "DescribeGroups", "OffsetFetch",
    "DescribeConfigs", "ListPartitionReassignments", "FindCoordinator", "ApiVersions",
)  # fmt: skip


# -- idle ----------------------------------------------------------------------------------------------------------


def idle(options: argparse.Namespace) -> Iterator[Figure]:
    """Without a console (it is stopped), with one, and with one that somebody looks at."""
    with real(SMALL, SMALL_TOPICS) as cluster, closing(ConsoleProcess(cluster.bootstrap)) as console:
        console.wait_ready()
        brokers = list(cluster.pids().values())
        time.sleep(15)  # brokers have settled, and nobody's look counts any more
        spent = {"without": [0.0, 0.0], "with": [0.0, 0.0]}
        rounds = 2
        for _ in range(rounds):
            for which in spent:
                if which == "without":
                    os.kill(console.pid, signal.SIGSTOP)
                seconds, of_brokers, of_console = spent_in(options.seconds, brokers, console)
                os.kill(console.pid, signal.SIGCONT)
                spent[which][0] += of_brokers / seconds / rounds * 100
                spent[which][1] += of_console / seconds / rounds * 100
        added = spent["with"][0] - spent["without"][0]
        yield Figure("idle", "CPU of three brokers without a console", spent["without"][0], "%", None)
        yield Figure("idle", "what a console adds to them", added, "%", None)
        yield Figure("idle", "CPU of the console", spent["with"][1], "%", None)
        yield Figure("idle", "both, of a core", max(0.0, added) + spent["with"][1], "%", 1.0)
        yield Figure("idle", "memory of the console", console.resident_mib, "MiB", None)
        yield Figure("idle", "the most memory of the console", console.peak_mib, "MiB", 60)
        with stream_open(console):
            time.sleep(10)
            seconds, of_brokers, of_console = spent_in(options.seconds // 2, brokers, console)
        yield Figure("idle", "a page is open: CPU of the console", of_console / seconds * 100, "%", None)
        more = of_brokers / seconds * 100 - spent["without"][0]
        yield Figure("idle", "a page is open: what is added to the brokers", more, "%", None)


def spent_in(seconds: float, brokers: list[int], console: ConsoleProcess) -> tuple[float, float, float]:
    """(seconds, CPU seconds of the brokers, of the console) of the next so many seconds."""
    began_s, of_brokers, of_console = time.monotonic(), cpu_ns(brokers), cpu_ns([console.pid])
    time.sleep(seconds)
    return (
        time.monotonic() - began_s,
        (cpu_ns(brokers) - of_brokers) / 1e9,
        (cpu_ns([console.pid]) - of_console) / 1e9,
    )


CASES: dict[str, Callable[[argparse.Namespace], Iterator[Figure]]] = {
    "large": large,
    "huge": huge,
    "tabs": tabs,
    "idle": idle,
}


if __name__ == "__main__":
    sys.exit(main())
