"""The listening socket.

Its port may be taken for a moment when a broker starts again: one that was killed leaves it to its closer, which keeps
it open a little longer for the clients that have lost their connection (closer_process.py).

A port that refuses, or that says itself that no broker is there, means that nobody lives there. That a connection was
made is no news of a living broker.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from holdfast.broker.closer_process import BROKER_NOT_AVAILABLE
from holdfast.model.errors import ConfigError
from holdfast.storage.files import Buffer

BACKLOG = 512
PATIENCE_S = 2.0
"""How long a broker that starts waits for its port."""
RETRY_S = 0.02


class PortTakenError(ConfigError):
    """Another process listens there, or did a moment ago."""


def listen(host: str, port: int) -> socket.socket:
    """A listening, non-blocking TCP socket. Raises ConfigError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is accepted has it from here
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as e:
        sock.close()
        kind = PortTakenError if e.errno == errno.EADDRINUSE else ConfigError
        raise kind(f"listeners: cannot listen on {host}:{port}: {e.strerror}") from e
    sock.setblocking(False)
    return sock


def nobody_is_there(answer: Buffer) -> bool:
    """Whether an answer to ApiVersions 0, without its header, is that of a broker that was killed a moment ago."""
    return int.from_bytes(answer[:2], "big") == BROKER_NOT_AVAILABLE


async def when_free(bind: Callable[[], int]) -> int:
    """What ``bind`` returns; while the port is taken it is tried again. PortTakenError after PATIENCE_S."""
    loop = asyncio.get_running_loop()
    limit_s = loop.time() + PATIENCE_S
    while True:
        try:
            return bind()
        except PortTakenError:
            if loop.time() >= limit_s:
                raise
        await asyncio.sleep(RETRY_S)
