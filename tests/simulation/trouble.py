"""What is wrong with a simulated disk: the errors that its calls meet, torn writes, bits that flip.

Owns the kinds of trouble and when each shows. Who has it, when and for how long is disk_faults.py's.

    one call   the n-th call of some kind fails with EIO, and the disk is fine
    one file   every call on one file fails with EIO
    dead       every call fails with EIO
    read only  every call that changes something fails with EROFS
    torn       a write fails with EIO after a part of it
    flipped    one read of batches returns a flipped bit where their checksums cover it
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from enum import Enum

from holdfast.records.batch import CRC_START, HEADER_SIZE
from tests.simulation.contents import error
from tests.simulation.device import TornWrite

CHANGES = frozenset(
    ("create", "write", "truncate", "fsync", "mkdir", "rename", "link", "unlink", "rmdir", "fsync_dir", "sync_all")
)
KINDS_OF_CALL = ("write", "write", "write", "fsync", "fsync", "rename", "create", "read", "fsync_dir", None, None)
"""What may be the call that fails; None is any."""


class Wrong(Enum):
    """The kinds of trouble."""

    CALL = "one call"
    FILE = "one file"
    DEAD = "dead"
    READ_ONLY = "read only"
    TORN = "torn"
    FLIPPED = "flipped"


class DiskTrouble:
    """One thing that is wrong, from now on until it is taken away (``Trouble`` of device.py).

    ``after``: calls of its kind that still work. ``met``: whether a process has met it. ``on_error`` is told every
    error, and whether it is the first.
    """

    def __init__(self, wrong: Wrong, rng: random.Random, after: int, on_error: Callable[[str, bool], None]) -> None:
        self.wrong = wrong
        self.met = False
        self.call = "write" if wrong is Wrong.TORN else rng.choice(KINDS_OF_CALL)
        self.within = ""
        """Part of the paths at which a bit flips."""
        self.byte: int | None = None
        """The byte of the last batch of a read in which it does; None: any, of any batch."""
        self._left = after
        self._rng = rng
        self._path: str | None = None
        self._on_error = on_error

    def __str__(self) -> str:
        return f"{self.wrong.value} ({self.call})" if self.wrong is Wrong.CALL else self.wrong.value

    def befall(self, operation: str, path: str) -> None:
        """Raise what the operation fails with; nothing if it works."""
        wrong = self.wrong
        if wrong is Wrong.DEAD:
            self._fail(errno.EIO, operation, path)
        elif wrong is Wrong.READ_ONLY:
            if operation in CHANGES:
                self._fail(errno.EROFS, operation, path)
        elif wrong is Wrong.FILE:
            self._one_file(operation, path)
        elif wrong is not Wrong.FLIPPED and not self.met and self.call in (None, operation):
            self._left -= 1
            if self._left < 0:
                if wrong is Wrong.TORN:
                    self._note(errno.EIO, operation, path)
                    raise TornWrite(errno.EIO, "Input/output error", path)
                self._fail(errno.EIO, operation, path)

    def _one_file(self, operation: str, path: str) -> None:
        if self._path is None and operation in ("write", "read", "fsync") and path.endswith(".log"):
            self._left -= 1
            if self._left < 0:
                self._path = path
        if path == self._path:
            self._fail(errno.EIO, operation, path)

    def _fail(self, code: int, operation: str, path: str) -> None:
        self._note(code, operation, path)
        raise error(code, path)

    def _note(self, code: int, operation: str, path: str) -> None:
        first, self.met = not self.met, True
        self._on_error(f"{operation} {path} fails: {errno.errorcode[code]}", first)

    def seen(self, path: str, data: bytearray) -> bytearray:
        """What a read returns in place of ``data``."""
        if self.wrong is not Wrong.FLIPPED or self.met or not (path.endswith(".log") and self.within in path):
            return data
        places = list(_covered(data))
        if not places:
            return data
        self._left -= 1
        if self._left >= 0:
            return data
        start, end = self._rng.choice(places)
        at = self._rng.randrange(start, end) if self.byte is None else places[-1][0] - CRC_START + 4 + self.byte
        changed = bytearray(data)
        changed[at] ^= 1 << self._rng.randrange(8)
        self.met = True
        self._on_error(f"a bit of byte {at} of {len(data)} flipped in a read of {path}", True)
        return changed


def _covered(data: bytearray) -> Iterator[tuple[int, int]]:
    """Where bytes are that a checksum covers, if a batch begins where the read did: all but the first fields of a
    batch, which no checksum of the format covers."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        if size < HEADER_SIZE or data[position + 16] != 2:
            return
        yield position + CRC_START - 4, min(position + size, len(data))
        position += size
