"""Many connections of one that means no good: each sends what its kind begins with, and a byte a second from there on.

``python -m tests.system.slow_connections KIND HOST:PORT COUNT LIMIT_S``: a line "open" when all are there; then, when
all were closed by the broker or the time is up, a line of JSON: how many were closed, and when the first and the last
one was, in seconds since it was opened. A process of its own: it has more files open than a test may have.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass

from holdfast.protocol.framing import encode_request_raw

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64))
"""How a ClientHello of 512 bytes begins."""
HANDSHAKE = encode_request_raw(17, 1, 1, "slow", struct.pack(">h", 13) + b"SCRAM-SHA-512")
BEGINNINGS = {
    "frame": struct.pack(">i", 100 << 20),
    "tls": HELLO[:5],
    "sasl": HANDSHAKE[:4],
    "idle": b"",
    "flood": struct.pack(">i", 512 << 10) + HANDSHAKE[4:] + bytes(500_000),
    "answers": encode_request_raw(18, 0, 1, "slow", b"") * 5000,
}
"""The last two are sent as fast as they are taken: nearly all of the largest request of a stranger, and small ones
whose answers are never read."""
BYTES = {"frame": bytes(1000), "tls": HELLO[5:], "sasl": HANDSHAKE[4:]}
NEVER_READS = "answers"
BATCH = 100
"""Opened before the ones that are there are looked after."""
ESTABLISHED = 1


@dataclass(slots=True)
class Slow:
    """One of them."""

    sock: socket.socket
    opened_s: float
    next_s: float
    beginning: memoryview
    """What is not sent yet."""
    sent: int = 0


class Crowd:
    """All of them."""

    def __init__(self, kind: str, address: tuple[str, int]) -> None:
        self.kind = kind
        self.address = address
        self.selector = selectors.DefaultSelector()
        self.there: dict[socket.socket, Slow] = {}
        self.lasted: list[float] = []
        self._reads = 0 if kind == NEVER_READS else selectors.EVENT_READ

    def open(self) -> None:
        sock = socket.create_connection(self.address, timeout=30)
        now_s = time.monotonic()
        sock.setblocking(False)
        slow = Slow(sock, now_s, now_s + 1, memoryview(BEGINNINGS[self.kind]))
        self.there[sock] = slow
        self._begin(slow, is_registered=False)

    def look(self, for_s: float) -> None:
        """Send what is due, and see who was closed."""
        for key, events in self.selector.select(for_s):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if events & selectors.EVENT_READ and self._reads and self._is_over(sock):
                self._closed(sock)
            elif events & selectors.EVENT_WRITE:
                self._begin(self.there[sock], is_registered=True)
        now_s = time.monotonic()
        for slow in [each for each in self.there.values() if each.next_s <= now_s]:
            slow.next_s += 1 if self._reads else 0.1
            data = BYTES.get(self.kind, b"")[slow.sent : slow.sent + 1]
            slow.sent += 1
            if data:
                self._send(slow, data)
            elif not self._reads and slow.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != ESTABLISHED:
                self._closed(slow.sock)

    @staticmethod
    def _is_over(sock: socket.socket) -> bool:
        try:
            return not sock.recv(4096)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _begin(self, slow: Slow, *, is_registered: bool) -> None:
        if len(slow.beginning):
            slow.beginning = slow.beginning[self._send(slow, slow.beginning) :]
        if slow.sock not in self.there:
            return
        events = self._reads | (selectors.EVENT_WRITE if len(slow.beginning) else 0)
        if is_registered and events:
            self.selector.modify(slow.sock, events)
        elif is_registered:
            self.selector.unregister(slow.sock)
        elif events:
            self.selector.register(slow.sock, events)

    def _send(self, slow: Slow, data: bytes | memoryview) -> int:
        try:
            return slow.sock.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._closed(slow.sock)
            return 0

    def _closed(self, sock: socket.socket) -> None:
        slow = self.there.pop(sock, None)
        if slow is not None:
            self.lasted.append(time.monotonic() - slow.opened_s)
            if sock in self.selector.get_map():
                self.selector.unregister(sock)
            sock.close()


def main(kind: str, address: str, count: int, limit_s: float) -> None:
    host, _, port = address.rpartition(":")
    crowd = Crowd(kind, (host, int(port)))
    for _ in range(0, count, BATCH):
        for _ in range(BATCH):
            crowd.open()
        crowd.look(0.02)
    print("open", flush=True)
    until_s = time.monotonic() + limit_s
    while crowd.there and time.monotonic() < until_s:
        crowd.look(0.05)
    lasted = sorted(crowd.lasted) or [0.0]
    print(json.dumps({"closed": len(crowd.lasted), "first_s": lasted[0], "last_s": lasted[-1]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
