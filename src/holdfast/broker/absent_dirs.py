"""Log directories that this broker had at its last start and has not now: left out of log.dirs, or added at run time
and never written into it.

Each is kept as a directory that is offline, under the place where it was: it is told at the start, described like any
other, and comes back with `log-dirs online` or with log.dirs. What is nowhere else here may be on it:

    somebody else leads, and we are not in the ISR --> made anew on another directory (K112-41)
    else --> it waits, offline, and no empty copy leads, until the directory is back or removed by force

Owns that choice. Which directories are absent is storage/incarnation.py's to know.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from holdfast.model.errors import InvalidRequestError, KafkaStorageError
from holdfast.model.fates import ReplicaFate
from holdfast.model.types import TopicPartition, named
from holdfast.storage.log_dir import LogDir

if TYPE_CHECKING:
    from holdfast.broker.membership import Membership
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.model.types import BrokerId
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)


class MakesDirs(Protocol):
    """Who makes a LogDir."""

    def make(self, path: str) -> LogDir: ...


class AbsentDirsHost(Protocol):
    """What the absent directories ask of the broker."""

    broker_id: BrokerId
    logs: LogManager
    metadata: MetadataCache
    membership: Membership

    @property
    def disks(self) -> MakesDirs: ...


class AbsentDirs:
    """See the module's docstring. On the loop."""

    def __init__(self, broker: AbsentDirsHost) -> None:
        self._broker = broker
        self._found: list[LogDir] = []

    def look(self) -> None:
        """The directories of log.dirs are loaded: which are missing?"""
        logs = self._broker.logs
        for path in logs.past.absent():
            directory = self._broker.disks.make(path)
            directory.on_offline = None  # it did not fail
            directory.mark_offline(KafkaStorageError("it was a log directory at the last start and is not in log.dirs"))
            logs.add_absent(directory)
            self._found.append(directory)
            log.warning(
                "%s was a log directory of broker %d at its last start and is not in log.dirs now: what only it has"
                " waits for it. Put it into log.dirs, or: holdfast log-dirs online (or remove) --broker %d %s",
                path, self._broker.broker_id, self._broker.broker_id, path,
            )  # fmt: skip
        if self._found:
            logs.past.await_absent(len(self._found))

    @property
    def directories(self) -> list[LogDir]:
        """Those that are absent still."""
        there = self._broker.logs.dirs
        return [d for d in self._found if d in there and not d.is_online]

    def missing(self) -> list[TopicPartition]:
        """Replicas of this broker that are on no directory it has."""
        broker, logs = self._broker, self._broker.logs
        return [
            tp
            for topic, partitions in broker.metadata.topics.items()
            for number, info in partitions.items()
            if broker.broker_id in info.replicas
            if (tp := TopicPartition(topic, number)) not in logs.standings.failed and logs.get(tp) is None
        ]

    def metadata_changed(self) -> None:
        """Make anew what others lead and have."""
        broker, logs, absent = self._broker, self._broker.logs, self.directories
        if not absent or any(not d.is_online for d in logs.dirs if d not in absent):
            return
        news = False
        for tp in self.missing():
            info = broker.metadata.partition(tp)
            if info is None or info.leader in (None, -1, broker.broker_id) or broker.broker_id in info.isr:
                continue
            if tp not in logs.standings.returned:
                logs.standings.back(tp, ReplicaFate.LOST)
                news = True
        if news:
            broker.membership.beat()

    def check_removal(self, directory: LogDir, *, force: bool) -> None:
        """InvalidRequestError when it may have the last copy of something."""
        if force or directory not in self._found:
            return
        waiting = [tp for tp in self.missing() if tp not in self._broker.logs.standings.returned]
        if waiting:
            raise InvalidRequestError(
                f"{directory.path} may have the last copy of {named(waiting)}: --force gives that up"
            )
