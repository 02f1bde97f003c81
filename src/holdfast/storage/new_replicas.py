"""A replica is to be here: the log that is there, or a new one on the directory that suits it best.

Owns the wishes for replicas that are not here yet, who waits for one that is being made, and the choice of the
directory. The tables are the log manager's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from holdfast.model.config import LogConfig
from holdfast.model.errors import HoldfastError, InconsistentTopicIdError, KafkaStorageError
from holdfast.model.fates import ReplicaFate
from holdfast.model.types import TimestampMs, TopicId, TopicPartition
from holdfast.storage.dir_load import FoundFuture, Unloaded
from holdfast.storage.future_log import promote
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir

if TYPE_CHECKING:
    from holdfast.storage.log_manager import LogManager

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


class NewReplicas:
    """See the module's docstring. On the loop."""

    def __init__(self, manager: LogManager, placement: Placement) -> None:
        self._manager = manager
        self.placement = placement
        self._creating: dict[TopicPartition, list[Created]] = {}
        self.preferred: dict[TopicPartition, str] = {}
        """Dirs that were wished for replicas that are not here yet."""
        self.refused: set[TopicPartition] = set()
        """New replicas that were not made, as their wished directory was bad: nothing of them is anywhere."""
        self.avoided: dict[TopicPartition, str] = {}
        """Replicas that are to be made again, and the dir on which they have failed."""

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
        if tp in self._manager.switching:
            again = partial(self.create, tp, topic_id, config, is_new=is_new, now_ms=now_ms, done=done)
            self._manager.switching[tp].append(again)
            return
        existing, failed = self._manager.table.get(tp), self._manager.failed.get(tp)
        if failed is not None:
            done(None, KafkaStorageError(f"replica {tp} in {failed.dir.path} cannot be used: {failed.error}"))
            return
        if existing is not None:
            self._reuse(existing, topic_id, config, done)
            return
        if tp in self._creating:
            self._creating[tp].append(done)
            return
        wished = next((d for d in self._manager.dirs if d.path == self.preferred.get(tp)), None)
        if wished is not None and not wished.is_online:
            if is_new:
                self.refused.add(tp)
            done(None, KafkaStorageError(f"replica {tp} is to be in {wished.path}, which is offline: {wished.failure}"))
            return
        is_known_lost = self._manager.returned.get(tp) is ReplicaFate.LOST
        if not is_new and not is_known_lost and not all(d.is_online for d in self._manager.dirs):
            offline = ", ".join(d.path for d in self._manager.dirs if not d.is_online)
            done(None, KafkaStorageError(f"replica {tp} is not here and may be on an offline log dir: {offline}"))
            return
        self._manager.high_watermarks.pop(tp, None)
        usable = [d for d in self._manager.dirs if d.is_online and not d.cordoned]
        if not usable and is_new:
            self.refused.add(tp)
        preferred = self.preferred.pop(tp, None)
        usable.sort(key=lambda d: (d.path != preferred, *self._rank(d, tp)))
        self._creating[tp] = [done]
        abandoned = [f for f in self._manager.found_futures if f.topic_partition == tp]
        self._manager.found_futures = [f for f in self._manager.found_futures if f.topic_partition != tp]
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
            self._manager.remove_future(each)
        if is_new or not usable:
            else_()
            return
        found = usable[0]

        def promoted(made: Log | None, error: HoldfastError | None) -> None:
            if made is None:
                else_()
                return
            self._manager.counts[found.directory.path] += 1
            self._created(tp, made, None)

        work = partial(promote, found.directory, found.path, tp, topic_id, config, now_ms)
        found.directory.queue.submit(work, promoted)

    def _rank(self, directory: LogDir, tp: TopicPartition) -> tuple[float, ...]:
        """Where a new replica goes: the least first. A full dir comes last, as does one on which it has failed."""
        is_full = float(directory.full is not None) + float(self.avoided.get(tp) == directory.path)
        count = float(self._manager.counts[directory.path])
        if self.placement is Placement.TOPIC:
            here = self._manager.logs_in(directory)
            same = sum(each.topic_partition.topic == tp.topic for each in here)
            return is_full, float(same), count
        space = self._manager.space_of(directory)
        if self.placement is Placement.SPACE and space is not None and space.total:
            return is_full, -round(space.usable / space.total, 2), count
        return is_full, count

    def _reuse(self, existing: Log, topic_id: TopicId | None, config: LogConfig, done: Created) -> None:
        self._manager.returned.pop(existing.topic_partition, None)
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
        # Before it is made: one that is gone may have left its offsets.
        self._manager.checkpoints.rewrite_soon(directory, tp)
        self._manager.counts[directory.path] += 1

        def opened(made: Log | None, error: HoldfastError | None) -> None:
            if made is not None:
                self._created(tp, made, None)
                return
            self._manager.counts[directory.path] -= 1
            log.warning("%s: replica %s could not be created: %s", directory.path, tp, error)
            self._create_on(dirs[1:], tp, topic_id, config, now_ms)

        work = partial(
            Log.open, directory, tp, topic_id, config,
            clean_shutdown=False, now_ms=now_ms, suspect=Unloaded(topic_partition=tp),
        )  # fmt: skip
        directory.queue.submit(work, opened)

    def _created(self, tp: TopicPartition, made: Log | None, error: HoldfastError | None) -> None:
        if made is not None:
            self._manager.table[tp] = made
            self._manager.returned.pop(tp, None)
            self.avoided.pop(tp, None)
            self.refused.discard(tp)
        for done in self._creating.pop(tp):
            done(made, error)
