"""How bytes get from a socket and into it: as they are, or through TLS.

A channel knows no frames and no order; what is read and sent, and when, is the connection's. The plain one is the
socket's own calls. That of TLS works on a raw non-blocking SSLSocket, which costs the least of what the standard
library has (docs/decisions/0055-tls-of-brokers.md).

What TLS is different in, for whoever sits above:
* bytes that are decrypted already wait inside while the socket is not readable: ``has_more``;
* reading may have to wait until something can be sent: ``read_waits_to_send``;
* an interrupted send is repeated with the same bytes: what ``send`` did not take stays at the head of the queue;
* files have no way past the cipher: ``takes_files``.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

Segment: TypeAlias = bytes | bytearray | memoryview

RECORD: Final = 16 * 1024
"""What a record of TLS holds; smaller segments are joined up to it, since each record costs 22 bytes and a call."""
PIECE: Final = 64 * 1024
"""A larger segment goes in pieces of this size; the library cuts them into records."""
TURN_BYTES: Final = 1 << 20
"""How much a connection encrypts or decrypts before others have their turn: half a millisecond."""
HANDSHAKE: Final = b"\x16\x03"
"""How the first message of a client that speaks TLS begins."""


_QUICK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


def acknowledge(sock: socket.socket) -> None:
    """What came and what comes next, at once. A client that gathers small writes (librdkafka does, unless told
    otherwise) keeps the next one until it hears: 40 ms of Linux where there is nothing to say, as after a handshake of
    TLS 1.3."""
    if _QUICK is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)


class Channel(Protocol):
    """See the module's docstring."""

    takes_files: bool

    @property
    def sock(self) -> socket.socket: ...

    @property
    def has_more(self) -> bool: ...

    @property
    def read_waits_to_send(self) -> bool: ...

    def receive(self, buffer: memoryview, /) -> int:
        """Bytes received into a buffer that is not empty; 0: the other side has ended. BlockingIOError: none yet."""
        ...

    def send(self, segments: Sequence[Segment]) -> int:
        """Bytes taken from the beginning of the segments. BlockingIOError: none."""
        ...

    def close(self) -> None: ...


class PlainChannel:
    """The socket's own calls, and nothing between."""

    __slots__ = ("receive", "sock")

    takes_files = True
    has_more = False
    read_waits_to_send = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.receive = sock.recv_into

    def send(self, segments: Sequence[Segment]) -> int:
        return self.sock.sendmsg(segments) if len(segments) > 1 else self.sock.send(segments[0])

    def close(self) -> None:
        self.sock.close()


class TlsChannel:
    """On a connection whose handshake is done (handshakes.py)."""

    __slots__ = ("_ended", "read_waits_to_send", "sock")

    takes_files = False

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock = sock
        self.read_waits_to_send = False
        self._ended: str | None = None
        """Why there will be nothing more; empty: the other side has said goodbye."""

    @property
    def has_more(self) -> bool:
        """Whether the socket may stay silent although there is something to receive."""
        return self._ended is not None or self.sock.pending() > 0

    def receive(self, buffer: memoryview, /) -> int:
        # A call gives one record at most.
        if self._ended:
            raise ConnectionError(self._ended)
        filled, most = 0, min(len(buffer), TURN_BYTES)
        read = self.sock.recv_into
        self.read_waits_to_send = False
        try:
            while filled < most:
                n = read(buffer[filled:])
                if n == 0:
                    self._ended = ""
                    break
                filled += n
                if n < RECORD and not self.sock.pending():  # a short one is the last one: asking again costs 15 us
                    break
        except ssl.SSLWantReadError:
            if not filled:
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            # The client has asked for new keys, and its answer does not fit into the socket.
            self.read_waits_to_send = True
            if not filled:
                raise BlockingIOError from None
        except OSError as e:
            if not filled:
                raise
            self._ended = str(e) or type(e).__name__  # after what had come before, which is whole
        return filled

    def send(self, segments: Sequence[Segment]) -> int:
        # What did not go stays where it was, so the next first piece begins with the same bytes and is no shorter: the
        # library, which has begun to send it, asks for just that.
        sent, at = 0, 0
        try:
            while at < len(segments) and sent < TURN_BYTES:
                piece = segments[at]
                at += 1
                if len(piece) < RECORD:
                    parts, size = [piece], len(piece)
                    while at < len(segments) and size + len(segments[at]) <= RECORD:
                        size += len(segments[at])
                        parts.append(segments[at])
                        at += 1
                    sent += self.sock.send(piece if len(parts) == 1 else b"".join(parts))
                    continue
                with memoryview(piece) as view:
                    for begin in range(0, len(view), PIECE):
                        sent += self.sock.send(view[begin : begin + PIECE])
        except ssl.SSLWantWriteError:
            if not sent:
                raise BlockingIOError from None
        return sent

    def close(self) -> None:
        if self._ended is None:
            with contextlib.suppress(OSError, ValueError):  # a goodbye, if there is room for it; nobody waits
                self.sock.unwrap()
        self.sock.close()
