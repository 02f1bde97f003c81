"""What went in and out, as integers that only grow: per topic, and for the whole broker.

Owns the numbers of Kafka's BrokerTopicMetrics. Counted on the loop alone, so that a number has one writer and no lock;
one addition for a batch or for a partition of a fetch, never for a record: how many records a batch has is its header's
word. Whoever reads them reads on the loop as well (broker/metrics.py).

A partition holds the numbers of its topic. Topics of which nothing is here any more are folded into ``gone``: the sums
of the broker never go back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from holdfast.model.errors import (
    CorruptRecordError,
    FencedLeaderEpochError,
    HoldfastError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    ReplicaNotAvailableError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)

_ELSEWHERE: Final = (
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
    FencedLeaderEpochError,
    UnknownLeaderEpochError,
    ReplicaNotAvailableError,
)
"""Where a client is only told to ask somebody else, or again: no failure of this broker."""
_TOO_LARGE: Final = (MessageTooLargeError, RecordListTooLargeError)
_NO_FAILED_PRODUCE: Final = (*_ELSEWHERE, *_TOO_LARGE, CorruptRecordError)
_NO_FAILED_FETCH: Final = (*_ELSEWHERE, OffsetOutOfRangeError)
_FEW_TOPICS: Final = 64


class TopicCounts(NamedTuple):
    """A TopicTraffic as it was at a moment; its attributes say what is counted."""

    bytes_in: int = 0
    bytes_out: int = 0
    messages_in: int = 0
    bytes_rejected: int = 0
    produces: int = 0
    fetches: int = 0
    failed_produces: int = 0
    failed_fetches: int = 0


NO_COUNTS: Final = TopicCounts()


class TopicTraffic:
    """The numbers of one topic on this broker. Bytes are those of batches as they stand in the log."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        """Appended here as leader."""
        self.bytes_out = 0
        """Sent to consumers."""
        self.messages_in = 0
        self.bytes_rejected = 0
        """Of batches that are larger than the topic allows."""
        self.produces = 0
        """Partitions of Produce requests, and appends of coordinators."""
        self.fetches = 0
        """Partitions of Fetch requests that were looked at, of consumers and of followers."""
        self.failed_produces = 0
        self.failed_fetches = 0

    def produce_failed(self, error: HoldfastError, size: int) -> None:
        """An append of ``size`` bytes was refused, or not answered in time."""
        if isinstance(error, _TOO_LARGE):
            self.bytes_rejected += size
        if not isinstance(error, _NO_FAILED_PRODUCE):
            self.failed_produces += 1

    def fetch_failed(self, error: HoldfastError) -> None:
        """A partition could not be read."""
        if not isinstance(error, _NO_FAILED_FETCH):
            self.failed_fetches += 1

    def add(self, other: TopicTraffic) -> None:
        """Count what ``other`` has counted."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def now(self) -> TopicCounts:
        """The numbers as they are."""
        return TopicCounts(
            self.bytes_in, self.bytes_out, self.messages_in, self.bytes_rejected,
            self.produces, self.fetches, self.failed_produces, self.failed_fetches,
        )  # fmt: skip


class Traffic:
    """The numbers of one broker. ``ticks``: nanoseconds that only grow, for how long an append waits; ``hosted``: the
    topics that have a partition here."""

    __slots__ = (
        "_prune_at",
        "gone",
        "hosted",
        "isr_expands",
        "isr_shrinks",
        "isr_updates_failed",
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "replication_bytes_in",
        "replication_bytes_out",
        "ticks",
        "topics",
    )

    def __init__(self, ticks: Callable[[], int], hosted: Callable[[], Iterable[str]] = lambda: ()) -> None:
        self.ticks = ticks
        self.hosted = hosted
        self.topics: dict[str, TopicTraffic] = {}
        self.gone = TopicTraffic()
        """Of topics that are not here any more."""
        self.replication_bytes_in = 0
        """Appended here as follower."""
        self.replication_bytes_out = 0
        """Sent to followers."""
        self.reassignment_bytes_in = 0
        """With the one below: those of them that are for replicas on their way to another broker."""
        self.reassignment_bytes_out = 0
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.isr_updates_failed = 0
        """Proposals that the controller refused."""
        self._prune_at = _FEW_TOPICS

    def of(self, topic: str) -> TopicTraffic:
        """The numbers of a topic, from 0 where it is new here."""
        found = self.topics.get(topic)
        if found is None:
            if len(self.topics) >= self._prune_at:
                self.keep(set(self.hosted()))
                self._prune_at = max(_FEW_TOPICS, 2 * len(self.topics))
            found = self.topics[topic] = TopicTraffic()
        return found

    def keep(self, topics: Collection[str]) -> None:
        """Nothing is here any more of any but these."""
        for name in [name for name in self.topics if name not in topics]:
            self.gone.add(self.topics.pop(name))

    def isr_changed(self, before: int, after: int) -> None:
        """A partition that is led here has had so many in sync, and has so many now."""
        if after < before:
            self.isr_shrinks += 1
        elif after > before:
            self.isr_expands += 1
