"""File systems that a test makes, breaks and takes away: ext4 in an image file, and tmpfs.

Owns the commands and ioctls (Linux, root) and the names by which what a killed run left behind is found again: every
scratch directory is called ``holdfast-disks-PID-*``. Knows nothing of brokers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
EXT4_SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
ALSO = "also"
"""A file in a scratch directory: directories elsewhere, one a line, that are unmounted with it."""
_SCRATCH = "holdfast-disks-"
_OWNER = re.compile(rf"{_SCRATCH}(\d+)-")


class DiskFaultUnavailable(PermissionError):
    """This machine or user cannot make that fault; the message names the fault and what is missing. A test that
    needs it fails by this."""


def require(fault: str, *, commands: tuple[str, ...] = (), root: bool = True) -> None:
    """DiskFaultUnavailable unless this process is root and the commands are installed."""
    if root and os.geteuid() != 0:
        raise DiskFaultUnavailable(f"the disk fault '{fault}' needs root (mount, ioctl): this is user {os.geteuid()}")
    for command in commands:
        if shutil.which(command) is None:
            raise DiskFaultUnavailable(f"the disk fault '{fault}' needs the command {command}: it is not in PATH")


def run(fault: str, *command: str | os.PathLike[str]) -> None:
    """The command; DiskFaultUnavailable with what it said if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise DiskFaultUnavailable(f"the disk fault '{fault}': {words}: {done.stderr.strip() or done.returncode}")


def make_ext4(fault: str, image: Path, size: int) -> None:
    """A sparse image file of ``size`` bytes with an empty ext4 in it."""
    with open(image, "wb") as file:
        file.truncate(size)
    # Tables are zeroed now: the kernel's own thread would do it later, and wait for a frozen file system.
    options = ("-qF", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard")
    run(fault, "mkfs.ext4", *options, image)


def mount_ext4(fault: str, image: Path, path: Path) -> None:
    """Errors make it read-only, as distributions have it for data disks."""
    run(fault, "mount", "-o", "loop,errors=remount-ro", image, path)
    shutil.rmtree(path / "lost+found", ignore_errors=True)


def ioctl(path: Path, request: int, argument: int = 0) -> None:
    """On the file system that is mounted at ``path``."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, request, argument.to_bytes(4, "little"))
    finally:
        os.close(fd)


def lose_cache(path: Path) -> None:
    """The ext4 at ``path`` as when its power is cut: what was not written to the device never is, frozen or not."""
    with contextlib.suppress(OSError):  # it is not frozen
        ioctl(path, FITHAW)
    with contextlib.suppress(OSError):  # it is shut down already
        ioctl(path, EXT4_SHUTDOWN, NO_LOG_FLUSH)


def device_of(path: Path) -> tuple[int, int]:
    """Major and minor number of the device below ``path``."""
    device = os.stat(path).st_dev
    return os.major(device), os.minor(device)


def is_mounted(path: Path) -> bool:
    """Whether something is mounted exactly there."""
    return str(path) in mount_points(path)


def mount_points(below: Path) -> list[str]:
    """Where something is mounted at or below the path, the newest first."""
    root = str(below)
    found = []
    with open("/proc/self/mounts") as mounts:
        for line in mounts:
            point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), line.split(" ")[1])
            if point == root or point.startswith(root + "/"):
                found.append(point)
    return found[::-1]


def unmount_below(path: Path) -> None:
    """Everything that is mounted at or below the path, frozen or in use or not. Never raises for a mount that goes
    by itself meanwhile."""
    for point in mount_points(path):
        with contextlib.suppress(OSError):  # it is not frozen
            ioctl(Path(point), FITHAW)
        if subprocess.run(("umount", point), capture_output=True, check=False).returncode != 0:
            subprocess.run(("umount", "-l", point), capture_output=True, check=False)


def scratch(parent: str | None = None) -> Path:
    """A new directory that other users may enter, for one run of this process; leftovers of dead ones go first."""
    base = Path(parent or tempfile.gettempdir())
    for left in _leftovers(base):
        remove(left)
    made = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH}{os.getpid()}-", dir=base)).resolve()
    made.chmod(0o755)
    return made


def remove(directory: Path) -> None:
    """The directory with everything that is mounted or immutable in it."""
    with contextlib.suppress(OSError):
        for line in (directory / ALSO).read_text().splitlines():
            unmount_below(Path(line))
    unmount_below(directory)
    if shutil.which("chattr") and os.geteuid() == 0:
        subprocess.run(("chattr", "-R", "-f", "-i", directory), capture_output=True, check=False)
    shutil.rmtree(directory, ignore_errors=True)


def _leftovers(base: Path) -> Iterator[Path]:
    for path in base.glob(f"{_SCRATCH}*"):
        owner = _OWNER.match(path.name)
        if owner is not None and not os.path.exists(f"/proc/{owner[1]}"):
            yield path.resolve()
