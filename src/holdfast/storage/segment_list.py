"""The segments of one log: which there are, which are synced, which are on their way out, which are kept open.

Owns rolling, retiring and purging of segments and the rule which older ones keep a file open. Does not know of
epochs, producers or offsets to serve: log.py does. On the dir's thread, inside a guard; only ``touch`` and
``all`` matter to others.
"""

from collections.abc import Sequence

from holdfast.model.types import Offset, TimestampMs
from holdfast.storage.files import FileSystem
from holdfast.storage.segment import Segment

_WARM = 2
"""Older segments of one log that keep their file and index open after a read."""


class SegmentList:
    """``all``: in offset order, the last one is active. Replaced on a change, never changed in place: pictures
    that the loop holds keep theirs. ``rolled``: inactive ones that are not known to be synced."""

    __slots__ = ("_files", "_retired", "_warm", "all", "rolled")

    def __init__(self, files: FileSystem, segments: list[Segment], rolled: list[Segment]) -> None:
        self._files = files
        self.all: Sequence[Segment] = segments
        self.rolled = rolled
        self._retired: list[tuple[TimestampMs, list[str]]] = []  # renamed to .deleted: when, which
        self._warm: list[Segment] = []

    @property
    def active(self) -> Segment:
        return self.all[-1]

    @property
    def has_retired(self) -> bool:
        return bool(self._retired)

    def roll(self, path: str, base_offset: Offset, now_ms: TimestampMs) -> Segment:
        """A new active segment. The old one is not synced here: an append would wait for it."""
        old = self.all[-1]
        old.become_inactive()
        segment = Segment.create(self._files, path, base_offset, now_ms=now_ms)
        self.all = [*self.all, segment]
        old.tail = None
        self.rolled.append(old)
        return segment

    def sync_rolled(self) -> None:
        """Bring the rolled segments to the device, indexes too: those are believed at the next start."""
        for segment in self.rolled:
            segment.flush()
            segment.write_indexes(preallocate=None, durable=True)
            if segment not in self._warm:
                segment.release()
        self.rolled.clear()

    def drop_first(self, count: int) -> Sequence[Segment]:
        """Take the first ``count`` out of the list; ``retire`` them once the loop cannot find them any more."""
        going, self.all = self.all[:count], self.all[count:]
        return going

    def drop_from(self, offset: Offset) -> Sequence[Segment]:
        """Take out those that begin at ``offset`` or later, but never the first one."""
        keep = len(self.all)
        while keep > 1 and self.all[keep - 1].base_offset >= offset:
            keep -= 1
        going, self.all = self.all[keep:], self.all[:keep]
        self._forget(self.all[-1])
        return going

    def restart(self, path: str, base_offset: Offset, now_ms: TimestampMs) -> None:
        """Retire all; one empty segment at ``base_offset``."""
        # The old files make room first: the new segment may have the name of one of them.
        self.retire(self.all, now_ms)
        self.all = [Segment.create(self._files, path, base_offset, now_ms=now_ms)]

    def retire(self, segments: Sequence[Segment], now_ms: TimestampMs) -> None:
        """Rename the files of segments that are in the list no more; ``purge`` removes them."""
        for segment in segments:
            self._forget(segment)
            self._retired.append((now_ms, segment.delete_files()))

    def _forget(self, segment: Segment) -> None:
        if segment in self._warm:
            self._warm.remove(segment)
        if segment in self.rolled:
            self.rolled.remove(segment)

    def purge(self, before_ms: TimestampMs) -> int:
        """Remove files that were retired at ``before_ms`` or earlier; how many segments still wait."""
        due = [r for r in self._retired if r[0] <= before_ms]
        self._retired = [r for r in self._retired if r[0] > before_ms]
        for _, paths in due:
            for path in paths:
                self._files.unlink(path)
        return len(self._retired)

    def touch(self, segment: Segment) -> None:
        """An older segment was read: keep it open, and let go of the one that was not read for longest."""
        if segment is self.all[-1]:
            return
        if segment in self._warm:
            self._warm.remove(segment)
        self._warm.append(segment)
        if len(self._warm) > _WARM:
            self._warm.pop(0).release()

    def moved(self, path: str) -> None:
        """The log's directory has another name now."""
        for segment in self.all:
            segment.moved(path)

    def release(self) -> None:
        """Give all files back."""
        for segment in self.all:
            segment.tail = None
            segment.release()
