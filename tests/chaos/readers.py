"""Stock consumers that read all the time and tell the recorder what they got.

* ``Follower`` reads every partition from its first offset on and never leaves: offsets must have no gap.
* ``Jumper`` goes back to places that were read before: what was read once must be there again.
* ``Member`` is one of a consumer group, some of which leave and join: each acknowledged record reaches the group, and
  an offset that the group was told is kept never goes back.
* ``EndWatcher`` asks where the logs end: the end includes everything that was acknowledged before.

Each is a thread. Reading goes on until ``stop``.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from tests.chaos.client_locks import started_by, waiting_for_ever
from tests.chaos.producers import QUIET
from tests.chaos.recorder import Place, Recorder, record_of

GROUP = "chaos"
SESSION_MS = 10_000
"""Who is closed while it waits to join leaves behind that question on the same connection, so nobody hears of it, and
the others wait for it that long. With the default of 45 s one that comes and goes every eight kept a group from reading
for minutes."""
_LOST_PLACE = {KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE}
"""A reader that never left the log is told that its place is gone: what it had read was taken back."""


class Reader(threading.Thread):
    """What the readers have in common. ``number`` names it in the ledger."""

    def __init__(self, recorder: Recorder, number: int, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.number = number
        self._recorder = recorder
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()

    def _take(self, messages: Sequence[Any], *, group: bool = False) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                place = (message.topic(), message.partition())
                record = record_of(message.key(), message.value())
                self._recorder.read(self.number, place, message.offset(), record, group=group)
            elif error.code() in _LOST_PLACE:
                self._recorder.found("changed", f"{self.name} was told: {error.str()}")
            else:
                self._recorder.trouble(f"{self.name}: {error.name()}")


def end_of(consumer: confluent_kafka.Consumer, place: Place, timeout_s: float) -> int:
    """Where a log ends; KafkaException if there is no answer.

    Not by ``get_watermark_offsets``: librdkafka (2.16) asks for both ends at once and counts answers, not values. When
    the end is refused (a new leader does not know it yet, KIP-207) and the beginning told in the same moment, it takes
    the beginning for both, and a log of a thousand records is empty.
    """
    (found,) = consumer.offsets_for_times([TopicPartition(*place, OFFSET_END)], timeout=timeout_s)
    if found.error is not None:
        raise KafkaException(found.error)
    return int(found.offset)


class Asker(Reader):
    """A reader that asks where logs end.

    librdkafka that has lost all brokers forgets its topics, and may go on to say that a partition does not exist when
    the brokers are back and answer (2.16): such a client is replaced, as its user would restart it.
    """

    def __init__(
        self, recorder: Recorder, number: int, name: str, *, bootstrap: str, settings: Mapping[str, Any]
    ) -> None:
        super().__init__(recorder, number, name)
        self._settings = _settings(bootstrap, "unused", settings)
        self._consumer, _ = _made(self._settings)

    def _end_of(self, place: Place, timeout_s: float) -> int | None:
        """None, after a moment, if there is no answer."""
        try:
            return end_of(self._consumer, place, timeout_s)
        except KafkaException as error:
            self._recorder.trouble(f"{self.name}: {error.args[0].name()}")
            if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                self._consumer.close()
                self._consumer, _ = _made(self._settings)
            self._over.wait(0.2)
            return None


class Follower(Reader):
    """See the module's docstring."""

    def __init__(
        self, recorder: Recorder, number: int, places: Sequence[Place], *, bootstrap: str, settings: Mapping[str, Any]
    ) -> None:
        super().__init__(recorder, number, f"reader {number}, from the beginning")
        self._places = [TopicPartition(topic, partition, 0) for topic, partition in places]
        self._consumer, self._own_threads = _made(_settings(bootstrap, "unused", settings))
        self._again = lambda: Follower(recorder, number, places, bootstrap=bootstrap, settings=settings)

    def run(self) -> None:
        for place in self._places:
            self._recorder.starts_at(self.number, (place.topic, place.partition), 0)
        self._consumer.assign(self._places)
        while not self._over.is_set():
            messages = self._consumer.consume(500, 0.2)
            if not self._over.is_set():  # another may read in its name now
                self._take(messages)
        self._consumer.close()

    def waits_for_itself(self) -> bool:
        """Whether its client waits for a lock of its own for ever, and reads nothing any more."""
        return bool(waiting_for_ever(among=self._own_threads))

    def another(self) -> Follower:
        """Not started yet; it reads everything again in this one's name, as its user would start it again."""
        self.stop()
        return self._again()


class Jumper(Asker):
    """Every few seconds to another partition, up to ``back`` records before its end."""

    def __init__(
        self,
        recorder: Recorder,
        number: int,
        places: Sequence[Place],
        *,
        bootstrap: str,
        settings: Mapping[str, Any],
        seed: int,
        back: int = 3000,
        every_s: float = 5,
    ) -> None:
        super().__init__(recorder, number, f"reader {number}, going back", bootstrap=bootstrap, settings=settings)
        self._places, self._back, self._every_s = tuple(places), back, every_s
        self._rng = random.Random(f"jumper {seed}")

    def run(self) -> None:
        while not self._over.is_set():
            topic, partition = self._rng.choice(self._places)
            end = self._end_of((topic, partition), 3)
            if end is None:
                continue
            offset = max(0, end - self._rng.randrange(1, self._back))
            self._recorder.starts_at(self.number, (topic, partition), offset)
            self._consumer.assign([TopicPartition(topic, partition, offset)])
            until = time.monotonic() + self._rng.uniform(0.2, 1.8) * self._every_s
            while time.monotonic() < until and not self._over.is_set():
                self._take(self._consumer.consume(500, 0.2))
            self._consumer.unassign()
        self._consumer.close()


class Member(Reader):
    """A group member. With ``stays_s`` it leaves after that time and another one comes in its place."""

    def __init__(
        self,
        recorder: Recorder,
        number: int,
        topics: Sequence[str],
        *,
        bootstrap: str,
        settings: Mapping[str, Any],
        stays_s: float | None,
    ) -> None:
        super().__init__(recorder, number, f"reader {number}, of the group")
        self._topics, self._stays_s = list(topics), stays_s
        self._settings = {
            **_settings(bootstrap, GROUP, settings),
            "enable.auto.commit": True,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "on_commit": self._committed,
        }
        self.rebalances = 0

    def run(self) -> None:
        while not self._over.is_set():
            consumer, _ = _made(self._settings)
            consumer.subscribe(self._topics, on_assign=self._assigned)
            until = None if self._stays_s is None else time.monotonic() + self._stays_s
            while not self._over.is_set() and (until is None or time.monotonic() < until):
                self._take(consumer.consume(500, 0.2), group=True)
            consumer.close()

    def _committed(self, error: Any, places: Sequence[Any]) -> None:
        """With an error, too: the answer may be lost, and not the commit."""
        for place in places:
            if place.offset >= 0:
                kept = error is None and place.error is None
                self._recorder.committed((place.topic, place.partition), place.offset, kept=kept)

    def _assigned(self, consumer: Any, places: Sequence[Any]) -> None:
        """Where the group says it is, no member may have been told to be further: ``tests/checks/commits.py``."""
        self.rebalances += 1
        told = self._recorder.commits()
        try:
            found = consumer.committed(list(places), timeout=30)
        except KafkaException as error:
            self._recorder.trouble(f"{self.name}: {error.args[0].name()}")
            found = []
        known = {(place.topic, place.partition): place.offset for place in found if place.error is None}
        starts = []
        for place in places:
            key = (place.topic, place.partition)
            offset = known.get(key)
            if offset is not None:
                self._recorder.group_is_at(key, max(0, offset), told)
            start = None if offset is None else max(0, offset)
            self._recorder.starts_at(self.number, key, start)
            starts.append(TopicPartition(*key) if start is None else TopicPartition(*key, start))
        consumer.assign(starts)


class EndWatcher(Asker):
    """Asks for the end of one partition after the other."""

    def __init__(
        self,
        recorder: Recorder,
        number: int,
        places: Sequence[Place],
        *,
        bootstrap: str,
        settings: Mapping[str, Any],
        pause_s: float,
    ) -> None:
        super().__init__(recorder, number, f"reader {number}, of the ends", bootstrap=bootstrap, settings=settings)
        self._places, self._pause_s = list(places), pause_s

    def run(self) -> None:
        while not self._over.is_set():
            for place in self._places:
                began = time.monotonic_ns()
                end = self._end_of(place, 2)
                if end is not None:
                    self._recorder.end(place, end, began)
                self._consumer.poll(0)  # what the client tells of connections, which would pile up
                self._over.wait(self._pause_s)
        self._consumer.close()


def _made(settings: Mapping[str, Any]) -> tuple[Any, frozenset[int]]:
    """A consumer, and its own threads."""
    return started_by(lambda: confluent_kafka.Consumer(dict(settings)))


def _settings(bootstrap: str, group: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        **QUIET,
        **more,
    }


def ends_of(bootstrap: str, places: Sequence[Place], settings: Mapping[str, Any]) -> Callable[[], dict[Place, int]]:
    """Asks for all ends, with a consumer of its own."""
    consumer, _ = _made(_settings(bootstrap, "unused", settings))

    def ask() -> dict[Place, int]:
        return {place: end_of(consumer, place, 10) for place in places}

    return ask
