"""Free TCP ports for brokers of a test.

A port that was looked at and found free is taken by nobody only if nobody else looks: a cluster that is stopped and
started again would find another test's on its port. So a process has a block of ports for itself, claimed by listening
on the block's last one for as long as the process lives, and hands them out in turn. With more processes than blocks
the rest share all ports, as free as they were when looked at.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Sequence
from typing import Final

LOW, HIGH = 20000, 29000
"""Below Linux's ephemeral ports (32768 up), so that no client connection takes one between looking and
listening."""
BESIDE = (50, 100, 200, 400)
"""``holdfast up`` has ports this far above those of clients: for clients with certificates, for metrics, for
brokers among themselves, and for a ZooKeeper server."""
BLOCK: Final = 600
"""Ports of a block: those for clients, those ``BESIDE`` them, and the one that says it is claimed."""
FIRSTS: Final = 50
"""Of a block, those that are handed out."""


class _Block:
    """This process's ports; ``claim`` listens on the last one, None without a block."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.claim: socket.socket | None = None
        rng = random.Random(self.pid ^ int.from_bytes(os.urandom(4), "big"))
        starts = list(range(LOW, HIGH - BLOCK + 1, BLOCK))
        rng.shuffle(starts)
        for start in starts:
            self.claim = _listen(start + BLOCK - 1)
            if self.claim is not None:
                self.start, self.count = start, FIRSTS
                break
        else:
            self.start, self.count = LOW, HIGH - LOW
        self._next = rng.randrange(self.count)

    def take(self, count: int, beside: Sequence[int]) -> int:
        """See free_port."""
        for _ in range(self.count):
            if self._next + count > self.count:
                self._next = 0
            first = self.start + self._next
            self._next += count
            if all(_is_free(port + far) for far in (0, *beside) for port in range(first, first + count)):
                return first
        raise OSError(f"no {count} neighbouring free ports between {self.start} and {self.start + self.count}")


_block: _Block | None = None


def free_port(count: int = 1, *, beside: Sequence[int] = ()) -> int:
    """The first of ``count`` neighbouring ports of 127.0.0.1 that nobody listens on, nor on those that are ``beside``
    above them (at most 400); OSError if there are none. No other process gets them from here while this one lives."""
    global _block
    if _block is None or _block.pid != os.getpid():
        _block = _Block()
    if not 0 < count <= FIRSTS:
        raise ValueError(f"count={count}: expected 1 to {FIRSTS} ports")
    return _block.take(count, beside)


def _listen(port: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        claim.bind(("127.0.0.1", port))
        claim.listen(1)
    except OSError:
        claim.close()
        return None
    return claim


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
