"""Linux namespaces that live as long as this process wants: of network alone, or of all that makes a host.

Owns the process that holds each set: it reads a pipe whose other end is ours, and its end is the end of everything in
its namespaces. So nothing is left of a test run that was killed: the pipe ends with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from holdfast.testing.mounts import mount_points
from holdfast.testing.processes import children
from holdfast.testing.waiting import has_news, wait_for

T = TypeVar("T")

_CLONE_FS: Final = 0x200
_CLONE_NEWNS: Final = 0x20000
_MS_SLAVE_ALL: Final = 0x80000 | 0x4000
_MNT_DETACH: Final = 2
_READY: Final = b"ready\n"
_READY_S: Final = 20.0
_HOLD: Final = "echo ready; trap '' CHLD; exec cat"
"""Children that are left to it are reaped by the kernel, as it ignores their signal."""
NETWORK: Final = ("net",)
HOST: Final = ("net", "uts", "pid", "mnt")
"""In the order in which they are entered: paths lead elsewhere behind the last."""
_OPTIONS: Final = {
    NETWORK: ("--net",),
    HOST: ("--net", "--uts", "--mount", "--propagation", "slave", "--pid"),
}


class HostsUnavailable(PermissionError):
    """This machine or user cannot make namespaces; the message says what is missing. A test that needs them fails by
    this."""


def require(commands: Sequence[str]) -> None:
    """HostsUnavailable unless this process is root and the commands are installed."""
    if os.geteuid() != 0:
        raise HostsUnavailable(
            f"hosts are network, mount and process namespaces, which only root can make: this is user {os.geteuid()}"
        )
    for command in commands:
        if shutil.which(command) is None:
            raise HostsUnavailable(f"hosts need the command {command}, and it is not in PATH: install iproute2")


def in_a_thread(function: Callable[[], T]) -> T:
    """Its result or its error. What a thread does to its namespaces is its own."""
    result: list[T] = []
    trouble: list[BaseException] = []

    def run() -> None:
        try:
            result.append(function())
        except BaseException as e:
            trouble.append(e)

    thread = threading.Thread(target=run, name="in other namespaces", daemon=True)
    thread.start()
    thread.join()
    if trouble:
        raise trouble[0]
    return result[0]


def _checked(answer: int, what: str) -> None:
    if answer != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


class MountBase:
    """The mounts of this machine without those of other tests, for hosts to copy.

    A mount namespace is made as a copy, and whatever is mounted in it cannot be repaired: a dead file system stays as
    long as one namespace has it. So the copy is made once, and what is of other tests goes from it at once.
    ``own`` is where our mounts are: those come and go in the copies too, if their parent is shared.
    """

    def __init__(self, own: Path) -> None:
        others = [point for point in mount_points(Path(tempfile.gettempdir())) if not Path(point).is_relative_to(own)]

        def make() -> int:
            libc = ctypes.CDLL(None, use_errno=True)
            _checked(libc.unshare(_CLONE_FS | _CLONE_NEWNS), "unshare")
            _checked(libc.mount(None, b"/", None, _MS_SLAVE_ALL, None), "mount --make-rslave /")
            for point in others:
                libc.umount2(os.fsencode(point), _MNT_DETACH)
            return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

        self._fd = in_a_thread(make)

    def call(self, function: Callable[[], T]) -> T:
        """``function`` by a thread that has these mounts."""

        def run() -> T:
            libc = ctypes.CDLL(None, use_errno=True)
            _checked(libc.unshare(_CLONE_FS), "unshare")
            _checked(libc.setns(self._fd, _CLONE_NEWNS), "setns")
            return function()

        return in_a_thread(run)

    def close(self) -> None:
        os.close(self._fd)


class Namespaces:
    """One set. ``script``: shell commands that are run in it first; HostsUnavailable has what they said."""

    def __init__(self, kinds: tuple[str, ...], script: str = "") -> None:
        self._kinds = kinds
        command = ("unshare", *_OPTIONS[kinds], "--fork", "--kill-child=KILL", "sh", "-ec", f"{script}\n{_HOLD}")
        self._outer = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
        )
        assert self._outer.stdout is not None and self._outer.stderr is not None
        if not has_news(self._outer.stdout, _READY_S) or self._outer.stdout.readline() != _READY:
            self._outer.kill()
            said = self._outer.stderr.read().decode(errors="replace").strip()
            raise HostsUnavailable(f"{' '.join(command[:-2])}: {said or self._outer.wait()}")
        self.process_id = children(self._outer.pid)[0]
        """Of the one that holds them, as seen from outside."""
        self._spaces = {kind: os.readlink(f"/proc/{self.process_id}/ns/{kind}") for kind in kinds}

    def call(self, function: Callable[[], T], kinds: tuple[str, ...] = NETWORK) -> T:
        """The result of ``function``, run by a thread of this process that has entered the namespaces. A socket that
        it makes stays in them wherever it is used; so does a process with all of its own."""

        def run() -> T:
            self._enter(kinds)
            return function()

        return in_a_thread(run)

    def _enter(self, kinds: tuple[str, ...]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if "mnt" in kinds:
            _checked(libc.unshare(_CLONE_FS), "unshare")
        with contextlib.ExitStack() as stack:
            files = [os.open(f"/proc/{self.process_id}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
            for fd in files:
                stack.callback(os.close, fd)
            for kind, fd in zip(kinds, files, strict=True):
                _checked(libc.setns(fd, 0), f"setns to the {kind} namespace of process {self.process_id}")

    def command(self, *command: str, text: str | None = None, check: bool = True) -> str:
        """What a command of this machine says when it is run in the network namespace; OSError when it fails.
        ``text`` is its input."""
        done = self.call(lambda: subprocess.run(command, input=text, capture_output=True, text=True, check=False))
        if check and done.returncode != 0:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}\n{text or ''}")
        return done.stdout

    def processes(self) -> Iterator[int]:
        """Everything that runs in its process namespace but the holder, as seen from outside."""
        mine = self._spaces["pid"]
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != self.process_id:
                with contextlib.suppress(OSError):
                    if os.readlink(entry / "ns" / "pid") == mine:
                        yield int(entry.name)

    def kill(self) -> None:
        """kill -9 of everything in it, where it has processes of its own. Returns at once: a thread that waits for a
        disk ends when the disk answers."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process_id, 9)

    def wait(self, *, timeout_s: float = 10.0) -> None:
        """Until it has ended. Who started processes in it has reaped them before. TimeoutError."""
        wait_for(
            lambda: self._outer.poll() is not None, f"the end of namespaces of {self.process_id}", timeout_s=timeout_s
        )
        for pipe in (self._outer.stdin, self._outer.stdout, self._outer.stderr):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
