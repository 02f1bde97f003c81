"""A channel whose bytes cost somebody's time: of a connection whose owner has a quota of it (quotas.py).

What a request takes is measured where it is handled; with TLS and small requests more than half of the broker's time
goes into reading and writing them. Files that the kernel sends by itself are not counted.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from holdfast.broker.channel import Channel, Segment


class TimedChannel:
    """``channel``, and ``spent`` hears the seconds of each call by ``clock_s``."""

    __slots__ = ("_channel", "_clock_s", "_spent", "takes_files")

    def __init__(self, channel: Channel, spent: Callable[[float], None], clock_s: Callable[[], float]) -> None:
        self._channel, self._spent, self._clock_s = channel, spent, clock_s
        self.takes_files = channel.takes_files

    @property
    def sock(self) -> socket.socket:
        return self._channel.sock

    @property
    def has_more(self) -> bool:
        return self._channel.has_more

    def receive(self, buffer: memoryview, /) -> int:
        began_s = self._clock_s()
        try:
            return self._channel.receive(buffer)
        finally:
            self._spent(self._clock_s() - began_s)

    def send(self, segments: Sequence[Segment]) -> int:
        began_s = self._clock_s()
        try:
            return self._channel.send(segments)
        finally:
            self._spent(self._clock_s() - began_s)

    def close(self) -> None:
        self._channel.close()
