"""What is measured, one function a question; each returns plain numbers and knows no broker by name."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin

from benchmarks import wire
from benchmarks.system import Kind, Running
from holdfast.testing import wait_for

Say = Callable[[str], None]
Numbers = dict[str, float]

IMPATIENT = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "linger.ms": 0,
    "log_level": 0,
}
"""A client that asks again every 10 to 50 ms: what it waits for is then the broker."""


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


@contextmanager
def steady_writer(bootstrap: str, topic: str) -> Iterator[tuple[confluent_kafka.Producer, list[tuple[float, int]]]]:
    """A producer that retries every 10 to 50 ms, and the times and numbers of the records that were acked."""
    acked: list[tuple[float, int]] = []
    settings = {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 120_000, **IMPATIENT}
    producer = confluent_kafka.Producer(settings)
    try:
        yield producer, acked
    finally:
        producer.flush(120)


def failover(running: Running, rounds: int) -> Numbers:
    """kill -9 of the leader while a record is written every 5 ms: the pause until the next acked one, and
    what was acked but is not there in the end."""
    topic = running.new_topic(1, 3)
    pauses, sent = [], 0
    with steady_writer(running.cluster.bootstrap, topic) as (producer, acked):

        def put(number: int) -> None:
            def report(error: object, _message: object) -> None:
                if error is None:
                    acked.append((time.perf_counter(), number))

            producer.produce(topic, b"%d" % number, partition=0, on_delivery=report)
            limit = time.perf_counter() + 0.005
            while (left := limit - time.perf_counter()) > 0:
                producer.poll(left)

        for _ in range(rounds):
            running.cluster.wait_in_sync([topic])
            leader, _ = running.leader(topic)
            for _ in range(200):
                put(sent)
                sent += 1
            pid = running.cluster.pids()[leader]
            killed = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            deadline = killed + 60
            while not (acked and acked[-1][0] > killed + 0.02 and len(_after(acked, killed)) > 20):
                if time.perf_counter() > deadline:
                    raise TimeoutError(f"no acked record within 60 s of the death of broker {leader}")
                put(sent)
                sent += 1
            pauses.append(_longest_pause(acked, killed))
            running.cluster.revive(timeout_s=60)
    lost = {b"%d" % number for _, number in acked} - _values(running, topic)
    return {
        "pause p50 s": statistics.median(pauses),
        "pause max s": max(pauses),
        "acked but lost": float(len(lost)),
        "rounds": float(rounds),
    }


def _after(acked: list[tuple[float, int]], moment: float) -> list[tuple[float, int]]:
    return [entry for entry in acked[-40:] if entry[0] > moment]


def _longest_pause(acked: list[tuple[float, int]], killed: float) -> float:
    """The end of the longest silence that ended after the kill, counted from the kill."""
    times = [moment for moment, _ in acked]
    silences = [(b - a, b) for a, b in pairwise(times) if b > killed]
    return max(silences)[1] - killed


def _values(running: Running, topic: str) -> set[bytes]:
    settings = {
        "bootstrap.servers": running.cluster.bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = confluent_kafka.Consumer(settings)
    place = confluent_kafka.TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, 30)
    consumer.assign([place])
    values: set[bytes] = set()
    reached = 0
    while reached < end:
        messages = consumer.consume(10_000, 10)
        if not messages:
            raise TimeoutError(f"{topic}: nothing between offset {reached} and {end}")
        values |= {message.value() or b"" for message in messages}
        reached = (messages[-1].offset() or 0) + 1
    consumer.close()
    return values
