"""Whether librdkafka waits for a lock of its own for ever, which no broker can do anything about.

Since 2.10 it has two threads that take a handle's lock and a partition's in opposite order: one that gives up a broker
which the metadata do not list any more, and one that was answered with an error to OffsetForLeaderEpoch (its issue
5476, open with 2.16). About one of fifty short runs met it, in ``Consumer.close()``. A thread that has work to wait for
waits with a time limit there; one that waits for a lock has none.
"""

from __future__ import annotations

import os
import time
from typing import Final

MAIN: Final = "rdk:main"
"""librdkafka's name of the thread that does what is not a connection's; one for each client."""
_FUTEX: Final = {"202", "98"}
"""The number of the system call on x86-64 and on arm64."""


def waiting_for_ever(name: str = MAIN, *, looks: int = 5, apart_s: float = 0.5) -> list[int]:
    """The threads of this process with that name that wait for the same lock, without a time limit, at every look;
    none where the kernel does not show what a thread waits for."""
    found = _locks(name)
    for _ in range(looks - 1):
        time.sleep(apart_s)  # nothing is waited for: who waits for ever does so at every look
        found = dict(found.items() & _locks(name).items())
    return sorted(found)


def _locks(name: str) -> dict[int, str]:
    """Thread -> the address that it waits at without a time limit."""
    found = {}
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm") as comm:
                is_one = comm.read().rstrip("\n") == name
            with open(f"/proc/self/task/{thread}/syscall") as call:
                number, *arguments = call.read().split()
        except (OSError, ValueError):  # it ended meanwhile, or the kernel does not tell
            continue
        if is_one and number in _FUTEX and int(arguments[3], 16) == 0:
            found[int(thread)] = arguments[0]
    return found
