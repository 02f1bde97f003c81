"""What is done with logs every few seconds: retention, flushes, rolls, indexes, and files that go for good.

Each piece runs on its directory's own thread, a number of logs at a time, so that appends come in between (of retention
a number of segments, retention_run.py). Nobody waits for any of it: an error of one log is that log's, and keeps no
other from its turn.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, Protocol

from holdfast.model.errors import HoldfastError, StorageError
from holdfast.model.types import TimestampMs, TopicPartition
from holdfast.storage.deletions import Deletions
from holdfast.storage.log import Log
from holdfast.storage.log_dir import DiskQueue, LogDir
from holdfast.storage.log_table import FutureLogs
from holdfast.storage.recovery_point import RecoveryPointAhead
from holdfast.storage.removal import Removals
from holdfast.storage.retention_run import MarkOf, RetentionRun

log = logging.getLogger(__name__)

_LOGS_PER_JOB = 100
"""Logs that one piece of work looks at: appends to the dir wait for no more than that."""

STATE_SEGMENT_BYTES: Final = 8 << 20
"""Of a coordinator's log: some 60,000 commits, of which each takes a microsecond to load."""


UNCHECKED_BATCHES: Final = 4_000
"""In the active segment, before its log's recovery point moves into it: some 30 ms of a later start."""


class Kept(Protocol):
    """The tables of logs that something is due for."""

    dirs: list[LogDir]
    copies: FutureLogs
    deletions: Deletions
    removals: Removals

    def get(self, tp: TopicPartition) -> Log | None: ...

    def logs(self) -> Iterable[Log]: ...

    def logs_in(self, directory: LogDir) -> list[Log]: ...

    def submit_quietly(self, directory: LogDir, work: Callable[[], object]) -> None: ...


class Upkeep:
    """See the module's docstring. On the loop."""

    def __init__(self, logs: Kept) -> None:
        self._logs = logs
        self._syncing: set[Log] = set()
        """Logs whose rolled segments are being synced aside."""
        self._moving: set[Log] = set()
        """Logs whose recovery point is under way."""
        self.unchecked_most = UNCHECKED_BATCHES
        self._retaining: set[LogDir] = set()

    def retain(self, now_ms: TimestampMs, mark_of: MarkOf) -> None:
        """Retire segments by age and size, of each directory as quickly as it can; not while it does so still."""
        for directory in self._logs.dirs:
            if directory.answers and directory not in self._retaining:
                self._retaining.add(directory)
                over = partial(self._retaining.discard, directory)
                RetentionRun(self._logs, directory, now_ms, mark_of, over).start()

    def flush_due(self, now_ms: TimestampMs) -> None:
        """Sync segments that were rolled, and logs with flush.ms."""

        def flush_one(each: Log) -> None:
            if each.has_rolled and each.dir.sync_queue is None:
                each.flush_rolled()
            each.flush_if_due(now_ms)

        never = 2**63 - 1
        self._for_each_log(
            flush_one,
            lambda each: (each.has_rolled and each.dir.sync_queue is None) or each.config.flush_ms < never,
        )
        for each in self._logs.logs():
            queue = each.dir.sync_queue
            if queue is not None and each.has_rolled and each.dir.answers and each not in self._syncing:
                self._syncing.add(each)
                self._sync_aside(each, queue)

    def _sync_aside(self, each: Log, queue: DiskQueue) -> None:
        """Sync the batches of rolled segments on the dir's other thread, then the small rest on its first one."""
        segments = each.rolled()

        def synced(_: None, error: HoldfastError | None) -> None:
            self._syncing.discard(each)
            if error is None and self._logs.get(each.topic_partition) is each:
                self._logs.submit_quietly(each.dir, partial(each.flush_rolled, segments))

        queue.submit(partial(each.sync_batches, segments), synced)

    def move_recovery_points(self) -> None:
        """Within active segments that had many batches since: what a start after kill -9 checks has a limit then."""
        for each in self._logs.logs():
            if (
                each.view.segments[-1].unchecked >= self.unchecked_most
                and each.failure is None
                and each.dir.answers
                and each not in self._moving
            ):
                self._moving.add(each)
                each.dir.queue.submit(each.begin_recovery_point, partial(self._sync_point, each))

    def _sync_point(self, each: Log, point: RecoveryPointAhead | None, error: HoldfastError | None) -> None:
        queue = each.dir.sync_queue or each.dir.queue

        def synced(is_synced: bool | None, error: HoldfastError | None) -> None:
            self._moving.discard(each)
            if is_synced and point is not None and self._logs.get(each.topic_partition) is each:
                self._logs.submit_quietly(each.dir, partial(each.take_recovery_point, point))

        if point is None or error is not None or self._logs.get(each.topic_partition) is not each:
            self._moving.discard(each)
        else:
            queue.submit(partial(each.sync_recovery_point, point), synced)

    def roll_due(self, now_ms: TimestampMs, state_topics: Collection[str] = ()) -> None:
        """Begin new segments in logs whose active one is too old by the clock. ``state_topics``: their partitions are
        read to the end by whoever comes to lead them, and no cleaning touches an active segment: where they are
        compacted, it does not become larger than what is read in a moment."""

        def roll(each: Log) -> None:
            is_state = each.topic_partition.topic in state_topics and each.config.compact
            each.roll_if_due(now_ms, STATE_SEGMENT_BYTES if is_state else None)

        self._for_each_log(roll)

    def write_indexes(self) -> None:
        """Bring the index files of active segments up to date, for those who look at them."""
        self._for_each_log(Log.write_indexes, lambda each: each.view.segments[-1].index_is_behind())

    def purge(self, now_ms: TimestampMs) -> None:
        """Remove what was retired or deleted long enough ago: piece by piece, in the background."""
        for each in self._logs.deletions.take_due(now_ms):
            each.dir.queue.submit(each.release, partial(self._remove, each.dir, [each.path]))
        copies: list[Log] = list(self._logs.copies)
        for directory in self._logs.dirs:
            logs = [*self._logs.logs_in(directory), *(each for each in copies if each.dir is directory)]
            retiring = [each for each in logs if each.has_retired and each.failure is None]
            if directory.answers and retiring:
                due: list[str] = []
                take = partial(_take_retired, retiring, now_ms, due)
                directory.queue.submit(take, partial(self._remove, directory, due))

    def _remove(self, directory: LogDir, paths: list[str], _: None, error: HoldfastError | None) -> None:
        if error is None:
            self._logs.removals.add(directory, paths)

    def expire_producers(self, now_ms: TimestampMs, after_ms: int) -> None:
        """Forget idempotent producers that were silent for long."""
        self._for_each_log(lambda each: each.producers.expire(now_ms, after_ms), lambda e: bool(e.producers.entries))

    def _for_each_log(self, work: Callable[[Log], object], wanted: Callable[[Log], bool] = lambda each: True) -> None:
        """Run ``work`` on each log of the dirs that answer, a number of them at a time: one that hangs has it done when
        it is through with what waits for it already."""
        for directory in self._logs.dirs:
            if not directory.answers:
                continue
            logs = [each for each in self._logs.logs_in(directory) if each.failure is None and wanted(each)]
            for i in range(0, len(logs), _LOGS_PER_JOB):
                self._logs.submit_quietly(directory, partial(_for_all, work, logs[i : i + _LOGS_PER_JOB]))


def _take_retired(logs: list[Log], now_ms: TimestampMs, due: list[str]) -> None:
    for each in logs:
        due += each.take_retired(now_ms)


def _for_all(work: Callable[[Log], object], logs: list[Log]) -> None:
    for each in logs:
        try:
            work(each)
        except StorageError as e:
            if not each.dir.is_online:
                raise
            log.warning("%s: housekeeping failed: %s", each.topic_partition, e)
