"""The file that log lines go to, and what becomes of it when it is large: ``path`` is renamed to ``path.1``, that one
to ``path.2``, and a new ``path`` is begun. Used by the thread that writes the lines alone; a disk that hangs holds up
nobody else.

Descriptors keep their numbers: they lead to the new file from then on, so that what Python itself writes to standard
error goes along.
"""

from __future__ import annotations

import os

_NEW = ".new"


class LogFile:
    """``fds`` lead to the file at ``path``; the first one is written to. ``max_bytes`` 0: it grows for ever."""

    def __init__(self, path: str, fds: tuple[int, ...], *, max_bytes: int, backups: int) -> None:
        self.path = path
        self.fd = fds[0]
        self._fds = fds
        self._max_bytes = max_bytes
        self._backups = backups

    @classmethod
    def opened(cls, path: str, *, max_bytes: int, backups: int) -> LogFile:
        """A file that is opened for this; OSError."""
        return cls(path, (_open(path),), max_bytes=max_bytes, backups=backups)

    def written(self) -> None:
        """Something was: begin another file if this one is large. One that cannot be begun leaves all as it is."""
        try:
            if self._max_bytes and os.fstat(self.fd).st_size >= self._max_bytes:
                self._turn()
        except OSError:
            return

    def _turn(self) -> None:
        begun = _open(self.path + _NEW)
        try:
            for number in range(self._backups - 1, 0, -1):
                if os.path.exists(f"{self.path}.{number}"):
                    os.replace(f"{self.path}.{number}", f"{self.path}.{number + 1}")
            if os.path.exists(self.path):
                os.replace(self.path, f"{self.path}.1")
            os.replace(self.path + _NEW, self.path)
            for fd in self._fds:
                os.dup2(begun, fd, inheritable=fd <= 2)
        finally:
            os.close(begun)


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
