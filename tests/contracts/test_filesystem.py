"""What every FileSystem must do. Fault layers and in-memory file systems are held to the same."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.storage.files import FileSystem, OsFiles


@pytest.fixture(params=[OsFiles])
def files(request: pytest.FixtureRequest) -> FileSystem:
    make: Callable[[], FileSystem] = request.param
    return make()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


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
    assert files.device(root) == os.stat(root).st_dev


def test_a_lock_is_of_one_holder_and_ends_with_its_process(files: FileSystem, root: str) -> None:
    lock = files.lock(f"{root}/.lock")
    assert lock is not None
    assert files.lock(f"{root}/.lock") is None
    lock.release()
    lock.release()
    code = (
        "import sys; from holdfast.storage.files import OsFiles; "
        "held = OsFiles().lock(sys.argv[1]); print(held is not None, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, f"{root}/.lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert files.lock(f"{root}/.lock") is None
        other.kill()
        other.wait()
    again = files.lock(f"{root}/.lock")
    assert again is not None
    again.release()
