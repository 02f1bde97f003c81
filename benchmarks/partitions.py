"""What many partitions cost: time and CPU to make them, CPU and memory of a cluster that is idle with them, and how
long it takes after the death of the controller, and after a restart, until all have a leader again.

3,330 partitions with three replicas on three brokers: each broker holds every partition, leads a third of them, and
follows two others in the rest.
"""

from __future__ import annotations

import os
import signal
import time

from benchmarks import failover, wire
from benchmarks.system import Running
from holdfast.testing import wait_for

Numbers = dict[str, float]

COPIES = 3
PREFIX = "many-"
TOPICS_PER_REQUEST = 100
SETTLE_S = 10.0
IDLE_S = 20.0
LIMIT_S = 300


def many(running: Running, topics: int, partitions: int) -> Numbers:
    """Makes them, waits, and kills the active controller."""
    time.sleep(SETTLE_S)
    empty_mib = sum(running.resident_mib())
    cpu, started = running.cpu_seconds(), time.perf_counter()
    names = [f"{PREFIX}{number}" for number in range(topics)]
    address = running.cluster.addresses()[0]
    for at in range(0, topics, TOPICS_PER_REQUEST):
        with wire.Connection(address, timeout_s=LIMIT_S) as connection:
            connection.create_topics(names[at : at + TOPICS_PER_REQUEST], partitions, COPIES, timeout_s=LIMIT_S)
    answered = time.perf_counter() - started
    wait_until_led(running, topics * partitions, COPIES)
    led = time.perf_counter() - started
    replicas = topics * partitions * COPIES
    wait_for(lambda: on_disk(running) >= replicas, "all replicas on disk", timeout_s=LIMIT_S, interval_s=0.5)
    numbers = {
        "partitions": float(topics * partitions),
        "CreateTopics answered s": answered,
        "all led, in sync s": led,
        "all on disk s": time.perf_counter() - started,
        "broker CPU s": running.cpu_seconds() - cpu,
    }
    time.sleep(SETTLE_S)
    cpu = running.cpu_seconds()
    time.sleep(IDLE_S)
    numbers["idle CPU %"] = (running.cpu_seconds() - cpu) / IDLE_S * 100
    numbers["memory kB per replica"] = (sum(running.resident_mib()) - empty_mib) * 2**20 / replicas / 1000
    numbers["open files per broker"] = max(_open_files(pid) for pid in running.cluster.live().values())
    return numbers | _controller_dies(running, topics * partitions)


def _controller_dies(running: Running, count: int) -> Numbers:
    controller = running.active_controller()
    brokers = running.cluster.describe([]).brokers
    others = [address for broker, address in sorted(brokers.items()) if broker != controller]
    since = time.perf_counter()
    os.kill(running.cluster.pids()[controller], signal.SIGKILL)
    created = failover.until_created(others, "after-many", since)

    def moved() -> bool:
        survivor = next(b for b in sorted(brokers) if b != controller)
        led = [p.leader for (t, _), p in running.cluster.describe(broker=survivor).partitions.items() if _is_ours(t)]
        return len(led) == count and all(leader not in (None, controller) for leader in led)

    wait_for(moved, "leaders among the survivors", timeout_s=LIMIT_S)
    moved_s = time.perf_counter() - since
    running.cluster.revive(timeout_s=LIMIT_S)
    wait_until_led(running, count, COPIES)
    return {"controller killed: next CreateTopics s": created, "controller killed: all led s": moved_s}


def restart(running: Running, count: int) -> Numbers:
    """SIGTERM to all, start, until every broker shows a leader for every partition."""
    running.cluster.stop(timeout_s=LIMIT_S)
    started = time.perf_counter()
    running.cluster.start()
    wait_until_led(running, count, 1)
    return {"restart: all led s": time.perf_counter() - started}


def _is_ours(topic: str) -> bool:
    return topic.startswith(PREFIX)


def wait_until_led(running: Running, count: int, in_sync: int) -> None:
    """Until every broker shows a leader, and so many replicas in sync, for each of our partitions."""

    def led(broker: int) -> bool:
        seen = [p for (t, _), p in running.cluster.describe(broker=broker).partitions.items() if _is_ours(t)]
        return len(seen) == count and all(p.leader is not None and len(p.isr) >= in_sync for p in seen)

    for broker in running.cluster.live():
        wait_for(lambda b=broker: led(b), f"leaders in sight of broker {broker}", timeout_s=LIMIT_S, interval_s=0.2)  # type: ignore[misc]


def on_disk(running: Running) -> int:
    """Our replicas that the brokers list in their log directories; Kafka calls one in sync before it is there."""
    found = 0
    for address in running.cluster.addresses():
        with wire.Connection(address, timeout_s=LIMIT_S) as connection:
            found += sum(_is_ours(topic) for topic, _ in connection.replicas_on_disk())
    return found


def _open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
