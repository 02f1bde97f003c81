"""The probes of a running broker's log directories: asked, answered, or not answered.

Owns which probes are under way and how long they took, and says so of the directory (``LogDir.note_pace``). What is
slow is dir_health.py's to judge; what follows for the replicas on a slow directory replica_news.py's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.broker.dir_health import Pace, ProbeTimes
from holdfast.model.errors import DiskQueueFullError, HoldfastError, KafkaStorageError
from holdfast.model.log_events import LogEvent, told
from holdfast.storage.dir_state import DirNews, DirState
from holdfast.storage.log_dir import LogDir

if TYPE_CHECKING:
    import asyncio

    from holdfast.broker.platform import Platform
    from holdfast.model.config import BrokerConfig
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)

_SOON_AFTER_S = 0.01
BUSY = 5
"""A disk that works through its queue has so many limits for an answer: then it is too slow to lead."""


class ProbesHost(Protocol):
    """What the probes ask of the broker."""

    config: BrokerConfig
    loop: asyncio.AbstractEventLoop
    platform: Platform
    logs: LogManager


class _Asked(NamedTuple):
    """A probe under way."""

    at_s: float
    """When it was queued, or refused as the queue was full, by the monotonic clock."""
    since_s: float
    """The same, or when the disk was last seen to have done a piece of work since then."""
    completed: int
    """What the disk had done by then."""
    look: asyncio.TimerHandle
    """When the limit is over."""


class DiskProbes:
    """See the module's docstring. On the loop. ``strain`` and ``relieve``: a directory is slow; one is as usual."""

    def __init__(self, broker: ProbesHost, *, strain: Callable[[LogDir], None], relieve: Callable[[], None]) -> None:
        self._broker = broker
        self._strain = strain
        self._relieve = relieve
        self._times: dict[LogDir, ProbeTimes] = {}
        self._asked: dict[LogDir, _Asked] = {}
        """Probes under way."""
        self._refused: set[LogDir] = set()
        """Those of them that were refused."""

    def ask(self, directory: LogDir) -> bool:
        """Whether it works, on its own thread; True. If it has not answered the last time, look at that; False."""
        if directory in self._asked:
            self._look_at(directory)
            return False
        self._expect(directory, self._broker.platform.monotonic_s())
        self._submit(directory)
        return True

    def is_asked(self, directory: LogDir) -> bool:
        """A probe of it is under way."""
        return directory in self._asked

    def last_ms(self, directory: LogDir) -> float | None:
        """How long its last probe took."""
        return self._times_of(directory).last_ms

    def forget(self, directory: LogDir) -> None:
        """It is not used any more."""
        self._times.pop(directory, None)
        self._over(directory)
        self._refused.discard(directory)

    def _expect(self, directory: LogDir, at_s: float) -> None:
        """Its answer, asked for then, is waited for from now on, and looked for after the limit."""
        self._over(directory)
        look = self._broker.loop.call_later(self._limit_s(directory) + _SOON_AFTER_S, self._look_at, directory)
        since_s = self._broker.platform.monotonic_s()
        self._asked[directory] = _Asked(at_s, since_s, directory.queue.completed, look)

    def _limit_s(self, directory: LogDir) -> float:
        return self._times_of(directory).limit_ms(self._peers(directory)) / 1000

    def _over(self, directory: LogDir) -> None:
        asked = self._asked.pop(directory, None)
        if asked is not None:
            asked.look.cancel()

    def _submit(self, directory: LogDir) -> None:
        work = partial(_timed_probe, directory, self._broker.platform.monotonic_s)
        directory.queue.submit(work, partial(self._answered, directory))

    def _look_at(self, directory: LogDir) -> None:
        """Has it not answered for too long?"""
        if directory in self._refused:
            self._refused.discard(directory)
            self._submit(directory)  # its queue was full: is it still?
            if directory not in self._refused:
                return
        asked = self._asked.get(directory)
        if asked is None or not directory.is_online:
            return
        now_s = self._broker.platform.monotonic_s()
        silent_s = now_s - asked.since_s
        if asked.completed != directory.queue.completed:
            if now_s - asked.at_s < BUSY * self._limit_s(directory):
                self._expect(directory, asked.at_s)  # at work on what was queued before the probe: busy is not silent
                return
            silent_s = now_s - asked.at_s
        self._judge(directory, self._times_of(directory).silent(silent_s * 1000, self._peers(directory)))

    def _answered(self, directory: LogDir, took_s: float | None, error: HoldfastError | None) -> None:
        if isinstance(error, DiskQueueFullError):  # a probe that is refused is one without an answer (D5)
            self._refused.add(directory)
            return
        self._over(directory)
        if took_s is not None and directory in self._broker.logs.dirs:
            self._judge(directory, self._times_of(directory).answered(took_s * 1000, self._peers(directory)))

    def _times_of(self, directory: LogDir) -> ProbeTimes:
        found = self._times.get(directory)
        if found is None:
            floor_ms = self._broker.config.int("log.dir.degraded.probe.ms")
            found = self._times[directory] = ProbeTimes(floor_ms)
        return found

    def _peers(self, directory: LogDir) -> Iterable[float]:
        others = (self._times_of(d) for d in self._broker.logs.dirs if d is not directory and d.is_online)
        return [each.last_ms for each in others if each.last_ms is not None]

    def _judge(self, directory: LogDir, changed: bool) -> None:
        """Say what its probes are now; others had better lead what is on one that is slow or silent."""
        times = self._times_of(directory)
        usual = f"usually {times.usual_ms or 0.0:.1f} ms"
        if not changed:
            if times.pace is Pace.SLOW and directory.state is DirState.ONLINE:  # it was full as well
                directory.note_pace(DirNews.SLOW, f"probes take {times.last_ms or 0.0:.0f} ms, {usual}")
            return
        if times.pace is Pace.WELL:
            directory.note_pace(DirNews.WELL, "")
            well = told(LogEvent.DIR_RECOVERED, dir=directory.path)
            log.warning("log dir %s answers as usual again", directory.path, extra=well)
            self._relieve()
            return
        if times.pace is Pace.SILENT:
            directory.note_pace(DirNews.HUNG, f"a probe has no answer, {usual}")
        else:
            news = DirNews.ANSWERED if directory.state is DirState.SILENT else DirNews.SLOW
            since = "it was silent, and " if news is DirNews.ANSWERED else ""
            directory.note_pace(news, f"{since}a probe took {times.last_ms or 0.0:.0f} ms, {usual}")
        event = LogEvent.DIR_SILENT if times.pace is Pace.SILENT else LogEvent.DIR_DEGRADED
        path, reason = directory.path, directory.health.reason
        fields = told(event, dir=path, reason=reason)
        log.error("log dir %s is %s: %s", path, directory.state.value, reason, extra=fields)
        last = sum(d.is_online for d in self._broker.logs.dirs) == 1
        if self._broker.config.str("log.dir.degraded.action") == "offline" and not last:
            directory.mark_offline(KafkaStorageError(f"log dir {directory.path} is degraded"))
        else:
            self._strain(directory)


def _timed_probe(directory: LogDir, mono: Any) -> float:
    """Seconds that a probe takes, on the directory's thread."""
    start_s = mono()
    directory.probe()
    return float(mono() - start_s)
