"""What a run found, as a table and as JSON. Pure: numbers in, text out."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tests.checks.ledger import Verdict

if TYPE_CHECKING:
    from rich.table import Table

LOST = ("lost", "undelivered")
DUPLICATED = ("duplicated",)
REORDERED = ("reordered", "order")
SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """How one round went."""

    name: str
    pause_s: float
    """The longest time without an ack in some partition, from the beginning of the round to its end."""
    pause_place: str
    heal_s: float | None
    """From the end of the faults until every replica was in sync and every partition took records; None: it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything about a run."""

    seed: int
    command: str
    commit: str
    network: str
    minutes: float
    planned_minutes: float
    rounds: Sequence[RoundResult]
    faults: Mapping[str, int]
    kills: int
    starts: int
    topics: int
    """Topics made and deleted beside the faults."""
    rebalances: int
    verdict: Verdict
    client_errors: Mapping[str, int]
    broker_cpu_s: float
    client_cpu_s: float
    disk_mb: float
    memory_mb: float
    notes: Sequence[str] = field(default=())

    @property
    def kills_per_minute(self) -> float:
        return self.kills / self.minutes if self.minutes else 0.0

    @property
    def ok(self) -> bool:
        return not self.verdict.violations


def table(outcome: Outcome) -> Table:
    """For a person."""
    from rich.table import Table

    shown = Table(title="make chaos", show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    totals, count = outcome.verdict.totals, outcome.verdict.count
    shown.add_row("minutes", f"{outcome.minutes:.1f}")
    for name, number in sorted(outcome.faults.items(), key=lambda item: (-item[1], item[0])):
        shown.add_row(f"  {name}", f"{number:,}")
    shown.add_row("processes killed, a minute", f"{outcome.kills:,}, {outcome.kills_per_minute:.1f}")
    shown.add_row("topics made and deleted", f"{outcome.topics:,}")
    shown.add_row("rebalances of the group", f"{outcome.rebalances:,}", end_section=True)
    shown.add_row("records sent", f"{totals.sent:,}")
    shown.add_row("records acknowledged", f"{totals.acked:,}")
    shown.add_row("told to have failed, without an answer", f"{totals.failed:,}, {totals.open:,}")
    shown.add_row("records in the logs", f"{totals.in_logs:,}")
    shown.add_row("records read, ends asked for", f"{totals.reads:,}, {totals.ends:,}", end_section=True)
    shown.add_row("acknowledged records lost", f"{count(*LOST):,}")
    shown.add_row("records duplicated", f"{count(*DUPLICATED):,}")
    shown.add_row("records reordered", f"{count(*REORDERED):,}")
    others = len(outcome.verdict.violations) - count(*LOST, *DUPLICATED, *REORDERED)
    shown.add_row("other violations", f"{others:,}", end_section=True)
    pauses = worst(outcome.rounds)
    if pauses is not None:
        shown.add_row("longest write pause", f"{pauses.pause_s:.1f} s in {pauses.pause_place}")
        shown.add_row("", f"({pauses.name})")
    heals = [result.heal_s for result in outcome.rounds if result.heal_s is not None]
    if heals:
        shown.add_row("all in sync after a fault, p50 and max", f"{statistics.median(heals):.1f} s, {max(heals):.1f} s")
    seconds = outcome.minutes * 60
    shown.add_row(
        "CPU of brokers and clients, of a core",
        f"{outcome.broker_cpu_s / seconds:.0%}, {outcome.client_cpu_s / seconds:.0%}",
    )
    shown.add_row("disk, memory of the clients", f"{outcome.disk_mb:,.0f} MB, {outcome.memory_mb:,.0f} MB")
    shown.caption = "; ".join(outcome.notes) or None
    return shown


def worst(rounds: Sequence[RoundResult]) -> RoundResult | None:
    """The round with the longest pause."""
    return max(rounds, key=lambda result: result.pause_s, default=None)


def pauses_by_kind(rounds: Sequence[RoundResult]) -> dict[str, tuple[int, float, float]]:
    """Name of the round's faults -> (rounds, median and longest pause in seconds)."""
    by_name: dict[str, list[float]] = {}
    for result in rounds:
        by_name.setdefault(result.name, []).append(result.pause_s)
    return {name: (len(found), statistics.median(found), max(found)) for name, found in sorted(by_name.items())}


def ending(outcome: Outcome, directory: str) -> list[str]:
    """The last lines: what is wrong, or that nothing is."""
    violations = outcome.verdict.violations
    if not violations:
        return [f"No violation. {outcome.command}"]
    lines = [f"{violation.kind}: {violation.text}" for violation in violations[:SHOWN]]
    if len(violations) > SHOWN:
        lines.append(f"... and {len(violations) - SHOWN} more")
    return [*lines, f"{len(violations)} violations. Ledger and logs: {directory}", f"Again: {outcome.command}"]


def as_json(outcome: Outcome) -> dict[str, Any]:
    """All of it, for later."""
    return {**asdict(outcome), "pauses": pauses_by_kind(outcome.rounds), "ok": outcome.ok}
