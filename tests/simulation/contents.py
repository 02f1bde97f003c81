"""What a simulated file or directory holds, what of it is on the device, and what a loss of power makes of it.

Owns the bytes of a file and the names of a directory, each with a list that leads back from now to the last sync.
Knows nothing of processes, paths or faults: disk.py does.

A file after a loss of power is, by chance: as it was last synced; as it was at any operation since; or a mixture,
in which each piece of ``SECTOR`` bytes is as it was at one of several times, and what was never written back reads
as zeros. A directory is as it was after some number of the operations since it was last synced: they are lost from
the end, as from a journal.
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.device import SimLock

SECTOR = 512


class FileContents:
    """An inode of a file.

    ``data`` may be shorter than ``size``: the rest is a hole. ``_undo`` leads back to the last sync: an int is the
    size before an operation that destroyed nothing (an append, which is nearly all that logs do); a tuple also has
    the bytes that an operation overwrote or cut off, and where they stood. ``device``: what is really there, when that
    is something else since a flush failed.
    """

    __slots__ = ("_undo", "data", "device", "links", "lock", "mtime_ns", "number", "size")

    def __init__(self, number: int, mtime_ns: int) -> None:
        self.number = number
        self.mtime_ns = mtime_ns
        self.data = bytearray()
        self.size = 0
        self.links = 0
        self.lock: SimLock | None = None
        self.device: FileContents | None = None
        self._undo: list[int | tuple[int, bytes, int]] = []

    @property
    def is_synced(self) -> bool:
        return not self._undo and self.device is None

    def read(self, size: int, offset: int) -> bytearray:
        """Up to ``size`` bytes; fewer at the end of the file."""
        end = min(offset + size, self.size)
        found = self.data[offset:end]
        if offset + len(found) < end:
            found += bytes(end - offset - len(found))
        return found

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Put ``data`` at ``offset``; what is skipped before it reads as zeros."""
        size, mine = self.size, self.data
        if not len(data):
            return
        if self.device is not None:
            self.device.write(data, offset)
        if offset < size:
            self._undo.append((offset, bytes(self.read(len(data), offset)), size))
        else:
            self._undo.append(size)
        if offset > len(mine):
            mine += bytes(offset - len(mine))
        if offset == len(mine):
            mine += data
        else:
            mine[offset : offset + len(data)] = data
        self.size = max(size, offset + len(data))

    def truncate(self, size: int) -> None:
        """Cut, or extend by a hole."""
        if self.device is not None:
            self.device.truncate(size)
        if size < self.size:
            self._undo.append((size, bytes(self.data[size:]), self.size))
            del self.data[size:]
        elif size > self.size:
            self._undo.append(self.size)
        self.size = size

    def sync(self) -> None:
        """All of it is on the device, or what is there since a flush failed."""
        if self.device is not None:
            self.device.sync()
        self._undo.clear()

    def fail_to_sync(self, rng: Random) -> None:
        """A flush failed: the system calls it clean, and the device has any part of it."""
        if self._undo:
            device = FileContents(self.number, self.mtime_ns) if self.device is None else self.device
            if self.device is None:
                device.data, device.size, device._undo = bytearray(self.data), self.size, list(self._undo)
            device.lose(rng)
            self.device = device
            self._undo.clear()

    def evict(self) -> None:
        """What processes read comes from the device from now on, but for what was written since."""
        device, self.device = self.device, None
        if device is not None:
            self.data, self.size, self._undo = device.data, device.size, device._undo

    def lose(self, rng: Random) -> None:
        """The power went, and came back."""
        self.evict()
        if self._undo:
            self._lose(rng)
            self._undo.clear()

    def _lose(self, rng: Random) -> None:
        kind = rng.random()
        count = len(self._undo)
        if kind < 0.15:
            return  # all of it was written back just before
        if kind < 0.30:
            self._back(count)
            return
        if kind < 0.55:
            self._back(rng.randint(0, count))
            return
        first = min(u if isinstance(u, int) else min(u[0], u[2]) for u in self._undo) // SECTOR * SECTOR
        states = [self._from(first)]
        back = rng.randint(0, count)
        self._back(back)
        states.append(self._from(first))
        self._back(count - back)
        states.append(self._from(first))
        size = rng.choice([s for s, _ in states])
        if rng.random() < 0.3:  # a length that the file never had, of pieces that were written back
            size = rng.randint(min(s for s, _ in states), max(s for s, _ in states))
        self._mix(rng, first, size, [d for _, d in states])

    def _from(self, first: int) -> tuple[int, bytes]:
        return self.size, bytes(self.data[first:])

    def _mix(self, rng: Random, first: int, size: int, states: list[bytes]) -> None:
        """Each sector from ``first`` on as in one of ``states``; mostly of the first, mostly of the last, or evenly."""
        weights = rng.choice([(30, 1, 1), (1, 1, 30), (1, 1, 1), (2, 1, 0)])
        length = min(max(0, size - first), max(map(len, states)))
        pieces = bytearray()
        for state, at in zip(
            rng.choices(states, weights, k=-(-length // SECTOR)), range(0, length, SECTOR), strict=True
        ):
            pieces += state[at : at + SECTOR].ljust(SECTOR, b"\0")
        del pieces[length:]
        del self.data[first:]
        if pieces:
            self.data += bytes(first - len(self.data))
            self.data += pieces
        self.size = size

    def _back(self, count: int) -> None:
        """Undo the last ``count`` operations."""
        for _ in range(count):
            step = self._undo.pop()
            if isinstance(step, int):
                size = step
            else:
                offset, old, size = step
                if old and offset > len(self.data):
                    self.data += bytes(offset - len(self.data))
                self.data[offset : offset + len(old)] = old
            if len(self.data) > size:
                del self.data[size:]
            self.size = size


Change = tuple[str, "FileContents | DirContents | None"]
"""A name, and what it named before."""


class DirContents:
    """An inode of a directory: its names, and the changes since the last sync, each of one or two names at once."""

    __slots__ = ("_undo", "names", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, FileContents | DirContents] = {}
        self._undo: list[tuple[Change, ...]] = []

    @property
    def is_synced(self) -> bool:
        return not self._undo

    def change(self, to: dict[str, FileContents | DirContents | None]) -> None:
        """Give names to things, or take them away (None), at once."""
        self._undo.append(tuple((name, self.names.get(name)) for name in to))
        for name, node in to.items():
            self._set(name, node)

    def _set(self, name: str, node: FileContents | DirContents | None) -> None:
        if node is None:
            self.names.pop(name, None)
        else:
            self.names[name] = node

    def sync(self) -> None:
        """All names are on the device."""
        self._undo.clear()

    def lose(self, rng: Random) -> None:
        """The power went: the latest changes may be lost."""
        kind = rng.random()
        count = len(self._undo)
        lost = 0 if kind < 0.25 else count if kind < 0.5 else rng.randint(0, count)
        for changes in reversed(self._undo[count - lost :]):
            for name, node in changes:
                self._set(name, node)
        self._undo.clear()


def error(code: int, path: str) -> OSError:
    """The OSError of that number, as the system makes it."""
    return OSError(code, os.strerror(code), path)
