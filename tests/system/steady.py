"""A load that nothing may disturb: a producer with acks=all, a consumer in a group, and an eye on every ISR.

Owns its three threads. What went wrong is in ``errors``; ``check`` compares what was acknowledged with what was read.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import confluent_kafka

from holdfast.testing import wait_for
from holdfast.testing.view import ask

PARTITIONS = 3
TIMEOUT_S = 60.0
QUIET = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 200}


class SteadyLoad:
    """Until the end of the block. ``smallest_isr``: the fewest replicas in sync that any broker ever told of.
    ``client``: more settings of both clients, as a login; then nobody looks at ISRs."""

    def __init__(self, bootstrap: str, topic: str, *, client: Mapping[str, str] | None = None) -> None:
        self.bootstrap, self.topic = bootstrap, topic
        self._client = {"bootstrap.servers": bootstrap, **(client or {}), **QUIET}
        self._watches = client is None
        self.acked: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        """By partition: offset -> number."""
        self.read: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.placeless = 0
        """Acknowledged as a duplicate so old that nobody knows its offset."""
        self.errors: list[str] = []
        self.smallest_isr = 99
        self._over = threading.Event()
        self._written = threading.Event()
        works = (self._produce, self._consume, self._watch)
        self._threads = [threading.Thread(target=work, name=work.__name__) for work in works]

    def __enter__(self) -> SteadyLoad:
        for thread in self._threads:
            thread.start()
        self.goes_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT_S)
            if thread.is_alive():
                self.errors.append(f"{thread.name} did not end within {2 * TIMEOUT_S:.0f} s")
        if kind is None:
            self.check()

    def goes_on(self) -> None:
        """More of each partition is acknowledged and read."""
        wanted = [len(part) + 30 for part in self.acked]

        def more() -> bool:
            assert self.errors == []
            return all(min(len(a), len(r)) >= w for a, r, w in zip(self.acked, self.read, wanted, strict=True))

        wait_for(more, "more records", timeout_s=TIMEOUT_S)

    def check(self) -> None:
        """No error of either client; what was acknowledged was read, in order, and nothing else."""
        assert self.errors == []
        assert all(self.acked)
        for acked, read in zip(self.acked, self.read, strict=True):
            written = [read[offset] for offset in sorted(read)]
            assert written == list(range(len(written)))
            assert {offset: read[offset] for offset in acked} == acked
        assert sum(map(len, self.acked)) + self.placeless == sum(map(len, self.read))

    def _report(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(f"not delivered: {error}")
        elif message.offset() is None or message.offset() < 0:
            self.placeless += 1
        else:
            self.acked[message.partition()][message.offset()] = int(message.value())

    def _produce(self) -> None:
        producer = confluent_kafka.Producer({**self._client, "acks": "all", "enable.idempotence": True, "linger.ms": 2})
        number = 0
        while not self._over.wait(0.004):
            for partition in range(PARTITIONS):
                producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=self._report)
            number += 1
            producer.poll(0)
        if producer.flush(TIMEOUT_S):
            self.errors.append("records were not acknowledged at the end")
        self._written.set()

    def _consume(self) -> None:
        consumer = confluent_kafka.Consumer({**self._client, "group.id": self.topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([self.topic])
        try:
            while not (self._written.is_set() and self._has_read_all()) and not self.errors:
                for message in consumer.consume(1000, 0.1):
                    if message.error() is not None:
                        self.errors.append(f"not consumed: {message.error()}")
                    else:
                        self.read[message.partition() or 0][message.offset() or 0] = int(message.value() or b"")
        finally:
            consumer.close()

    def _has_read_all(self) -> bool:
        return sum(map(len, self.read)) >= sum(map(len, self.acked)) + self.placeless

    def _watch(self) -> None:
        places = [part.rpartition(":") for part in self.bootstrap.split(",")]
        while self._watches and not self._over.wait(0.05):
            for host, _, port in places:
                try:
                    view = ask(host, int(port), [self.topic])
                except OSError:
                    continue
                for partition in view.partitions.values():
                    self.smallest_isr = min(self.smallest_isr, len(partition.isr))
