"""OsFiles where the system call does less than it was asked, or is not there."""

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage import file_locks
from holdfast.storage import files as module
from holdfast.storage.files import OsFiles


def test_short_writes_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = OsFiles().open(str(tmp_path / "f"), create=True)
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, memoryview(data)[:3], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, data, at: pwritev(fd, [memoryview(data[0])[:2]], at))
    assert handle.pwritev((b"0123456789",), 0) == 10
    assert handle.pwritev((b"abc", b"", b"defghij"), 10) == 10
    assert handle.pread(100, 0) == b"0123456789abcdefghij"


def test_a_large_write_is_what_a_small_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where blocks are reserved first, where that fails, and on a file system that is not ext4."""
    data, kinds, asked = os.urandom(module.RESERVED_FROM + 5), [], list[tuple[int, int]]()
    is_ext4, reserve = module._is_ext4, module._reserve

    def asks(fd: int, offset: int, size: int) -> bool:
        asked.append((offset, size))
        return reserve(fd, offset, size) and offset < 3 * size

    monkeypatch.setattr(module, "_is_ext4", lambda fd: kinds.append(is_ext4(fd)) or True)
    monkeypatch.setattr(module, "_reserve", asks)
    path = tmp_path / "f"
    handle = OsFiles().open(str(path), create=True)
    for at in range(7):
        assert handle.pwritev((data,), at * len(data)) == len(data)
        assert handle.size() == path.stat().st_size == (at + 1) * len(data)
        assert path.stat().st_blocks * 512 < handle.size() + 128 * 1024, "nothing is kept behind the end"
    assert path.read_bytes() == 7 * data
    assert asked == [(at * len(data), len(data)) for at in range(4)], "not again once it has failed"
    assert handle.pwritev((data[:100],), 0) == 100
    other = OsFiles().open(str(path))
    other.pwritev((data[: module.RESERVED_FROM - 1],), 0)
    assert len(asked) == 4 and len(kinds) == 1, "a small write is not worth it"
    monkeypatch.undo()
    memory = Path("/dev/shm") / f"holdfast-{os.getpid()}"
    try:
        handle = OsFiles().open(str(memory), create=True)
        assert not is_ext4(handle.fileno()) and handle.pwritev((data,), 0) == len(data)
        assert memory.read_bytes() == data
    finally:
        memory.unlink(missing_ok=True)


def test_a_short_write_of_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = OsFiles().open(str(tmp_path / "f"), create=True)
    pwrite = os.pwrite

    def full(fd: int, data: bytes, at: int) -> int:
        if at >= 4:
            raise OSError(errno.ENOSPC, "full")
        return pwrite(fd, memoryview(data)[:4], at)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="full"):
        handle.pwritev((b"0123456789",), 0)


def test_short_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = OsFiles().open(str(tmp_path / "f"), create=True)
    handle.pwritev((b"0123456789",), 0)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 4), at))
    assert handle.pread(9, 0) == b"012345678"
    assert handle.pread(100, 0) == b"0123456789"


def test_without_nowait_everything_is_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = OsFiles().open(str(tmp_path / "f"), create=True)
    handle.pwritev((b"0123456789",), 0)
    monkeypatch.setattr(module, "_RWF_NOWAIT", None)
    assert handle.preadv_nowait(5, 0) is None
    monkeypatch.undo()

    def refuse(code: int) -> None:
        def fail(*_: object) -> int:
            raise OSError(code, "no")

        monkeypatch.setattr(os, "preadv", fail)

    for code in (errno.EAGAIN, errno.EOPNOTSUPP):
        refuse(code)
        assert handle.preadv_nowait(5, 0) is None
    refuse(errno.EIO)
    with pytest.raises(OSError, match="no"):
        handle.preadv_nowait(5, 0)


def test_syncfs_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: called.append("sync"))
    monkeypatch.setattr(module, "_syncfs", lambda: None)
    OsFiles().sync_all(str(tmp_path))
    assert called == ["sync"]
    monkeypatch.setattr(module, "_syncfs", lambda: lambda fd: -1)
    with pytest.raises(OSError, match=r"."):
        OsFiles().sync_all(str(tmp_path))


def test_a_lock_that_the_disk_refuses_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "dead")

    monkeypatch.setattr(file_locks.fcntl, "flock", fail)
    with pytest.raises(OSError, match="dead"):
        OsFiles().lock(str(tmp_path / "l"))


def test_descriptors_go_back_with_the_last_reference(tmp_path: Path) -> None:
    handle = OsFiles().open(str(tmp_path / "f"), create=True)
    fd = handle.fileno()
    assert f"fd={fd}" in repr(handle)
    del handle
    with pytest.raises(OSError, match=r"."):
        os.fstat(fd)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    files, path = OsFiles(), str(tmp_path / "lock")
    code = (
        "import sys; from holdfast.storage.files import OsFiles; "
        "held = OsFiles().lock(sys.argv[1]); print(held is not None, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert files.lock(path) is None
        other.kill()
        other.wait()
    again = files.lock(path)
    assert again is not None
    again.release()


def test_a_system_without_a_mount_table_does_not_say_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> bytes:
        raise FileNotFoundError("no /proc")

    assert OsFiles().kind("/") != ""
    monkeypatch.setattr(OsFiles, "read_bytes", missing)
    assert OsFiles().kind("/") == ""


def test_the_lock_of_a_process_that_has_died_is_waited_for(tmp_path: Path) -> None:
    """Somebody has the dead process's descriptor: in life a thread of it that waits for the disk."""
    files, path = OsFiles(), str(tmp_path / "lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(files.lock(path, patience_s=0.01)), daemon=True)
    child = os.fork()
    if child == 0:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    waiting.start()
    for _ in range(2):  # a zombie, and then nobody
        waiting.join(0.2)
        assert waiting.is_alive()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
    os.close(descriptor)
    waiting.join(20)
    assert got[0] is not None
    assert files.lock(path, patience_s=0.01) is None, "this process lives"
    got[0].release()
