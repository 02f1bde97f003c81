"""The operating system's files: the only module below the shell that touches them, but for their locks (file_locks.py).

Owns the FileSystem and FileHandle protocols and ``OsFiles``, which fulfils them on Linux (and, with the plain
path beside each Linux-only call, elsewhere). Raises OSError and nothing else; what an error means for a log
directory is decided in one place, ``LogDir.guard``. Never maps a file into memory: a dead device answers a
mapped read with SIGBUS and the process is gone.

The fault layer of the tests is another FileSystem around this one.
"""

import contextlib
import ctypes
import errno
import functools
import logging
import os
import posixpath
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from holdfast.storage.file_locks import FileLock, LockFile, LockNotes, OsLockFile, take_lock, wait_for_lock

log = logging.getLogger(__name__)

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Anything that bytes can be written from, or that a read may answer with."""

_RWF_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_COLD_ERRORS = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_IOV_MAX = 512
"""Buffers handed to one pwritev; the kernel's own limit is 1024."""


RESERVED_FROM = 256 * 1024
"""Bytes of a write from which on its blocks are reserved together first, on ext4, which else looks for each of them: a
third of what a write of a megabyte costs (docs/decisions/0066-blocks-of-large-writes.md)."""
_EXT4 = 0xEF53
_KEEP_SIZE = 1


def _is_ext4(fd: int) -> bool:
    found: Callable[[int, object], int] | None = getattr(_libc(), "fstatfs", None)
    about = (ctypes.c_long * 64)()  # more than a statfs has; its first field is the file system's kind
    return sys.platform == "linux" and found is not None and found(fd, about) == 0 and about[0] == _EXT4


def _reserve(fd: int, offset: int, size: int) -> bool:
    """Blocks for a write that follows; the size of the file stays. False: it cannot be done, and the write says why, if
    it cannot either."""
    fallocate: Callable[[int, int, ctypes.c_int64, ctypes.c_int64], int] = _libc().fallocate
    return fallocate(fd, _KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(size)) == 0


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syncfs() -> Callable[[int], int] | None:
    """Linux's syncfs, which Python does not have; None elsewhere."""
    found: Callable[[int], int] | None = getattr(_libc(), "syncfs", None)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """Bytes of the file system that holds a path."""

    total: int
    usable: int


class FileHandle(Protocol):
    """One open file. Reads and writes name their position; there is no file pointer."""

    @property
    def path(self) -> str:
        """Where it was when it was opened."""

    def fileno(self) -> int:
        """The descriptor, for os.sendfile."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes; fewer only at the end of the file."""

    def preadv_nowait(self, size: int, offset: int) -> bytearray | None:
        """Exactly ``size`` bytes if they are in memory, else None: cold, past the end, not askable."""

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write all of the buffers, one after the other; the number of bytes."""

    def fsync(self) -> None:
        """Return when the contents are on the device."""

    def truncate(self, size: int) -> None:
        """Cut or extend (sparse) to ``size``."""

    def size(self) -> int:
        """Bytes in the file."""

    def drop_cache(self) -> None:
        """What is in memory and need not be written is not kept: the next reads are of the device."""

    def close(self) -> None:
        """Give the descriptor back. Also happens when the last reference goes."""


class FileSystem(Protocol):
    """What storage asks of the operating system."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> FileHandle: ...

    def mkdir(self, path: str) -> None:
        """Make one directory; its parent is there, it is not."""

    def keep_private(self, path: str) -> None:
        """From now on the directory, and the files that are and will be made right in it, are for the user of this
        process alone."""

    def makedirs(self, path: str) -> None:
        """Make a directory and its parents; fine if it is there."""

    def rename(self, old: str, new: str) -> None: ...

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; FileExistsError if the name is taken, so of several callers one succeeds."""

    def unlink(self, path: str) -> None:
        """Remove a file; fine if it is gone."""

    def rmtree(self, path: str) -> None:
        """Remove a directory and all in it; fine if it is gone."""

    def listdir(self, path: str) -> list[str]: ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int:
        """Time of the last change of contents."""

    def identity(self, path: str) -> tuple[int, int, int] | None:
        """Inode, time of change (ns) and size: differs when a small file was replaced. None if it is missing."""

    def kind(self, path: str) -> str:
        """Type of the file system that holds the path; '' if the system does not say."""

    def device(self, path: str) -> int:
        """Number of the device that holds the path: changes when something is mounted over or away."""

    def fsync_dir(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None:
        """Bring everything on the file system that holds ``path`` to the device: one call for many files."""

    def statvfs(self, path: str) -> DiskSpace: ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Replace a small file as a whole: a reader, also one after a crash, sees the old or the new one.

        ``durable``: it is on the device when this returns. Without it a crash of the machine (not of the
        process) may leave an old or an empty file: for files that recovery can make again.
        """

    def lock(self, path: str, *, patience_s: float = 0.0) -> FileLock | None:
        """An exclusive lock on the file (made if missing); None if another process or handle has it, and has not
        given it back within ``patience_s``. With patience, a process that has died and has a thread that waits for
        its disk is waited for, as for the disk, for as long as it takes."""

    def wait_for_lock(self, path: str) -> FileLock:
        """The same lock, waiting in the system call for as long as another has it."""

    def open_lock(self, path: str) -> LockFile:
        """Open a file (made if missing) whose lock is to be taken again and again."""

    def inode(self, path: str) -> int | None:
        """Number of the file or directory under a name; None if it is missing."""


class OsFile:
    """FileHandle on a descriptor.

    The descriptor is closed when the last reference goes (or by ``close``). A segment that retires just drops
    its reference: an answer that is being sent from the file holds its own, so the number cannot be reused
    under it.
    """

    __slots__ = ("_fd", "_reserves", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._reserves: bool | None = None
        """Whether blocks are reserved before large writes; not known before the first one."""

    def fileno(self) -> int:
        return self._fd

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts, got = [data], len(data)
        while got < size:  # a read is cut short by a signal or at 2 GiB, not only at the end
            data = os.pread(self._fd, size - got, offset + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def preadv_nowait(self, size: int, offset: int) -> bytearray | None:
        if _RWF_NOWAIT is None:
            return None
        data = bytearray(size)
        try:
            got = os.preadv(self._fd, (data,), offset, _RWF_NOWAIT)
        except OSError as e:
            if e.errno in _COLD_ERRORS:
                return None
            raise
        return data if got == size else None

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        if len(buffers) == 1:
            buffer = buffers[0]
            size = len(buffer)
            if size >= RESERVED_FROM and self._reserves is not False:
                self._reserve(offset, size)
            written = os.pwrite(self._fd, buffer, offset)
            if written == size:
                return written
            return self._write_rest((buffer,), offset, size, written)
        size = sum(map(len, buffers))
        written = os.pwritev(self._fd, buffers[:_IOV_MAX], offset)
        if written == size:
            return written
        return self._write_rest(buffers, offset, size, written)

    def _reserve(self, offset: int, size: int) -> None:
        if self._reserves is None:
            self._reserves = _is_ext4(self._fd)
        if self._reserves:
            self._reserves = _reserve(self._fd, offset, size)

    def _write_rest(self, buffers: Sequence[Buffer], offset: int, size: int, written: int) -> int:
        """A short write is not an error yet: the next one tells why, or goes through."""
        skip = written
        for buffer in buffers:
            view = memoryview(buffer)
            while skip < len(view):
                skip += os.pwrite(self._fd, view[skip:], offset + skip)
            offset += len(view)
            skip = max(0, skip - len(view))
        return size

    def fsync(self) -> None:
        os.fsync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def drop_cache(self) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def __repr__(self) -> str:
        return f"OsFile({self.path!r}, fd={self._fd})"


class OsFiles:
    """FileSystem of the machine. ``lock_notes`` hears of every lock."""

    _lock_notes: LockNotes | None = None
    _private: frozenset[str] = frozenset()
    """Directories that are for their owner alone."""

    def __init__(self, lock_notes: LockNotes | None = None) -> None:
        self._lock_notes = lock_notes

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> FileHandle:
        flags = os.O_RDONLY if readonly else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        return OsFile(path, os.open(path, flags | os.O_CLOEXEC, self._mode(path)))

    def _mode(self, path: str) -> int:
        return 0o600 if self._private and os.path.dirname(path) in self._private else 0o644

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o700 if path in self._private else 0o777)

    def makedirs(self, path: str) -> None:
        os.makedirs(path, 0o700 if path in self._private else 0o777, exist_ok=True)

    def keep_private(self, path: str) -> None:
        self._private |= {path}
        if not os.path.isdir(path):
            return
        _allow(path, 0o700)
        for entry in list(os.scandir(path)):
            if entry.is_file(follow_symlinks=False):
                _allow(entry.path, 0o600)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def rmtree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def identity(self, path: str) -> tuple[int, int, int] | None:
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def kind(self, path: str) -> str:
        try:
            mounts = self.read_bytes("/proc/self/mountinfo").decode(errors="replace")
        except OSError:
            return ""  # not Linux: nothing to ask
        return file_system_of(os.path.realpath(path), mounts)

    def device(self, path: str) -> int:
        return os.stat(path).st_dev

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        syncfs = _syncfs()
        if syncfs is None:
            os.sync()
            return
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if syncfs(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(fd)

    def statvfs(self, path: str) -> DiskSpace:
        s = os.statvfs(path)
        return DiskSpace(total=s.f_blocks * s.f_frsize, usable=s.f_bavail * s.f_frsize)

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as f:
            return f.read()

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, self._mode(path))
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
        if durable:
            self.fsync_dir(os.path.dirname(path) or ".")

    def lock(self, path: str, *, patience_s: float = 0.0) -> FileLock | None:
        return take_lock(path, patience_s, self._lock_notes)

    def wait_for_lock(self, path: str) -> FileLock:
        return wait_for_lock(path, self._lock_notes)

    def open_lock(self, path: str) -> LockFile:
        return OsLockFile(path, self._lock_notes)

    def inode(self, path: str) -> int | None:
        try:
            return os.stat(path).st_ino
        except FileNotFoundError:
            return None


def _allow(path: str, mode: int) -> None:
    try:
        if os.stat(path).st_mode & 0o7777 & ~mode:
            os.chmod(path, mode)
    except FileNotFoundError:  # another broker has just renamed or removed it
        return
    except PermissionError as e:  # somebody else's: whoever reads it now may read it all the same
        log.warning("%s: who may read it cannot be changed: %s: expected mode %o", path, e.strerror, mode)


def make_durably(files: FileSystem, path: str) -> None:
    """Make a directory and its parents, fine if it is there; a loss of power does not take it any more."""
    made = []
    at = path
    while not files.exists(at):
        made.append(at)
        at = posixpath.dirname(at) or "."
    files.makedirs(path)
    for each in made:
        files.fsync_dir(posixpath.dirname(each) or ".")
    # Those that were there too: who made them may have been killed before this line. Not all have to be ours. What
    # another device holds is not: on it is a mount point, and it may hang while this one does not.
    device = files.device(path)
    while at not in ("/", "."):
        at = posixpath.dirname(at) or "."
        with contextlib.suppress(OSError):
            if files.device(at) != device:
                return
            files.fsync_dir(at)


def file_system_of(path: str, mounts: str) -> str:
    """Type of the file system that ``path`` is on, by the text of /proc/self/mountinfo; '' when it is not in it."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        mount = fields.split()[4].replace("\\040", " ")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, rest.split()[0]
    return kind
