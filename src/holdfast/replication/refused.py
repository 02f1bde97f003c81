"""Batches of idempotent producers that were refused before they were in the log, for the sake of those behind them.

A producer sends several batches without waiting. When the first is refused for a passing reason (the partition does
not lead yet, too few replicas are in sync) and the reason passes before the second one comes, the second one has a
sequence that does not follow. OUT_OF_ORDER_SEQUENCE_NUMBER would be true and harmful: librdkafka then begins a new
epoch of the producer, and batches of other partitions whose fate it does not know are written twice. So the second
batch is refused for the reason of the first: both are retried, in order. Apache Kafka does not do this.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.model.errors import (
    CorruptRecordError,
    HoldfastError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    StorageError,
)
from holdfast.records.batch import BatchHeader, parse_header

PASSING = (NotLeaderOrFollowerError, NotEnoughReplicasError, StorageError)
"""Errors after which a producer sends the same batch again."""
KEPT_MS = 60_000
"""For what was sent behind it already, and was held back by a network that was cut in one direction: what waits to be
sent again comes up to twice as late as the cut was long. Who does not retry within this time hears of the gap."""
MAX_PRODUCERS = 1_000


class _Refusal(NamedTuple):
    epoch: int
    first: int
    """The lowest sequence that is missing."""
    last: int
    """The first sequence of the last batch that was refused."""
    error: HoldfastError
    at_ms: int
    """When a batch was refused for a reason of its own, the last time."""


class RefusedBatches:
    """The refused batches of each producer that have not come again, in one partition. False while there is none."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, _Refusal] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add(self, batches: bytearray | memoryview, error: HoldfastError, now_ms: int) -> None:
        """These were not appended."""
        header = _header(batches) if isinstance(error, PASSING) else None
        if header is None:
            return
        first = last = header.base_sequence
        known = self._by_producer.pop(header.producer_id, None)
        if known is not None and known.epoch == header.producer_epoch:
            first, last = min(first, known.first), max(last, known.last)
            if error is known.error:  # told as an explanation
                now_ms = known.at_ms
        elif len(self._by_producer) >= MAX_PRODUCERS:
            del self._by_producer[next(iter(self._by_producer))]
        self._by_producer[header.producer_id] = _Refusal(header.producer_epoch, first, last, error, now_ms)

    def explain(self, batches: bytearray | memoryview, error: HoldfastError, now_ms: int) -> HoldfastError:
        """What to tell of batches that the log did not take: ``error``, or why the one before was refused."""
        header = _header(batches) if isinstance(error, OutOfOrderSequenceError) else None
        if header is None:
            return error
        known = self._by_producer.get(header.producer_id)
        if (
            known is None
            or known.epoch != header.producer_epoch
            or header.base_sequence <= known.first
            or now_ms - known.at_ms > KEPT_MS
        ):
            return error
        return known.error

    def appended(self, batches: bytearray | memoryview) -> None:
        """These are in the log: a gap before them is filled."""
        header = _header(batches)
        known = None if header is None else self._by_producer.get(header.producer_id)
        if header is None or known is None:
            return
        at = header.producer_epoch, header.base_sequence
        if at >= (known.epoch, known.last):
            del self._by_producer[header.producer_id]
        elif at >= (known.epoch, known.first):  # the next one that was refused is missing still
            self._by_producer[header.producer_id] = known._replace(first=header.last_sequence + 1)


def _header(batches: bytearray | memoryview) -> BatchHeader | None:
    """Of the first batch, if an idempotent producer made it (its batches come one at a time)."""
    try:
        header = parse_header(batches)
    except CorruptRecordError:
        return None
    return header if header.producer_id >= 0 else None
