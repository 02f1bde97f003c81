"""One client connection: bytes in, requests out in order; answers in, bytes out in order.

Owns the channel (the socket, or TLS on it) and its buffers. Works on the raw non-blocking socket with the loop's
readiness callbacks, not on an asyncio transport: a large frame is received straight into the buffer that the disk later
writes from, and a file slice leaves by sendfile, so record bytes are never copied by us
(docs/decisions/0003-connections.md; what TLS costs: 0055-tls-of-brokers.md).

Invariants:
* answers leave in the order of their requests;
* only Produce requests overlap, and the controller's orders: any other request starts when all before it are answered,
  as Kafka's muted channels have it;
* bytes of unanswered requests and of unsent answers are limited; past the limit nothing more is read;
* no answer waits for a disk without a limit: the sizes in it are announced, so past the limit the connection is closed;
* a pooled buffer is used again only when nobody has a view of it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from holdfast.broker.channel import HANDSHAKE, TURN_BYTES, Channel, PlainChannel, UnwelcomeError
from holdfast.broker.exchange import BufferPool, Exchange, SendSlice
from holdfast.broker.handshakes import Handshakes, Opening, TlsListener
from holdfast.broker.request_times import Owed, RequestTimes
from holdfast.broker.sending import Sending
from holdfast.broker.session import Session
from holdfast.broker.timed_channel import TimedChannel
from holdfast.model.listeners import SecurityProtocol
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.framing import RequestHeader, parse_request_header

if TYPE_CHECKING:
    from holdfast.broker.strangers import Strangers
    from holdfast.model.listeners import ListenerUse
    from holdfast.security.principal import Principal
    from holdfast.storage.log_dir import LogDir

log = logging.getLogger(__name__)

SMALL_BUFFER = 64 * 1024
"""Frames up to this size are received into the connection's own buffer; larger ones get one to themselves."""
LARGE_START = 2 << 20
"""A larger frame's buffer doubles as its bytes come in."""
LARGE_FROM = 2048
"""Bytes of a large frame that come into the small buffer before it gets one of its own, on a connection that has sent
none yet."""
MAX_PIPELINED = 64
MAX_PIPELINED_BYTES = 64 << 20
MAX_RUNNING_BYTES = 256 << 20
"""Requests under way on all connections together; beyond it each connection may have one. A disk that hangs must not
fill the memory with what waits for it."""
MAX_UNSENT_BYTES = 8 << 20
"""Answers that the client has not taken yet, beyond which no request of it is started."""
TOKEN = RequestHeader(int(ApiKey.SASL_AUTHENTICATE), -1, 0, None, 0)
"""Of a frame that has none: a token after SaslHandshake 0."""
_OVERLAPPING = {
    int(ApiKey.PRODUCE): 0,
    **dict.fromkeys(map(int, (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA)), 1),
}
"""Requests of one kind start in their order while earlier ones wait, for a disk that may hang."""


class Lines(Protocol):
    """Where a connection says why it is closed: strangers can have many closed."""

    def warning(self, msg: str, /, *values: object) -> None: ...


class Connection:
    """See the module's docstring. Created by the server for each accepted socket."""

    __slots__ = (
        "_buffer", "_channel", "_end", "_fd", "_goes_on", "_large", "_large_filled", "_large_size", "_lines", "_loop",
        "_max_frame", "_muted", "_opening", "_owed", "_proved", "_reading", "_running", "_running_bytes", "_sending",
        "_start", "_times", "closed", "dispatch", "idle_since", "is_lasting", "listener", "on_close", "peer", "pool",
        "session", "strangers",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        peer: tuple[str, int],
        loop: asyncio.AbstractEventLoop,
        pool: BufferPool,
        dispatch: Callable[[Exchange], None],
        on_close: Callable[[Connection], None],
        max_frame_bytes: int,
        listener: ListenerUse,
        times: RequestTimes | None = None,
        tls: tuple[TlsListener, Handshakes] | None = None,
        strangers: Strangers | None = None,
        lines: Lines = log,
    ) -> None:
        self.peer = peer
        self.listener = listener
        """What it came by, and so what may be asked on it."""
        self.pool = pool
        self.dispatch = dispatch
        self.on_close = on_close
        self.closed = False
        self.idle_since = loop.time()
        self.is_lasting = False
        """Not closed for being idle: its end would be taken for the death of this broker."""
        self.session = Session(unasked_since_s=self.idle_since)
        """Who speaks, and what handlers remember of this connection."""
        self._lines = lines
        self.strangers = strangers
        """Among whom it is counted until it has said who it is."""
        self._loop = loop
        self._max_frame = max_frame_bytes
        self._buffer = bytearray(4096)  # grows to SMALL_BUFFER on first need: most connections stay small
        self._start = self._end = 0
        self._large: bytearray | None = None
        self._large_size = self._large_filled = 0
        self._proved = 0
        """The largest frame that it has sent whole, as far as a buffer's start goes: so much is believed."""
        self._running: deque[Exchange] = deque()
        self._running_bytes = 0
        self._times = times
        self._owed = None if times is None else Owed(times)
        self._reading = True
        self._goes_on = False
        """Whether the loop will have it take what the channel has; it is asked once a turn."""
        self._muted: asyncio.TimerHandle | None = None
        """Until then no request is started: the client is over its quota."""
        self._fd = sock.fileno()
        self._channel: Channel = PlainChannel(sock)
        self._sending = Sending(self._channel, loop, taken=self._taken, left=self._peer_left, failed=self.close)
        self._opening: Opening | None = None
        """Before TLS can be spoken; then nothing is read here."""
        if tls is None:
            loop.add_reader(self._fd, self._on_readable)
        else:
            self._opening = Opening(
                sock, f"{peer[0]}:{peer[1]}", *tls, loop, self._opened, lambda: self.close(None), self._on_readable
            )

    def begin(self) -> None:
        """Take what has come with the connection: clients speak first, and it is cheaper than to be woken for it."""
        if not self.closed:
            self._on_readable()

    def _opened(self, channel: Channel, principal: Principal) -> None:
        self._opening = None
        self._channel = self._sending.channel = channel
        self.session.principal = principal
        if self.listener.security_protocol is SecurityProtocol.SSL:
            self.known()
        self._on_readable()  # clients ask at once: it is cheaper than to be woken for it

    @property
    def descriptor(self) -> int:
        """Of its socket."""
        return self._fd

    @property
    def is_open(self) -> bool:
        """True when requests can be sent by it: at once, or after the handshake of TLS."""
        return self._opening is None and not self.closed

    def known(self) -> None:
        """Who speaks has said who it is: the limits of strangers do not hold for it any more."""
        if self.strangers is not None:
            self.strangers.known(self)
            self.strangers = None

    @property
    def held_bytes(self) -> int:
        """Of requests that came and are not answered yet, of the one that is coming, and of answers not taken yet."""
        coming = self._end - self._start if self._large is None else len(self._large)
        return self._running_bytes + coming + self._sending.unsent

    @property
    def unfinished_bytes(self) -> int | None:
        """What has come of a request whose rest has not. None: there is none, or it is us who do not read on."""
        if not self._reading or self._opening is not None:
            return None
        if self._large is not None:
            return self._large_filled
        return self._end - self._start or None

    @property
    def is_idle(self) -> bool:
        """True when no request is under way; answers that the client does not take do not count."""
        return not self._running and not self.is_lasting

    # -- receiving ---------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self._opening is not None:
            self._opening.ready()
            return
        try:
            if self._large is not None:
                n = self._receive_large()
            else:
                if self._end == len(self._buffer):
                    self._make_room()
                n = self._channel.receive(memoryview(self._buffer)[self._end :])
                self._end += n
        except (BlockingIOError, InterruptedError):
            n = -1
        except OSError as e:
            self._peer_left("receive", e)
            return
        if n == 0:
            self.close(None)
            return
        if n > 0:
            self._parse()
            if self.strangers is not None:
                self.strangers.weigh(self)
        self._go_on()

    def _go_on(self) -> None:
        """In the next turn, once, with what the channel has although the socket may be silent."""
        if self._channel.has_more and self._reading and not self.closed and not self._goes_on:
            self._goes_on = True
            self._loop.call_soon(self._gone_on)

    def _gone_on(self) -> None:
        self._goes_on = False
        self.read_on()

    def read_on(self) -> None:
        """Take what has come; the socket need not be readable for it, nor wake anybody for so little."""
        if self._reading and self._opening is None and not self.closed:
            self._on_readable()

    def _receive_large(self) -> int:
        large = self._large
        assert large is not None
        filled = self._large_filled
        if filled == len(large):
            self._large = self.pool.take(min(self._large_size, 2 * filled))
            self._large[:filled] = large
            self.pool.give(large)
            large = self._large
        n = self._channel.receive(memoryview(large)[filled : self._large_size])
        self._large_filled = filled + n
        return n

    def _make_room(self) -> None:
        pending = self._end - self._start
        if self._start:
            self._buffer[:pending] = self._buffer[self._start : self._end]
            self._start, self._end = 0, pending
        if pending > len(self._buffer) // 2 and len(self._buffer) < SMALL_BUFFER:
            self._buffer = self._buffer[:pending] + bytearray(min(SMALL_BUFFER, 4 * len(self._buffer)) - pending)

    def _parse(self) -> None:
        """Hand over every complete request that may start now."""
        while not self.closed:
            if self._muted is not None or self._sending.unsent >= MAX_UNSENT_BYTES:
                self._pause_reading()
                return
            if self._running and not self._may_start_more():
                if self._hurry_parked():
                    continue
                return
            if self._large is not None:
                if self._large_filled < self._large_size:
                    break
                large, size = self._large, self._large_size
                self._large = None
                self._proved = max(self._proved, min(size, LARGE_START))
                self._start_request(memoryview(large)[:size], large)
                continue
            available = self._end - self._start
            if available < 4:
                break
            size = int.from_bytes(self._buffer[self._start : self._start + 4], "big", signed=True)
            if size <= 0 or size > self._most_bytes():
                self.close(self._no_frame(size))
                return
            if available < 4 + size:
                if size > SMALL_BUFFER - 4 and (self._proved or available >= LARGE_FROM):
                    self._begin_large(size)
                    continue
                if self._start + 4 + size > len(self._buffer):
                    self._make_room()
                break
            begin = self._start + 4
            self._start = begin + size
            self._start_request(memoryview(self._buffer)[begin : begin + size], None)
        if self._start == self._end:
            self._start = self._end = 0
        if not self._reading and not self.closed:
            self._resume_reading()

    def _no_frame(self, size: int) -> str:
        if self._buffer[self._start :].startswith(HANDSHAKE):
            return f"it speaks TLS: expected a client of listener {self.listener.name} without it"
        return f"frame of {size} bytes, expected 1 to {self._most_bytes()}"

    def _most_bytes(self) -> int:
        return self._max_frame if self.strangers is None else min(self._max_frame, self.strangers.limits.frame_bytes)

    def _hurry_parked(self) -> bool:
        """Have a parked request answered for the one that waits behind it. False: nothing can start now."""
        parked = self._running[-1]
        if parked.hurry is None:
            self._pause_reading()
            return False
        waiting = self._large is not None or self._end - self._start >= 4
        if waiting:
            hurry, parked.hurry = parked.hurry, None
            hurry()
            return not self._running or self._may_start_more()
        return False

    def _begin_large(self, size: int) -> None:
        # An announced size is not believed: who does not send the bytes does not get the memory either.
        have = self._end - self._start - 4
        self._large = self.pool.take(min(size, max(self._proved, 4 * have)))
        self._large_size = size
        self._large[:have] = self._buffer[self._start + 4 : self._end]
        self._large_filled = have
        self._start = self._end = 0
        stop = min(size, have + TURN_BYTES)  # and then others have their turn
        try:
            while self._large_filled < stop and self._receive_large() and not self._channel.has_more:
                pass
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as e:
            self.close(f"receive failed: {e}")

    def _may_start_more(self) -> bool:
        full = len(self._running) >= MAX_PIPELINED or self._running_bytes >= MAX_PIPELINED_BYTES
        if full or self.pool.running_bytes >= MAX_RUNNING_BYTES:
            return False
        return self._may_overlap(self._running[-1].header.api_key)

    def _may_overlap(self, last: int) -> bool:
        """Whether the next request may start while the one before it, of that API, is under way. Not known yet: read
        on, nothing starts before it is."""
        kind = _OVERLAPPING.get(last)
        if kind is None:
            return False
        if self._large is not None:
            if self._large_filled < 2:
                return True
            return _OVERLAPPING.get(self._large[0] << 8 | self._large[1]) == kind
        if self._end - self._start < 6:
            return True
        at = self._start + 4
        return _OVERLAPPING.get(self._buffer[at] << 8 | self._buffer[at + 1]) == kind

    def _start_request(self, frame: memoryview, large: bytearray | None) -> None:
        self.idle_since = now_s = self._loop.time()
        if self.strangers is not None and not self.strangers.asks(self):
            return
        try:
            header = TOKEN if self.session.takes_tokens else parse_request_header(frame)
        except Exception as e:
            self.close(f"unreadable request header: {e}")
            return
        exchange = Exchange(self, header, frame[header.body_offset :], len(frame))
        if large is not None:
            frame.release()
            exchange.pooled(large)
        self._running.append(exchange)
        self._running_bytes += exchange.size
        self.pool.running_bytes += exchange.size
        exchange.times, exchange.started_s = self._times, now_s
        self.dispatch(exchange)
        if large is None:
            exchange.detach(self._buffer)

    def time_bytes(self, spent: Callable[[float], None], clock_s: Callable[[], float]) -> None:
        """From now on ``spent`` hears how many seconds reading and writing take."""
        self._channel = self._sending.channel = TimedChannel(self._channel, spent, clock_s)

    def mute(self, delay_ms: int) -> None:
        """Start no request for so long, or for as long as was said before: whether the client minds what it is told of
        it or not (KIP-219). What is under way is answered."""
        until_s = self._loop.time() + delay_ms / 1000
        if self.closed or (self._muted is not None and self._muted.when() >= until_s):
            return
        if self._muted is not None:
            self._muted.cancel()
        self._muted = self._loop.call_at(until_s, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        if not self.closed:
            self._parse()

    def _pause_reading(self) -> None:
        # Some bytes may still be taken into the small buffer; stop only the readiness callbacks.
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _resume_reading(self) -> None:
        self._reading = True
        self._loop.add_reader(self._fd, self._on_readable)
        self._go_on()

    # -- sending -----------------------------------------------------------------------------------------------

    def answered(self, exchange: Exchange) -> None:
        """Called by Exchange.finish: send what is due, in order, and start what waited."""
        if self.closed:
            return
        running, owed, sending = self._running, self._owed, self._sending
        timed: list[tuple[int, Exchange]] | None = None
        if owed is not None:  # without a call: every request comes by here
            header, version = exchange.header, owed.version
            if header.api_version != version.version or header.api_key != version.api_key:
                version = owed.turn_to(header)
            counted = version.of_followers if exchange.is_follower else version.of_clients
            counted.left -= 1
            if not counted.left:
                owed.time(exchange, counted, self._loop)
        sent = False
        while running and (answer := running[0].answer) is not None:
            first = running.popleft()
            self._running_bytes -= first.size
            self.pool.running_bytes -= first.size
            for chunk in answer:
                if len(chunk):
                    sending.add(chunk)
            first.answer = ()  # whoever keeps this exchange keeps no file open
            if first.weight:
                timed = timed or []
                timed.append((sending.unsent if answer else 0, first))
            sent = True
        if not sent:
            return
        if timed is None or owed is None:
            if not sending.is_waiting:
                sending.flush()
        else:
            self._send_timed(timed, owed, exchange)
        if not self._reading and not self.closed:
            self._loop.call_soon(self._parse)

    def _send_timed(self, timed: list[tuple[int, Exchange]], owed: Owed, last: Exchange) -> None:
        """``last``: the one that has just been answered."""
        due_s = last.finished_s if last.weight else self._loop.time()
        unsent = self._sending.unsent
        if not self._sending.is_waiting:
            self._sending.flush()
        owed.took(timed, unsent - self._sending.unsent, due_s, self._loop)

    def _taken(self, unsent: int) -> None:
        """The socket took what it would of so many bytes."""
        left = self._sending.unsent
        if self._owed is not None and self._owed.answers:
            self._owed.sent(unsent - left, self._loop)
        if left < unsent:
            if left:
                self.idle_since = self._loop.time()  # the client is slow, but it reads
            if not self._reading and unsent >= MAX_UNSENT_BYTES > left:
                self._loop.call_soon(self._parse)

    def _peer_left(self, what: str, error: OSError) -> None:
        """Clients come and go, and not all say goodbye: that is not worth a warning."""
        if isinstance(error, UnwelcomeError):
            self.close(str(error))
            return
        log.debug("connection of %s:%s: %s failed: %s", *self.peer[:2], what, error)
        self.close(None)

    # -- ending ------------------------------------------------------------------------------------------------

    def sends_from(self, directory: LogDir) -> bool:
        """Whether an answer that the client has not taken yet holds a file of that directory open."""
        answers = (chunk for each in self._running for chunk in each.answer or ())
        return any(isinstance(c, SendSlice) and c.is_of(directory) for c in (*self._sending.queue, *answers))

    def close(self, reason: str | None) -> None:
        """Close the socket; parked requests of this connection are dropped by whoever watches ``on_close``."""
        if self.closed:
            return
        self.closed = True
        if reason:
            self._lines.warning("connection of %s:%s closed: %s", *self.peer[:2], reason)
        if self._opening is not None:
            self._opening.close()
            self._opening = None
        if self._muted is not None:
            self._muted.cancel()
        self._loop.remove_reader(self._fd)
        self._sending.end()
        self._channel.close()
        for exchange in self._running:
            exchange.answer = ()
        self.pool.running_bytes -= self._running_bytes
        self.on_close(self)
        self._running.clear()  # an exchange keeps its connection
