"""The process that reads a large partition of a coordinator's topic in place of its broker.

    python -m holdfast.broker.coordinator_reader

Owns nothing: it holds no socket, no lock and no file that is written to. What it does for millions of records would
hold the broker's interpreter; what is left of them, the newest record of each key, comes back in pieces. A disk that
hangs hangs this process, and the broker ends it. Its memory is limited, and it ends with the thread that started it. It
is as urgent as its broker: groups and transactions wait for it.

Standard input: one JSON object, ``kind`` (which table of newest records), ``files`` ([path, published bytes] of each
segment), ``start_offset`` and ``parent``.
Standard output: frames of a kind (one letter), a size (u32, big-endian) and so many bytes:

    p  some pairs and some of open transactions: two dicts, by ``marshal`` (both ends are the same interpreter)
    .  nothing yet, but it goes on
    e  that was all
    f  it failed: why, in UTF-8
"""

from __future__ import annotations

import ctypes
import json
import marshal
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from struct import Struct
from typing import Final

from holdfast.coordinators.newest import Newest
from holdfast.coordinators.tenant import Reader
from holdfast.groups.newest import NewestOfGroups
from holdfast.model.errors import HoldfastError
from holdfast.storage.files import FileSystem, OsFiles
from holdfast.storage.published import PublishedFile, PublishedReader

MODULE: Final = "holdfast.broker.coordinator_reader"
FRAME: Final = Struct(">cI")
PAIRS, ALIVE, END, FAILED = b"p", b".", b"e", b"f"

PIECE_BYTES: Final = 1 << 20
_SIGN_OF_LIFE: Final = 32
"""Pieces between two frames."""
PAIRS_PER_FRAME: Final = 1000
MEMORY_BYTES: Final = 2 << 30
_PR_SET_PDEATHSIG: Final = 1

KINDS: Final[dict[Reader, type[Newest]]] = {"groups": NewestOfGroups, "plain": Newest}

Send = Callable[[bytes, bytes], None]


def order_for(kind: Reader, files: Sequence[PublishedFile], start_offset: int, parent: int) -> bytes:
    """What the process is told."""
    return json.dumps({"kind": kind, "files": files, "start_offset": start_offset, "parent": parent}).encode()


def read_newest(files: FileSystem, order: bytes, send: Send) -> None:
    """Do what the order says."""
    told = json.loads(order)
    reader = PublishedReader(files, [PublishedFile(*each) for each in told["files"]], told["start_offset"])
    newest = KINDS[told["kind"]]()
    pieces = 0
    while data := reader.read(PIECE_BYTES):
        reader.took(newest.feed(data), data)
        pieces += 1
        if pieces % _SIGN_OF_LIFE == 0:
            send(ALIVE, b"")
    each = iter(newest.pairs.items())
    while some := dict(islice(each, PAIRS_PER_FRAME)):
        send(PAIRS, marshal.dumps((some, {})))
    each_open = iter(newest.open.items())
    while some_open := dict(islice(each_open, PAIRS_PER_FRAME)):
        send(PAIRS, marshal.dumps(({}, some_open)))
    send(END, b"")


def _be_modest(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def main() -> int:
    """See the module's docstring."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the broker's to end us
    out = os.dup(1)

    def send(kind: bytes, data: bytes) -> None:
        view = memoryview(FRAME.pack(kind, len(data)) + data)
        while view:
            view = view[os.write(out, view) :]

    try:
        order = sys.stdin.buffer.read()
        _be_modest(json.loads(order)["parent"])
        read_newest(OsFiles(), order, send)
    except BrokenPipeError:  # the broker wants it no more
        return 1
    except (HoldfastError, OSError, MemoryError) as e:
        send(FAILED, f"{type(e).__name__}: {e}".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
