"""One move of a replica from one log dir to another of the same broker (KIP-113): the order of its steps.

Owns the state of the move and the copy (future_log.py has what is done with the files). Lives on the event loop;
every step is a piece of work on the queue of the dir that it concerns, bounded, in turn with the appends of that
dir, and the next step begins when it has come back. Reads on the log's dir, writes on the copy's: neither waits for
the other. Knows nothing of partitions, but asks for a moment (``hold``) in which nothing is written to the log.

    MAKING --> WAITING --(a place is free)--> COPYING <--> SYNCING --> SWITCHING --> DONE
                                                 ^                        |
                                                 +--(it takes too long)---+       any --> CANCELLED

* COPYING repeats ``look`` at the log and ``apply`` to the copy, until a look leaves nothing behind.
* SYNCING brings the copy to the device, on the dir's second thread; the log grows on, so copying goes on after it.
* SWITCHING: the log stands still, the last piece is written, and the copy is renamed. One right (``Once``) decides
  between the rename, on the dir's thread, and a cancellation, on the loop. Until the rename the log is the replica,
  after it the copy is. Appends are held for a second at most before the rename; a disk that hangs in the rename
  itself holds them until it answers or its dir is given up.

A crash leaves a copy that is taken up again, or (between the rename and the removal of the old directory) two of
which the next start keeps the right one: ``future_log.loser``.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from holdfast.model.errors import HoldfastError, KafkaStorageError
from holdfast.model.types import Offset, TimestampMs, TopicPartition
from holdfast.storage.dir_state import DirState
from holdfast.storage.future_log import (
    NOWHERE,
    CopiedPiece,
    CopyTail,
    FutureLog,
    FutureLogState,
    LastPiece,
    Once,
    agrees,
    last_look,
    look,
)
from holdfast.storage.log import Log
from holdfast.storage.log_dir import LogDir
from holdfast.storage.move_state import MOVE, MoveNews, MoveState

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 512 << 10
"""Read and written in one turn, unless its batches are many (future_log.py): what appends of the same disk wait for
at most."""
LAST_PIECE_BYTES: Final = 4 << 20
UNSYNCED_BYTES: Final = 8 << 20
"""With no more than this to sync appends are stopped for the switch; but after ``SEALS`` rounds with any number."""
SEALS: Final = 4
HOLD_MS: Final = 1000
"""How long appends may wait for a switch before it is put off."""
RETRY_MS: Final = 1000
RETRIES: Final = 5
"""Of errors in a row, of dirs that work."""


class Standstill(Protocol):
    """A moment in which nothing is written to a log (replication/hold.py)."""

    def look(self) -> None:
        """To be called once when it has begun."""

    def release(self, log: Log | None) -> None:
        """It is over; ``log``: the replica's log from now on. None: the same one."""


class Around(Protocol):
    """What a move asks of the broker. All on the loop."""

    def now_ms(self) -> TimestampMs:
        """Wall clock."""

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call back."""

    def new_id(self) -> str:
        """32 hex digits."""

    def made(self, move: "Move") -> None:
        """The copy exists; ``go`` is to be called when it may be filled."""

    def allowance(self) -> tuple[int, int]:
        """By the throttle: milliseconds to wait, and how many bytes may be read then."""

    def copied(self, move: "Move", size: int) -> None:
        """So many bytes were read."""

    def hold(self, move: "Move", quiet: Callable[[], None]) -> Standstill | None:
        """Stop writing to the log; None if that cannot be now."""

    def note_start(self, directory: LogDir) -> None:
        """On the dir's thread: its checkpoint of log starts shall have those of copies, too."""

    def remove(self, directory: LogDir, path: str) -> None:
        """Remove a directory of the dir, and all in it, in the background."""

    def switched(self, move: "Move", standstill: Standstill) -> None:
        """The copy is the log now: put it in the tables, and release."""

    def released(self, move: "Move") -> None:
        """The log does not stand still any more, whether it was switched or not."""

    def ended(self, move: "Move") -> None:
        """It is over: DONE or CANCELLED."""


class Move:
    """See the module's docstring. ``found``: the path of a copy that an earlier life has left."""

    __slots__ = (
        "_around",
        "_at",
        "_errors",
        "_found",
        "_is_quiet",
        "_is_sealed",
        "_is_stopped",
        "_is_syncing",
        "_right",
        "_seals",
        "_since_seal",
        "_standstill",
        "_unwanted",
        "began_ms",
        "bytes_copied",
        "error",
        "future",
        "source",
        "state",
        "target",
    )

    def __init__(self, source: Log, target: LogDir, around: Around, found: str | None = None) -> None:
        self.source = source
        self.target = target
        self.state = MoveState.MAKING
        self.future: FutureLog | None = None
        self.error: HoldfastError | None = None
        self.bytes_copied = 0
        self.began_ms = around.now_ms()
        self._around = around
        self._found = found
        self._at: Offset = NOWHERE
        self._errors = 0
        self._is_sealed = self._is_syncing = self._is_quiet = self._is_stopped = self._unwanted = False
        self._seals = 0
        self._since_seal = 0
        self._right = Once()
        self._standstill: Standstill | None = None

    def __repr__(self) -> str:
        return f"Move({self.topic_partition}: {self.source.dir.path} -> {self.target.path}, {self.state.value})"

    @property
    def topic_partition(self) -> TopicPartition:
        return self.source.topic_partition

    @property
    def lag(self) -> int:
        """Offsets that the copy does not have yet."""
        copied = self.source.view.start_offset if self.future is None else self.future.view.end_offset
        return max(0, self.source.view.end_offset - copied)

    @property
    def is_over(self) -> bool:
        return self.state in (MoveState.DONE, MoveState.CANCELLED)

    # -- the copy is made ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Make the copy, or take up the one that was found."""
        tp, now_ms, config = self.topic_partition, self._around.now_ms(), self.source.config
        if self._found is None:
            make = partial(FutureLog.make, self.target, tp, self._around.new_id(), self.source.topic_id, config, now_ms)
            self.target.queue.submit(make, self._made)
        else:  # it is read whole: aside
            load = partial(FutureLog.load, self.target, self._found, tp, config, now_ms)
            self.target.background.submit(load, self._made)

    def _made(self, future: FutureLog | None, error: HoldfastError | None) -> None:
        if future is None:
            if self._found is not None and not self._is_stopped and self.target.is_online:
                log.warning("%s is of no use: %s", self._found, error)
                self._around.remove(self.target, self._found)
            self._end(error)
            return
        self.future = future
        if self.is_over:
            if not self._is_stopped:
                self._discard()
            return
        if self._found is None:
            self._wait()
        else:
            self.target.queue.submit(future.tail, self._found_tail)

    def _found_tail(self, tail: CopyTail | None, error: HoldfastError | None) -> None:
        if tail is None:
            self._end(error)
        elif not self.is_over:
            self.source.dir.queue.submit(partial(agrees, self.source, tail), self._found_place)

    def _found_place(self, at: Offset | None, error: HoldfastError | None) -> None:
        if at is None:
            self._end(error)
            return
        self._at = at
        if not self.is_over:
            log.info("%s: the move to %s goes on at offset %d", self.topic_partition, self.target.path, at)
            self._wait()

    def _turn(self, news: MoveNews) -> None:
        self.state = MOVE.after(self.state, news)

    def _wait(self) -> None:
        self._turn(MoveNews.MADE)
        self._around.made(self)

    # -- copying -------------------------------------------------------------------------------------------

    def go(self) -> None:
        """There is a place for it among those that are copied."""
        if self.state is MoveState.WAITING:
            self._turn(MoveNews.GO)
            self._copy()

    def _copy(self) -> None:
        if self.state is not MoveState.COPYING:
            return
        delay_ms, room = self._around.allowance()
        if delay_ms > 0:
            self._around.later(delay_ms, self._copy)
            return
        work = partial(look, self.source, self._at, min(room, PIECE_BYTES))
        self.source.dir.queue.submit(work, self._looked)

    def _looked(self, piece: CopiedPiece | None, error: HoldfastError | None) -> None:
        if self.is_over or self.future is None:
            return
        if piece is None:
            self._failed(error)
            return
        self._count(piece)
        if piece.is_news:
            work = partial(self.future.apply, piece, self._around.now_ms())
            self.target.queue.submit(work, partial(self._applied, piece))
        else:
            self._caught_up()

    def _count(self, piece: CopiedPiece) -> None:
        self.bytes_copied += len(piece.data)
        self._since_seal += len(piece.data)
        self._around.copied(self, len(piece.data))

    def _applied(self, piece: CopiedPiece, state: FutureLogState | None, error: HoldfastError | None) -> None:
        if self.is_over or self.future is None:
            return
        if state is None:
            # Perhaps a part of it was written: go on from where the copy ends, and do the cuts once more.
            self._at = min(self.future.view.end_offset, piece.at)
            if piece.cuts:
                self._at = NOWHERE
            self._failed(error)
            return
        self._errors = 0
        self._at = state.end_offset
        if state.has_rolled and not self._is_syncing:
            self._sync_rolled(self.future)
        if state.end_offset >= piece.end_offset:
            self._caught_up()
        else:
            self._copy()

    def _sync_rolled(self, future: FutureLog) -> None:
        """What is finished goes to the device as the copy grows: not all at its end."""
        queue = self.target.sync_queue
        if queue is None:
            return
        self._is_syncing = True
        segments = future.rolled()

        def synced(_: object, error: HoldfastError | None) -> None:
            if error is None and not self.is_over:
                self.target.queue.submit(partial(future.flush_rolled, segments), flushed)
            else:
                self._is_syncing = False

        def flushed(_: object, error: HoldfastError | None) -> None:
            self._is_syncing = False

        queue.submit(partial(future.sync_batches, segments), synced)

    def _failed(self, error: HoldfastError | None) -> None:
        """A step did not work. A dir that is offline ends the move, and so does a target that is full: its room is for
        the replicas that are there. Else it may be better in a moment."""
        self._errors += 1
        usable = self.source.is_online and self.target.is_online and self.target.state is not DirState.FULL
        usable = usable and (self.future is None or self.future.is_online)
        if not usable or self._errors > RETRIES or not isinstance(error, KafkaStorageError):
            self.cancel(error)
            return
        log.warning("%r: %s; it is tried again", self, error)
        self._is_sealed = False
        self._turn(MoveNews.FAILED)
        self._around.later(RETRY_MS, self._copy)

    # -- switching -----------------------------------------------------------------------------------------

    def _caught_up(self) -> None:
        if self.state is not MoveState.COPYING:
            return
        if self._is_sealed and (self._since_seal <= UNSYNCED_BYTES or self._seals >= SEALS):
            self._switch()
            return
        future = self.future
        assert future is not None, "it was copied to"
        self._turn(MoveNews.CAUGHT_UP)
        self._seals += 1
        self._since_seal = 0

        def ahead(_: object, error: HoldfastError | None) -> None:
            if self.is_over:
                return
            if error is not None:
                self._failed(error)
                return
            work = partial(future.seal, self.source.dir.directory_id, self._note_start)
            self.target.queue.submit(work, sealed)

        def sealed(_: object, error: HoldfastError | None) -> None:
            if self.is_over:
                return
            if error is not None:
                self._failed(error)
                return
            self._is_sealed = True
            self._turn(MoveNews.SYNCED)
            self._copy()

        (self.target.sync_queue or self.target.queue).submit(future.sync_ahead, ahead)

    def _note_start(self) -> None:
        self._around.note_start(self.target)

    def _switch(self) -> None:
        standstill = self._around.hold(self, self._stands_still)
        if standstill is None:
            self._around.later(RETRY_MS, self._copy)
            return
        self._turn(MoveNews.HELD)
        self._standstill = standstill
        self._right = right = Once()
        self._is_quiet = False

        def too_long() -> None:
            if self._standstill is standstill and right.take():
                log.warning("%r: the switch takes longer than %d ms: put off", self, HOLD_MS)
                self._let_go()
                if not self._is_quiet:  # else the last piece is on its way, and comes back
                    self._turn(MoveNews.PUT_OFF)
                    self._around.later(RETRY_MS, self._copy)

        self._around.later(HOLD_MS, too_long)
        standstill.look()

    def _let_go(self) -> None:
        """Writes to the log go on."""
        standstill, self._standstill = self._standstill, None
        if standstill is not None:
            standstill.release(None)
            self._around.released(self)

    def _stands_still(self) -> None:
        self._is_quiet = True
        work = partial(last_look, self.source, self._at, LAST_PIECE_BYTES)
        self.source.dir.queue.submit(work, self._looked_last)

    def _looked_last(self, last: LastPiece | None, error: HoldfastError | None) -> None:
        if self.is_over or self.future is None:
            return
        if last is None:
            self._let_go()
            self._failed(error)
            return
        self._count(last.piece)
        # Also when it was put off meanwhile: what was read must not be lost, there may be cuts in it.
        work = partial(self.future.commit, last, self._right, self._around.now_ms(), self._note_start)
        self.target.queue.submit(work, partial(self._committed, last.piece))

    def _committed(self, piece: CopiedPiece, done: bool | None, error: HoldfastError | None) -> None:
        future = self.future
        if self.is_over or future is None:
            return  # given up, or deleted: what was renamed has been removed by ``discard``, or will be judged
        if done and self._standstill is not None:
            self._turn(MoveNews.EXCHANGED)
            standstill, self._standstill = self._standstill, None
            self._around.switched(self, standstill)
            self._around.released(self)
            self._around.ended(self)
            return
        self._let_go()
        self._turn(MoveNews.PUT_OFF)
        if done is None:
            self._at = NOWHERE if piece.cuts else min(future.view.end_offset, piece.at)
            self._is_sealed = False
            self._failed(error)
        elif self._unwanted:
            self.cancel()
        else:
            self._at = future.view.end_offset
            self._around.later(RETRY_MS, self._copy)

    # -- the end -------------------------------------------------------------------------------------------

    def cancel(self, error: HoldfastError | None = None, *, at_any_price: bool = False) -> None:
        """End it; the copy goes, and the log stays the replica. A rename that is under way is let through, and the
        move is DONE then, unless ``at_any_price``: the replica is deleted, or a dir has failed."""
        if self.is_over:
            return
        is_renamed = self.state is MoveState.SWITCHING and not self._right.take() and self._standstill is not None
        if is_renamed and not at_any_price:
            self._unwanted = True
            return
        self._end(error)

    def stop(self) -> None:
        """The broker stops: no further step. The copy stays for the next start, but for one whose rename is under
        way: that is waited for."""
        if self.is_over or (self.state is MoveState.SWITCHING and not self._right.take()):
            return
        self._turn(MoveNews.ENDED)
        self._is_stopped = True
        self._let_go()

    def _end(self, error: HoldfastError | None) -> None:
        if self.is_over:
            return
        self._turn(MoveNews.ENDED)
        self.error = error
        self._let_go()
        if self.future is not None:
            self._discard()
        self._forget_cuts()
        self._around.ended(self)

    def _forget_cuts(self) -> None:
        def forget() -> None:
            self.source.cuts = None

        self.source.dir.queue.submit(forget, lambda *_: None)

    def _discard(self) -> None:
        future, self.future = self.future, None
        if future is None:
            return
        if not self.target.is_online:
            self.target.queue.submit(future.release, lambda *_: None)
            return

        def renamed(path: str | None, error: HoldfastError | None) -> None:
            if path is None:
                log.warning("%s: the copy %s stays: %s", self.topic_partition, future.path, error)
            else:
                self._around.remove(self.target, path)

        self.target.queue.submit(partial(future.discard, self._around.new_id()), renamed)
