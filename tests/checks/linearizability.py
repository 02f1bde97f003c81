"""Is what clients saw of one partition the behaviour of one log, with every operation at one moment?

Pure: times come in, findings go out. Times are of one clock, in any unit; an operation is [invoked, returned].

A log gives each append its offset, so the order of appends is known and nothing has to be searched. Let p(o) be the
moment at which the append at offset o takes effect. A history is linearizable if and only if moments exist with

    p(0) <= p(1) <= ...                    the log is in order
    invoked(o) <= p(o) <= acked(o)         an append takes effect while it is under way
    p(o) <= returned                       for a read that got the record at o
    p(h - 1) <= returned, invoked <= p(h)  for a read of the end that got h: h - 1 is there, h is not yet

The earliest moments that satisfy all lower bounds are e(o) = max(e(o - 1), invoked(o), invoked of ends that got o).
If any moments exist, these do as well, because all other conditions are upper bounds. So one pass in offset order
decides, and e(o) names the two operations that contradict each other.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

NEVER = (1 << 63) - 1
"""A time that has not come: an append without an ack, a record that nobody has read."""
UNKNOWN = -1
"""No value is known at an offset. Values are not negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing that cannot be so. ``kind`` is one of a few words; ``text`` names the operations."""

    kind: str
    text: str


class PartitionHistory:
    """What clients did to one partition and got from it. About 32 bytes an offset, whatever the number of reads.

    Appends that failed or had no answer are told by ``append_seen`` once their offset is known (by a reader), if at
    all. Values are integers that are unique to a record.
    """

    def __init__(self, name: str, unit: str = "ns") -> None:
        self.name, self.unit = name, unit
        self.values = array("q")
        self._invoked = array("q")
        self._acked = array("q")
        self._read = array("q")
        """Per offset: when the first read that got it returned."""
        self._ends: list[tuple[int, int, int]] = []
        """(high watermark, invoked, returned)"""
        self.violations: list[Violation] = []
        """What was wrong at once: two values at one offset. The rest comes from ``check``."""

    def append_acked(self, offset: int, value: int, invoked: int, acked: int) -> None:
        """An append was acknowledged with this offset."""
        self._grow(offset)
        if self._agree(offset, value, "an append was acknowledged at it"):
            self._invoked[offset] = max(self._invoked[offset], invoked)
            self._acked[offset] = min(self._acked[offset], acked)

    def append_seen(self, offset: int, invoked: int) -> None:
        """A record that was read at this offset was sent at that time, whatever its sender was told."""
        self._grow(offset)
        self._invoked[offset] = max(self._invoked[offset], invoked)

    def read(self, offset: int, value: int, returned: int) -> None:
        """A reader got this value from this offset."""
        self._grow(offset)
        if self._agree(offset, value, "a reader got it"):
            self._read[offset] = min(self._read[offset], returned)

    def end(self, high_watermark: int, invoked: int, returned: int) -> None:
        """A reader was told that the log ends before this offset."""
        self._ends.append((high_watermark, invoked, returned))

    def value_at(self, offset: int) -> int | None:
        """What is known to be at an offset."""
        value = self.values[offset] if offset < len(self.values) else UNKNOWN
        return None if value == UNKNOWN else value

    def known_from(self, offset: int) -> Iterator[int]:
        """Offsets from there on at which something was acknowledged or read."""
        return (o for o in range(offset, len(self.values)) if self.values[o] != UNKNOWN)

    def acked_offsets(self) -> Iterator[int]:
        """Offsets of acknowledged records."""
        return (o for o, acked in enumerate(self._acked) if acked != NEVER)

    def _grow(self, offset: int) -> None:
        missing = offset + 1 - len(self.values)
        if missing > 0:
            self.values.extend([UNKNOWN] * missing)
            self._invoked.extend([0] * missing)
            self._acked.extend([NEVER] * missing)
            self._read.extend([NEVER] * missing)

    def _agree(self, offset: int, value: int, how: str) -> bool:
        known = self.values[offset]
        if known == UNKNOWN:
            self.values[offset] = value
        elif known != value:
            text = f"{self.name} offset {offset} was {known} and is {value} ({how})"
            self.violations.append(Violation(kind="changed", text=text))
            return False
        return True

    def check(self) -> list[Violation]:
        """All that contradicts one log; empty for a linearizable history. Linear but for sorting the ends."""
        sweep = _Sweep(self.name, self.unit)
        ends = sorted(self._ends)
        next_end = 0
        for offset in range(len(self.values)):
            while next_end < len(ends) and ends[next_end][0] == offset:
                sweep.end(*ends[next_end])
                next_end += 1
            sweep.not_before(self._invoked[offset], f"the record at offset {offset} was sent", "order")
            sweep.not_after(self._acked[offset], f"the record at offset {offset} had been acknowledged")
            sweep.not_after(self._read[offset], f"the record at offset {offset} had been read")
        for end in ends[next_end:]:
            sweep.end(*end)
        return self.violations + sweep.violations()


class _Sweep:
    """The earliest moment of the next append, who demands it, and which upper bounds it breaks."""

    def __init__(self, name: str, unit: str) -> None:
        self._name, self._unit = name, unit
        self._earliest, self._cause, self._kind = 0, "the beginning", "order"
        self._first: dict[str, tuple[str, str]] = {}
        """Cause -> kind and text of the first bound that it breaks; one late append is not a thousand findings."""
        self._count: dict[str, int] = {}

    def end(self, high_watermark: int, invoked: int, returned: int) -> None:
        """The log had this end. Those of one high watermark come in order of their invocation."""
        self.not_after(returned, f"a reader had been told that the log ends at {high_watermark}")
        self.not_before(invoked, f"a reader asked for the end and got {high_watermark}", "stale end")

    def not_before(self, moment: int, cause: str, kind: str) -> None:
        if moment > self._earliest:
            self._earliest, self._cause, self._kind = moment, cause, kind

    def not_after(self, moment: int, what: str) -> None:
        if self._earliest > moment:
            text = f"{self._name}: {self._cause}, but {what} {self._earliest - moment} {self._unit} before"
            self._first.setdefault(self._cause, (self._kind, text))
            self._count[self._cause] = self._count.get(self._cause, 0) + 1

    def violations(self) -> list[Violation]:
        def told(cause: str, text: str) -> str:
            return text if self._count[cause] == 1 else f"{text} (and {self._count[cause] - 1} more like it)"

        return [Violation(kind=kind, text=told(cause, text)) for cause, (kind, text) in self._first.items()]
