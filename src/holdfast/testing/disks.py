"""Log directories that fail for real, while a broker uses them.

A ``Disk`` is one directory with one way to fail. It is made before the broker starts, ``fail()`` breaks it at once,
``heal()`` repairs it as a person would, ``close()`` takes it away whatever state it is in. ``FAULTS`` has them all by
name. Nothing here knows a broker; ``Cluster(disks={(1, 2): EioDisk})`` puts them where they belong.

    kind           what the broker sees after fail()
    EioDisk        EIO from every call on every file, open or not: the device is gone
    ReadOnlyDisk   EROFS from every write; reads go on
    FullDisk       ENOSPC; reads go on, and so do writes into the last page of a file
    FrozenDisk     writes and fsyncs do not return
    SlowDisk       as many bytes a second as one says, and no error
    ModeDisk       EACCES when something is opened, made, renamed or listed; open files work (no effect on root)
    ReplacedDisk   the directory is a file now: ENOTDIR; open files work
    ImmutableDisk  EPERM from appends, creations and renames; reads go on
    UnmountedDisk  open files work; whatever is new goes to the empty directory underneath

What a kind needs and does not find is a DiskFaultUnavailable that names it.
"""

from __future__ import annotations

import errno
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from holdfast.testing import mounts
from holdfast.testing.mounts import DiskFaultUnavailable, require, run

__all__ = ["FAULTS", "Disk", "DiskFaultUnavailable"]

MIB = 1 << 20


class Disk(ABC):
    """One log directory. ``stops_writes``: after ``fail`` nothing more is acknowledged from it; otherwise open files
    go on, and only a probe finds out. ``is_dead``: a broker is expected to give it up."""

    name: ClassVar[str]
    stops_writes: ClassVar[bool] = True
    is_dead: ClassVar[bool] = True
    needs_user: ClassVar[bool] = False
    """No effect on a broker that runs as root."""

    def __init__(self, path: Path, images: Path, *, user: int | None = None, size: int = 64 * MIB) -> None:
        self.path = path
        self.size = size
        self._user = user
        self._image = images / f"{'-'.join(path.parts[-2:])}.img"
        self.failed = False
        if self.needs_user and user in (None, 0):
            raise DiskFaultUnavailable(f"the disk fault '{self.name}' needs a broker that does not run as root")
        path.mkdir(parents=True, exist_ok=True)
        self._make()
        self._give()

    def fail(self) -> None:
        """Break it, at once, whoever uses it."""
        self.failed = True
        self._fail()

    def heal(self) -> None:
        """Repair it with what is left on it. OSError (EBUSY) if a broker keeps it from being repaired."""
        self._heal()
        self.failed = False

    def close(self) -> None:
        """Repair it as far as that is needed to remove it, and unmount. Does not raise."""
        mounts.unmount_below(self.path)

    def replace(self) -> None:
        """A new, empty disk in its place. Nobody may use the old one any more."""
        raise NotImplementedError(f"{self.name}: there is no other disk to put there")

    def lose_power(self) -> None:
        """What was not synced is gone, where there is a device. Whoever uses it is about to end."""
        return

    def regain_power(self) -> None:
        """It has what was synced. Nobody may use it since it lost power; one that had failed is as it was."""
        return

    def _give(self) -> None:
        if self._user is not None:
            os.chown(self.path, self._user, self._user)

    @abstractmethod
    def _make(self) -> None: ...

    @abstractmethod
    def _fail(self) -> None: ...

    @abstractmethod
    def _heal(self) -> None: ...


class _Ext4(Disk):
    """An ext4 of its own, in an image file."""

    def _make(self) -> None:
        require(self.name, commands=("mkfs.ext4", "mount", "umount"))
        mounts.make_ext4(self.name, self._image, self.size)
        mounts.mount_ext4(self.name, self._image, self.path)

    def _mount_again(self, *, check: bool = False) -> None:
        """Not while a file of it is open: mounting would only show the same dead file system once more."""
        if mounts.is_mounted(self.path):
            done = subprocess.run(("umount", self.path), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise OSError(errno.EBUSY, f"cannot be unmounted: {done.stderr.strip()}", str(self.path))
        if check:
            subprocess.run(("e2fsck", "-fy", self._image), capture_output=True, check=False)
        mounts.mount_ext4(self.name, self._image, self.path)

    def lose_power(self) -> None:
        if mounts.is_mounted(self.path):
            mounts.lose_cache(self.path)

    def regain_power(self) -> None:
        if not self.failed:
            self._mount_again()

    def replace(self) -> None:
        mounts.unmount_below(self.path)
        self._image.unlink()
        self._image = self._image.with_name(f"{self._image.name}+")
        self._make()
        self._give()
        self.failed = False

    def close(self) -> None:
        super().close()
        self._image.unlink(missing_ok=True)


class EioDisk(_Ext4):
    """The file system is shut down by its own ioctl: no call on any file of it works again."""

    name = "dead (EIO)"

    def _fail(self) -> None:
        mounts.ioctl(self.path, mounts.EXT4_SHUTDOWN, mounts.NO_LOG_FLUSH)

    def _heal(self) -> None:
        self._mount_again()


class ReadOnlyDisk(_Ext4):
    """ext4 met an error and has aborted its journal: what was open for writing is so no more."""

    name = "read-only (EROFS)"

    def _fail(self) -> None:
        trigger = Path(f"/sys/fs/ext4/loop{mounts.device_of(self.path)[1]}/trigger_fs_error")
        try:
            trigger.write_text("x")
        except OSError as e:
            raise DiskFaultUnavailable(f"the disk fault '{self.name}' needs {trigger}: {e.strerror}") from e

    def _heal(self) -> None:
        self._mount_again(check=True)


class FrozenDisk(_Ext4):
    """fsfreeze: writes wait, in the kernel, until it is thawed."""

    name = "frozen (hang)"
    is_dead = False

    def _fail(self) -> None:
        mounts.ioctl(self.path, mounts.FIFREEZE)

    def _heal(self) -> None:
        mounts.ioctl(self.path, mounts.FITHAW)


class SlowDisk(_Ext4):
    """What reaches the device is throttled to ``bytes_per_s`` (cgroup v1, blkio). The page cache is as fast as ever:
    it shows in fsync."""

    name = "slow (throttled)"
    stops_writes = False
    is_dead = False
    bytes_per_s = 256 * 1024

    def _make(self) -> None:
        super()._make()
        self._knob = self._find()

    def _find(self) -> Path:
        own = ""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "blkio" in controllers.split(","):
                own = path.strip("/")
        knob = Path("/sys/fs/cgroup/blkio", own, "blkio.throttle.write_bps_device")
        if not os.access(knob, os.W_OK):
            raise DiskFaultUnavailable(f"the disk fault '{self.name}' needs {knob} (cgroup v1, blkio)")
        return knob

    def _set(self, bytes_per_s: int) -> None:
        major, minor = mounts.device_of(self.path)
        self._knob.write_text(f"{major}:{minor} {bytes_per_s}")

    def _fail(self) -> None:
        self._set(self.bytes_per_s)

    def _heal(self) -> None:
        self._set(0)

    def close(self) -> None:
        if mounts.is_mounted(self.path):
            self._set(0)
        super().close()


class ImmutableDisk(_Ext4):
    """chattr +i on everything that is there."""

    name = "immutable (EPERM)"

    def _make(self) -> None:
        require(self.name, commands=("chattr",))
        super()._make()

    def _fail(self) -> None:
        run(self.name, "chattr", "-R", "-f", "+i", self.path)

    def _heal(self) -> None:
        run(self.name, "chattr", "-R", "-f", "-i", self.path)


class UnmountedDisk(_Ext4):
    """umount -l: files that are open stay, everything else is the directory underneath."""

    name = "unmounted (lazily)"
    stops_writes = False

    def _make(self) -> None:
        require(self.name)
        self._give()  # of the directory underneath: a broker that does not look could write there
        super()._make()

    def _fail(self) -> None:
        run(self.name, "umount", "-l", self.path)

    def _heal(self) -> None:
        mounts.mount_ext4(self.name, self._image, self.path)


class FullDisk(Disk):
    """A tmpfs that somebody else's data fills. The data has no name: it goes when this process does."""

    name = "full (ENOSPC)"
    is_dead = False

    def _make(self) -> None:
        require(self.name, commands=("mount", "umount"))
        self._filler: int | None = None
        run(self.name, "mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", self.path)

    def _fail(self) -> None:
        if self._filler is None:
            self._filler = os.open(self.path, os.O_TMPFILE | os.O_RDWR)
        fill(self._filler)

    def _heal(self) -> None:
        self._release()

    def _release(self) -> None:
        if self._filler is not None:
            os.close(self._filler)
            self._filler = None

    def close(self) -> None:
        self._release()
        super().close()


def fill(fd: int) -> None:
    """Write to the file until the file system has no page left."""
    os.lseek(fd, 0, os.SEEK_END)
    for size in (MIB, 64 * 1024, 4096):
        try:
            while True:
                os.write(fd, b"\0" * size)
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise


class ModeDisk(Disk):
    """chmod 000."""

    name = "mode 000 (EACCES)"
    stops_writes = False
    needs_user = True

    def _make(self) -> None:
        require(self.name)

    def _fail(self) -> None:
        self._mode = self.path.stat().st_mode & 0o7777
        self.path.chmod(0)

    def _heal(self) -> None:
        self.path.chmod(self._mode)


class ReplacedDisk(Disk):
    """The directory is moved away and a file has its name."""

    name = "a file in its place (ENOTDIR)"
    stops_writes = False

    def _make(self) -> None:
        self._gone = self.path.with_name(f"{self.path.name}.gone")

    def _fail(self) -> None:
        self.path.rename(self._gone)
        self.path.touch()

    def _heal(self) -> None:
        self.path.unlink()
        self._gone.rename(self.path)


FAULTS: Final[Mapping[str, type[Disk]]] = {
    "eio": EioDisk,
    "read-only": ReadOnlyDisk,
    "full": FullDisk,
    "frozen": FrozenDisk,
    "slow": SlowDisk,
    "mode-000": ModeDisk,
    "replaced": ReplacedDisk,
    "immutable": ImmutableDisk,
    "unmounted": UnmountedDisk,
}
"""Every kind by a short name."""
