"""Retention of the logs of one directory: turn by turn, so that no piece holds an append for long.

    next logs --> look, in the background lane: times of old segments --> retire, in the foreground --> the next turn

Owns the order of the turns and how much is done in one. Looking reads files and changes nothing. Retiring renames the
files of some segments, and reads none but of a log that has no times; the next turn is asked for on the loop, behind
the appends that wait by then. What of a log is left over is first in the next turn. All on the loop but for the pieces.

While one looks, the foreground may cut, delete or move the log. So a look judges no error: it finds no times then, and
the foreground reads for itself. Times are of a segment, the object, not of a base offset: cutting a segment has it know
its own time, and one that is made anew is another. Retiring decides anew, by the high watermark of that moment.
"""

import logging
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from holdfast.model.errors import CorruptRecordError, HoldfastError, StorageError
from holdfast.model.types import Offset, TimestampMs, TopicPartition
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.retention import Times, note, times_of
from holdfast.storage.topic_configs import RECOVERED

log = logging.getLogger(__name__)

SEGMENTS: Final = 10
"""Looked at in one piece, and retired in one: five files each, about 0.2 ms."""
LOGS: Final = 100
"""In one turn, where little is to be done."""
_UNREADABLE: Final = (OSError, HoldfastError, ValueError, ArithmeticError, LookupError, struct.error)
"""What reading a file may end with that is being cut, renamed or removed."""
MarkOf = Callable[[TopicPartition], Offset | None]
"""The high watermark of a replica; None when nobody knows one. On the loop."""


class Held(Protocol):
    """The table of logs."""

    def get(self, tp: TopicPartition) -> Log | None: ...

    def logs_in(self, directory: LogDir) -> list[Log]: ...


class _Found(NamedTuple):
    """What a look has found: of which log, times that it did not know, how many of its segments may go in this turn."""

    log: Log
    times: Times
    most: int


class RetentionRun:
    """See the module's docstring. ``over`` is called once, at the end, whatever the end is."""

    def __init__(
        self,
        logs: Held,
        directory: LogDir,
        now_ms: TimestampMs,
        mark_of: MarkOf,
        over: Callable[[], None],
    ) -> None:
        self._logs = logs
        self._dir = directory
        self._now_ms = now_ms
        self._mark_of = mark_of
        self._over = over
        self._left = deque(logs.logs_in(directory))

    def start(self) -> None:
        """Begin, unless an operator has to confirm the configurations first."""
        self._dir.background.submit(self._is_recovered, self._begun)

    def _is_recovered(self) -> bool:
        with self._dir.guard():
            return self._dir.files.exists(f"{self._dir.path}/{RECOVERED}")

    def _begun(self, is_recovered: bool | None, error: HoldfastError | None) -> None:
        if is_recovered is None:
            self._failed(error)
        elif is_recovered:
            log.warning(
                "%s: the metadata was rebuilt: retention deletes nothing before `holdfast metadata confirm`",
                self._dir.path,
            )
            self._over()
        else:
            self._turn()

    def _is_here(self, each: Log) -> bool:
        return each.failure is None and self._logs.get(each.topic_partition) is each

    def _mark(self, each: Log) -> Offset:
        return self._mark_of(each.topic_partition) or 0

    def _turn(self) -> None:
        """The next logs, of those that are still here. A directory that does not answer has its turn in another run."""
        logs: list[Log] = []
        while self._left and len(logs) < LOGS and self._dir.answers:
            each = self._left.popleft()
            if self._is_here(each):
                logs.append(each)
        if logs:
            marks = [self._mark(each) for each in logs]
            self._dir.background.submit(partial(self._look, logs, marks), partial(self._looked, logs))
        else:
            self._over()

    def _look(self, logs: list[Log], marks: list[Offset]) -> list[_Found]:
        """In the background: of the first logs, as many as there is room for."""
        found: list[_Found] = []
        room = SEGMENTS
        for each, mark in zip(logs, marks, strict=True):
            if room <= 0:
                break
            with self._dir.guard():
                pass  # an offline directory is not touched
            times: Times = {}
            most = room
            limit_ms = each.config.retention_ms if each.config.delete else None
            if limit_ms is not None:
                try:
                    times, count = times_of(self._dir.files, each.view, mark, self._now_ms, limit_ms, most)
                    room -= count
                except _UNREADABLE as e:
                    log.debug("%s: its times are not looked at aside: %s", each.topic_partition, e)
            found.append(_Found(each, times, most))
        return found

    def _looked(self, logs: list[Log], found: list[_Found] | None, error: HoldfastError | None) -> None:
        if found is None:
            self._failed(error)
            return
        self._left.extendleft(reversed(logs[len(found) :]))
        # One that was deleted, moved or made anew meanwhile has left the table by now.
        here = [(each, self._mark(each.log)) for each in found if self._is_here(each.log)]
        self._dir.queue.submit(partial(self._retire, here), self._retired)

    def _retire(self, found: list[tuple[_Found, Offset]]) -> list[Log]:
        """In the foreground; the logs of which more may go."""
        more: list[Log] = []
        room = SEGMENTS
        for (each, times, most), mark in found:
            allowed = min(most, room)
            if allowed:
                note(times)
                try:
                    gone = each.delete_old_segments(self._now_ms, mark, allowed)
                except (StorageError, CorruptRecordError) as e:
                    self._trouble(each, e)
                    continue
                room -= gone
                if gone < allowed:
                    continue
            more.append(each)
        return more

    def _retired(self, more: list[Log] | None, error: HoldfastError | None) -> None:
        if more is None:
            self._failed(error)
        else:
            self._left.extendleft(reversed(more))
            self._turn()

    def _trouble(self, each: Log, error: HoldfastError) -> None:
        """Of one log it is that log's, and keeps no other from its turn."""
        if not each.dir.is_online:
            raise error
        log.warning("%s: housekeeping failed: %s", each.topic_partition, error)

    def _failed(self, error: HoldfastError | None) -> None:
        if self._dir.is_online:
            log.warning("%s: housekeeping failed: %s", self._dir.path, error)
        self._over()
