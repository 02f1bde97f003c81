"""What the demo found, as a table, and what must be equal for it to have succeeded.

Pure: numbers in, differences and a table out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

Aggregates = dict[str, tuple[int, int]]
"""Name of a group -> (flights, sum of their arrival delays in minutes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that one run of the demo measured."""

    flights: int
    """Rows of the table."""
    sent: int
    acked: int
    failed: int
    duplicate_places: int
    """Acknowledgements that name a place which another one has named."""
    in_log: int
    """Records between the start and end offsets of all partitions."""
    landed: int
    landed_bad: int
    landed_different: int
    """Landed rows that are not, column by column, the flight that was acknowledged at that offset."""
    killed_broker: int
    was_controller: bool
    new_controller: int | None
    back_in_sync_s: float
    pause_s: float
    """The longest time that a partition had no acknowledgement around the kill."""
    audited_partitions: int
    audited_replicas: int
    audited_records: int
    audit_differences: tuple[str, ...]
    by_carrier: Aggregates
    by_carrier_truth: Aggregates
    by_hour: Aggregates
    by_hour_truth: Aggregates
    seconds: float


def differences(outcome: Outcome) -> list[str]:
    """Every way in which the run was not exact; empty when all is well."""
    o = outcome
    counts = [
        ("records sent", o.sent, "flights in the table", o.flights),
        ("records acknowledged", o.acked, "records sent", o.sent),
        ("deliveries that failed", o.failed, "expected", 0),
        ("offsets acknowledged twice", o.duplicate_places, "expected", 0),
        ("records in the log", o.in_log, "records acknowledged", o.acked),
        ("rows landed", o.landed, "records acknowledged", o.acked),
        ("bad records", o.landed_bad, "expected", 0),
        ("landed rows that differ from what was sent", o.landed_different, "expected", 0),
        ("records audited", o.audited_records, "records acknowledged", o.acked),
    ]
    found = [f"{name}: {value:,}, {against}: {other:,}" for name, value, against, other in counts if value != other]
    if not o.was_controller:
        found.append(f"the killed broker {o.killed_broker} was not the controller")
    found += [f"audit: {difference}" for difference in o.audit_differences]
    found += _unequal("carrier", o.by_carrier, o.by_carrier_truth)
    return found + _unequal("hour", o.by_hour, o.by_hour_truth)


def _unequal(what: str, seen: Aggregates, truth: Aggregates) -> list[str]:
    return [
        f"{what} {name}: Spark says (flights, minutes) {seen.get(name)}, the table says {truth.get(name)}"
        for name in sorted(seen.keys() | truth.keys())
        if seen.get(name) != truth.get(name)
    ]


def summary(outcome: Outcome) -> Table:
    """The table at the end of a run."""
    from rich.table import Table

    o = outcome
    table = Table("what happened", "", title="holdfast demo", show_header=False)
    table.columns[1].justify = "right"
    table.add_row("records sent", f"{o.sent:,}")
    table.add_row("records acknowledged by all in-sync replicas", f"{o.acked:,}")
    table.add_row("rows landed as Parquet", f"{o.landed:,}")
    table.add_row("bad records beside them", f"{o.landed_bad:,}")
    table.add_row(f"records audited, in {o.audited_replicas} replicas", f"{o.audited_records:,}")
    table.add_section()
    table.add_row("kill -9 of the controller", f"broker {o.killed_broker}")
    table.add_row("controller after it", "none" if o.new_controller is None else f"broker {o.new_controller}")
    table.add_row("longest time without a leader, as the client saw it", f"{o.pause_s * 1000:,.0f} ms")
    table.add_row("from its start until in sync everywhere", f"{o.back_in_sync_s:.1f} s")
    table.add_section()
    for name, (flights, minutes) in _worst(o.by_carrier, 3):
        table.add_row(f"mean arrival delay, carrier {name}", f"{minutes / flights:.1f} min of {flights:,}")
    for name, (flights, minutes) in _worst(o.by_hour, 1):
        table.add_row(f"worst hour to leave, {name}:00", f"{minutes / flights:.1f} min of {flights:,}")
    table.add_section()
    table.add_row("all of it", f"{o.seconds:.0f} s")
    return table


def _worst(groups: Aggregates, count: int) -> list[tuple[str, tuple[int, int]]]:
    flown = [(name, group) for name, group in groups.items() if group[0]]
    return sorted(flown, key=lambda item: item[1][1] / item[1][0], reverse=True)[:count]
