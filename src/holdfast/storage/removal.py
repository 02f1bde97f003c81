"""Removing files that nobody uses any more: retired segments, deleted replicas, what moves leave behind.

Owns the list of what is to be removed in each directory. The file system takes its time to free a large file, and
holds everybody's syncs meanwhile (ext4: 150 ms for a gigabyte), so a file is cut from its end, ``CUT_BYTES`` at a time,
before it is unlinked; each cut is a piece of work in the directory's background lane, and between two of them the disk
rests for as long as the last one took. A crash leaves files whose names say that they are garbage, and the next start
removes them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from holdfast.model.errors import HoldfastError, KafkaStorageError
from holdfast.storage.dir_load import Unloaded
from holdfast.storage.dir_scan import classify
from holdfast.storage.files import FileSystem
from holdfast.storage.log_dir import Guard, LogDir

log = logging.getLogger(__name__)

CUT_BYTES: Final = 32 << 20
"""Freed in one step."""
FILES_PER_STEP: Final = 64
REST_S: Final = 0.01
"""Between two steps, at least."""

_OVER: Final = object()


class Removals:
    """See the module's docstring. On the loop.

    ``clock``: seconds, read around each step, in the lane. ``later``: call back after so many seconds on the loop; by
    default at once, for tools and tests that have neither.
    """

    def __init__(self) -> None:
        self.clock: Callable[[], float] = lambda: 0.0
        self.later: Callable[[float, Callable[[], None]], object] = _AtOnce()
        self._waiting: dict[LogDir, deque[_Removal]] = {}

    def __len__(self) -> int:
        """What is not removed yet: files and directories as they were ordered."""
        return sum(map(len, self._waiting.values()))

    def add(self, directory: LogDir, paths: Sequence[str]) -> None:
        """Remove these files, and directories with all that is in them; fine if they are gone."""
        if not paths:
            return
        idle = directory not in self._waiting
        self._waiting.setdefault(directory, deque()).extend(_Removal(directory, path) for path in paths)
        if idle:
            self._next(directory)

    def _next(self, directory: LogDir) -> None:
        waiting = self._waiting[directory]

        def done(took_s: float | None, error: HoldfastError | None) -> None:
            if error is not None and directory.is_online:
                log.warning("%s stays until the next start: %s", waiting[0].path, error)
            if not directory.is_online:
                waiting.clear()
            while waiting and (error is not None or waiting[0].is_over):
                waiting.popleft()
                error = None
            if waiting:
                self.later(max(REST_S, took_s or 0.0), partial(self._next, directory))
            else:
                del self._waiting[directory]

        directory.background.submit(partial(self._step, list(islice(waiting, FILES_PER_STEP))), done)

    def _step(self, removals: list[_Removal]) -> float:
        """In the lane. Seconds that it took."""
        start_s = self.clock()
        for removal in removals:  # small files go together, a large one is a step of its own
            removal.step()
            if not removal.is_small:
                break
        return self.clock() - start_s


class _Removal:
    """One file or directory on its way out. ``is_over``: it is gone, or cannot be removed. ``is_small``: it was gone
    after one step."""

    __slots__ = ("_guard", "_steps", "is_over", "is_small", "path")

    def __init__(self, directory: LogDir, path: str) -> None:
        self.path = path
        self.is_over = False
        self.is_small = True
        self._steps = _steps(directory.files, path)
        # Trouble with files of one log is not taken for trouble of the disk: the disk is asked first (K18-03).
        tp = classify(path.removeprefix(f"{directory.path}/").partition("/")[0]).topic_partition
        suspect = None if tp is None else Unloaded(topic_partition=tp)
        self._guard = Guard(directory, KafkaStorageError, suspect)

    def step(self) -> None:
        """The next piece. KafkaStorageError."""
        try:
            with self._guard:
                self.is_over = next(self._steps, _OVER) is _OVER
                self.is_small = self.is_small and self.is_over
        except KafkaStorageError:
            self._steps.close()  # and the file that was being cut: its disk may be unmounted
            self.is_over = True
            raise


def _steps(files: FileSystem, path: str) -> Generator[None, None, None]:
    """Remove it, and stop after each piece of work."""
    if not files.is_dir(path):
        yield from _cut(files, path)
        files.unlink(path)
        return
    for number, name in enumerate(_names(files, path), 1):
        each = f"{path}/{name}"
        if files.is_dir(each):  # none of ours
            continue
        yield from _cut(files, each)
        files.unlink(each)
        if number % FILES_PER_STEP == 0:
            yield
    files.rmtree(path)


def _names(files: FileSystem, path: str) -> list[str]:
    try:
        return files.listdir(path)
    except FileNotFoundError:
        return []


def _cut(files: FileSystem, path: str) -> Generator[None, None, None]:
    """Leave no more of a file than can be unlinked at once."""
    try:
        size = files.file_size(path)
    except FileNotFoundError:
        return
    if size <= CUT_BYTES:
        return
    handle = files.open(path)
    try:
        while size > CUT_BYTES:
            size -= CUT_BYTES
            handle.truncate(size)
            yield
    finally:
        handle.close()


class _AtOnce:
    """Calls at once, one after the other: a call that asks for another is over before that one begins."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()
        self._runs = False

    def __call__(self, _delay_s: float, call: Callable[[], None]) -> None:
        self._calls.append(call)
        if self._runs:
            return
        self._runs = True
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            self._runs = False
