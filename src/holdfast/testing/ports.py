"""Free TCP ports for brokers of a test."""

import os
import random
import socket
from collections.abc import Sequence

LOW, HIGH = 20000, 29000
"""Below Linux's ephemeral ports (32768 up), so that no client connection takes one between looking and
listening."""


BESIDE = (100, 200, 400)
"""``holdfast up`` has ports this far above those of clients: for metrics, for brokers among themselves, and for a
ZooKeeper server."""


def free_port(count: int = 1, *, beside: Sequence[int] = ()) -> int:
    """The first of ``count`` neighbouring ports of 127.0.0.1 that nobody listens on, nor on those that are ``beside``
    above them."""
    rng = random.Random(os.getpid() ^ int.from_bytes(os.urandom(4), "big"))
    for _ in range(200):
        first = rng.randrange(LOW, HIGH - count)
        if all(_is_free(port + far) for far in (0, *beside) for port in range(first, first + count)):
            return first
    raise OSError(f"no {count} neighbouring free ports between {LOW} and {HIGH}")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
