"""Writes the demo's records with a stock client and keeps a ledger: where every acknowledged record went, and when.

Owns the producer and its thread. The ledger is three flat arrays by row number, some 17 bytes a record, so that the
whole table fits in a few megabytes.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from holdfast.cli.demo_flights import FLIGHTS, FlightChunk

if TYPE_CHECKING:
    from confluent_kafka import Producer

NOT_ACKED = -1
SLICE_ROWS = 256
"""Records between two looks at the clock and at delivery reports."""
FLUSH_LIMIT_S = 120.0


class Ledger:
    """Partition, offset and time of every acknowledgement, by row number."""

    def __init__(self, rows: int = FLIGHTS) -> None:
        self.partitions = array("b", [NOT_ACKED]) * rows
        self.offsets = array("q", [NOT_ACKED]) * rows
        self.times_s = array("d", [0.0]) * rows
        self.sent = 0
        self.acked = 0
        self.failures: list[str] = []

    def record(self, row: int, partition: int, offset: int, at_s: float) -> None:
        self.partitions[row], self.offsets[row], self.times_s[row] = partition, offset, at_s
        self.acked += 1

    def places(self) -> Iterator[tuple[int, int, int]]:
        """(row, partition, offset) of all acknowledged records."""
        for row, (partition, offset) in enumerate(zip(self.partitions, self.offsets, strict=True)):
            if partition != NOT_ACKED:
                yield row, partition, offset

    def duplicates(self) -> int:
        """Acknowledged records that share their place with another one: always 0 unless a broker lies."""
        places = [(partition, offset) for _, partition, offset in self.places()]
        return len(places) - len(set(places))

    def longest_pause_s(self, since_s: float, partitions: Iterable[int] | None = None) -> float:
        """The longest time that one of the partitions had no acknowledgement, of those that ended after ``since_s``."""
        wanted = None if partitions is None else set(partitions)
        times: dict[int, list[float]] = {}
        for row, partition, _ in self.places():
            if wanted is None or partition in wanted:
                times.setdefault(partition, []).append(self.times_s[row])
        return max(
            (b - a for one in times.values() for a, b in pairwise(sorted(one)) if b > since_s),
            default=0.0,
        )

    def first_acks_s(self, after_s: Mapping[int, float]) -> dict[int, float]:
        """By partition, when its first acknowledgement after the moment given came; without those that had none."""
        found: dict[int, float] = {}
        for row, partition, _ in self.places():
            at_s = self.times_s[row]
            if partition in after_s and after_s[partition] < at_s < found.get(partition, at_s + 1):
                found[partition] = at_s
        return found


class Load(threading.Thread):
    """Sends all chunks, keyed, at no more than ``rate_per_s``; ``ledger`` fills while it runs.

    ``error`` is what ended it early, if anything did. ``settings`` are librdkafka's, beside those of the producer.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        chunks: Iterable[FlightChunk],
        *,
        rate_per_s: float,
        ledger: Ledger | None = None,
        settings: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(name="demo-load", daemon=True)
        self.ledger = Ledger() if ledger is None else ledger
        self.error: Exception | None = None
        self._topic, self._chunks, self._rate_per_s = topic, chunks, rate_per_s
        self._servers, self._settings = bootstrap, settings or {}
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Ends early, after what is on its way."""
        self._stopped.set()

    def run(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # shown by the thread that waits
            self.error = error

    def _send_all(self) -> None:
        producer = make_producer(self._servers, self._settings)
        started_s = time.monotonic()
        for chunk in self._chunks:
            for first in range(0, len(chunk.values), SLICE_ROWS):
                if self._stopped.is_set():
                    return
                self._send(producer, chunk, first)
                producer.poll(0)
                while (early_s := started_s + self.ledger.sent / self._rate_per_s - time.monotonic()) > 0:
                    producer.poll(min(early_s, 0.05))
        left = producer.flush(FLUSH_LIMIT_S)
        if left:
            raise TimeoutError(f"{left} records had no answer within {FLUSH_LIMIT_S:g} s")

    def _send(self, producer: Producer, chunk: FlightChunk, first: int) -> None:
        for key, value in zip(
            chunk.keys[first : first + SLICE_ROWS], chunk.values[first : first + SLICE_ROWS], strict=True
        ):
            report = self._reporter(self.ledger.sent)
            while True:
                try:
                    producer.produce(self._topic, value, key, on_delivery=report)
                    break
                except BufferError:  # as many on their way as the client allows
                    producer.poll(0.1)
            self.ledger.sent += 1

    def _reporter(self, row: int) -> Callable[[Any, Any], None]:
        ledger = self.ledger

        def report(error: Any, message: Any) -> None:
            if error is None:
                ledger.record(row, message.partition(), message.offset(), time.monotonic())
            else:
                ledger.failures.append(str(error))

        return report


def make_producer(bootstrap: str, settings: Mapping[str, int] | None = None) -> Producer:
    """acks=all and idempotent; asks again every 10 to 50 ms, so that a pause is the cluster's and not the client's."""
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "compression.type": "lz4",
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 50,
            "topic.metadata.refresh.fast.interval.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "queue.buffering.max.messages": 100_000,
            "log_level": 0,
            **(settings or {}),
        }
    )
