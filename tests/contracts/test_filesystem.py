"""What every FileSystem must do: the machine's, the one of the simulation, and that of a process with two of those."""

import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.storage.file_locks import FileLock
from holdfast.storage.files import FileSystem, OsFiles
from tests.simulation.disk import RoutedFiles, SimDisk, WouldBlock


class Waiting:
    """A process that waits for a lock. ``ended`` is set when it has it."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self.lock: FileLock | None = None
        self.ended = threading.Event()
        self._files = files
        self._path = path

    def run(self) -> None:
        try:
            self.lock = self._files.wait_for_lock(self._path)
        except WouldBlock as e:
            e.lock.when_free.append(self.run)
            return
        self.ended.set()


@dataclass
class Machine:
    """Two processes' views of one file system. ``start``: run something in the second one."""

    files: FileSystem
    other: FileSystem
    root: str
    start: Callable[[Callable[[], None]], None]


def on_this_machine(root: str) -> Machine:
    def start(run: Callable[[], None]) -> None:
        threading.Thread(target=run, daemon=True).start()

    return Machine(OsFiles(), OsFiles(), root, start)


def sim_disk() -> SimDisk:
    return SimDisk(random.Random(1), now_ms=lambda: 1_700_000_000_000, device=7)


def on_one_disk(root: str) -> Machine:
    disk = sim_disk()
    disk.mount_point(root)
    return Machine(disk.mount(1), disk.mount(2), root, lambda run: run())


def on_two_disks(root: str) -> Machine:
    disks = {root: sim_disk(), "/elsewhere": sim_disk()}
    files, other = (RoutedFiles({at: disk.mount(process) for at, disk in disks.items()}) for process in (1, 2))
    return Machine(files, other, root, lambda run: run())


@pytest.fixture(params=[on_this_machine, on_one_disk, on_two_disks])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    make: Callable[[str], Machine] = request.param
    return make(str(tmp_path))


@pytest.fixture
def files(machine: Machine) -> FileSystem:
    return machine.files


@pytest.fixture
def root(machine: Machine) -> str:
    return machine.root


def test_write_and_read_at_positions(files: FileSystem, root: str) -> None:
    handle = files.open(f"{root}/f", create=True)
    assert handle.path == f"{root}/f"
    assert handle.fileno() >= 0
    assert handle.pwritev((b"hello", bytearray(b" "), memoryview(b"world")), 3) == 11
    assert handle.pwritev((b"ab",), 0) == 2
    assert handle.size() == 14
    assert handle.pread(100, 0) == b"ab\0hello world"
    assert handle.pread(5, 3) == b"hello"
    assert handle.pread(5, 99) == b""
    handle.fsync()
    handle.truncate(5)
    assert handle.pread(100, 0) == b"ab\0he"
    handle.truncate(8)
    assert handle.pread(100, 0) == b"ab\0he\0\0\0"
    handle.close()
    handle.close()
    assert files.read_bytes(f"{root}/f") == b"ab\0he\0\0\0"
    assert files.file_size(f"{root}/f") == 8
    assert files.modified_ms(f"{root}/f") > 1_600_000_000_000


def test_many_buffers_are_all_written(files: FileSystem, root: str) -> None:
    handle = files.open(f"{root}/f", create=True)
    buffers = [b"%04d" % i for i in range(3000)]
    assert handle.pwritev(buffers, 10) == 12_000
    assert handle.pread(12_000, 10) == b"".join(buffers)


def test_reads_that_must_not_wait(files: FileSystem, root: str) -> None:
    handle = files.open(f"{root}/f", create=True)
    handle.pwritev((b"x" * 1000,), 0)
    found = handle.preadv_nowait(10, 5)
    assert found is None or bytes(found) == b"x" * 10  # some file systems cannot say
    assert handle.preadv_nowait(10, 995) is None
    assert handle.preadv_nowait(10, 5000) is None


def test_a_handle_outlives_the_name(files: FileSystem, root: str) -> None:
    handle = files.open(f"{root}/f", create=True)
    handle.pwritev((b"kept",), 0)
    files.rename(f"{root}/f", f"{root}/g")
    files.unlink(f"{root}/g")
    assert handle.pread(4, 0) == b"kept"


def test_open_errors(files: FileSystem, root: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/none")
    files.open(f"{root}/f", create=True).close()
    readonly = files.open(f"{root}/f", readonly=True)
    with pytest.raises(OSError, match=r"."):
        readonly.pwritev((b"x",), 0)


def test_directories(files: FileSystem, root: str) -> None:
    files.makedirs(f"{root}/a/b")
    files.makedirs(f"{root}/a/b")
    with pytest.raises(FileExistsError):
        files.mkdir(f"{root}/a")
    files.mkdir(f"{root}/a/c")
    files.open(f"{root}/a/f", create=True).close()
    assert sorted(files.listdir(f"{root}/a")) == ["b", "c", "f"]
    assert files.is_dir(f"{root}/a/b")
    assert not files.is_dir(f"{root}/a/f")
    assert files.exists(f"{root}/a/f")
    assert not files.exists(f"{root}/a/g")
    files.fsync_dir(f"{root}/a")
    files.sync_all(f"{root}/a")
    files.rename(f"{root}/a", f"{root}/z")
    files.rmtree(f"{root}/z")
    files.rmtree(f"{root}/z")
    files.unlink(f"{root}/z")
    assert files.listdir(root) == []
    with pytest.raises(FileNotFoundError):
        files.listdir(f"{root}/z")
    with pytest.raises(FileNotFoundError):
        files.read_bytes(f"{root}/z")


def test_h27_small_files_are_replaced_as_a_whole(files: FileSystem, root: str) -> None:
    for durable in (True, False):
        files.write_atomic(f"{root}/f", b"old", durable=durable)
        files.write_atomic(f"{root}/f", b"new and longer", durable=durable)
        assert files.read_bytes(f"{root}/f") == b"new and longer"
        assert files.listdir(root) == ["f"]


def test_space_and_device(files: FileSystem, root: str) -> None:
    space = files.statvfs(root)
    assert space.total >= space.usable > 0
    assert files.device(root) == (os.stat(root).st_dev if isinstance(files, OsFiles) else 7)
    assert isinstance(files.kind(root), str)


def test_a_lock_is_of_one_holder(machine: Machine) -> None:
    files, path = machine.files, f"{machine.root}/.lock"
    lock = files.lock(path)
    assert lock is not None
    assert files.lock(path) is None
    assert machine.other.lock(path) is None
    assert files.read_bytes(path) == b""
    lock.release()
    theirs = machine.other.lock(path)
    assert theirs is not None
    lock.release()
    assert files.lock(path) is None
    theirs.release()
    again = files.wait_for_lock(path)
    assert machine.other.lock(path) is None
    again.release()


def test_who_waits_for_a_lock_gets_it_when_it_is_free(machine: Machine) -> None:
    path = f"{machine.root}/.lock"
    lock = machine.files.wait_for_lock(path)
    waiting = Waiting(machine.other, path)
    machine.start(waiting.run)
    assert not waiting.ended.is_set()
    lock.release()
    assert waiting.ended.wait(20)
    assert waiting.lock is not None
    assert machine.files.lock(path) is None
    waiting.lock.release()
    last = machine.files.lock(path)
    assert last is not None
    last.release()


def test_only_one_gets_a_name_by_link(files: FileSystem, root: str) -> None:
    files.write_atomic(f"{root}/mine", b"1")
    files.write_atomic(f"{root}/yours", b"2")
    files.link(f"{root}/mine", f"{root}/name")
    with pytest.raises(FileExistsError):
        files.link(f"{root}/yours", f"{root}/name")
    with pytest.raises(FileNotFoundError):
        files.link(f"{root}/none", f"{root}/name2")
    files.unlink(f"{root}/mine")
    assert files.read_bytes(f"{root}/name") == b"1"
    handle = files.open(f"{root}/name")
    files.link(f"{root}/name", f"{root}/again")
    handle.pwritev((b"22",), 0)
    assert files.read_bytes(f"{root}/again") == b"22"


def test_the_identity_of_a_file_tells_that_it_was_replaced(files: FileSystem, root: str) -> None:
    assert files.identity(f"{root}/f") is None
    files.write_atomic(f"{root}/f", b"one")
    first = files.identity(f"{root}/f")
    assert first is not None
    assert files.identity(f"{root}/f") == first
    kept = files.open(f"{root}/f")  # the inode's number is in use
    files.write_atomic(f"{root}/f", b"two")
    assert files.identity(f"{root}/f") not in (first, None)
    kept.close()


def test_names_stand_for_one_thing_at_a_time(files: FileSystem, root: str) -> None:
    for name in ("f", "g"):
        files.write_atomic(f"{root}/{name}", name.encode())
    for name in ("d/full", "empty", "other"):
        files.makedirs(f"{root}/{name}")
    files.rename(f"{root}/f", f"{root}/g")
    assert files.read_bytes(f"{root}/g") == b"f"
    files.rename(f"{root}/g", f"{root}/g")
    files.rename(f"{root}/other", f"{root}/empty")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{root}/f", f"{root}/h")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{root}/g", f"{root}/none/h")
    with pytest.raises(IsADirectoryError):
        files.rename(f"{root}/g", f"{root}/d")
    with pytest.raises(NotADirectoryError):
        files.rename(f"{root}/d", f"{root}/g")
    with pytest.raises(OSError, match="not empty"):
        files.rename(f"{root}/empty", f"{root}/d")
    with pytest.raises(OSError, match="Invalid"):
        files.rename(f"{root}/d", f"{root}/d/full/d")
    assert sorted(files.listdir(root)) == ["d", "empty", "g"]


def test_a_rename_within_and_between_directories(files: FileSystem, root: str) -> None:
    files.makedirs(f"{root}/a/x")
    files.makedirs(f"{root}/b")
    files.write_atomic(f"{root}/a/x/f", b"1")
    files.rename(f"{root}/a/x/f", f"{root}/b/g")
    assert files.read_bytes(f"{root}/b/g") == b"1"
    assert files.listdir(f"{root}/a/x") == []
    files.rename(f"{root}/a", f"{root}/b/a")
    assert sorted(files.listdir(f"{root}/b")) == ["a", "g"]
    assert files.is_dir(f"{root}/b/a/x")


def test_a_file_is_no_directory_and_the_other_way_round(files: FileSystem, root: str) -> None:
    files.write_atomic(f"{root}/f", b"f")
    files.mkdir(f"{root}/d")
    for wrong in (
        lambda: files.listdir(f"{root}/f"),
        lambda: files.open(f"{root}/f/x", create=True),
        lambda: files.mkdir(f"{root}/f/x"),
        lambda: files.exists(f"{root}/f/x"),
        lambda: files.file_size(f"{root}/f/x"),
        lambda: files.rmtree(f"{root}/f"),
    ):
        with pytest.raises(NotADirectoryError):
            wrong()
    for wrong in (
        lambda: files.open(f"{root}/d"),
        lambda: files.open(f"{root}/d", create=True),
        lambda: files.unlink(f"{root}/d"),
        lambda: files.read_bytes(f"{root}/d"),
        lambda: files.write_atomic(f"{root}/d", b"x"),
    ):
        with pytest.raises(IsADirectoryError):
            wrong()
    for wrong in (lambda: files.mkdir(f"{root}/f"), lambda: files.makedirs(f"{root}/f")):
        with pytest.raises(FileExistsError):
            wrong()
    assert not files.is_dir(f"{root}/f/x")


def test_what_is_missing_is_missing(files: FileSystem, root: str) -> None:
    for wrong in (
        lambda: files.open(f"{root}/none/f", create=True),
        lambda: files.mkdir(f"{root}/none/d"),
        lambda: files.file_size(f"{root}/none"),
        lambda: files.modified_ms(f"{root}/none"),
        lambda: files.device(f"{root}/none"),
        lambda: files.fsync_dir(f"{root}/none"),
        lambda: files.sync_all(f"{root}/none"),
        lambda: files.statvfs(f"{root}/none"),
        lambda: files.write_atomic(f"{root}/none/f", b""),
        lambda: files.lock(f"{root}/none/lock"),
        lambda: files.wait_for_lock(f"{root}/none/lock"),
    ):
        with pytest.raises(FileNotFoundError):
            wrong()
    files.unlink(f"{root}/none/f")
    files.rmtree(f"{root}/none/d")
    assert not files.exists(f"{root}/none/f")


def test_holes_read_as_zeros(files: FileSystem, root: str) -> None:
    handle = files.open(f"{root}/f", create=True)
    handle.truncate(1 << 20)
    handle.pwritev((b"x",), 5000)
    assert handle.size() == 1 << 20
    assert handle.pread(3, 4999) == b"\0x\0"
    assert handle.pread(10, (1 << 20) - 4) == bytes(4)
    handle.truncate(4990)
    handle.truncate(5010)
    assert handle.pread(100, 4980) == bytes(30)
    assert files.file_size(f"{root}/f") == 5010


def test_handles_that_may_not(files: FileSystem, root: str) -> None:
    files.write_atomic(f"{root}/f", b"data")
    readonly = files.open(f"{root}/f", readonly=True)
    assert readonly.pread(4, 0) == b"data"
    for wrong in (lambda: readonly.pwritev((b"x",), 0), lambda: readonly.truncate(0)):
        with pytest.raises(OSError, match=r"."):
            wrong()
    readonly.close()
    for wrong in (lambda: readonly.pread(1, 0), readonly.size):
        with pytest.raises(OSError, match=r"."):
            wrong()
    assert files.read_bytes(f"{root}/f") == b"data"


def test_what_is_in_memory_may_be_dropped_and_is_read_again(machine: Machine) -> None:
    path = f"{machine.root}/f"
    handle = machine.files.open(path, create=True)
    handle.pwritev((b"synced",), 0)
    handle.fsync()
    handle.pwritev((b", and not",), 6)
    handle.drop_cache()
    assert handle.pread(100, 0) == b"synced, and not"
    handle.close()
