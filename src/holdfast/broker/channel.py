"""How bytes get from a socket and into it: as they are, or through TLS.

A channel knows no frames and no order; what is read and sent, and when, is the connection's. The plain one is the
socket's own calls. That of TLS works on two memory buffers, between which and the socket it moves bytes itself: many
records a system call, where a socket of the standard library takes two for each
(docs/decisions/0055-tls-of-brokers.md).

What TLS is different in, for whoever sits above:
* bytes that came already wait inside while the socket is not readable: ``has_more``;
* what was encrypted and did not go counts as not sent, and is not encrypted again: what ``send`` did not take stays at
  the head of the queue, in the same order;
* files have no way past the cipher: ``takes_files``.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias, cast

Segment: TypeAlias = bytes | bytearray | memoryview

RECORD: Final = 16 * 1024
"""What a record of TLS holds; smaller segments are joined up to it, since each record costs 22 bytes and a call."""
RECORDS: Final = 4
"""As many are sent by a system call."""
RECORDS_A_TURN: Final = 1024
"""As many are received before others have their turn: a record of a byte costs as much of it as one of a kilobyte."""
HEAD: Final = 5
"""Of a record: its kind, version and size."""
MOST_OF_RECORD: Final = RECORD + 2048
"""What a record may have, encrypted (RFC 5246, 6.2.3). A larger one is not waited for."""
MANY: Final = 1 << 20
"""Bytes that are taken from the socket at a time; less where there is room for less and a record."""
ENOUGH: Final = 512 * 1024
"""Within a large request nobody is woken for less, or for less than half of what is to come of it."""
FEW: Final = 64 * 1024
"""What is to come then, when every byte wakes again."""
GIVEN: Final = 32 * 1024
"""Bytes of records that the library is given at a time; it keeps room for them and one more."""
GIVEN_RECORDS: Final = 8
"""As many at most: one call goes through all that are without data, as those by which a client asks for new keys. Each
of them costs 60 us, one with data 1 us. So a turn of them is half a millisecond."""
MOST_WITHOUT_DATA: Final = 16
"""Such records a connection may send: a millisecond. OpenSSL, BoringSSL and Go take 32 in a row."""
WITH_DATA: Final = 256
"""Records with data that allow one more. Clients that ask for new keys by themselves do it after millions of records:
Java after 128 GiB (``jdk.tls.keyLimits``), others after 2^24 records."""
MOST_UNASKED: Final = 64 * 1024
"""What a client may be owed that asks for new keys and takes nothing."""
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


class UnwelcomeError(ConnectionError):
    """The other side does what nobody who means it does, which is told; a connection that is lost is not."""


class Channel(Protocol):
    """See the module's docstring."""

    takes_files: bool

    @property
    def sock(self) -> socket.socket: ...

    @property
    def has_more(self) -> bool: ...

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

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.receive = sock.recv_into

    def send(self, segments: Sequence[Segment]) -> int:
        return self.sock.sendmsg(segments) if len(segments) > 1 else self.sock.send(segments[0])

    def close(self) -> None:
        self.sock.close()


class _Shared(threading.local):
    """Of all channels of a thread: what came lies here until it is decrypted, within one call."""

    def __init__(self) -> None:
        self.wire = memoryview(bytearray(HEAD + MOST_OF_RECORD + MANY))


_shared = _Shared()
_NOTHING: Final = memoryview(b"")


class TlsChannel:
    """On a connection whose handshake is done (handshakes.py). ``incoming`` may have what came behind it."""

    __slots__ = (
        "_encrypted", "_ended", "_enough", "_in", "_is_more", "_out", "_owed", "_rest", "_tls", "_unread", "_with_data",
        "_without_data", "sock",
    )  # fmt: skip

    takes_files = False

    def __init__(
        self, sock: socket.socket, tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self.sock = sock
        self._tls, self._in, self._out = tls, incoming, outgoing
        self._rest = memoryview(incoming.read())
        """What came and was not given to the library yet: it gets whole records, so that it never asks in vain."""
        self._is_more = bool(self._rest)
        """Whether something can be received without the socket."""
        self._unread = 0
        """Records that the library was given, less those that had data; what is left when it has read all had none."""
        self._with_data = self._without_data = 0
        """Records that came."""
        self._encrypted: list[Segment] = []
        """What the socket did not take."""
        self._owed = 0
        """Of how many bytes that is; ``send`` was not told yet that they have gone."""
        self._enough = 1
        self._ended: str | None = None
        """Why there will be nothing more; empty: the other side has said goodbye."""

    @property
    def has_more(self) -> bool:
        """Whether the socket may stay silent although there is something to receive."""
        return self._ended is not None or self._is_more

    @property
    def _is_unwelcome(self) -> bool:
        return self._without_data > MOST_WITHOUT_DATA + self._with_data // WITH_DATA

    # -- receiving ---------------------------------------------------------------------------------------------

    def receive(self, buffer: memoryview, /) -> int:
        if self._ended is not None:
            if self._ended:
                raise ConnectionError(self._ended)
            return 0
        if self._without_data and self._is_unwelcome:
            raise UnwelcomeError(
                f"{self._without_data} records of TLS without data, such as updates of keys, and {self._with_data} "
                f"with data: expected {MOST_WITHOUT_DATA} at most, and one more for every {WITH_DATA} with data"
            )
        most = min(len(buffer), TURN_BYTES)
        if self._is_more:
            filled, at = self._decrypt(self._rest, buffer, most)
            self._rest = self._rest[at:]
            if filled or self._ended is not None:
                return filled
            if self._is_more:
                raise BlockingIOError
        wire, begun = _shared.wire, len(self._rest)
        if begun:
            wire[:begun] = self._rest
        end = begun + self.sock.recv_into(wire[begun : begun + min(MANY, most + MOST_OF_RECORD)])
        if end == begun:
            self._ended = ""  # without a goodbye: who is gone hears none either
            return 0
        filled, at = self._decrypt(wire[:end], buffer, most)
        self._rest = memoryview(bytes(wire[at:end])) if at < end else _NOTHING
        if not filled and self._ended is None:
            raise BlockingIOError
        left = len(buffer) - filled
        self._wake_for(min(ENOUGH, left // 2) if left > FEW else 1)
        return filled

    def _decrypt(self, data: memoryview, buffer: memoryview, most: int) -> tuple[int, int]:
        """As many records as a turn and the buffer have room for: bytes of the buffer, and of ``data``."""
        # With a buffer it returns how many bytes, which the library's types do not say.
        read = cast(Callable[[int, memoryview], int], self._tls.read)
        given, at, filled, unread = self._in, 0, 0, self._unread
        reads = 0
        try:
            if self._is_more and self._tls.pending():
                filled = read(most, buffer)
            for reads in range(RECORDS_A_TURN):  # so many had data
                if filled == most:
                    break
                if not given.pending:
                    if unread > reads:  # there were others: a turn ends with them
                        break
                    end, count = _whole_records(data, at)
                    if not count:
                        break
                    given.write(data[at:end])
                    at = end
                    unread += count
                try:
                    n = read(most - filled, buffer[filled:])
                except ssl.SSLWantReadError:  # what was left was not for us
                    break
                if not n:
                    self._ended = ""
                    break
                filled += n
            else:
                reads += 1
        except OSError as e:
            if not filled:
                raise
            self._ended = str(e) or type(e).__name__  # after what had come before, which is whole
        self._with_data += reads
        self._unread = unread - reads
        if self._unread and not given.pending:
            self._without_data += self._unread
            self._unread = 0
        self._is_more = (
            given.pending > 0
            or _whole_records(data, at)[1] > 0
            or (filled == most and self._tls.pending() > 0)
            or self._is_unwelcome
        )
        if self._out.pending:
            self._answer()
        return filled, at

    def _answer(self) -> None:
        """What the library says by itself, as when a client has asked for new keys; else it goes before the next."""
        if not self._encrypted:
            self._push(0)
        if self._out.pending > MOST_UNASKED:
            raise UnwelcomeError("it asks for new keys and takes nothing")

    def _wake_for(self, enough: int) -> None:
        """From how many bytes on the socket is readable. One that ended is."""
        if enough != self._enough:
            self._enough = enough
            with contextlib.suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, enough)

    # -- sending -----------------------------------------------------------------------------------------------

    def send(self, segments: Sequence[Segment]) -> int:
        sent = 0
        if self._encrypted:
            sent = self._sent()
            if self._encrypted:
                raise BlockingIOError
        elif (few := len(segments[0]) if len(segments) == 1 else sum(map(len, segments))) <= RECORD:
            self._tls.write(segments[0] if len(segments) == 1 else b"".join(segments))
            data = self._out.read()
            try:
                n = self.sock.send(data)
            except (BlockingIOError, InterruptedError):
                n = 0
            if n == len(data):
                return few
            self._encrypted.append(data[n:])
            self._owed = few
            raise BlockingIOError
        for size, records in _pieces(segments, sent):
            for record in records:
                self._tls.write(record)  # all of it, as a memory buffer takes everything
                self._encrypted.append(self._out.read())
            if not self._push(size):
                break
            sent += size
            if sent >= TURN_BYTES:
                break
        if not sent:
            raise BlockingIOError
        return sent

    def _push(self, size: int) -> bool:
        """Send what is encrypted, of so many bytes. False: not all of it went."""
        if self._out.pending:
            self._encrypted.append(self._out.read())
        self._owed = size
        self._sent()
        return not self._encrypted

    def _sent(self) -> int:
        """Go on sending. How many bytes have gone with it that were still owed."""
        left = self._encrypted
        try:
            n = self.sock.sendmsg(left) if len(left) > 1 else self.sock.send(left[0])
        except (BlockingIOError, InterruptedError):
            return 0
        while left and n >= len(left[0]):
            n -= len(left.pop(0))
        if left:
            left[0] = memoryview(left[0])[n:]
            return 0
        owed, self._owed = self._owed, 0
        return owed

    def close(self) -> None:
        if self._ended is None:
            with contextlib.suppress(OSError, ValueError):  # a goodbye, if there is room for it; nobody waits
                self._tls.unwrap()
            if not self._encrypted and self._out.pending:
                with contextlib.suppress(OSError):
                    self._push(0)
        self.sock.close()


def _whole_records(data: bytes | memoryview, begin: int) -> tuple[int, int]:
    """Where records end that begin at ``begin`` and are given to the library together, and how many they are; none: the
    first one is not whole yet."""
    at, most = begin, min(len(data), begin + GIVEN)
    for count in range(GIVEN_RECORDS):
        if at + HEAD > most:
            return at, count
        size = (data[at + 3] << 8) + data[at + 4]
        if size > MOST_OF_RECORD or data[at + 1] != 3:
            return len(data), count + 1  # no record: the library says what it is
        if at + HEAD + size > len(data):
            return at, count
        at += HEAD + size
    return at, GIVEN_RECORDS


def _pieces(segments: Sequence[Segment], begin: int) -> Iterator[tuple[int, list[Segment]]]:
    """What follows the first ``begin`` bytes, as records of TLS, as many at a time as are sent together: their bytes,
    and they. Segments that are smaller than a record are joined."""
    size, records = 0, list[Segment]()
    for record in _records(segments, begin):
        records.append(record)
        size += len(record)
        if len(records) == RECORDS:
            yield size, records
            size, records = 0, []
    if records:
        yield size, records


def _records(segments: Sequence[Segment], begin: int) -> Iterator[Segment]:
    joined, size = list[Segment](), 0
    for segment in segments:
        if begin >= len(segment):
            begin -= len(segment)
            continue
        piece, begin = (memoryview(segment)[begin:] if begin else segment), 0
        if size and size + len(piece) > RECORD:
            yield joined[0] if len(joined) == 1 else b"".join(joined)
            joined, size = [], 0
        if len(piece) < RECORD:
            joined.append(piece)
            size += len(piece)
            continue
        with memoryview(piece) as view:
            for at in range(0, len(view), RECORD):
                yield view[at : at + RECORD]
    if joined:
        yield joined[0] if len(joined) == 1 else b"".join(joined)
