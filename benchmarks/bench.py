"""``make bench``: Holdfast's numbers, and Apache Kafka's in the same run where Maven and Java are installed.

Each system in turn gets a fresh cluster and the same cases; the report is a table on standard output and a
JSON file that names machine and commit. Compare only numbers of one run: judge by CPU seconds per GB where
client and brokers share few cores, by MB/s where they do not.
"""

from __future__ import annotations

import argparse
import datetime
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import cases, failover, machine, partitions, report
from benchmarks.peers import kafka
from benchmarks.system import HOLDFAST, KAFKA, ROOT, Kind, Running

SECTIONS = ("memory", "latency", "throughput", "failover", "partitions", "start", "spark")
PARTITIONS_PER_TOPIC = 30
FIRST_RECORD = "start to first acks=all record"
Results = dict[str, dict[str, cases.Numbers]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    loads: tuple[cases.Load, ...]
    megabytes: float
    rounds: int
    latency_records: int
    failovers: int
    topics: int
    starts: int
    spark_records: int


FULL = Size(
    loads=cases.LOADS,
    megabytes=1000,
    rounds=3,
    latency_records=4000,
    failovers=10,
    topics=111,
    starts=3,
    spark_records=5_000_000,
)
QUICK = Size(
    loads=cases.QUICK_LOADS,
    megabytes=150,
    rounds=1,
    latency_records=1000,
    failovers=3,
    topics=34,
    starts=1,
    spark_records=1_000_000,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One case of one system: what the progress bar says, the name in the report, the measurement."""

    title: str
    key: str
    run: Callable[[], cases.Numbers]


def steps_on(running: Running, size: Size, sections: set[str]) -> Iterator[Step]:
    """The cases that share one cluster of three brokers, idle ones first."""
    if "memory" in sections:
        yield Step(title="memory while idle", key="after start", run=lambda: cases.memory(running))
    if "latency" in sections:
        for acks, copies, name in ((1, 1, "latency acks=1 RF1"), (-1, 3, "latency acks=all RF3")):
            # Three times: the first rounds of a JVM are compiled while they run. The last one counts.
            for turn in range(3):
                yield Step(
                    title=f"{name}, round {turn + 1} of 3",
                    key=name,
                    run=lambda a=acks, c=copies: cases.latency(running, a, c, size.latency_records),  # type: ignore[misc]
                )
    if "throughput" in sections:
        for load in size.loads:
            yield Step(
                title=str(load),
                key=str(load),
                run=lambda case=load: cases.throughput(  # type: ignore[misc]
                    running, case, megabytes=size.megabytes, rounds=size.rounds
                ),
            )
    if "memory" in sections and "throughput" in sections:
        yield Step(title="memory after the load", key="after load", run=lambda: cases.memory(running))
    if "failover" in sections:
        yield from failover_steps(running, size.failovers)


def failover_steps(running: Running, rounds: int) -> Iterator[Step]:
    """What happens to writers and administrators when a broker dies or leaves."""
    for key, is_controller, how in (
        ("kill -9 of a leader", False, signal.SIGKILL),
        ("kill -9 of a leader that is the controller", True, signal.SIGKILL),
        ("SIGTERM to a leader", False, signal.SIGTERM),
    ):
        yield Step(
            title=f"{rounds} x {key}",
            key=key,
            run=lambda c=is_controller, h=how: failover.leader_goes(running, rounds, is_controller=c, how=h),  # type: ignore[misc]
        )
    key = "kill -9 of the controller"
    yield Step(title=f"{rounds} x {key}", key=key, run=lambda: failover.controller_dies(running, rounds))


def count_steps(size: Size, sections: set[str]) -> int:
    """How many steps one system takes, for the bar."""
    shared = {"memory": 1 + ("throughput" in sections), "latency": 6, "throughput": len(size.loads), "failover": 4}
    return sum(shared.get(section, 1) for section in sections - {"spark"})


class Report:
    """Results and failures so far; a case that fails does not take the others with it."""

    def __init__(self) -> None:
        self.results: Results = {}
        self.failures: list[str] = []

    def take(self, kind: Kind, key: str, run: Callable[[], cases.Numbers]) -> None:
        try:
            self.results.setdefault(kind.name, {})[key] = run()
        except Exception as error:
            self.failures.append(f"{kind.name}, {key}: {type(error).__name__}: {error}")


def measure(
    kind: Kind, size: Size, sections: set[str], folder: Path, report: Report, tick: Callable[[str], None]
) -> None:
    """All cases of one system."""
    if sections - {"partitions", "start", "spark"}:
        tick(f"{kind.name}: starting three brokers")
        with kind.cluster(folder / "cluster", 3) as cluster:
            for step in steps_on(Running(cluster), size, sections):
                tick(f"{kind.name}: {step.title}")
                report.take(kind, step.key, step.run)
    if "partitions" in sections:
        many_partitions(kind, folder / "many", size.topics, report, tick)
    if "start" in sections:
        tick(f"{kind.name}: start to first record")
        report.take(kind, FIRST_RECORD, lambda: cases.start_to_ack(kind, folder / "start", size.starts))


def many_partitions(kind: Kind, data_dir: Path, topics: int, report: Report, tick: Callable[[str], None]) -> None:
    """A cluster of its own: what it costs to have so many, and to start with them."""
    count = topics * PARTITIONS_PER_TOPIC
    tick(f"{kind.name}: {count} partitions")
    with kind.cluster(data_dir, 3) as cluster:
        running = Running(cluster)
        key = f"{count} partitions RF3"
        report.take(kind, key, lambda: partitions.many(running, topics, PARTITIONS_PER_TOPIC))
        report.take(kind, f"{key}, restart", lambda: partitions.restart(running, count))


def spark_read(size: Size, with_peer: bool) -> cases.Numbers:
    """Spark's batch read, by benchmarks/spark_read.py in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.spark_read", "--records", str(size.spark_records), "--json"]
    if not with_peer:
        command.append("--no-connector")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"spark_read failed: {done.stderr[-800:]}")
    numbers: cases.Numbers = json.loads(done.stdout.strip().splitlines()[-1])
    return numbers


def main() -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__, formatter_class=formatter)
    parser.add_argument("--quick", action="store_true", help="some minutes instead of half an hour")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"comma list of {', '.join(SECTIONS)}")
    parser.add_argument("--failovers", type=int, help="rounds of each way to lose a broker (default: 10, quick: 3)")
    parser.add_argument("--no-peer", action="store_true", help="measure Holdfast alone")
    parser.add_argument("--no-holdfast", action="store_true", help="measure the peer alone")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-results", help="directory for the JSON report")
    parser.add_argument("--data-dir", type=Path, help="where brokers keep their data (default: a temporary directory)")
    args = parser.parse_args()
    sections, size, console = set(args.only.split(",")), QUICK if args.quick else FULL, Console(stderr=True)
    if unknown := sections - set(SECTIONS):
        parser.error(f"--only {','.join(sorted(unknown))}: known are {', '.join(SECTIONS)}")
    if args.failovers is not None:
        size = replace(size, failovers=args.failovers)
    kinds = [] if args.no_holdfast else [HOLDFAST]
    if not args.no_peer:
        missing = kafka.missing_tool()
        if missing:
            console.print(f"no {missing} on the PATH: Apache Kafka is left out, there will be no ratios")
        else:
            kafka.fetch(say=console.print)
            kinds.append(KAFKA)
    measured = Report()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        Progress(*columns, console=console) as progress,
        tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=args.data_dir) as folder,
    ):
        with_spark = "spark" in sections and not args.no_holdfast
        total = count_steps(size, sections) * len(kinds) + with_spark
        bar = progress.add_task("", total=total)

        def tick(title: str) -> None:
            progress.update(bar, description=title)
            if "starting" not in title:
                progress.advance(bar)

        for kind in kinds:
            measure(kind, size, sections, Path(folder) / kind.name.split()[0], measured, tick)
        if with_spark:
            tick("Spark batch read")
            measured.take(HOLDFAST, "spark batch read", lambda: spark_read(size, KAFKA in kinds))
    document = {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "machine": machine.describe(),
        "quick": args.quick,
        "results": measured.results,
        "ratios": report.ratios(measured.results),
        "failures": measured.failures,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"bench-{datetime.datetime.now():%Y%m%d-%H%M%S}-{document['commit']}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    report.show(document, Console(width=None if sys.stdout.isatty() else 120))
    for failure in measured.failures:
        print(f"failed: {failure}", file=sys.stderr)
    print(f"written to {path}")
    return int(bool(measured.failures))


if __name__ == "__main__":
    sys.exit(main())
