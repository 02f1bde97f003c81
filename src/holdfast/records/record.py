"""The records inside a batch: decode them, encode them, change their compression.

One Python object per record, so this is for small things: group offsets, the command line, tests. Brokers move
batches whole and Spark reads them as columns. Kafka's record format v2:

    length varint | attributes i8 | timestamp delta varint | offset delta varint |
    key length varint, key | value length varint, value | header count varint, (key, value)...

Lengths and deltas are zigzag varints; a length of -1 is null.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.model.errors import InvalidRecordError
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs
from holdfast.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Buffer,
    TimestampType,
    iter_headers,
    parse_header,
    stamp_crc,
)
from holdfast.records.compression import DEFAULT_LIMIT, Codec, compress, decompress

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. ``timestamp`` is -1 when it has none."""

    offset: Offset
    timestamp: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


def decode_batches(buf: Buffer, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
    """The records of all whole batches, control batches left out."""
    for pos, header in iter_headers(buf):
        if not header.is_control:
            yield from iter_batch(memoryview(buf)[pos : pos + header.size], limit)


def decode_batch(buf: Buffer, limit: int = DEFAULT_LIMIT) -> list[Record]:
    """All that ``iter_batch`` gives, for batches that are known to be small."""
    return list(iter_batch(buf, limit))


def iter_batch(buf: Buffer, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
    """The records of the batch that ``buf`` begins with. InvalidRecordError if they are not what the header says,
    CorruptRecordError or MessageTooLargeError if they cannot be decompressed to ``limit`` bytes or less.

    One at a time: a batch from a client may be small and hold millions of them."""
    header = parse_header(buf)
    view = memoryview(buf)
    if header.size > len(view):
        raise InvalidRecordError(f"a batch of {header.size} bytes in {len(view)}")
    payload = bytes(decompress(Codec.numbered(header.compression), view[HEADER_SIZE : header.size], limit))
    fixed = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    pos = number = 0
    try:
        while number < header.record_count:
            record, pos = _decode_record(payload, pos, header.base_offset, header.base_timestamp, fixed)
            number += 1
            yield record
    except (IndexError, ValueError) as e:
        raise InvalidRecordError(
            f"record {number} of {header.record_count} in the batch at offset {header.base_offset}: {e}"
        ) from None
    if pos != len(payload):
        raise InvalidRecordError(
            f"{len(payload) - pos} bytes after the {header.record_count} records of the batch at offset "
            f"{header.base_offset}"
        )


def _decode_record(
    data: bytes, pos: int, base_offset: Offset, base_timestamp: TimestampMs, fixed: TimestampMs | None
) -> tuple[Record, int]:
    size, pos = _varint(data, pos)
    end = pos + size
    if size < 0 or end > len(data):
        raise ValueError(f"a record of {size} bytes where {len(data) - pos} are left")
    timestamp_delta, pos = _varint(data, pos + 1)
    offset_delta, pos = _varint(data, pos)
    key, pos = _bytes(data, pos, end)
    value, pos = _bytes(data, pos, end)
    count, pos = _varint(data, pos)
    if not 0 <= count <= end - pos:
        raise ValueError(f"{count} headers in {end - pos} bytes")
    headers: list[Header] = []
    for _ in range(count):
        name, pos = _bytes(data, pos, end)
        if name is None:
            raise ValueError("a header without a key")
        header_value, pos = _bytes(data, pos, end)
        headers.append((name.decode(), header_value))
    if pos != end:
        raise ValueError(f"a record of {size} bytes that ends {end - pos} bytes early")
    timestamp = base_timestamp + timestamp_delta if fixed is None else fixed
    return Record(base_offset + offset_delta, timestamp, key, value, headers), pos


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes and the position after it."""
    byte = data[pos]
    pos += 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise ValueError(f"varint at byte {pos} is longer than ten bytes")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return value >> 1 ^ -(value & 1), pos


def _bytes(data: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = _varint(data, pos)
    if size < 0:
        return None, pos
    if pos + size > end:
        raise ValueError(f"a field of {size} bytes where {end - pos} are left")
    return data[pos : pos + size], pos + size


# -- encoding ----------------------------------------------------------------------------------------------


class BatchBuilder:
    """Collects records for one batch; their offsets are 0, 1, 2, ... from ``base_offset``."""

    def __init__(
        self,
        *,
        base_offset: Offset = 0,
        codec: Codec = Codec.NONE,
        leader_epoch: LeaderEpoch = -1,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
    ) -> None:
        self._base_offset = base_offset
        self._codec = codec
        self._leader_epoch = leader_epoch
        self._producer = (producer_id, producer_epoch, base_sequence)
        self._attributes = (
            codec
            | (TIMESTAMP_TYPE_BIT if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
            | (TRANSACTIONAL_BIT if transactional else 0)
            | (CONTROL_BIT if control else 0)
        )
        self._payload = bytearray()
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self._last_delta = -1
        self._count = 0

    def __len__(self) -> int:
        """Records so far."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of the batch so far, before compression."""
        return HEADER_SIZE + len(self._payload)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp: TimestampMs = NO_TIMESTAMP,
        headers: Iterable[Header] = (),
        *,
        offset: Offset | None = None,
    ) -> Offset:
        """Add one record; returns its offset, which is the next one unless given (gaps are for compacted logs)."""
        delta = self._last_delta + 1 if offset is None else offset - self._base_offset
        if delta <= self._last_delta:
            raise ValueError(f"offset {offset} after {self._base_offset + self._last_delta}: expected a higher one")
        if not self._count:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        body = bytearray(b"\0")
        _put_varint(body, timestamp - self._base_timestamp)
        _put_varint(body, delta)
        _put_bytes(body, key)
        _put_bytes(body, value)
        headers = tuple(headers)
        _put_varint(body, len(headers))
        for name, header_value in headers:
            _put_bytes(body, name.encode())
            _put_bytes(body, header_value)
        _put_varint(self._payload, len(body))
        self._payload += body
        self._last_delta = delta
        self._count += 1
        return self._base_offset + delta

    def build(self) -> bytearray:
        """The batch, its CRC right. ValueError if there is no record in it."""
        if not self._count:
            raise ValueError("a batch without records")
        payload = self._payload if self._codec is Codec.NONE else compress(self._codec, self._payload)
        out = bytearray(HEADER_SIZE + len(payload))
        HEADER.pack_into(
            out,
            0,
            self._base_offset,
            len(out) - LENGTH_OVERHEAD,
            self._leader_epoch,
            MAGIC,
            0,
            self._attributes,
            self._last_delta,
            self._base_timestamp,
            self._max_timestamp,
            *self._producer,
            self._count,
        )
        out[HEADER_SIZE:] = payload
        stamp_crc(out, 0)
        return out


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: Offset = 0,
    compression: Codec | None = None,
    leader_epoch: LeaderEpoch = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """One batch of records that have their offsets, ascending from ``base_offset`` on."""
    builder = BatchBuilder(
        base_offset=base_offset,
        codec=compression or Codec.NONE,
        leader_epoch=leader_epoch,
        timestamp_type=timestamp_type,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
    )
    for r in records:
        builder.append(r.key, r.value, r.timestamp, r.headers, offset=r.offset)
    return builder.build()


def recompress(batch: Buffer, codec: Codec, limit: int = DEFAULT_LIMIT, level: int | None = None) -> bytearray:
    """The same batch with its records compressed by ``codec``; everything else of the header stays. ``limit``: bytes
    of the records without compression; MessageTooLargeError."""
    header = parse_header(batch)
    payload = decompress(Codec.numbered(header.compression), memoryview(batch)[HEADER_SIZE : header.size], limit)
    packed = compress(codec, payload, level)
    out = bytearray(HEADER_SIZE + len(packed))
    HEADER.pack_into(
        out,
        0,
        *header._replace(
            batch_length=len(out) - LENGTH_OVERHEAD,
            attributes=header.attributes & ~COMPRESSION_MASK | codec,
        ),
    )
    out[HEADER_SIZE:] = packed
    stamp_crc(out, 0)
    return out


def _put_varint(out: bytearray, value: int) -> None:
    value = value << 1 ^ value >> 63
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        _put_varint(out, len(data))
        out += data
