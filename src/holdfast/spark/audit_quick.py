"""The audit without Spark: the headers of all batches, in this process.

A header has the CRC of its batch, so that two replicas with the same headers were given the same records. Whether the
bytes of the records still are what was written is not looked at: the whole audit reads them. Owns reading headers
alone, and the comparison of replicas partition by partition: twice through the headers, one batch of each in memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import IO, Final, NamedTuple

from holdfast.client.security import SecuritySettings
from holdfast.model.types import BrokerId, Offset
from holdfast.records.batch import HEADER_SIZE, BatchHeader
from holdfast.spark.audit_compare import Progress
from holdfast.spark.audit_plan import PartitionPlan, ReplicaPlan, in_sync_now, make_plan
from holdfast.spark.audit_result import AuditResult, PartitionAudit
from holdfast.spark.audit_scan import BatchFile, BatchRow, SegmentReport, SegmentScan
from holdfast.spark.audit_verdict import (
    MAX_PROBLEMS,
    Compared,
    Comparison,
    Copy,
    Window,
    judge,
    lagging,
    not_compared,
    windows_of,
)

HEADER_BLOCK: Final = 8192
"""Read at a time: some headers of small batches, and little beside that of a large one."""
LOOKS: Final = 4
"""How often a partition is compared again because retention has taken a segment meanwhile."""

SegmentReports = dict[BrokerId, list[SegmentReport]]


class HeaderFile(BatchFile):
    """A segment file of which headers are read, and what lies between them is passed over."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, 0)
        self._fd = file.fileno()
        self._block_at = 0
        """Where in the file the buffer begins."""

    @property
    def available(self) -> int:
        """Bytes from the next batch on that the file has."""
        return max(0, os.fstat(self._fd).st_size - self.position)

    def has(self, size: int) -> bool:
        """Whether the file has ``size`` more bytes; of these a header is in the buffer then."""
        if size > HEADER_SIZE and size > self.available:
            return False
        self.at = self.position - self._block_at
        if self.at + HEADER_SIZE <= len(self.buffer):
            return True
        self.buffer = bytearray(os.pread(self._fd, HEADER_BLOCK, self.position))
        self._block_at, self.at = self.position, 0
        return len(self.buffer) >= HEADER_SIZE

    def skip(self, size: int) -> None:
        self.position += size


class HeaderScan(SegmentScan):
    """As SegmentScan, over headers alone: it believes that what a CRC was made of is still there."""

    def _reader(self, file: IO[bytes]) -> BatchFile:
        return HeaderFile(file)

    def _sound(self, file: BatchFile, header: BatchHeader) -> bool:
        return True

    def _digested(self, file: BatchFile, header: BatchHeader) -> memoryview:
        return memoryview(file.buffer)[file.at : file.at + HEADER_SIZE]


class _Of(NamedTuple):
    """A batch of one replica."""

    base_offset: Offset
    slot: int
    row: BatchRow


def run(
    bootstrap: str,
    topics: Iterable[str] | None = None,
    *,
    progress: Progress | None = None,
    security: SecuritySettings | None = None,
) -> AuditResult:
    """As holdfast.spark.audit.run, without Spark and by headers alone. ``progress``: (partitions done, all)."""
    began_s = time.monotonic()
    plans = make_plan(bootstrap, topics, security)
    found: list[tuple[SegmentReports, Comparison]] = []
    for number, plan in enumerate(plans):
        if progress is not None:
            progress(number, len(plans))
        found.append(compare(plan))
    if progress is not None:
        progress(len(plans), len(plans))
    reports = {(plan.tp, broker): part for plan, (every, _) in zip(plans, found, strict=True)
               for broker, part in every.items()}  # fmt: skip
    short = lagging(plans, reports)
    # A replica that fell behind since we began is no error: the cluster knows.
    in_sync = in_sync_now(bootstrap, short, security) if short else {}
    partitions: tuple[PartitionAudit, ...] = tuple(
        judge(plan, reports, comparison, in_sync.get(plan.tp))
        for plan, (_, comparison) in zip(plans, found, strict=True)
    )
    return AuditResult(
        partitions=partitions, not_compared=not_compared(plans), seconds=round(time.monotonic() - began_s, 3)
    )


def compare(plan: PartitionPlan) -> tuple[SegmentReports, Comparison]:
    """What the segments of each replica have, and where replicas differ."""
    readable = [r for r in plan.replicas if r.segments and r.reason is None] if plan.high_watermark else []
    reports: SegmentReports = {replica.broker: [] for replica in readable}
    for replica in readable:
        for _ in _rows(replica, reports[replica.broker]):
            pass
    for _ in range(LOOKS):
        windows = windows_of(plan, {(plan.tp, broker): part for broker, part in reports.items()})
        again: SegmentReports = {replica.broker: [] for replica in readable}
        comparison = _compared(plan, readable, windows, again)
        gone = {broker: [report.gone for report in part] for broker, part in again.items()}
        if gone == {broker: [report.gone for report in part] for broker, part in reports.items()}:
            break
        for broker, part in reports.items():
            for report, is_gone in zip(part, gone[broker], strict=True):
                report.gone = report.gone or is_gone
    return reports, comparison


def _rows(replica: ReplicaPlan, reports: list[SegmentReport]) -> Iterator[BatchRow]:
    """Of all segments; each one's report is added when it was read."""
    for segment in replica.segments:
        scan = HeaderScan(segment, replica.high_watermark, compacted=replica.compacted)
        yield from scan
        reports.append(scan.report)


def _placed(replica: ReplicaPlan, reports: list[SegmentReport]) -> Iterator[_Of]:
    for row in _rows(replica, reports):
        yield _Of(row.base_offset, replica.slot, row)


def _compared(
    plan: PartitionPlan, replicas: Sequence[ReplicaPlan], windows: Sequence[Window], reports: SegmentReports
) -> Comparison:
    brokers = {replica.slot: replica.broker for replica in plan.replicas}
    comparison, at = Comparison(), 0
    streams = (_placed(replica, reports[replica.broker]) for replica in replicas)
    for base, same in groupby(merge(*streams, key=itemgetter(0)), key=itemgetter(0)):
        copies = {each.slot: each.row for each in same}
        while at < len(windows) and windows[at].end <= base:
            at += 1
        if at == len(windows) or base < windows[at].start:
            continue
        window = windows[at]
        differs = _differ(copies, window.mask, compacted=plan.compacted)
        before = comparison.windows.get(window.start, Compared(0, 0, 0, 0))
        comparison.windows[window.start] = Compared(
            before.batches + 1,
            before.records + max(row.records for row in copies.values()),
            before.bytes + max(row.bytes for row in copies.values()),
            before.different + differs,
        )
        if differs and len(comparison.copies) < MAX_PROBLEMS:
            comparison.copies[base] = [
                Copy(brokers[slot], row.last_offset, row.records, row.bytes, row.digest)
                for slot, row in sorted(copies.items())
            ]
    return comparison


def _differ(copies: Mapping[int, BatchRow], mask: int, *, compacted: bool) -> bool:
    """The cleaner of each replica leaves out what it finds: only batches that it has not touched must be equal."""
    digests = len({row.digest for row in copies.values()})
    if compacted:
        return digests > 1 and len({(row.records, row.bytes) for row in copies.values()}) == 1
    have = sum(1 << slot for slot in copies)
    return digests > 1 or have & mask != mask
