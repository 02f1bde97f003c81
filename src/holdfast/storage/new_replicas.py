"""A replica is to be here: the log that is there, or a new one on the directory that suits it best.

Owns who waits for one that is being made, and the choice of the directory. The tables are the log manager's.

One whose directory does not answer is made on another one (``elsewhere``). What the thread of the first makes when it
answers at last is too late, and removed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol, TypeAlias

from holdfast.model.config import LogConfig
from holdfast.model.errors import HoldfastError, InconsistentTopicIdError, KafkaStorageError
from holdfast.model.types import TimestampMs, TopicId, TopicPartition
from holdfast.storage.checkpoint_writer import CheckpointWriter
from holdfast.storage.deletions import Deletions
from holdfast.storage.dir_load import FoundFuture, Unloaded
from holdfast.storage.dir_state import DirState
from holdfast.storage.files import DiskSpace
from holdfast.storage.future_log import note_origin, promote
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.log_table import FutureLogs, LogTable
from holdfast.storage.standings import Standings

log = logging.getLogger(__name__)

Created: TypeAlias = Callable[[Log | None, HoldfastError | None], None]


class Placement(Enum):
    """Which dir a new replica goes to (``log.dir.placement``)."""

    PARTITIONS = "partitions"
    """The one with the fewest, as Kafka."""
    SPACE = "space"
    """The one with the most room relative to its size."""
    TOPIC = "topic"
    """The one with the fewest partitions of the same topic."""


_LAST = {DirState.DEGRADED: 2.0, DirState.FULL: 4.0}
"""Places of directories that are the last choice."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Making:
    """One that is being made. ``dirs``: those that are left to try; ``on``: the one that is tried now, None before the
    first. ``attempt`` counts: what comes of an earlier one is too late."""

    topic_id: TopicId | None
    config: LogConfig
    now_ms: TimestampMs
    waiting: list[Created]
    dirs: list[LogDir]
    on: LogDir | None = None
    attempt: int = 0
    instead_of: LogDir | None = None
    """The directory that did not answer."""


class Hosting(Protocol):
    """The tables that a new log is put into, and what says where it may be."""

    dirs: list[LogDir]
    held: LogTable
    copies: FutureLogs
    standings: Standings
    checkpoints: CheckpointWriter
    deletions: Deletions

    def logs_in(self, directory: LogDir) -> list[Log]: ...

    def space_of(self, directory: LogDir) -> DiskSpace | None: ...

    def remove_future(self, found: FoundFuture) -> None: ...


class NewReplicas:
    """See the module's docstring. On the loop."""

    def __init__(self, logs: Hosting, placement: Placement) -> None:
        self._logs = logs
        self.placement = placement
        self._making: dict[TopicPartition, _Making] = {}
        self._late: dict[TopicPartition, set[LogDir]] = {}
        """Dirs whose threads may still make a log that nobody wants there any more."""

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
        if self._logs.copies.is_switching(tp):
            again = partial(self.create, tp, topic_id, config, is_new=is_new, now_ms=now_ms, done=done)
            self._logs.copies.after_switch(tp, again)
            return
        existing, failed = self._logs.held.get(tp), self._logs.standings.failed.get(tp)
        if failed is not None:
            done(None, KafkaStorageError(f"replica {tp} in {failed.dir.path} cannot be used: {failed.error}"))
            return
        if existing is not None:
            self._reuse(existing, topic_id, config, done)
            return
        if tp in self._making:
            self._making[tp].waiting.append(done)
            return
        standings = self._logs.standings
        wished = next((d for d in self._logs.dirs if d.path == standings.wish_of(tp)), None)
        if wished is not None and not wished.is_online:
            if is_new:
                standings.refused(tp)
            why = f"replica {tp} is to be in {wished.path}, which is offline: {wished.why(wished.failure)}"
            done(None, KafkaStorageError(why))
            return
        is_known_lost = standings.fate(tp) is not None  # back, and on none of the directories
        if not is_new and not is_known_lost and not all(d.is_online for d in self._logs.dirs):
            offline = ", ".join(d.path for d in self._logs.dirs if not d.is_online)
            done(None, KafkaStorageError(f"replica {tp} is not here and may be on an offline log dir: {offline}"))
            return
        usable = self._places(tp)
        if not usable and (mute := [d.path for d in self._logs.dirs if d.is_online and not d.answers]):
            standings.refused(tp)
            done(None, KafkaStorageError(f"replica {tp}: these log dirs do not answer: {', '.join(mute)}"))
            return
        self._logs.held.forget_mark(tp)
        preferred = standings.wish_of(tp)
        standings.forget_wish(tp)
        usable.sort(key=lambda d: (d.path != preferred, *self._rank(d, tp)))
        self._making[tp] = _Making(topic_id=topic_id, config=config, now_ms=now_ms, waiting=[done], dirs=usable)
        go_on = partial(self._create_next, tp)
        self._promote(self._logs.copies.take(tp), tp, topic_id, config, now_ms, go_on, is_new=is_new)

    def _places(self, tp: TopicPartition) -> list[LogDir]:
        late = self._late.get(tp, ())
        return [d for d in self._logs.dirs if d.answers and not d.cordoned and d not in late]

    def has_place(self, tp: TopicPartition) -> bool:
        """Whether a directory takes a replica now that was refused."""
        wished = self._logs.standings.wish_of(tp)
        if not any(d.path == wished for d in self._logs.dirs):
            wished = None
        return any(wished in (None, d.path) for d in self._places(tp))

    def making_on(self, tp: TopicPartition) -> LogDir | None:
        """The directory that a replica is being made on."""
        making = self._making.get(tp)
        return None if making is None else making.on

    def elsewhere(self, tp: TopicPartition) -> bool:
        """Its directory does not answer: go on with the next one, once. False if there is none, or it is no new log."""
        making = self._making.get(tp)
        if making is None or making.on is None or making.attempt == 0 or making.instead_of is not None:
            return False
        making.dirs = [d for d in making.dirs if d.answers]
        if not making.dirs:
            return False
        log.warning("%s does not answer: replica %s is made elsewhere", making.on.path, tp)
        making.instead_of = making.on
        self._give_up(tp, making)
        self._create_next(tp)
        return True

    def dir_failed(self, directory: LogDir) -> None:
        """It is offline, and its thread may never say so."""
        for tp, making in list(self._making.items()):
            if making.on is directory:
                making.dirs = [d for d in making.dirs if d.is_online]
                self._give_up(tp, making)
                self._create_next(tp)

    def _give_up(self, tp: TopicPartition, making: _Making) -> None:
        assert making.on is not None, "the caller looked"
        self._late.setdefault(tp, set()).add(making.on)
        if making.attempt:
            self._logs.held.give_back(making.on)

    def _too_late(self, tp: TopicPartition, directory: LogDir, made: Log | None, now_ms: TimestampMs) -> None:
        late = self._late.get(tp)
        if late is not None:
            late.discard(directory)
            if not late:
                del self._late[tp]
        if made is None:
            return
        log.warning("%s was made too late: removed", made.path)
        kept = self._logs.held.get(tp)
        if kept is not None and kept.dir is not directory:
            self._logs.deletions.moved_away(made, kept, now_ms)
        else:
            self._logs.deletions.retire(made, now_ms)

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
            self._logs.remove_future(each)
        if is_new or not usable:
            else_()
            return
        found, making = usable[0], self._making[tp]
        making.on = found.directory

        def promoted(made: Log | None, error: HoldfastError | None) -> None:
            if self._making.get(tp) is not making or making.attempt:
                self._too_late(tp, found.directory, made, now_ms)
                return
            if made is None:
                else_()
                return
            self._logs.held.reserve(found.directory)
            self._created(tp, made, None)

        work = partial(promote, found.directory, found.path, tp, topic_id, config, now_ms)
        found.directory.queue.submit(work, promoted)

    def _rank(self, directory: LogDir, tp: TopicPartition) -> tuple[float, ...]:
        """Where a new replica goes: the least first. A slow dir comes late, as does one on which it has failed, a full
        one last."""
        is_full = _LAST.get(directory.state, 0.0) + float(self._logs.standings.avoids(tp, directory.path))
        count = float(self._logs.held.count(directory))
        if self.placement is Placement.TOPIC:
            here = self._logs.logs_in(directory)
            same = sum(each.topic_partition.topic == tp.topic for each in here)
            return is_full, float(same), count
        space = self._logs.space_of(directory)
        if self.placement is Placement.SPACE and space is not None and space.total:
            return is_full, -round(space.usable / space.total, 2), count
        return is_full, count

    def _reuse(self, existing: Log, topic_id: TopicId | None, config: LogConfig, done: Created) -> None:
        self._logs.standings.used(existing.topic_partition)
        if not existing.is_online:
            failure = existing.failure or existing.dir.refusal
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

    def _create_next(self, tp: TopicPartition) -> None:
        """On the first of the dirs that can."""
        making = self._making[tp]
        making.dirs = [d for d in making.dirs if not d.cordoned]  # also one that was cordoned since
        if not making.dirs:
            if any(d.is_online and d.cordoned for d in self._logs.dirs):
                self._logs.standings.refused(tp)  # there is a place once it is not
            self._created(tp, None, KafkaStorageError(f"replica {tp}: no log dir is online, not cordoned and able"))
            return
        directory = making.on = making.dirs.pop(0)
        making.attempt += 1
        attempt, now_ms = making.attempt, making.now_ms
        # Before it is made: one that is gone may have left its offsets.
        self._logs.checkpoints.rewrite_soon(directory, tp)
        self._logs.held.reserve(directory)

        def opened(made: Log | None, error: HoldfastError | None) -> None:
            if self._making.get(tp) is not making or making.attempt != attempt:
                self._too_late(tp, directory, made, now_ms)
                return
            if made is not None:
                self._created(tp, made, None)
                return
            self._logs.held.give_back(directory)
            log.warning("%s: replica %s could not be created: %s", directory.path, tp, error)
            self._create_next(tp)

        instead_of = None if making.instead_of is None else making.instead_of.directory_id

        def make() -> Log:
            made = Log.open(
                directory, tp, making.topic_id, making.config,
                clean_shutdown=False, now_ms=now_ms, suspect=Unloaded(topic_partition=tp),
            )  # fmt: skip
            if instead_of is not None:  # a start that finds both is to know which one counts
                note_origin(made, instead_of)
            return made

        directory.queue.submit(make, opened)

    def _created(self, tp: TopicPartition, made: Log | None, error: HoldfastError | None) -> None:
        if made is not None:
            self._logs.held.add(made)
            self._logs.standings.made(tp)
        for done in self._making.pop(tp).waiting:
            done(made, error)
