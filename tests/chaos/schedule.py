"""What happens when: a pure function of the seed.

    schedule(seed, minutes, pace) -> rounds; a round is one fault, or two that overlap, and the cluster heals in between

Owns the kinds of faults and how they are drawn. Kinds come from shuffled decks, so that a short run has few kinds
twice and a long one has them in fixed proportion. Who is the controller at that moment is known only when it
happens: a fault names a role, and which of several.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum


class Kind(Enum):
    """A fault. The value is its name in the schedule and in the table."""

    KILL = "kill -9 of a broker"
    KILL_CONTROLLER = "kill -9 of the controller"
    KILL_TWO = "kill -9 of two brokers"
    KILL_ALL = "kill -9 of all brokers"
    KILL_AGAIN = "kill -9, and again while it recovers"
    STOP = "SIGSTOP of a broker"
    STOP_CONTROLLER = "SIGSTOP of the controller"
    RESTART = "controlled restart of a broker"
    RESTART_CONTROLLER = "controlled restart of the controller"
    CUT_PAIR = "two brokers cut from each other"
    CUT_OFF = "a broker cut off from everyone"
    CUT_OFF_CONTROLLER = "the controller cut off from everyone"
    DEAF = "a broker that is heard and hears nothing"
    MUTE = "a broker that hears and is not heard"
    STORE_KILL = "kill -9 of the ensemble's leader"
    STORE_KILL_FOLLOWER = "kill -9 of a follower of the ensemble"
    STORE_STOP = "SIGSTOP of the ensemble's leader"
    STORE_RESTART = "restart of a server of the ensemble"
    STORE_DOWN = "the whole ensemble down"
    POWER_OFF = "power cut of a host"
    POWER_OFF_CONTROLLER = "power cut of the controller's host"
    POWER_OFF_STORE = "power cut of the host of the ensemble's leader"
    CUT_OFF_STORE = "the host of the ensemble's leader cut off"
    CUT_ONE_WAY = "one direction between two hosts cut"
    NARROW = "a link with little bandwidth"
    LONG = "a link with a long delay"

    @property
    def kills(self) -> int:
        """Processes that it kills with SIGKILL."""
        return _KILLS.get(self, 0)

    @property
    def is_cut(self) -> bool:
        return self in _CUTS

    @property
    def of_controller(self) -> bool:
        return self in _OF_CONTROLLER

    @property
    def of_store(self) -> bool:
        """It befalls servers of ZooKeeper."""
        return self in _OF_STORE

    @property
    def of_host(self) -> bool:
        """It needs hosts."""
        return self in _OF_HOST

    @property
    def cuts_power(self) -> bool:
        """What a broker had not flushed is gone: nothing else may take copies away meanwhile."""
        return self in _POWER


_KILLS = {Kind.KILL: 1, Kind.KILL_CONTROLLER: 1, Kind.KILL_TWO: 2, Kind.KILL_ALL: 3, Kind.KILL_AGAIN: 2}
_CUTS = {Kind.CUT_PAIR, Kind.CUT_OFF, Kind.CUT_OFF_CONTROLLER, Kind.DEAF, Kind.MUTE}
_STOPS = {Kind.STOP, Kind.STOP_CONTROLLER}
_OF_CONTROLLER = {
    Kind.KILL_CONTROLLER, Kind.STOP_CONTROLLER, Kind.RESTART_CONTROLLER, Kind.CUT_OFF_CONTROLLER,
    Kind.POWER_OFF_CONTROLLER,
}  # fmt: skip
_OF_STORE = {Kind.STORE_KILL, Kind.STORE_KILL_FOLLOWER, Kind.STORE_STOP, Kind.STORE_RESTART, Kind.STORE_DOWN}
_POWER = {Kind.POWER_OFF, Kind.POWER_OFF_CONTROLLER, Kind.POWER_OFF_STORE}
_LINKS = {Kind.CUT_OFF_STORE, Kind.CUT_ONE_WAY, Kind.NARROW, Kind.LONG}
_OF_HOST = _POWER | _LINKS

DECK = {
    Kind.KILL: 4,
    Kind.KILL_CONTROLLER: 4,
    Kind.KILL_TWO: 2,
    Kind.KILL_ALL: 2,
    Kind.KILL_AGAIN: 2,
    Kind.STOP: 2,
    Kind.STOP_CONTROLLER: 1,
    Kind.RESTART: 2,
    Kind.RESTART_CONTROLLER: 1,
    Kind.CUT_PAIR: 2,
    Kind.CUT_OFF: 2,
    Kind.CUT_OFF_CONTROLLER: 1,
    Kind.DEAF: 1,
    Kind.MUTE: 1,
}
"""How many of each kind in 27 faults: 14 of them kill."""
SHORT_DECK = dict.fromkeys(
    (
        Kind.KILL,
        Kind.KILL_CONTROLLER,
        Kind.KILL_ALL,
        Kind.KILL_AGAIN,
        Kind.STOP,
        Kind.RESTART,
        Kind.CUT_OFF,
        Kind.CUT_PAIR,
    ),
    1,
)
STORE_DECK = dict.fromkeys((Kind.STORE_KILL, Kind.STORE_STOP, Kind.STORE_RESTART, Kind.STORE_DOWN), 1)
"""Added where the metadata is in one ZooKeeper server."""
HOSTS_DECK = {
    Kind.POWER_OFF: 2,
    Kind.POWER_OFF_CONTROLLER: 2,
    Kind.POWER_OFF_STORE: 2,
    Kind.CUT_OFF_STORE: 2,
    Kind.CUT_ONE_WAY: 2,
    Kind.NARROW: 2,
    Kind.LONG: 2,
    Kind.STORE_KILL: 2,
    Kind.STORE_KILL_FOLLOWER: 1,
    Kind.STORE_STOP: 1,
    Kind.STORE_RESTART: 1,
    Kind.STORE_DOWN: 1,
    Kind.STOP_CONTROLLER: 2,
}
"""Added on hosts, which have an ensemble: 22 besides the 27."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast it goes; all in seconds."""

    deck: dict[Kind, int]
    apart: tuple[float, float]
    """From the beginning of a round to the beginning of the next."""
    down: tuple[float, float]
    """How long a killed broker stays away."""
    session_timeout: float
    """``broker.session.timeout.ms``: a stop is longer."""
    beyond_session: tuple[float, float]
    """How much longer a stop is."""
    cut: tuple[float, float]
    again: tuple[float, float]
    """How long a broker recovers until it is killed again: it needs half a second to serve."""
    overlap: float
    """How likely a round has two faults."""
    store_down: float = 60
    """How long the whole ensemble is away."""

    def with_deck(self, more: Mapping[Kind, int]) -> Pace:
        """The same with more cards."""
        return replace(self, deck=dict(Counter(self.deck) + Counter(more)))


FULL = Pace(
    deck=DECK,
    apart=(15, 25),
    down=(0.3, 6),
    session_timeout=9,
    beyond_session=(0.5, 4),
    cut=(2, 14),
    again=(0.2, 2.5),
    overlap=0.2,
)
"""With the settings that brokers have by default."""
SHORT = Pace(
    deck=SHORT_DECK,
    apart=(2.5, 4),
    down=(0.1, 0.6),
    session_timeout=2,
    beyond_session=(0.3, 0.6),
    cut=(1, 3),
    again=(0.2, 1),
    overlap=0.25,
    store_down=5,
)
"""For a test of half a minute: a session timeout of 2 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``after_s``: from the beginning of its round. ``choice``: which broker, where several will do."""

    kind: Kind
    choice: int
    after_s: float
    lasts_s: float
    again_s: float
    """From the start of the killed broker to the second kill, where there is one."""

    def __str__(self) -> str:
        return f"{self.kind.value} #{self.choice}, after {self.after_s:.1f} s for {self.lasts_s:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Faults that begin together or overlap. ``at_s``: from the run's beginning, or later if healing takes long."""

    at_s: float
    faults: tuple[Fault, ...]

    @property
    def name(self) -> str:
        return " + ".join(fault.kind.value for fault in self.faults)

    def __str__(self) -> str:
        return f"{self.at_s:7.1f} s  " + "; ".join(map(str, self.faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """A topic that comes or goes beside the faults."""

    at_s: float
    name: str
    partitions: int | None
    """None: it is deleted."""


def schedule(seed: int, seconds: float, pace: Pace) -> tuple[Round, ...]:
    """The rounds of a run. A longer run of the same seed begins like a shorter one."""
    rng = random.Random(f"rounds {seed}")
    kinds = _kinds(rng, pace.deck)
    rounds = []
    at_s = rng.uniform(*pace.apart) / 4
    while at_s < seconds:
        first = _fault(next(kinds), rng, pace, 0.0)
        faults = (first,)
        if rng.random() < pace.overlap:
            second = _fault(next(kinds), rng, pace, rng.uniform(0, first.lasts_s))
            faults = (second,) if second.kind.cuts_power else (first, second)
        if first.kind.cuts_power:
            faults = (first,)
        rounds.append(Round(at_s=at_s, faults=faults))
        at_s += rng.uniform(*pace.apart)
    return tuple(rounds)


def topic_changes(seed: int, seconds: float, every_s: float) -> tuple[TopicChange, ...]:
    """Topics are made and deleted, and some names are used again at once."""
    rng = random.Random(f"topics {seed}")
    changes: list[TopicChange] = []
    there: list[str] = []
    at_s, number = rng.uniform(0, every_s), 0
    while at_s < seconds:
        if there and (len(there) >= 3 or rng.random() < 0.5):
            name = there.pop(rng.randrange(len(there)))
            changes.append(TopicChange(at_s=at_s, name=name, partitions=None))
            if rng.random() < 0.4:
                changes.append(TopicChange(at_s=at_s, name=name, partitions=rng.choice((1, 2, 4))))
                there.append(name)
        else:
            number += 1
            there.append(f"passing-{number}")
            changes.append(TopicChange(at_s=at_s, name=there[-1], partitions=rng.choice((1, 2, 4))))
        at_s += rng.uniform(0.5, 1.5) * every_s
    return tuple(changes)


def _kinds(rng: random.Random, deck: dict[Kind, int]) -> Iterator[Kind]:
    cards = [kind for kind, count in deck.items() for _ in range(count)]
    while True:
        yield from rng.sample(cards, len(cards))


def _fault(kind: Kind, rng: random.Random, pace: Pace, after_s: float) -> Fault:
    if kind is Kind.STORE_DOWN:
        lasts_s = pace.store_down
    elif kind.is_cut or kind.of_host or kind is Kind.STORE_STOP:
        lasts_s = rng.uniform(*pace.cut)
    elif kind in _STOPS:
        lasts_s = pace.session_timeout + rng.uniform(*pace.beyond_session)
    else:
        lasts_s = rng.uniform(*pace.down)
    again_s = rng.uniform(*pace.again)
    return Fault(
        kind=kind,
        choice=rng.randrange(6),
        after_s=round(after_s, 2),
        lasts_s=round(lasts_s, 2),
        again_s=round(again_s, 2),
    )
