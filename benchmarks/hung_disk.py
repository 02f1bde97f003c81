"""``python -m benchmarks.hung_disk``: one directory of one broker hangs for minutes (frozen ext4) under load.

Three brokers; log-dir-1 of broker 1 is a file system of its own. Partitions fall into two classes: those with a replica
in that directory (``on it``) and those without (``apart``). Every partition gets records at a steady rate (acks=all,
min.insync.replicas=2); a consumer group reads them all; a topic is made and deleted all the time. Measured are three
windows before, then the hang; in the middle of it the broker is killed with -9 and started again, and the windows in
which that happens are told apart. Then the disk is thawed.

Told are:

* ``produce``: from handing a record to the client to its acknowledgement; ``fetch``: to the consumer group's receipt.
  p99 of each window in ms, and for the windows of the hang their ratio to the median of the three before.
* ``pause``: the longest silence between two acknowledgements of one partition, and the longest wait for CreateTopics.
* ``restart``: from kill -9 until a partition in the broker's other directory has it in its ISR again.
* replicas of new topics in the directory that hangs, acknowledged records that are lost, replicas out of sync at last.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.failover import IMPATIENT, LIMIT_S
from holdfast.testing import FAULTS, Cluster, wait_for

TOPIC, CHURN = "load", "churn"
CHURN_S = 0.5
APART, ON_IT = "apart", "on it"
RESTART = "restart"
CLASSES = (APART, ON_IT)
Place = tuple[str, int]


@dataclass
class Sample:
    """What one class of partitions met in one window: latencies in seconds."""

    produce: list[float] = field(default_factory=list)
    fetch: list[float] = field(default_factory=list)


class Recorder:
    """Latencies by window and class, acknowledgements by partition."""

    def __init__(self, class_of: Callable[[int], str]) -> None:
        self.window = "warm-up"
        self.samples: dict[tuple[str, str], Sample] = defaultdict(Sample)
        self.acked: dict[int, set[int]] = defaultdict(set)
        self.seen: dict[int, set[int]] = defaultdict(set)
        self.pauses: dict[tuple[str, int], float] = defaultdict(float)
        self.creates: dict[str, list[float]] = defaultdict(list)
        self.errors: list[tuple[str, str]] = []
        """The window in which it came, and its text."""
        self.stolen: dict[str, float] = {}
        """The share of all CPUs' time that the host took in each window."""
        self._class_of = class_of
        self._last: dict[int, float] = {}

    def produced(self, partition: int, number: int, since: float) -> None:
        now = time.perf_counter()
        self.samples[self.window, self._class_of(partition)].produce.append(now - since)
        self.acked[partition].add(number)
        pause = now - self._last.get(partition, now)
        self._last[partition] = now
        self.pauses[self.window, partition] = max(self.pauses[self.window, partition], pause)

    def fetched(self, partition: int, number: int, since: float) -> None:
        if number not in self.seen[partition]:  # again after a rebalance
            self.seen[partition].add(number)
            sample = self.samples[self.window, self._class_of(partition)]
            sample.fetch.append(time.perf_counter() - since)

    def pause(self, windows: Iterable[str], name: str) -> float:
        """The longest silence of a partition of the class in these windows."""
        chosen = set(windows)
        return max((p for (w, n), p in self.pauses.items() if w in chosen and self._class_of(n) == name), default=0.0)


class Load:
    """Producers, one a class so that neither waits for the other, a consumer group, and the churn of topics."""

    def __init__(self, cluster: Cluster, recorder: Recorder, partitions: dict[str, list[int]], rate: float) -> None:
        self._cluster, self._recorder, self._rate = cluster, recorder, rate
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, args=(numbers,), daemon=True) for numbers in partitions.values()
        ]
        self._threads += [threading.Thread(target=one, daemon=True) for one in (self._consume, self._churn)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self, partitions: list[int]) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._cluster.bootstrap, "acks": "all", "message.timeout.ms": LIMIT_S * 3000,
             "enable.idempotence": True, **IMPATIENT}
        )  # fmt: skip
        number, step = 0, 1 / self._rate

        def report(partition: int, sent: int, since: float) -> Callable[[object, object], None]:
            def told(error: object, _: object) -> None:
                if error is None:
                    self._recorder.produced(partition, sent, since)
                else:
                    self._recorder.errors.append((self._recorder.window, str(error)))

            return told

        due = time.perf_counter()
        while not self._over.is_set():
            for partition in partitions:
                now = time.perf_counter()
                value = struct.pack(">qd", number, now) + b"x" * 500
                producer.produce(TOPIC, value, partition=partition, on_delivery=report(partition, number, now))
            number += 1
            due += step
            while (left := due - time.perf_counter()) > 0:
                producer.poll(left)
        producer.flush(LIMIT_S)

    def _consume(self) -> None:
        settings = {"bootstrap.servers": self._cluster.bootstrap, "group.id": "hung-disk", "log_level": 0,
                    "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100}  # fmt: skip
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe([TOPIC])
        while not self._over.is_set():
            for message in consumer.consume(1000, 0.05):
                if message.error() is None:
                    number, since = struct.unpack(">qd", (message.value() or b"")[:16])
                    self._recorder.fetched(message.partition() or 0, number, since)
        consumer.close()

    def _churn(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap, "log_level": 0})
        number = 0
        while not self._over.wait(CHURN_S):
            name, number = f"{CHURN}-{number}", number + 1
            window, since = self._recorder.window, time.perf_counter()
            try:
                admin.create_topics([NewTopic(name, 2, 3)], operation_timeout=30)[name].result(30)
                self._recorder.creates[window].append(time.perf_counter() - since)
                if number % 4:
                    admin.delete_topics([name], operation_timeout=30)[name].result(30)
            except confluent_kafka.KafkaException as e:
                self._recorder.errors.append((window, f"{name}: {e}"))


def p99_ms(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000 if ordered else float("nan")


def classes(cluster: Cluster, partitions: int) -> dict[str, list[int]]:
    """Partitions by whether a replica of theirs is in the directory that will hang."""
    there = cluster.describe_log_dirs(1)[str(cluster.log_dir(1, 1))].replicas
    found: dict[str, list[int]] = {APART: [], ON_IT: []}
    for number in range(partitions):
        found[ON_IT if (TOPIC, number) in there else APART].append(number)
    return found


def until_served(cluster: Cluster, partitions: list[int], broker: int, since: float) -> float:
    """Seconds until the broker is in the ISR of all of these again."""

    def whole() -> bool:
        seen = cluster.describe([TOPIC], broker=2).partitions
        return all(broker in seen[TOPIC, number].isr for number in partitions)

    wait_for(whole, f"broker {broker} in the ISR of what is in its other directory", timeout_s=LIMIT_S)
    return time.perf_counter() - since


def kill_and_start(cluster: Cluster, broker: int) -> None:
    """kill -9, and ``up`` is asked to start it until there is another process."""
    before = cluster.pids()[broker]
    os.kill(before, signal.SIGKILL)

    def started() -> bool:
        os.kill(cluster.pid, signal.SIGUSR1)
        return cluster.pids()[broker] != before

    wait_for(started, f"another process of broker {broker}", timeout_s=LIMIT_S, interval_s=0.05)


def rest(recorder: Recorder, window: str, seconds: float) -> None:
    recorder.window = window
    before = stolen_s()
    time.sleep(seconds)
    recorder.stolen[window] = (stolen_s() - before) / (seconds * (os.cpu_count() or 1))


def stolen_s() -> float:
    """CPU seconds that the host of a virtual machine gave to others although something here wanted to run."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def on_hung(cluster: Cluster, hung: set[Place]) -> int:
    """Replicas that came to the directory while it hung."""
    found = (Path(cluster.log_dir(1, 1))).glob("*-[0-9]*")
    places = {(name[0], int(name[2])) for path in found if (name := path.name.rpartition("-"))[2].isdigit()}
    return len(places - hung)


def run(args: argparse.Namespace) -> dict[str, float]:
    """The whole run; figures by name."""
    settings = {
        "min.insync.replicas": "2",
        "group.initial.rebalance.delay.ms": "0",
        "log.dir.probe.interval.ms": "1000",
    }
    with Cluster(disks={(1, 1): partial(FAULTS["frozen"], size=1 << 30)}, settings=settings, log_dirs=2) as cluster:
        disk = cluster.disks[1, 1]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, args.partitions, 3)])[TOPIC].result(LIMIT_S)
        cluster.wait_in_sync([TOPIC])
        by_class = classes(cluster, args.partitions)
        recorder = Recorder(lambda number: ON_IT if number in by_class[ON_IT] else APART)
        with Load(cluster, recorder, by_class, args.rate):
            rest(recorder, "warm-up", args.warm_s)
            before = [f"before {n}" for n in (1, 2, 3)]
            for window in before:
                rest(recorder, window, args.window_s)
            hung = set(cluster.describe_log_dirs(1)[str(disk.path)].replicas)
            disk.fail()
            began = time.perf_counter()
            rest(recorder, "onset", args.onset_s)
            windows, number, served = [], 0, float("nan")
            while time.perf_counter() - began < args.hang_s:
                number += 1
                if served != served and time.perf_counter() - began > args.hang_s / 2:
                    recorder.window, since = RESTART, time.perf_counter()
                    kill_and_start(cluster, 1)
                    served = until_served(cluster, by_class[APART], 1, since)
                    time.sleep(args.onset_s)
                windows.append(f"hung {number}")
                rest(recorder, windows[-1], min(args.window_s, max(1.0, began + args.hang_s - time.perf_counter())))
            new = on_hung(cluster, hung)
            disk.heal()
            rest(recorder, "thawed", args.onset_s)
            recorder.window = "after"
            cluster.wait_in_sync(timeout_s=LIMIT_S)
            whole_s = time.perf_counter() - began - args.hang_s
        lost = sum(len(acked - recorder.seen[n]) for n, acked in recorder.acked.items())
        lost = unread(cluster, recorder) if lost else 0
    show(recorder, before, windows)
    print(*(f"error, {window}: {text}" for window, text in recorder.errors[:20]), sep="\n")
    return figures(recorder, before, windows) | {
        "restart_s": served, "whole_after_thaw_s": whole_s, "new_on_hung": new, "lost": lost,
        # A topic with three replicas cannot be made while one of three brokers is dead.
        "errors": sum(window != RESTART for window, _ in recorder.errors),
        "errors_restart": sum(window == RESTART for window, _ in recorder.errors),
    }  # fmt: skip


def unread(cluster: Cluster, recorder: Recorder) -> int:
    """Acknowledged records that nobody finds in the log, read once more from the beginning."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "again", "enable.auto.commit": False, "log_level": 0}
    )
    missing = 0
    for partition, acked in recorder.acked.items():
        place = confluent_kafka.TopicPartition(TOPIC, partition, 0)
        _, end = consumer.get_watermark_offsets(place, LIMIT_S)
        consumer.assign([place])
        found: set[int] = set()
        reached, limit = 0, time.perf_counter() + LIMIT_S
        while reached < end and time.perf_counter() < limit:
            for message in consumer.consume(10_000, 0.3):
                found.add(struct.unpack(">q", (message.value() or b"")[:8])[0])
                reached = max(reached, (message.offset() or 0) + 1)
        missing += len(acked - found)
    consumer.close()
    return missing


def figures(recorder: Recorder, before: list[str], windows: list[str]) -> dict[str, float]:
    made: dict[str, float] = {}
    for what in ("produce", "fetch"):
        base = statistics.median(p99_ms(getattr(recorder.samples[w, APART], what)) for w in before)
        worst = max(p99_ms(getattr(recorder.samples[w, APART], what)) for w in windows)
        made[f"{what}_p99_before_ms"], made[f"{what}_p99_worst_ms"] = base, worst
        made[f"{what}_ratio"] = worst / base
    hang = ["onset", *windows]
    made["pause_on_it_s"] = recorder.pause(hang, ON_IT)
    made["pause_apart_s"] = recorder.pause(hang, APART)
    made["create_topics_max_s"] = max((max(recorder.creates[w], default=0.0) for w in hang), default=0.0)
    made["create_topics_restart_max_s"] = max(recorder.creates[RESTART], default=0.0)
    return made


def show(recorder: Recorder, before: list[str], windows: list[str]) -> None:
    """p99 in ms of each window and class."""
    table = Table("window", *(f"{what} p99 ms, {name}" for name in CLASSES for what in ("produce", "fetch")),
                  "CreateTopics max s", "longest pause s", "stolen %")  # fmt: skip
    for window in (*before, "onset", *windows, RESTART, "thawed"):
        cells = []
        for name in CLASSES:
            sample = recorder.samples[window, name]
            cells += [f"{p99_ms(sample.produce):.1f}", f"{p99_ms(sample.fetch):.1f}"]
        pause = max(recorder.pause([window], name) for name in CLASSES)
        longest = max(recorder.creates[window], default=float("nan"))
        stolen = f"{recorder.stolen[window]:.0%}" if window in recorder.stolen else ""
        table.add_row(window, *cells, f"{longest:.2f}", f"{pause:.2f}", stolen)
    Console(width=140).print(table)


def main() -> int:
    """Exit code 1 when a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hang-s", type=float, default=300)
    parser.add_argument("--window-s", type=float, default=60)
    parser.add_argument("--onset-s", type=float, default=5, help="left out of the windows after each change")
    parser.add_argument("--warm-s", type=float, default=10)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--rate", type=float, default=50, help="records a second to each partition")
    args = parser.parse_args()
    print(machine.describe())
    found = run(args)
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=2))
    limits = {"produce_ratio": 1.5, "fetch_ratio": 1.5, "pause_on_it_s": 3, "create_topics_max_s": 1, "restart_s": 5}
    broken = [f"{n}: {found[n]:.2f}, expected at most {limit}" for n, limit in limits.items() if not found[n] <= limit]
    broken += [f"{n}: {found[n]:.0f}, expected 0" for n in ("new_on_hung", "lost", "errors") if found[n]]
    print(*broken or ["all limits kept"], sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
