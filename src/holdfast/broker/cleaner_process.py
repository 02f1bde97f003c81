"""The process that reads a log and writes what stays of it, in place of its broker (log compaction).

    python -m holdfast.broker.cleaner_process

It is there while there is a log to clean. Owns the ``.cleaned`` files of that log and nothing else: no socket, no
lock, no file of the log itself. Decoding millions of records would hold the broker's interpreter. A disk that hangs
hangs this process, and the broker ends it. It is polite (nice), its memory is limited, and it ends with the thread that
started it.

Standard input: one JSON object: ``order`` (storage/cleaning_job.py), ``bytes_per_s`` and ``parent``.
Standard output: frames of a kind (one letter), a size (u32, big-endian) and so many bytes of JSON:

    m  a segment is written: CleanedSegment
    .  so many bytes were read and written until now
    e  that was all: CleaningStats
    f  it failed: CleaningFailure
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from holdfast.model.errors import HoldfastError
from holdfast.storage.cleaning_job import CleaningOrder, Pace, clean
from holdfast.storage.files import FileSystem, OsFiles

MODULE: Final = "holdfast.broker.cleaner_process"
FRAME: Final = Struct(">cI")
MADE, ALIVE, END, FAILED = b"m", b".", b"e", b"f"

_BASE_BYTES: Final = 512 << 20
"""Memory beside that for the keys: the interpreter, and what is read and written at a time."""
_NICE: Final = 10
_SIGN_OF_LIFE_S: Final = 1.0
_NAP_S: Final = 0.5
_PR_SET_PDEATHSIG: Final = 1

Send = Callable[[bytes, Any], None]


class CleaningFailure(NamedTuple):
    """Why a cleaning did not end well. ``errno`` and ``path``: of an OSError. ``is_corrupt``: the log's records are
    damaged."""

    message: str
    errno: int | None
    path: str | None
    is_corrupt: bool


def order_for(order: CleaningOrder, bytes_per_s: float, buffer_bytes: int, parent: int) -> bytes:
    """What the process is told."""
    told = {"order": order.encode().decode(), "bytes_per_s": bytes_per_s, "memory": buffer_bytes, "parent": parent}
    return json.dumps(told).encode()


class Pacer:
    """Holds reading and writing to so many bytes a second, and tells from time to time that it goes on.

    ``clock`` and ``sleep``: seconds."""

    def __init__(
        self,
        bytes_per_s: float,
        alive: Callable[[int], None],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._rate = bytes_per_s
        self._alive = alive
        self._clock = clock
        self._sleep = sleep
        self._began_s = self._told_s = clock()
        self._bytes = 0

    def __call__(self, size: int) -> None:
        """So many bytes more."""
        self._bytes += size
        due_s = self._began_s + self._bytes / self._rate if self._rate > 0 else 0.0
        while True:
            now_s = self._clock()
            if now_s - self._told_s >= _SIGN_OF_LIFE_S:
                self._told_s = now_s
                self._alive(self._bytes)
            if now_s >= due_s:
                break
            self._sleep(min(_NAP_S, due_s - now_s))


def run(files: FileSystem, order: CleaningOrder, send: Send, pace: Pace) -> bool:
    """Do what the order says; whether it went well."""
    try:
        stats = clean(files, order, lambda one: send(MADE, one), pace)
    except OSError as e:
        send(FAILED, CleaningFailure(str(e), e.errno, e.filename if isinstance(e.filename, str) else None, False))
    except (HoldfastError, ValueError) as e:
        send(FAILED, CleaningFailure(f"{type(e).__name__}: {e}", None, None, True))
    except MemoryError:
        send(FAILED, CleaningFailure("no memory for its keys: lower log.cleaner.dedupe.buffer.size", None, None, False))
    else:
        send(END, stats)
        return True
    return False


def _be_modest(parent: int, memory: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
    os.nice(_NICE)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = _BASE_BYTES + 2 * memory
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def main() -> int:
    """See the module's docstring."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the broker's to end us
    out = os.dup(1)

    def send(kind: bytes, what: Any) -> None:
        data = json.dumps(what).encode()
        view = memoryview(FRAME.pack(kind, len(data)) + data)
        while view:
            view = view[os.write(out, view) :]

    told = json.loads(sys.stdin.buffer.read())
    _be_modest(told["parent"], told["memory"])
    pacer = Pacer(told["bytes_per_s"], lambda size: send(ALIVE, size), time.monotonic, time.sleep)
    try:
        return 0 if run(OsFiles(), CleaningOrder.decode(told["order"].encode()), send, pacer) else 1
    except BrokenPipeError:  # the broker wants it no more
        return 1


if __name__ == "__main__":
    sys.exit(main())
