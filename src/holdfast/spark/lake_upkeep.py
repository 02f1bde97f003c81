"""Upkeep of a lake's tables while it runs: in a thread of its own, so that no batch waits for it.

Owns when a round is due. What a round does is holdfast.lake.upkeep's.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.lake.errors import LakeError
from holdfast.lake.table import Steps, Table
from holdfast.lake.upkeep import maintain

log = logging.getLogger(__name__)

KEEP_MS: Final = 10 * 60_000
"""States of the table that are older are forgotten: a lake makes one a second, and each commit of Iceberg writes down
all that there are. Whoever reads one state for longer lets upkeep be, and calls it on a schedule of their own."""


class Upkeeper:
    """Does a round after ``every`` commits; one at a time, so what comes while one runs is part of the next."""

    def __init__(
        self, tables: Callable[[], Sequence[Table]], *, every: int, on_step: Steps = lambda _step: None
    ) -> None:
        self._tables = tables
        self._every = every
        self._on_step = on_step
        self._since = 0
        self._running: threading.Thread | None = None

    def committed(self) -> None:
        """There was a commit."""
        self._since += 1
        if self._since < self._every or (self._running is not None and self._running.is_alive()):
            return
        self._since = 0
        self._running = threading.Thread(target=self._round, name="holdfast-lake-upkeep", daemon=True)
        self._running.start()

    def end(self) -> None:
        """Waits for the round that is under way."""
        if self._running is not None:
            self._running.join()

    def _round(self) -> None:
        """A failure is told and ends no batch: the next round does what this one did not."""
        try:
            for table in self._tables():
                done = maintain(table, keep_ms=KEEP_MS, on_step=self._on_step)
                if done.compaction.files_before or done.expired or done.swept:
                    log.info(
                        "%s: %d files became %d, %d states forgotten, %d orphans removed",
                        table.store.location,
                        done.compaction.files_before,
                        done.compaction.files_after,
                        done.expired,
                        len(done.swept),
                    )
        except (LakeError, OSError) as error:
            log.warning("upkeep of a table failed and is tried again later: %s", error)
