"""A simulated device: what is on it, which processes use it, and what can happen to it.

Owns the tree of names, the room that is used, what is not synced yet, the locks and the lives of processes. The
file systems that processes see of it are in disk.py, with the fault model in words.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable, Iterator
from random import Random
from typing import Protocol

from holdfast.storage.files import Buffer
from tests.simulation.contents import DirContents, FileContents, error

Node = FileContents | DirContents


class ProcessGone(BaseException):
    """The process that makes this call was killed: it makes no calls any more."""


class CrashNow(BaseException):
    """Raised by ``SimDisk.fault``: the process dies in this operation. Whoever ran the process then calls ``kill`` (or
    ``power_loss``); until then every further operation of the process raises this again."""


class WouldBlock(BaseException):
    """The call would wait for ``lock``; make it again when one of ``lock.when_free`` is called."""

    def __init__(self, lock: SimLock) -> None:
        super().__init__(lock.path)
        self.lock = lock


class Trouble(Protocol):
    """What is wrong with a device (trouble.py)."""

    def befall(self, operation: str, path: str) -> None:
        """Raise what the operation fails with; nothing if it works."""

    def seen(self, path: str, data: bytearray) -> bytearray:
        """What a read returns in place of ``data``."""


class TornWrite(OSError):
    """A write fails after a part of it."""


class Life:
    """Whether a process lives. ``ended``: what its operations raise if it does not."""

    __slots__ = ("ended",)

    def __init__(self) -> None:
        self.ended: type[ProcessGone] | type[CrashNow] | None = None


class SimLock:
    """An flock that one process holds. ``when_free``: each is called once, as soon as nobody holds it."""

    __slots__ = ("_file", "_life", "path", "when_free")

    def __init__(self, file: FileContents, life: Life, path: str) -> None:
        self._file = file
        self._life = life
        self.path = path
        self.when_free: list[Callable[[], None]] = []

    @property
    def is_held(self) -> bool:
        return self._file.lock is self

    def release(self) -> None:
        if self._life.ended is None:  # else the kernel does it, with the end of the process
            self.free()

    def free(self) -> None:
        if self._file.lock is self:
            self._file.lock = None
            waiting, self.when_free = self.when_free, []
            for call in waiting:
                call()


class Device:
    """What SimDisk (disk.py) is, but for the file systems on it."""

    def __init__(self, rng: Random, *, now_ms: Callable[[], int], capacity: int = 1 << 40, device: int = 1) -> None:
        self.rng = rng
        self.now_ms = now_ms
        self.capacity = capacity
        self.device = device
        self.cold = 0.0
        self.forgetful = 0.5
        self.fault: Callable[[str, str], None] | None = None
        self.trouble: Trouble | None = None
        self.onlooker: Callable[[str, str], None] | None = None
        self.was_bad = False
        """Some call has failed, or returned something else than what is there."""
        self.operations = 0
        self.used = 0
        self.root = DirContents(0)
        self._dead: int | None = None
        self._numbers = 0
        self._files: dict[FileContents, None] = {}  # with something unsynced, in the order in which they got it
        self._dirs: dict[DirContents, None] = {}
        self._lives: dict[Hashable, Life] = {}
        self._locks: dict[Hashable, list[SimLock]] = {}

    # -- processes ---------------------------------------------------------------------------------------------

    def adopt(self, process: Hashable, life: Life) -> None:
        """The life of a process is also told by this object (RoutedFiles: it is one for all disks)."""
        self._lives[process] = life

    def mount_point(self, path: str) -> None:
        """The directory is there, and no loss of power takes it."""
        at = self.root
        for part in path.strip("/").split("/"):
            found = at.names.get(part)
            if found is None:
                found = DirContents(self.number())
                at.change({part: found})
                at.sync()
            assert isinstance(found, DirContents)
            at = found

    def holds(self, path: str) -> bool:
        """Whether there is something of that name, without a call of a process."""
        at: Node = self.root
        for part in path.strip("/").split("/"):
            if not isinstance(at, DirContents) or part not in at.names:
                return False
            at = at.names[part]
        return True

    def kill(self, process: Hashable) -> None:
        """kill -9: everything written is kept, the process does nothing any more, its locks are free."""
        life = self._lives.pop(process, None)
        if life is not None:
            life.ended = ProcessGone
        for lock in self._locks.pop(process, []):
            lock.free()

    def lock(self, file: FileContents, path: str, process: Hashable, life: Life) -> SimLock:
        """Make ``process`` the holder; nobody is."""
        lock = file.lock = SimLock(file, life, path)
        self._locks[process] = [held for held in self._locks.get(process, ()) if held.is_held] + [lock]
        return lock

    # -- what happens to the device ----------------------------------------------------------------------------

    def power_loss(self, rng: Random) -> None:
        """The machine goes down: all processes end, and what was not synced may be lost, as ``rng`` says."""
        for process in list(self._lives):
            self.kill(process)
        self.lose(rng)

    def lose(self, rng: Random) -> None:
        """What was not synced may be lost."""
        for directory in self._dirs:
            directory.lose(rng)
        for file in self._files:
            file.lose(rng)
        self._dirs.clear()
        self._files.clear()
        for file in list(_files_below(self.root)):
            file.links = 0
        self.used = 0
        for file in _files_below(self.root):
            file.links += 1
            if file.links == 1:
                self.used += len(file.data)

    def die(self, code: int = errno.EIO) -> None:
        """Every operation fails from now on."""
        self._dead = code

    def sync(self) -> None:
        """Everything is on the device."""
        for file in list(self._files):
            self.sync_file(file)
        for directory in self._dirs:
            directory.sync()
        self._dirs.clear()

    def fail_to_sync(self, file: FileContents | None = None) -> None:
        """A flush of one file failed, or of all."""
        for one in list(self._files) if file is None else (file,):
            one.fail_to_sync(self.rng)

    def evict(self) -> None:
        """Nothing is in memory any more but what is to be written."""
        for file in list(self._files):
            file.evict()

    def mount_again(self, rng: Random) -> None:
        """It was repaired, and nothing that was not synced outlived that, or only a part. No process has it open."""
        self.lose(rng)

    def writeback(self, share: float) -> None:
        """As the system does by itself every few seconds: a share of what is unsynced gets to the device."""
        for file in [f for f in self._files if self.rng.random() < share]:
            self.sync_file(file)
        for directory in [d for d in self._dirs if self.rng.random() < share]:
            self.sync_dir(directory)

    # -- for the file systems ------------------------------------------------------------------------------------------

    def step(self, life: Life, operation: str, path: str) -> None:
        """Before every operation: the process must live, the disk too, and the fault hook let it pass."""
        if life.ended is not None:
            raise life.ended(f"{operation} {path}")
        self.operations += 1
        if self.onlooker is not None:
            self.onlooker(operation, path)
        if self._dead is not None:
            raise error(self._dead, path)
        try:
            if self.trouble is not None:
                self.trouble.befall(operation, path)
            if self.fault is not None:
                self.fault(operation, path)
        except CrashNow:
            life.ended = CrashNow
            raise
        except OSError:
            self.was_bad = True
            raise

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def write(self, file: FileContents, data: Buffer, offset: int, path: str) -> None:
        """All of it, or what there is room for and ENOSPC."""
        grows = max(0, offset + len(data) - len(file.data))
        fits = max(0, len(data) - max(0, grows - max(0, self.capacity - self.used)))
        before = len(file.data)
        file.write(data if fits == len(data) else data[:fits], offset)
        file.mtime_ns = self.now_ms() * 1_000_000
        self._files[file] = None
        if file.links:
            self.used += len(file.data) - before
        if fits < len(data):
            raise error(errno.ENOSPC, path)

    def truncate(self, file: FileContents, size: int) -> None:
        before = len(file.data)
        file.truncate(size)
        file.mtime_ns = self.now_ms() * 1_000_000
        if not file.is_synced:
            self._files[file] = None
        if file.links:
            self.used += len(file.data) - before

    def change(self, directory: DirContents, to: dict[str, Node | None]) -> None:
        """Change names of a directory, and give back the room of files that have no name left."""
        for name, node in to.items():
            old = directory.names.get(name)
            if isinstance(old, FileContents):
                old.links -= 1
                self.used -= 0 if old.links else len(old.data)
            if isinstance(node, FileContents):
                self.used += 0 if node.links else len(node.data)
                node.links += 1
        directory.change(to)
        self._dirs[directory] = None

    def sync_file(self, file: FileContents) -> None:
        file.sync()
        if file.is_synced:
            self._files.pop(file, None)

    def seen(self, path: str, data: bytearray) -> bytearray:
        """What a read of the file at ``path`` returns."""
        if self.trouble is None:
            return data
        found = self.trouble.seen(path, data)
        self.was_bad = self.was_bad or found != data
        return found

    def from_device(self, file: FileContents) -> FileContents:
        """A file is looked for: one whose flush failed is, with the chance ``forgetful``, not in memory any more."""
        if file.device is not None and self.rng.random() < self.forgetful:
            file.evict()
        return file

    def sync_dir(self, directory: DirContents) -> None:
        directory.sync()
        self._dirs.pop(directory, None)


def _files_below(directory: DirContents) -> Iterator[FileContents]:
    for node in directory.names.values():
        if isinstance(node, DirContents):
            yield from _files_below(node)
        else:
            yield node
