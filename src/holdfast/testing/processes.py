"""Whether a process has ended, also one whose threads wait in the kernel for a disk.

Such a process is not told by waitpid, and signal 0 reaches it: only /proc says that its first thread is dead.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["children", "has_gone", "lives", "waiting_threads"]

_EXIT_CODE = 49
"""Of the fields of /proc/PID/stat behind the name."""


def _fields(path: str | Path) -> list[str]:
    """Of a process or a thread, from its state on. OSError when it has gone."""
    with open(path, errors="replace") as stat:
        return stat.read().rpartition(")")[2].split()


def lives(pid: int) -> bool:
    """Whether the process runs; one whose first thread has ended does not."""
    try:
        os.kill(pid, 0)
        return _fields(f"/proc/{pid}/stat")[0] not in "ZX"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")


def exit_code(pid: int) -> int | None:
    """Of a process that has died and cannot be waited for; negative for a signal. None: the system does not say."""
    try:
        return os.waitstatus_to_exitcode(int(_fields(f"/proc/{pid}/stat")[_EXIT_CODE]))
    except (OSError, IndexError, ValueError):
        return None


def waiting_threads(pid: int) -> list[int]:
    """Its threads that wait in the kernel for a disk (state D)."""
    return [thread for thread, state in _thread_states(pid).items() if state == "D"]


def _thread_states(pid: int) -> dict[int, str]:
    """Its threads that are there; the process, or a thread of it, may end while it is looked at."""
    states = {}
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                states[int(thread)] = _fields(f"/proc/{pid}/task/{thread}/stat")[0]
    return states


def children(pid: int) -> list[int]:
    """Processes that it has made; none where the system does not say."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def has_gone(pid: int, helpers: list[int]) -> bool:
    """Whether a killed process has ended with all its threads, and so have ``helpers``, which close what it had.
    Threads that wait for a disk, and helpers that wait for those, are not waited for."""
    if lives(pid):
        return False
    states = set(_thread_states(pid).values())
    if states - set("ZXD"):
        return False
    return "D" in states or not any(map(lives, helpers))
