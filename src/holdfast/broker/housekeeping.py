"""What a broker does now and then: retention, rolling, flushing, checkpoints, probes.

Owns the timers. The work itself is the log manager's and runs on each disk's thread; a disk that is still busy with
the last round is left out of the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from holdfast.broker.topic_creation import OF_COORDINATORS

if TYPE_CHECKING:
    from holdfast.broker.cleaner import LogCleaner
    from holdfast.broker.disks import Disks
    from holdfast.broker.topic_notes import TopicNotes
    from holdfast.model.config import BrokerConfig
    from holdfast.replication.local_replicas import LocalReplicas
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)


OFTEN_MS = 5_000
"""How often rolled segments are synced and retired files removed."""
CHECKPOINTS = (
    "replica.high.watermark.checkpoint.interval.ms",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
)
"""The most frequent of them holds for all three files of a directory: one that would not change is not written."""
POINTS_MS = 10_000
"""How often recovery points move within segments that are written to."""
SOON_MS = 1_000
"""After a start: what was recovered after a crash is synced and its recovery point written, so that a second crash
does not cost the same recovery again."""


class HousekeepingHost(Protocol):
    """Whose housekeeping it is."""

    config: BrokerConfig
    loop: asyncio.AbstractEventLoop
    logs: LogManager
    replicas: LocalReplicas
    disks: Disks
    topic_notes: TopicNotes
    cleaner: LogCleaner

    def now_ms(self) -> int: ...


class Housekeeping:
    """See the module's docstring."""

    def __init__(self, broker: HousekeepingHost) -> None:
        self._broker = broker
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closed = False

    def start(self) -> None:
        """Begin; intervals are those of the configuration."""
        config = self._broker.config
        self._every("checkpoint", max(1, min(config.int(key) for key in CHECKPOINTS)), self._checkpoint)
        self._every("files", OFTEN_MS, self._often)
        self._every("recovery points", POINTS_MS, self._broker.logs.upkeep.move_recovery_points)
        flush_ms = config.int("log.flush.scheduler.interval.ms")
        if 0 < flush_ms < OFTEN_MS:
            self._every("flush", flush_ms, self._flush)
        self._timers["soon"] = self._broker.loop.call_later(SOON_MS / 1000, self._soon)
        retention_ms, first_ms = (
            config.int(key) for key in ("log.retention.check.interval.ms", "log.initial.task.delay.ms")
        )
        self._every("retention", retention_ms, self._retain, first_ms=min(first_ms, retention_ms))
        self._every("producers", config.int("producer.id.expiration.check.interval.ms"), self._expire_producers)
        self._broker.cleaner.start()
        self._every("probe", config.int("log.dir.probe.interval.ms"), self._broker.disks.probe)

    def _every(self, name: str, interval_ms: int, work: Callable[[], None], first_ms: int | None = None) -> None:
        def run() -> None:
            if self._closed:
                return
            try:
                work()
            except Exception:
                log.exception("housekeeping: %s failed", name)
            self._timers[name] = self._broker.loop.call_later(interval_ms / 1000, run)

        delay_ms = interval_ms if first_ms is None else first_ms
        self._timers[name] = self._broker.loop.call_later(delay_ms / 1000, run)

    def _soon(self) -> None:
        self._often()
        self._timers["soon"] = self._broker.loop.call_later(SOON_MS / 1000, self._checkpoint)

    def _checkpoint(self) -> None:
        self._broker.logs.checkpoints.write_all(self._broker.replicas.high_watermarks())
        self._broker.logs.checkpoints.write_notes(self._broker.now_ms())

    def _retain(self) -> None:
        logs, now_ms = self._broker.logs, self._broker.now_ms()
        logs.upkeep.retain(now_ms, self._broker.replicas.high_watermark)

    def _expire_producers(self) -> None:
        after_ms = self._broker.config.int("producer.id.expiration.ms")
        self._broker.logs.upkeep.expire_producers(self._broker.now_ms(), after_ms)

    def _flush(self) -> None:
        self._broker.logs.upkeep.flush_due(self._broker.now_ms())

    def _often(self) -> None:
        logs, now_ms = self._broker.logs, self._broker.now_ms()
        logs.upkeep.roll_due(now_ms, OF_COORDINATORS)
        logs.upkeep.flush_due(now_ms)
        logs.upkeep.write_indexes()
        logs.upkeep.purge(now_ms)
        self._broker.topic_notes.write()

    def close(self) -> None:
        """Stop all timers."""
        self._closed = True
        self._broker.cleaner.close()
        for timer in self._timers.values():
            timer.cancel()
