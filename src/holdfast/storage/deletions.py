"""Replicas on their way out: renamed, and in no table any more, until their files may go.

Owns who waits for ``file.delete.delay.ms``. The files are removed in the background by removal.py; what is due is asked
for by upkeep.py. Lives on the event loop; the renames are done on the threads of the directories.
"""

import logging
from collections.abc import Callable
from functools import partial
from uuid import UUID

from holdfast.model.errors import HoldfastError
from holdfast.model.types import TimestampMs, TopicPartition
from holdfast.storage.future_log import forget_origin, leave
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir

log = logging.getLogger(__name__)


class Deletions:
    """See the module's docstring. ``new_id``: names nobody has; ``submit_quietly``: work that nobody waits for."""

    def __init__(
        self, new_id: Callable[[], UUID], submit_quietly: Callable[[LogDir, Callable[[], object]], None]
    ) -> None:
        self._new_id = new_id
        self._submit_quietly = submit_quietly
        self._deleted: list[tuple[TimestampMs, Log]] = []
        self._deleting: dict[TopicPartition, LogDir] = {}

    def delete(self, going: Log, now_ms: TimestampMs, done: Callable[[HoldfastError | None], None]) -> None:
        """Rename the directory of a log that somebody has deleted, and say when that is done."""
        tp, directory = going.topic_partition, going.dir
        self._deleting[tp] = directory

        def renamed(_: str | None, error: HoldfastError | None) -> None:
            self._deleting.pop(tp, None)
            if error is None:
                self._deleted.append((now_ms, going))
            done(error)

        directory.queue.submit(partial(going.rename_for_delete, self._new_id().hex), renamed)

    def retire(self, superseded: Log, now_ms: TimestampMs) -> None:
        """Remove a log that is in no table: later, like one that was deleted."""

        def renamed(_: str | None, error: HoldfastError | None) -> None:
            if error is None:
                self._deleted.append((now_ms, superseded))

        superseded.dir.queue.submit(partial(superseded.rename_for_delete, self._new_id().hex), renamed)

    def moved_away(self, old: Log, kept: Log, now_ms: TimestampMs) -> None:
        """The directory of the old log goes, and then the mark in the other one that tells the two apart."""

        def left(_: str | None, error: HoldfastError | None) -> None:
            if error is None:
                self._deleted.append((now_ms, old))
                self._submit_quietly(kept.dir, partial(forget_origin, kept))
            else:
                log.warning("%s stays: %s; the next start removes it", old.path, error)

        old.dir.queue.submit(partial(leave, old, self._new_id().hex), left)

    def waits_on(self, tp: TopicPartition) -> LogDir | None:
        """The dir whose thread is to rename a log of ``tp`` now."""
        return self._deleting.get(tp)

    def of_dir(self, directory: LogDir) -> list[Log]:
        """The logs of one dir that wait for their removal."""
        return [each for _, each in self._deleted if each.dir is directory]

    def forget_dir(self, directory: LogDir) -> None:
        """The dir is no more of this broker, or another one has taken its place."""
        self._deleted = [(when, each) for when, each in self._deleted if each.dir is not directory]

    def take_due(self, now_ms: TimestampMs) -> list[Log]:
        """Deleted replicas whose files may go by now; they are told once."""
        due = [(when, each) for when, each in self._deleted if now_ms - when >= each.config.file_delete_delay_ms]
        self._deleted = [d for d in self._deleted if d not in due]
        return [each for _, each in due]
