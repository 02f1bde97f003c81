"""Connections to a TLS listener until they can be spoken on: waiting for a first byte, then in the handshake.

A stranger costs little: the TLS object (40 KiB) is made when something comes, at most so many are in the making at a
time, and a turn of the loop does a few steps of all handshakes together, each of which takes up to 0.8 ms.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from holdfast.broker.bounded_lines import BoundedLines
from holdfast.broker.channel import TlsChannel, acknowledge
from holdfast.security.principal import Principal

log = logging.getLogger(__name__)

PER_TURN: Final = 4
"""Steps of handshakes in a turn of the loop."""
QUIET_S: Final = 0.002
"""After that long without a step there are as many as in a new turn."""
MOST_BEGUN: Final = 2000
"""Handshakes under way; one more ends the oldest, which a client that means it is not."""
TLS_HANDSHAKE_BYTE: Final = 0x16
AT_A_TIME: Final = 16 * 1024
"""What is taken from a stranger before it is looked at."""


class HandshakeError(Exception):
    """Why a handshake that went well is not enough."""


class TlsListener(Protocol):
    """What a handshake asks of its listener."""

    name: str

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        """With the certificate of now. HandshakeError: there is none."""
        ...

    def principal(self, tls: ssl.SSLObject) -> Principal:
        """Whom the client's certificate names. HandshakeError: nobody."""
        ...


class Handshakes:
    """All that are under way at a broker."""

    def __init__(self, per_turn: int = PER_TURN, most_begun: int = MOST_BEGUN) -> None:
        self._per_turn = self._left = per_turn
        self._most_begun = most_begun
        self._begun: dict[Opening, None] = {}
        self._waiting: deque[Opening] = deque()
        self._is_due = False
        self._last_s = 0.0
        self.failed: dict[str, int] = {}
        """By listener: handshakes that failed since the start."""
        self.succeeded: dict[str, int] = {}
        """By listener: those that did not."""
        self.lines = BoundedLines(log, "handshakes failed")

    def __len__(self) -> int:
        """Those that have begun."""
        return len(self._begun)

    def begin(self, opening: Opening) -> None:
        """Its first byte has come."""
        if len(self._begun) >= self._most_begun:
            next(iter(self._begun)).fail(f"{self._most_begun} handshakes are under way, and it has begun the first")
        self._begun[opening] = None

    def end(self, opening: Opening) -> None:
        self._begun.pop(opening, None)

    def take_turn(self, opening: Opening) -> bool:
        """Whether it may do a step now; else its ``step`` is called when it may."""
        now_s = opening.loop.time()
        if now_s - self._last_s > QUIET_S:
            self._left = self._per_turn
        if not self._left or self._waiting:
            self._waiting.append(opening)
            return False
        self._used(opening.loop, now_s)
        return True

    def _used(self, loop: asyncio.AbstractEventLoop, now_s: float) -> None:
        self._left -= 1
        self._last_s = now_s
        if not self._left and not self._is_due:
            self._is_due = True
            loop.call_soon(self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left, self._is_due = self._per_turn, False
        try:
            while self._waiting and self._left:
                opening = self._waiting.popleft()
                if not opening.closed:
                    self._used(loop, loop.time())
                    opening.step()
        finally:  # whatever became of one of them, others wait
            if self._waiting and not self._is_due:
                self._is_due = True
                loop.call_soon(self._turn, loop)

    def tell(self, listener: str, peer: str, why: str) -> None:
        """A line of the log, and not one for each of a thousand."""
        self.failed[listener] = self.failed.get(listener, 0) + 1
        self.lines.warning("connection of %s to listener %s closed: %s", peer, listener, why)


class Opening:
    """One connection's. ``opened`` gets the channel and who speaks, or ``failed`` is called; not after ``close``.
    ``wake`` is the connection's when there is something to receive, and calls ``ready`` before ``opened``; it stays
    with the loop behind it."""

    __slots__ = (
        "_failed", "_fd", "_handshakes", "_in", "_left", "_listener", "_opened", "_out", "_peer", "_principal",
        "_reads", "_sock", "_tls", "_wake", "_writes", "closed", "loop",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        listener: TlsListener,
        handshakes: Handshakes,
        loop: asyncio.AbstractEventLoop,
        opened: Callable[[TlsChannel, Principal], None],
        failed: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._peer = peer
        self._tls: ssl.SSLObject | None = None
        self._in: ssl.MemoryBIO
        self._out: ssl.MemoryBIO
        self._left = b""
        """What the socket did not take yet."""
        self._principal: Principal | None = None
        """Known when the handshake is done."""
        self._listener = listener
        self._handshakes = handshakes
        self._opened = opened
        self._failed = failed
        self._wake = wake
        self.loop = loop
        self.closed = False
        self._reads = self._writes = False
        """Which readiness wakes it."""
        self._wait(reads=True)

    @property
    def has_begun(self) -> bool:
        """Whether anything has come."""
        return self._tls is not None

    def _wait(self, *, reads: bool = False, writes: bool = False) -> None:
        if reads != self._reads:
            self._reads = reads
            if reads:
                self.loop.add_reader(self._fd, self._wake)
            else:
                self.loop.remove_reader(self._fd)
        if writes != self._writes:
            self._writes = writes
            if writes:
                self.loop.add_writer(self._fd, self.ready)
            else:
                self.loop.remove_writer(self._fd)

    def ready(self) -> None:
        """There is something to receive, or room to send."""
        if self._left:
            self._go_on()
        elif not self._take():
            return
        elif self._handshakes.take_turn(self):
            self.step()
        else:
            self._wait()

    def _take(self) -> bool:
        """What has come. False: nothing, or it is over."""
        try:
            data = self._sock.recv(AT_A_TIME)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._leave()
            return False
        if self._tls is None and not self._begin(data[0]):
            return False
        self._in.write(data)
        return True

    def _begin(self, first: int) -> bool:
        if first != TLS_HANDSHAKE_BYTE:
            self.fail("it speaks no TLS: expected a client with security.protocol SSL or SASL_SSL")
            return False
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = self._listener.wrap(self._in, self._out)
        except HandshakeError as e:
            self.fail(str(e))
            return False
        self._handshakes.begin(self)
        return True

    def step(self) -> None:
        """Go on as far as what has come allows."""
        tls = self._tls
        assert tls is not None, "it begins with its first byte"
        try:
            tls.do_handshake()
            self._principal = self._listener.principal(tls)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self._leave()
            return
        except ssl.SSLError as e:
            self._say()  # what it failed by, to the client
            self.fail(f"the TLS handshake failed: {what_failed(e)}")
            return
        except HandshakeError as e:
            self.fail(str(e))
            return
        self._go_on()

    def _go_on(self) -> None:
        """Say what there is to be said, and then wait for the client, or be done."""
        if not self._say():
            self._leave()
        elif self._left:
            self._wait(writes=True)
        elif self._principal is None:
            acknowledge(self._sock)
            self._wait(reads=True)
        else:
            opened, principal, tls = self._opened, self._principal, self._tls
            assert tls is not None, "it has a principal"
            done = self._handshakes.succeeded
            done[self._listener.name] = done.get(self._listener.name, 0) + 1
            self._end(has_reader=True)
            opened(TlsChannel(self._sock, tls, self._in, self._out), principal)

    def _say(self) -> bool:
        """False: nobody listens."""
        data = self._left + self._out.read()
        try:
            self._left = data[self._sock.send(data) :] if data else b""
        except (BlockingIOError, InterruptedError):
            self._left = data
        except OSError:
            return False
        return True

    def fail(self, why: str) -> None:
        """End it, and say why."""
        self._handshakes.tell(self._listener.name, self._peer, why)
        self._leave()

    def _leave(self) -> None:
        failed = self._failed
        self.close()
        failed()

    def _end(self, *, has_reader: bool = False) -> None:
        """It is over. ``has_reader``: the loop goes on waking the connection when there is something to receive."""
        self.closed = True
        self._wait(reads=has_reader)
        self._handshakes.end(self)
        self._opened, self._failed = _nobody, _nothing  # whoever keeps this keeps no connection
        self._wake = _nothing

    def close(self) -> None:
        """Give it up."""
        if not self.closed:
            self._end()
            self._sock.close()


def _nobody(channel: TlsChannel, principal: Principal) -> None: ...


def _nothing() -> None: ...


def what_failed(error: ssl.SSLError) -> str:
    """In few words, which are OpenSSL's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not taken: {error.verify_message}"
    return str(error.reason).replace("_", " ").lower() if error.reason else str(error)
