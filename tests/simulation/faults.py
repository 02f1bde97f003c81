"""What befalls a simulated cluster: a schedule that is a function of the seed alone.

Owns the kinds of faults and how they are drawn. A schedule is data, so that a failing one can be made smaller by
leaving things out (shrink.py); doing it is the cluster's.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What can happen."""

    KILL = "kill -9"
    KILL_ALL = "kill -9 of all"
    POWER = "power loss"
    WIPE = "killed, disks replaced by empty ones"
    STOP = "SIGSTOP"
    RESTART = "controlled restart"
    ISOLATE = "network: one broker from all"
    CUT = "network: one way between two brokers"
    RESET = "network: connections reset"
    SLOW = "network: slow"
    HANG = "disk hangs"
    CRASH_IN_IO = "killed in the middle of a disk operation"
    CLOCK = "clock jumps"
    ELECT = "preferred leaders elected"
    DISK_CALL = "disk: one call fails"
    DISK_FILE = "disk: one file fails"
    DISK_DEAD = "disk: dead"
    DISK_READ_ONLY = "disk: read only"
    DISK_FULL = "disk: full"
    DISK_TORN = "disk: a torn write"
    DISK_FLIP = "disk: a flipped bit"
    STORE_FLUSH = "metadata directory: a flush fails"
    STORE_DEAD = "metadata directory: dead"
    STORE_HANG = "metadata directory: hangs"
    STORE_WIPE = "metadata directory: wiped"
    STORE_SWAP = "metadata directory: one is left out and comes back when the other is gone"
    NEW_TOPIC = "a topic is made"
    NEW_TOPIC_KILL = "a topic is made, the controller killed"
    REASSIGN = "replicas move between brokers"
    CORDON = "log directories cordoned"
    MIN_ISR = "min.insync.replicas altered"
    ZK_EXPIRE = "ensemble: a session expires"
    ZK_LOST = "ensemble: the answer to a write, or its request, is lost"
    ZK_SLOW = "ensemble: slow"
    ZK_AWAY = "ensemble: away, or a server of it"
    ZK_BEHIND = "ensemble: a server is behind, and connections hop to it"
    ZK_CUT = "ensemble: one broker cut off, or one way"
    ZK_FREEZE = "the controller is frozen for longer than its session"
    ZK_RETURN = "the controller is killed and comes back inside its session"
    ZK_DEPOSE = "somebody deletes /controller"
    ZK_APART = "the controller's session expires where nobody else reaches it"


WEIGHTS: dict[Kind, int] = {
    Kind.KILL: 20, Kind.KILL_ALL: 3, Kind.POWER: 6, Kind.WIPE: 4, Kind.STOP: 8, Kind.RESTART: 10,
    Kind.ISOLATE: 10, Kind.CUT: 10, Kind.RESET: 8, Kind.SLOW: 5, Kind.HANG: 6, Kind.CRASH_IN_IO: 8, Kind.CLOCK: 4,
    Kind.ELECT: 4, Kind.STORE_FLUSH: 3,
    Kind.STORE_DEAD: 3, Kind.STORE_HANG: 3, Kind.STORE_WIPE: 2, Kind.STORE_SWAP: 2,
    Kind.NEW_TOPIC: 2, Kind.NEW_TOPIC_KILL: 3,
    Kind.REASSIGN: 12, Kind.CORDON: 5, Kind.MIN_ISR: 4,
}  # fmt: skip
DISK_WEIGHTS: dict[Kind, int] = {
    Kind.DISK_CALL: 12, Kind.DISK_FILE: 4, Kind.DISK_DEAD: 8, Kind.DISK_READ_ONLY: 4, Kind.DISK_FULL: 4,
    Kind.DISK_TORN: 4, Kind.DISK_FLIP: 6,
}  # fmt: skip
"""Beside the others, in runs in which disks may lose data."""
ENSEMBLE_WEIGHTS: dict[Kind, int] = {
    **{kind: weight for kind, weight in WEIGHTS.items() if not kind.name.startswith("STORE_")},
    Kind.ZK_EXPIRE: 8, Kind.ZK_LOST: 8, Kind.ZK_SLOW: 4, Kind.ZK_AWAY: 6, Kind.ZK_BEHIND: 6, Kind.ZK_CUT: 6,
    Kind.ZK_FREEZE: 5, Kind.ZK_RETURN: 4, Kind.ZK_DEPOSE: 3,
    Kind.ZK_APART: 3,
}  # fmt: skip
"""Where the metadata is in an ensemble, and not in directories."""
HANGS = (Kind.HANG, Kind.STORE_HANG)
MINUTES_S = (20.0, 600.0)
"""What a third of the hangs last: past every limit that something waits for."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them. ``at_s`` counts from the start of the load; ``broker`` and ``other`` are indexes of nodes."""

    at_s: float
    kind: Kind
    broker: int
    other: int
    for_s: float

    def __str__(self) -> str:
        return f"{self.kind.value}: broker {self.broker + 1}, {self.other + 1}, for {self.for_s:.3f} s"


def schedule(
    rng: random.Random, brokers: int, duration_s: float, every_s: float, weights: Mapping[Kind, int]
) -> list[Fault]:
    """Faults about every ``every_s`` seconds; some come close together, some overlap."""
    kinds, shares = list(weights), list(weights.values())
    faults: list[Fault] = []
    at = rng.uniform(0, every_s)
    while at < duration_s:
        broker, other = rng.sample(range(brokers), 2)
        lasts = rng.choice((rng.uniform(0.05, 1), rng.uniform(0.5, 5), rng.uniform(3, 20)))
        kind = rng.choices(kinds, shares)[0]
        if kind in HANGS and rng.random() < 1 / 3:
            lasts = rng.uniform(*MINUTES_S)
        faults.append(Fault(round(at, 3), kind, broker, other, round(lasts, 3)))
        at += rng.choice((rng.uniform(0, 0.2), rng.uniform(0, every_s), rng.uniform(0, 2.4 * every_s)))
    return faults


def without(faults: Sequence[Fault], start: int, count: int) -> list[Fault]:
    """The schedule with some left out."""
    return [*faults[:start], *faults[start + count :]]
