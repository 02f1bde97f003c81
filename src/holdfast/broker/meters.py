"""What a broker counts while it works, all of it integers: made only where somebody may read it (metrics.port).

Owns nothing but the list. Each number has one writer, the loop or the thread of a directory, and no lock; who reads
them is metrics.py, when it is asked.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.broker.request_times import RequestTimes
from holdfast.replication.traffic import Traffic
from holdfast.storage.dir_meter import DirMeter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.metadata.image import ClusterDelta, ClusterImage

_KEPT: Final = 7
"""With one state every ten seconds, the oldest is a minute old."""


class Elections:
    """What this broker has decided as the controller, since it started."""

    __slots__ = ("leaders", "unclean")

    def __init__(self) -> None:
        self.leaders = 0
        """Partitions that got another leader."""
        self.unclean = 0
        """Those of them whose leader may not have everything that was committed."""

    def count(self, deltas: Sequence[ClusterDelta], image: ClusterImage) -> None:
        """Decisions of the controller that are durable, one after the other; ``image`` has all of them."""
        images = [*(delta.before for delta in deltas[1:]), image]
        for delta, after in zip(deltas, images[: len(deltas)], strict=True):
            self._count(delta, after)

    def _count(self, delta: ClusterDelta, after: ClusterImage) -> None:
        for name, numbers in delta.changed_topics.items():
            topic, before = after.topics.get(name), delta.before.topics.get(name)
            if topic is None or before is None or before.topic_id != topic.topic_id:
                continue
            for number in numbers:
                old, new = before.partitions.get(number), topic.partitions.get(number)
                if old is None or new is None or new.leader is None or new.leader == old.leader:
                    continue
                self.leaders += 1
                self.unclean += new.leader not in (*old.isr, *old.elr)


class _Moment(NamedTuple):
    at_ns: int
    loop_ns: int
    disks: dict[str, int]


class Meters:
    """One per broker."""

    __slots__ = ("_moments", "dirs", "elections", "requests", "traffic")

    def __init__(self) -> None:
        self.traffic = Traffic(time.monotonic_ns)  # the clock of the loop, too: what it tells is compared
        self.requests = RequestTimes()
        self.elections = Elections()
        self.dirs: dict[str, DirMeter] = {}
        """By path: one that failed and was healed goes on counting."""
        self._moments: deque[_Moment] = deque(maxlen=_KEPT)

    def of_dir(self, path: str) -> DirMeter:
        """The numbers of a log directory."""
        found = self.dirs.get(path)
        if found is None:
            found = self.dirs[path] = DirMeter(time.monotonic_ns)
        return found

    def remember(self) -> None:
        """Keep how it is, for what is told of the last minute; once in ten seconds, on the loop."""
        self.requests.remember()
        for each in self.dirs.values():
            each.periods += 1
        self._moments.append(self._now())

    def idle(self) -> tuple[float, float]:
        """The shares of the last minute in which the loop had nothing to do, and in which the log directories, on
        average, had nothing to write and to flush. On the loop."""
        before = self._moments[0] if self._moments else None
        now = self._now()
        if before is None or now.at_ns <= before.at_ns:
            return 1.0, 1.0
        span = now.at_ns - before.at_ns
        busy = [each - before.disks[name] for name, each in now.disks.items() if name in before.disks]
        disk = sum(max(0, each) for each in busy) / (span * len(busy)) if busy else 0.0
        return max(0.0, 1 - (now.loop_ns - before.loop_ns) / span), max(0.0, 1 - disk)

    def _now(self) -> _Moment:
        busy = {path: 1000 * (each.append_times.sum_us + each.flush_times.sum_us) for path, each in self.dirs.items()}
        return _Moment(time.monotonic_ns(), time.thread_time_ns(), busy)
