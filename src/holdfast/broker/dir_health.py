"""Is a log directory slow? Judged by its probes alone, against its own past and against the other directories.

Owns the rule and its memory; pure: it is told times and looks at no clock. A disk that is three times as slow as
yesterday is a disk with work to do; only one that is far from its past and from its peers, and far from good, counts
as degraded, and it must be well again for some time before it counts as well.

    well, slow --(no answer for the limit)--> silent --(an answer)--> slow
    well --(the last SLOW_PROBES all above the limit)--> slow
    slow --(the last GOOD_PROBES all below a third of it)--> well

What follows is LogDir's (storage/dir_state.py).
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum
from statistics import median

FACTOR = 10.0
SLOW_PROBES = 3
GOOD_PROBES = 5
STILL_SLOW = 3
"""One that is known to be slow counts as silent only after so many limits: it is not to change with every probe."""
_MEMORY = 0.05
"""Weight of one good probe in the directory's own past."""


class Pace(Enum):
    """How a directory answers its probes."""

    WELL = "well"
    SLOW = "slow"
    SILENT = "silent"


class ProbeTimes:
    """One directory's. ``floor_ms``: probes faster than this are never slow."""

    __slots__ = ("_floor_ms", "_recent", "last_ms", "pace", "usual_ms")

    def __init__(self, floor_ms: float) -> None:
        self._floor_ms = floor_ms
        self._recent: deque[float] = deque(maxlen=GOOD_PROBES)
        self.pace = Pace.WELL
        self.last_ms: float | None = None
        self.usual_ms: float | None = None

    def limit_ms(self, peers_ms: Iterable[float]) -> float:
        """What is slow now: beside the directory's own past and the newest probes of its peers."""
        peers = list(peers_ms)
        own = 0.0 if self.usual_ms is None else FACTOR * self.usual_ms
        others = FACTOR * median(peers) if peers else 0.0
        return max(self._floor_ms, own, others)

    def answered(self, took_ms: float, peers_ms: Iterable[float]) -> bool:
        """A probe came back; whether that changes the pace."""
        limit = self.limit_ms(peers_ms)
        self.last_ms = took_ms
        self._recent.append(took_ms)
        recent = list(self._recent)
        before = self.pace
        is_slow = len(recent) >= SLOW_PROBES and min(recent[-SLOW_PROBES:]) > limit
        if before is Pace.SILENT or (before is Pace.WELL and is_slow):
            self.pace = Pace.SLOW
        elif before is Pace.SLOW and len(recent) == GOOD_PROBES and max(recent) < limit / 3:
            self.pace = Pace.WELL
        elif before is Pace.WELL and took_ms <= limit:
            usual = took_ms if self.usual_ms is None else self.usual_ms
            self.usual_ms = usual + _MEMORY * (took_ms - usual)
        return self.pace is not before

    def silent(self, for_ms: float, peers_ms: Iterable[float]) -> bool:
        """A probe has not come back for so long; whether that changes the pace."""
        limit_ms = self.limit_ms(peers_ms) * (STILL_SLOW if self.pace is Pace.SLOW else 1)
        if self.pace is Pace.SILENT or for_ms <= limit_ms:
            return False
        self.pace = Pace.SILENT
        self._recent.clear()
        return True
