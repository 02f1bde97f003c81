"""Moves of replicas between the log directories of this broker (KIP-113): wishes, the throttle, how many at a time.

Owns the table of moves. What a move does is storage/move.py; this gives it what it asks of the broker, starts it, and
ends it when a directory fails, the replica is deleted, or another wish comes. All on the event loop.

A wish for a replica that is not here is remembered and honoured when the replica is created. Copies that an earlier
life has left are looked at when the controller has told all there is: taken up again if their replica is here on
another directory, kept for the replica's creation if it is hosted here and has nothing else, else removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from holdfast.model.errors import (
    InvalidTopicError,
    KafkaStorageError,
    LogDirNotFoundError,
    ReplicaNotAvailableError,
    UnknownTopicOrPartitionError,
)
from holdfast.model.log_events import LogEvent, told
from holdfast.model.types import TopicPartition
from holdfast.replication.throttle import ByteRate
from holdfast.storage.dir_scan import FUTURE_SUFFIX
from holdfast.storage.move import PIECE_BYTES, Move, Standstill
from holdfast.storage.move_state import MoveState

if TYPE_CHECKING:
    from holdfast.broker.metadata_cache import MetadataCache
    from holdfast.broker.platform import Platform
    from holdfast.model.config import BrokerConfig
    from holdfast.model.types import BrokerId
    from holdfast.replication.local_replicas import LocalReplicas
    from holdfast.storage.log_dir import LogDir
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)

THROTTLE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
PARALLEL: Final = "num.replica.alter.log.dirs.threads"
MAX_NAME: Final = 255
CHECKPOINT_MS: Final = 200
"""After a switch: what the checkpoints say of the replica belongs to its new directory."""
STOP_S: Final = 2.0
WATCH_MS: Final = 500
"""How often is looked, while moves wait for a place, which of the directories answer."""


class MovesHost(Protocol):
    """What the moves ask of the broker."""

    broker_id: BrokerId
    config: BrokerConfig
    loop: asyncio.AbstractEventLoop
    platform: Platform
    logs: LogManager
    replicas: LocalReplicas
    metadata: MetadataCache

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...


class MoveStatus(NamedTuple):
    """One move, for people: paths, offsets that are missing, bytes per second since it began."""

    topic_partition: TopicPartition
    from_path: str
    to_path: str
    lag: int
    bytes_per_s: float
    state: str
    size: int


class Moves:
    """See the module's docstring. The ``Around`` of every move."""

    def __init__(self, broker: MovesHost) -> None:
        self._broker = broker
        self._moves: dict[TopicPartition, Move] = {}
        self._next: dict[TopicPartition, str] = {}
        """Where to, when a switch that could not be stopped any more is through."""
        self._copying: set[Move] = set()
        self._waiting: list[Move] = []
        self._is_watching = False
        self._throttle = ByteRate(broker.config.int(THROTTLE))
        self._checkpoint_is_due = False
        self._is_stopping = False
        self._stopped = asyncio.Event()
        self.switches = 0
        """Moves that were finished since the start."""
        self.bytes_copied = 0
        self.on_begin: Callable[[TopicPartition], None] = lambda tp: None
        """A move begins: its log is not to be cleaned from now on (K113-09)."""
        broker.logs.on_deleted = self._deleted

    # -- wishes ------------------------------------------------------------------------------------------------

    def alter(self, tp: TopicPartition, path: str) -> None:
        """Have the replica on the directory ``path``. Raises what AlterReplicaLogDirs answers (K113-03)."""
        broker, logs = self._broker, self._broker.logs
        name = f"{tp}.{'0' * 32}{FUTURE_SUFFIX}"
        if len(name.encode()) > MAX_NAME:
            raise InvalidTopicError(f"{tp}: the name of its copy would have {len(name)} characters, {MAX_NAME} at most")
        target = next((d for d in logs.dirs if d.path == path), None)
        if target is None:
            raise LogDirNotFoundError(f"{path} is not one of log.dirs: expected {', '.join(d.path for d in logs.dirs)}")
        if not target.is_online:
            raise KafkaStorageError(f"log dir {path} is offline: {target.why(target.failure)}")
        current = logs.get(tp)
        running = self._moves.get(tp)
        is_there = current is not None and current.dir is target
        if target.cordoned and not is_there and (running is None or running.target is not target):  # C1
            raise KafkaStorageError(f"log dir {path} is cordoned: it takes no new replicas")
        if current is None:
            logs.standings.wish(tp, path)
            if broker.metadata.partition(tp) is None:
                raise UnknownTopicOrPartitionError(f"{tp}: no such partition is known; {path} is remembered for it")
            raise ReplicaNotAvailableError(f"{tp}: no replica of it is here; {path} is remembered for it")
        if not current.dir.is_online:
            raise KafkaStorageError(f"{tp}: its log directory {current.dir.path} is offline")
        if running is not None and running.target is target and tp not in self._next:
            return
        if current.dir is target:
            self._to(tp, target)
            return
        if target.refusal is not None:
            raise KafkaStorageError(target.refusal)
        offline = [d.path for d in logs.dirs if not d.is_online]
        if offline:
            raise KafkaStorageError(f"{tp}: it may have a copy on a log dir that is offline: {', '.join(offline)}")
        self._to(tp, target)

    def _to(self, tp: TopicPartition, target: LogDir, found: str | None = None) -> None:
        """End the move that is running, and begin this one."""
        self._next[tp] = target.path
        running = self._moves.get(tp)
        if running is not None:
            log.info("%r: it is to be on %s now", running, target.path)
            running.cancel()
        else:
            self._begin_next(tp, found)

    def _begin_next(self, tp: TopicPartition, found: str | None = None) -> None:
        path = self._next.pop(tp, None)
        current = self._broker.logs.get(tp)
        target = next((d for d in self._broker.logs.dirs if d.path == path), None)
        if current is None or target is None or current.dir is target or self._is_stopping:
            return
        if not target.is_online or not current.dir.is_online:
            return
        for left in self._broker.logs.copies.take(tp):
            self._broker.logs.remove_future(left)
        self.on_begin(tp)
        move = self._moves[tp] = Move(current, target, self, found)
        move.start()

    # -- what a move asks for ----------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """See Around."""
        return self._broker.now_ms()

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """See Around."""
        self._broker.loop.call_later(delay_ms / 1000, call)

    def remove(self, directory: LogDir, path: str) -> None:
        """Remove a directory of a dir, and all in it, in the background."""
        self._broker.logs.removals.add(directory, [path])

    def new_id(self) -> str:
        """See Around."""
        return self._broker.platform.new_id().hex

    def made(self, move: Move) -> None:
        """See Around. Copies are made at once and filled a few at a time."""
        if move.future is not None:
            self._broker.logs.copies.add(move.future)
        self._waiting.append(move)
        self._fill()

    def _fill(self) -> None:
        """A move between directories of which one does not answer has no place: others have it, and no new one gets
        any. It goes on by itself when the directory answers; for that time there may be more than the limit."""
        places = self._broker.config.optional_int(PARALLEL) or len(self._broker.logs.dirs)
        places -= sum(map(_answers, self._copying))
        waiting, self._waiting = self._waiting, []
        starting: list[Move] = []
        for move in waiting:
            if move.state is MoveState.WAITING:
                (starting if len(starting) < places and _answers(move) else self._waiting).append(move)
        self._copying.update(starting)
        for move in starting:
            fields = told(LogEvent.MOVE_STARTED, **_about(move))
            log.info("%s moves to %s", move.topic_partition, move.target.path, extra=fields)
            move.go()
        if self._waiting and not self._is_watching and not self._is_stopping:
            self._is_watching = True
            self.later(WATCH_MS, self._watched)

    def _watched(self) -> None:
        self._is_watching = False
        self._fill()

    def allowance(self) -> tuple[int, int]:
        """See Around."""
        rate = self._throttle
        return rate.wait_ms(self._broker.monotonic_ms()), min(PIECE_BYTES, rate.piece_bytes)

    def copied(self, move: Move, size: int) -> None:
        """See Around."""
        self.bytes_copied += size
        self._throttle.spent(size, self._broker.monotonic_ms())

    def hold(self, move: Move, quiet: Callable[[], None]) -> Standstill | None:
        """See Around."""
        standstill = self._broker.replicas.hold(move.topic_partition, move.source, quiet)
        if standstill is not None:
            self._broker.logs.copies.begin_switch(move.topic_partition)
        return standstill

    def note_start(self, directory: LogDir) -> None:
        """See Around."""
        self._broker.logs.checkpoints.note_starts(directory)

    def switched(self, move: Move, standstill: Standstill) -> None:
        """See Around."""
        future, logs, tp = move.future, self._broker.logs, move.topic_partition
        assert future is not None, "it was renamed"
        if move.source.dir.is_online and logs.get(tp) is move.source:
            logs.switch(future, self.now_ms())
            standstill.release(future)
            self.switches += 1
            size, path, before = move.bytes_copied, move.target.path, move.source.dir.path
            fields = told(LogEvent.MOVE_FINISHED, **_about(move), bytes=size)
            log.info("%s is on %s now, %d bytes from %s", tp, path, size, before, extra=fields)
            self._checkpoint_soon()
        else:
            # Its log died in the last moment: the replica counts as offline, and the next start finds the copy.
            log.warning("%s: %s is whole, but its log is gone: the next start takes it", tp, future.path)
            standstill.release(None)

    def released(self, move: Move) -> None:
        """See Around."""
        self._broker.logs.copies.end_switch(move.topic_partition)

    def ended(self, move: Move) -> None:
        """See Around."""
        tp = move.topic_partition
        if move.error is not None:
            fields = told(LogEvent.MOVE_GIVEN_UP, **_about(move), reason=str(move.error))
            log.warning("%s: the move to %s is given up: %s", tp, move.target.path, move.error, extra=fields)
        self._broker.logs.copies.forget(tp)
        self._moves.pop(tp, None)
        self._copying.discard(move)
        if move in self._waiting:
            self._waiting.remove(move)
        if self._is_stopping:
            if not self._is_switching():
                self._stopped.set()
            return
        self._begin_next(tp)
        self._fill()

    def _checkpoint_soon(self) -> None:
        if self._checkpoint_is_due:
            return
        self._checkpoint_is_due = True

        def checkpoint() -> None:
            self._checkpoint_is_due = False
            if not self._is_stopping:
                self._broker.logs.checkpoints.write_all(self._broker.replicas.high_watermarks())

        self.later(CHECKPOINT_MS, checkpoint)

    # -- what happens around them ------------------------------------------------------------------------------

    def configured(self) -> None:
        """The broker's configuration may have changed."""
        self._throttle.set(self._broker.config.int(THROTTLE), self._broker.monotonic_ms())

    def resume(self) -> None:
        """The controller has told which replicas are here: look at what earlier lives have left."""
        logs, metadata = self._broker.logs, self._broker.metadata
        for found in logs.copies.left():
            tp, current = found.topic_partition, logs.get(found.topic_partition)
            info = metadata.partition(tp)
            hosted = info is not None and self._broker.broker_id in info.replicas
            if not found.directory.is_online:
                continue
            if hosted and current is None and all(d.is_online for d in logs.dirs):
                continue  # its creation takes it, or has it removed
            usable = hosted and current is not None and current.dir.is_online and current.dir is not found.directory
            if usable and tp not in self._moves and all(d.is_online for d in logs.dirs):
                logs.copies.settled(found)
                self._to(tp, found.directory, found.path)
            else:
                logs.remove_future(found)

    def dir_failed(self, log_dir: LogDir) -> None:
        """A directory died, or is no more of this broker. Moves to it end and their replicas stay; moves
        from it end with their replicas."""
        for move in list(self._moves.values()):
            error = KafkaStorageError(f"log directory {log_dir.path} is offline")
            if move.target is log_dir:
                move.cancel(error, at_any_price=True)
            elif move.source.dir is log_dir:
                move.cancel(error)

    def _deleted(self, tp: TopicPartition) -> None:
        self._next.pop(tp, None)
        move = self._moves.get(tp)
        if move is not None:
            move.cancel(at_any_price=True)

    def describe(self) -> list[MoveStatus]:
        """All moves, as they are now."""
        now_ms = self.now_ms()
        return [
            MoveStatus(
                tp,
                m.source.dir.path,
                m.target.path,
                m.lag,
                m.bytes_copied * 1000 / max(1, now_ms - m.began_ms),
                m.state.value,
                0 if m.future is None else m.future.view.size,
            )
            for tp, m in self._moves.items()
        ]

    def is_moving(self, tp: TopicPartition) -> bool:
        """Whether the replica is on its way to another directory."""
        return tp in self._moves or tp in self._next

    def being_made(self, path: str) -> list[TopicPartition]:
        """Replicas that will have a copy on the directory in a moment."""
        return [tp for tp, m in self._moves.items() if m.future is None and m.target.path == path]

    def lag_of(self, tp: TopicPartition) -> int:
        """Offsets that the copy of a replica does not have; -1 if there is no move of it."""
        move = self._moves.get(tp)
        return -1 if move is None else move.lag

    async def stop(self) -> None:
        """No further step; copies stay for the next start. A rename that is under way is waited for."""
        self._is_stopping = True
        for move in list(self._moves.values()):
            move.stop()
        if self._is_switching():
            try:
                async with asyncio.timeout(STOP_S):
                    await self._stopped.wait()
            except TimeoutError:
                log.warning("a move was not through within %.0f s: the next start decides", STOP_S)

    def _is_switching(self) -> bool:
        return any(not m.is_over for m in self._moves.values())


def _about(move: Move) -> dict[str, str | int]:
    tp = move.topic_partition
    return {"topic": tp.topic, "partition": tp.partition, "dir": move.target.path, "before": move.source.dir.path}


def _answers(move: Move) -> bool:
    return move.source.dir.answers and move.target.answers
