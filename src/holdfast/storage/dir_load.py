"""Loading one log dir at the start of a broker: on that dir's queue, in one piece.

Owns the order of things: lock and identity, the mark of a clean stop (taken away at once), checkpoints, then
every replica. Returns what it found as a value; errors that are not the disk's (another broker's dir) come in
``fatal``.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from holdfast.model.config import LogConfig
from holdfast.model.errors import DuplicateReplicaError, HoldfastError, KafkaStorageError
from holdfast.model.types import BrokerEpoch, BrokerId, Offset, TimestampMs, TopicPartition
from holdfast.storage import checkpoints, incarnation, remembered
from holdfast.storage.dir_scan import STRAY_SUFFIX, NameKind, classify, marked_name
from holdfast.storage.dir_state import DirState
from holdfast.storage.files import DiskSpace
from holdfast.storage.future_log import loser, moved_from
from holdfast.storage.incarnation import DirHistory, Incarnation
from holdfast.storage.log import Log
from holdfast.storage.log_dir import SPACE_ERRORS, Guard, LogDir
from holdfast.storage.remembered import SizeNote

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedReplica:
    """A replica that cannot be used though its dir can."""

    dir: LogDir
    path: str
    error: HoldfastError


@dataclass(slots=True, kw_only=True)
class Unloaded:
    """Whose files an error is of while there is no log yet."""

    topic_partition: TopicPartition
    failure: KafkaStorageError | None = None


class FoundFuture(NamedTuple):
    """A copy of a move that an earlier life has begun."""

    directory: LogDir
    path: str
    topic_partition: TopicPartition
    size: int


@dataclass(slots=True, kw_only=True)
class LoadedDir:
    """What a log dir holds. ``complete``: every replica of it was loaded; only then may a clean stop be marked."""

    directory: LogDir
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    failed: dict[TopicPartition, FailedReplica] = field(default_factory=dict)
    futures: list[FoundFuture] = field(default_factory=list)
    moved_from: dict[TopicPartition, str] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    checkpoints: dict[str, dict[TopicPartition, Offset]] = field(default_factory=dict)
    broker_epoch: BrokerEpoch | None = None
    incarnation: Incarnation | None = None
    missing: frozenset[TopicPartition] = frozenset()
    short: set[TopicPartition] = field(default_factory=set)
    """Of ``logs`` those that have lost something."""
    space: DiskSpace | None = None
    note: SizeNote | None = None
    """What it remembers of all directories."""
    complete: bool = False
    fatal: HoldfastError | None = None

    def history(self) -> DirHistory:
        """What it says of the time before this start."""
        return DirHistory(
            directory_id=self.directory.directory_id,
            readable=self.complete and self.directory.is_online,
            clean_epoch=self.broker_epoch,
            incarnation=self.incarnation,
            replicas=frozenset((*self.logs, *self.failed)),
            missing=self.missing,
            short=frozenset(self.short),
        )


def load_dir(
    directory: LogDir,
    *,
    node_id: BrokerId,
    cluster_id: str,
    config_of: Callable[[str], LogConfig],
    new_id: Callable[[], UUID],
    now_ms: TimestampMs,
    boot_id: str | None = None,
) -> LoadedDir:
    """Open the dir and load its logs. A dir that fails is offline afterwards and holds what was loaded so far."""
    found = LoadedDir(directory=directory)
    try:
        directory.open(node_id=node_id, cluster_id=cluster_id, new_id=new_id, now_ms=now_ms)
        _load(directory, found, config_of, new_id, now_ms, boot_id)
    except KafkaStorageError as e:
        if directory.is_online:  # short of something, not broken: better to say so than to serve half of it
            directory.is_awaited = directory.state is DirState.FULL
            directory.mark_offline(e)
    except HoldfastError as e:
        found.fatal = e
    return found


def _load(
    directory: LogDir,
    found: LoadedDir,
    config_of: Callable[[str], LogConfig],
    new_id: Callable[[], UUID],
    now_ms: TimestampMs,
    boot_id: str | None,
) -> None:
    files, path = directory.files, directory.path
    with directory.guard():
        mark = f"{path}/{checkpoints.CLEAN_SHUTDOWN}"
        clean, found.broker_epoch = checkpoints.read_clean_shutdown(files, mark)
        for name in checkpoints.OFFSETS:
            found.checkpoints[name] = checkpoints.read_offsets(files, f"{path}/{name}")
        recovery_points = found.checkpoints[checkpoints.RECOVERY_POINT]
        starts = found.checkpoints[checkpoints.LOG_START]
        cleaned = found.checkpoints[checkpoints.CLEANER]
        names = [classify(name) for name in sorted(files.listdir(path))]
        found.space = files.statvfs(path)
        found.note = remembered.read(files, path)
        if directory.directory_id is not None:
            found.incarnation = incarnation.read(files, path, directory.directory_id)
        if clean:
            _take_mark(directory, found, mark, boot_id)
        for name, kind, tp in names:
            full = f"{path}/{name}"
            if kind is NameKind.OWN:
                continue
            if kind is NameKind.UNKNOWN or not files.is_dir(full):
                log.warning("%s is not a replica's directory: expected <topic>-<partition>; it is left alone", full)
            elif kind is NameKind.DELETED:
                found.deleted.append(full)
            elif kind is NameKind.FUTURE and tp is not None:
                found.futures.append(FoundFuture(directory, full, tp, _bytes_in(directory, full)))
            elif kind is NameKind.REPLICA and tp is not None:
                suspect = Unloaded(topic_partition=tp)
                try:
                    loaded = _load_log(
                        directory, suspect, config_of(tp.topic), clean, now_ms, recovery_points.get(tp, 0),
                        starts.get(tp), cleaned.get(tp),
                    )  # fmt: skip
                    with Guard(directory, KafkaStorageError, suspect):
                        origin = moved_from(files, full)
                except HoldfastError as e:
                    if isinstance(e, KafkaStorageError) and suspect.failure is None:
                        raise  # not this log's fault
                    log.error("%s cannot be used, the others of %s can (K18-03): %s", full, path, e)
                    found.failed[tp] = FailedReplica(dir=directory, path=full, error=e)
                    continue
                if loaded.topic_id is None and loaded.view.size and not clean and not recovery_points.get(tp):
                    # Nobody knows which topic's it is: a loss of power took the file that said so, which is synced
                    # before anything of the log counts as safe. The topic may have been deleted since, so a new one of
                    # that name must not get it.
                    set_aside(loaded, new_id().hex, "it has no topic id and was never flushed")
                else:
                    found.logs[tp] = loaded
                    if origin is not None:
                        found.moved_from[tp] = origin
                    if loaded.is_short:
                        found.short.add(tp)
    if found.short:
        # What they have lost cannot be seen any more when this broker dies before it is registered.
        incarnation.take_away(directory)
    told = recovery_points.keys() | found.checkpoints[checkpoints.HIGH_WATERMARK].keys()
    found.missing = frozenset(told - found.logs.keys() - found.failed.keys())
    found.complete = True


def set_path_aside(directory: LogDir, tp: TopicPartition, path: str, unique: str) -> None:
    """On the dir's thread: a copy that could not even be read, and need not be."""
    name = marked_name(tp, unique, STRAY_SUFFIX)
    log.warning("%s: there is a newer copy in another directory: it is left as %s", path, name)
    with directory.guard():
        directory.files.rename(path, f"{directory.path}/{name}")


class Twin(NamedTuple):
    """One of two copies of a replica. ``was_moved``: a move has left it; else its dir was out of use when the other one
    was made."""

    going: Log
    kept: Log
    was_moved: bool


def settle_twins(
    found: Sequence[LoadedDir], undecided: dict[TopicPartition, list[Log]]
) -> tuple[list[Twin], list[tuple[TopicPartition, FailedReplica]]]:
    """Take out the copies that a move left beside a replica, and those of a dir that was away, dead or out of log.dirs,
    while the replica was made anew on another one. Of two topics of one name, of which one was deleted while its dir
    was away, only the cluster knows which is right: the second is ``undecided`` (K112-80). DuplicateReplicaError for
    two that nothing of ours has made. Beside the twins: outdated copies that could not be read."""
    seen: dict[TopicPartition, LoadedDir] = {}
    settled = []
    used = _in_use(found)
    for one in found:
        for tp in list(one.logs):
            before = seen.setdefault(tp, one)
            if before is one:
                continue
            here, there = one.logs[tp], before.logs[tp]
            going = loser(here, one.moved_from.get(tp), there, before.moved_from.get(tp))
            was_moved = going is not None
            if going is None and here.topic_id != there.topic_id:
                undecided.setdefault(tp, []).append(one.logs.pop(tp))
                continue
            outdated = _outdated(one, before, used)
            if going is None and outdated is not None:
                going = _without_records(one, before, outdated, tp) or outdated.logs[tp]
            if going is None:
                raise DuplicateReplicaError(
                    f"replica {tp} is in {there.path} and in {here.path}: expected one; "
                    "remove the copy that is out of date"
                )
            why = "a move was not finished" if was_moved else "a copy was made anew while a dir was away"
            log.warning("%s: %s: %s goes", tp, why, going.path)
            if going is here:
                settled.append(Twin(one.logs.pop(tp), there, was_moved))
            else:
                settled.append(Twin(before.logs.pop(tp), here, was_moved))
                seen[tp] = one
    unread = [
        (tp, one.failed.pop(tp))
        for one in found
        for tp in list(one.failed)
        if tp in seen and _outdated(one, seen[tp], used) is one
    ]
    return settled, unread


def _in_use(found: Sequence[LoadedDir]) -> list[LoadedDir]:
    """The dirs that the broker used last: those that every note of its newest incarnation names (incarnation.py)."""
    notes = [one.incarnation for one in found if one.incarnation is not None]
    newest = max((note.broker_epoch for note in notes), default=None)
    speaking = [note.directories for note in notes if note.broker_epoch == newest]
    return [
        one
        for one in found
        if speaking and all(each.get(one.directory.directory_id or UUID(int=0)) == newest for each in speaking)
    ]


def _outdated(one: LoadedDir, other: LoadedDir, used: Sequence[LoadedDir]) -> LoadedDir | None:
    """Which of two dirs with the same replica was away when the other one was in use. None if that is not known: a dir
    without a note may be one whose note was lost, or not written yet."""
    for old, new in ((one, other), (other, one)):
        if new in used and old not in used and old.incarnation is not None:
            return old
    return None


def _without_records(one: LoadedDir, other: LoadedDir, outdated: LoadedDir, tp: TopicPartition) -> Log | None:
    """The newer copy, if it is as it was made: the one that was away has records, and goes on with them."""
    newer = other if outdated is one else one
    made, before = newer.logs[tp].view, outdated.logs[tp].view
    return newer.logs[tp] if made.end_offset == made.start_offset == 0 and before.end_offset > 0 else None


def _take_mark(directory: LogDir, found: LoadedDir, mark: str, boot_id: str | None) -> None:
    """From here on a crash is a crash, also one of the machine: the mark must not come back. Until this broker is
    registered again, what the mark said of the time before is kept for one that only gets to start next time."""
    files, epoch, noted = directory.files, found.broker_epoch, found.incarnation
    if boot_id is not None and noted is not None and noted.broker_epoch == epoch:
        try:
            incarnation.write(files, directory.path, replace(noted, boot_id=boot_id))
        except OSError as e:
            if e.errno not in SPACE_ERRORS:
                raise
            log.warning("%s is full: its replicas may count as damaged after the next start", directory.path)
    files.unlink(mark)
    files.fsync_dir(directory.path)


def _load_log(
    directory: LogDir,
    suspect: Unloaded,
    config: LogConfig,
    clean: bool,
    now_ms: TimestampMs,
    recovery_point: Offset,
    start: Offset | None,
    cleaned: Offset | None,
) -> Log:
    tp = suspect.topic_partition
    try:
        return Log.open(
            directory,
            tp,
            None,
            config,
            clean_shutdown=clean,
            now_ms=now_ms,
            recovery_point=recovery_point,
            log_start_offset=start,
            cleaned_offset=cleaned,
            suspect=suspect,
        )
    except KafkaStorageError:
        raise
    except HoldfastError as e:
        # The mark or the checkpoint promised too much: believe nothing but the batches.
        log.warning("%s/%s: %s; all of it is checked", directory.path, tp, e)
        return Log.open(directory, tp, None, config, clean_shutdown=False, now_ms=now_ms, log_start_offset=start,
                        cleaned_offset=cleaned, suspect=suspect)  # fmt: skip


def set_aside(found: Log, unique: str, why: str) -> None:
    """On the dir's thread: it is no replica of ours, and left for a person to look at."""
    found.close(clean=False)
    name = marked_name(found.topic_partition, unique, STRAY_SUFFIX)
    log.warning("%s: %s: it is left as %s", found.path, why, name)
    with found.dir.guard():
        found.dir.files.rename(found.path, f"{found.dir.path}/{name}")


def _bytes_in(directory: LogDir, path: str) -> int:
    files = directory.files
    return sum(files.file_size(f"{path}/{n}") for n in files.listdir(path) if n.endswith(".log"))
