"""A disk in memory, and the file systems of the processes that use it: deterministic, fast, and able to fail.

Owns the fault model of storage:

    kill -9      of a process keeps what it wrote; its handles are dead, its locks are free
    loss of power   keeps what was synced; of the rest any part (contents.py says which)
    a full disk  ENOSPC, after the part that had room
    a dead disk  every operation fails, for good
    a failed flush   what was not synced may be gone from the device, and later flushes succeed all the same (H-28);
                 processes read it for as long as it is in memory
    a fault      ``SimDisk.fault`` is asked before every operation and may raise an OSError, or CrashNow
    trouble      ``SimDisk.trouble`` as well: errors, torn writes, flipped bits (trouble.py)

``SimDisk`` is the device. ``SimDisk.mount(process)`` is the FileSystem as one process sees it; several may share a
disk. ``RoutedFiles`` is the FileSystem of a process with several disks. Single-threaded: where a system call would
wait for another process it raises WouldBlock instead.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from holdfast.storage.file_locks import FileLock
from holdfast.storage.files import Buffer, DiskSpace, FileHandle, FileSystem
from tests.simulation.contents import DirContents, FileContents, error
from tests.simulation.device import CrashNow, Device, Life, Node, ProcessGone, SimLock, TornWrite, WouldBlock

__all__ = [
    "CrashNow", "ProcessGone", "RoutedFiles", "SimDisk", "SimFiles", "SimHandle", "SimLock", "SimLockFile",
    "WouldBlock",
]  # fmt: skip


class SimDisk(Device):
    """One device: the fault model of the module's docstring.

    ``capacity``: bytes; may be changed at any time. ``fault(operation, path)`` is called before every operation:
    open, create, read, write, truncate, fsync, mkdir, rename, link, unlink, rmdir, listdir, stat, fsync_dir,
    sync_all, lock. ``cold``: share of reads that say they would have to wait. ``operations`` counts them all.
    """

    def mount(self, process: Hashable) -> SimFiles:
        """The disk as ``process`` sees it; of each process once, or it shares what it has."""
        return SimFiles(self, process, self._lives.setdefault(process, Life()))


class SimHandle:
    """FileHandle of a SimFiles."""

    __slots__ = ("_closed", "_disk", "_file", "_life", "_readonly", "path")

    def __init__(self, disk: SimDisk, life: Life, file: FileContents, path: str, *, readonly: bool) -> None:
        self.path = path
        self._disk = disk
        self._life = life
        self._file = file
        self._readonly = readonly
        self._closed = False

    def fileno(self) -> int:
        """A number for looks: there is nothing that sendfile could send."""
        return 1000 + self._file.number

    def _step(self, operation: str) -> FileContents:
        self._disk.step(self._life, operation, self.path)
        if self._closed:
            raise error(errno.EBADF, self.path)
        return self._file

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self._disk.seen(self.path, self._step("read").read(size, offset)))

    def preadv_nowait(self, size: int, offset: int) -> bytearray | None:
        file = self._step("read")
        if offset + size > file.size or (self._disk.cold and self._disk.rng.random() < self._disk.cold):
            return None
        return self._disk.seen(self.path, file.read(size, offset))

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        lived = self._life.ended is None
        try:
            file = self._step("write")
        except (CrashNow, TornWrite):
            if lived:  # it ends in the middle
                self._disk.write(self._file, data[: self._disk.rng.randint(0, len(data))], offset, self.path)
            raise
        if self._readonly:
            raise error(errno.EBADF, self.path)
        self._disk.write(file, data, offset, self.path)
        return len(data)

    def fsync(self) -> None:
        try:
            file = self._step("fsync")
        except OSError:
            self._disk.fail_to_sync(self._file)
            raise
        self._disk.sync_file(file)

    def truncate(self, size: int) -> None:
        file = self._step("truncate")
        if self._readonly:
            raise error(errno.EINVAL, self.path)
        self._disk.truncate(file, size)

    def size(self) -> int:
        return self._step("stat").size

    def drop_cache(self) -> None:
        self._step("stat").evict()

    def close(self) -> None:
        self._closed = True

    def __repr__(self) -> str:
        return f"SimHandle({self.path!r})"


class SimLockFile:
    """LockFile of a SimFiles. What would wait raises WouldBlock."""

    __slots__ = ("_disk", "_file", "_life", "_lock", "_path", "_process", "inode")

    def __init__(self, disk: SimDisk, process: Hashable, life: Life, file: FileContents, path: str) -> None:
        self._disk, self._process, self._life, self._file, self._path = disk, process, life, file, path
        self._lock: SimLock | None = None
        self.inode = file.number

    def try_take(self) -> bool:
        if self._lock is None or not self._lock.is_held:
            if self._file.lock is not None:
                return False
            self._lock = self._disk.lock(self._file, self._path, self._process, self._life)
        return True

    def wait(self) -> None:
        if not self.try_take():
            assert self._file.lock is not None
            raise WouldBlock(self._file.lock)

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def close(self) -> None:
        self.release()


class SimFiles:
    """FileSystem of one process on a SimDisk."""

    __slots__ = ("_life", "disk", "process")

    def __init__(self, disk: SimDisk, process: Hashable, life: Life) -> None:
        self.disk = disk
        self.process = process
        self._life = life

    def kill(self) -> None:
        """kill -9 of the process."""
        self.disk.kill(self.process)

    def live_as(self, life: Life) -> None:
        """The process has other disks: it lives and dies on all of them at once."""
        self._life = life
        self.disk.adopt(self.process, life)

    # -- finding things ----------------------------------------------------------------------------------------

    def _find(self, path: str) -> Node:
        node: Node = self.disk.root
        for part in path.split("/"):
            if not part or part == ".":
                continue
            if not isinstance(node, DirContents):
                raise error(errno.ENOTDIR, path)
            found = node.names.get(part)
            if found is None:
                raise error(errno.ENOENT, path)
            node = found
        return node

    def _parent(self, path: str) -> tuple[DirContents, str]:
        """The directory that a path's last name is in, and that name."""
        head, _, name = path.rstrip("/").rpartition("/")
        directory = self._find(head)
        if not isinstance(directory, DirContents):
            raise error(errno.ENOTDIR, path)
        return directory, name

    def _file(self, path: str) -> FileContents:
        found = self._find(path)
        if isinstance(found, DirContents):
            raise error(errno.EISDIR, path)
        return self.disk.from_device(found)

    def _dir(self, path: str) -> DirContents:
        found = self._find(path)
        if isinstance(found, FileContents):
            raise error(errno.ENOTDIR, path)
        return found

    def _step(self, operation: str, path: str) -> None:
        self.disk.step(self._life, operation, path)

    def _open(self, path: str, *, create: bool) -> FileContents:
        directory, name = self._parent(path) if create else (None, "")
        if directory is not None and name not in directory.names:
            self._step("create", path)
            file = FileContents(self.disk.number(), self.disk.now_ms() * 1_000_000)
            self.disk.change(directory, {name: file})
            return file
        self._step("open", path)
        return self._file(path)

    # -- FileSystem --------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> FileHandle:
        return SimHandle(self.disk, self._life, self._open(path, create=create), path, readonly=readonly)

    def mkdir(self, path: str) -> None:
        self._step("mkdir", path)
        directory, name = self._parent(path)
        if name in directory.names:
            raise error(errno.EEXIST, path)
        self.disk.change(directory, {name: DirContents(self.disk.number())})

    def keep_private(self, path: str) -> None:
        """There is one user."""

    def makedirs(self, path: str) -> None:
        if self.is_dir(path):
            return
        at = ""
        for part in path.strip("/").split("/"):
            at += "/" + part
            if not self.exists(at):
                self.mkdir(at)
        if not self.is_dir(path):
            raise error(errno.EEXIST, path)

    def rename(self, old: str, new: str) -> None:
        self._step("rename", old)
        (source, name), (target, new_name) = self._parent(old), self._parent(new)
        node, there = source.names.get(name), target.names.get(new_name)
        if node is None:
            raise error(errno.ENOENT, old)
        if node is there:
            return
        if isinstance(node, DirContents):
            if isinstance(there, FileContents):
                raise error(errno.ENOTDIR, new)
            if there is not None and there.names:
                raise error(errno.ENOTEMPTY, new)
            if (new.rstrip("/") + "/").startswith(old.rstrip("/") + "/"):
                raise error(errno.EINVAL, new)
        elif isinstance(there, DirContents):
            raise error(errno.EISDIR, new)
        if source is target:
            self.disk.change(source, {name: None, new_name: node})
            return
        # Between directories it is one operation of the journal: as it is not cut in two, so it is not lost.
        self.disk.change(target, {new_name: node})
        self.disk.change(source, {name: None})
        self.disk.sync_dir(target)
        self.disk.sync_dir(source)

    def link(self, old: str, new: str) -> None:
        self._step("link", new)
        node = self._find(old)
        directory, name = self._parent(new)
        if name in directory.names:
            raise error(errno.EEXIST, new)
        if isinstance(node, DirContents):
            raise error(errno.EPERM, old)
        self.disk.change(directory, {name: node})

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        try:
            self._file(path)
        except FileNotFoundError:
            return
        directory, name = self._parent(path)
        self.disk.change(directory, {name: None})

    def rmtree(self, path: str) -> None:
        try:
            names = self.listdir(path)
        except FileNotFoundError:
            return
        for name in names:
            below = f"{path}/{name}"
            if self.is_dir(below):
                self.rmtree(below)
            else:
                self.unlink(below)
        self._step("rmdir", path)
        directory, name = self._parent(path)
        self.disk.change(directory, {name: None})

    def listdir(self, path: str) -> list[str]:
        """In an order that nobody may rely on."""
        self._step("listdir", path)
        names = list(self._dir(path).names)
        self.disk.rng.shuffle(names)
        return names

    def exists(self, path: str) -> bool:
        self._step("stat", path)
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, path: str) -> bool:
        self._step("stat", path)
        try:
            return isinstance(self._find(path), DirContents)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def file_size(self, path: str) -> int:
        self._step("stat", path)
        return self._file(path).size

    def modified_ms(self, path: str) -> int:
        self._step("stat", path)
        return self._file(path).mtime_ns // 1_000_000

    def identity(self, path: str) -> tuple[int, int, int] | None:
        self._step("stat", path)
        try:
            file = self._file(path)
        except FileNotFoundError:
            return None
        return file.number, file.mtime_ns, file.size

    def kind(self, path: str) -> str:
        return "simulated"

    def device(self, path: str) -> int:
        self._step("stat", path)
        self._find(path)
        return self.disk.device

    def fsync_dir(self, path: str) -> None:
        self._step("fsync_dir", path)
        self.disk.sync_dir(self._dir(path))

    def sync_all(self, path: str) -> None:
        try:
            self._step("sync_all", path)
        except OSError:
            self.disk.fail_to_sync()
            raise
        self._find(path)
        self.disk.sync()

    def statvfs(self, path: str) -> DiskSpace:
        self._step("stat", path)
        self._find(path)
        return DiskSpace(total=self.disk.capacity, usable=max(0, self.disk.capacity - self.disk.used))

    def read_bytes(self, path: str) -> bytes:
        self._step("read", path)
        file = self._file(path)
        return bytes(self.disk.seen(path, file.read(file.size, 0)))

    def write_atomic(self, path: str, data: bytes, *, durable: bool = True) -> None:
        temporary = path + ".tmp"
        handle = self.open(temporary, create=True)
        if handle.size():
            handle.truncate(0)
        handle.pwritev((data,), 0)
        if durable:
            handle.fsync()
        handle.close()
        self.rename(temporary, path)
        if durable:
            self.fsync_dir(path.rpartition("/")[0])

    def lock(self, path: str, *, patience_s: float = 0.0) -> FileLock | None:
        file = self._open(path, create=True)
        self._step("lock", path)
        return self.disk.lock(file, path, self.process, self._life) if file.lock is None else None

    def wait_for_lock(self, path: str) -> FileLock:
        file = self._open(path, create=True)
        self._step("lock", path)
        if file.lock is not None:
            raise WouldBlock(file.lock)
        return self.disk.lock(file, path, self.process, self._life)

    def open_lock(self, path: str) -> SimLockFile:
        return SimLockFile(self.disk, self.process, self._life, self._open(path, create=True), path)

    def inode(self, path: str) -> int | None:
        self._step("stat", path)
        try:
            return self._find(path).number
        except FileNotFoundError:
            return None


class RoutedFiles:
    """FileSystem of a process with several disks: a path is on the disk with the longest prefix of it.

    ``routes``: mount point -> the disk's ``mount`` of this process. The mount points are there, durably.
    """

    def __init__(self, routes: dict[str, SimFiles]) -> None:
        life = Life()
        for prefix, files in routes.items():
            files.live_as(life)
            files.disk.mount_point(prefix)
        self._routes = sorted(routes.items(), key=lambda r: len(r[0]), reverse=True)
        for name in _OF_ONE_PATH:
            setattr(self, name, self._routed(name))

    def __getattr__(self, name: str) -> Any:
        """For type checkers: what ``_OF_ONE_PATH`` names is set in ``__init__``."""
        raise AttributeError(name)

    def at(self, path: str) -> SimFiles:
        """The disk that ``path`` is on."""
        for prefix, files in self._routes:
            if path == prefix or path.startswith(prefix + "/"):
                return files
        raise error(errno.ENOENT, path)

    def _routed(self, name: str) -> Callable[..., Any]:
        def call(path: str, *args: Any, **options: Any) -> Any:
            return getattr(self.at(path), name)(path, *args, **options)

        return call

    def _same(self, old: str, new: str) -> SimFiles:
        files = self.at(old)
        if self.at(new) is not files:
            raise error(errno.EXDEV, new)
        return files

    def rename(self, old: str, new: str) -> None:
        self._same(old, new).rename(old, new)

    def link(self, old: str, new: str) -> None:
        self._same(old, new).link(old, new)


_OF_TWO_PATHS = ("rename", "link")
_OF_ONE_PATH = [n for n in vars(FileSystem) if not n.startswith("_") and n not in _OF_TWO_PATHS]
