"""One disk: its queue, its lock, its identity, and whether it still works.

Owns what a log directory is fit for (``health``; dir_state.py has the table), ``guard`` (the one place that catches
OSError and decides what it means), the probe, ``.lock`` and ``meta.properties``. Knows nothing of what lies in the
directory: that is log_manager.py. How quick its probes are is judged elsewhere (broker/dir_health.py) and said here.

An I/O error of the directory, or a probe that fails, takes it offline, for good: one that is repaired is another LogDir
(broker/disks.py). Without space left writes fail, reads and deletes go on.

An error of one log is first a question (K18-03): if the directory passes a probe, it is only that log that has failed.

What happens is told on whatever thread found it (the dir's own, or the one for syncs): ``on_offline`` once,
``on_log_failed`` once a log, ``on_full`` each time it fills or has room again. An offline directory is not touched
again: every guard refuses at once.
"""

import errno
import itertools
import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, TypeVar
from uuid import UUID

from holdfast.model.errors import (
    ConfigError,
    HoldfastError,
    InconsistentMetaPropertiesError,
    KafkaStorageError,
)
from holdfast.model.log_events import LogEvent, told
from holdfast.model.types import BrokerId, DirectoryId, TimestampMs, TopicPartition
from holdfast.storage.dir_meter import DirMeter
from holdfast.storage.dir_state import DIRECTORY, DirHealth, DirNews, DirState
from holdfast.storage.file_locks import FileLock
from holdfast.storage.files import DiskSpace, FileSystem, make_durably
from holdfast.storage.partition_metadata import decode_uuid, encode_uuid

log = logging.getLogger(__name__)
T = TypeVar("T")

LOCK = ".lock"
LOCK_PATIENCE_S = 1.0
"""A broker that was killed a moment ago gives its directories back when its last thread has gone."""
META_PROPERTIES = "meta.properties"
PROBE = ".probe"

_PROCESS_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""The process or the machine is short of something; the disk has done nothing wrong."""
SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
_PROBE_NAMES = 4
ROOM_BYTES = 64 << 20
ROOM_PERCENT = 5
"""A full directory takes writes again when so much is free, whichever is less."""
_GONE_ERRORS = frozenset({errno.ENOENT, errno.ESTALE})
"""A file that was deleted or renamed under an operation, or a directory that went: the probe tells which."""


class DiskQueue(Protocol):
    """Where the work of one disk is queued (broker/disk_io.py has the thread)."""

    completed: int
    """Pieces of work that are done, as the loop has heard: as long as it grows the disk gets something done."""

    def submit(self, work: Callable[[], T], done: Callable[[T | None, HoldfastError | None], None]) -> None:
        """Run ``work`` in turn on the disk's thread, then ``done(result, error)`` on the loop, exactly once."""


class InlineQueue:
    """Runs the work at once, in the caller: for offline tools and tests."""

    __slots__ = ()
    completed = 0

    def submit(self, work: Callable[[], T], done: Callable[[Any, Any], None]) -> None:
        try:
            result = work()
        except HoldfastError as e:
            done(None, e)
        else:
            done(result, None)


class Suspect(Protocol):
    """Whose files an error is of: one log (storage/log.py)."""

    topic_partition: TopicPartition
    failure: KafkaStorageError | None
    """Why it cannot be used any more, while its directory can."""


class Guard:
    """See LogDir.guard. One per error type and directory, or log, without state: it nests."""

    __slots__ = ("_dir", "_error", "_log")

    def __init__(self, directory: "LogDir", error: type[KafkaStorageError], log: Suspect | None = None) -> None:
        self._dir = directory
        self._error = error
        self._log = log

    def __enter__(self) -> None:
        if self._dir.failure is not None:
            raise self._error(f"log dir {self._dir.path} is offline: {self._dir.why(self._dir.failure)}")
        if self._log is not None and self._log.failure is not None:
            raise self._error(str(self._log.failure))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise self._dir.judge(error, self._error, self._log) from error


class LogDir:
    """One entry of log.dirs.

    ``queue``: the foreground (appends, cold reads, probes, and every change of a log's tables). ``sync_queue``: another
    thread, for long fsyncs that appends need not wait for; None to do them on ``queue``. ``background``: a third, for
    work that nobody waits for (loading groups, cutting and removing files, reading a copy again); without one it is
    ``queue``. The lanes share the disk and nothing else: work of the background changes no log.
    ``cordoned``: takes no new replicas (KIP-1066); it is beside ``health``, which does not end it. ``clock``: wall
    clock, milliseconds. ``on_recovery_points_lowered`` and ``on_log_start_lowered`` are
    log_manager's: a log was cut below what a checkpoint says.
    """

    def __init__(
        self,
        path: str,
        files: FileSystem,
        queue: DiskQueue,
        *,
        sync_queue: DiskQueue | None = None,
        background: DiskQueue | None = None,
        on_offline: Callable[["LogDir", KafkaStorageError], None] | None = None,
        on_full: Callable[["LogDir", bool], None] | None = None,
        on_log_failed: Callable[["LogDir", Suspect], None] | None = None,
        clock: Callable[[], TimestampMs] = lambda: 0,
    ) -> None:
        self.path = path
        self.files = files
        self.queue = queue
        self.sync_queue = sync_queue
        self.background = queue if background is None else background
        self.on_offline = on_offline
        self.on_full = on_full
        self.on_log_failed = on_log_failed
        self.on_recovery_points_lowered: Callable[[], None] | None = None
        self.on_log_start_lowered: Callable[[], None] | None = None
        self.cordoned = False
        self.meter: DirMeter | None = None
        """What it did; None: nobody counts."""
        self.failure: KafkaStorageError | None = None
        """Why it is not used; None while it is, however badly it does."""
        self.health = DirHealth(since_ms=clock())
        self.is_awaited = False
        """It could not be loaded for want of space alone, or because it did not answer: it is loaded again, without
        anybody's doing, when it can be."""
        self.is_offered = False
        """It is looked at, and not one of the broker's yet: that it cannot be used is news for who offers it alone."""
        self._clock = clock
        self._no_room: KafkaStorageError | None = None
        """The error that told that there is no space left; None when there is. Also while it is silent."""
        self._stuck_at: int | None = None
        self.directory_id: DirectoryId | None = None
        self._probes = itertools.cycle(range(_PROBE_NAMES))
        self._deciding = threading.Lock()
        self._device: int | None = None
        self._lock: FileLock | None = None
        self._guards: dict[type[KafkaStorageError], Guard] = {}

    # -- what it is fit for --------------------------------------------------------------------------------

    @property
    def state(self) -> DirState:
        """What it is fit for; ``health`` has the reason, and since when."""
        return self.health.state

    @property
    def device(self) -> int | None:
        """Of its file system; None: it was never opened."""
        return self._device

    @property
    def is_online(self) -> bool:
        """It is used; it may be full, slow, or not answer."""
        return self.failure is None

    @property
    def answers(self) -> bool:
        """It is used, and gets done what it is asked, as far as one knows. On the loop."""
        if self.failure is not None or self.health.state is DirState.SILENT:
            return False
        return self._stuck_at is None or self._stuck_at != self.queue.completed

    def give_up_on(self) -> None:
        """Somebody has waited long enough: until its queue gets something done nobody else waits for it."""
        self._stuck_at = self.queue.completed

    @property
    def refusal(self) -> str | None:
        """Why nothing is to be moved to it, for people; None if it may be. A new replica may be put on one that is full
        or slow where there is no other (new_replicas.py). Cordons are not asked."""
        if self.failure is not None:
            return f"log dir {self.path} is offline: {self.why(self.failure)}"
        if not self.answers:
            return f"log dir {self.path} does not answer"
        if self.health.state is not DirState.ONLINE:
            return f"log dir {self.path} is {self.health.state.value}: {self.why(self.health.reason)}"
        return None

    def why(self, error: object) -> str:
        """An error, or a reason, in a line that names the directory itself."""
        text = str(error)
        for beginning in (f"log dir {self.path}: ", f"log dir {self.path} "):
            text = text.removeprefix(beginning)
        return text

    def note_pace(self, news: DirNews, reason: str) -> None:
        """SLOW, HUNG, ANSWERED or WELL: what its probes say. Nothing when it is offline."""
        self._become(news, reason)

    def never_answered(self, reason: str) -> None:
        """At the start: it is not used, and awaited. Whatever its thread still does is refused by the guard."""
        self._become(DirNews.HUNG, reason)
        self.failure = KafkaStorageError(f"log dir {self.path}: {reason}")
        self.is_awaited = True

    def _become(self, news: DirNews, reason: str | None) -> bool:
        """Whether it is in use still, so that it could change."""
        with self._deciding:
            if self.failure is not None:
                return False
            state = DIRECTORY.after(self.health.state, news)
            if state is not self.health.state:
                why = None if state is DirState.ONLINE else reason
                self.health = DirHealth(state=state, reason=why, since_ms=self._clock())
            return True

    def __repr__(self) -> str:
        return f"LogDir({self.path!r}, {self.state.value})"

    # -- errors --------------------------------------------------------------------------------------------

    def guard(self, error: type[KafkaStorageError] = KafkaStorageError) -> AbstractContextManager[None]:
        """Around every piece of work on the directory's files: an OSError leaves it as ``error``, and takes the
        directory offline if it is the directory's fault. Refuses at once when the directory is offline."""
        found = self._guards.get(error)
        if found is None:
            found = self._guards[error] = Guard(self, error)
        return found

    def judge(self, error: OSError, kind: type[KafkaStorageError], of: Suspect | None = None) -> KafkaStorageError:
        """What an OSError means: the typed error to raise. Takes the directory, or the log ``of`` which it is,
        offline where it must. May touch the disk: not on the loop."""
        typed = kind(_what(self.path, error, of))
        if self.failure is not None:
            return typed
        if error.errno not in _PROCESS_ERRORS and self.meter is not None:
            with self._deciding:
                self.meter.errors += 1
        if error.errno in _PROCESS_ERRORS:
            log.error("%s: %s (not a failure of the disk)", self.path, error)
        elif error.errno in SPACE_ERRORS:
            self._fill(typed)
        elif of is None and error.errno not in _GONE_ERRORS:
            self.mark_offline(typed)
        elif self._is_bad(kind):
            pass
        elif of is None or error.errno in _GONE_ERRORS:
            log.warning("%s: %s; the directory itself is fine", self.path, error)
        else:
            self.fail_log(of, typed)
        return typed

    def suspect(self, error: OSError, kind: type[KafkaStorageError], of: Suspect | None = None) -> KafkaStorageError:
        """As ``judge`` on the loop: the verdict comes later, from the directory's own thread."""
        self.queue.submit(lambda: self.judge(error, kind, of), lambda *_: None)
        return kind(_what(self.path, error, of))

    def _is_bad(self, kind: type[KafkaStorageError]) -> bool:
        """Ask the directory. It goes offline if it fails."""
        try:
            self._probe()
        except OSError as e:
            if e.errno in SPACE_ERRORS:
                self._fill(kind(_what(self.path, e, None)))
                return False
            if e.errno not in _PROCESS_ERRORS:
                self.mark_offline(kind(_what(self.path, e, None)))
            return True
        return False

    def fail_log(self, of: Suspect, error: KafkaStorageError) -> None:
        """The log cannot be used any more, though the directory can. Told once."""
        if of.failure is not None or self.failure is not None:
            return
        of.failure = error
        tp, why = of.topic_partition, str(error)
        failed = told(LogEvent.REPLICA_FAILED, topic=tp.topic, partition=tp.partition, dir=self.path, reason=why)
        log.error("%s: %s has failed, the directory itself is fine: %s", self.path, tp, why, extra=failed)
        self._tell(self.on_log_failed, of)

    def _fill(self, error: KafkaStorageError) -> None:
        if self._no_room is not None or not self._become(DirNews.FILLED, str(error)):
            return
        self._no_room = error
        what, why = "log dir %s is full: its partitions take no writes until there is room: %s", self.why(error)
        log.error(what, self.path, why, extra=told(LogEvent.DIR_FULL, dir=self.path, reason=why))
        self._tell(self.on_full, True)

    def _look_for_room(self) -> None:
        """After a probe that could write: is there enough to go on with?"""
        if self.has_room():
            self._no_room = None
            if self.state is DirState.FULL:
                self._become(DirNews.ROOM, None)
            log.warning("log dir %s has room again", self.path, extra=told(LogEvent.DIR_HAS_ROOM, dir=self.path))
            self._tell(self.on_full, False)
        elif self.state is DirState.DEGRADED:  # it was silent meanwhile
            self._become(DirNews.FILLED, str(self._no_room))

    def has_room(self) -> bool:
        """Whether there is enough to go on with. Also of a directory that is offline for want of it. OSError."""
        space = self.files.statvfs(self.path)
        return space.usable >= min(ROOM_BYTES, space.total * ROOM_PERCENT // 100)

    def _tell(self, listener: "Callable[[LogDir, Any], None] | None", what: object) -> None:
        """The listener's own trouble must not keep the directory from being what it is."""
        if listener is not None:
            try:
                listener(self, what)
            except Exception:
                log.exception("a listener of %s failed", self.path)

    def mark_offline(self, error: KafkaStorageError) -> None:
        """The directory is bad. Told once."""
        with self._deciding:
            if self.failure is not None:
                return
            state = DIRECTORY.after(self.health.state, DirNews.FAILED)
            self.health = DirHealth(state=state, reason=str(error), since_ms=self._clock())
            self.failure = error
        why = self.why(error)
        if self.is_offered:
            log.warning("log dir %s is not added: %s", self.path, why)
        else:
            fields = told(LogEvent.DIR_OFFLINE, dir=self.path, reason=why)
            log.error("log dir %s is offline: %s", self.path, why, extra=fields)
        self._tell(self.on_offline, error)

    def probe(self) -> None:
        """Create, write, sync, read back and remove a small file; KafkaStorageError (and offline) if that fails.

        Open files go on working on a directory that lost its permissions or its mount, so errors of appends
        alone may come very late.
        """
        with self.guard():
            self._probe()
            if self._no_room is not None:
                self._look_for_room()

    def refuse_beneath(self) -> None:
        """Inside ``guard``, before a file is made that is not a log's: FileNotFoundError when the path is no formatted
        directory now. It leads to what lies beneath a disk that was unmounted, which is to get nothing."""
        path = f"{self.path}/{META_PROPERTIES}"
        if not self.files.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def knock(self) -> None:
        """Does the disk do anything at all? Whatever the answer is, it is one. Of a directory that may not be ours.

        One that has failed meanwhile has answered, and is touched no more (H-19), unless it is awaited.
        """
        if self.failure is not None and not self.is_awaited:
            return
        path = f"{self.path}/{PROBE}-{_PROBE_NAMES}"
        try:
            handle = self.files.open(path, create=True)
            try:
                handle.pwritev((b"holdfast knock\n",), 0)
                handle.fsync()
            finally:
                handle.close()
            self.files.unlink(path)
        except OSError as e:
            log.debug("%s: %s", path, e)

    def _probe(self) -> None:
        if self._device is not None and self.files.device(self.path) != self._device:
            raise OSError(errno.ENODEV, "another file system is mounted here now", self.path)
        path = f"{self.path}/{PROBE}-{next(self._probes)}"  # the thread for syncs may ask at the same time
        handle = self.files.open(path, create=True)
        try:
            data = b"holdfast probe\n"
            handle.pwritev((data,), 0)
            handle.fsync()
            found = handle.pread(len(data), 0)
        except OSError as e:
            if e.errno in SPACE_ERRORS:
                self.files.unlink(path)
            raise
        finally:
            handle.close()
        if found != data:
            raise OSError(errno.EIO, f"read back {found!r}", path)
        self.files.unlink(path)

    def space(self) -> DiskSpace | None:
        """Total and usable bytes; None when the directory is offline."""
        try:
            with self.guard():
                return self.files.statvfs(self.path)
        except KafkaStorageError:
            return None

    # -- identity ------------------------------------------------------------------------------------------

    def open(self, *, node_id: BrokerId, cluster_id: str, new_id: Callable[[], UUID], now_ms: TimestampMs) -> None:
        """Make the directory if it is missing, lock it, and check or write its meta.properties.

        KafkaStorageError (and offline) if the disk does not let us; ConfigError if another process holds it;
        InconsistentMetaPropertiesError if it belongs to another node or cluster.
        """
        with self.guard():
            make_durably(self.files, self.path)
            self.files.listdir(self.path)
            self._lock = self.files.lock(f"{self.path}/{LOCK}", patience_s=LOCK_PATIENCE_S)
            if self._lock is None:
                raise ConfigError(
                    f"log.dirs: {self.path} is locked by another process: expected a directory of this broker alone"
                )
            self._device = self.files.device(self.path)
            found = read_meta_properties(self.files, f"{self.path}/{META_PROPERTIES}")
            if found is not None:
                self._check_identity(found, node_id, cluster_id)
            if found is None or "directory.id" not in found:
                self.directory_id = new_id()
                text = encode_meta_properties(node_id, self.directory_id, cluster_id, now_ms)
                self.files.write_atomic(f"{self.path}/{META_PROPERTIES}", text)

    def _check_identity(self, found: dict[str, str], node_id: BrokerId, cluster_id: str) -> None:
        where = f"{self.path}/{META_PROPERTIES}"
        stored = found.get("node.id", found.get("broker.id"))
        if stored is not None and stored != str(node_id):
            raise InconsistentMetaPropertiesError(
                f"{where} is of node {stored}, the configured node.id is {node_id}: expected the same"
            )
        if "cluster.id" in found and found["cluster.id"] != cluster_id:
            raise InconsistentMetaPropertiesError(
                f"{where} is of cluster {found['cluster.id']}, this cluster is {cluster_id}: expected the same"
            )
        if "directory.id" in found:
            try:
                self.directory_id = decode_uuid(found["directory.id"])
            except ValueError as e:
                raise InconsistentMetaPropertiesError(f"{where}: directory.id: {e}") from e

    def close(self) -> None:
        """Free the lock. Also of an offline directory: it touches no disk."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _what(path: str, error: OSError, of: Suspect | None) -> str:
    """Which directory, whose files, what: for people (K18-01). The path of the directory is in it once."""
    text = str(error)
    if isinstance(error.filename, str) and error.filename2 is None:
        name = error.filename.removeprefix(path).lstrip("/")
        text = f"[Errno {error.errno}] {error.strerror}" + (f": {name!r}" if name else "")
    return f"log dir {path}: {text}" if of is None else f"{of.topic_partition} in log dir {path}: {text}"


def read_meta_properties(files: FileSystem, path: str) -> dict[str, str] | None:
    """The keys of a meta.properties file; None when it is missing."""
    try:
        text = files.read_bytes(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and not key.startswith(("#", "!")):
            found[key.strip()] = value.strip().replace("\\", "")
    return found


def encode_meta_properties(node_id: BrokerId, directory_id: DirectoryId, cluster_id: str, now_ms: TimestampMs) -> bytes:
    """The text of a meta.properties file, version 1."""
    written = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    return (
        f"#\n#{written}\nnode.id={node_id}\ndirectory.id={encode_uuid(directory_id)}\n"
        f"version=1\ncluster.id={cluster_id}\n"
    ).encode()
