"""How many a second, over a sliding window, as Kafka's quotas measure it (KIP-13, KIP-219).

Pure: the clock comes in. The window is a number of samples of equal length; the newest is under way. A rate over its
bound is back at it once the time that ``delay_ms`` names has passed without another event.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SAMPLES: Final = 11
SAMPLE_MS: Final = 1000
"""What quota.window.num and quota.window.size.seconds are in Kafka by default."""


class EventRate:
    """Events a second. What happened within the window counts; before a whole window has passed it counts as if it had,
    so that a start is allowed a burst."""

    __slots__ = ("_sample_ms", "_samples", "_window")

    def __init__(self, samples: int = SAMPLES, sample_ms: int = SAMPLE_MS) -> None:
        self._window = samples
        self._sample_ms = sample_ms
        self._samples: deque[tuple[int, float]] = deque()
        """When each began, and how many were in it; the newest is the last."""

    def add(self, count: float, now_ms: int) -> None:
        """So many happened now; less than none takes back what was added a moment ago."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._sample_ms:
            samples.append((now_ms, count))
        else:
            began_ms, before = samples[-1]
            samples[-1] = began_ms, before + count
        self._forget(now_ms)

    def per_second(self, now_ms: int) -> float:
        """The rate now."""
        self._forget(now_ms)
        return sum(count for _, count in self._samples) * 1000 / self._elapsed_ms(now_ms)

    def delay_ms(self, bound: float, now_ms: int) -> int:
        """How long it takes until the rate is ``bound`` a second again, if nothing happens meanwhile; 0: it is not
        over it. A bound of 0 is never met again: ``bounded`` it is by whoever waits."""
        rate = self.per_second(now_ms)
        if rate <= bound:
            return 0
        if bound <= 0:
            return self._window * self._sample_ms
        return max(1, round((rate - bound) / bound * self._elapsed_ms(now_ms)))

    def is_over(self, now_ms: int) -> bool:
        """Whether nothing within the window is left: whoever keeps it may forget it."""
        self._forget(now_ms)
        return not self._samples

    def _elapsed_ms(self, now_ms: int) -> int:
        if not self._samples:
            return self._window * self._sample_ms
        elapsed_ms = now_ms - self._samples[0][0]
        missing = self._window - 1 - elapsed_ms // self._sample_ms
        return max(elapsed_ms + max(0, missing) * self._sample_ms, self._sample_ms)

    def _forget(self, now_ms: int) -> None:
        samples, oldest_ms = self._samples, now_ms - self._window * self._sample_ms
        while samples and samples[0][0] <= oldest_ms:
            samples.popleft()
