"""Both ends of the run, in threads of this process: who writes the inputs, and who reads the outputs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.exactly_once.judge import OUTPUTS, Gap, Place
from tests.exactly_once.member import SOURCE

LONG_S = 0.25
"""Shorter gaps are not kept."""


class Feed(threading.Thread):
    """Writes numbers to ``in``, idempotent and with acks=all; knows which were acknowledged, and where."""

    def __init__(self, bootstrap: str, partitions: int, rate: float) -> None:
        super().__init__(name="feed", daemon=True)
        self.acked: dict[Place, int] = {}
        self.somewhere: set[int] = set()
        """Acknowledged as a duplicate so old that nobody knows its offset."""
        self.maybe: set[int] = set()
        self._partitions, self._rate = partitions, rate
        self._ending = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def run(self) -> None:
        number, began = 0, time.monotonic()
        while not self._ending.wait(0.01):
            due = int((time.monotonic() - began) * self._rate)
            while number < due:
                self.maybe.add(number)
                self._producer.produce(
                    SOURCE, b"%d" % number, partition=number % self._partitions, on_delivery=self._answered
                )
                number += 1
            self._producer.poll(0)

    def _answered(self, error: Any, message: Message) -> None:
        if error is None:
            number, offset = int(message.value() or b"-1"), message.offset()
            if offset is None or offset < 0:
                self.somewhere.add(number)
            else:
                self.acked[Place(message.partition() or 0, offset)] = number
            self.maybe.discard(number)

    def end(self) -> None:
        """Returns when all that was sent is answered, or its time is over."""
        self._ending.set()
        self.join()
        self._producer.flush(130)


class Watch(threading.Thread):
    """Reads both outputs; keeps what it saw how often, and the gaps."""

    def __init__(self, bootstrap: str, partitions: int, *, isolation: str) -> None:
        super().__init__(name="watch", daemon=True)
        self.seen: dict[str, Counter[tuple[Place, int]]] = {topic: Counter() for topic in OUTPUTS}
        self.gaps: list[Gap] = []
        self.errors: list[str] = []
        self._last: dict[tuple[str, int], float] = {}
        self._ending = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "watch",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, 0) for topic in OUTPUTS for each in range(partitions)])

    def run(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error() is not None:
                    self.errors.append(str(message.error()))
                    continue
                self._take(message, time.monotonic())

    def _take(self, message: Message, now_s: float) -> None:
        topic, partition = message.topic() or "", message.partition() or 0
        source, offset, number = (message.value() or b"").split(b":")
        self.seen[topic][Place(int(source), int(offset)), int(number)] += 1
        before = self._last.get((topic, partition), now_s)
        self._last[topic, partition] = now_s
        if now_s - before > LONG_S:
            self.gaps.append(Gap(topic=topic, partition=partition, begin_s=before, end_s=now_s))

    def close(self) -> None:
        self._ending.set()
        self.join()
        self._consumer.close()
