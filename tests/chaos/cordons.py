"""A log directory is cordoned for some seconds, as an operator does before it is emptied (KIP-1066).

    set cordoned.log.dirs of a broker -> it is known there -> no replica comes to the directory -> the key is taken away

Owns the wish and its end, and the look at the directory in between: a replica that was not there when the broker had
said that it knows, and is there before the cordon ends, was placed against it. Replicas that are there go on as ever.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.chaos.brokers import LOG_DIRS, Brokers
from tests.chaos.producers import EAGER, QUIET

Steps = Iterator[float]

KEY = "cordoned.log.dirs"
LASTS_S = (4.0, 12.0)
ASK_S = 60
LOOK_S = 0.25
KNOWN_S = 2.0
"""From the answer that the key is set until the broker places by it: it hears of it with the metadata."""
COUNTED = "a log directory is cordoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cordon:
    """Part of a round. ``choice``: which directory of which broker."""

    choice: int
    after_s: float
    lasts_s: float

    def __str__(self) -> str:
        return f"cordon #{self.choice}, after {self.after_s:.1f} s for {self.lasts_s:.1f} s"


def cordons(seed: int, rounds: int, every: float) -> tuple[Cordon | None, ...]:
    """One for each round, or none; ``every``: in which part of the rounds. Pure."""
    rng = random.Random(f"cordons {seed}")
    return tuple(
        Cordon(choice=rng.randrange(1000), after_s=round(rng.uniform(0, 3), 2), lasts_s=round(rng.uniform(*LASTS_S), 2))
        if rng.random() < every
        else None
        for _ in range(rounds)
    )


def steps(
    cordon: Cordon, brokers: Brokers, counts: Counter[str], found: Callable[[str, str], None], *, more_s: float = 0
) -> Steps:
    """Begins when it is first advanced; over when the directory takes replicas again. ``more_s``: how long there may
    be no controller."""
    places = [(broker, k) for broker in brokers.ids for k in range(1, LOG_DIRS + 1)]
    broker, number = places[cordon.choice % len(places)]
    path = brokers.log_dir(broker, number)
    asking = _Asking(brokers, broker, ASK_S + more_s)
    counts[COUNTED] += 1
    yield from asking.until_set(str(path), found)
    yield KNOWN_S
    before = _replicas(path)
    yield cordon.lasts_s
    came = _replicas(path) - before
    if came:
        found("cordoned", f"{', '.join(sorted(came))} came to {path} while it was cordoned")
    yield from asking.until_set("", found)


def _replicas(path: Path) -> set[str]:
    """Replicas that are there now, not those that wait for their removal nor copies that moves of before make."""
    return {one.name for one in path.glob("*-*") if one.is_dir() and one.name.rpartition("-")[2].isdigit()}


class _Asking:
    """One broker's cordons, asked of whoever answers.

    By a new client each time, as a command is a new process: an AdminClient of librdkafka (2.16) that began while all
    brokers were down waited for broker 1 for two minutes while it served everybody else.
    """

    def __init__(self, brokers: Brokers, broker: int, limit_s: float) -> None:
        self._settings = {"bootstrap.servers": brokers.bootstrap, **QUIET, **EAGER, **brokers.login(as_admin=True)}
        self._broker, self._limit_s = broker, limit_s

    def until_set(self, value: str, found: Callable[[str, str], None]) -> Steps:
        """Asked again while brokers fail; it is stuck if that takes too long."""
        limit, said = time.monotonic() + self._limit_s, "no answer"
        how = AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
        entry = ConfigEntry(KEY, value or None, incremental_operation=how)
        while time.monotonic() < limit:
            resource = ConfigResource(ResourceType.BROKER, str(self._broker), incremental_configs=[entry])
            admin = AdminClient(self._settings)
            future = admin.incremental_alter_configs([resource], request_timeout=5)[resource]
            while not future.done():
                yield LOOK_S
            try:
                future.result()
                return
            except KafkaException as error:
                said = str(error)
            yield LOOK_S
        found("stuck", f"{KEY}={value!r} of broker {self._broker} was not taken within {self._limit_s:g} s: {said}")
