"""The listening socket: accepts connections, limits them, closes idle ones.

Kafka's SocketServer; here one loop does what its acceptor and processors do.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.broker.connection import Connection
from holdfast.broker.exchange import BufferPool, Exchange
from holdfast.broker.listening import listen

if TYPE_CHECKING:
    from holdfast.storage.log_dir import LogDir

log = logging.getLogger(__name__)

ACCEPT_BATCH = 64
IDLE_CHECK_S = 30.0
ACCEPT_RETRY_S = 0.5
"""Pause after a failed accept: the waiting connection stays readable, and asking again at once would burn a core."""


class Server:
    """One listener of a broker.

    ``dispatch`` gets every request as an Exchange; ``on_close`` hears of every connection that ends.
    """

    def __init__(
        self,
        *,
        dispatch: Callable[[Exchange], None],
        on_close: Callable[[Connection], None],
        max_frame_bytes: int,
        max_connections: int,
        max_idle_ms: int,
        listen: Callable[[str, int], socket.socket] = listen,
    ) -> None:
        self._dispatch = dispatch
        self._on_close = on_close
        self._max_frame_bytes = max_frame_bytes
        self.max_connections = max_connections
        """May change while it runs."""
        self._max_idle_s = max_idle_ms / 1000
        self._listen = listen
        self._pool = BufferPool()
        self._sock: socket.socket | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._accept_timer: asyncio.TimerHandle | None = None
        self.connections: dict[Connection, None] = {}

    def bind(self, host: str, port: int) -> int:
        """Bind and listen; the port in use (for port 0). Raises ConfigError when the address is taken."""
        sock = self._listen(host, port)
        self._sock = sock
        return int(sock.getsockname()[1])

    def start(self) -> None:
        """Accept from now on."""
        assert self._sock is not None, "bind first"
        loop = asyncio.get_running_loop()
        loop.add_reader(self._sock.fileno(), self._accept)
        self._idle_timer = loop.call_later(IDLE_CHECK_S, self._close_idle)

    def _accept(self) -> None:
        assert self._sock is not None
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPT_BATCH):
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as e:  # out of file descriptors: the pending connection waits, we live on
                log.warning("accept failed, again in %g s: %s", ACCEPT_RETRY_S, e)
                loop.remove_reader(self._sock.fileno())
                self._accept_timer = loop.call_later(ACCEPT_RETRY_S, self._accept_again)
                return
            if len(self.connections) >= self.max_connections:
                log.warning("refused %s: max.connections=%d reached", peer, self.max_connections)
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(
                sock, peer[:2], loop, self._pool, self._dispatch, self._closed, self._max_frame_bytes
            )
            self.connections[connection] = None

    def _accept_again(self) -> None:
        if self._sock is not None:
            asyncio.get_running_loop().add_reader(self._sock.fileno(), self._accept)

    def _closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._on_close(connection)

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in list(self.connections):
            if connection.is_idle and now - connection.idle_since > self._max_idle_s:
                connection.close(None)
        self._idle_timer = loop.call_later(IDLE_CHECK_S, self._close_idle)

    def let_go(self, directory: LogDir) -> None:
        """Close the connections whose clients have not taken what they asked for of that directory: it failed or is
        to go, and may not be unmounted for as long as its files are open."""
        for connection in list(self.connections):
            if connection.sends_from(directory):
                connection.close(f"it does not take its answer, and {directory.path} is in use no more")

    def stop_accepting(self) -> None:
        """Close the listening socket: new connections are refused from here on."""
        if self._accept_timer is not None:
            self._accept_timer.cancel()
        if self._sock is not None:
            asyncio.get_running_loop().remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None

    def close(self) -> None:
        """Stop accepting and close every connection."""
        self.stop_accepting()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in list(self.connections):
            connection.close(None)
