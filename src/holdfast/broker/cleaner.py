"""Which log is cleaned next (log compaction), and when: Kafka's LogCleaner.

Owns the turns and who has a place in them. A turn looks at the compacted logs of every directory that answers, in its
background lane, and begins with the filthiest that is due; when a cleaning is over the next turn comes at once, when
nothing was due after log.cleaner.backoff.ms or when the configuration changes.

Left out: logs that are being moved (K113-09; a cleaning ends when a move begins), that are on a directory that is
offline, full or silent, whose records are damaged (uncleanable, until the broker starts again), or of metadata that an
operator has to confirm first.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from holdfast.broker.cleaning import Cleaning, CleaningHost
from holdfast.model.errors import HoldfastError
from holdfast.model.types import Offset, TopicPartition
from holdfast.storage.cleaning_plan import CleanerSettings, look
from holdfast.storage.cleaning_rules import Cleanable
from holdfast.storage.dir_state import DirState
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.topic_configs import RECOVERED

if TYPE_CHECKING:
    import asyncio

    from holdfast.broker.cleaner_process import CleaningFailure
    from holdfast.model.config import BrokerConfig

log = logging.getLogger(__name__)

LOGS_PER_PIECE: Final = 100
"""Looked at in one piece of work of the background lane."""
WATCH_S: Final = 0.5
"""How often is looked whether the logs that are being cleaned are still here."""
CHECKPOINT_S: Final = 0.2
"""After a cleaning: several that end together are written down together."""
_UNREADABLE: Final = (OSError, HoldfastError, ValueError, ArithmeticError, LookupError, struct.error)
"""What looking at a file may end with that is being renamed or removed."""


class Marks(Protocol):
    """Where the high watermarks are."""

    def high_watermarks(self) -> dict[TopicPartition, Offset]: ...

    def high_watermark(self, tp: TopicPartition) -> Offset | None: ...


class Moving(Protocol):
    """The moves between directories. ``on_begin`` is called when one begins."""

    on_begin: Callable[[TopicPartition], None]

    def is_moving(self, tp: TopicPartition) -> bool: ...


class CleanerHost(CleaningHost, Protocol):
    """What the cleaner asks of the broker."""

    config: BrokerConfig

    @property
    def replicas(self) -> Marks: ...

    @property
    def moves(self) -> Moving: ...


class CleanerReading(NamedTuple):
    """For the metrics. Percentages, seconds; of the last cleaning or the last turn."""

    max_dirty_percent: float = 0.0
    recopy_percent: float = 0.0
    last_clean_s: float = 0.0
    buffer_percent: float = 0.0
    uncleanable: tuple[tuple[str, int, int], ...] = ()
    """Directory, partitions, bytes that cannot be cleaned."""


class LogCleaner:
    """See the module's docstring. On the loop."""

    def __init__(self, broker: CleanerHost) -> None:
        self._broker = broker
        self._running: dict[TopicPartition, Cleaning] = {}
        self._uncleanable: dict[TopicPartition, tuple[Log, int]] = {}
        """Log, and the bytes that could not be cleaned."""
        self._put_off: dict[TopicPartition, float] = {}
        """After a failure: until when."""
        self._looking = 0
        self._found: list[tuple[Log, Cleanable]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._is_closed = self._is_woken = self._checkpoint_is_due = False
        self._reading = CleanerReading()
        self.cleanings = 0
        """That went well since the start."""
        broker.moves.on_begin = self.abort

    def start(self) -> None:
        """The first turn comes after the backoff."""
        self._next_turn(self._backoff_s)

    def wake(self) -> None:
        """The configuration has changed: the next turn comes at once."""
        self._is_woken = True
        if self._timer is not None and not self._is_closed:
            self._next_turn(0.0)

    def abort(self, tp: TopicPartition) -> None:
        """End the cleaning of a log, if there is one."""
        running = self._running.get(tp)
        if running is not None:
            running.abort()

    def close(self) -> None:
        """The broker stops."""
        self._is_closed = True
        for timer in (self._timer, self._watch):
            if timer is not None:
                timer.cancel()
        for running in list(self._running.values()):
            running.abort()

    @property
    def _backoff_s(self) -> float:
        return max(1, self._broker.config.int("log.cleaner.backoff.ms")) / 1000

    # -- a turn --------------------------------------------------------------------------------------------------

    def _next_turn(self, after_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._broker.loop.call_later(after_s, self._turn)

    def _turn(self) -> None:
        self._timer = None
        config = self._broker.config
        if self._is_closed or self._looking:
            return
        if not config.bool("log.cleaner.enable") or len(self._running) >= config.int("log.cleaner.threads"):
            self._next_turn(self._backoff_s)
            return
        self._found = []
        self._is_woken = False
        self._looking = 1
        for directory in self._broker.logs.dirs:
            logs = self._candidates(directory)
            for i in range(0, len(logs), LOGS_PER_PIECE):
                self._looking += 1
                some = [(each, self._mark(each)) for each in logs[i : i + LOGS_PER_PIECE]]
                work = partial(_look_at, directory, some, self._broker.now_ms())
                directory.background.submit(work, self._looked)
        self._looked([], None)

    def _mark(self, each: Log) -> Offset:
        return self._broker.replicas.high_watermark(each.topic_partition) or 0

    def _candidates(self, directory: LogDir) -> list[Log]:
        if not directory.answers or directory.state is DirState.FULL:
            return []
        now_s = self._broker.platform.monotonic_s()
        self._put_off = {tp: until_s for tp, until_s in self._put_off.items() if until_s > now_s}
        return [
            each
            for each in self._broker.logs.logs_in(directory)
            if each.config.compact
            and each.failure is None
            and each.topic_partition not in self._running
            and each.topic_partition not in self._put_off
            and self._uncleanable.get(each.topic_partition, (None, 0))[0] is not each
            and not self._broker.moves.is_moving(each.topic_partition)
        ]

    def _looked(self, found: list[tuple[Log, Cleanable]] | None, error: HoldfastError | None) -> None:
        self._looking -= 1
        self._found += found or ()
        if error is not None:
            log.debug("some logs are not looked at: %s", error)
        if self._looking or self._is_closed:
            return
        dirtiest = max((some.ratio for _, some in self._found), default=0.0)
        self._reading = self._reading._replace(max_dirty_percent=100 * dirtiest)
        due = [(some.ratio, number) for number, (each, some) in enumerate(self._found) if some.is_due(each.config)]
        if not due or not self._begin(*self._found[max(due)[1]]):
            self._next_turn(0.0 if self._is_woken else self._backoff_s)
        else:
            self._next_turn(0.0)
        self._found = []

    def _begin(self, each: Log, found: Cleanable) -> bool:
        tp, config = each.topic_partition, self._broker.config
        if self._broker.logs.get(tp) is not each or tp in self._running or self._broker.moves.is_moving(tp):
            return False
        threads = max(1, config.int("log.cleaner.threads"))
        settings = CleanerSettings(
            config.int("log.cleaner.dedupe.buffer.size") // threads,
            float(str(config.get("log.cleaner.io.buffer.load.factor"))),
            max(1024, config.int("log.cleaner.io.buffer.size") // threads),
        )
        rate = float(str(config.get("log.cleaner.io.max.bytes.per.second"))) / threads
        cleaning = Cleaning(self._broker, each, found, settings, rate, self._over)
        self._running[tp] = cleaning
        log.info("%s is cleaned: %.0f%% of it is dirty, from %d on", tp, 100 * found.ratio, found.first_dirty)
        if self._watch is None:
            self._watch = self._broker.loop.call_later(WATCH_S, self._watched)
        cleaning.start()
        return True

    def _watched(self) -> None:
        """A log that was deleted, or whose directory has failed (K18-05), is cleaned no more."""
        for running in list(self._running.values()):
            if running.is_lost and not running.is_aborted:
                running.abort()
        self._watch = self._broker.loop.call_later(WATCH_S, self._watched) if self._running else None

    def _over(self, cleaning: Cleaning, failure: CleaningFailure | None) -> None:
        tp = cleaning.log.topic_partition
        self._running.pop(tp, None)
        stats = cleaning.stats
        if failure is not None:
            self._failed(cleaning, failure)
        elif stats is not None:
            self.cleanings += 1
            if not self._checkpoint_is_due and not self._is_closed:
                self._checkpoint_is_due = True
                self._broker.loop.call_later(CHECKPOINT_S, self._checkpoint)
            took_s = (self._broker.now_ms() - cleaning.began_ms) / 1000
            log.info(
                "%s is clean up to %d: %d bytes became %d, %d of %d records stay, in %.1f s",
                tp, stats.end, stats.bytes_read, stats.bytes_written, stats.records_kept, stats.records_read, took_s,
            )  # fmt: skip
            self._reading = self._reading._replace(
                recopy_percent=100 * stats.bytes_written / max(1, stats.bytes_read),
                last_clean_s=took_s,
                buffer_percent=100 * stats.keys / cleaning.most_keys,
            )
        if not self._is_closed and not self._looking:
            self._next_turn(0.0)

    def _checkpoint(self) -> None:
        """How far logs are clean is written down, so that a crash does not cost the same again."""
        self._checkpoint_is_due = False
        if not self._is_closed:
            self._broker.logs.checkpoints.write_all(self._broker.replicas.high_watermarks())

    def _failed(self, cleaning: Cleaning, failure: CleaningFailure) -> None:
        each = cleaning.log
        tp = each.topic_partition
        if failure.is_corrupt:
            log.error("%s in %s cannot be cleaned: %s", tp, each.dir.path, failure.message)
            self._uncleanable[tp] = each, cleaning.found.dirty_bytes
        else:
            log.warning("%s: cleaning has failed, it is tried again later: %s", tp, failure.message)
            self._put_off[tp] = self._broker.platform.monotonic_s() + self._backoff_s

    def read(self) -> CleanerReading:
        """For the metrics."""
        here = self._broker.logs.get
        self._uncleanable = {tp: found for tp, found in self._uncleanable.items() if here(tp) is found[0]}
        by_dir = {directory.path: [0, 0] for directory in self._broker.logs.dirs}
        for each, size in self._uncleanable.values():
            counted = by_dir.setdefault(each.dir.path, [0, 0])
            counted[0] += 1
            counted[1] += size
        return self._reading._replace(uncleanable=tuple((path, n, size) for path, (n, size) in by_dir.items()))


def _look_at(directory: LogDir, logs: list[tuple[Log, Offset]], now_ms: int) -> list[tuple[Log, Cleanable]]:
    """In the background lane."""
    with directory.guard():
        if directory.files.exists(f"{directory.path}/{RECOVERED}"):
            return []
    found = []
    for each, mark in logs:
        try:
            found.append((each, look(directory.files, each, mark, now_ms)))
        except _UNREADABLE as e:
            log.debug("%s is not looked at: %s", each.topic_partition, e)
    return found
