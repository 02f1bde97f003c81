"""What is right at the end, and how long readers waited: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

OUTPUTS: Final = ("out-a", "out-b")
"""Each input is written to both, in one transaction."""
AFTER_S: Final = 0.5
REACH_S: Final = 10.0
"""A gap is that of the last fault that struck before it began, or so soon after, and not so long before."""


class Place(NamedTuple):
    """Where an input record is."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Nothing came out of a partition of an output between these times (monotonic seconds)."""

    topic: str
    partition: int
    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """A fault and when it struck. ``kind``: member, broker or disk."""

    kind: str
    at_s: float
    what: str


def wrongs(
    acked: Mapping[Place, int],
    maybe: Iterable[int],
    seen: Mapping[str, Counter[tuple[Place, int]]],
    somewhere: Iterable[int] = (),
) -> list[str]:
    """What was not exactly once, in words. ``acked``: the number of each input that was acknowledged; ``somewhere``:
    numbers that were, and nobody said where; ``maybe``: numbers that were sent and got no answer, which may have been
    written once or not at all."""
    found = []
    open_numbers, placeless = set(maybe), set(somewhere)
    for topic in OUTPUTS:
        counts = seen[topic]
        for place, number in acked.items():
            times = counts.get((place, number), 0)
            if times != 1:
                found.append(f"{topic}: input {number} of {place.partition}@{place.offset} is there {times} times")
        by_number = Counter(dict.fromkeys(placeless, 0))
        for (place, number), times in counts.items():
            if acked.get(place) == number:
                continue
            if number in placeless:
                by_number[number] += times
                continue
            if number not in open_numbers:
                found.append(f"{topic}: {number} of {place.partition}@{place.offset} was never an input")
            elif times != 1:
                found.append(f"{topic}: unanswered input {number} is there {times} times")
        for number, times in by_number.items():
            if times != 1:
                found.append(f"{topic}: input {number} is there {times} times")
    if seen[OUTPUTS[0]].keys() != seen[OUTPUTS[1]].keys():
        apart = seen[OUTPUTS[0]].keys() ^ seen[OUTPUTS[1]].keys()
        found.append(f"{len(apart)} inputs are in one output only, such as {min(apart)}: a transaction was not whole")
    return found


def longest_after(blows: Sequence[Blow], gaps: Sequence[Gap], partitions: int) -> dict[str, list[float]]:
    """By kind of fault: of each fault and partition of an output the longest gap that it began, 0 without one."""
    found: dict[str, list[float]] = {}
    longest: dict[tuple[int, str, int], float] = {}
    for gap in gaps:
        cause = _cause(gap, blows)
        if cause is not None:
            key = (cause, gap.topic, gap.partition)
            longest[key] = max(longest.get(key, 0.0), gap.length_s)
    for number, blow in enumerate(blows):
        for topic in OUTPUTS:
            for partition in range(partitions):
                found.setdefault(blow.kind, []).append(longest.get((number, topic, partition), 0.0))
    return found


def worst(blows: Sequence[Blow], gaps: Sequence[Gap], count: int) -> list[str]:
    """The longest gaps, and what had struck before each."""
    longest = sorted(gaps, key=lambda gap: -gap.length_s)[:count]
    causes = ((gap, _cause(gap, blows)) for gap in longest)
    return [
        f"{gap.topic}-{gap.partition}: {gap.length_s:.1f} s"
        + ("" if cause is None else f", {gap.begin_s - blows[cause].at_s:.1f} s after {blows[cause].what}")
        for gap, cause in causes
    ]


def _cause(gap: Gap, blows: Sequence[Blow]) -> int | None:
    """The number of the last fault that struck before it began, or just after: what was under way still comes out."""
    before = [number for number, blow in enumerate(blows) if blow.at_s <= gap.begin_s + AFTER_S]
    return before[-1] if before and gap.begin_s < blows[before[-1]].at_s + REACH_S else None


def quantile(values: Sequence[float], part: float) -> float:
    """0 of nothing."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else 0.0
