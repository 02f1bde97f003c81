"""The listening socket, and the moment by which its port outlives a process that is killed.

A client that has lost its connection connects again at once. Where that second connection is made and ends as well,
it asks other brokers who leads now. Where it is refused, librdkafka asks nobody if the lost connection was its only
one and had no request under way: it finds the new leader with its next look, up to a second later (measured:
docs/decisions/0004). The kernel gives up the descriptors of a killed process one by one, the highest numbers first.
So the port has the lowest number that the process can get, and all connections end before it. That alone is a
fraction of a millisecond, so the next number is an inotify instance: giving that up takes the kernel 5 to 15 ms.

A port that refuses means as ever that nobody lives there. Who connects in these milliseconds gets no answer: that a
connection was made is no news of a living broker.
"""

from __future__ import annotations

import ctypes
import os
import socket

from holdfast.model.errors import ConfigError

BACKLOG = 512
_IN_DELETE_SELF = 0x400


def listen(host: str, port: int) -> socket.socket:
    """A listening, non-blocking TCP socket. Raises ConfigError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as e:
        sock.close()
        raise ConfigError(f"listeners: cannot listen on {host}:{port}: {e.strerror}") from e
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock


class LowPort:
    """Makes the port of this process. See the module's docstring; made when the process begins, used once."""

    __slots__ = ("_delay", "_port")

    def __init__(self) -> None:
        self._port: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._delay: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def listen(self, host: str, port: int) -> socket.socket:
        """As ``listen``, on the descriptor that was kept for it."""
        sock, low, delay = listen(host, port), self._port, self._delay
        if low is None or delay is None:
            return sock
        self._port = self._delay = None
        os.dup2(sock.fileno(), low, inheritable=False)
        sock.close()
        _become_inotify(delay)
        lowest = _LowSocket(fileno=low)
        lowest.delay = delay
        lowest.setblocking(False)
        return lowest

    def __del__(self) -> None:
        for descriptor in (self._port, self._delay):
            if descriptor is not None:
                os.close(descriptor)


class _LowSocket(socket.socket):
    """Takes the other descriptor with it."""

    delay: int | None = None

    def close(self) -> None:
        super().close()
        delay, self.delay = self.delay, None
        if delay is not None:
            os.close(delay)


def _become_inotify(descriptor: int) -> None:
    """Nothing happens where there is no inotify: then the moment is shorter."""
    libc = ctypes.CDLL(None)
    made = libc.inotify_init1(os.O_CLOEXEC) if hasattr(libc, "inotify_init1") else -1
    if made >= 0:
        libc.inotify_add_watch(made, b"/", _IN_DELETE_SELF)  # without a watch it would be given up at once
        os.dup2(made, descriptor, inheritable=False)
        os.close(made)
