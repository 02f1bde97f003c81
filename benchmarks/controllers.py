"""How long a cluster has no controller when that one's broker goes, by the number of partitions, for either metadata
store, beside Apache Kafka with its metadata in ZooKeeper in the same run.

Three brokers on one machine; 200 and 2,000 partitions with three replicas, 3,330 of them (made, led, on disk), and
20,000 with one. The active controller gets SIGKILL, and after it is back SIGTERM. Two figures: until a CreateTopics
that is sent to the others by turns is answered without error, and until another broker shows no partition that is led
by the one that went.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import failover, machine, partitions, wire
from benchmarks.peers import kafka
from benchmarks.system import HOLDFAST, ROOT, Kind, Running
from holdfast.testing import wait_for

Numbers = dict[str, float]

PEER = Kind(
    name=f"kafka {kafka.VERSION_WITH_ZOOKEEPER} on ZooKeeper",
    up=(sys.executable, str(ROOT / "benchmarks/peers/kafka.py"), "--store", "zookeeper"),
)
KINDS = {
    "embedded": Kind(name="holdfast, embedded store", up=HOLDFAST.up),
    "zookeeper": Kind(name="holdfast on ZooKeeper", up=(*HOLDFAST.up, "--store", "zookeeper")),
    "kafka": PEER,
}
LIMIT_S = 600
TOPICS_PER_REQUEST = 100
WARM_S = 3.0
HOW = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many partitions, and with how many replicas each."""

    topics: int
    partitions: int
    copies: int

    @classmethod
    def parse(cls, text: str) -> Size:
        """From TOPICSxPARTITIONSxREPLICAS."""
        try:
            topics, partitions_, copies = map(int, text.split("x"))
        except ValueError as e:
            raise argparse.ArgumentTypeError(f"{text}: expected TOPICSxPARTITIONSxREPLICAS") from e
        return cls(topics=topics, partitions=partitions_, copies=copies)

    @property
    def count(self) -> int:
        return self.topics * self.partitions

    def __str__(self) -> str:
        return f"{self.count:,} RF {self.copies}"


SIZES = (
    Size(topics=20, partitions=10, copies=3),
    Size(topics=100, partitions=20, copies=3),
    Size(topics=111, partitions=30, copies=3),
    Size(topics=400, partitions=50, copies=1),
)


def measure(running: Running, size: Size, signals: Sequence[str]) -> Numbers:
    """Make the partitions, then let the controller go by each of the signals."""
    time.sleep(WARM_S)
    numbers = _made(running, size)
    for name in signals:
        time.sleep(WARM_S)
        created, moved = _controller_goes(running, size, HOW[name])
        numbers |= {f"{name}: next CreateTopics s": created, f"{name}: none led by the one that went s": moved}
    return numbers


def _made(running: Running, size: Size) -> Numbers:
    started = time.perf_counter()
    names = [f"{partitions.PREFIX}{number}" for number in range(size.topics)]
    controller = running.cluster.describe([]).brokers[running.active_controller()]
    for at in range(0, len(names), TOPICS_PER_REQUEST):
        # Kafka on ZooKeeper takes it nowhere else.
        with wire.Connection(controller, timeout_s=LIMIT_S) as connection:
            part = names[at : at + TOPICS_PER_REQUEST]
            connection.create_topics(part, size.partitions, size.copies, timeout_s=LIMIT_S)
    answered = time.perf_counter() - started
    partitions.wait_until_led(running, size.count, size.copies)
    led = time.perf_counter() - started
    replicas = size.count * size.copies
    wait_for(lambda: partitions.on_disk(running) >= replicas, "all replicas on disk", timeout_s=LIMIT_S, interval_s=0.3)
    return {
        "CreateTopics answered s": answered,
        "all led, in sync s": led,
        "all on disk s": time.perf_counter() - started,
    }


def _controller_goes(running: Running, size: Size, how: signal.Signals) -> tuple[float, float]:
    controller = running.active_controller()
    brokers = running.cluster.describe([]).brokers
    others = [address for broker, address in sorted(brokers.items()) if broker != controller]
    survivor = next(b for b in sorted(brokers) if b != controller)
    since = time.perf_counter()
    os.kill(running.cluster.pids()[controller], how)
    created = failover.until_created(others, f"after-{time.time_ns()}", since)

    def moved() -> bool:
        seen = running.cluster.describe(broker=survivor).partitions
        led = [p.leader for (t, _), p in seen.items() if t.startswith(partitions.PREFIX)]
        lost = 0 if size.copies > 1 else size.count
        return len(led) == size.count and controller not in led and led.count(None) <= lost

    wait_for(moved, "no partition that the one that went leads", timeout_s=LIMIT_S, interval_s=0.1)
    moved_s = time.perf_counter() - since
    wait_for(lambda: controller not in running.cluster.live(), f"the end of broker {controller}", timeout_s=LIMIT_S)
    running.cluster.revive(timeout_s=LIMIT_S)
    partitions.wait_until_led(running, size.count, size.copies)
    return created, moved_s


def main() -> None:
    """Measure and print; one fresh cluster for each system and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"some of {','.join(KINDS)}")
    parser.add_argument("--sizes", nargs="+", type=Size.parse, default=SIZES, metavar="TOPICSxPARTITIONSxREPLICAS")
    parser.add_argument("--signals", default=",".join(HOW), help=f"some of {','.join(HOW)}")
    parser.add_argument("--out", type=Path, help="a JSON file with the figures, the machine and the commit")
    args = parser.parse_args()
    unknown = {*args.kinds.split(",")} - set(KINDS) | {*args.signals.split(",")} - set(HOW)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    console = Console()
    results: dict[str, dict[str, Numbers]] = {}
    homes: list[Path] = []
    for size in args.sizes:
        for kind in (KINDS[name] for name in args.kinds.split(",")):
            console.print(f"[dim]{kind.name}, {size} partitions[/dim]")
            home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
            homes.append(home)
            with kind.cluster(home, 3) as cluster:
                results.setdefault(str(size), {})[kind.name] = measure(
                    Running(cluster, has_quorum=kind is not PEER), size, args.signals.split(",")
                )
        _show(console, str(size), results[str(size)])
    for home in homes:  # not before: ext4 is slow to make files for a while after many were deleted
        shutil.rmtree(home, ignore_errors=True)
    if args.out:
        args.out.write_text(json.dumps({"machine": machine.describe(), "results": results}, indent=1))


def _show(console: Console, title: str, found: dict[str, Numbers]) -> None:
    table = Table(title=f"{title} partitions", title_justify="left")
    table.add_column("")
    for name in found:
        table.add_column(name, justify="right")
    for row in next(iter(found.values())):
        table.add_row(row, *(f"{numbers[row]:.2f}" for numbers in found.values()))
    console.print(table)


if __name__ == "__main__":
    main()
