"""Children of ``holdfast up``: how each has ended, and how each ends when ``up`` does."""

import ctypes
import os
import signal
import sys
import time

THREADS_WAIT_S = 0.3
_EXIT_CODE = 49
"""Of the fields of /proc/PID/stat behind the name."""
_PR_SET_PDEATHSIG = 1


def status_of_first_thread(pid: int) -> int | None:
    """Of a process that has died, also if a thread of it waits in the kernel: no call but this tells. As waitpid has
    it. None while it runs, and where the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return int(fields[_EXIT_CODE]) if fields[0] in "ZX" else None
    except (OSError, IndexError):
        return None


def wait_for_all_threads(pid: int) -> tuple[int, int]:
    """As waitpid without waiting; of a process that has died its threads are given a moment to end."""
    limit_s = time.monotonic() + THREADS_WAIT_S
    while True:
        ended = status_of_first_thread(pid) is not None
        found = os.waitpid(pid, os.WNOHANG)
        if found[0] or not ended or time.monotonic() > limit_s:
            return found
        time.sleep(0.005)


def die_with_parent(parent: int) -> None:
    """A broker stops when ``up`` is gone, however that ended. Linux only; elsewhere it stays."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
