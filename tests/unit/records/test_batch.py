"""The batch header: read, checked and stamped in place."""

import struct

import pytest

from holdfast.model.errors import CorruptRecordError
from holdfast.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    TimestampType,
    batch_crc,
    complete_size,
    crc_ok,
    iter_headers,
    parse_header,
    split,
    stamp,
    stamp_crc,
    stamp_log_append_time,
)

# The first batch of the recorded topic "shapes": one record, appended at offset 0 by Kafka 4.3.0.
BATCH = bytes.fromhex(
    "000000000000000000000038ffffffff02c428857f0000000000000000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff000000010c000000010100"
)


def test_a_header_has_kafkas_fields() -> None:
    header = parse_header(BATCH)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=56,
        partition_leader_epoch=-1,
        magic=2,
        crc=0xC428857F,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_000,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )
    assert header.size == len(BATCH)
    assert (header.last_offset, header.next_offset) == (0, 1)
    assert header.compression == 0
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert not (header.is_transactional or header.is_control or header.has_producer_id)
    assert header.last_sequence == -1


def test_attributes_are_bits() -> None:
    header = parse_header(BATCH)._replace(
        attributes=0b0111011, producer_id=4, base_sequence=2**31 - 1, last_offset_delta=2
    )
    assert header.compression == 3
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.is_transactional
    assert header.is_control
    assert header.has_producer_id
    assert header.last_sequence == 1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_at_any_position(kind: type) -> None:
    data = kind(b"xy" + BATCH)
    header = parse_header(data, 2)
    assert crc_ok(data, 2, header)
    assert batch_crc(data, 2, header.size) == header.crc


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes"),
        (BATCH[:60], "60 bytes"),
        (BATCH[:16] + b"\1" + BATCH[17:], "magic 1"),
        (BATCH[:8] + struct.pack(">i", 48) + BATCH[12:], "batch length 48"),
        (BATCH[:8] + struct.pack(">i", -5) + BATCH[12:], "batch length -5"),
    ],
)
def test_headers_that_cannot_be(data: bytes, said: str) -> None:
    with pytest.raises(CorruptRecordError, match=said):
        parse_header(data)


def test_a_wrong_byte_or_a_missing_one_fails_the_crc() -> None:
    header = parse_header(BATCH)
    assert crc_ok(BATCH, 0, header)
    assert not crc_ok(BATCH[:-1] + b"\1", 0, header)
    assert not crc_ok(BATCH[:-1], 0, header)


def test_whole_batches_and_a_partial_one() -> None:
    data = BATCH * 3 + BATCH[:-1]
    assert [pos for pos, _ in iter_headers(data)] == [0, 68, 136]
    assert complete_size(data) == 204
    assert [bytes(part) for part in split(data)] == [BATCH] * 3
    assert [pos for pos, _ in iter_headers(data, 68)] == [68, 136]
    assert complete_size(BATCH[:30]) == 0
    assert list(iter_headers(BATCH[:30])) == []


def test_a_bad_batch_stops_the_walk() -> None:
    bad = BATCH + BATCH[:8] + struct.pack(">i", 1) + BATCH[12:]
    with pytest.raises(CorruptRecordError):
        list(iter_headers(bad))
    with pytest.raises(CorruptRecordError):
        complete_size(bad)


def test_split_makes_views() -> None:
    data = bytearray(BATCH)
    (view,) = split(data)
    data[0] = 9
    assert view[0] == 9


def test_stamping_offset_and_epoch_leaves_the_crc_right() -> None:
    data = bytearray(b"xy" + BATCH)
    stamp(memoryview(data), 2, 12345678901, 7)
    header = parse_header(data, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (12345678901, 7)
    assert crc_ok(data, 2, header)
    assert data[:2] == b"xy"
    assert data[2 + 16 :] == BATCH[16:]


def test_stamping_the_append_time_makes_the_crc_right() -> None:
    data = bytearray(BATCH)
    stamp_log_append_time(data, 0, 42)
    header = parse_header(data)
    assert header.max_timestamp == 42
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert crc_ok(data, 0, header)
    assert data[HEADER_SIZE:] == BATCH[HEADER_SIZE:]


def test_stamping_the_crc() -> None:
    data = bytearray(BATCH)
    data[-2] = 77
    stamp_crc(data, 0)
    assert crc_ok(data, 0, parse_header(data))
