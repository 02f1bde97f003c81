"""What the readings of all replicas mean.

Pure: plans, segment reports and differing batches in; the partitions' verdicts out. Owns which replica must have which
offsets (``windows``) and the sentences that say what is wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.model.types import BrokerId, Offset, TopicPartition
from holdfast.spark.audit_plan import PartitionPlan, ReplicaPlan
from holdfast.spark.audit_result import (
    AuditedState,
    NotCompared,
    PartitionAudit,
    Problem,
    ProblemKind,
    ReplicaAudit,
    numbers,
)
from holdfast.spark.audit_scan import SegmentReport

MAX_PROBLEMS: Final = 20
"""Of one partition that are told one by one."""

Reports = Mapping[tuple[TopicPartition, BrokerId], Sequence[SegmentReport]]
"""What each replica's segments have, in offset order."""


class Window(NamedTuple):
    """Offsets from ``start`` to ``end`` that the same replicas have; bit n of ``mask`` is the replica of slot n."""

    start: Offset
    end: Offset
    mask: int


class Compared(NamedTuple):
    """The batches of one window, counted once for all replicas."""

    batches: int
    records: int
    bytes: int
    different: int


class Copy(NamedTuple):
    """One replica's batch at an offset where replicas differ."""

    broker: BrokerId
    last_offset: Offset
    records: int
    bytes: int
    digest: int


@dataclass(slots=True, kw_only=True)
class Comparison:
    """What the comparison of one partition found: its windows by their start, and its first differences."""

    windows: dict[Offset, Compared] = field(default_factory=dict)
    copies: dict[Offset, list[Copy]] = field(default_factory=dict)


def settled(reports: Iterable[SegmentReport]) -> list[SegmentReport]:
    """Reports in offset order, without what retention took while it was read: the log begins after it now."""
    found = sorted(reports, key=lambda report: report.base_offset)
    gone = [index for index, report in enumerate(found) if report.gone]
    return found[gone[-1] + 1 :] if gone else found


def windows(runs: Mapping[int, Sequence[tuple[Offset, Offset]]], high_watermark: Offset) -> list[Window]:
    """Which slots have which offsets, from the runs of offsets that each slot has without a hole."""
    edges: dict[Offset, list[tuple[int, int]]] = defaultdict(list)
    for slot, spans in runs.items():
        for first, last in spans:
            end = min(last, high_watermark)
            if first < end:
                edges[first].append((slot, 1))
                edges[end].append((slot, -1))
    depth: dict[int, int] = defaultdict(int)
    found: list[Window] = []
    mask, start = 0, 0
    for at in sorted(edges):
        if mask and at > start:
            found.append(Window(start, at, mask))
        for slot, step in edges[at]:
            depth[slot] += step
        mask, start = sum(1 << slot for slot, count in depth.items() if count > 0), at
    return _joined(found)


def _joined(found: Iterable[Window]) -> list[Window]:
    """Neighbours with the same replicas as one: a segment's end is none of the partition's."""
    joined: list[Window] = []
    for window in found:
        if joined and joined[-1].end == window.start and joined[-1].mask == window.mask:
            joined[-1] = joined[-1]._replace(end=window.end)
        else:
            joined.append(window)
    return joined


def windows_of(plan: PartitionPlan, reports: Reports) -> list[Window]:
    """The windows of one partition."""
    runs = {
        replica.slot: [run for report in settled(reports.get((plan.tp, replica.broker), ())) for run in report.runs]
        for replica in plan.replicas
    }
    return windows(runs, plan.high_watermark or 0)


def lagging(plans: Iterable[PartitionPlan], reports: Reports) -> list[TopicPartition]:
    """Partitions of which a replica that was in sync ends before the high watermark: is it in sync still?"""
    return [p.tp for p in plans if any(_is_short(r, _end(r, reports)) for r in p.replicas if r.in_sync)]


def _end(replica: ReplicaPlan, reports: Reports) -> Offset | None:
    found = settled(reports.get((replica.tp, replica.broker), ()))
    return found[-1].end_offset if found else None


def _is_short(replica: ReplicaPlan, end: Offset | None) -> bool:
    return end is not None and end < replica.high_watermark and not replica.compacted


def judge(
    plan: PartitionPlan, reports: Reports, comparison: Comparison, in_sync: Sequence[BrokerId] | None = None
) -> PartitionAudit:
    """One partition's verdict. ``in_sync``: the in-sync replicas after the reading, where that was asked."""
    return _Judge(plan, reports, comparison, in_sync).verdict()


class _Judge:
    """Collects problems and notes of one partition."""

    def __init__(
        self, plan: PartitionPlan, reports: Reports, comparison: Comparison, in_sync: Sequence[BrokerId] | None
    ) -> None:
        self.plan = plan
        self.reports = {r.broker: settled(reports.get((plan.tp, r.broker), ())) for r in plan.replicas}
        self.windows = windows_of(plan, reports)
        self.comparison = comparison
        self.in_sync = in_sync
        self.problems: list[Problem] = []
        self.more = 0
        self.notes: list[str] = []

    def verdict(self) -> PartitionAudit:
        plan = self.plan
        replicas = tuple(self._replica(replica) for replica in plan.replicas)
        compared = [r for r in replicas if r.state is AuditedState.COMPARED]
        if plan.reason is not None:
            self._problem(ProblemKind.UNKNOWN, None, plan.reason)
        elif not compared:
            self._problem(ProblemKind.UNKNOWN, None, "none of its replicas could be read here: nothing was compared")
        elif len(compared) == 1 and len(replicas) > 1:
            only = compared[0].broker
            self.notes.append(f"only broker {only}'s replica could be read: it was checked, and compared with nothing")
        self._starts(compared)
        self._differences()
        return self._sum(replicas, enough=min(2, len(compared)))

    def _sum(self, replicas: tuple[ReplicaAudit, ...], *, enough: int) -> PartitionAudit:
        counted = [w for w in self.windows if w.mask.bit_count() >= max(1, enough)]
        found = [self.comparison.windows.get(w.start, Compared(0, 0, 0, 0)) for w in counted]
        plan = self.plan
        return PartitionAudit(
            tp=plan.tp,
            leader=plan.leader,
            start=0 if plan.high_watermark is None else plan.log_start_offset or 0,
            high_watermark=plan.high_watermark or 0,
            compacted=plan.compacted,
            replicas=replicas,
            compared_from=counted[0].start if counted else None,
            compared_to=counted[-1].end if counted else None,
            batches=sum(c.batches for c in found),
            records=sum(c.records for c in found),
            bytes=sum(c.bytes for c in found),
            problems=tuple(self.problems),
            more_problems=self.more,
            notes=tuple(self.notes),
        )

    # -- one replica -----------------------------------------------------------------------------------------

    def _replica(self, replica: ReplicaPlan) -> ReplicaAudit:
        if replica.reason is not None:
            state = AuditedState.NOT_READABLE
        elif not replica.segments:
            state = AuditedState.MISSING
            where = "in none of its log directories" if replica.directory is None else f"not in {replica.directory}"
            self._problem(ProblemKind.MISSING, None, f"the replica is {where}", replica.broker)
        elif self.plan.high_watermark is None:
            return ReplicaAudit(
                broker=replica.broker,
                in_sync=replica.in_sync,
                state=AuditedState.NOT_READABLE,
                directory=replica.directory,
                reason="there is no high watermark",
            )
        else:
            return self._read(replica)
        return ReplicaAudit(
            broker=replica.broker,
            in_sync=replica.in_sync,
            state=state,
            directory=replica.directory,
            reason=replica.reason,
        )

    def _read(self, replica: ReplicaPlan) -> ReplicaAudit:
        found = self.reports[replica.broker]
        first = replica.segments[0].base_offset
        start = found[0].base_offset if found else first
        end = found[-1].end_offset if found else first
        if replica.short_bytes:
            self._problem(
                ProblemKind.MISSING,
                None,
                f"its broker counts {replica.short_bytes:,} bytes more than its segment files have",
                replica.broker,
            )
        for report in found:
            for flaw in report.flaws:
                self._problem(ProblemKind(flaw.kind), flaw.offset, flaw.what, replica.broker)
            self.more += report.more_flaws
        if _is_short(replica, end):
            self._short(replica, end, found)
        return ReplicaAudit(
            broker=replica.broker,
            in_sync=replica.in_sync,
            state=AuditedState.COMPARED,
            directory=replica.directory,
            start_offset=start,
            end_offset=end,
            segments=len(found),
            batches=sum(r.batches for r in found),
            records=sum(r.records for r in found),
            bytes=sum(r.bytes for r in found),
            gaps=sum(r.gaps for r in found),
        )

    def _short(self, replica: ReplicaPlan, end: Offset, found: Sequence[SegmentReport]) -> None:
        torn = f" with {found[-1].torn_bytes} bytes of half a batch" if found and found[-1].torn_bytes else ""
        high = replica.high_watermark
        if not replica.in_sync or (self.in_sync is not None and replica.broker not in self.in_sync):
            self.notes.append(f"broker {replica.broker} is not in sync: it has offsets up to {end} of {high}")
            return
        if found and any(flaw.offset == end for flaw in found[-1].flaws):
            return  # why it ends there has been said
        what = f"its log ends there{torn}; the high watermark is {high}"
        self._problem(ProblemKind.MISSING, end, what, replica.broker)

    # -- between replicas ------------------------------------------------------------------------------------

    def _starts(self, compared: Sequence[ReplicaAudit]) -> None:
        starts: dict[Offset, list[BrokerId]] = defaultdict(list)
        for replica in compared:
            starts[replica.start_offset or 0].append(replica.broker)
        if len(starts) < 2:
            return
        told = "; ".join(
            f"broker{'s' * (len(b) > 1)} {numbers(tuple(b))} begin{'s' * (len(b) == 1)} at offset {start}"
            for start, b in sorted(starts.items())
        )
        self.notes.append(f"{told}: compared where at least two have the offsets")

    def _differences(self) -> None:
        slots = {r.broker: r.slot for r in self.plan.replicas}
        for offset, copies in sorted(self.comparison.copies.items()):
            here = next((w.mask for w in self.windows if w.start <= offset < w.end), 0)
            have = {copy.broker for copy in copies}
            lack = tuple(b for b, slot in slots.items() if here >> slot & 1 and b not in have)
            groups: dict[int, list[Copy]] = defaultdict(list)
            for copy in copies:
                groups[copy.digest].append(copy)
            if len(groups) == 1 and not lack:
                continue
            self._problem(ProblemKind.DIFFERENT, offset, _difference(groups, lack), *_odd_ones(groups, lack))
        told = sum(p.kind is ProblemKind.DIFFERENT for p in self.problems)
        self.more += max(0, sum(c.different for c in self.comparison.windows.values()) - told)

    def _problem(self, kind: ProblemKind, offset: Offset | None, what: str, *brokers: BrokerId) -> None:
        self.problems.append(Problem(tp=self.plan.tp, kind=kind, brokers=brokers, offset=offset, what=what))


def _odd_ones(groups: Mapping[int, Sequence[Copy]], lack: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """Whom to name: those that differ from most, or all if there is no most."""
    parties = sorted([tuple(c.broker for c in copies) for copies in groups.values()] + [lack] * bool(lack), key=len)
    if len(parties[-1]) > len(parties[-2]):
        parties.pop()
    return tuple(sorted(broker for party in parties for broker in party))


def _difference(groups: Mapping[int, Sequence[Copy]], lack: tuple[BrokerId, ...]) -> str:
    said = []
    for copies in sorted(groups.values(), key=len, reverse=True):
        one = copies[0]
        brokers = tuple(sorted({copy.broker for copy in copies}))
        said.append(
            f"broker{'s' * (len(brokers) > 1)} {numbers(brokers)}: up to offset {one.last_offset}, {one.bytes} bytes,"
            f" digest {one.digest & 0xFFFFFFFFFFFFFFFF:016x}"
        )
    if lack:
        said.append(f"broker{'s' * (len(lack) > 1)} {numbers(lack)}: no batch begins there")
    return "replicas differ in this batch: " + "; ".join(said)


def not_compared(plans: Iterable[PartitionPlan]) -> tuple[NotCompared, ...]:
    """Directories and brokers that could not be read, by name, with how many replicas are there."""
    found: dict[tuple[BrokerId, str | None, str], int] = defaultdict(int)
    for plan in plans:
        for replica in plan.replicas:
            if replica.reason is not None:
                found[replica.broker, replica.directory, replica.reason] += 1
    return tuple(
        NotCompared(broker=broker, directory=directory, reason=reason, replicas=count)
        for (broker, directory, reason), count in sorted(found.items(), key=lambda item: (item[0][0], str(item[0])))
    )
