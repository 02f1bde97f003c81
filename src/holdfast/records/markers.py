"""The marker that ends a transaction in a partition: a control batch of one record, in Kafka's format.

    key    version i16 (0) | type i16 (0 abort, 1 commit)
    value  version i16 (0) | coordinator epoch i32

The producer's id and epoch stand in the batch's header, with no sequence. A cleaned log may have a control batch
without a record: its transaction is gone, and it says nothing (KIP-98).
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from holdfast.model.errors import HoldfastError
from holdfast.model.types import Offset, TimestampMs
from holdfast.records.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    iter_headers,
    stamp_crc,
)
from holdfast.records.record import Record, iter_batch

_RECORD = Struct(">5bhhbhib")
"""Size, attributes, two deltas and the key's size; the key; the value's size; the value; no headers."""
_PLAIN_START: Final = (32, 0, 0, 0, 8)
_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT, _COMMIT = 0, 1
MARKER_SIZE: Final = HEADER_SIZE + _RECORD.size
"""Bytes of a marker's batch."""


class EndMarker(NamedTuple):
    """What a marker says beside its producer."""

    is_commit: bool
    coordinator_epoch: int


def encode_marker(producer_id: int, producer_epoch: int, marker: EndMarker, now_ms: TimestampMs) -> bytearray:
    """A marker's batch, to be appended by a leader."""
    batch = bytearray(MARKER_SIZE)
    HEADER.pack_into(
        batch, 0, 0, MARKER_SIZE - LENGTH_OVERHEAD, 0, MAGIC, 0, CONTROL_BIT | TRANSACTIONAL_BIT, 0, now_ms, now_ms,
        producer_id, producer_epoch, NO_SEQUENCE, 1,
    )  # fmt: skip
    kind = _COMMIT if marker.is_commit else _ABORT
    _RECORD.pack_into(batch, HEADER_SIZE, *_PLAIN_START, 0, kind, 12, 0, marker.coordinator_epoch, 0)
    stamp_crc(batch, 0)
    return batch


def decode_marker(batch: Buffer, header: BatchHeader) -> EndMarker | None:
    """What the control batch that ``batch`` begins with says; None if it ends no transaction."""
    if not header.record_count:
        return None
    if header.size == MARKER_SIZE and not header.compression and len(batch) >= MARKER_SIZE:
        fields = _RECORD.unpack_from(batch, HEADER_SIZE)
        if fields[:5] == _PLAIN_START and fields[5] == 0 and fields[7] == 12:
            return _marker(fields[6], fields[9])
    try:
        record = next(iter_batch(memoryview(batch)[: header.size]))
    except HoldfastError:
        return None
    key, value = record.key, record.value
    if key is None or value is None or len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    return _marker(_KEY.unpack_from(key)[1], _VALUE.unpack_from(value)[1])


def decode_committed(buf: Buffer, aborted: Iterable[tuple[int, Offset]]) -> Iterator[Record]:
    """The records of ``committed_batches``."""
    for _, batch in committed_batches(buf, aborted):
        yield from iter_batch(batch)


def committed_batches(buf: Buffer, aborted: Iterable[tuple[int, Offset]]) -> Iterator[tuple[BatchHeader, memoryview]]:
    """All whole batches of records but those of aborted transactions, given as (producer id, first offset) by the
    broker that was asked for committed records. A transaction that is aborted goes on to its abort marker."""
    waiting = sorted(aborted, key=itemgetter(1), reverse=True)
    dropped: set[int] = set()
    view = memoryview(buf)
    for at, header in iter_headers(view):
        batch = view[at : at + header.size]
        while waiting and waiting[-1][1] <= header.last_offset:
            dropped.add(waiting.pop()[0])
        if header.is_control:
            marker = decode_marker(batch, header)
            if marker is not None and not marker.is_commit:
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            yield header, batch


def _marker(kind: int, coordinator_epoch: int) -> EndMarker | None:
    return EndMarker(kind == _COMMIT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None
