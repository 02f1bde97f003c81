"""Stock producers that write numbered records at a steady rate and tell the recorder what they were told.

Each is a thread. A record's topic is drawn, its partition is the client's choice by key. ``finish`` ends the load and
waits until nothing is under way. Errors that a client gives up with are told as failures, never hidden.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import aiokafka
import confluent_kafka

from tests.chaos.recorder import Recorder, key_of, value_of

EAGER = {
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 10,
    "socket.timeout.ms": 5000,
}
"""A client that does not wait: what a user sees of a pause is the cluster's."""
QUIET: dict[str, Any] = {"log_level": 0, "error_cb": lambda _: None}
"""A client that finds a broker gone says so on standard error otherwise."""


class Load(threading.Thread):
    """What the producers have in common."""

    def __init__(self, recorder: Recorder, number: int, topics: Sequence[str], rate: float, seed: int) -> None:
        super().__init__(name=f"producer {number}", daemon=True)
        self.number, self.rate = number, rate
        self._recorder, self._topics = recorder, tuple(topics)
        self._rng = random.Random(f"producer {number} {seed}")
        self._over = threading.Event()

    def stop(self) -> None:
        """No new records; those under way are waited for in the thread."""
        self._over.set()

    def _next(self) -> tuple[int, str]:
        return self._recorder.sent(self.number), self._rng.choice(self._topics)


class ConfluentLoad(Load):
    """librdkafka, idempotent, acks=all."""

    def __init__(
        self,
        recorder: Recorder,
        number: int,
        topics: Sequence[str],
        *,
        bootstrap: str,
        rate: float,
        seed: int,
        settings: Mapping[str, Any],
        flush_s: float = 180,
    ) -> None:
        super().__init__(recorder, number, topics, rate, seed)
        self._flush_s = flush_s
        told = logging.getLogger(f"librdkafka {number}")
        told.setLevel(logging.DEBUG)
        self._settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            **QUIET,
            "debug": "eos",  # why a producer begins a new epoch, after which records may be there twice: clients.log
            "log_level": 7,
            "logger": told,
            **settings,
        }
        self._producer = confluent_kafka.Producer(self._settings)

    def run(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            sequence, topic = self._next()
            self._send(topic, sequence)
            due = max(due + 1 / self.rate, time.monotonic() - 1)
            while (left := due - time.monotonic()) > 0 and not self._over.is_set():
                self._poll(left)
            self._poll(0)
        self._producer.flush(self._flush_s)

    def _poll(self, timeout_s: float) -> None:
        try:
            self._producer.poll(timeout_s)
        except confluent_kafka.KafkaException as error:
            self._fatal(error.args[0])

    def _fatal(self, error: Any) -> None:
        """This client will send nothing any more. What it had under way was told to have failed, or is open."""
        self._recorder.found("refused", f"producer {self.number} was told a fatal error: {error.str()}")
        self._producer = confluent_kafka.Producer(self._settings)

    def _send(self, topic: str, sequence: int) -> None:
        def report(error: Any, message: Any) -> None:
            if error is None:
                place = (message.topic(), message.partition())
                self._recorder.acked(self.number, sequence, place, message.offset())
                return
            self._recorder.failed(self.number, sequence, error.name())

        key, value = key_of(self.number, sequence), value_of(self.number, sequence)
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=report)
            except BufferError:
                if self._over.is_set():
                    return
                self._poll(0.1)
            except confluent_kafka.KafkaException as error:
                self._recorder.failed(self.number, sequence, error.args[0].name())
                self._fatal(error.args[0])
                return
            else:
                return


class AiokafkaLoad(Load):
    """aiokafka, idempotent, acks=all: a client that shares no code with the others."""

    def __init__(
        self,
        recorder: Recorder,
        number: int,
        topics: Sequence[str],
        *,
        bootstrap: str,
        rate: float,
        seed: int,
        login: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(recorder, number, topics, rate, seed)
        self._servers, self._login = bootstrap, login
        self._open: set[asyncio.Future[Any]] = set()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        # Batches expire after the request timeout: it must be longer than anything that the run does.
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._servers,
            enable_idempotence=True,
            request_timeout_ms=120_000,
            retry_backoff_ms=50,
            **self._login,
        )
        await producer.start()
        try:
            while not self._over.is_set():
                sequence, topic = self._next()
                await self._send(producer, topic, sequence)
                await asyncio.sleep(1 / self.rate)
        finally:
            try:
                await asyncio.wait_for(producer.stop(), 150)
            except TimeoutError:
                self._recorder.trouble(f"producer {self.number} did not come to an end")

    async def _send(self, producer: Any, topic: str, sequence: int) -> None:
        def report(future: asyncio.Future[Any]) -> None:
            self._open.discard(future)
            if future.cancelled():
                self._recorder.failed(self.number, sequence, "cancelled")
            elif (error := future.exception()) is not None:
                self._recorder.failed(self.number, sequence, type(error).__name__)
            else:
                sent = future.result()
                offset = sent.offset if sent.offset >= 0 else None
                self._recorder.acked(self.number, sequence, (sent.topic, sent.partition), offset)

        try:
            key, value = key_of(self.number, sequence), value_of(self.number, sequence)
            future = await producer.send(topic, value, key)
        except Exception as error:
            # Whatever a client gives up with is a failure of this record, and one that the report names.
            self._recorder.failed(self.number, sequence, type(error).__name__)
        else:
            self._open.add(future)
            future.add_done_callback(report)


def all_ended(threads: Sequence[threading.Thread], timeout_s: float, tick: Callable[[], None]) -> bool:
    """Waits for threads; ``tick`` is called all the while."""
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(0.1)
            tick()
    return not any(thread.is_alive() for thread in threads)
