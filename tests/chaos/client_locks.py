"""Whether librdkafka waits for a lock of its own for ever, which no broker can do anything about.

Since 2.10 it has two threads that take a handle's lock and a partition's in opposite order: one that gives up a broker
which the metadata do not list any more, and one that was answered with an error to OffsetForLeaderEpoch (its issue
5476, open with 2.16). About one of fifty short runs met it, in ``Consumer.close()`` or while it read; then it gets
nothing any more. A thread that has work to wait for waits with a time limit there; one that waits for a lock has none.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Container
from typing import Final, TypeVar

MAIN: Final = "rdk:main"
"""librdkafka's name of the thread that does what is not a connection's; one for each client."""
_FUTEX: Final = {"202", "98"}
"""The number of the system call on x86-64 and on arm64."""
_T = TypeVar("_T")
_making: Final = threading.Lock()


def waiting_for_ever(
    name: str = MAIN, *, among: Container[int] | None = None, looks: int = 5, apart_s: float = 0.5
) -> list[int]:
    """The threads of this process with that name that wait for the same lock, without a time limit, at every look;
    none where the kernel does not show what a thread waits for. ``among``: only these are looked at. Most calls end
    with the first look, as threads that have nothing to do wait with a limit."""
    found = _locks(name, among)
    for _ in range(looks - 1):
        if not found:
            break
        time.sleep(apart_s)  # nothing is waited for: who waits for ever does so at every look
        found = dict(found.items() & _locks(name, among).items())
    return sorted(found)


def started_by(make: Callable[[], _T], name: str = MAIN) -> tuple[_T, frozenset[int]]:
    """What ``make`` makes, one at a time, and the threads with that name that came meanwhile: its own."""
    with _making:
        before = _named(name)
        made = make()
        return made, frozenset(_named(name) - before)


def _named(name: str) -> set[int]:
    found = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm") as comm:
                if comm.read().rstrip("\n") == name:
                    found.add(int(thread))
        except OSError:  # it ended meanwhile
            continue
    return found


def _locks(name: str, among: Container[int] | None) -> dict[int, str]:
    """Thread -> the address that it waits at without a time limit."""
    found = {}
    for thread in _named(name):
        if among is not None and thread not in among:
            continue
        try:
            with open(f"/proc/self/task/{thread}/syscall") as call:
                number, *arguments = call.read().split()
        except (OSError, ValueError):  # it ended meanwhile, or the kernel does not tell
            continue
        if number in _FUTEX and int(arguments[3], 16) == 0:
            found[thread] = arguments[0]
    return found
