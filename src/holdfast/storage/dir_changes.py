"""What changes of a running broker's log dirs: one fails, one comes back, one is added or taken away.

Owns the order of things in the tables of the log manager; the work on files is done on the dirs' own queues. Knows
no controller: that replicas are back is in the standings (standings.py), for the broker to tell and to use.

A dir that is back is another LogDir with another queue: the thread of the old one may hang in the kernel for ever, and
whatever it still does is refused by the guard of the old one.
"""

import logging
from collections.abc import Callable
from functools import partial

from holdfast.model.errors import (
    DiskQueueFullError,
    HoldfastError,
    InconsistentMetaPropertiesError,
    KafkaStorageError,
)
from holdfast.model.fates import ReplicaFate
from holdfast.model.types import TimestampMs, TopicPartition
from holdfast.storage.dir_load import FailedReplica, LoadedDir, set_aside
from holdfast.storage.dir_scan import STRAY_SUFFIX, marked_name
from holdfast.storage.log import Log
from holdfast.storage.log_dir import DiskQueue, LogDir
from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)

Done = Callable[[HoldfastError | None], None]
GivesWay = Callable[[TopicPartition], bool]
"""Asked of a replica without records, of which a dir that is back has a copy with records. True: nobody counts on the
one that is served, and from now on it is not."""


Later = Callable[[Callable[[], None]], object]
"""Has something called in a while, on the loop."""


def _not_later(_: Callable[[], None]) -> None:
    """For queues that refuse nothing."""


def _stays(_: TopicPartition) -> bool:
    return False


def release(logs: LogManager, directory: LogDir, later: Later = _not_later) -> None:
    """Give back every file of a dir that is offline, and its lock, so that it can be unmounted or used again. Later, if
    its thread hangs; and if so much waits for that thread that this is refused, it is tried again ``later``."""
    mine = [*logs.logs_in(directory), *logs.deletions.of_dir(directory)]

    def give_back() -> None:
        for each in mine:
            each.release()

    def give_all_back() -> None:
        try:
            give_back()
        finally:
            directory.close()

    def insist(queue: DiskQueue, work: Callable[[], None]) -> None:
        def ended(_: None, error: HoldfastError | None) -> None:
            if isinstance(error, DiskQueueFullError):
                later(partial(insist, queue, work))

        queue.submit(work, ended)

    if directory.sync_queue is not None:  # what it was about may have opened a file again
        insist(directory.sync_queue, give_back)
    insist(directory.queue, give_all_back)


def fail_log(logs: LogManager, failed: Log, error: HoldfastError) -> bool:
    """One log cannot be used any more though its dir can; whether it is one that is served."""
    tp = failed.topic_partition
    if logs.get(tp) is not failed or tp in logs.standings.failed:
        return False
    logs.standings.broken(tp, FailedReplica(dir=failed.dir, path=failed.path, error=error))
    failed.dir.queue.submit(failed.release, lambda *_: None)
    return True


def give_up(logs: LogManager, tp: TopicPartition, done: Done) -> None:
    """Make room for a new copy of a replica that cannot be used: its files are left aside under another name, where
    they can be. It counts as lost from now on."""
    failed = logs.standings.failed[tp]
    logs.standings.given_up(tp)
    directory = failed.dir
    aside = f"{directory.path}/{marked_name(tp, logs.new_id().hex, STRAY_SUFFIX)}"

    def rename() -> None:
        with directory.guard():
            directory.files.rename(failed.path, aside)
            directory.files.fsync_dir(directory.path)
        log.warning("%s is left as %s: a new copy will be made", failed.path, aside)

    def renamed(_: None, error: HoldfastError | None) -> None:
        if logs.standings.failed.get(tp) is not failed:
            pass  # its directory is back, or gone
        elif error is not None:
            logs.standings.not_left(tp)
        elif logs.dir_of(tp) not in (None, directory.path):
            logs.standings.gone(tp)
        else:
            logs.held.forget(tp)
            logs.standings.back(tp, ReplicaFate.LOST, avoid=directory.path)
        done(error)

    directory.queue.submit(rename, renamed)


def restore(
    logs: LogManager,
    old: LogDir | None,
    new: LogDir,
    now_ms: TimestampMs,
    done: Done,
    *,
    gives_way: GivesWay = _stays,
) -> None:
    """Load ``new`` and let it take the place of ``old``, which is offline (None: it is one more).

    What lies there counts as damaged: not everything that was written before the failure has to be there. What was
    made anew on another dir meanwhile is removed here; but where that copy is as it was made, and ``gives_way``, the
    one here has the records and goes on with them.
    """

    def loaded(found: LoadedDir) -> None:
        error = found.fatal or new.failure or _twin(logs, old, new)
        if error is None and not found.complete:
            error = KafkaStorageError(f"log dir {new.path} could not be loaded")
        if error is not None:
            new.close()
            done(error)
            return
        _replace(logs, old, found, now_ms, gives_way)
        done(None)

    logs.load(new, now_ms, loaded)


def _twin(logs: LogManager, old: LogDir | None, new: LogDir) -> HoldfastError | None:
    for other in logs.dirs:
        if other is not old and other.directory_id is not None and other.directory_id == new.directory_id:
            return InconsistentMetaPropertiesError(
                f"{other.path} and {new.path} have the same directory.id: expected one of a kind"
            )
    return None


def _has_what_it_lacks(back: Log, served: Log) -> bool:
    """Of one topic: records here, and a copy that is as it was made there."""
    is_empty = served.view.start_offset == served.view.end_offset == 0
    return is_empty and back.view.end_offset > 0 and back.topic_id == served.topic_id


def _supersede(logs: LogManager, kept: Log, going: Log, now_ms: TimestampMs) -> None:
    """Remove the older of two copies, or leave it aside for a person if only that one has records."""
    if _has_what_it_lacks(going, kept):
        why = f"{kept.path} was made while {going.dir.path} was away, and is in use"
        logs.submit_quietly(going.dir, partial(set_aside, going, logs.new_id().hex, why))
        return
    log.warning("%s: there is a newer copy in %s: removed", going.path, kept.dir.path)
    logs.deletions.retire(going, now_ms)


def _replace(logs: LogManager, old: LogDir | None, found: LoadedDir, now_ms: TimestampMs, gives_way: GivesWay) -> None:
    before: set[TopicPartition] = set()
    if old is not None:
        before.update(each.topic_partition for each in logs.logs_in(old))
        before.update(tp for tp, failed in logs.standings.failed.items() if failed.dir is old)
    superseded: list[tuple[Log, Log]] = []
    given_way: list[Log] = []
    for tp in list(found.logs):
        other = logs.get(tp)
        if other is None or other.dir is old:
            continue
        is_settled = logs.copies.get(tp) is None and not logs.copies.is_switching(tp)
        is_steady = is_settled and tp not in logs.standings.failed
        if is_steady and _has_what_it_lacks(found.logs[tp], other) and gives_way(tp):
            log.warning("%s has no records and %s has: it goes", other.path, found.logs[tp].path)
            logs.held.forget(tp)
            logs.held.forget_mark(tp)
            given_way.append(other)
        else:
            superseded.append((other, found.logs.pop(tp)))
    for tp in before:
        logs.held.forget(tp)
        logs.standings.back(tp, ReplicaFate.LOST)
    for tp, each in found.logs.items():
        logs.held.add(each)
        logs.standings.back(tp, ReplicaFate.DAMAGED)
    for tp, failed in found.failed.items():
        if logs.get(tp) is not None:
            logs.leave_aside(tp, failed)
            continue
        logs.standings.broken(tp, failed)
    logs.put_dir(old, found)
    for empty in given_way:
        logs.deletions.retire(empty, now_ms)
    for kept, going in superseded:
        _supersede(logs, kept, going, now_ms)


def take_away(logs: LogManager, directory: LogDir) -> None:
    """The dir is no more of this broker: what it had is gone, and may be made anew on the others."""
    for each in logs.logs_in(directory):
        logs.held.forget(each.topic_partition)
        logs.standings.back(each.topic_partition, ReplicaFate.LOST)
    for tp in [tp for tp, failed in logs.standings.failed.items() if failed.dir is directory]:
        logs.standings.back(tp, ReplicaFate.LOST)
    logs.drop_dir(directory)
    if directory.is_online:
        directory.queue.submit(partial(_close, directory), lambda *_: None)


def _close(directory: LogDir) -> None:
    directory.close()
