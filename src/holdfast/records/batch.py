"""The header of a record batch (format v2): read it, check it, stamp it in place. Never decodes records.

A batch is 61 bytes of header and then the records, compressed as one block. Offset and leader epoch stand
before the CRC and are not covered by it, so that a leader can set them without touching the rest:

    base_offset i64 | batch_length i32 | partition_leader_epoch i32 | magic i8 | crc u32 |
    attributes i16 | last_offset_delta i32 | base_timestamp i64 | max_timestamp i64 |
    producer_id i64 | producer_epoch i16 | base_sequence i32 | record_count i32

Every function takes any buffer. Positions and sizes are in bytes; ``batch_length`` counts from after
itself, the whole batch is 12 bytes more.
"""

from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
LENGTH_OVERHEAD: Final = 12
"""Bytes of a batch that batch_length does not count."""
MAGIC: Final = 2
CRC_START: Final = 21
"""The CRC covers the batch from here (attributes) to its end."""
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

_MIN_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD
_OFFSET_AND_LENGTH: Final = Struct(">qi")
_OFFSET: Final = Struct(">q")
_EPOCH: Final = Struct(">i")
_ATTRIBUTES: Final = Struct(">h")
_CRC: Final = Struct(">I")
_EPOCH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT, _MAX_TIMESTAMP_AT = 12, 16, 17, 21, 35


class TimestampType(Enum):
    """Whose clock a batch's timestamps are of."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """A batch's header as it stands on disk and on the wire."""

    base_offset: Offset
    batch_length: int
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> Offset:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """Number of the codec, 0 for none; records/compression.py knows them."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; it wraps to 0 after 2**31-1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at ``pos``. CorruptRecordError if there are too few bytes, the magic is not 2 or the
    length is one that no batch can have. Whether the whole batch is there is not looked at."""
    if len(buf) - pos < HEADER_SIZE:
        raise CorruptRecordError(f"{len(buf) - pos} bytes at position {pos}: a batch header has {HEADER_SIZE}")
    header = BatchHeader._make(HEADER.unpack_from(buf, pos))
    if header[3] != MAGIC:
        raise CorruptRecordError(f"magic {header[3]} at position {pos}: expected {MAGIC}")
    if header[1] < _MIN_LENGTH:
        raise CorruptRecordError(f"batch length {header[1]} at position {pos}: expected {_MIN_LENGTH} or more")
    return header


def iter_headers(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; stops at a trailing partial one, raises at a bad one."""
    end = len(buf)
    while end - pos >= HEADER_SIZE:
        header = parse_header(buf, pos)
        following = pos + header[1] + LENGTH_OVERHEAD
        if following > end:
            return
        yield pos, header
        pos = following


def complete_size(buf: Buffer) -> int:
    """Bytes up to the end of the last whole batch, by the lengths alone."""
    pos, end = 0, len(buf)
    while end - pos >= HEADER_SIZE:
        length: int = _OFFSET_AND_LENGTH.unpack_from(buf, pos)[1]
        if length < _MIN_LENGTH:
            raise CorruptRecordError(f"batch length {length} at position {pos}: expected {_MIN_LENGTH} or more")
        if pos + length + LENGTH_OVERHEAD > end:
            break
        pos += length + LENGTH_OVERHEAD
    return pos


def split(buf: Buffer) -> list[memoryview]:
    """The whole batches as views of ``buf``, without a copy."""
    view = memoryview(buf)
    return [view[pos : pos + header.size] for pos, header in iter_headers(view)]


def batch_crc(buf: Buffer, pos: int, size: int) -> int:
    """CRC-32C of the ``size`` bytes of the batch at ``pos``, from the attributes on."""
    return crc32c(memoryview(buf)[pos + CRC_START : pos + size])


def crc_ok(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the batch at ``pos`` is whole and has the CRC that its header says."""
    end = pos + header[1] + LENGTH_OVERHEAD
    if end > len(buf):
        return False
    return crc32c(memoryview(buf)[pos + CRC_START : end]) == header[4]


def stamp(buf: bytearray | memoryview, pos: int, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Set where the batch at ``pos`` stands in the log. The CRC does not cover these fields."""
    _OFFSET.pack_into(buf, pos, base_offset)
    _EPOCH.pack_into(buf, pos + _EPOCH_AT, leader_epoch)


def stamp_log_append_time(buf: bytearray | memoryview, pos: int, now_ms: TimestampMs) -> None:
    """Make ``now_ms`` the time of every record of the batch at ``pos``, and the CRC right again."""
    attributes: int = _ATTRIBUTES.unpack_from(buf, pos + _ATTRIBUTES_AT)[0]
    _ATTRIBUTES.pack_into(buf, pos + _ATTRIBUTES_AT, attributes | TIMESTAMP_TYPE_BIT)
    _OFFSET.pack_into(buf, pos + _MAX_TIMESTAMP_AT, now_ms)
    stamp_crc(buf, pos)


def stamp_crc(buf: bytearray | memoryview, pos: int) -> None:
    """Write the CRC of the batch at ``pos`` as it stands."""
    size: int = _OFFSET_AND_LENGTH.unpack_from(buf, pos)[1] + LENGTH_OVERHEAD
    _CRC.pack_into(buf, pos + _CRC_AT, batch_crc(buf, pos, size))
