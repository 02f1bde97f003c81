"""JBOD: which log is on which dir; loading after a start, deleting, what a move changes.

Owns the start, the end and what joins the parts. Which log each replica has is log_table.py's, making new ones
new_replicas.py's, the end of those that go deletions.py's, the checkpoint files are checkpoint_writer.py's, what is
done every few seconds upkeep.py's: each says by a Protocol which of the others it uses. Lives on the event loop: every
method returns at once, work on files is submitted to the queue of the dir it concerns, and callbacks run on the loop.
Never waits for one dir on behalf of another. Decides nothing about leaders; knows nothing of the cluster but what it
is told. The name is Kafka's.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

from holdfast.model.config import LogConfig
from holdfast.model.errors import (
    DuplicateReplicaError,
    HoldfastError,
    InconsistentMetaPropertiesError,
    KafkaStorageError,
)
from holdfast.model.types import BrokerEpoch, BrokerId, Offset, TimestampMs, TopicId, TopicPartition
from holdfast.storage import checkpoints, remembered
from holdfast.storage.checkpoint_writer import CheckpointWriter
from holdfast.storage.deletions import Deletions
from holdfast.storage.dir_load import (
    FailedReplica,
    FoundFuture,
    LoadedDir,
    load_dir,
    set_aside,
    set_path_aside,
    settle_twins,
)
from holdfast.storage.files import DiskSpace
from holdfast.storage.future_log import FutureLog
from holdfast.storage.incarnation import Past
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.log_table import FutureLogs, LogTable
from holdfast.storage.new_replicas import NewReplicas, Placement
from holdfast.storage.remembered import Sizes
from holdfast.storage.removal import Removals
from holdfast.storage.standings import Standings
from holdfast.storage.upkeep import Upkeep

log = logging.getLogger(__name__)


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

    ``config_of``: the configuration of a topic, as far as it is known at the start.
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
        self.node_id = node_id
        self.cluster_id = cluster_id
        self._config_of = config_of
        self._new_id = new_id
        self.held = LogTable(dirs)
        self.copies = FutureLogs()
        self.upkeep = Upkeep(self)
        self.removals = Removals()
        self.new = NewReplicas(self, placement)
        self.checkpoints = CheckpointWriter(self)
        self.deletions = Deletions(new_id, self.submit_quietly)
        self.on_deleted: Callable[[TopicPartition], None] = lambda _: None
        """A replica is deleted: its move ends."""
        self._undecided: dict[TopicPartition, list[Log]] = {}
        """More copies found at the start, of other topics of that name."""
        self._loaded: set[str] = set()
        self._loading: set[LogDir] = set()
        self._found: list[LoadedDir] = []
        self._started: Callable[[], None] = lambda: None
        self._remembered: dict[LogDir, Sizes] = {}
        """Bytes of what the dirs held that could not be read at the start, as far as the others know."""
        self.standings = Standings(self._is_away)
        self.past = Past(dirs, boot_id)
        for directory in dirs:
            directory.on_recovery_points_lowered = partial(self.checkpoints.write_recovery_points, directory)
            directory.on_log_start_lowered = partial(self.checkpoints.note_starts, directory)

    # -- start and stop ------------------------------------------------------------------------------------

    def start(self, now_ms: TimestampMs, done: Callable[[HoldfastError | None], None]) -> None:
        """Open all dirs and load all logs, each dir on its own queue; then ``done``.

        A dir that cannot be used is offline, the rest goes on. An error means that the broker must not start:
        no dir is usable, one belongs to another broker, or a replica stands in two of them.
        """
        self._loading = set(self.dirs)
        self._started = lambda: done(self._adopt(self._found, now_ms))

        def loaded(result: LoadedDir) -> None:
            if result.directory in self._loading:
                self._loading.discard(result.directory)
                self._found.append(result)
                if not self._loading:
                    self._started()
            else:  # the start went on without it; it is loaded again
                for each in result.logs.values():
                    result.directory.queue.submit(each.release, lambda *_: None)

        for directory in list(self.dirs):
            self.load(directory, now_ms, loaded)

    @property
    def loading(self) -> list[LogDir]:
        """The dirs that the start waits for."""
        return [d for d in self.dirs if d in self._loading]

    def start_without(self, silent: Iterable[LogDir], reason: str) -> None:
        """Wait no longer for these, which do not answer: what they have is unknown, as of one that is bad."""
        for directory in silent:
            self._loading.discard(directory)
            directory.never_answered(reason)
            self._found.append(LoadedDir(directory=directory))
        if not self._loading:
            self._started()

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
            twins, unread = settle_twins(found, self._undecided)
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
            for each in one.logs.values():
                self.held.add(each)
            for tp, failed in one.failed.items():
                self.standings.broken(tp, failed)
            self.held.note_marks(one.checkpoints.get(checkpoints.HIGH_WATERMARK, {}))
            self._take_stock(one)
        for tp in self._undecided:
            self.held.forget_mark(tp)  # of one of them
        note = remembered.newest(one.note for one in found)
        self._remembered = {d: note.directories.get(d.path, {}) for d in self.dirs if not d.is_online}
        self.past.adopt(one.history() for one in found)
        for going, kept, was_moved in twins:
            if was_moved:
                self.deletions.moved_away(going, kept, now_ms)
            else:
                why = f"{kept.path} was made while {going.dir.path} was away"
                self.submit_quietly(going.dir, partial(set_aside, going, self._new_id().hex, why))
        for tp, failed in unread:
            self.leave_aside(tp, failed)
        return None

    def _take_stock(self, one: LoadedDir) -> None:
        """Remember of a dir what is no log."""
        directory, path = one.directory, one.directory.path
        self.held.loaded(directory, len(one.logs))
        self.copies.found(directory, one.futures)
        self.checkpoints.found(one)
        self._loaded.discard(path)
        if one.complete:
            self._loaded.add(path)
        self.removals.add(directory, one.deleted)

    def load(self, directory: LogDir, now_ms: TimestampMs, done: Callable[[LoadedDir], None]) -> None:
        """Open one dir and load what is in it, on its own queue. Nothing of it is in any table yet."""
        work = partial(
            load_dir, directory, node_id=self.node_id, cluster_id=self.cluster_id, config_of=self._config_of,
            new_id=self._new_id, now_ms=now_ms, boot_id=self.past.boot_id,
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
        self.checkpoints.close()
        online = [d for d in self.dirs if d.is_online]
        waiting = {d.path for d in online}

        def closed(directory: LogDir, _result: object, error: HoldfastError | None) -> None:
            directory.close()
            waiting.discard(directory.path)
            if error is not None:
                log.warning("%s was not closed cleanly: %s", directory.path, error)
            if not waiting:
                done()

        for directory in self.dirs:
            if directory not in online:
                directory.close()
        for directory in online:
            work = partial(self._close_dir, directory, clean, broker_epoch, dict(high_watermarks))
            directory.queue.submit(work, partial(closed, directory))
        if not online:
            done()

    def _close_dir(
        self,
        directory: LogDir,
        clean: bool,
        broker_epoch: BrokerEpoch | None,
        high_watermarks: dict[TopicPartition, Offset],
    ) -> None:
        if not directory.is_online:  # by now
            return
        # Of one that has failed nobody knows what is on the device (H-28): not clean, then, none of them.
        is_whole = not any(failed.dir is directory for failed in self.standings.failed.values())
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
            self.checkpoints.write(directory, self.checkpoints.values(directory, high_watermarks))
            with directory.guard():
                directory.refuse_beneath()
                directory.files.write_atomic(
                    f"{directory.path}/{checkpoints.CLEAN_SHUTDOWN}",
                    checkpoints.encode_clean_shutdown(self.past.epoch_of(directory, broker_epoch)),
                )

    # -- the table -----------------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> Log | None:
        """The log of a replica that this broker has, also on a dir that is offline."""
        return self.held.get(tp)

    def logs(self) -> Iterable[Log]:
        return self.held

    def logs_in(self, directory: LogDir) -> list[Log]:
        """The logs of one dir."""
        return self.held.of_dir(directory)

    def held_by(self, directory: LogDir) -> dict[TopicPartition, int]:
        """Bytes of each replica of one dir, also of one that is offline: what was there, as far as it is known."""
        left = self._remembered.get(directory, {})
        held = {tp: size for tp, size in left.items() if tp not in self.held and tp not in self.standings.failed}
        return {**{each.topic_partition: each.view.size for each in self.logs_in(directory)}, **held}

    def may_be_on_unread(self, tp: TopicPartition) -> bool:
        """Whether a replica that is not here may be on a dir that could not be read."""
        unread = any(not d.is_online and d.path not in self._loaded for d in self.dirs)
        is_nowhere = self.standings.is_refused(tp) or self.standings.fate(tp) is not None
        return unread and tp not in self.held and not is_nowhere

    def _is_away(self, tp: TopicPartition) -> bool:
        found = self.held.get(tp)
        return found is not None and not found.dir.is_online

    def new_id(self) -> UUID:
        """A random id."""
        return self._new_id()

    # -- for dir_changes.py ----------------------------------------------------------------------------------

    def settle(self, tp: TopicPartition, topic_id: TopicId, now_ms: TimestampMs) -> None:
        """The topic was deleted and made again while a dir was away (K112-80): of several copies found at the start
        that of ``topic_id`` stays."""
        served, others = self.held.get(tp), self._undecided.pop(tp, [])
        if served is None or not others:
            return
        copies = [served, *others]
        right = next((each for each in copies if each.topic_id == topic_id), served)
        self.held.exchange(right)
        for each in copies:
            if each is not right:
                log.warning("%s is of an earlier topic of that name: removed", each.path)
                self.deletions.retire(each, now_ms)

    def leave_aside(self, tp: TopicPartition, failed: FailedReplica) -> None:
        """Of a replica that is served from another dir: its name must not be found again at the next start."""
        self.submit_quietly(failed.dir, partial(set_path_aside, failed.dir, tp, failed.path, self._new_id().hex))

    def dir_of(self, tp: TopicPartition) -> str | None:
        """Path of the dir that a log is on."""
        found = self.held.get(tp)
        return None if found is None else found.dir.path

    def add_absent(self, directory: LogDir) -> None:
        """One that the broker had at its last start and has not now: offline, and what only it has waits for it."""
        self.dirs.append(directory)
        self.held.loaded(directory, 0)

    def put_dir(self, old: LogDir | None, found: LoadedDir) -> None:
        """A dir that was loaded takes the place of one, or is one more."""
        new = found.directory
        new.on_recovery_points_lowered = partial(self.checkpoints.write_recovery_points, new)
        new.on_log_start_lowered = partial(self.checkpoints.note_starts, new)
        if old is None:
            self.dirs.append(new)
        else:
            new.cordoned = old.cordoned
            self._remembered.pop(old, None)
            self.dirs[self.dirs.index(old)] = new
            self.deletions.forget_dir(old)
        marks = found.checkpoints.get(checkpoints.HIGH_WATERMARK, {})
        self.held.note_marks({tp: mark for tp, mark in marks.items() if tp in found.logs})
        self._take_stock(found)

    def drop_dir(self, directory: LogDir) -> None:
        """The dir is no more of this broker."""
        self.dirs.remove(directory)
        self.deletions.forget_dir(directory)
        self.copies.forget_dir(directory)
        self.held.forget_dir(directory)
        self._remembered.pop(directory, None)
        self.checkpoints.forget(directory)

    def space_of(self, directory: LogDir) -> DiskSpace | None:
        """As of the last checkpoint."""
        return self.checkpoints.space_of(directory)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """The topic's configuration changed."""
        for each in self.held:
            if each.topic_partition.topic == topic:
                each.config = config

    def remove_future(self, found: FoundFuture) -> None:
        """Delete a copy that nobody wants."""
        log.info("%s is not wanted any more", found.path)
        self.copies.settled(found)
        self.removals.add(found.directory, [found.path])

    def delete(self, tp: TopicPartition, *, now_ms: TimestampMs, done: Callable[[HoldfastError | None], None]) -> None:
        """Take the replica out of the table and rename its directory; ``purge`` removes it later."""
        going = self.held.get(tp)
        self.standings.forget_wish(tp)
        if self.standings.is_refused(tp):
            self.standings.gone(tp)
        if going is None:
            done(None)
            return
        directory = going.dir
        if not directory.is_online:
            done(KafkaStorageError(f"log dir {directory.path} is offline: {directory.why(directory.failure)}"))
            return
        if going.topic_id is not None:
            self.settle(tp, going.topic_id, now_ms)
        self.held.forget(tp)
        self.held.forget_mark(tp)
        self.on_deleted(tp)

        def renamed(error: HoldfastError | None) -> None:
            if error is None:
                self.checkpoints.rewrite_soon(directory, tp)
            done(error)

        self.deletions.delete(going, now_ms, renamed)

    def waits_on(self, tp: TopicPartition) -> LogDir | None:
        """The dir whose thread is to make or to delete a log of ``tp`` now."""
        return self.new.making_on(tp) or self.deletions.waits_on(tp)

    # -- moves ---------------------------------------------------------------------------------------------

    def switch(self, new: FutureLog, now_ms: TimestampMs) -> None:
        """The copy is the log from now on. The old one goes."""
        old = self.held.exchange(new)
        new.config, new.cleaned_offset = old.config, old.cleaned_offset
        self.copies.forget(new.topic_partition)
        self.deletions.moved_away(old, new, now_ms)

    # -- for upkeep.py ---------------------------------------------------------------------------------------

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
                replicas=[(tp, size, False) for tp, size in self.held_by(d).items()]
                + [(each.topic_partition, each.view.size, True) for each in self.copies if each.dir is d]
                + [(f.topic_partition, f.size, True) for f in self.copies.left() if f.directory is d],
                space=self.checkpoints.space_of(d) if d.is_online else None,
                cordoned=d.cordoned,
            )
            for d in self.dirs
        ]
