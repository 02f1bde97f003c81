"""What one log directory did, as integers: appends, flushes, their times, errors.

Owned by its LogDir, and made only where somebody may read it. The foreground's numbers have one writer, its thread, and
so have those of the thread for long fsyncs; errors are counted under the directory's own lock.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.model.histogram import EVERY, EXACT, Histogram, Observed


class DirMeter:
    """See the module's docstring. ``ticks``: nanoseconds that only grow."""

    __slots__ = (
        "_exact",
        "_period",
        "_seen",
        "append_times",
        "appended_bytes",
        "errors",
        "flush_times",
        "left",
        "long_flush_times",
        "periods",
        "ticks",
    )

    def __init__(self, ticks: Callable[[], int]) -> None:
        self.ticks = ticks
        self.append_times = Histogram()
        """Writing checked batches of one partition, as leader or as follower."""
        self.appended_bytes = 0
        self._exact = EXACT
        """Of the foreground, like the next: so many more writes are timed, each of them."""
        self.left = self._period = 1
        """So many more writes, the last of which is timed; counted down by who writes, below 0 where that fails."""
        self.periods = self._seen = 0
        """Of the loop: ten more seconds are over."""
        self.flush_times = Histogram()
        """Fsyncs of the foreground."""
        self.long_flush_times = Histogram()
        """Fsyncs that appends do not wait for."""
        self.errors = 0
        """Of the system, that were not the process's own fault."""

    def appended(self, began: int) -> None:
        """The foreground has written since tick ``began``, and this write is timed: it stands for those before it."""
        weight = self._period - self.left
        if self._exact:
            self._exact -= 1
        if self._seen != self.periods:
            self._seen, self._exact = self.periods, EXACT
        self.left = self._period = 1 if self._exact else EVERY
        self.append_times.add((self.ticks() - began) // 1000, weight)

    def flushed(self, began: int, *, is_long: bool = False) -> None:
        """A flush that began then has succeeded; ``is_long``: on the thread for those."""
        times = self.long_flush_times if is_long else self.flush_times
        times.add((self.ticks() - began) // 1000)

    def flushes(self) -> Observed:
        """Of both threads."""
        return self.flush_times.now().plus(self.long_flush_times.now())
