"""Rates of the last hour in arrays of a fixed size: an hour of ten-second slots for each series, and a limit of series.

A rate is what a counter grew by, over the time between two looks; every slot between them gets it. A counter that is
smaller than before was made anew, and says nothing for that time.
"""

from array import array
from collections.abc import Iterator, Mapping
from math import isnan, nan

from holdfast.model.types import TimestampMs

SLOT_MS = 10_000
SLOTS = 360
MOST_SERIES = 2_000
"""1.5 kB each."""


class RateRing:
    """The rate of one counter: ``SLOTS`` floats, the newest slot replaces the oldest."""

    __slots__ = ("_at_ms", "_last", "_slot", "_values")

    def __init__(self) -> None:
        self._values = array("f", [nan]) * SLOTS
        self._slot: int | None = None
        self._at_ms: TimestampMs = 0
        self._last = 0

    def count(self, at_ms: TimestampMs, counter: int) -> None:
        """The counter at a moment not before the last one."""
        slot = at_ms // SLOT_MS
        if self._slot is None:
            self._slot, self._at_ms, self._last = slot, at_ms, counter
            return
        took_ms = at_ms - self._at_ms
        if took_ms <= 0:
            return
        rate = nan if counter < self._last else (counter - self._last) * 1000 / took_ms
        begin = max(self._slot + 1, slot - SLOTS + 1)
        for each in range(begin, slot + 1):
            self._values[each % SLOTS] = rate
        if slot == self._slot and not isnan(rate):
            self._values[slot % SLOTS] = rate
        self._slot, self._at_ms, self._last = slot, at_ms, counter

    def points(self, now_ms: TimestampMs) -> Iterator[tuple[int, float | None]]:
        """(seconds since 1970, rate per second) of the last hour, the oldest first; None where nothing is known."""
        newest = now_ms // SLOT_MS
        for slot in range(newest - SLOTS + 1, newest + 1):
            known = self._slot is not None and self._slot - SLOTS < slot <= self._slot
            value = self._values[slot % SLOTS] if known else nan
            yield slot * SLOT_MS // 1000, None if isnan(value) else round(value, 3)

    @property
    def newest(self) -> float | None:
        """The rate of the last look."""
        if self._slot is None or isnan(self._values[self._slot % SLOTS]):
            return None
        return self._values[self._slot % SLOTS]


class RateHistory:
    """The series of a console by name.

    What goes from the counters goes from memory; beyond ``MOST_SERIES`` the smallest counters are not followed.
    """

    def __init__(self, most: int = MOST_SERIES) -> None:
        self._most = most
        self._rings: dict[str, RateRing] = {}

    def count(self, at_ms: TimestampMs, counters: Mapping[str, int]) -> None:
        """All counters at one moment."""
        kept = counters.keys()
        if len(counters) > self._most:
            kept = dict(sorted(counters.items(), key=lambda pair: pair[1], reverse=True)[: self._most]).keys()
        for gone in self._rings.keys() - kept:
            del self._rings[gone]
        for name in kept:
            self._rings.setdefault(name, RateRing()).count(at_ms, counters[name])

    def __len__(self) -> int:
        return len(self._rings)

    def points(self, name: str, now_ms: TimestampMs) -> list[tuple[int, float | None]]:
        """Nothing of a series that is not followed."""
        ring = self._rings.get(name)
        return [] if ring is None else list(ring.points(now_ms))

    def newest(self, name: str) -> float | None:
        ring = self._rings.get(name)
        return None if ring is None else ring.newest
