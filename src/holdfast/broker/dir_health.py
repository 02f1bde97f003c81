"""Is a log directory slow? Judged by its probes alone, against its own past and against the other directories.

Owns the rule and its memory; pure: it is told times and looks at no clock. A disk that is three times as slow as
yesterday is a disk with work to do; only one that is far from its past and from its peers, and far from good, counts
as degraded, and it must be well again for some time before it counts as well.

    well --(the last SLOW_PROBES all above the limit, or silent for it)--> degraded
    degraded --(the last GOOD_PROBES all below a third of it)--> well
"""

from collections import deque
from collections.abc import Iterable
from statistics import median

FACTOR = 10.0
SLOW_PROBES = 3
GOOD_PROBES = 5
_MEMORY = 0.05
"""Weight of one good probe in the directory's own past."""


class DirHealth:
    """One directory's. ``floor_ms``: probes faster than this are never slow."""

    __slots__ = ("_floor_ms", "_recent", "is_degraded", "last_ms", "usual_ms")

    def __init__(self, floor_ms: float) -> None:
        self._floor_ms = floor_ms
        self._recent: deque[float] = deque(maxlen=GOOD_PROBES)
        self.is_degraded = False
        self.last_ms: float | None = None
        self.usual_ms: float | None = None

    def limit_ms(self, peers_ms: Iterable[float]) -> float:
        """What is slow now: beside the directory's own past and the newest probes of its peers."""
        peers = list(peers_ms)
        own = 0.0 if self.usual_ms is None else FACTOR * self.usual_ms
        others = FACTOR * median(peers) if peers else 0.0
        return max(self._floor_ms, own, others)

    def answered(self, took_ms: float, peers_ms: Iterable[float]) -> bool:
        """A probe came back; whether that changes what the directory counts as."""
        limit = self.limit_ms(peers_ms)
        self.last_ms = took_ms
        self._recent.append(took_ms)
        recent = list(self._recent)
        if not self.is_degraded and len(recent) >= SLOW_PROBES and min(recent[-SLOW_PROBES:]) > limit:
            self.is_degraded = True
            return True
        if self.is_degraded and len(recent) == GOOD_PROBES and max(recent) < limit / 3:
            self.is_degraded = False
            return True
        if not self.is_degraded and took_ms <= limit:
            usual = took_ms if self.usual_ms is None else self.usual_ms
            self.usual_ms = usual + _MEMORY * (took_ms - usual)
        return False

    def silent(self, for_ms: float, peers_ms: Iterable[float]) -> bool:
        """A probe has not come back for so long; whether that changes what the directory counts as."""
        if self.is_degraded or for_ms <= self.limit_ms(peers_ms):
            return False
        self.is_degraded = True
        self._recent.clear()
        return True
