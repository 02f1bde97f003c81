"""The simulated network: TCP as processes see it, with a seed for a temper.

Owns listeners, connections and what is under way between machines. A connection is a pair of ordered byte streams;
what TCP promises holds (no loss, no reordering inside of one connection), and what it does not promise is done on
purpose: delays of each piece, machines that cannot reach each other for a while (bytes wait, then come late),
connections reset with what they carried, half of a request arrived or not, silence where a machine lost its power.
What an old connection still carries may come after what a new one does; to have that often, a request is now and
then delivered once more, later, by a connection of its own (a ghost), whose answer nobody reads.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.protocol.framing import decode_request, parse_request_header
from tests.simulation.loop import PROCESS, SimLoop

OUTSIDE = contextvars.Context()
"""The context of what belongs to no process."""
GHOST_LINGERS_S = 2.0
_COUNT_AGAIN = {8: 99, 22: 99, 24: 3, 25: 99, 26: 4, 28: 4}
"""API keys of requests that mean something new when they come once more, as in Kafka, up to which version: commits of
offsets, a new instance of a transactional id, and what is of the present transaction, whichever that is, where all have
the same epoch (before KIP-890). Markers of such transactions do, too: ``_ends_any``."""
_WRITE_TXN_MARKERS = 27


class Network:
    """All machines' wires. Delays are seconds."""

    def __init__(self, loop: SimLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.up: set[str] = set()
        """Machines that have power."""
        self.cuts: set[tuple[str, str]] = set()
        """(from, to) pairs that get nothing through."""
        self.ends: dict[int, End] = {}
        self.delay_s = (0.0001, 0.002)
        self.slow_share, self.slow_s = 0.01, (0.005, 0.2)
        self.ghost_share, self.ghost_s = 0.0, (0.01, 5.0)
        self._fds = itertools.count(1000)
        loop.connector = self.connect

    def next_fd(self) -> int:
        """A descriptor number that nobody has had."""
        return next(self._fds)

    def delay(self) -> float:
        """How long the next piece takes."""
        rng = self.rng
        return rng.uniform(*self.slow_s) if rng.random() < self.slow_share else rng.uniform(*self.delay_s)

    def passes(self, source: str, target: str) -> bool:
        """Whether a packet gets through now."""
        return (source, target) not in self.cuts and source in self.up and target in self.up

    def later(self, delay_s: float, work: Callable[..., None], *args: Any) -> None:
        """Run outside of every process."""
        self.loop.call_later(delay_s, work, *args, context=OUTSIDE)

    # -- faults ------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from one machine to the other until ``mend``."""
        self.cuts.add((source, target))

    def mend_one(self, source: str, target: str) -> None:
        """The way is open again; what waited arrives."""
        self.cuts.discard((source, target))
        self._unblock()

    def mend(self) -> None:
        """Everybody reaches everybody."""
        self.cuts.clear()
        self._unblock()

    def _unblock(self) -> None:
        for end in list(self.ends.values()):
            if end.blocked:
                end.unblock()

    def reset_some(self, share: float) -> int:
        """Reset this share of all connections; how many."""
        hit = [e for e in list(self.ends.values()) if e.fd < e.peer.fd and self.rng.random() < share]
        for end in hit:
            end.drop()
        return len(hit)

    def machine_down(self, machine: str) -> None:
        """Power is gone: its connections fall silent."""
        self.up.discard(machine)

    def machine_up(self, machine: str) -> None:
        """Power is back: it knows nothing of its old connections and resets whoever writes on one."""
        self.up.add(machine)

    def process_ended(self, process: Any) -> None:
        """The kernel closes what the process had open."""
        for address, listener in list(self.listeners.items()):
            if listener.process is process:
                del self.listeners[address]
        silent = process.machine not in self.up
        for end in list(self.ends.values()):
            if end.process is process:
                end.abandon() if silent else end.close()

    # -- connecting --------------------------------------------------------------------------------------------

    def listen(self, process: Any, host: str, port: int) -> Listener:
        """What Platform.listen is in the simulation."""
        assert (host, port) not in self.listeners, f"{host}:{port} is in use"
        listener = Listener(self, process, host, port)
        self.listeners[host, port] = listener
        return listener

    async def connect(self, protocol_factory: Callable[[], Any], host: str, port: int) -> Any:
        """loop.create_connection. Hangs while the way is cut; refused where nothing listens."""
        process = PROCESS.get()
        assert process is not None
        future = self.loop.create_future()
        self._attempt(process, host, port, future)
        end: End = await future
        protocol = protocol_factory()
        transport = SimTransport(self, end, protocol)
        end.attach(transport)
        protocol.connection_made(transport)
        return transport, protocol

    def _attempt(self, process: Any, host: str, port: int, future: asyncio.Future[Any]) -> None:
        def arrive() -> None:
            if future.done():
                return
            if not (self.passes(process.machine, host) and self.passes(host, process.machine)):
                self.later(0.5, arrive)  # the system sends its SYN again
                return
            listener = self.listeners.get((host, port))
            if listener is None:
                self.later(self.delay(), refuse)
                return
            mine = End(self, process, process.machine)
            theirs = End(self, listener.process, host)
            mine.peer, theirs.peer = theirs, mine
            mine.target = (host, port)
            listener.offer(theirs)
            self.later(self.delay(), done, mine)

        def refuse() -> None:
            if not future.done():
                future.set_exception(ConnectionRefusedError(111, "refused"))

        def done(mine: End) -> None:
            if future.done() or not process.alive:
                mine.close()
            else:
                future.set_result(mine)

        self.later(self.delay(), arrive)

    def maybe_ghost(self, end: End, data: bytes) -> None:
        """Now and then deliver a request once more, later."""
        if _counts_again(data):
            return
        if self.ghost_share and end.target is not None and self.rng.random() < self.ghost_share:
            self.later(self.rng.uniform(*self.ghost_s), self._ghost, end.machine, end.target, data)

    def _ghost(self, source: str, target: tuple[str, int], data: bytes) -> None:
        listener = self.listeners.get(target)
        if listener is None or not self.passes(source, target[0]):
            return
        theirs = End(self, listener.process, target[0])
        mine = End(self, None, source)
        mine.peer, theirs.peer = theirs, mine
        listener.offer(theirs)
        mine.send(data)
        self.later(GHOST_LINGERS_S, mine.close)


class End:
    """One side of a connection: a socket to a server's Connection, or what a SimTransport stands on."""

    def __init__(self, network: Network, process: Any, machine: str) -> None:
        self.network = network
        self.process = process
        self.machine = machine
        self.fd = network.next_fd()
        self.peer: End = self
        self.target: tuple[str, int] | None = None
        self.inbox: deque[bytes | None] = deque()
        """What arrived; None is the end."""
        self.blocked: deque[bytes | None] = deque()
        """What the peer sent while the way was cut."""
        self.error: OSError | None = None
        self.closed = False
        self._ended = False
        self._last_arrival = 0.0
        self._reader: tuple[Callable[[], None], contextvars.Context] | None = None
        self._writer: tuple[Callable[[], None], contextvars.Context] | None = None
        self._scheduled = False
        self._transport: SimTransport | None = None
        self._context = contextvars.copy_context()
        network.ends[self.fd] = self
        network.loop.register(self.fd, self)

    # -- sending -----------------------------------------------------------------------------------------------

    def transmit(self, data: bytes | None) -> None:
        """Put a piece, or the end, on its way to the peer."""
        network, peer = self.network, self.peer
        at = max(self._last_arrival + 1e-6, network.loop.time() + network.delay())  # timers of one time have no order
        self._last_arrival = at
        network.loop.call_at(at, peer.arrive, data, context=OUTSIDE)

    def arrive(self, data: bytes | None) -> None:
        """A piece is here, if the way is open."""
        if self.closed:
            if data is not None and self.machine in self.network.up and not self.peer.closed:
                self.peer.reset()  # nobody has this socket any more
            return
        if self.blocked or not self.network.passes(self.peer.machine, self.machine):
            self.blocked.append(data)
            return
        self.inbox.append(data)
        self._notify()

    def unblock(self) -> None:
        """The way is open again."""
        while self.blocked and self.network.passes(self.peer.machine, self.machine):
            self.inbox.append(self.blocked.popleft())
        self._notify()

    # -- ending ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """This side is done: the peer reads to the end, then sees it."""
        if not self.closed:
            self._gone()
            self.transmit(None)

    def abandon(self) -> None:
        """This side has lost its power."""
        if not self.closed:
            self._gone()

    def _gone(self) -> None:
        self.closed = True
        self._reader = self._writer = None
        self.network.loop.forget(self.fd)
        self.network.ends.pop(self.fd, None)

    def reset(self) -> None:
        """The peer's side is gone: reading and writing fail."""
        if not self.closed and self.error is None:
            self.error = ConnectionResetError(104, "Connection reset by peer")
            self.inbox.clear()
            self._notify()

    def drop(self) -> None:
        """Somebody in between resets both sides; what was under way is lost."""
        for end in (self, self.peer):
            end.blocked.clear()
            end.reset()

    # -- the socket of a server --------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self.fd

    def setblocking(self, flag: bool) -> None:
        """Never blocks."""

    def setsockopt(self, *_: Any) -> None:
        """Nothing to set."""

    def recv_into(self, buffer: Any) -> int:
        if self.error is not None:
            raise self.error
        if not self.inbox:
            raise BlockingIOError
        data = self.inbox[0]
        if data is None:
            return 0
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        if size == len(data):
            self.inbox.popleft()
        else:
            self.inbox[0] = data[size:]
        return size

    def send(self, data: Any) -> int:
        if self.error is not None:
            raise self.error
        self.transmit(bytes(data))
        return len(data)

    def sendmsg(self, segments: list[Any]) -> int:
        return self.send(b"".join(segments))

    def want_read(self, callback: Any, context: Any) -> bool:
        """loop.add_reader and remove_reader."""
        had = self._reader is not None
        self._reader = None if callback is None else (callback, context)
        if callback is not None:
            self._notify()
        return had

    def want_write(self, callback: Any, context: Any) -> bool:
        """loop.add_writer and remove_writer: there is always room."""
        had = self._writer is not None
        self._writer = None if callback is None else (callback, context)
        if callback is not None:
            self.network.loop.call_soon(self._writable, context=context)
        return had

    def _writable(self) -> None:
        if self._writer is not None and not self.closed:
            callback, context = self._writer
            callback()
            if self._writer is not None and not self.closed:
                self.network.loop.call_soon(self._writable, context=context)

    def attach(self, transport: SimTransport) -> None:
        """A client stands on this end."""
        self._transport = transport
        self._context = contextvars.copy_context()
        self._notify()

    def _notify(self) -> None:
        if self._scheduled or self.closed or not (self.inbox or self.error):
            return
        if self._transport is not None:
            self._scheduled = True
            self.network.loop.call_soon(self._feed, context=self._context)
        elif self._reader is not None:
            self._scheduled = True
            self.network.loop.call_soon(self._readable, context=self._reader[1])

    def _readable(self) -> None:
        self._scheduled = False
        if self._reader is not None and not self.closed:
            self._reader[0]()
            self._notify()

    def _feed(self) -> None:
        self._scheduled = False
        transport = self._transport
        if transport is None or self.closed:
            return
        if self.error is not None:
            transport.lost(self.error)
            return
        while self.inbox and not self.closed:
            data = self.inbox.popleft()
            if data is None:
                if not self._ended:
                    self._ended = True
                    transport.lost(None)
                return
            transport.feed(data)


class SimTransport(asyncio.Transport):
    """The client's side for an asyncio.BufferedProtocol."""

    def __init__(self, network: Network, end: End, protocol: Any) -> None:
        super().__init__()
        self._network = network
        self._end = end
        self._protocol = protocol
        self._lost = False

    def feed(self, data: bytes) -> None:
        """Hand over what arrived."""
        while data and not self._lost:
            buffer = self._protocol.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self._protocol.buffer_updated(size)
            data = data[size:]

    def lost(self, error: OSError | None) -> None:
        """The connection is over."""
        if not self._lost:
            self._lost = True
            self._end.close()
            self._protocol.connection_lost(error)

    def write(self, data: Any) -> None:
        if not self._lost and self._end.error is None and not self._end.closed:
            data = bytes(data)
            self._end.transmit(data)
            self._network.maybe_ghost(self._end, data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is always room."""

    def is_closing(self) -> bool:
        return self._lost

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._lost:
            self._lost = True
            self._end.close()
            self._network.loop.call_soon(self._protocol.connection_lost, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Listener:
    """A listening socket: connections wait here until the process takes them."""

    def __init__(self, network: Network, process: Any, host: str, port: int) -> None:
        self._network = network
        self.process = process
        self._address = (host, port)
        self._fd = network.next_fd()
        self._waiting: deque[End] = deque()
        self._reader: tuple[Callable[[], None], contextvars.Context] | None = None
        network.loop.register(self._fd, self)

    def offer(self, end: End) -> None:
        """A connection was made by the kernel."""
        self._waiting.append(end)
        self._notify()

    def accept(self) -> tuple[End, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        end = self._waiting.popleft()
        return end, (end.peer.machine, end.peer.fd)

    def want_read(self, callback: Any, context: Any) -> bool:
        """loop.add_reader and remove_reader."""
        had = self._reader is not None
        self._reader = None if callback is None else (callback, context)
        self._notify()
        return had

    def _notify(self) -> None:
        if self._waiting and self._reader is not None:
            self._network.loop.call_soon(self._reader[0], context=self._reader[1])

    def fileno(self) -> int:
        return self._fd

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def close(self) -> None:
        self._reader = None
        self._network.listeners.pop(self._address, None)
        self._network.loop.forget(self._fd)
        for end in self._waiting:
            end.close()


def _counts_again(request: bytes) -> bool:
    """Whether a request that comes once more, later, is no mere repetition."""
    key, version = int.from_bytes(request[4:6], "big"), int.from_bytes(request[6:8], "big")
    if key == _WRITE_TXN_MARKERS:
        return _ends_any(request, version)
    return version <= _COUNT_AGAIN.get(key, -1)


def _ends_any(request: bytes, version: int) -> bool:
    """Whether one of these markers ends whatever transaction its producer has open by then."""
    frame = memoryview(request)[4:]
    body = decode_request(_WRITE_TXN_MARKERS, version, frame[parse_request_header(frame).body_offset :])
    return any(getattr(marker, "transaction_version", 0) < 2 for marker in body.markers)
