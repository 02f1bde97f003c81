"""Lag in seconds, out of the ends of logs at the times of looks. Pure.

The record that a group reads next was written when the end of its log passed it: between two looks, in equal steps as
far as is known. A log whose end does not grow has a point for the first and for the last look of that time, so that
the record after a pause is not taken for an old one. No record is read for it.

    end  ......o-------o                 the offset 40: written between the third look and the fourth
         ..../.........|
     40 -.--o..........|
         o-o...........|
        10s 20s 30s   now

Only partitions in which a group has committed are followed, and only back to the group that is furthest behind. An
offset from before the first point is older than that: then lag is said to be what it is at least. Times are
milliseconds of a clock that is never set back.
"""

from array import array
from collections.abc import Iterable, Mapping

from holdfast.client.views import CommittedOffset
from holdfast.model.types import Offset, TopicPartition

MOST_POINTS = 48
"""Of one partition, 16 bytes each; beyond that the one that is missed least is left out."""
LEAST_POINTS = 8
"""Where very many partitions are followed, as many as that."""
ALL_POINTS = 400_000
"""Of all partitions together, 6 MB."""
MOST_FOLLOWED = 100_000


class EndPoints:
    """One log: (time, end) pairs in an array, the oldest first. Never empty, both never fall."""

    __slots__ = ("_points",)

    def __init__(self, at_ms: int, end: Offset) -> None:
        self._points = array("q", (at_ms, end))

    def __len__(self) -> int:
        return len(self._points) // 2

    def add(self, at_ms: int, end: Offset, most: int = MOST_POINTS) -> None:
        """A later look, of which ``most`` points are kept. An end before the last one is that of another log: what was
        known goes."""
        points = self._points
        if end < points[-1]:
            self._points = array("q", (at_ms, end))
        elif len(points) >= 4 and points[-3] == end == points[-1]:
            points[-2] = max(points[-2], at_ms)
        elif at_ms > points[-2]:
            points.extend((at_ms, end))
            while len(self) > most:
                self._leave_one_out()

    def _leave_one_out(self) -> None:
        """The one whose neighbours are nearest to each other, seen from now."""
        points = self._points
        now_ms = points[-2]

        def missed(n: int) -> float:
            return (points[2 * n + 2] - points[2 * n - 2]) / (now_ms - points[2 * n - 2])

        least = min(range(1, len(self) - 1), key=missed)
        del points[2 * least : 2 * least + 2]

    def forget(self, lowest: Offset) -> None:
        """Nobody is behind ``lowest``: only the last point up to there is needed."""
        points = self._points
        keep = 0
        while keep + 2 < len(points) and points[keep + 3] <= lowest:
            keep += 2
        if keep:
            del points[:keep]

    def lag_s(self, offset: Offset, now_ms: int) -> float:
        """Age of the record at ``offset``, 0 for one that is not written; at least, of one before the first point."""
        points = self._points
        if offset >= points[-1]:
            return 0.0
        if offset < points[1]:
            return max(0, now_ms - points[0]) / 1000
        n = 0
        while points[n + 3] <= offset:
            n += 2
        begin_ms, begin, end_ms, end = points[n : n + 4]
        written_ms = begin_ms + (offset - begin) * (end_ms - begin_ms) / (end - begin)
        return max(0.0, now_ms - written_ms) / 1000


class LagTimes:
    """All logs that groups read."""

    def __init__(self, most: int = MOST_FOLLOWED, all_points: int = ALL_POINTS) -> None:
        self._most = most
        self._all_points = all_points
        self._logs: dict[TopicPartition, EndPoints] = {}

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def points(self) -> int:
        """Of all logs."""
        return sum(map(len, self._logs.values()))

    def looked(
        self,
        at_ms: int,
        ends: Mapping[TopicPartition, Offset],
        committed: Iterable[Mapping[TopicPartition, CommittedOffset]],
    ) -> None:
        """One look: the ends of logs, and the offsets of each group. What no group has an offset in is forgotten."""
        lowest: dict[TopicPartition, Offset] = {}
        for offsets in committed:
            for tp, at in offsets.items():
                if tp not in lowest or at.offset < lowest[tp]:
                    lowest[tp] = at.offset
        for gone in self._logs.keys() - lowest.keys():
            del self._logs[gone]
        each = max(LEAST_POINTS, min(MOST_POINTS, self._all_points // max(1, len(lowest))))
        for tp, offset in lowest.items():
            end, log = ends.get(tp), self._logs.get(tp)
            if end is None:
                continue
            if log is not None:
                log.add(at_ms, end, each)
                log.forget(offset)
            elif len(self._logs) < self._most:
                self._logs[tp] = EndPoints(at_ms, end)

    def lag_s(self, tp: TopicPartition, offset: Offset, now_ms: int) -> float | None:
        """Of a group at ``offset``; None where the log is not followed."""
        log = self._logs.get(tp)
        return None if log is None else log.lag_s(offset, now_ms)
