"""The memory that a fuzzing process shares with its watchdog: which input it is at, and the inputs themselves.

A process that is killed by its input cannot tell which one it was; whoever watches reads it here.
"""

import mmap
import os
from typing import Any, Final

CHUNK: Final = 8192
"""Inputs that are made at once."""
_HEADER: Final = 8
INDEX, DONE, PHASE, FINDINGS = 0, 1, 2, 3
"""Words of the header: the input of the chunk, inputs of earlier chunks, what the process does, findings so far."""
RUNNING, BETWEEN, ONE = 1, 0, 2
"""Phases: in the tight loop; between chunks; busy with one input, which is in the first place of the buffer."""


class Channel:
    """A file mapped by both sides."""

    def __init__(self, path: str, max_size: int, *, create: bool = False) -> None:
        self.path = path
        self.max_size = max_size
        self._data_at = 8 * (_HEADER + CHUNK + 1)
        size = self._data_at + CHUNK * max_size
        fd = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
        try:
            if create:
                os.ftruncate(fd, size)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        whole = memoryview(self._map)
        self.words: Any = whole[: 8 * _HEADER].cast("q")
        self.offsets: Any = whole[8 * _HEADER : self._data_at].cast("q")
        self.data: Any = whole[self._data_at :]

    def current(self) -> bytes:
        """The input that is being read now, or was last."""
        i = 0 if self.words[PHASE] == ONE else self.words[INDEX]
        return bytes(self.data[self.offsets[i] : self.offsets[i + 1]])

    def put_one(self, data: bytes) -> None:
        """Say that this input is read now, outside of the tight loop."""
        size = min(len(data), len(self.data))
        self.data[:size] = data[:size]
        self.offsets[0], self.offsets[1] = 0, size
        self.words[PHASE] = ONE
