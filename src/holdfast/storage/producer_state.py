"""What one log knows of its producers, so that a batch sent twice is written once, and a transaction is whole (KIP-98).

Owns, per producer id: the epoch, the last five batches, the open transaction's first offset; which transactions are
open, and which have ended with a marker that may not be on all replicas; and the ``.snapshot`` files that keep the
first (Kafka's format, version 1). Checks and updates; never appends. Which answer a wrong sequence gets is as Kafka 4.3
was recorded (SPEC R-46, C22):

    same epoch and sequence range as one of the last five batches   duplicate: answered with its offset
    sequence follows the last one (2**31-1 is followed by 0)        accepted
    nothing known of the producer id                                accepted, whatever the sequence
    newer epoch, or no batch of this one                            accepted if it starts at 0
    older epoch                                                     InvalidProducerEpochError
    not of the transaction that the producer has open               InvalidTxnStateError
    anything else                                                   OutOfOrderSequenceError

A marker has no sequence. Its epoch is the transaction's, or with transaction version 2 a newer one: the coordinator has
bumped it, and an older batch or marker cannot come after (KIP-890).
"""

import logging
from dataclasses import dataclass, field, replace
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from crc32c import crc32c

from holdfast.model.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from holdfast.model.types import Offset, TimestampMs
from holdfast.records.batch import BatchHeader
from holdfast.records.markers import EndMarker
from holdfast.storage.txn_index import AbortedTxn

log = logging.getLogger(__name__)

BATCHES_KEPT: Final = 5
ENDED_KEPT: Final = 1_000
"""Ended transactions whose markers may not be on all replicas; older ones count as one."""
_STRICT_EPOCH: Final = 2
"""First transaction version whose markers have a newer epoch than the transaction."""
_MAX_SEQUENCE: Final = 2**31 - 1
_SNAPSHOT_VERSION: Final = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")


class WrittenBatch(NamedTuple):
    """A batch that a producer wrote: what is needed to know it again."""

    first_sequence: int
    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: TimestampMs

    @property
    def base_offset(self) -> Offset:
        return self.last_offset - self.offset_delta


@dataclass(slots=True, kw_only=True)
class ProducerEntry:
    """One producer. ``last_timestamp`` is what expiry goes by."""

    epoch: int
    batches: list[WrittenBatch] = field(default_factory=list)
    last_timestamp: TimestampMs = -1
    coordinator_epoch: int | None = None
    txn_first_offset: Offset | None = None


class EndedTxn(NamedTuple):
    """A transaction whose marker is in the log."""

    first_offset: Offset
    last_offset: Offset
    """Of the marker."""


class Unstable(NamedTuple):
    """What a reader of committed records must not read yet, beside what is not committed. Never changed."""

    first_open: Offset | None
    """Where the oldest open transaction begins."""
    ended: tuple[EndedTxn, ...]
    """Count until the high watermark has passed their markers."""


class ProducerStates:
    """The producers of one log, up to ``end_offset``. Belongs to the dir's thread, but for ``is_open`` and
    ``committed``: up to there all is committed, as the loop says it."""

    __slots__ = ("_ended", "_open", "_unstable", "committed", "end_offset", "entries")

    def __init__(self, end_offset: Offset = 0) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = end_offset
        self.committed: Offset = 0
        self._open: dict[int, Offset] = {}
        """By producer id, in the order in which they began."""
        self._ended: list[EndedTxn] = []
        self._unstable: Unstable | None = None

    def copy(self) -> "ProducerStates":
        """As they are now; for another thread."""
        other = ProducerStates(self.end_offset)
        other.entries = {pid: replace(e, batches=list(e.batches)) for pid, e in list(self.entries.items())}
        other.committed, other._open, other._ended = self.committed, dict(self._open), list(self._ended)
        other._look()
        return other

    def is_late(self, before_ms: TimestampMs) -> bool:
        """Whether a transaction is open whose producer wrote nothing since then. On any thread."""
        found = [self.entries.get(pid) for pid in list(self._open)]
        return any(e is not None and 0 < e.last_timestamp < before_ms for e in found)

    # -- checks ----------------------------------------------------------------------------------------------

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open here, in this epoch. On any thread: it may be over at once."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.txn_first_offset is not None and entry.epoch == epoch

    def has_written(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether the producer has written that far in this epoch. On any thread."""
        entry = self.entries.get(producer_id)
        batches = entry.batches[-1:] if entry is not None and entry.epoch == epoch else ()
        return any(((batch.last_sequence - sequence) & _MAX_SEQUENCE) <= _MAX_SEQUENCE // 2 for batch in batches)

    def check(
        self, header: BatchHeader, *, sequenced: bool = True, verified: bool = True, from_zero: bool = False
    ) -> WrittenBatch | None:
        """Whether the batch may be appended: None for yes, the earlier batch if it is a duplicate, or an error.

        ``sequenced``: a client's; those of coordinators have no sequences. ``verified``: its coordinator has said that
        the partition is in the producer's transaction; else it has to be open here if the batch is of one.
        ``from_zero``: a producer that is not known begins with sequence 0.
        """
        entry = self.entries.get(header.producer_id)
        if entry is not None:
            if header.producer_epoch < entry.epoch:
                raise InvalidProducerEpochError(
                    f"producer {header.producer_id}: epoch {header.producer_epoch}, expected {entry.epoch} or newer"
                )
            if sequenced:
                written = self._check_sequence(entry, header)
                if written is not None:
                    return written
            if entry.txn_first_offset is not None:
                if not header.is_transactional:
                    raise InvalidTxnStateError(
                        f"producer {header.producer_id}: a batch of no transaction, expected one of that which is open"
                    )
                verified = verified or header.producer_epoch == entry.epoch
        elif from_zero and header.base_sequence > 0:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id}: sequence {header.base_sequence} of a producer that is not known, "
                "expected 0"
            )
        if not verified and header.is_transactional:
            raise InvalidTxnStateError(
                f"producer {header.producer_id}: its transaction is over, or never had this partition"
            )
        return None

    @staticmethod
    def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> WrittenBatch | None:
        first, last = header.base_sequence, header.last_sequence
        if header.producer_epoch != entry.epoch:
            if first != 0:
                raise OutOfOrderSequenceError(
                    f"producer {header.producer_id}: sequence {first} in new epoch {header.producer_epoch}, expected 0"
                )
            return None
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        expected = (entry.batches[-1].last_sequence + 1) & _MAX_SEQUENCE if entry.batches else 0
        if first != expected:
            raise OutOfOrderSequenceError(f"producer {header.producer_id}: sequence {first}, expected {expected}")
        return None

    def check_marker(self, header: BatchHeader, marker: EndMarker, txn_version: int) -> None:
        """Whether the marker may be appended. InvalidProducerEpochError, TransactionCoordinatorFencedError.

        One that is sent again, with the epoch of the one that ended the transaction, is fine (KAFKA-19999)."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        epoch, known = header.producer_epoch, entry.epoch
        is_again = epoch == known and entry.txn_first_offset is None
        if epoch < known or (epoch == known and txn_version >= _STRICT_EPOCH and not is_again):
            raise InvalidProducerEpochError(
                f"producer {header.producer_id}: a marker of epoch {epoch} and transaction version {txn_version}, "
                f"expected {known} or newer"
            )
        if entry.coordinator_epoch is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"producer {header.producer_id}: coordinator epoch {marker.coordinator_epoch}, "
                f"expected {entry.coordinator_epoch} or newer"
            )

    # -- changes ---------------------------------------------------------------------------------------------

    def update(self, header: BatchHeader, base_offset: Offset, marker: EndMarker | None = None) -> AbortedTxn | None:
        """The batch is in the log, from ``base_offset`` on. The transaction that it aborts, if it has records.

        A control batch without ``marker`` says nothing (records/markers.py)."""
        if header.is_control and marker is None:
            return None
        pid = header.producer_id
        entry = self.entries.get(pid)
        if entry is None:
            entry = self.entries[pid] = ProducerEntry(epoch=header.producer_epoch)
        elif header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = header.max_timestamp
        if marker is not None:
            return self._end(pid, entry, base_offset, marker)
        batch = WrittenBatch(
            header.base_sequence,
            header.last_sequence,
            base_offset + header.last_offset_delta,
            header.last_offset_delta,
            header.max_timestamp,
        )
        entry.batches.append(batch)
        if len(entry.batches) > BATCHES_KEPT:
            del entry.batches[0]
        if header.is_transactional and entry.txn_first_offset is None:
            entry.txn_first_offset = self._open[pid] = base_offset
            self._look()
        return None

    def _end(self, pid: int, entry: ProducerEntry, offset: Offset, marker: EndMarker) -> AbortedTxn | None:
        first = entry.txn_first_offset
        entry.coordinator_epoch, entry.txn_first_offset = marker.coordinator_epoch, None
        if first is None:
            return None
        self._open.pop(pid, None)
        self._ended.append(EndedTxn(first, offset))
        self._look()
        if marker.is_commit:
            return None
        open_now = self.first_open_transaction()
        return AbortedTxn(pid, first, offset, offset + 1 if open_now is None else open_now)

    def _look(self) -> None:
        """Something was opened or ended."""
        ended = self._ended
        if ended and ended[0].last_offset < self.committed:
            ended = self._ended = [txn for txn in ended if txn.last_offset >= self.committed]
        if len(ended) > ENDED_KEPT:
            oldest, next_one = ended[0], ended[1]
            ended[:2] = [EndedTxn(min(oldest.first_offset, next_one.first_offset), next_one.last_offset)]
        first = self.first_open_transaction()
        self._unstable = None if first is None and not ended else Unstable(first, tuple(ended))

    @property
    def unstable(self) -> Unstable | None:
        """None: readers of committed records may read all that is committed."""
        found = self._unstable
        if found is not None and found.ended and found.ended[-1].last_offset < self.committed:
            self._look()
            return self._unstable
        return found

    def expire(self, now_ms: TimestampMs, after_ms: int) -> int:
        """Forget producers that wrote nothing for ``after_ms`` and have no open transaction; how many."""
        old = [
            pid
            for pid, e in self.entries.items()
            if e.txn_first_offset is None and now_ms - e.last_timestamp >= after_ms
        ]
        for pid in old:
            del self.entries[pid]
        return len(old)

    def first_open_transaction(self) -> Offset | None:
        """The first offset of the oldest open transaction: where a read-committed reader stops."""
        return next(iter(self._open.values()), None)

    def clear(self, end_offset: Offset) -> None:
        """Nothing is known; the log is at ``end_offset``."""
        self.entries.clear()
        self._open.clear()
        self._ended = []
        self.end_offset = end_offset
        self._look()

    def encode(self) -> bytes:
        """A snapshot: of each producer its last batch only, as Kafka keeps it."""
        rows = []
        for pid, e in self.entries.items():
            last = e.batches[-1] if e.batches else None
            rows.append(
                _ENTRY.pack(
                    pid,
                    e.epoch,
                    last.last_sequence if last else -1,
                    last.last_offset if last else -1,
                    last.offset_delta if last else 0,
                    e.last_timestamp,
                    -1 if e.coordinator_epoch is None else e.coordinator_epoch,
                    -1 if e.txn_first_offset is None else e.txn_first_offset,
                )
            )
        body = _COUNT.pack(len(rows)) + b"".join(rows)
        return _HEAD.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, data: bytes, end_offset: Offset) -> "ProducerStates | None":
        """The producers in a snapshot; None if it is torn or not one."""
        states = cls(end_offset)
        try:
            version, crc = _HEAD.unpack_from(data)
            (count,) = _COUNT.unpack_from(data, _HEAD.size)
        except struct_error:
            return None
        body = data[_HEAD.size :]
        if version != _SNAPSHOT_VERSION or crc32c(body) != crc or len(body) != _COUNT.size + count * _ENTRY.size:
            return None
        for pid, epoch, sequence, last_offset, delta, timestamp, coordinator, txn in _ENTRY.iter_unpack(
            body[_COUNT.size :]
        ):
            entry = ProducerEntry(
                epoch=epoch,
                last_timestamp=timestamp,
                coordinator_epoch=None if coordinator < 0 else coordinator,
                txn_first_offset=None if txn < 0 else txn,
            )
            if last_offset >= 0:
                first = (sequence - delta) & _MAX_SEQUENCE
                entry.batches.append(WrittenBatch(first, sequence, last_offset, delta, timestamp))
            states.entries[pid] = entry
        opened = [(e.txn_first_offset, pid) for pid, e in states.entries.items() if e.txn_first_offset is not None]
        states._open = {pid: first for first, pid in sorted(opened)}
        states._look()
        return states
