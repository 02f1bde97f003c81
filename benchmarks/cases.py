"""What is measured, one function a question; each returns plain numbers and knows no broker by name."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka.admin

from benchmarks import wire
from benchmarks.system import Kind, Running
from holdfast.testing import wait_for

Say = Callable[[str], None]
Numbers = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One throughput case."""

    acks: str
    copies: int
    partitions: int
    size: int

    def __str__(self) -> str:
        return f"acks={self.acks} RF{self.copies} {self.partitions}p {self.size} B"


LOADS = (
    Load(acks="1", copies=1, partitions=1, size=1024),
    Load(acks="1", copies=1, partitions=6, size=1024),
    Load(acks="1", copies=1, partitions=1, size=100),
    Load(acks="all", copies=3, partitions=1, size=1024),
    Load(acks="all", copies=3, partitions=6, size=1024),
    Load(acks="all", copies=3, partitions=6, size=100),
)
QUICK_LOADS = (LOADS[0], LOADS[4], LOADS[5])


def throughput(running: Running, load: Load, *, megabytes: float, rounds: int) -> Numbers:
    """Medians over the rounds after one that is thrown away; each round writes a new topic and reads it
    back.
    """
    small = 2.5 if load.size < 500 else 1.0
    count = int(megabytes * 1e6 / load.size / small / (2 if load.copies > 1 else 1))
    seen: dict[str, list[dict[str, float]]] = {"produce": [], "consume": []}
    for number in range(rounds + 1):
        topic = running.new_topic(load.partitions, load.copies)
        for what, results in seen.items():
            got = running.load(what, topic, load.partitions, load.size, count, load.acks)
            if number:
                results.append(got)
        drop(running, topic)
    numbers: Numbers = {}
    for what, results in seen.items():
        per_round = {
            "MB/s": [r["bytes"] / 1e6 / r["seconds"] for r in results],
            "records/s": [r["records"] / r["seconds"] for r in results],
            "broker CPU s/GB": [r["broker_cpu_s"] / r["bytes"] * 1e9 for r in results],
            "client cores": [r["client_cpu_s"] / r["seconds"] for r in results],
            "other CPU s": [r["other_cpu_s"] for r in results],
        }
        numbers |= {f"{what} {name}": statistics.median(values) for name, values in per_round.items()}
    return numbers


def drop(running: Running, topic: str) -> None:
    """Deletes a topic, so that the next round finds the disk as this one did."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": running.cluster.bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)


def latency(running: Running, acks: int, copies: int, count: int) -> Numbers:
    """One record of 100 B in flight on a raw connection; every second one with a Fetch that waits for it."""
    topic = running.new_topic(1, copies)
    _, address = running.leader(topic)
    produced: list[float] = []
    delivered: list[float] = []
    request = wire.produce_frame(topic, 0, b"x" * 100, acks)
    with wire.Connection(address) as writer, wire.Connection(address) as reader:
        end = 0
        for number in range(count + 500):
            waits = number % 2 == 1
            if waits:
                reader.send(wire.fetch_frame(topic, 0, end))
                time.sleep(0.002)
            started = time.perf_counter()
            code, base = wire.produce_result(writer.call(request))
            acked = time.perf_counter() - started
            if code:
                raise wire.Refused(f"produce to {topic}", code)
            if waits:
                code, size = wire.fetch_result(reader.receive())
                read = time.perf_counter() - started
                if code or not size:
                    raise wire.Refused(f"fetch from {topic} at {end}, {size} bytes", code)
            if number >= 500:
                (delivered if waits else produced).append(read if waits else acked)
            end = base + 1
    drop(running, topic)
    return quantiles("ack", produced) | quantiles("end to end", delivered)


def quantiles(name: str, seconds: list[float]) -> Numbers:
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000

    return {f"{name} p50 ms": at(0.5), f"{name} p99 ms": at(0.99), f"{name} p99.9 ms": at(0.999)}


def memory(running: Running, settle_s: float = 3.0) -> Numbers:
    """Resident memory of the largest broker after a moment of quiet, and what all brokers use while idle."""
    time.sleep(settle_s)
    before = running.cpu_seconds()
    time.sleep(settle_s)
    return {
        "RSS MiB per broker": max(running.resident_mib()),
        "idle CPU %": (running.cpu_seconds() - before) / settle_s * 100,
    }


def start_to_ack(kind: Kind, data_dir: Path, rounds: int) -> Numbers:
    """From exec of the ``up`` command to the first record that all three replicas have: fresh, after
    SIGTERM and after kill -9 of everything."""
    seen: dict[str, list[float]] = {"fresh": [], "after stop": [], "after kill": []}
    for _ in range(rounds):
        shutil.rmtree(data_dir, ignore_errors=True)
        cluster = kind.cluster(data_dir, 3)
        for name, times in seen.items():
            started = time.perf_counter()
            cluster.start()
            _first_record(Running(cluster))
            times.append(time.perf_counter() - started)
            if name == "fresh":
                cluster.stop()
            else:
                cluster.kill_all()
    shutil.rmtree(data_dir, ignore_errors=True)
    return {f"{name} s": statistics.median(times) for name, times in seen.items()}


def _first_record(running: Running) -> None:
    """Creates the topic if need be and writes one record with acks=all, asking again until it is taken."""
    topic = "first"

    def taken() -> bool:
        try:
            with wire.Connection(running.cluster.addresses()[0]) as connection:
                connection.create_topic(topic, 1, 3, min_insync_replicas="3")
            with wire.Connection(running.leader(topic)[1]) as connection:
                request = wire.produce_frame(topic, 0, b"x" * 100, -1)
                return wire.produce_result(connection.call(request))[0] == 0
        except wire.Refused:
            return False

    wait_for(taken, "the first record", timeout_s=60, interval_s=0.01)
