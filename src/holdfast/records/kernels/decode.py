"""Record batches to columns: find the batches, then spread their records over column buffers.

Positions are in bytes into ``source``. Nothing is read outside ``[position, stop)`` of a batch and nothing is
written outside the buffers, whose sizes the caller derives from the same bounds: a record takes MIN_RECORD bytes or
more, and no column can hold more bytes than the records had.
"""

from typing import Any

import numpy as np

from holdfast.records.kernels.jit import COMPILED, as_source, as_target, copy_bytes, inline_jit, jit

__all__ = ["as_source", "as_target", "decode_records", "first_bad_crc", "scan_batches"]

# One row per batch in the table that scan_batches fills.
POSITION = 0
SIZE = 1
BASE_OFFSET = 2
LAST_OFFSET = 3
ATTRIBUTES = 4
BASE_TIMESTAMP = 5
MAX_TIMESTAMP = 6
PRODUCER_ID = 7
COUNT = 8
SCAN_FIELDS = 9

# One row per batch in the table that decode_records reads; positions are those of the (decompressed) records.
FROM = 0
TO = 1
PLAN_BASE_OFFSET = 2
PLAN_LAST_OFFSET = 3
PLAN_BASE_TIMESTAMP = 4
PLAN_LOG_APPEND_TIMESTAMP = 5  # the batch's max timestamp
PLAN_TIMESTAMP_TYPE = 6
PLAN_COUNT = 7
PLAN_FIELDS = 8

# What decode_records counts; nulls of a column stand after its bytes.
ROWS = 0
KEY_BYTES = 1
KEY_NULLS = 2
VALUE_BYTES = 3
VALUE_NULLS = 4
HEADERS = 5
HEADER_NAME_BYTES = 6
HEADER_VALUE_BYTES = 8
HEADER_VALUE_NULLS = 9
COUNT_FIELDS = 10

SMALL_BATCH = 2048 if COMPILED else 0
"""Up to so many bytes a call of a CRC32C library costs more than the loop here."""
MIN_RECORD = 7
HEADER_SIZE = 61

OK = 0
BAD_MAGIC = 1
BAD_LENGTH = 2
BAD_RECORD = 3
TABLE_FULL = 4

_TIME_LIMIT = 1 << 61
_MICROS_LIMIT = (1 << 63) // 1000 - 1


@inline_jit
def _int32(source: Any, at: int) -> int:
    value = 0
    for i in range(4):
        value = (value << 8) | int(source[at + i])
    return value - (1 << 32) if value >= (1 << 31) else value


@inline_jit
def _int64(source: Any, at: int) -> int:
    high = _int32(source, at)
    low = 0
    for i in range(4, 8):
        low = (low << 8) | int(source[at + i])
    return high * (1 << 32) + low


@jit
def scan_batches(source: Any, at: int, stop: int, table: Any) -> tuple[int, int, int]:
    """Fills one row of ``table`` per whole batch: (status, batches, position after the last of them)."""
    batches = 0
    while stop - at >= HEADER_SIZE:
        size = _int32(source, at + 8) + 12
        if int(source[at + 16]) != 2:
            return BAD_MAGIC, batches, at
        if size < HEADER_SIZE:
            return BAD_LENGTH, batches, at
        if size > stop - at:
            break
        if batches == len(table):
            return TABLE_FULL, batches, at
        base = _int64(source, at)
        table[batches, POSITION] = at
        table[batches, SIZE] = size
        table[batches, BASE_OFFSET] = base
        table[batches, ATTRIBUTES] = (int(source[at + 21]) << 8) | int(source[at + 22])
        delta = _int32(source, at + 23)
        if base < 0 or base > _TIME_LIMIT or delta < 0:
            return BAD_LENGTH, batches, at
        table[batches, LAST_OFFSET] = base + delta
        table[batches, BASE_TIMESTAMP] = _int64(source, at + 27)
        table[batches, MAX_TIMESTAMP] = _int64(source, at + 35)
        table[batches, PRODUCER_ID] = _int64(source, at + 43)
        table[batches, COUNT] = _int32(source, at + 57)
        batches += 1
        at += size
    return OK, batches, at


def _crc_tables() -> Any:
    """CRC32C (Castagnoli, reflected) eight bytes at a time: table n is of a byte with n zero bytes behind it."""
    tables = np.zeros((8, 256), np.int64)
    crc = np.arange(256, dtype=np.int64)
    for _ in range(8):
        crc = np.where(crc & 1, (crc >> 1) ^ 0x82F63B78, crc >> 1)
    tables[0] = crc
    for number in range(1, 8):
        tables[number] = (tables[number - 1] >> 8) ^ tables[0][tables[number - 1] & 255]
    return tables.reshape(-1)


_CRC = _crc_tables()


@inline_jit
def _crc32c(source: Any, at: int, stop: int) -> int:
    crc = 0xFFFFFFFF
    while stop - at >= 8:
        crc ^= int(source[at]) | int(source[at + 1]) << 8 | int(source[at + 2]) << 16 | int(source[at + 3]) << 24
        first = int(_CRC[1792 + (crc & 255)]) ^ int(_CRC[1536 + (crc >> 8 & 255)])
        first ^= int(_CRC[1280 + (crc >> 16 & 255)]) ^ int(_CRC[1024 + (crc >> 24 & 255)])
        second = int(_CRC[768 + int(source[at + 4])]) ^ int(_CRC[512 + int(source[at + 5])])
        crc = first ^ second ^ int(_CRC[256 + int(source[at + 6])]) ^ int(_CRC[int(source[at + 7])])
        at += 8
    while at < stop:
        crc = crc >> 8 ^ int(_CRC[(crc ^ int(source[at])) & 255])
        at += 1
    return crc ^ 0xFFFFFFFF


@jit
def first_bad_crc(source: Any, table: Any, most: int) -> int:
    """The first row of a table of ``scan_batches`` with at most so many bytes that fails its CRC; -1 if none does."""
    for row in range(len(table)):
        at, size = int(table[row, POSITION]), int(table[row, SIZE])
        if size > most:
            continue
        stored = (_int32(source, at + 17)) & 0xFFFFFFFF
        if _crc32c(source, at + 21, at + size) != stored:
            return row
    return -1


@inline_jit
def _varint(source: Any, at: int, stop: int) -> tuple[int, int]:
    """A zigzag varint of up to 64 bits: (value, position after it); position -1 if it is cut off or too long.

    Sign and magnitude are taken apart, so that no intermediate needs a 64th bit.
    """
    if at >= stop:
        return 0, -1
    byte = int(source[at])
    at += 1
    sign = byte & 1
    magnitude = (byte & 0x7F) >> 1
    shift = 6
    while byte & 0x80:
        if at >= stop or shift > 62:
            return 0, -1
        byte = int(source[at])
        at += 1
        if shift == 62 and byte > 1:
            return 0, -1
        magnitude |= (byte & 0x7F) << shift
        shift += 7
    return magnitude ^ -sign, at


@inline_jit
def _micros(timestamp_ms: int) -> int:
    if timestamp_ms > _MICROS_LIMIT:
        return _MICROS_LIMIT * 1000
    if timestamp_ms < -_MICROS_LIMIT:
        return -_MICROS_LIMIT * 1000
    return timestamp_ms * 1000


@inline_jit
def _sized(source: Any, at: int, stop: int) -> tuple[int, int]:
    """The size before a key or value, -1 for null: (size, position of the bytes); position -1 if bad."""
    size, at = _varint(source, at, stop)
    if at < 0 or size < -1 or size > stop - at:
        return 0, -1
    return size, at


@inline_jit
def _copy(size: int, source: Any, at: int, data: Any, filled: int) -> int:
    """Copies one key or value behind the column's bytes; a null has none. Returns the column's new size."""
    if size > 0:
        copy_bytes(data, filled, source, at, size)
        return filled + size
    return filled


@inline_jit
def _clear(valid: Any, item: int) -> None:
    valid[item >> 3] = int(valid[item >> 3]) & (255 ^ (1 << (item & 7)))


@jit
def _append_headers(source: Any, at: int, stop: int, columns: Any, row: int, counts: Any) -> int:
    """Puts a record's headers into their columns. Returns the position after them, -1 if they are bad."""
    ends, (name_ends, _, names), (content_ends, content_valid, contents) = columns
    count, at = _varint(source, at, stop)
    if at < 0 or count < 0 or count > (stop - at) // 2:
        return -1
    item = int(counts[HEADERS])
    name_bytes = int(counts[HEADER_NAME_BYTES])
    content_bytes = int(counts[HEADER_VALUE_BYTES])
    for _i in range(count):
        size, at = _sized(source, at, stop)
        if at < 0 or size < 0:
            return -1
        name_bytes = _copy(size, source, at, names, name_bytes)
        size, at = _sized(source, at + size, stop)
        if at < 0:
            return -1
        content_bytes = _copy(size, source, at, contents, content_bytes)
        if size < 0:
            _clear(content_valid, item)
            counts[HEADER_VALUE_NULLS] += 1
        at += max(size, 0)
        item += 1
        name_ends[item] = name_bytes
        content_ends[item] = content_bytes
    ends[row + 1] = item
    counts[HEADERS] = item
    counts[HEADER_NAME_BYTES] = name_bytes
    counts[HEADER_VALUE_BYTES] = content_bytes
    return at if at == stop else -1


@jit
def _decode_batch(source: Any, batch: Any, start: int, end: int, columns: Any, counts: Any) -> int:
    """The records of one batch; OK or BAD_RECORD."""
    fixed, (key_ends, key_valid, keys), (value_ends, value_valid, values), headers = columns
    offsets, timestamps, timestamp_types = fixed
    want_headers = len(headers[0]) > 0
    at = int(batch[FROM])
    stop = int(batch[TO])
    base_offset = int(batch[PLAN_BASE_OFFSET])
    span = int(batch[PLAN_LAST_OFFSET]) - base_offset
    base_timestamp = int(batch[PLAN_BASE_TIMESTAMP])
    timestamp_type = int(batch[PLAN_TIMESTAMP_TYPE])
    append_micros = _micros(int(batch[PLAN_LOG_APPEND_TIMESTAMP]))
    row = int(counts[ROWS])
    key_bytes = int(counts[KEY_BYTES])
    value_bytes = int(counts[VALUE_BYTES])
    if base_timestamp > _TIME_LIMIT or base_timestamp < -_TIME_LIMIT:
        return BAD_RECORD
    for _i in range(int(batch[PLAN_COUNT])):
        size, at = _sized(source, at, stop)
        if at < 0 or size < MIN_RECORD - 1:
            return BAD_RECORD
        following = at + size
        delta, at = _varint(source, at + 1, following)  # + 1: the attributes of a record are unused in v2
        if at < 0 or delta > _TIME_LIMIT or delta < -_TIME_LIMIT:
            return BAD_RECORD
        offset, at = _varint(source, at, following)
        if at < 0 or offset < 0 or offset > span:
            return BAD_RECORD
        offset += base_offset
        if offset >= end:
            break
        if offset < start:
            at = following
            continue
        size, at = _sized(source, at, following)
        if at < 0:
            return BAD_RECORD
        if len(key_ends) > 0:
            key_bytes = _copy(size, source, at, keys, key_bytes)
            key_ends[row + 1] = key_bytes
            if size < 0:
                _clear(key_valid, row)
                counts[KEY_NULLS] += 1
        size, at = _sized(source, at + max(size, 0), following)
        if at < 0:
            return BAD_RECORD
        if len(value_ends) > 0:
            value_bytes = _copy(size, source, at, values, value_bytes)
            value_ends[row + 1] = value_bytes
            if size < 0:
                _clear(value_valid, row)
                counts[VALUE_NULLS] += 1
        at += max(size, 0)
        if want_headers and _append_headers(source, at, following, headers, row, counts) < 0:
            return BAD_RECORD
        if len(offsets) > 0:
            offsets[row] = offset
        if len(timestamps) > 0:
            timestamps[row] = append_micros if timestamp_type == 1 else _micros(base_timestamp + delta)
        if len(timestamp_types) > 0:
            timestamp_types[row] = timestamp_type
        row += 1
        at = following
    counts[ROWS] = row
    counts[KEY_BYTES] = key_bytes
    counts[VALUE_BYTES] = value_bytes
    return OK


@jit
def decode_records(source: Any, plan: Any, start: int, end: int, columns: Any, counts: Any) -> tuple[int, int]:
    """Spreads the records with ``start <= offset < end`` of all planned batches over the column buffers.

    ``columns`` is ((offsets, timestamps, timestamp types), keys, values, (header ends, names, contents)) where
    keys, values, names and contents are (ends, validity, data). What is not wanted has empty arrays; a wanted
    ``ends`` has at least one item. Validity maps come full of ones. Fills ``counts``; answers (status, number of
    the bad batch).
    """
    for b in range(len(plan)):
        status = _decode_batch(source, plan[b], start, end, columns, counts)
        if status != OK:
            return status, b
    return OK, len(plan)
