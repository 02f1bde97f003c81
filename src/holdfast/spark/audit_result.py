"""What an audit says: values only.

Owns the words of a result. Finding them is the work of audit_scan.py (one replica), audit_compare.py (between
replicas) and audit_verdict.py (what it all means). Offsets are half-open: ``end_offset`` is the first one that is not
in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from holdfast.model.types import BrokerId, Offset, TopicPartition


class ProblemKind(Enum):
    """What can be wrong. Each of them makes the audit fail."""

    CORRUPT = "corrupt"
    """Bytes that are no batch, or a batch whose CRC is not that of its bytes."""
    ORDER = "order"
    """A batch that begins before the end of the one before it, or before its segment."""
    GAP = "gap"
    """Offsets that no batch holds, in a topic that keeps all."""
    MISSING = "missing"
    """A replica, a segment, or the end of a log up to the high watermark is not there."""
    UNREADABLE = "unreadable"
    """The disk refuses to read a file that is there."""
    DIFFERENT = "different"
    """Replicas that have different bytes for the same offsets."""
    UNKNOWN = "unknown"
    """A partition of which nothing could be compared: no leader to ask, or no replica to read."""


class AuditedState(Enum):
    """Whether a replica took part."""

    COMPARED = "compared"
    NOT_READABLE = "not readable here"
    """Its broker is down, its log directory is offline, or the directory is not on this machine."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong. ``brokers``: whose replicas; ``offset``: where, None if it is about all of it."""

    tp: TopicPartition
    kind: ProblemKind
    brokers: tuple[BrokerId, ...]
    offset: Offset | None
    what: str

    def __str__(self) -> str:
        who = "" if not self.brokers else f" on broker{'s' * (len(self.brokers) > 1)} {numbers(self.brokers)}"
        where = "" if self.offset is None else f" at offset {self.offset}"
        return f"{self.tp}{who}{where}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAudit:
    """One replica: what was read of it, up to the high watermark."""

    broker: BrokerId
    in_sync: bool
    state: AuditedState
    directory: str | None = None
    """Log directory, as its broker names it."""
    reason: str | None = None
    """Why it took no part."""
    start_offset: Offset | None = None
    end_offset: Offset | None = None
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    gaps: int = 0
    """Places where compaction has left offsets out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAudit:
    """One partition. Batches, records and bytes are those that were compared between replicas (or only checked, where
    just one could be read), counted once and not per replica."""

    tp: TopicPartition
    leader: BrokerId | None
    start: Offset
    """The log's first offset, as the leader told it before the audit."""
    high_watermark: Offset
    """As the leader told it. Where it could not be asked, an empty range and a problem that says so."""
    compacted: bool
    replicas: tuple[ReplicaAudit, ...]
    compared_from: Offset | None = None
    compared_to: Offset | None = None
    batches: int = 0
    records: int = 0
    bytes: int = 0
    problems: tuple[Problem, ...] = ()
    more_problems: int = 0
    """Found, but not told one by one."""
    notes: tuple[str, ...] = ()
    """What is worth knowing and no error."""

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def compared(self) -> tuple[BrokerId, ...]:
        """Brokers whose replicas took part."""
        return tuple(r.broker for r in self.replicas if r.state is AuditedState.COMPARED)

    @property
    def missing(self) -> tuple[BrokerId, ...]:
        """Brokers whose replicas took no part."""
        return tuple(r.broker for r in self.replicas if r.state is not AuditedState.COMPARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompared:
    """A log directory (or, with None, a whole broker) that could not be read here."""

    broker: BrokerId
    directory: str | None
    reason: str
    replicas: int
    """How many of the audited replicas are there."""

    def __str__(self) -> str:
        where = f"broker {self.broker}" + ("" if self.directory is None else f", {self.directory}")
        return f"{where}: {self.reason}: {self.replicas} replica{'s' * (self.replicas != 1)} not compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What an audit found."""

    partitions: tuple[PartitionAudit, ...]
    not_compared: tuple[NotCompared, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Replicas were compared and agree, and nothing is corrupt or missing."""
        return self.is_sound and not self.compared_nothing

    @property
    def is_sound(self) -> bool:
        """No replica that could be read disagrees with another, and nothing is corrupt or missing: also true where
        nothing was there to disagree with."""
        return all(p.ok for p in self.partitions)

    @property
    def compared_nothing(self) -> bool:
        """Of no partition two replicas could be read (D20): on a machine with one broker, each was only checked."""
        return all(len(p.compared) < 2 for p in self.partitions)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(problem for p in self.partitions for problem in p.problems)

    @property
    def problem_count(self) -> int:
        """With those that are not told one by one."""
        return sum(len(p.problems) + p.more_problems for p in self.partitions)

    @property
    def differences(self) -> tuple[str, ...]:
        """All problems, one a line, for people."""
        return tuple(line for p in self.partitions for line in _lines(p))

    @property
    def replicas(self) -> int:
        """Replicas that were compared."""
        return sum(len(p.compared) for p in self.partitions)

    @property
    def replicas_not_compared(self) -> int:
        return sum(len(p.missing) for p in self.partitions)

    @property
    def batches(self) -> int:
        return sum(p.batches for p in self.partitions)

    @property
    def records(self) -> int:
        """Records that were compared, each counted once."""
        return sum(p.records for p in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.partitions)

    @property
    def bytes_read(self) -> int:
        """Bytes of batches in all replicas together."""
        return sum(r.bytes for p in self.partitions for r in p.replicas)


def _lines(audit: PartitionAudit) -> Iterator[str]:
    yield from map(str, audit.problems)
    if audit.more_problems:
        yield f"{audit.tp}: and {audit.more_problems:,} more"


def numbers(brokers: tuple[BrokerId, ...]) -> str:
    """Broker ids for a sentence: ``1, 2 and 3``."""
    *rest, last = map(str, brokers)
    return f"{', '.join(rest)} and {last}" if rest else last
