"""One partition of a coordinator's topic as the place where its decisions become durable.

Owns how records become batches and what a failed append means to clients. Never reads. After ``close`` (this
broker no longer leads the partition) every completion, also of what was under way, says NotCoordinatorError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from holdfast.model import errors as e
from holdfast.model import group_errors as g
from holdfast.model.types import TimestampMs
from holdfast.records.batch import NO_PRODUCER_ID
from holdfast.records.record import Record, encode_batch

_RECORD_OVERHEAD = 32


class CoordinatorLog(Protocol):
    """The partitions of a coordinator's topic that this broker leads."""

    def append(self, partition: int, batch: bytearray, done: Callable[[e.HoldfastError | None], None], /) -> None:
        """Append with acks=all. ``done`` is called once, at once or later; in the order of the appends."""
        ...


class Entry(NamedTuple):
    """One record; no value is a tombstone."""

    key: bytes
    value: bytes | None


class Written(NamedTuple):
    """How a write ended."""

    error: e.HoldfastError | None
    """What to tell the client."""
    is_in_log: bool
    """The records are in our log, although perhaps not yet on enough replicas: what is in memory follows them."""


Done: TypeAlias = Callable[[Written], None]
Append: TypeAlias = Callable[[Sequence[Entry], Callable[[e.HoldfastError | None], None]], None]


class Journal:
    """See the module's docstring. ``noun``: what is coordinated, for errors. ``too_large``: what a client is told whose
    record the topic does not take. ``base_sequence``: of the batches."""

    __slots__ = ("_base_sequence", "_log", "_max_batch_bytes", "_noun", "_too_large", "is_open", "partition")

    def __init__(
        self,
        log: CoordinatorLog,
        partition: int,
        max_batch_bytes: int,
        *,
        noun: str = "group",
        too_large: type[e.HoldfastError] = e.InvalidCommitOffsetSizeError,
        base_sequence: int = 0,
    ) -> None:
        self._log = log
        self.partition = partition
        self._max_batch_bytes = max_batch_bytes
        self._noun = noun
        self._too_large = too_large
        self._base_sequence = base_sequence
        self.is_open = True

    def close(self) -> None:
        """Nothing is written from now on."""
        self.is_open = False

    def write(self, entries: Sequence[Entry], now_ms: TimestampMs, done: Done) -> None:
        """Append the entries, in batches that every log takes; ``done`` when the last one is answered."""

        def append(piece: Sequence[Entry], one: Callable[[e.HoldfastError | None], None]) -> None:
            self._log.append(self.partition, encode_entries(piece, now_ms, base_sequence=self._base_sequence), one)

        self.write_pieces(entries, append, done)

    def write_pieces(self, entries: Sequence[Entry], append: Append, done: Done) -> None:
        """The same by ``append``, which gets what goes into one batch."""
        pieces = self._pieces(entries)
        left = len(pieces)
        worst: Written | None = None

        def one(error: e.HoldfastError | None) -> None:
            nonlocal left, worst
            left -= 1
            outcome = self._outcome(error)
            if worst is None or worst.error is None or (worst.is_in_log and not outcome.is_in_log):
                worst = outcome
            if left == 0:
                done(worst)

        for piece in pieces:
            append(piece, one)

    def _pieces(self, entries: Sequence[Entry]) -> list[list[Entry]]:
        pieces: list[list[Entry]] = [[]]
        size = 0
        for entry in entries:
            own = len(entry.key) + len(entry.value or b"") + _RECORD_OVERHEAD
            if pieces[-1] and size + own > self._max_batch_bytes:
                pieces.append([])
                size = 0
            pieces[-1].append(entry)
            size += own
        return pieces

    def _outcome(self, error: e.HoldfastError | None) -> Written:
        if not self.is_open:
            return Written(g.NotCoordinatorError(f"this broker no longer coordinates the {self._noun}"), False)
        match error:
            case None:
                return Written(None, True)
            case e.RequestTimedOutError() | e.NotEnoughReplicasAfterAppendError():
                return Written(g.CoordinatorNotAvailableError(str(error)), True)
            case (
                e.UnknownTopicOrPartitionError()
                | e.NotEnoughReplicasError()
                | e.ReplicaNotAvailableError()
                | e.LeaderNotAvailableError()
            ):
                return Written(g.CoordinatorNotAvailableError(str(error)), False)
            case e.NotLeaderOrFollowerError() | e.StorageError():
                return Written(g.NotCoordinatorError(str(error)), False)
            case e.MessageTooLargeError() | e.RecordListTooLargeError():
                return Written(self._too_large(str(error)), False)
            case (
                e.InvalidProducerEpochError()
                | e.InvalidTxnStateError()
                | e.TransactionAbortableError()
                | e.ConcurrentTransactionsError()
                | e.InvalidProducerIdMappingError()
                | e.InvalidRequestError()
            ):
                return Written(error, False)
        return Written(e.UnknownServerError(str(error)), False)


def encode_entries(
    entries: Sequence[Entry],
    now_ms: TimestampMs,
    *,
    base_sequence: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
) -> bytearray:
    """A batch as Kafka's coordinators write it: uncompressed; groups' have a first sequence of 0, those with a producer
    are of its transaction."""
    return encode_batch(
        [Record(offset=i, timestamp=now_ms, key=k, value=v, headers=()) for i, (k, v) in enumerate(entries)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=producer_id != NO_PRODUCER_ID,
    )
