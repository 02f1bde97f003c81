"""JBOD: which log is on which dir; loading after a start; choosing a dir; checkpoints; housekeeping.

Owns the table of all logs of a broker, and the checkpoint files of each dir. Lives on the event loop: every
method returns at once, work on files is submitted to the queue of the dir it concerns, and callbacks run on the
loop. Never waits for one dir on behalf of another. Decides nothing about leaders; knows nothing of the cluster
but what it is told. The name is Kafka's.

A log on a dir that went offline stays in the table: its replica is offline, not unknown, until the dir or another one
takes its place (dir_changes.py).
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from uuid import UUID, uuid4

from holdfast.model.config import LogConfig
from holdfast.model.errors import (
    CheckpointError,
    DuplicateReplicaError,
    HoldfastError,
    InconsistentMetaPropertiesError,
    InconsistentTopicIdError,
    KafkaStorageError,
)
from holdfast.model.fates import ReplicaFate
from holdfast.model.types import BrokerEpoch, BrokerId, Offset, TimestampMs, TopicId, TopicPartition
from holdfast.storage import checkpoints
from holdfast.storage.dir_load import FailedReplica, FoundFuture, LoadedDir, Unloaded, load_dir, settle_twins
from holdfast.storage.files import DiskSpace
from holdfast.storage.future_log import FutureLog, forget_origin, leave, promote, remove_tree
from holdfast.storage.incarnation import Past
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.upkeep import Upkeep

log = logging.getLogger(__name__)

Created = Callable[[Log | None, HoldfastError | None], None]


class Placement(Enum):
    """Which dir a new replica goes to (``log.dir.placement``)."""

    PARTITIONS = "partitions"
    """The one with the fewest, as Kafka."""
    SPACE = "space"
    """The one with the most room relative to its size."""
    TOPIC = "topic"
    """The one with the fewest partitions of the same topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirDescription:
    """One log dir as DescribeLogDirs shows it. ``replicas``: (partition, bytes, is future), also of an offline
    dir: what was there when it failed."""

    path: str
    error: KafkaStorageError | None
    replicas: list[tuple[TopicPartition, int, bool]]
    space: DiskSpace | None
    cordoned: bool


class LogManager:
    """All logs of one broker.

    ``config_of``: the configuration of a topic, as far as it is known at the start. ``high_watermarks``: what
    the checkpoints said at the start.
    """

    def __init__(
        self,
        dirs: list[LogDir],
        *,
        node_id: BrokerId,
        cluster_id: str,
        config_of: Callable[[str], LogConfig],
        new_id: Callable[[], UUID] = uuid4,
        boot_id: str | None = None,
        placement: Placement = Placement.PARTITIONS,
    ) -> None:
        self.dirs = dirs
        self.placement = placement
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self._config_of = config_of
        self._new_id = new_id
        self._logs: dict[TopicPartition, Log] = {}
        self.upkeep = Upkeep(self)
        self._creating: dict[TopicPartition, list[Created]] = {}
        self._counts: dict[str, int] = {d.path: 0 for d in dirs}
        self._deleted: list[tuple[TimestampMs, Log]] = []
        self.futures: dict[TopicPartition, FutureLog] = {}
        """Copies that are being made, by moves."""
        self.found_futures: list[FoundFuture] = []
        """Copies of earlier lives that nobody has taken up or removed yet."""
        self.preferred: dict[TopicPartition, str] = {}
        """Dirs that were wished for replicas that are not here yet."""
        self.on_deleted: Callable[[TopicPartition], None] = lambda _: None
        """A replica is deleted: its move ends."""
        self._switching: dict[TopicPartition, list[Callable[[], None]]] = {}
        self._undecided: dict[TopicPartition, list[Log]] = {}
        """More copies found at the start, of other topics of that name."""
        self._loaded: set[str] = set()
        self._written: dict[str, dict[str, dict[TopicPartition, Offset]]] = {d.path: {} for d in dirs}
        self._rewriting: set[str] = set()
        self.failed: dict[TopicPartition, FailedReplica] = {}
        """Replicas that could not be used though their dir could (K18-03)."""
        self.avoided: dict[TopicPartition, str] = {}
        """Replicas that are to be made again, and the dir on which they have failed."""
        self.returned: dict[TopicPartition, ReplicaFate] = {}
        """Replicas that may be used, or made, again since their dir is back, and have not been yet."""
        self._space: dict[str, DiskSpace | None] = {d.path: None for d in dirs}
        self.past = Past(dirs, boot_id)
        for directory in dirs:
            directory.on_recovery_points_lowered = partial(self._write_recovery_points, directory)

    # -- start and stop ------------------------------------------------------------------------------------

    def start(self, now_ms: TimestampMs, done: Callable[[HoldfastError | None], None]) -> None:
        """Open all dirs and load all logs, each dir on its own queue; then ``done``.

        A dir that cannot be used is offline, the rest goes on. An error means that the broker must not start:
        no dir is usable, one belongs to another broker, or a replica stands in two of them.
        """
        found: list[LoadedDir] = []
        expected = len(self.dirs)

        def loaded(result: LoadedDir) -> None:
            found.append(result)
            if len(found) == expected:
                done(self._adopt(found, now_ms))

        for directory in list(self.dirs):
            self.load(directory, now_ms, loaded)

    def _adopt(self, found: list[LoadedDir], now_ms: TimestampMs) -> HoldfastError | None:
        """Put what was found in the tables."""
        fatal = next((f.fatal for f in found if f.fatal is not None), None)
        if fatal is not None:
            return fatal
        if not any(d.is_online for d in self.dirs):
            paths = ", ".join(d.path for d in self.dirs)
            return KafkaStorageError(
                f"log.dirs: none of the specified log dirs {paths} can be created or validated: expected one"
            )
        try:
            twins = settle_twins(found, self._undecided)
        except DuplicateReplicaError as e:
            return e
        by_id: dict[UUID, str] = {}
        for one in found:
            directory = one.directory
            if directory.directory_id is not None:
                twin = by_id.setdefault(directory.directory_id, directory.path)
                if twin != directory.path:
                    return InconsistentMetaPropertiesError(
                        f"{twin} and {directory.path} have the same directory.id: expected one of a kind"
                    )
            self._logs.update(one.logs)
            self.failed.update(one.failed)
            self.high_watermarks.update(one.checkpoints.get(checkpoints.HIGH_WATERMARK, {}))
            self._take_stock(one)
        for tp in self._undecided:
            self.high_watermarks.pop(tp, None)  # of one of them
        self.past.adopt(one.history() for one in found)
        for going, kept in twins:
            self.moved_away(going, kept, now_ms)
        return None

    def _take_stock(self, one: LoadedDir) -> None:
        """Remember of a dir what is no log."""
        directory, path = one.directory, one.directory.path
        self._counts[path] = len(one.logs)
        self.found_futures = [f for f in self.found_futures if f.directory.path != path] + one.futures
        self._written[path] = {name: offsets for name, offsets in one.checkpoints.items() if offsets}
        self._space[path] = one.space
        self._loaded.discard(path)
        if one.complete:
            self._loaded.add(path)
        for gone in one.deleted:
            self.submit_quietly(directory, partial(remove_tree, directory, gone))

    def load(
        self, directory: LogDir, now_ms: TimestampMs, done: Callable[[LoadedDir], None], *, has_failed: bool = False
    ) -> None:
        """Open one dir and load what is in it, on its own queue. Nothing of it is in any table yet."""
        work = partial(
            load_dir, directory, node_id=self.node_id, cluster_id=self.cluster_id, config_of=self._config_of,
            new_id=self._new_id, now_ms=now_ms, boot_id=self.past.boot_id, has_failed=has_failed,
        )  # fmt: skip

        def loaded(result: LoadedDir | None, error: HoldfastError | None) -> None:
            done(result or LoadedDir(directory=directory, fatal=error))

        directory.queue.submit(work, loaded)

    def close(
        self,
        *,
        clean: bool,
        broker_epoch: BrokerEpoch | None,
        high_watermarks: Mapping[TopicPartition, Offset],
        done: Callable[[], None],
    ) -> None:
        """Close all logs, write the checkpoints and, if ``clean``, the mark that makes the next start quick."""
        waiting = {d.path for d in self.dirs}

        def closed(directory: LogDir, _result: object, error: HoldfastError | None) -> None:
            directory.close()
            waiting.discard(directory.path)
            if error is not None:
                log.warning("%s was not closed cleanly: %s", directory.path, error)
            if not waiting:
                done()

        for directory in self.dirs:
            work = partial(self._close_dir, directory, clean, broker_epoch, dict(high_watermarks))
            directory.queue.submit(work, partial(closed, directory))

    def _close_dir(
        self,
        directory: LogDir,
        clean: bool,
        broker_epoch: BrokerEpoch | None,
        high_watermarks: dict[TopicPartition, Offset],
    ) -> None:
        if not directory.is_online:
            return
        # Of one that has failed nobody knows what is on the device (H-28): not clean, then, none of them.
        is_whole = not any(failed.dir is directory for failed in self.failed.values())
        for each in self.logs_in(directory):
            try:
                each.close(clean=clean and each.failure is None, sync=False)
                is_whole = is_whole and each.failure is None
            except KafkaStorageError as e:
                log.warning("%s was not closed: %s", each.topic_partition, e)
                is_whole = False  # the others are brought to the device all the same
        if clean and directory.path in self._loaded:
            with directory.guard():
                directory.files.sync_all(directory.path)
        if clean and is_whole and directory.path in self._loaded:
            self._write_checkpoints(directory, self._checkpoint_values(directory, high_watermarks))
            with directory.guard():
                directory.files.write_atomic(
                    f"{directory.path}/{checkpoints.CLEAN_SHUTDOWN}",
                    checkpoints.encode_clean_shutdown(self.past.epoch_of(directory, broker_epoch)),
                )

    # -- the table -----------------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> Log | None:
        """The log of a replica that this broker has, also on a dir that is offline."""
        return self._logs.get(tp)

    def logs(self) -> Iterable[Log]:
        return self._logs.values()

    def logs_in(self, directory: LogDir) -> list[Log]:
        """The logs of one dir."""
        return [each for each in list(self._logs.values()) if each.dir is directory]

    def deleted_in(self, directory: LogDir) -> list[Log]:
        """The logs of one dir that wait for their removal."""
        return [each for _, each in self._deleted if each.dir is directory]

    def new_id(self) -> UUID:
        """A random id."""
        return self._new_id()

    # -- for dir_changes.py ----------------------------------------------------------------------------------

    def adopt(self, loaded: Log) -> None:
        """A log that was found on a dir that is back."""
        self._logs[loaded.topic_partition] = loaded

    def forget(self, tp: TopicPartition) -> None:
        """The log is not here any more."""
        gone = self._logs.pop(tp, None)
        if gone is not None:
            self._counts[gone.dir.path] -= 1

    def settle(self, tp: TopicPartition, topic_id: TopicId, now_ms: TimestampMs) -> None:
        """The topic was deleted and made again while a dir was away (K112-80): of several copies found at the start
        that of ``topic_id`` stays."""
        served, others = self._logs.get(tp), self._undecided.pop(tp, [])
        if served is None or not others:
            return
        copies = [served, *others]
        right = next((each for each in copies if each.topic_id == topic_id), served)
        self._logs[tp] = right
        self._counts[served.dir.path] -= 1
        self._counts[right.dir.path] += 1
        for each in copies:
            if each is not right:
                log.warning("%s is of an earlier topic of that name: removed", each.path)
                self.retire(each, now_ms)

    def retire(self, superseded: Log, now_ms: TimestampMs) -> None:
        """Remove a log that is in no table: later, like one that was deleted."""

        def renamed(_: str | None, error: HoldfastError | None) -> None:
            if error is None:
                self._deleted.append((now_ms, superseded))

        superseded.dir.queue.submit(partial(superseded.rename_for_delete, self._new_id().hex), renamed)

    def dir_of(self, tp: TopicPartition) -> str | None:
        """Path of the dir that a log is on."""
        found = self._logs.get(tp)
        return None if found is None else found.dir.path

    def put_dir(self, old: LogDir | None, found: LoadedDir) -> None:
        """A dir that was loaded takes the place of one, or is one more."""
        new = found.directory
        new.on_recovery_points_lowered = partial(self._write_recovery_points, new)
        if old is None:
            self.dirs.append(new)
        else:
            new.cordoned = old.cordoned
            self.dirs[self.dirs.index(old)] = new
            self._rewriting.discard(old.path)
            self._deleted = [(when, each) for when, each in self._deleted if each.dir is not old]
        marks = found.checkpoints.get(checkpoints.HIGH_WATERMARK, {})
        self.high_watermarks.update({tp: mark for tp, mark in marks.items() if tp in found.logs})
        self._take_stock(found)

    def drop_dir(self, directory: LogDir) -> None:
        """The dir is no more of this broker."""
        self.dirs.remove(directory)
        self._deleted = [(when, each) for when, each in self._deleted if each.dir is not directory]
        self.found_futures = [f for f in self.found_futures if f.directory is not directory]
        for table in (self._counts, self._written, self._space):
            table.pop(directory.path, None)

    def space_of(self, directory: LogDir) -> DiskSpace | None:
        """As of the last checkpoint."""
        return self._space.get(directory.path)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """The topic's configuration changed."""
        for tp, each in self._logs.items():
            if tp.topic == topic:
                each.config = config

    def create(
        self,
        tp: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        *,
        is_new: bool,
        now_ms: TimestampMs,
        done: Created,
    ) -> None:
        """The log of ``tp``: the one that is there, or a new one on the dir with the fewest.

        KafkaStorageError when its dir is offline, or when it is not ``is_new`` and may be on a dir that is
        (KIP-112): a second copy on another dir must not come to be. InconsistentTopicIdError when the one that
        is there belongs to an earlier topic of that name.
        """
        if tp in self._switching:
            again = partial(self.create, tp, topic_id, config, is_new=is_new, now_ms=now_ms, done=done)
            self._switching[tp].append(again)
            return
        existing, failed = self._logs.get(tp), self.failed.get(tp)
        if failed is not None:
            done(None, KafkaStorageError(f"replica {tp} in {failed.dir.path} cannot be used: {failed.error}"))
            return
        if existing is not None:
            self._reuse(existing, topic_id, config, done)
            return
        if tp in self._creating:
            self._creating[tp].append(done)
            return
        wished = next((d for d in self.dirs if d.path == self.preferred.get(tp)), None)
        if wished is not None and not wished.is_online:
            done(None, KafkaStorageError(f"replica {tp} is to be in {wished.path}, which is offline: {wished.failure}"))
            return
        is_known_lost = self.returned.get(tp) is ReplicaFate.LOST
        if not is_new and not is_known_lost and not all(d.is_online for d in self.dirs):
            offline = ", ".join(d.path for d in self.dirs if not d.is_online)
            done(None, KafkaStorageError(f"replica {tp} is not here and may be on an offline log dir: {offline}"))
            return
        self.high_watermarks.pop(tp, None)
        usable = [d for d in self.dirs if d.is_online and not d.cordoned]
        preferred = self.preferred.pop(tp, None)
        usable.sort(key=lambda d: (d.path != preferred, *self._rank(d, tp)))
        self._creating[tp] = [done]
        abandoned = [f for f in self.found_futures if f.topic_partition == tp]
        self.found_futures = [f for f in self.found_futures if f.topic_partition != tp]
        go_on = partial(self._create_on, usable, tp, topic_id, config, now_ms)
        self._promote(abandoned, tp, topic_id, config, now_ms, go_on, is_new=is_new)

    def _promote(
        self,
        abandoned: list[FoundFuture],
        tp: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        now_ms: TimestampMs,
        else_: Callable[[], None],
        *,
        is_new: bool,
    ) -> None:
        """The replica is hosted here by the controller's word, all dirs are online and none has it, but there is the
        copy of a move whose log is gone (KAFKA-16082). Its loss shows by the checkpoints (incarnation.py)."""
        usable = [f for f in abandoned if f.directory.is_online]
        for each in usable[0 if is_new else 1 :]:
            self.remove_future(each)
        if is_new or not usable:
            else_()
            return
        found = usable[0]

        def promoted(made: Log | None, error: HoldfastError | None) -> None:
            if made is None:
                else_()
                return
            self._counts[found.directory.path] += 1
            self._created(tp, made, None)

        work = partial(promote, found.directory, found.path, tp, topic_id, config, now_ms)
        found.directory.queue.submit(work, promoted)

    def remove_future(self, found: FoundFuture) -> None:
        """Delete a copy that nobody wants."""
        log.info("%s is not wanted any more", found.path)
        self.found_futures = [f for f in self.found_futures if f is not found]
        self.submit_quietly(found.directory, partial(remove_tree, found.directory, found.path))

    def _rank(self, directory: LogDir, tp: TopicPartition) -> tuple[float, ...]:
        """Where a new replica goes: the least first. A full dir comes last, as does one on which it has failed."""
        is_full = float(directory.full is not None) + float(self.avoided.get(tp) == directory.path)
        count = float(self._counts[directory.path])
        if self.placement is Placement.TOPIC:
            same = sum(each.dir is directory and each.topic_partition.topic == tp.topic for each in self._logs.values())
            return is_full, float(same), count
        space = self._space[directory.path]
        if self.placement is Placement.SPACE and space is not None and space.total:
            return is_full, -round(space.usable / space.total, 2), count
        return is_full, count

    def _reuse(self, existing: Log, topic_id: TopicId | None, config: LogConfig, done: Created) -> None:
        self.returned.pop(existing.topic_partition, None)
        if not existing.is_online:
            failure = existing.failure or f"log dir {existing.dir.path} is offline: {existing.dir.failure}"
            done(None, KafkaStorageError(str(failure)))
        elif topic_id is not None and existing.topic_id is not None and topic_id != existing.topic_id:
            done(
                None,
                InconsistentTopicIdError(f"{existing.path} is of topic id {existing.topic_id}: expected {topic_id}"),
            )
        elif topic_id is not None and existing.topic_id is None:
            existing.config = config

            def adopted(_: None, error: HoldfastError | None) -> None:
                done(None if error else existing, error)

            existing.dir.queue.submit(partial(existing.adopt_topic_id, topic_id), adopted)
        else:
            existing.config = config
            done(existing, None)

    def _create_on(
        self,
        dirs: list[LogDir],
        tp: TopicPartition,
        topic_id: TopicId | None,
        config: LogConfig,
        now_ms: TimestampMs,
    ) -> None:
        """On the first of the dirs that can."""
        if not dirs:
            self._created(tp, None, KafkaStorageError(f"replica {tp}: no log dir is online, not cordoned and able"))
            return
        directory = dirs[0]
        self._rewrite_soon(directory, tp)  # before it is made: one that is gone may have left its offsets
        self._counts[directory.path] += 1

        def opened(made: Log | None, error: HoldfastError | None) -> None:
            if made is not None:
                self._created(tp, made, None)
                return
            self._counts[directory.path] -= 1
            log.warning("%s: replica %s could not be created: %s", directory.path, tp, error)
            self._create_on(dirs[1:], tp, topic_id, config, now_ms)

        work = partial(
            Log.open, directory, tp, topic_id, config,
            clean_shutdown=False, now_ms=now_ms, suspect=Unloaded(topic_partition=tp),
        )  # fmt: skip
        directory.queue.submit(work, opened)

    def _created(self, tp: TopicPartition, made: Log | None, error: HoldfastError | None) -> None:
        if made is not None:
            self._logs[tp] = made
            self.returned.pop(tp, None)
            self.avoided.pop(tp, None)
        for done in self._creating.pop(tp):
            done(made, error)

    def delete(self, tp: TopicPartition, *, now_ms: TimestampMs, done: Callable[[HoldfastError | None], None]) -> None:
        """Take the replica out of the table and rename its directory; ``purge`` removes it later."""
        going = self._logs.get(tp)
        self.preferred.pop(tp, None)
        if going is None:
            done(None)
            return
        directory = going.dir
        if not directory.is_online:
            done(KafkaStorageError(f"log dir {directory.path} is offline: {directory.failure}"))
            return
        if going.topic_id is not None:
            self.settle(tp, going.topic_id, now_ms)
        del self._logs[tp]
        self.high_watermarks.pop(tp, None)
        self._counts[directory.path] -= 1
        self.on_deleted(tp)

        def renamed(_: str | None, error: HoldfastError | None) -> None:
            if error is None:
                self._deleted.append((now_ms, going))
                self._rewrite_soon(directory, tp)
            done(error)

        directory.queue.submit(partial(going.rename_for_delete, self._new_id().hex), renamed)

    # -- moves ---------------------------------------------------------------------------------------------

    def begin_switch(self, tp: TopicPartition) -> None:
        """Its log is about to be another one: who wants it waits."""
        self._switching.setdefault(tp, [])

    def end_switch(self, tp: TopicPartition) -> None:
        """It is decided."""
        for wanting in self._switching.pop(tp, ()):
            wanting()

    def switch(self, new: FutureLog, now_ms: TimestampMs) -> None:
        """The copy is the log from now on. The old one goes."""
        tp = new.topic_partition
        old = self._logs[tp]
        new.config = old.config
        self._logs[tp] = new
        self.futures.pop(tp, None)
        self._counts[old.dir.path] -= 1
        self._counts[new.dir.path] += 1
        self.moved_away(old, new, now_ms)

    def moved_away(self, old: Log, kept: Log, now_ms: TimestampMs) -> None:
        """The directory of the old log goes, and then the mark in the other one that tells the two apart."""

        def left(_: str | None, error: HoldfastError | None) -> None:
            if error is None:
                self._deleted.append((now_ms, old))
                self.submit_quietly(kept.dir, partial(forget_origin, kept))
            else:
                log.warning("%s stays: %s; the next start removes it", old.path, error)

        old.dir.queue.submit(partial(leave, old, self._new_id().hex), left)

    def note_starts(self, directory: LogDir) -> None:
        """On the dir's thread: the checkpoint of log starts as of now, also those of copies."""
        values = self._checkpoint_values(directory, {})
        self._write_checkpoints(directory, {checkpoints.LOG_START: values[checkpoints.LOG_START]})

    def _rewrite_soon(self, directory: LogDir, tp: TopicPartition) -> None:
        """The checkpoints must not speak of a log that is gone: a new one of that name would start from them. One
        rewrite serves all that are under way."""
        stale = False
        for offsets in self._written[directory.path].values():
            stale = offsets.pop(tp, None) is not None or stale
        if not stale or directory.path in self._rewriting:
            return
        self._rewriting.add(directory.path)

        def rewrite() -> None:
            self._rewriting.discard(directory.path)
            with directory.guard(CheckpointError):
                for name, offsets in self._written[directory.path].items():
                    checkpoints.write_offsets(directory.files, f"{directory.path}/{name}", dict(offsets))

        self.submit_quietly(directory, rewrite)

    # -- checkpoints ---------------------------------------------------------------------------------------

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, Offset]) -> None:
        """Write the checkpoint files of each dir whose contents changed."""
        for directory in self.dirs:
            if directory.is_online:
                values = self._checkpoint_values(directory, high_watermarks)
                self.submit_quietly(directory, partial(self._write_checkpoints, directory, values))

    def _checkpoint_values(
        self, directory: LogDir, high_watermarks: Mapping[TopicPartition, Offset]
    ) -> dict[str, dict[TopicPartition, Offset]]:
        recovery_points: dict[TopicPartition, Offset] = {}
        starts: dict[TopicPartition, Offset] = {}
        marks: dict[TopicPartition, Offset] = {}
        for each in self.logs_in(directory):
            tp, view = each.topic_partition, each.view
            recovery_points[tp] = each.recovery_point
            if view.start_offset > view.segments[0].base_offset:
                starts[tp] = view.start_offset
            mark = high_watermarks.get(tp, self.high_watermarks.get(tp))
            if mark is not None:
                marks[tp] = mark
        for copy in list(self.futures.values()):
            view = copy.view
            if copy.dir is directory and view.start_offset > view.segments[0].base_offset:
                starts[copy.topic_partition] = view.start_offset
        return {
            checkpoints.RECOVERY_POINT: recovery_points,
            checkpoints.LOG_START: starts,
            checkpoints.HIGH_WATERMARK: marks,
        }

    def _write_checkpoints(self, directory: LogDir, values: dict[str, dict[TopicPartition, Offset]]) -> None:
        written = self._written[directory.path]
        with directory.guard(CheckpointError):
            for name, offsets in values.items():
                if written.get(name) != offsets:
                    checkpoints.write_offsets(directory.files, f"{directory.path}/{name}", offsets)
                    written[name] = offsets
            self._space[directory.path] = directory.files.statvfs(directory.path)

    def _write_recovery_points(self, directory: LogDir) -> None:
        """On the dir's thread: a log was cut below its recovery point."""
        points = {each.topic_partition: each.recovery_point for each in self.logs_in(directory)}
        self._write_checkpoints(directory, {checkpoints.RECOVERY_POINT: points})

    # -- for upkeep.py ---------------------------------------------------------------------------------------

    def take_due(self, now_ms: TimestampMs) -> list[Log]:
        """Deleted replicas whose files may go by now; they are told once."""
        due = [(when, each) for when, each in self._deleted if now_ms - when >= each.config.file_delete_delay_ms]
        self._deleted = [d for d in self._deleted if d not in due]
        return [each for _, each in due]

    def submit_quietly(self, directory: LogDir, work: Callable[[], object]) -> None:
        """Work that nobody waits for: its failure is the dir's, and told by the dir."""

        def ended(_: object, error: HoldfastError | None) -> None:
            if error is not None and directory.is_online:
                log.warning("%s: housekeeping failed: %s", directory.path, error)

        directory.queue.submit(work, ended)

    # -- description ---------------------------------------------------------------------------------------

    def describe(self) -> list[DirDescription]:
        """All dirs, for DescribeLogDirs. Sizes of disks are those of the last checkpoint."""
        return [
            DirDescription(
                path=d.path,
                error=d.failure,
                replicas=[(each.topic_partition, each.view.size, False) for each in self.logs_in(d)]
                + [(tp, each.view.size, True) for tp, each in list(self.futures.items()) if each.dir is d]
                + [(f.topic_partition, f.size, True) for f in self.found_futures if f.directory is d],
                space=self._space[d.path] if d.is_online else None,
                cordoned=d.cordoned,
            )
            for d in self.dirs
        ]
