"""How long nobody can write, or create a topic, when a broker dies or leaves.

One client writes a record every 2 ms to one partition (acks=all, three replicas, min.insync.replicas=2) and retries
every 10 to 50 ms. A round kills one broker, or asks it to stop; the pause of a round is the longest silence between
two acknowledgements from then on. In the end every acknowledged record must be there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import threading
import time
from collections.abc import Mapping
from itertools import pairwise

import confluent_kafka
import confluent_kafka.admin

from benchmarks import wire
from benchmarks.system import Running
from holdfast.testing import wait_for

Numbers = dict[str, float]

PARTITIONS = 6
INTERVAL_S = 0.002
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
LIMIT_S = 120


class Writer(threading.Thread):
    """Writes numbered records to one partition until told to stop; a context manager."""

    def __init__(
        self, bootstrap: str, topic: str, partition: int, settings: Mapping[str, str | int | bool] | None = None
    ) -> None:
        super().__init__(daemon=True)
        self.acked: list[tuple[float, int]] = []
        """Moment of the acknowledgement, and the offset."""
        self.sent: list[float] = []
        """The moment when each of them was given to the client."""
        self.errors = 0
        basic = {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": LIMIT_S * 1000}
        self._producer = confluent_kafka.Producer({**basic, **IMPATIENT, **(settings or {})})
        self._topic, self._partition = topic, partition
        self._over = threading.Event()

    def __enter__(self) -> Writer:
        self.start()
        wait_for(lambda: len(self.acked) > 100, "the first 100 acks", timeout_s=LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            value, number = f"{id(self)}-{number}", number + 1
            now = time.perf_counter()
            self._producer.produce(
                self._topic, value, partition=self._partition, on_delivery=lambda e, m, s=now: self._report(e, m, s)
            )
            limit = now + INTERVAL_S
            while (left := limit - time.perf_counter()) > 0:
                self._producer.poll(left)
        self._producer.flush(LIMIT_S)

    def _report(self, error: object, message: confluent_kafka.Message, sent: float) -> None:
        if error is None:
            self.sent.append(sent)
            self.acked.append((time.perf_counter(), message.offset() or 0))
        else:
            self.errors += 1

    def resumed(self, since: float) -> bool:
        """Acknowledgements have come steadily for a while, after what may have happened since ``since``."""
        now, last = time.perf_counter(), self.acked[-40:]
        return now > since + 1.5 and len(last) == 40 and last[0][0] > now - 1 and last[-1][0] > now - 0.2

    def pause_s(self, since: float) -> float:
        """The longest silence that ended after ``since``."""
        times = [moment for moment, _ in self.acked]
        return max(b - a for a, b in pairwise(times) if b > since)

    def resumed_s(self, since: float) -> float:
        """From ``since`` to the first acknowledgement of a record that was sent after it."""
        return min(moment for (moment, _), sent in zip(self.acked, self.sent, strict=True) if sent > since) - since


def leader_goes(running: Running, rounds: int, *, is_controller: bool, how: signal.Signals) -> Numbers:
    """Rounds in which the leader that is written to gets a signal; it is the active controller too, or is not."""
    topic = running.new_topic(PARTITIONS, 3)
    pauses, errors, missing = [], 0, 0
    for _ in range(rounds):
        partition, leader = victim(running, topic, is_controller)
        with Writer(running.cluster.bootstrap, topic, partition) as writer:
            time.sleep(1)
            pid = running.cluster.pids()[leader]
            since = time.perf_counter()
            os.kill(pid, how)
            wait_for(lambda w=writer, s=since: w.resumed(s), "acks again", timeout_s=LIMIT_S)  # type: ignore[misc]
        pauses.append(writer.pause_s(since))
        errors += writer.errors
        wait_for(lambda n=leader: n not in running.cluster.live(), f"the end of broker {leader}", timeout_s=LIMIT_S)  # type: ignore[misc]
        running.cluster.revive(timeout_s=LIMIT_S)
        running.cluster.wait_in_sync([topic], timeout_s=LIMIT_S)
        missing += lost(running.cluster.bootstrap, topic, partition, writer)
    return _milliseconds("pause", pauses) | {"errors": errors, "acked but lost": missing, "rounds": rounds}


def victim(running: Running, topic: str, is_controller: bool) -> tuple[int, int]:
    """A partition and its leader, once leaderships are back with the preferred replicas."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": running.cluster.bootstrap, "log_level": 0})
    admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, None).result(30)

    answer = wait_for(lambda: leaders(running, topic, is_controller), "a leader to kill", timeout_s=LIMIT_S)
    assert answer is not None
    return answer[0]


def leaders(running: Running, topic: str, is_controller: bool) -> list[tuple[int, int]]:
    """Partitions and their leaders, as far as they are, or are not, the controller."""
    controller, view = running.active_controller(), running.cluster.describe([topic])
    return [
        (partition, seen.leader)
        for (_, partition), seen in sorted(view.partitions.items())
        if seen.leader is not None and (seen.leader == controller) == is_controller
    ]


def lost(bootstrap: str, topic: str, partition: int, writer: Writer, client: Mapping[str, str] | None = None) -> int:
    """Acknowledged records that are not at the offset that their acknowledgement named."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**settings, **(client or {}), "log_level": 0})
    offsets = {offset for _, offset in writer.acked}
    first = min(offsets)
    place = confluent_kafka.TopicPartition(topic, partition, first)
    _, end = wait_for(lambda: _ends(consumer, place), f"the end of {topic}-{partition}", timeout_s=LIMIT_S)
    consumer.assign([place])
    reached, mine = first, f"{id(writer)}-".encode()
    limit = time.perf_counter() + LIMIT_S
    while reached < end:
        messages = consumer.consume(10_000, 0.3)
        if not messages and time.perf_counter() > limit:
            raise TimeoutError(f"{topic}-{partition}: nothing between offset {reached} and {end}")
        offsets -= {m.offset() for m in messages if (m.value() or b"").startswith(mine)}
        reached = max([reached, *((m.offset() or 0) + 1 for m in messages)])
    consumer.close()
    return len(offsets)


def _ends(consumer: confluent_kafka.Consumer, place: confluent_kafka.TopicPartition) -> tuple[int, int] | None:
    """None while leadership moves."""
    with contextlib.suppress(confluent_kafka.KafkaException):
        found: tuple[int, int] = consumer.get_watermark_offsets(place, 5)
        return found
    return None


def controller_dies(running: Running, rounds: int) -> Numbers:
    """kill -9 of the active controller: until a CreateTopics, sent to the others by turns, is answered without
    error."""
    waits = []
    for number in range(rounds):
        controller = running.active_controller()
        addresses = running.cluster.describe().brokers
        others = [address for broker, address in sorted(addresses.items()) if broker != controller]
        pid = running.cluster.pids()[controller]
        since = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        waits.append(until_created(others, f"bench-after-{number}-{time.time_ns()}", since))
        running.cluster.revive(timeout_s=LIMIT_S)
        wait_for(lambda: len(running.cluster.describe().brokers) == 3, "all three brokers", timeout_s=LIMIT_S)
    return _milliseconds("next CreateTopics", waits) | {"rounds": rounds}


def until_created(addresses: list[tuple[str, int]], prefix: str, since: float) -> float:
    """Seconds from ``since`` until one of the brokers has created a topic."""
    tries = 0

    def created() -> bool:
        nonlocal tries
        tries += 1
        try:
            with wire.Connection(addresses[tries % len(addresses)], timeout_s=3) as connection:
                connection.create_topic(f"{prefix}-{tries}", 1, 1, timeout_s=2)
        except (wire.Refused, OSError):
            return False
        return True

    wait_for(created, "a topic to be created", timeout_s=LIMIT_S, interval_s=0.01)
    return time.perf_counter() - since


def _milliseconds(name: str, seconds: list[float]) -> Numbers:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {
        f"{name} p50 ms": statistics.median(ordered) * 1000,
        f"{name} p99 ms": p99 * 1000,
        f"{name} max ms": ordered[-1] * 1000,
    }
