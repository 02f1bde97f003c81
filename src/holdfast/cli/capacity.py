"""``holdfast capacity``: what leaving RAID-10 for plain disks costs and gains, by replication factor (K112-98).

Pure arithmetic on copies of the data. RAID-10 keeps each replica twice; a broker with plain disks keeps it once.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import click

from holdfast.cli.failing import OneLineCommand
from holdfast.cli.log_dir_lines import size

FACTORS = (2, 3, 4)
_UNITS = {unit: 1024**power for power, unit in enumerate(("", "K", "M", "G", "T", "P"))}


class Plan(NamedTuple):
    """One way to keep the data. ``copies``: how often each byte lies on a disk."""

    name: str
    factor: int
    copies: int

    @property
    def disks_lost(self) -> int:
        """Disks that may fail at worst, all at the same moment, without losing data."""
        return self.copies - 1

    @property
    def brokers_lost(self) -> int:
        return self.factor - 1


def plans(before: int) -> list[Plan]:
    """RAID-10 with replication factor ``before``, then plain disks with each of FACTORS."""
    return [
        Plan(f"RAID-10, replication factor {before}", before, 2 * before),
        *(Plan(f"plain disks, replication factor {n}", n, n) for n in FACTORS),
    ]


def change(now: int, before: int) -> str:
    """``-25 %``."""
    percent = round(100 * (now - before) / before)
    return "same" if not percent else f"{percent:+d} %"


def tolerance(now: int, before: int) -> str:
    return "same" if now == before else "lower" if now < before else "higher"


class Bytes(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.2
    """``500G``, ``1.5TiB``."""

    name = "SIZE"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?", value.strip(), re.IGNORECASE)
        if match is None:
            self.fail(f"{value!r}: expected a size like 500G or 1.5T", param, ctx)
        return int(float(match[1]) * _UNITS[match[2].upper()])


@click.command(cls=OneLineCommand)
@click.option("--data", type=Bytes(), help="How much there is to keep, once: adds what it takes.")
@click.option(
    "--before", type=click.IntRange(1, 10), default=2, show_default=True, help="Replication factor on RAID-10."
)
def capacity(data: int | None, before: int) -> None:
    """What replication factor to take when RAID-10 gives way to plain disks: room against failures survived."""
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("")
    for name in ("disk space", "brokers that may fail", "disks that may fail", "min.insync.replicas"):
        table.add_column(name, justify="right")
    was, *rest = plans(before)
    for plan in (was, *rest):
        space = "as it is" if plan is was else change(plan.copies, was.copies)
        if data is not None:
            space = f"{size(data * plan.copies)} ({space})"
        disks = str(plan.disks_lost)
        if plan is not was:
            disks += f" ({tolerance(plan.disks_lost, was.disks_lost)})"
        table.add_row(plan.name, space, str(plan.brokers_lost), disks, str(max(1, plan.factor - 1)))
        if plan is was:
            table.add_section()
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "Failures are counted at worst: all at once, of what holds the same record. With min.insync.replicas one below"
        " the replication factor, writes with acks=all go on while one broker or one disk is away.",
        soft_wrap=True,
    )
