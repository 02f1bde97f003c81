"""Reading one partition of a coordinator's topic, for one leadership of this broker.

Owns the order of the steps, and the process that reads a large partition (coordinator_reader.py); what is read into is
the tenant's (``Replaying``, coordinators/tenant.py). Every step is a bounded piece of work in the background lane of
the partition's directory, and the next is queued when it has come back: several partitions take turns, appends and
probes wait for none of it, and the event loop takes what was read a few names at a time.

    files of the view --(small, or no other process to be had)--> pieces of 64 KiB, in the lane ---+
                      --(more than 4 MiB)--> another process --> newest record of each key --------+
                                                    |  (it fails)                                  |
                                                    +--> pieces, in the lane                       v
                                                             pieces <-- decoded, some hundred keys at a time
"""

from __future__ import annotations

import contextlib
import logging
import marshal
import os
import subprocess
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.broker import coordinator_reader
from holdfast.coordinators.newest import OpenPairs, Rest
from holdfast.coordinators.tenant import Reader, Replaying
from holdfast.model.errors import HoldfastError, KafkaStorageError, LogReadError
from holdfast.model.log_events import LogEvent, told
from holdfast.model.types import TopicPartition
from holdfast.storage.published import PublishedReader, published_files

if TYPE_CHECKING:
    import asyncio

    from holdfast.broker.platform import Platform
    from holdfast.storage.log_manager import LogManager

log = logging.getLogger(__name__)

PIECE_BYTES: Final = 64 << 10
"""Read and looked at in one turn: about a millisecond."""
PROCESS_BYTES: Final = 4 << 20
"""A partition that is larger is read by another process."""
PROCESSES: Final = 2
"""At a time, for all partitions of all coordinators of this broker whose directories answer."""
WATCH_S: Final = 0.5
"""How often is looked whether the directory of a load that has a place still answers."""
KEYS_PER_PIECE: Final = 200
NAMES_PER_PIECE: Final = 50
SILENCE_S: Final = 30.0
"""A process that says nothing for so long hangs, or its disk does."""
RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 60.0
_READ_BYTES: Final = 256 << 10
_MAX_FRAME: Final = 1 << 30


class LoadingHost(Protocol):
    """What loading asks of the broker."""

    loop: asyncio.AbstractEventLoop
    platform: Platform
    logs: LogManager


class LoadPlaces:
    """The places for processes, who has one and who waits for one. On the loop, but for ``has``."""

    def __init__(self) -> None:
        self._placed: set[CoordinatorLoad] = set()
        self._waiting: deque[CoordinatorLoad] = deque()

    def ask(self, load: CoordinatorLoad) -> None:
        """``load.read_elsewhere`` is called when there is a place."""
        self._waiting.append(load)
        self._next()

    def has(self, load: CoordinatorLoad) -> bool:
        """Whether it has a place. On any thread."""
        return load in self._placed

    def give_back(self, load: CoordinatorLoad) -> None:
        """Its place, if it has one, is free again."""
        if load in self._placed:
            self._placed.remove(load)
            self._next()

    def _next(self) -> None:
        while self._waiting and len(self._placed) < PROCESSES:
            load = self._waiting.popleft()
            if not load.is_over:
                self._placed.add(load)
                load.read_elsewhere()


class CoordinatorLoad:
    """See the module's docstring. On the loop.

    ``replay`` makes what is read into, for each attempt, ``kind`` is what another process finds for it. ``is_wanted``:
    whether this leadership lasts. ``add`` gets a piece of what was read, ``ready`` is called when all were added.
    """

    def __init__(
        self,
        broker: LoadingHost,
        places: LoadPlaces,
        tp: TopicPartition,
        *,
        replay: Callable[[], Replaying[Any]],
        kind: Reader,
        is_wanted: Callable[[], bool],
        add: Callable[[Any], None],
        ready: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._places = places
        self._tp = tp
        self._is_wanted = is_wanted
        self._add = add
        self._ready = ready
        self._new_replay = replay
        self._replay = replay()
        self._kind = kind
        self._process: _Reader | None = None
        self._elsewhere = True
        self._retry_s = RETRY_S
        self._began_s = broker.platform.monotonic_s()
        self._over = False
        self.is_abandoned = False
        """Another leadership has begun, or none."""

    @property
    def is_over(self) -> bool:
        """It is done, or nobody wants it any more."""
        return self._over or not self._is_wanted()

    def start(self) -> None:
        """Begin, or begin again."""
        hosting = self._broker.logs.get(self._tp)
        if hosting is None or self.is_over:
            return
        self._log, self._replay = hosting, self._new_replay()
        self._files = published_files(hosting)
        self._bytes = sum(part.size for part in self._files)
        if self._bytes > PROCESS_BYTES and self._elsewhere and self._broker.platform.start_process is not None:
            self._places.ask(self)
        else:
            self._reader = PublishedReader(hosting.dir.files, self._files, hosting.view.start_offset)
            self._read_piece()

    def abandon(self) -> None:
        """Another broker leads, or another epoch began."""
        self._over = self.is_abandoned = True
        if self._process is not None:
            self._process.kill()
        else:  # its start is queued, perhaps behind a disk that hangs
            self._places.give_back(self)

    # -- here, in pieces -----------------------------------------------------------------------------------

    def _read_piece(self) -> None:
        """In the lane: read a piece and look at it; and once more."""
        hosting, reader, replay = self._log, self._reader, self._replay

        def work() -> bool:
            with hosting.guard(LogReadError):
                data = reader.read(PIECE_BYTES)
                reader.took(replay.feed(data), data)
            return bool(data)

        self._in_lane(work, self._read_piece, self._unfold)

    # -- in another process --------------------------------------------------------------------------------

    def read_elsewhere(self) -> None:
        """There is a place for a process."""
        start = self._broker.platform.start_process
        assert start is not None, "asked before"
        order = coordinator_reader.order_for(self._kind, self._files, self._log.view.start_offset, os.getpid())

        def work() -> subprocess.Popen[bytes] | None:
            if not self._places.has(self):
                return None
            try:
                process = start(["-m", coordinator_reader.MODULE])
                assert process.stdin is not None
                with contextlib.suppress(BrokenPipeError), process.stdin:  # it tells by its end that it failed
                    process.stdin.write(order)
            except OSError as e:
                raise KafkaStorageError(f"no process can be started to read {self._tp}: {e}") from e
            return process

        def started(process: subprocess.Popen[bytes] | None, error: HoldfastError | None) -> None:
            if process is not None:
                self._process = _Reader(self._broker, process, self._replay.take, self._came)
                if self.is_over:
                    self._process.kill()
            elif error is not None:
                self._came(error)
            else:  # the directory answers again
                self.start()

        self._log.dir.background.submit(work, started)
        self._broker.loop.call_soon(self._watch)

    def _watch(self) -> None:
        """A directory that does not answer keeps no place from the others; a process that runs is left to go on."""
        if not self._places.has(self):
            return
        if self._log.dir.answers:
            self._broker.loop.call_later(WATCH_S, self._watch)
        else:
            self._places.give_back(self)

    def _came(self, error: HoldfastError | None) -> None:
        """The process has ended, or there was none."""
        self._process = None
        self._places.give_back(self)
        if self.is_over:
            return
        if error is None:
            self._unfold()
        else:
            log.warning("%s is read by the broker itself: %s", self._tp, error)
            self._elsewhere = False
            self.start()

    # -- and then ------------------------------------------------------------------------------------------

    def _unfold(self) -> None:
        replay = self._replay
        self._in_lane(lambda: replay.unfold(KEYS_PER_PIECE), self._unfold, self._take)

    def _in_lane(self, work: Callable[[], bool], again: Callable[[], None], then: Callable[[], None]) -> None:
        """``work`` on the directory's background thread; ``again`` while it says that there is more, else ``then``."""

        def came(more: bool | None, error: HoldfastError | None) -> None:
            if self.is_over:
                return
            if error is not None:
                self._failed(error)
            elif more:
                again()
            else:
                then()

        self._log.dir.background.submit(work, came)

    def _take(self) -> None:
        replay = self._replay

        def came(piece: Any, error: HoldfastError | None) -> None:
            if self.is_over:
                return
            if piece:
                self._add(piece)
                self._take()
            elif error is not None:
                self._failed(error)
            else:
                self._over = True
                took_s = self._broker.platform.monotonic_s() - self._began_s
                tp, size = self._tp, self._bytes
                fields = told(
                    LogEvent.COORDINATOR_LOADED,
                    topic=tp.topic, partition=tp.partition, bytes=size, seconds=round(took_s, 3),
                )  # fmt: skip
                log.info("%s is read: %d bytes in %.2f s", tp, size, took_s, extra=fields)
                self._ready()

        self._log.dir.background.submit(lambda: replay.pieces(NAMES_PER_PIECE), came)

    def _failed(self, error: HoldfastError) -> None:
        log.error("%s cannot be loaded, trying again: %s", self._tp, error)
        self._broker.loop.call_later(self._retry_s, self.start)
        self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)


class _Reader:
    """The pipe from a process, and its end. ``done`` is called once, when the process has ended or cannot be made to:
    one whose disk hangs is left to the kernel."""

    def __init__(
        self,
        broker: LoadingHost,
        process: subprocess.Popen[bytes],
        take: Callable[[dict[bytes, Rest], OpenPairs], None],
        done: Callable[[HoldfastError | None], None],
    ) -> None:
        assert process.stdout is not None
        self._loop = broker.loop
        self._process = process
        self._take = take
        self._done = done
        self._pipe = process.stdout
        self._data = bytearray()
        self._is_done = False
        self._silence = self._loop.call_later(SILENCE_S, self._silent)
        os.set_blocking(self._pipe.fileno(), False)
        self._loop.add_reader(self._pipe.fileno(), self._readable)

    def kill(self) -> None:
        """It is not wanted any more."""
        self._end(KafkaStorageError("it was ended"))

    def _silent(self) -> None:
        self._end(KafkaStorageError(f"its process said nothing for {SILENCE_S:.0f} s"))

    def _readable(self) -> None:
        try:
            got = os.read(self._pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not got:
            self._end(KafkaStorageError("its process ended before it was done"))
            return
        self._silence.cancel()
        self._silence = self._loop.call_later(SILENCE_S, self._silent)
        self._data += got
        self._frames()

    def _frames(self) -> None:
        data, frame = self._data, coordinator_reader.FRAME
        while not self._is_done and len(data) >= frame.size:
            kind, size = frame.unpack_from(data)
            end = frame.size + size
            if size > _MAX_FRAME:
                self._end(KafkaStorageError(f"its process sent a frame of {size} bytes"))
                return
            if len(data) < end:
                return
            body = bytes(data[frame.size : end])
            del data[:end]
            if kind == coordinator_reader.PAIRS:
                self._take(*marshal.loads(body))
            elif kind == coordinator_reader.FAILED:
                self._end(KafkaStorageError(body.decode(errors="replace")))
            elif kind == coordinator_reader.END:
                self._end(None)

    def _end(self, error: HoldfastError | None) -> None:
        if self._is_done:
            return
        self._is_done = True
        self._silence.cancel()
        self._loop.remove_reader(self._pipe.fileno())
        self._pipe.close()
        self._process.kill()
        self._reap(error)

    def _reap(self, error: HoldfastError | None, tries: int = 100) -> None:
        """Killed or ended by itself, it is gone in a moment, unless its disk hangs."""
        if self._process.poll() is None and tries:
            self._loop.call_later(0.02, self._reap, error, tries - 1)
            return
        self._done(error)
