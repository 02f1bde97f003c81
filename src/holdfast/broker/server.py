"""The listening sockets: accept connections, limit them, close idle ones.

Kafka's SocketServer; here one loop does what its acceptor and processors do.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.broker.connection import Connection
from holdfast.broker.exchange import BufferPool, Exchange
from holdfast.broker.listening import listen

if TYPE_CHECKING:
    from holdfast.broker.request_times import RequestTimes
    from holdfast.model.listeners import ListenerUse
    from holdfast.storage.log_dir import LogDir

log = logging.getLogger(__name__)

ACCEPT_BATCH = 64
IDLE_CHECK_S = 30.0
ACCEPT_RETRY_S = 0.5
"""Pause after a failed accept: the waiting connection stays readable, and asking again at once would burn a core."""


class Server:
    """All listeners of a broker. A connection knows by which it came.

    ``dispatch`` gets every request as an Exchange; ``on_close`` hears of every connection that ends;
    ``times`` is told how long each request took.
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
        times: RequestTimes | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._on_close = on_close
        self._max_frame_bytes = max_frame_bytes
        self.max_connections = max_connections
        """May change while it runs."""
        self._max_idle_s = max_idle_ms / 1000
        self._listen = listen
        self._times = times
        self._pool = BufferPool()
        self._listeners: list[_Listener] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        self.connections: dict[Connection, None] = {}
        self.accepted: dict[str, int] = {}
        """By listener: connections since the start."""

    def bind(self, host: str, port: int, listener: ListenerUse) -> int:
        """Bind and listen; the port in use (for port 0). Raises ConfigError when the address is taken."""
        sock = self._listen(host, port)
        self._listeners.append(_Listener(sock, listener, self._accept))
        self.accepted[listener.name] = 0
        return int(sock.getsockname()[1])

    def start(self) -> None:
        """Accept from now on."""
        assert self._listeners, "bind first"
        for listener in self._listeners:
            listener.start()
        self._idle_timer = asyncio.get_running_loop().call_later(IDLE_CHECK_S, self._close_idle)

    def _accept(self, sock: socket.socket, peer: tuple[Any, ...], listener: ListenerUse) -> None:
        if len(self.connections) >= self.max_connections and not self._makes_room(listener):
            log.warning("refused %s: max.connections=%d reached", peer, self.max_connections)
            sock.close()
            return
        self.accepted[listener.name] = self.accepted.get(listener.name, 0) + 1
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(
            sock, peer[:2], asyncio.get_running_loop(), self._pool, self._dispatch, self._closed,
            self._max_frame_bytes, listener, self._times,
        )  # fmt: skip
        self.connections[connection] = None

    def _makes_room(self, listener: ListenerUse) -> bool:
        """Clients keep no broker out: the one that has been idle the longest goes for it (KIP-612)."""
        if not listener.for_brokers:
            return False
        clients = [c for c in self.connections if not c.listener.for_brokers]
        idle = [c for c in clients if c.is_idle] or clients
        if not idle:
            return False
        oldest = min(idle, key=lambda connection: connection.idle_since)
        oldest.close(f"max.connections={self.max_connections} reached, and a broker connects")
        return True

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
        """Close the listening sockets: new connections are refused from here on."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        """Stop accepting and close every connection."""
        self.stop_accepting()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in list(self.connections):
            connection.close(None)


class _Listener:
    """One listening socket; ``accepted`` gets each connection with its peer and what the listener takes."""

    def __init__(
        self,
        sock: socket.socket,
        use: ListenerUse,
        accepted: Callable[[socket.socket, tuple[Any, ...], ListenerUse], None],
    ) -> None:
        self.sock = sock
        self.use = use
        self._accepted = accepted
        self._closed = False
        self.timer: asyncio.TimerHandle | None = None
        """Set after a failed accept."""

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self.sock.fileno(), self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(ACCEPT_BATCH):
            try:
                sock, peer = self.sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as e:  # out of file descriptors: the pending connection waits, we live on
                log.warning("accept failed on listener %s, again in %g s: %s", self.use.name, ACCEPT_RETRY_S, e)
                loop.remove_reader(self.sock.fileno())
                self.timer = loop.call_later(ACCEPT_RETRY_S, self.again)
                return
            self._accepted(sock, peer, self.use)

    def again(self) -> None:
        """Accept again after a failure."""
        if not self._closed:
            self.start()

    def close(self) -> None:
        self._closed = True
        if self.timer is not None:
            self.timer.cancel()
        asyncio.get_running_loop().remove_reader(self.sock.fileno())
        self.sock.close()
