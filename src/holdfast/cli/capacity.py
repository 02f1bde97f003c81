"""``holdfast capacity``: what leaving RAID-10 for plain disks costs and gains, by replication factor (K112-98).

Pure arithmetic on copies of the data. RAID-10 keeps each replica twice; a broker with plain disks keeps it once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import click

from holdfast.cli.columns import table_lines
from holdfast.cli.connecting import json_option
from holdfast.cli.failing import OneLineCommand
from holdfast.cli.log_dir_lines import size

FACTORS = (2, 3, 4)


class CapacityPlan(NamedTuple):
    """One way to keep the data. ``copies``: how often each byte lies on a disk."""

    layout: str
    factor: int
    copies: int

    @property
    def disks_lost(self) -> int:
        """Disks that may fail at worst, all at the same moment, without losing data."""
        return self.copies - 1

    @property
    def min_isr(self) -> int:
        return max(1, self.factor - 1)

    @property
    def brokers_lost(self) -> int:
        return self.factor - 1


def plans(before: int) -> list[CapacityPlan]:
    """RAID-10 with replication factor ``before``, then plain disks with each of FACTORS."""
    return [
        CapacityPlan("RAID-10", before, 2 * before),
        *(CapacityPlan("plain disks", n, n) for n in FACTORS),
    ]


def change(now: int, before: int) -> str:
    """``-25 %``."""
    percent = round(100 * (now - before) / before)
    return "same" if not percent else f"{percent:+d} %"


def tolerance(now: int, before: int) -> str:
    return "same" if now == before else "lower" if now < before else "higher"


class Bytes(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """``500G``, ``1.5TiB``, and ``10TB`` by thousands, as disks are sold."""

    name = "SIZE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?B)?", value.strip(), re.IGNORECASE)
        power = 0 if match is None else "KMGTP".find(match[2].upper()) + 1 if match[2] else 0
        bytes_ = (
            0 if match is None else int(float(match[1]) * (1000 if (match[3] or "").upper() == "B" else 1024) ** power)
        )
        if not bytes_:
            self.fail(f"{value!r}: expected a size like 500G, 1.5TiB or 10TB", param, ctx)
        return bytes_


@click.command(cls=OneLineCommand)
@click.option(
    "--data", type=Bytes(), help="How much there is to keep, once: adds what it takes. 10T is 10TiB; 10TB is less."
)
@click.option(
    "--before", type=click.IntRange(1, 10), default=2, show_default=True, help="Replication factor on RAID-10."
)
@json_option()
def capacity(data: int | None, before: int, as_json: bool) -> None:
    """What replication factor to take when RAID-10 gives way to plain disks: room against failures survived."""
    click.echo(capacity_document(data, before) if as_json else "\n".join(capacity_lines(data, before)))


def capacity_lines(data: int | None, before: int) -> Iterator[str]:
    """A table of four lines in 80 columns, and what it means. Pure."""
    was, *_ = every = plans(before)
    rows = []
    for plan in every:
        space = "as it is" if plan is was else change(plan.copies, was.copies)
        if data is not None:
            space = f"{size(data * plan.copies)} ({space})"
        disks = str(plan.disks_lost)
        if plan is not was:
            disks += f" ({tolerance(plan.disks_lost, was.disks_lost)})"
        rows.append((plan.layout, str(plan.factor), space, str(plan.brokers_lost), disks, str(plan.min_isr)))
    header = ("LAYOUT", "REPLICATION", "DISK SPACE", "BROKERS", "DISKS", "MIN ISR")
    yield from table_lines(header, rows, right=(1, 2, 3, 4, 5))
    yield (
        "BROKERS, DISKS: how many may fail, at worst: all at once, of what holds the same record. MIN ISR: with"
        " min.insync.replicas one below the replication factor, writes with acks=all go on while one is away."
    )


def capacity_document(data: int | None, before: int) -> str:
    """The same as JSON; the first is what there is now. Pure."""
    found = [
        {
            "layout": plan.layout,
            "replication_factor": plan.factor,
            "copies": plan.copies,
            "bytes": None if data is None else data * plan.copies,
            "brokers_that_may_fail": plan.brokers_lost,
            "disks_that_may_fail": plan.disks_lost,
            "min_insync_replicas": plan.min_isr,
        }
        for plan in plans(before)
    ]
    return json.dumps({"version": 1, "plans": found})
