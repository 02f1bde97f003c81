"""Locks of files: flock, which the operating system gives back when a process ends, however it ends.

Owns who has a lock and how long one waits for a process that is dying (decision 0008). Raises OSError and nothing else.
Opening a file touches its disk; what is asked of a LockFile after that does not.
"""

import errno
import fcntl
import os
import time
from typing import Protocol

_LOCK_RETRY_S = 0.01


class FileLock(Protocol):
    """A lock that the operating system frees when the process ends, however it ends."""

    def release(self) -> None:
        """Give it back."""


class LockNotes(Protocol):
    """Who is told of the locks that a process holds."""

    def lock_taken(self, descriptor: int, path: str) -> None:
        """It is held from now on."""

    def lock_given_back(self, descriptor: int) -> None:
        """The descriptor is about to be closed."""


class LockFile(Protocol):
    """An open file whose lock may be taken and given back many times: no I/O, so a disk that is dead or hangs does not
    matter once it is open. Freed when the process ends."""

    @property
    def inode(self) -> int:
        """Of the open file; another one may have its name by now."""

    def try_take(self) -> bool:
        """Whether the lock is ours now, or was already."""

    def wait(self) -> None:
        """Take it, waiting in the system call for as long as another has it."""

    def release(self) -> None:
        """Give it back and keep the file open."""

    def close(self) -> None:
        """Give it back for good."""


class OsLock:
    """flock on an open descriptor."""

    __slots__ = ("_fd", "_notes")

    def __init__(self, fd: int, path: str, notes: LockNotes | None) -> None:
        self._fd = fd
        self._notes = notes
        if notes is not None:
            notes.lock_taken(fd, path)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if self._notes is not None:
                self._notes.lock_given_back(fd)
            os.close(fd)


class OsLockFile:
    """flock on a descriptor that stays open."""

    __slots__ = ("_fd", "_notes", "inode")

    def __init__(self, path: str, notes: LockNotes | None) -> None:
        self._fd = fd = _open(path)
        self._notes = notes
        self.inode = os.fstat(fd).st_ino
        if notes is not None:
            notes.lock_taken(fd, path)

    def try_take(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def wait(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def release(self) -> None:
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if self._notes is not None:
                self._notes.lock_given_back(fd)
            os.close(fd)


def take_lock(path: str, patience_s: float, notes: LockNotes | None) -> FileLock | None:
    """FileSystem.lock."""
    fd = _open(path)
    limit_s = time.monotonic() + patience_s
    lives = 0
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return OsLock(fd, path, notes)
        except OSError as e:
            if e.errno not in (errno.EAGAIN, errno.EACCES):
                os.close(fd)
                raise
            if time.monotonic() >= limit_s:
                lives = 0 if patience_s and _holder_is_dead(fd) else lives + 1
            if lives > 1:  # not given back since the question was put first
                os.close(fd)
                return None
        time.sleep(_LOCK_RETRY_S)


def wait_for_lock(path: str, notes: LockNotes | None) -> FileLock:
    """FileSystem.wait_for_lock."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except BaseException:
        os.close(fd)
        raise
    return OsLock(fd, path, notes)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _holder_is_dead(fd: int) -> bool:
    """Whether the lock on the file was taken by a process that has died. False where the system does not tell, of
    processes that it does not show, and when nobody has it."""
    seen = os.fstat(fd)
    file = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            held = [fields for line in locks if (fields := line.split())[1] == "FLOCK" and fields[5] == file]
        holder = int(held[0][4])
    except (OSError, IndexError, ValueError):
        return False
    if holder <= 0:
        return False
    try:
        with open(f"/proc/{holder}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return True
