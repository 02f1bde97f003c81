"""How long things took, as integers: a histogram whose buckets are quarters of powers of two, in microseconds.

A bucket is found by the length of the number and its next two bits, so that an observation costs a few instructions and
no search, and a quantile is right to a fifth. One writer each: nothing here is locked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_BITS: Final = 33
"""Longer than 2**33 microseconds, two hours, is counted as that."""
_LONGEST: Final = (1 << _BITS) - 1
BUCKETS: Final = 4 * (_BITS - 1)
EXPORTED: Final = tuple(range(7, 25))
"""Exponents of the bounds that Prometheus is told: 128 microseconds to 17 seconds, each twice the one before."""
EXACT: Final = 500
"""What happens more often than so many times in ten seconds is not timed each time: a twentieth of what a small request
costs would go into that."""
EVERY: Final = 128
"""Then one in so many is, and stands for those before it."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


def bucket_of(us: int) -> int:
    """The bucket of so many microseconds, 0 to two hours."""
    if us < 4:
        return us
    shift = us.bit_length() - 3
    return (shift << 2) + (us >> shift)


SHORT_US: Final = 1 << 16
BUCKET_OF: Final = bytes(map(bucket_of, range(SHORT_US)))
"""The buckets of what is shorter than 65 ms: looked up, as that is most of it."""


class Histogram:
    """Observations so far."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        """By bucket: 0, 1, 2 and 3 microseconds, then four for each further power of two."""
        self.sum_us = 0

    def add(self, us: int, weight: int = 1) -> None:
        """One more, or ``weight`` of them, of so many microseconds; below 0 is 0."""
        if 0 <= us < SHORT_US:
            self.counts[BUCKET_OF[us]] += weight
            self.sum_us += us * weight
        else:
            us = min(max(us, 0), _LONGEST)
            self.counts[bucket_of(us)] += weight
            self.sum_us += us * weight

    def now(self) -> Observed:
        """What was observed up to now."""
        return Observed(tuple(self.counts), self.sum_us)


class Observed(NamedTuple):
    """A histogram as it was at a moment, or what came between two."""

    counts: Sequence[int]
    sum_us: int

    @property
    def observations(self) -> int:
        """How many there were."""
        return sum(self.counts)

    def since(self, before: Observed) -> Observed:
        """What came after ``before``, an earlier moment of the same histogram."""
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        return Observed(counts, self.sum_us - before.sum_us)

    def plus(self, other: Observed) -> Observed:
        """Both together."""
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Observed(counts, self.sum_us + other.sum_us)

    def with_zeros(self, count: int) -> Observed:
        """As if so many more had taken no time."""
        return Observed((self.counts[0] + count, *self.counts[1:]), self.sum_us)

    def below(self) -> Iterator[tuple[float, int]]:
        """Prometheus' buckets: bound in seconds, observations up to it. The last bound is infinity."""
        done = total = 0
        for exponent in EXPORTED:
            end = 4 * (exponent - 1)  # the first bucket of what is 2**exponent and more
            total += sum(self.counts[done:end])
            done = end
            yield (1 << exponent) / 1e6, total
        yield float("inf"), total + sum(self.counts[done:])

    def quantiles(self) -> list[tuple[float, float]]:
        """Each of QUANTILES and the microseconds that that share of the observations did not pass; empty without any.
        Within a bucket observations count as evenly spread."""
        total = self.observations
        found: list[tuple[float, float]] = []
        passed, bucket = 0, 0
        for quantile in QUANTILES if total else ():
            rank = quantile * total
            while passed + self.counts[bucket] < rank:
                passed += self.counts[bucket]
                bucket += 1
            low, high = bounds(bucket)
            found.append((quantile, low + (high - low) * (rank - passed) / self.counts[bucket]))
        return found


NOTHING: Final = Observed((0,) * BUCKETS, 0)


def bounds(bucket: int) -> tuple[int, int]:
    """From how many microseconds on, and up to which (not with them), a bucket counts."""
    if bucket < 4:
        return bucket, bucket + 1
    shift, quarter = divmod(bucket - 4, 4)
    return (4 + quarter) << shift, (5 + quarter) << shift
