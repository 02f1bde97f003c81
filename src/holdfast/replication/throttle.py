"""Limits of bytes per second: the rate itself, and which replicas it holds for (KIP-73).

Pure: the clock comes in. A rate is paid for afterwards: whoever finds it free takes a piece, at least one batch, and
everybody waits until the time for that has passed. So it is kept on the average, whatever the size of a batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from holdfast.model.config_key import LONG_MAX
from holdfast.model.types import BrokerId, TopicPartition

PIECES_PER_S = 10
"""A piece is what the rate allows in this part of a second, so that it is kept evenly."""
LOOK_AGAIN_MS = 1000
"""The longest wait that is named: another rate may hold by then."""
EVERY_REPLICA = "*"


class ThrottleSide(Enum):
    """Which end of a fetch; the words of the configuration keys."""

    LEADER = "leader"
    FOLLOWER = "follower"


class ByteRate:
    """So many bytes per second, for all that ask together. A late start is made up for by one piece at most."""

    __slots__ = ("_debt", "_seen_ms", "rate")

    def __init__(self, rate: int = LONG_MAX) -> None:
        self.rate = rate
        self._debt = 0.0
        """Bytes that were taken and that the time has not paid for yet; below zero is a credit."""
        self._seen_ms: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.rate < LONG_MAX

    @property
    def piece_bytes(self) -> int:
        """What is taken at a time, at most."""
        return max(1, self.rate // PIECES_PER_S)

    def set(self, rate: int, now_ms: int) -> None:
        """Another rate from now on; what was taken before is paid for at the new one."""
        if rate != self.rate:
            self._settle(now_ms)
            self._debt = max(0.0, self._debt)
            self.rate = rate

    def wait_ms(self, now_ms: int) -> int:
        """When to ask again, in a second at most; 0: the next piece may be taken now."""
        if self.rate <= 0:
            return LOOK_AGAIN_MS
        self._settle(now_ms)
        return 0 if self._debt <= 0 else min(LOOK_AGAIN_MS, int(self._debt * 1000 / self.rate) + 1)

    def spent(self, size: int, now_ms: int) -> None:
        """So many bytes were taken."""
        if self.is_limited:
            self._settle(now_ms)
            self._debt += size

    def _settle(self, now_ms: int) -> None:
        if self._seen_ms is not None and now_ms > self._seen_ms and self._debt:
            self._debt -= self.rate * (now_ms - self._seen_ms) / 1000
            self._debt = max(self._debt, -float(self.piece_bytes))
        self._seen_ms = now_ms


class Throttle:
    """One side's limit of replication on one broker: a rate, and the partitions that it holds for."""

    __slots__ = ("_topics", "active", "rate")

    def __init__(self) -> None:
        self.rate = ByteRate()
        self._topics: Mapping[str, Collection[int] | None] = {}
        """By topic; None: every partition of it."""
        self.active = False
        """Whether anything is limited. Asked on every fetch; all else only if it is so."""

    def configure(self, rate: int, topics: Mapping[str, Collection[int] | None], now_ms: int) -> None:
        """What holds from now on."""
        self.rate.set(rate, now_ms)
        self._topics = topics
        self.active = self.rate.is_limited and bool(topics)

    def names(self, tp: TopicPartition) -> bool:
        """Whether the limit is for this partition."""
        if tp.topic not in self._topics:
            return False
        partitions = self._topics[tp.topic]
        return partitions is None or tp.partition in partitions


def throttled_partitions(entries: Collection[str], broker_id: BrokerId) -> Collection[int] | None:
    """The partitions that a value of (leader|follower).replication.throttled.replicas names on this broker, None
    being all of them. ``entries`` are ``partition:broker`` or ``*``; they were checked when they were set."""
    if EVERY_REPLICA in entries:
        return None
    pairs = (entry.partition(":") for entry in entries)
    return frozenset(int(number) for number, _, broker in pairs if int(broker) == broker_id)
