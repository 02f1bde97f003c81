"""The disks that fail for real do what they say: each errno, on a file that is open and on a new one, and the repair.

A machine that cannot make one of them fails here, by name.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.testing import DiskFaultUnavailable, mounts, wait_for
from holdfast.testing.disks import FAULTS, Disk, ModeDisk, ReplacedDisk
from holdfast.testing.users import NOBODY

pytestmark = pytest.mark.system

OK = "ok"
WHAT_HAPPENS = {  # append to an open file, read it, make a new file
    "eio": ("EIO", "EIO", "EIO"),
    "read-only": ("EROFS", OK, "EROFS"),
    "full": ("ENOSPC", OK, OK),
    "slow": (OK, OK, OK),
    "mode-000": (OK, OK, "EACCES"),
    "replaced": (OK, OK, "ENOTDIR"),
    "immutable": ("EPERM", OK, "EPERM"),
    "unmounted": (OK, OK, OK),
}


@pytest.fixture
def scratch() -> Iterator[Path]:
    made = mounts.scratch()
    yield made
    mounts.remove(made)
    assert not made.exists() and not mounts.mount_points(made)


def outcome(action: Callable[[], object]) -> str:
    try:
        action()
    except OSError as e:
        return errno.errorcode[e.errno or 0]
    return OK


def as_nobody(action: Callable[[], object]) -> str:
    """What the action comes to in a process of user nobody."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(send, outcome(action).encode())
            os._exit(0)
        finally:  # whatever it raised: nothing of it may run on as a second pytest
            os._exit(1)
    os.close(send)
    with open(receive, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return said


@pytest.mark.parametrize("name", sorted(WHAT_HAPPENS))
def test_a_disk_fails_as_it_says_and_can_be_repaired(name: str, scratch: Path) -> None:
    disk = FAULTS[name](scratch / "disk", scratch, user=NOBODY, size=16 << 20)
    new, page = str(disk.path / "new"), bytes(8192)
    fd = os.open(disk.path / "old", os.O_CREAT | os.O_RDWR | os.O_APPEND)
    os.write(fd, page)
    os.fsync(fd)
    try:
        disk.fail()
        append, read, make = WHAT_HAPPENS[name]
        assert outcome(lambda: os.write(fd, page)) == append
        assert outcome(lambda: os.pread(fd, 100, 0)) == read
        assert as_nobody(lambda: os.close(os.open(new, os.O_CREAT | os.O_RDWR))) == make
        if name == "unmounted":
            assert os.listdir(disk.path) == ["new"], "it went to the directory underneath"
            os.unlink(new)
        if name == "eio":
            with pytest.raises(OSError, match="cannot be unmounted"):
                disk.heal()
    finally:
        os.close(fd)
    disk.heal()
    assert (disk.path / "old").read_bytes()[:8192] == page
    assert as_nobody(lambda: os.close(os.open(new, os.O_CREAT | os.O_RDWR))) == OK


def test_a_frozen_disk_keeps_a_writer_waiting(scratch: Path) -> None:
    disk = FAULTS["frozen"](scratch / "disk", scratch)
    fd = os.open(disk.path / "old", os.O_CREAT | os.O_RDWR)
    disk.fail()
    writer = threading.Thread(target=os.write, args=(fd, b"x"), daemon=True)
    writer.start()
    wait_for(lambda: any(is_waiting(task) for task in os.listdir("/proc/self/task")), "a task in state D")
    assert writer.is_alive()
    disk.heal()
    writer.join(10)
    assert not writer.is_alive()
    os.close(fd)


def is_waiting(task: str) -> bool:
    try:
        return Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2].split()[0] == "D"
    except FileNotFoundError:
        return False


def test_a_disk_that_was_replaced_is_empty_even_while_the_old_one_is_in_use(scratch: Path) -> None:
    disk = FAULTS["eio"](scratch / "disk", scratch)
    with open(disk.path / "old", "wb"):
        disk.fail()
        disk.replace()
        assert os.listdir(disk.path) == []
        (disk.path / "new").write_text("x")


def test_what_is_missing_is_said_by_name(scratch: Path) -> None:
    with pytest.raises(DiskFaultUnavailable, match=r"'mode 000 \(EACCES\)' needs a broker that does not run as root"):
        ModeDisk(scratch / "disk", scratch)

    elsewhere = Path("/dev/shm") / scratch.name  # where anybody may make a directory

    def unprivileged() -> None:
        refused = {kind for kind in FAULTS.values() if refusal(kind, elsewhere)}
        os._exit(0 if refused == set(FAULTS.values()) - {ReplacedDisk} else 1)

    try:
        assert as_nobody(unprivileged) == ""
    finally:
        mounts.remove(elsewhere)


def refusal(kind: type[Disk], path: Path) -> bool:
    try:
        kind(path, path)
    except DiskFaultUnavailable as e:
        assert str(e).startswith(f"the disk fault '{kind.name}' needs ")
        return True
    return False


def test_what_a_killed_run_left_behind_goes_with_the_next(scratch: Path) -> None:
    program = (
        "import os; from holdfast.testing import mounts; from holdfast.testing.disks import FAULTS\n"
        f"base = mounts.scratch({str(scratch)!r})\n"
        "for name in ('frozen', 'immutable', 'full'):\n"
        "    disk = FAULTS[name](base / name, base, user=65534)\n"
        "    (disk.path / 'data').write_text('x')\n"
        "    disk.fail()\n"
        "print(base, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run((sys.executable, "-c", program), capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert len(mounts.mount_points(left)) == 3
    mounts.remove(mounts.scratch(str(scratch)))
    assert not left.exists() and not mounts.mount_points(left)
