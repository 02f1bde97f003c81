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
class Death:
    """What came of killing the controller."""

    broker: int
    was_controller: bool
    next_controller: int | None
    pause_s: float
    """The longest time that a partition that it led had no acknowledgement around the kill."""
    back_in_sync_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LostDisk:
    """What came of a log directory that died and was healed."""

    broker: int
    path: str
    how: str
    replicas: int
    led: tuple[int, ...]
    """Partitions whose leader was on it."""
    detected_s: float
    """From the fault until the broker had given the directory up."""
    resumed_s: float
    """From the fault to the first acknowledgement after a new leader was known, of the slowest partition."""
    back_in_sync_s: float
    """From asking for it again until every replica was in sync."""
    same_process: bool
    """The broker lived on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostHost:
    """What came of the controller's host when it lost its power and had it again."""

    host: int
    """Its broker has the same number."""
    led: tuple[int, ...]
    """Partitions whose leader was on it."""
    next_controller: int | None
    led_ensemble: bool
    """The leader of the ZooKeeper ensemble was on it too: its election comes before all others."""
    session_s: float
    tick_s: float
    slack_s: float
    new_client_s: float
    """From the end of its power to the acknowledgement of a write by a client that connected then, to a partition
    that was led there."""
    resumed_s: float
    """The same for the load: its first acknowledgement after that one, of the slowest partition."""
    back_in_sync_s: float
    """From its power on until every replica was in sync."""

    @property
    def allowed_s(self) -> float:
        """For the new client, where the ensemble had no election."""
        return self.session_s + self.tick_s + self.slack_s


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
    orphans: tuple[str, ...]
    """Data files beside the table that no commit names."""
    blow: Death | LostDisk | LostHost
    """What was done to the cluster half way."""
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
        ("data files that the table does not name", len(o.orphans), "expected", 0),
        ("records audited", o.audited_records, "records acknowledged", o.acked),
    ]
    found = [f"{name}: {value:,}, {against}: {other:,}" for name, value, against, other in counts if value != other]
    if isinstance(o.blow, Death) and not o.blow.was_controller:
        found.append(f"the killed broker {o.blow.broker} was not the controller")
    if isinstance(o.blow, LostDisk) and not o.blow.same_process:
        found.append(f"broker {o.blow.broker} did not survive its disk: it is another process now")
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
    table.add_row("rows landed in the Iceberg table", f"{o.landed:,}")
    table.add_row("bad records beside them", f"{o.landed_bad:,}")
    table.add_row(f"records audited, in {o.audited_replicas} replicas", f"{o.audited_records:,}")
    table.add_section()
    for what, value in _blow(o):
        table.add_row(what, value)
    table.add_section()
    for name, (flights, minutes) in _worst(o.by_carrier, 3):
        table.add_row(f"mean arrival delay, carrier {name}", f"{minutes / flights:.1f} min of {flights:,}")
    for name, (flights, minutes) in _worst(o.by_hour, 1):
        table.add_row(f"worst hour to leave, {name}:00", f"{minutes / flights:.1f} min of {flights:,}")
    table.add_section()
    table.add_row("all of it", f"{o.seconds:.0f} s")
    return table


def _blow(o: Outcome) -> list[tuple[str, str]]:
    if isinstance(o.blow, Death):
        return _death(o.blow)
    return _lost_host(o.blow) if isinstance(o.blow, LostHost) else _lost_disk(o)


def _death(death: Death) -> list[tuple[str, str]]:
    successor = death.next_controller
    return [
        ("kill -9 of the controller", f"broker {death.broker}"),
        ("controller after it", "none" if successor is None else f"broker {successor}"),
        ("longest time without a leader, as the client saw it", f"{death.pause_s * 1000:,.0f} ms"),
        ("from its start until in sync everywhere", f"{death.back_in_sync_s:.1f} s"),
    ]


def _lost_disk(o: Outcome) -> list[tuple[str, str]]:
    lost = o.blow
    assert isinstance(lost, LostDisk)
    nothing_lost = o.acked == o.audited_records == o.in_log and not o.audit_differences
    return [
        (f"a disk of broker {lost.broker} died", lost.path.rpartition("/")[2]),
        ("replicas on it, leaders among them", f"{lost.replicas}, {len(lost.led)}"),
        ("from the fault until the broker had given it up", f"{lost.detected_s * 1000:,.0f} ms"),
        ("from the fault to the first ack of every new leader", f"{lost.resumed_s * 1000:,.0f} ms"),
        ("acknowledged records that the audit misses", "none" if nothing_lost else "some: see below"),
        ("broker restarted", "no" if lost.same_process else "yes"),
        ("from log-dirs online until in sync everywhere", f"{lost.back_in_sync_s:.1f} s"),
    ]


def _lost_host(lost: LostHost) -> list[tuple[str, str]]:
    successor = lost.next_controller
    election = " and its election" if lost.led_ensemble else ""
    return [
        ("powered off, with the controller", f"host-{lost.host}"),
        ("the leader of the ensemble was there too", "yes" if lost.led_ensemble else "no"),
        ("controller after it", "none" if successor is None else f"broker {successor}"),
        ("from its last sign of life to the ack of a new client", f"{lost.new_client_s:.1f} s"),
        (f"session {lost.session_s:g} s + tickTime {lost.tick_s:g} s + {lost.slack_s:g} s{election}",
         f"{lost.allowed_s:.1f} s"),
        ("to the first ack of the load by every new leader", f"{lost.resumed_s:.1f} s"),
        ("from its power on until in sync everywhere", f"{lost.back_in_sync_s:.1f} s"),
    ]  # fmt: skip


def _worst(groups: Aggregates, count: int) -> list[tuple[str, tuple[int, int]]]:
    flown = [(name, group) for name, group in groups.items() if group[0]]
    return sorted(flown, key=lambda item: item[1][1] / item[1][0], reverse=True)[:count]
