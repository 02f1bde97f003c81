"""A log of which segments are replaced by what a cleaning made of them (log compaction).

Owns the swap, and how far the log was cleaned. The swap is one piece of work on the directory's own thread; a crash
between any two of its steps leaves what the next start completes or takes back (swap_recovery.py):

    .cleaned  -- the files are on the device; the log is as it was
    .swap     -- from the first sync of the names on, this is what counts
    .deleted  -- what it was made of, kept for file.delete.delay.ms as everything that is retired
    .log      -- it has its name

Who reads by the old picture goes on reading the files that it has open.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.model.errors import KafkaStorageError
from holdfast.model.types import Offset, TimestampMs
from holdfast.storage.cleaning_job import CleanedSegment
from holdfast.storage.readable_log import ReadableLog
from holdfast.storage.segment import Segment
from holdfast.storage.segment_names import CLEANED, SWAP, TXN_INDEX, segment_name
from holdfast.storage.txn_index import NO_ABORTS


class Planned(NamedTuple):
    """Segments that are being cleaned, and how often their log had been cut when that began."""

    segments: Sequence[Segment]
    cuts: int

    def made_into(self, one: CleanedSegment) -> list[Segment]:
        """Those that ``one`` was made of."""
        bases = set(one.sources)
        return [each for each in self.segments if each.base_offset in bases]


class CleanedLog(ReadableLog):
    """See the module's docstring. ``cleaned_offset``: all before it is clean; None: not known. ``times_cut``: since it
    was opened."""

    __slots__ = ("cleaned_offset", "times_cut")

    cleaned_offset: Offset | None
    times_cut: int

    def _publish(self, start_offset: Offset, end_offset: Offset) -> None:
        """The new picture for the loop."""
        raise NotImplementedError

    def _forget_cleaned(self, offset: Offset) -> None:
        """The log is cut at ``offset``: what comes next there is not clean."""
        self.times_cut += 1
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(offset, self.cleaned_offset)

    @contextmanager
    def _all_or_failed(self) -> Iterator[None]:
        """Around a change of several files: after an error in the middle nobody knows what is there, so this log is
        used no more (K18-03), whatever the error was."""
        try:
            with self.guard():
                yield
        except KafkaStorageError as e:
            self.dir.fail_log(self, e)
            raise

    def swap(self, planned: Planned, one: CleanedSegment, now_ms: TimestampMs) -> bool:
        """Have a cleaned segment take the place of those that it was made of. False if the log was cut or lost some of
        them meanwhile: then its files are of no use."""
        going = planned.made_into(one)
        at = self._place_of(going) if planned.cuts == self.times_cut else None
        if at is None:
            return False
        if one.is_same:
            return True
        self._install(one)
        with self._all_or_failed():
            made = Segment(self.dir.files, self.path, one.base_offset, created_ms=now_ms)
            made.size = one.size
            made.max_timestamp, made.max_timestamp_offset = one.max_timestamp, one.max_timestamp_offset
            made.aborts = None if TXN_INDEX in one.suffixes else NO_ABORTS
            self._segments.exchange(at, going, made, now_ms)
            for suffix in reversed(one.suffixes):  # the batches first: what has its name when they have is kept
                self._rename(one, suffix + SWAP, suffix)
            self._publish(self.view.start_offset, self.view.end_offset)
        return True

    def note_cleaned(self, planned: Planned, end: Offset) -> None:
        """A cleaning is over: all before ``end`` is clean, unless the log was cut meanwhile."""
        if planned.cuts == self.times_cut:
            self.cleaned_offset = end

    def _place_of(self, going: Sequence[Segment]) -> int | None:
        """The number of the first of them, if they are all there, one after the other, and none is written to."""
        segments = self._segments.all
        at = next((i for i, each in enumerate(segments) if going and each is going[0]), None)
        if at is None or at + len(going) >= len(segments):
            return None
        return at if all(a is b for a, b in zip(going, segments[at:], strict=False)) else None

    def _install(self, one: CleanedSegment) -> None:
        """From here on the next start goes on with the swap. If it cannot be said so, nothing was done."""
        try:
            with self.guard():
                for suffix in one.suffixes:
                    self._rename(one, suffix + CLEANED, suffix + SWAP)
                self.dir.files.fsync_dir(self.path)
        except KafkaStorageError:
            with self._all_or_failed():  # a swap that stays behind would be completed by a later start
                for suffix in reversed(one.suffixes):
                    self.dir.files.unlink(f"{self.path}/{segment_name(one.base_offset)}{suffix}{SWAP}")
            raise

    def _rename(self, one: CleanedSegment, old: str, new: str) -> None:
        stem = f"{self.path}/{segment_name(one.base_offset)}"
        self.dir.files.rename(stem + old, stem + new)
