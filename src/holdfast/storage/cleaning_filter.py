"""What stays of a batch when its log is cleaned (log compaction): all, some records, its header alone, or nothing.

Owns the rules, which are Kafka's, and the bytes of what stays. No disk, no clock. A log is gone through twice: ``Keys``
takes the newest offset of each key from what came since the last cleaning, then ``BatchFilter`` judges every batch of
the log up to there.

* A record stays if no newer one of its key is known. Without a key it does not stay.
* A tombstone stays until the delete horizon of its batch: set when a cleaning first keeps it, to then and
  delete.retention.ms; it stands in the place of the base timestamp, and attribute bit 6 says so.
* Batches of aborted transactions go; markers: aborted.py.
* The header of a producer's last batch stays, for its sequence (``emptied``).
* A batch of which all stays is copied as it is. Else its offsets, sequence and codec stay as they were.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final, NamedTuple

from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import Offset, TimestampMs
from holdfast.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    crc_ok,
    stamp_crc,
)
from holdfast.records.compression import DEFAULT_LIMIT, Codec, compress, decompress
from holdfast.records.latest_keys import Latest, Selection, note_keys, note_keys_of_all, pick, restamped, select
from holdfast.records.markers import EndMarker, decode_marker
from holdfast.storage.aborted import Transactions

KEY_BYTES: Final = 160
"""Memory that a remembered key takes, about."""


WHOLE: Final = b""
"""What stays of a batch that stays as it is."""


class LastOfProducer(NamedTuple):
    """Of an active producer: the offset of its last record, None if there is only a marker of it; its epoch."""

    last_offset: Offset | None
    epoch: int


class Keys:
    """The newest offsets of the keys from ``first`` on, up to and with ``latest_offset``.

    ``most``: so many keys, and those of one batch more.
    """

    __slots__ = ("_transactions", "first", "latest", "latest_offset", "most")

    def __init__(self, first: Offset, most: int, transactions: Transactions) -> None:
        self.first = first
        self.most = most
        self.latest: Latest = {}
        self.latest_offset = first - 1
        self._transactions = transactions

    def take(self, data: bytes, at: int, header: BatchHeader) -> bool:
        """The next batch; False, and it is not taken, if the memory is full. CorruptRecordError."""
        _check(data, at, header)
        if header.is_control:
            self._transactions.is_marker_of_nothing(header, _marker(data, at, header))
        elif not self._transactions.is_aborted(header) and header.last_offset >= self.first:
            if len(self.latest) >= self.most:
                return False
            payload, base = _payload(data, at, header), header.base_offset
            if _is_dense(header) and base >= self.first:
                note_keys_of_all(payload, base, header.next_offset, self.latest)
            else:
                note_keys(payload, header.record_count, base, self.first, self.latest)
        self.latest_offset = max(self.latest_offset, header.last_offset)
        return True


class BatchFilter:
    """See the module's docstring. ``filter`` is called once for each batch, in order: markers are counted on the way,
    so no batch may be judged twice (KAFKA-20036)."""

    __slots__ = ("_horizon", "_keys", "_newest", "_now_ms", "_producers", "_transactions", "kept", "read")

    def __init__(
        self,
        keys: Keys,
        transactions: Transactions,
        producers: Mapping[int, LastOfProducer],
        now_ms: TimestampMs,
        delete_retention_ms: int,
    ) -> None:
        self._keys = keys
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._newest: array[int] | None = None
        self._horizon = now_ms + delete_retention_ms
        self.read = 0
        """Records that were judged."""
        self.kept = 0

    def filter(self, data: bytes, at: int, header: BatchHeader) -> bytes | None:
        """What stays of the batch at ``at``: WHOLE, other bytes, or None. CorruptRecordError, but where nothing of it
        stays."""
        self.read += header.record_count
        if header.is_control:
            _check(data, at, header)
            found = self._filter_marker(data, at, header)
        elif self._transactions.is_aborted(header):
            found = None
        elif header.base_offset > self._keys.latest_offset:
            _check(data, at, header)
            found = WHOLE
        else:
            found = self._filter_records(data, at, header)
        if found is None and self._is_last_of_producer(header):
            return emptied(header)
        return found

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id) if header.has_producer_id else None
        if last is None:
            return False
        if last.last_offset is not None:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.epoch

    def _filter_marker(self, data: bytes, at: int, header: BatchHeader) -> bytes | None:
        is_of_nothing = self._transactions.is_marker_of_nothing(header, _marker(data, at, header))
        if not header.record_count:
            return None
        if not is_of_nothing:
            self.kept += header.record_count
            return WHOLE
        horizon = _horizon_of(header)
        if horizon is not None and horizon <= self._now_ms:
            return None
        self.kept += header.record_count
        if horizon is not None:
            return WHOLE
        payload = _payload(data, at, header)
        whole = Selection([(0, len(payload))], header.record_count, header.max_timestamp - header.base_timestamp,
                          False)  # fmt: skip
        return self._rebuilt(header, payload, whole, self._horizon)

    def _filter_records(self, data: bytes, at: int, header: BatchHeader) -> bytes | None:
        count = header.record_count
        if not count:
            return None
        horizon = _horizon_of(header)
        keep_tombstones = horizon is None or self._now_ms < horizon
        base, keys = header.base_offset, self._keys
        if base >= keys.first and _is_dense(header):
            # Its keys were taken: a record stays if its offset is that of the newest of some key.
            newest = self._newest_offsets()
            low, high = bisect_left(newest, base), bisect_right(newest, header.last_offset)
            if low == high:
                return None
            _check(data, at, header)
            payload = _payload(data, at, header)
            stays = pick(payload, base, count, newest[low:high], keep_tombstones=keep_tombstones)
        else:
            _check(data, at, header)
            payload = _payload(data, at, header)
            stays = select(payload, count, base, keys.latest, keep_tombstones=keep_tombstones)
        self.kept += stays.kept
        if not stays.kept:
            return None
        set_horizon = stays.tombstones and horizon is None
        if stays.kept == count and not set_horizon:
            return WHOLE
        return self._rebuilt(header, payload, stays, self._horizon if set_horizon else None)

    def _newest_offsets(self) -> "array[int]":
        """Of all keys, in order. They are all taken by now."""
        if self._newest is None:
            self._newest = array("q", sorted(self._keys.latest.values()))
        return self._newest

    def _rebuilt(self, header: BatchHeader, payload: bytes, stays: Selection, horizon: TimestampMs | None) -> bytes:
        """The batch with the records that stay. ``horizon``: the one to set; None: none, or it stays."""
        is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        base, attributes = header.base_timestamp, header.attributes
        newest = header.max_timestamp if is_append_time else base + stays.max_delta
        if horizon is None:
            body: bytes | bytearray = b"".join(payload[start:end] for start, end in stays.spans)
        else:
            fixed = newest - horizon if is_append_time else None
            body = restamped(payload, stays.spans, base - horizon, fixed)
            base, attributes = horizon, attributes | DELETE_HORIZON_BIT
        body = compress(Codec.numbered(header.compression), body)
        out = bytearray(HEADER_SIZE + len(body))
        changed = header._replace(
            batch_length=len(out) - LENGTH_OVERHEAD,
            attributes=attributes,
            base_timestamp=base,
            max_timestamp=newest,
            record_count=stays.kept,
        )
        HEADER.pack_into(out, 0, *changed)
        out[HEADER_SIZE:] = body
        stamp_crc(out, 0)
        return bytes(out)


def _check(data: bytes, at: int, header: BatchHeader) -> None:
    if not crc_ok(data, at, header):
        raise CorruptRecordError(f"the batch at offset {header.base_offset} fails its CRC")


def _horizon_of(header: BatchHeader) -> TimestampMs | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def _is_dense(header: BatchHeader) -> bool:
    """There is a record at each of its offsets."""
    return header.record_count == header.last_offset_delta + 1


def _payload(data: bytes, at: int, header: BatchHeader) -> bytes:
    """The records of the batch, without compression."""
    start, end = at + HEADER_SIZE, at + header.size
    if header.compression:
        return bytes(decompress(Codec.numbered(header.compression), memoryview(data)[start:end], DEFAULT_LIMIT))
    return data[start:end]


def _marker(data: bytes, at: int, header: BatchHeader) -> EndMarker | None:
    return decode_marker(memoryview(data)[at : at + header.size], header)


def emptied(header: BatchHeader) -> bytes:
    """The header alone, as Kafka keeps it: offsets, sequence, producer and newest time, no records."""
    out = bytearray(HEADER_SIZE)
    changed = header._replace(
        batch_length=HEADER_SIZE - LENGTH_OVERHEAD,
        attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    HEADER.pack_into(out, 0, *changed)
    stamp_crc(out, 0)
    return bytes(out)
