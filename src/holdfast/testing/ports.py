"""Free TCP ports for brokers of a test.

A port that was looked at and found free is taken by nobody only if nobody else looks: a cluster that is stopped and
started again would find another test's on its port. So a process has a block of ports for itself, claimed by listening
on the block's last one for as long as the process lives, and hands them out in turn; one whose clusters leave no place
in its block claims another. With more processes than blocks the rest share all ports, as free as they were when
looked at.
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
    """Neighbouring ports of this process."""

    def __init__(self, start: int, count: int, claim: socket.socket | None) -> None:
        """``claim`` listens on the last one; None: the ports are not this process's alone."""
        self.start, self.count, self.claim = start, count, claim
        self._next = random.randrange(count)

    def take(self, count: int, beside: Sequence[int]) -> int | None:
        """The first port of ``count``, looked for from where the last ones were taken; None if no place is free."""
        last = self.count - count
        for place in (*range(self._next, last + 1), *range(min(self._next, last + 1))):
            first: int = self.start + place
            if all(_is_free(port + far) for far in (0, *beside) for port in range(first, first + count)):
                self._next = (place + count) % self.count
                return first
        return None


class _Ports:
    """The blocks of this process: one, and more when what the process runs has left no place in it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._unclaimed = list(range(LOW, HIGH - BLOCK + 1, BLOCK))
        random.Random(self.pid ^ int.from_bytes(os.urandom(4), "big")).shuffle(self._unclaimed)
        self._blocks: list[_Block] = []

    def take(self, count: int, beside: Sequence[int]) -> int:
        """See free_port."""
        for block in self._blocks:
            first = block.take(count, beside)
            if first is not None:
                return first
        while (more := self._claimed()) is not None:
            first = more.take(count, beside)
            if first is not None:
                return first
        first = _Block(LOW, HIGH - LOW, None).take(count, beside)
        if first is None:
            raise OSError(f"no {count} neighbouring free ports between {LOW} and {HIGH}")
        return first

    def _claimed(self) -> _Block | None:
        """One more; None if other processes have all."""
        while self._unclaimed:
            start = self._unclaimed.pop()
            claim = _listen(start + BLOCK - 1)
            if claim is not None:
                self._blocks.append(_Block(start, FIRSTS, claim))
                return self._blocks[-1]
        return None


_ports: _Ports | None = None


def free_port(count: int = 1, *, beside: Sequence[int] = ()) -> int:
    """The first of ``count`` neighbouring ports of 127.0.0.1 that nobody listens on, nor on those that are ``beside``
    above them (at most 400); OSError if there are none. No other process gets them from here while this one lives."""
    global _ports
    if _ports is None or _ports.pid != os.getpid():
        _ports = _Ports()
    if not 0 < count <= FIRSTS:
        raise ValueError(f"count={count}: expected 1 to {FIRSTS} ports")
    return _ports.take(count, beside)


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
