"""What is done to a lake in one run. Pure: a seed in, a plan out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

FORMATS: Final = ("delta", "iceberg", "parquet")
DRIVER_STEPS: Final = ("planned", "written", "side commit", "side committed", "commit", "committed", "landed")
"""``landed`` is before Spark's own commit."""
TASK_STEPS: Final = ("fetched", "written")
"""Of a Python worker, and of the JVM that it works for."""
BROKER_STEPS: Final = ("planned", "written", "committed")
MOMENTS: Final = ("any",)
"""The driver at a random moment: also within commits and upkeep."""

Victim = Literal["driver", "worker", "executor", "broker", "moment"]
CHECKPOINTS: Final = ("kept", "kept", "deleted", "restored", "cut short")


@dataclass(frozen=True, slots=True)
class Blow:
    """One kill -9."""

    victim: Victim
    step: str
    batch: int
    """Of this driver: its first is 0."""
    after_s: float
    """Of ``moment``: from the first step on."""
    checkpoint: str
    """What happens to the checkpoint before the next driver."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run: a table, and the blows until a driver is left alone."""

    seed: int
    format: str
    records: int
    partitions: int
    bad_share: float
    values: Literal["json", "avro"]
    transactions: bool
    """Records are of transactions, of which every third is aborted."""
    blows: tuple[Blow, ...]


def cells() -> list[tuple[str, Victim, str]]:
    """Every format, victim and step."""
    kinds: list[tuple[Victim, str]] = [("driver", step) for step in DRIVER_STEPS]
    kinds += [("worker", step) for step in TASK_STEPS]
    kinds += [("executor", step) for step in TASK_STEPS]
    kinds += [("broker", step) for step in BROKER_STEPS]
    kinds += [("moment", step) for step in MOMENTS]
    return [(form, *kind) for form, kind in product(FORMATS, kinds)]


def plans(seed: int, kills: int, *, each: int = 5, transactions: bool = False) -> list[Plan]:
    """Runs with ``kills`` blows in all, ``each`` to a run at most; every cell comes once before one comes twice."""
    chance = random.Random(seed)
    waiting: dict[str, list[tuple[Victim, str]]] = {form: [] for form in FORMATS}
    found: list[Plan] = []
    left, number = kills, 0
    while left > 0:
        form = FORMATS[number % len(FORMATS)]
        blows = []
        for _ in range(min(each, left)):
            if not waiting[form]:
                waiting[form] = [(victim, step) for its, victim, step in cells() if its == form]
                chance.shuffle(waiting[form])
            victim, step = waiting[form].pop()
            blows.append(Blow(victim, step, chance.choice((0, 0, 1)), chance.uniform(0, 4), chance.choice(CHECKPOINTS)))
        left -= len(blows)
        found.append(
            Plan(
                seed=seed + number,
                format=form,
                records=chance.choice((400, 2_000)),
                partitions=chance.choice((1, 3)),
                bad_share=chance.choice((0.0, 0.1)) if not any("side" in blow.step for blow in blows) else 0.1,
                values=chance.choice(("json", "avro")),
                transactions=transactions,
                blows=tuple(blows),
            )
        )
        number += 1
    return found
