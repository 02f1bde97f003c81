"""A moment in which nothing is written to a partition's log, so that its copy can take its place (KIP-113).

Owns what waits meanwhile. Appends and deletions are kept, not refused; a follower fetches nothing. The hold counts as
work of the disk, so a new role begins when it is over, with the log that there is then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from holdfast.model.types import BrokerId
from holdfast.storage.log import Log


class OfLog(Protocol):
    """What reads or writes a log, and is to be given the other one."""

    log: Log


class HeldPartition(Protocol):
    """The partition of a hold, as far as the hold has to know it."""

    hold: Hold | None
    log: Log | None
    disk_works: int

    @property
    def entries(self) -> Mapping[BrokerId, OfLog]:
        """Followers' fetch sessions that have it."""

    def disk_work_done(self) -> None: ...


class Hold:
    """See the module's docstring. ``quiet`` is called once, by ``look``, when all that was under way has come back:
    to be asked at once when the hold is made. ``resume`` is called at the end, to fetch again."""

    __slots__ = ("_kept", "_partition", "_quiet", "_resume")

    def __init__(self, partition: HeldPartition, quiet: Callable[[], None], resume: Callable[[], None]) -> None:
        self._partition = partition
        self._quiet: Callable[[], None] | None = quiet
        self._resume = resume
        self._kept: list[Callable[[], None]] = []
        partition.hold = self
        partition.disk_works += 1

    def keep(self, work: Callable[[], None]) -> None:
        """Do it when the hold is over."""
        self._kept.append(work)

    def look(self) -> None:
        """Perhaps nothing is under way any more."""
        if self._partition.disk_works == 1 and self._quiet is not None:
            quiet, self._quiet = self._quiet, None
            quiet()

    def release(self, log: Log | None) -> None:
        """Go on, with another log or (None) the same one. Once; later calls do nothing."""
        partition = self._partition
        if partition.hold is not self:
            return
        partition.hold = self._quiet = None
        if log is not None:
            partition.log = log
            for entry in partition.entries.values():
                entry.log = log
        kept, self._kept = self._kept, []
        for work in kept:
            work()
        self._resume()
        partition.disk_work_done()
