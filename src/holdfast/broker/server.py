"""The listening sockets: accept connections, limit them, close idle ones.

Kafka's SocketServer; here one loop does what its acceptor and processors do. What the limits make of a connection is
decided by security/connection_limits.py; here it waits, is closed, or is let in. One timer looks after all connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.broker.bounded_lines import BoundedLines
from holdfast.broker.connection import Connection
from holdfast.broker.connection import log as connection_log
from holdfast.broker.exchange import BufferPool, Exchange
from holdfast.broker.handshakes import Handshakes, TlsListener
from holdfast.broker.listening import listen
from holdfast.broker.strangers import StrangerLimits, Strangers
from holdfast.broker.turn_order import TurnOrder
from holdfast.broker.unfinished import UnfinishedRequests
from holdfast.model.addresses import plain_address
from holdfast.model.listeners import SecurityProtocol
from holdfast.security.connection_limits import ConnectionCounts, ConnectionLimits, no_rate_of

if TYPE_CHECKING:
    from holdfast.broker.request_times import RequestTimes
    from holdfast.model.listeners import ListenerUse
    from holdfast.storage.log_dir import LogDir

log = logging.getLogger(__name__)

SWEEP_S = 0.25
LOOK_BATCH = 1000
"""Connections looked at in one turn of the loop."""
IDLE_CHECK_S = 30.0
ACCEPT_RETRY_S = 0.5
"""Pause after a failed accept: the waiting connection stays readable, and asking again at once would burn a core."""
MOST_HELD = 1024
"""Connections of addresses over their rate that wait to be closed; beyond it they are closed at once."""


class Server:
    """All listeners of a broker. A connection knows by which it came.

    ``dispatch`` gets every request as an Exchange; ``on_close`` hears of every connection that ends;
    ``times`` is told how long each request took. ``ip_rate`` says how many connections a second an address may make by
    the cluster's quotas; None: any. ``strangers``: limits of those that have not said who they are; ``patience_s``: for
    a request whose rest does not come. ``turn_order`` hears who comes last.
    """

    def __init__(
        self,
        *,
        dispatch: Callable[[Exchange], None],
        on_close: Callable[[Connection], None],
        max_frame_bytes: int,
        limits: ConnectionLimits,
        max_idle_ms: int,
        listen: Callable[[str, int], socket.socket] = listen,
        times: RequestTimes | None = None,
        ip_rate: Callable[[str], float | None] = no_rate_of,
        strangers: StrangerLimits | None = None,
        patience_s: float = 30.0,
        turn_order: TurnOrder | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._on_close = on_close
        self._max_frame_bytes = max_frame_bytes
        self._counts = ConnectionCounts(limits, ip_rate)
        self._turn_order = turn_order or TurnOrder()
        self.strangers = Strangers(strangers or StrangerLimits(), self._turn_order)
        self._unfinished = UnfinishedRequests(patience_s)
        self._max_idle_s = max_idle_ms / 1000
        self._listen = listen
        self._times = times
        self._pool = BufferPool()
        self._listeners: list[_Listener] = []
        self._held: deque[tuple[float, socket.socket]] = deque()
        """Of addresses over their rate, with when each is closed."""
        self._timer: asyncio.TimerHandle | None = None
        self._idle_check_s = 0.0
        self._refused = BoundedLines(log, "connections were refused")
        self._closed_lines = BoundedLines(connection_log, "connections were closed")
        self._tls: dict[str, TlsListener] = {}
        self.handshakes = Handshakes()
        self.connections: dict[Connection, None] = {}
        self.accepted: dict[str, int] = {}
        """By listener: connections since the start."""

    def limit(self, limits: ConnectionLimits) -> None:
        """Other limits from now on; what is beyond them goes at the next look."""
        self._counts.limits = limits

    def bind(self, host: str, port: int, listener: ListenerUse, tls: TlsListener | None = None) -> int:
        """Bind and listen; the port in use (for port 0). Raises ConfigError when the address is taken. ``tls``: what is
        spoken by this listener."""
        sock = self._listen(host, port)
        if tls is not None:
            self._tls[listener.name] = tls
        self._listeners.append(_Listener(sock, listener, self._arrived, self._admit, self._turn_order))
        self._turn_order.listens(sock.fileno())
        self._counts.add_listener(listener.name, for_brokers=listener.for_brokers)
        self.accepted[listener.name] = 0
        return int(sock.getsockname()[1])

    def start(self) -> None:
        """Accept from now on by the listeners of brokers, by which this one is told how to serve. Who comes by another
        one waits in the socket until ``let_clients_in``."""
        assert self._listeners, "bind first"
        for listener in self._listeners:
            if listener.use.for_brokers:
                listener.start()
        loop = asyncio.get_running_loop()
        self._idle_check_s = loop.time() + IDLE_CHECK_S
        self._timer = loop.call_later(SWEEP_S, self._sweep)

    def let_clients_in(self) -> None:
        """Accept by the other listeners, too; not after ``stop_accepting``."""
        for listener in self._listeners:
            if not listener.use.for_brokers:
                listener.start()

    # -- who comes ---------------------------------------------------------------------------------------------

    def _arrived(self, listener: ListenerUse) -> float:
        """A connection was accepted: how long it waits, and all that come by this listener behind it."""
        return self._counts.delay_ms(listener.name, _now_ms()) / 1000

    def _admit(self, sock: socket.socket, peer: tuple[Any, ...], listener: ListenerUse) -> None:
        host, counts = plain_address(peer[0]), self._counts
        delay_ms = counts.ip_delay_ms(listener.name, host, _now_ms())
        if delay_ms:
            self._hold(sock, host, delay_ms)
            return
        refusal = counts.refusal(listener.name, host)
        if refusal is not None:
            self._refused.warning("refused %s:%s: %s reached", host, peer[1], counts.told(refusal, listener.name, host))
            sock.close()
            return
        self.accepted[listener.name] += 1
        sock.setblocking(False)
        loop, tls = asyncio.get_running_loop(), self._tls.get(listener.name)
        is_strange = listener.security_protocol is not SecurityProtocol.PLAINTEXT
        if is_strange:
            self._turn_order.is_strange(sock.fileno())
        connection = Connection(
            sock, (host, peer[1]), loop, self._pool, self._dispatch, self._closed,
            self._max_frame_bytes, listener, self._times, None if tls is None else (tls, self.handshakes),
            self.strangers if is_strange else None, self._closed_lines,
        )  # fmt: skip
        self.connections[connection] = None
        counts.opened(listener.name, host)
        if is_strange:
            self.strangers.came(connection, loop.time())
        self._make_room()
        if not self._turn_order.is_crowded:
            connection.begin()

    def _hold(self, sock: socket.socket, host: str, delay_ms: int) -> None:
        """Keep it for so long and close it then, so that who comes again at once comes less often."""
        self._refused.warning("refused %s: connection_creation_rate of the address, closed in %d ms", host, delay_ms)
        if len(self._held) >= MOST_HELD:
            sock.close()
        else:
            self._held.append((asyncio.get_running_loop().time() + delay_ms / 1000, sock))

    def _make_room(self) -> None:
        """Clients keep no broker out: where there are too many connections, those of clients that have been idle the
        longest go (KIP-612)."""
        excess = self._counts.excess
        if not excess:
            return
        clients = [c for c in self.connections if not self._counts.is_protected(c.listener.name)]
        clients.sort(key=lambda connection: (not connection.is_idle, connection.idle_since))
        for connection in clients[:excess]:
            connection.close(None)
            self._refused.warning(
                "closed the connection of %s:%s: max.connections=%d reached, and it was idle the longest",
                *connection.peer, self._counts.limits.connections,
            )  # fmt: skip

    def _closed(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self._counts.closed(connection.listener.name, connection.peer[0])
        self.strangers.known(connection)
        self._unfinished.gone(connection)
        self._on_close(connection)

    # -- who is there ------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)
        self.look()

    def look(self) -> None:
        """See after all connections: whose time is up, and what was to be done later."""
        now_s = asyncio.get_running_loop().time()
        while self._held and self._held[0][0] <= now_s:
            self._held.popleft()[1].close()
        self.strangers.look(now_s)
        self._make_room()
        self._counts.forget_idle(_now_ms())
        self._refused.turn()
        self._closed_lines.turn()
        self._look_at(deque(self.connections))
        self.handshakes.lines.turn()
        if now_s >= self._idle_check_s:
            self._idle_check_s = now_s + IDLE_CHECK_S
            self._close_idle()

    def _look_at(self, connections: deque[Connection]) -> None:
        """Whether their requests go on; so many in a turn of the loop."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for _ in range(min(LOOK_BATCH, len(connections))):
            connection = connections.popleft()
            if not connection.closed:
                self._unfinished.look(connection, now_s)
        if connections:
            loop.call_soon(self._look_at, connections)
        else:
            self._unfinished.turn()

    def _close_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            if connection.is_idle and now - connection.idle_since > self._max_idle_s:
                connection.close(None)

    def let_go(self, directory: LogDir) -> None:
        """Close the connections whose clients have not taken what they asked for of that directory: it failed or is
        to go, and may not be unmounted for as long as its files are open."""
        for connection in list(self.connections):
            if connection.sends_from(directory):
                connection.close(f"it does not take its answer, and {directory.path} is in use no more")

    def stop_accepting(self) -> None:
        """Close the listening sockets: new connections are refused from here on."""
        for listener in self._listeners:
            self._turn_order.closes(listener.sock.fileno())
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        """Stop accepting and close every connection."""
        self.stop_accepting()
        if self._timer is not None:
            self._timer.cancel()
        while self._held:
            self._held.popleft()[1].close()
        for connection in list(self.connections):
            connection.close(None)


class _Listener:
    """One listening socket. ``arrived`` says how long each connection waits, and the others behind it; ``admit`` gets
    it with its peer and what the listener takes."""

    def __init__(
        self,
        sock: socket.socket,
        use: ListenerUse,
        arrived: Callable[[ListenerUse], float],
        admit: Callable[[socket.socket, tuple[Any, ...], ListenerUse], None],
        turn_order: TurnOrder,
    ) -> None:
        self.sock = sock
        self.use = use
        self._turn_order = turn_order
        self._arrived = arrived
        self._admit = admit
        self._closed = False
        self._waiting: tuple[socket.socket, tuple[Any, ...]] | None = None
        """Accepted, and over the rate."""
        self.timer: asyncio.TimerHandle | None = None
        """Set after a failed accept, and while one waits."""

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(self.sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(self._turn_order.accepts):
            try:
                sock, peer = self.sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as e:  # out of file descriptors: the pending connection waits, we live on
                log.warning("accept failed on listener %s, again in %g s: %s", self.use.name, ACCEPT_RETRY_S, e)
                self._pause(ACCEPT_RETRY_S)
                return
            wait_s = self._arrived(self.use)
            if wait_s:
                self._waiting = sock, peer
                self._pause(wait_s)
                return
            self._admit(sock, peer, self.use)

    def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.sock.fileno())
        self.timer = loop.call_later(seconds, self.again)

    def again(self) -> None:
        """Accept again after a pause."""
        if self._closed:
            return
        try:
            if self._waiting is not None:
                (sock, peer), self._waiting = self._waiting, None
                self._admit(sock, peer, self.use)
        finally:  # whatever became of what it asks, others come
            if not self._closed:
                self.start()

    def close(self) -> None:
        self._closed = True
        if self.timer is not None:
            self.timer.cancel()
        if self._waiting is not None:
            self._waiting[0].close()
        asyncio.get_running_loop().remove_reader(self.sock.fileno())
        self.sock.close()


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
