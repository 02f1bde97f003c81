"""What one log knows of its idempotent producers, so that a batch sent twice is written once (KIP-98).

Owns, per producer id: the epoch, the last five batches, the open transaction's first offset; and the ``.snapshot``
files that keep it (Kafka's format, version 1). Checks and updates; never appends. Which answer a wrong sequence
gets is as Kafka 4.3 was recorded (SPEC R-46, C22):

    same epoch and sequence range as one of the last five batches   duplicate: answered with its offset
    sequence follows the last one (2**31-1 is followed by 0)        accepted
    nothing known of the producer id                                accepted, whatever the sequence
    newer epoch                                                     accepted if it starts at 0
    older epoch                                                     InvalidProducerEpochError
    anything else                                                   OutOfOrderSequenceError
"""

import logging
from dataclasses import dataclass, field
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from crc32c import crc32c

from holdfast.model.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from holdfast.model.types import Offset, TimestampMs
from holdfast.records.batch import BatchHeader

log = logging.getLogger(__name__)

BATCHES_KEPT: Final = 5
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


class ProducerStates:
    """The producers of one log, up to ``end_offset``. Belongs to the dir's thread."""

    __slots__ = ("end_offset", "entries")

    def __init__(self, end_offset: Offset = 0) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = end_offset

    def check(self, header: BatchHeader) -> WrittenBatch | None:
        """Whether the batch may be appended: None for yes, the earlier batch if it is a duplicate, or an error."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        first, last = header.base_sequence, header.last_sequence
        if header.producer_epoch == entry.epoch:
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == last:
                    return batch
        elif header.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"producer {header.producer_id}: epoch {header.producer_epoch}, expected {entry.epoch} or newer"
            )
        elif first != 0:
            raise OutOfOrderSequenceError(
                f"producer {header.producer_id}: sequence {first} in new epoch {header.producer_epoch}, expected 0"
            )
        else:
            return None
        if entry.batches:
            expected = (entry.batches[-1].last_sequence + 1) & _MAX_SEQUENCE
            if first != expected:
                raise OutOfOrderSequenceError(f"producer {header.producer_id}: sequence {first}, expected {expected}")
        return None

    def update(self, header: BatchHeader, base_offset: Offset) -> None:
        """The batch is in the log, from ``base_offset`` on."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(epoch=header.producer_epoch)
        elif header.producer_epoch != entry.epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = header.max_timestamp
        if header.is_control:
            entry.txn_first_offset = None
            return
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
            entry.txn_first_offset = base_offset

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
        open_offsets = [e.txn_first_offset for e in self.entries.values() if e.txn_first_offset is not None]
        return min(open_offsets, default=None)

    def clear(self, end_offset: Offset) -> None:
        """Nothing is known; the log is at ``end_offset``."""
        self.entries.clear()
        self.end_offset = end_offset

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
        return states
