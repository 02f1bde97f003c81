"""What is done to a lake in one run. Pure: a seed in, a plan out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

FORMATS: Final = ("delta", "iceberg", "parquet")
VALUES: Final = ("json", "avro")
UPKEEP_STEPS: Final = ("rewritten", "replaced", "expired")
DRIVER_STEPS: Final = (
    "planned", "written", "side commit", "side committed", "commit", "inside", "committed", "landed", *UPKEEP_STEPS
)  # fmt: skip
"""``inside`` is as soon as a commit has made its first file, ``landed`` is before Spark's own commit."""
TASK_STEPS: Final = ("fetched", "written")
"""Of a Python worker, and of the JVM that it works for."""
BROKER_STEPS: Final = ("planned", "fetched", "written", "commit", "committed", "landed", "replaced")
MOMENTS: Final = ("any",)
"""The driver at a random moment: also within commits and upkeep."""

Victim = Literal["driver", "worker", "executor", "broker", "moment"]
FATAL: Final = ("driver", "moment")
"""What ends a driver; after the others it goes on."""
CHECKPOINTS: Final = ("kept", "kept", "deleted", "restored", "cut short")
Cell = tuple[str, str, Victim, str]


@dataclass(frozen=True, slots=True)
class Blow:
    """One kill -9."""

    victim: Victim
    step: str
    after_s: float
    """Of ``moment``: from the first step of its batch on."""


@dataclass(frozen=True, slots=True)
class Drive:
    """One driver: the first blow is due in its first batch, the next in its second. The last may be its end."""

    blows: tuple[Blow, ...]
    checkpoint: str
    """What happens to the checkpoint before the next driver."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: a table, and drivers with blows until one is left alone."""

    seed: int
    format: str
    values: str
    records: int
    """Before each driver."""
    partitions: int
    bad_share: float
    transactions: bool
    """Records are of transactions, of which every third is aborted."""
    drives: tuple[Drive, ...]

    @property
    def blows(self) -> tuple[Blow, ...]:
        return tuple(blow for drive in self.drives for blow in drive.blows)


def kinds() -> list[tuple[Victim, str]]:
    """Every victim and step."""
    found: list[tuple[Victim, str]] = [("driver", step) for step in DRIVER_STEPS]
    found += [("worker", step) for step in TASK_STEPS]
    found += [("executor", step) for step in TASK_STEPS]
    found += [("broker", step) for step in BROKER_STEPS]
    found += [("moment", step) for step in MOMENTS]
    return found


def cells() -> list[Cell]:
    """Every format, kind of values, victim and step."""
    return [(form, values, *kind) for form, values, kind in product(FORMATS, VALUES, kinds())]


def plans(seed: int, kills: int, *, each: int = 12, transactions: bool = False) -> list[Plan]:
    """Runs with ``kills`` blows in all, ``each`` to a run at most; every cell comes once before one comes twice.

    The first run of each table is of transactions, and every second one after it; with ``transactions`` all are."""
    chance = random.Random(seed)
    tables = list(product(FORMATS, VALUES))
    chance.shuffle(tables)
    waiting: dict[tuple[str, str], list[tuple[Victim, str]]] = {table: [] for table in tables}
    found: list[Plan] = []
    left, number = kills, 0
    while left > 0:
        table = tables[number % len(tables)]
        blows: list[Blow] = []
        for _ in range(min(each, left, len(waiting[table]) or each)):
            if not waiting[table]:
                waiting[table] = kinds()
                chance.shuffle(waiting[table])
            blows.append(Blow(*waiting[table].pop(), chance.uniform(0, 4)))
        left -= len(blows)
        found.append(
            Plan(
                seed=seed + number,
                format=table[0],
                values=table[1],
                records=chance.choice((400, 2_000)),
                partitions=chance.choice((1, 3)),
                bad_share=chance.choice((0.0, 0.1)) if not any("side" in blow.step for blow in blows) else 0.1,
                transactions=transactions or number // len(tables) % 2 == 0,
                drives=tuple(_drives(blows, chance)),
            )
        )
        number += 1
    return found


def _drives(blows: list[Blow], chance: random.Random) -> list[Drive]:
    """The blows in their order; a fatal one is the last of its driver."""
    found: list[Drive] = []
    some: list[Blow] = []
    for blow in blows:
        some.append(blow)
        if blow.victim in FATAL:
            found.append(Drive(tuple(some), chance.choice(CHECKPOINTS)))
            some = []
    if some:
        found.append(Drive(tuple(some), chance.choice(CHECKPOINTS)))
    return found
