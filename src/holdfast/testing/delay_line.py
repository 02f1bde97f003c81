"""A program: packets of some addresses arrive later. It runs in the network namespace of a router (testing/network.py).

Owns a TUN device, whose name it is given: what the router sends there comes back out of it after the delay of the
packet's source plus that of its destination. In order for each such sum; nothing is changed or lost up to LIMIT bytes
that are on their way at a time, and behind those it is dropped, as by any link. Orders come as lines of standard
input, ``ADDRESS SECONDS``, each answered by ``ok``; the end of that input is the end of the program.

It imports nothing of this package, so that it starts in a moment.
"""

import fcntl
import heapq
import os
import select
import socket
import struct
import sys
import time

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
OFFLOADS = 0x01 | 0x02 | 0x04
"""Checksums, and TCP of both kinds: packets of up to 64 KB pass as they are."""
HEADER = 10
"""Bytes of the virtio header in front of each packet, which is passed on as well."""
LIMIT = 64 << 20


def opened(name: str) -> int:
    """The TUN device, made in the network namespace of this process."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH14x", name.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(fd, TUNSETOFFLOAD, OFFLOADS)
    return fd


class DelayLine:
    """``delays``: seconds by address. What is on its way is a heap of (when it is due, number, packet)."""

    def __init__(self, tun: int, limit: int = LIMIT) -> None:
        self._tun, self._limit = tun, limit
        self.delays: dict[bytes, float] = {}
        self.on_its_way = 0
        """Bytes."""
        self._due: list[tuple[float, int, bytes]] = []
        self._number = 0

    def take(self) -> None:
        """All packets that have come."""
        while True:
            try:
                packet = os.read(self._tun, 1 << 17)
            except BlockingIOError:
                return
            if self.on_its_way > self._limit or packet[HEADER] >> 4 != 4:
                continue
            source, target = packet[HEADER + 12 : HEADER + 16], packet[HEADER + 16 : HEADER + 20]
            wait_s = self.delays.get(source, 0.0) + self.delays.get(target, 0.0)
            self._number += 1
            self.on_its_way += len(packet)
            heapq.heappush(self._due, (time.monotonic() + wait_s, self._number, packet))

    def give(self) -> float | None:
        """Pass on what is due; seconds until the next, None when nothing is on its way."""
        while self._due:
            left_s = self._due[0][0] - time.monotonic()
            if left_s > 0:
                return left_s
            packet = heapq.heappop(self._due)[2]
            self.on_its_way -= len(packet)
            try:
                os.write(self._tun, packet)
            except OSError:
                continue  # the device is down, or its queue is full: lost, as on any link
        return None


def main(name: str) -> None:
    """Until the end of standard input."""
    line = DelayLine(opened(name))
    print("ready", flush=True)
    left = b""
    while True:
        readable, _, _ = select.select([line._tun, 0], [], [], line.give())
        line.take()
        if 0 in readable:
            part = os.read(0, 4096)
            if not part:
                return
            *orders, left = (left + part).split(b"\n")
            for order in orders:
                address, seconds = order.split()
                line.delays[socket.inet_aton(address.decode())] = float(seconds)
                print("ok", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
