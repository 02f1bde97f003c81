"""The closer: a process that closes what a broker held when the broker is killed.

A thread that waits in the kernel for a disk outlives ``kill -9`` of its process, and with it lives the process's table
of descriptors: the port goes on accepting, no connection ends, every lock stays taken, until the disk answers. So a
broker begins by making a small process that shares this table (clone with CLONE_FILES) and sleeps until the broker's
first thread dies, which is at once. Then it closes everything in a decided order (closer_process.py).

Owns the closer's start and end on the broker's side, and the notes that the closer reads when it is needed: which
descriptors are locks of log directories, and which threads work on which directory. The notes are in a file without a
name that both have open. A thread whose directory is not known yet keeps all of them: a lock is kept too long rather
than given to a new process while a write of the old one may still come.

Linux only. Elsewhere, and where the process cannot be made, the kernel closes everything when the last thread has gone.
docs/decisions/0008 has what was measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterable
from typing import Protocol

from holdfast.broker import closer_process
from holdfast.broker.closer_process import SLOT_BYTES

log = logging.getLogger(__name__)

_CLONE_FILES = 0x400
_CLONE_NUMBER = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
"""Of the system call clone. Others have its arguments in another order, or have not been tried."""
SPARE_DESCRIPTORS = 4
"""Kept for the closer: the table may be full when the broker dies."""
NO_DIRECTORY = ("metadata", "claim", "metrics")
"""How the names of threads begin that touch no log directory. The metadata log has rules of its own for late writes."""


class NamedThread(Protocol):
    """A thread with a name (broker/disk_io.py)."""

    name: str

    @property
    def thread_id(self) -> int | None:
        """Of the system; None once it has ended."""


class Closer:
    """See the module's docstring. Its notes may be written from any thread."""

    def __init__(self, pid: int, notes: int, spare: tuple[int, ...]) -> None:
        self.pid = pid
        self._notes = notes
        self._spare = spare
        self._writing = threading.Lock()
        self._writes = 0
        self._locks: dict[int, str] = {}
        self._workers: list[NamedThread] = []
        self._of_directory: dict[str, str] = {}
        self._watch: tuple[asyncio.AbstractEventLoop, int] | None = None

    @classmethod
    def start(cls) -> Closer | None:
        """Make the process; None where that cannot be done. Only while this process has a single thread."""
        number = _CLONE_NUMBER.get(platform.machine()) if sys.platform == "linux" else None
        if number is None:
            return None
        if len(os.listdir("/proc/self/task")) != 1:
            log.warning("no closer: this process has several threads already")
            return None
        notes = os.memfd_create("holdfast-closer")
        spare = tuple(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) for _ in range(SPARE_DESCRIPTORS))
        tasks = os.open("/proc/self/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        gc.freeze()  # pages that the collector does not touch stay shared by the two processes
        parent = os.getpid()
        python = ctypes.pythonapi
        libc = ctypes.PyDLL(None, use_errno=True)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        python.PyOS_BeforeFork()
        pid = libc.syscall(number, _CLONE_FILES | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            python.PyOS_AfterFork_Child()
            closer_process.run(parent, tasks, notes, spare)
        python.PyOS_AfterFork_Parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if pid < 0:
            log.warning("no closer: clone: %s", os.strerror(ctypes.get_errno()))
            for descriptor in (notes, tasks, *spare):
                os.close(descriptor)
            return None
        return cls(pid, notes, (*spare, tasks))

    # -- notes -------------------------------------------------------------------------------------------------

    def lock_taken(self, descriptor: int, path: str) -> None:
        """A file lock of this process."""
        with self._writing:
            self._locks[descriptor] = path
            self._write()

    def lock_given_back(self, descriptor: int) -> None:
        """Before its descriptor is closed."""
        with self._writing:
            self._locks.pop(descriptor, None)
            self._write()

    def thread_made(self, worker: NamedThread) -> None:
        """A thread that may touch every log directory, until ``works_on`` says more. Threads that are not told of touch
        none."""
        with self._writing:
            self._workers.append(worker)
            self._write()

    def works_on(self, path: str, workers: Iterable[object]) -> None:
        """These threads touch this log directory and no other."""
        with self._writing:
            for worker in self._workers:
                if any(worker is one for one in workers):
                    self._of_directory[str(worker.thread_id)] = path
            self._write()

    def _write(self) -> None:
        """One of two slots, and then which: a kill in between leaves the notes before."""
        self._workers = [worker for worker in self._workers if worker.thread_id is not None]
        alive = {str(worker.thread_id): worker.name for worker in self._workers}
        self._of_directory = {thread: path for thread, path in self._of_directory.items() if thread in alive}
        undecided = [
            t for t, name in alive.items() if t not in self._of_directory and not name.startswith(NO_DIRECTORY)
        ]
        text = json.dumps({"locks": self._locks, "directory": self._of_directory, "undecided": undecided}).encode()
        if len(text) >= SLOT_BYTES - 4:
            log.error("the closer's notes have %d bytes, expected less than %d: not told", len(text), SLOT_BYTES)
            text = b"{}"  # then every file is left open until the last thread has gone
        self._writes += 1
        slot = 1 + self._writes % 2
        os.pwrite(self._notes, len(text).to_bytes(4, "big") + text, slot * SLOT_BYTES)
        os.pwrite(self._notes, bytes((slot,)), 0)

    # -- its life ----------------------------------------------------------------------------------------------

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say in the log, once, when it has ended before this process."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError as e:  # a kernel before 5.3
            log.info("the closer, process %d, is not watched: %s", self.pid, e)
            return
        self._watch = (loop, descriptor)
        loop.add_reader(descriptor, self._ended)

    def _ended(self) -> None:
        self._stop_watching()
        _, status = os.waitpid(self.pid, os.WNOHANG)
        log.warning(
            "the closer, process %d, has ended (%s): if this broker is killed while a thread waits for a disk, its "
            "port and its locks stay taken until the disk answers",
            self.pid, _how(status),
        )  # fmt: skip

    def _stop_watching(self) -> None:
        if self._watch is not None:
            loop, descriptor = self._watch
            self._watch = None
            if not loop.is_closed():
                loop.remove_reader(descriptor)
            os.close(descriptor)

    def end(self) -> None:
        """This process ends in good order: there is nothing to close for it, unless a thread waits for a disk."""
        self._stop_watching()
        if any(closer_process.state_of(thread) == "D" for thread in closer_process.threads("/proc/self/task")):
            return
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"exit code {code}"
