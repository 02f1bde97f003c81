"""Records inside batches: as Kafka wrote them, and what is wrong with wrong ones."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.errors import (
    CorruptRecordError,
    InvalidRecordError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from holdfast.records.batch import DELETE_HORIZON_BIT, HEADER_SIZE, TimestampType, crc_ok, iter_headers, parse_header
from holdfast.records.compression import Codec
from holdfast.records.record import (
    BatchBuilder,
    Record,
    decode_batch,
    decode_batches,
    encode_batch,
    recompress,
)

GOLDEN = Path(__file__).parents[2] / "golden"
LOGS = sorted((GOLDEN / "disk/4.3.0").glob("*-0.json"))


def segments(path: Path) -> Iterator[bytes]:
    for name, file in json.loads(path.read_text()).get("files_after_clean_shutdown", {}).items():
        if name.endswith(".log") and isinstance(file, dict) and file.get("hex"):
            yield bytes.fromhex(file["hex"])


@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.stem)
def test_recorded_batches_decode_and_encode_again(path: Path) -> None:
    for segment in segments(path):
        for pos, header in iter_headers(segment):
            assert crc_ok(segment, pos, header)
            batch = segment[pos : pos + header.size]
            records = decode_batch(batch)
            assert len(records) == header.record_count
            codec = Codec(header.compression)
            again = encode_batch(
                records,
                base_offset=header.base_offset,
                compression=codec,
                leader_epoch=header.partition_leader_epoch,
                timestamp_type=header.timestamp_type,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                transactional=header.is_transactional,
                control=header.is_control,
            )
            # Compressed bytes depend on the compressor; ours for lz4 gives the very bytes of Java's. What was cleaned
            # has an end of its own, and perhaps a delete horizon.
            was_cleaned = len(records) != header.last_offset_delta + 1 or header.attributes & DELETE_HORIZON_BIT
            if not was_cleaned and codec in (Codec.NONE, Codec.LZ4):
                assert again == batch
            assert decode_batch(again) == records


@pytest.mark.parametrize("codec", list(Codec))
def test_recompressing_keeps_everything_else(codec: Codec) -> None:
    for path in LOGS:
        for segment in segments(path):
            for pos, header in iter_headers(segment):
                batch = memoryview(segment)[pos : pos + header.size]
                other = recompress(batch, codec)
                changed = parse_header(other)
                assert crc_ok(other, 0, changed)
                assert changed.compression == codec
                same = changed._replace(batch_length=header.batch_length, crc=header.crc, attributes=header.attributes)
                assert same == header
                assert decode_batch(other) == decode_batch(batch)


def test_what_librdkafka_and_java_wrote_reads_the_same() -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        (segment,) = segments(GOLDEN / f"disk/4.3.0/by-librdkafka-{codec}-0.json")
        values = [record.value for record in decode_batches(segment)]
        assert values == [b"the same text again and again " * 4] * 4


RECORDS = [
    Record(10, 1000, b"k", b"v", [("h", b"1"), ("h", None)]),
    Record(11, 900, None, b"", []),
    Record(15, 2000, b"", None, []),
]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_there_and_back(codec: Codec) -> None:
    batch = encode_batch(RECORDS, base_offset=10, compression=codec, leader_epoch=3)
    header = parse_header(batch)
    assert crc_ok(batch, 0, header)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 15, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 2000)
    assert header.partition_leader_epoch == 3
    assert decode_batch(batch) == RECORDS
    assert list(decode_batches(batch + batch)) == RECORDS * 2


def test_producer_and_flags_stand_in_the_header() -> None:
    batch = encode_batch(
        RECORDS, base_offset=9, producer_id=7, producer_epoch=2, base_sequence=5, transactional=True, control=True
    )
    header = parse_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 5)
    assert header.is_transactional
    assert header.is_control
    assert list(decode_batches(batch)) == []


def test_append_time_is_every_records_time() -> None:
    batch = encode_batch(RECORDS, base_offset=10, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert {record.timestamp for record in decode_batch(batch)} == {2000}


def test_a_builder_counts_offsets_and_bytes() -> None:
    builder = BatchBuilder(base_offset=100)
    assert len(builder) == 0
    assert builder.append(b"a", b"b", 5) == 100
    assert builder.append(None, None, 6, [("n", b"")]) == 101
    assert builder.append(b"c", b"d", 7, offset=110) == 110
    assert len(builder) == 3
    size = builder.size
    batch = builder.build()
    assert len(batch) == size
    assert [r.offset for r in decode_batch(batch)] == [100, 101, 110]
    with pytest.raises(ValueError, match="offset 110"):
        builder.append(b"e", b"f", offset=110)


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="without records"):
        BatchBuilder().build()


def test_no_timestamp() -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"v")
    (record,) = decode_batch(builder.build())
    assert record.timestamp == -1


def with_payload(payload: bytes, count: int = 1) -> bytearray:
    """A batch with these bytes for records. The CRC is not looked at when records are decoded."""
    batch = bytearray(encode_batch(RECORDS[:1], base_offset=10)[:HEADER_SIZE] + payload)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = count.to_bytes(4, "big")
    return batch


GOOD = b"\x0e\0\0\0\1\2v\0"


@pytest.mark.parametrize(
    ("payload", "count", "said"),
    [
        (GOOD, 1, None),
        (GOOD, 2, "record 1 of 2"),
        (GOOD + GOOD, 1, "after the 1 records"),
        (b"", 1, "record 0 of 1"),
        (b"\x0f" + GOOD[1:], 1, "-8 bytes"),
        (b"\x10" + GOOD[1:], 1, "a record of 8 bytes"),
        (b"\x10" + GOOD[1:] + b"\0", 1, "1 bytes early"),
        (b"\x0e\x00\x00\x00\x20\x02v\x00", 1, "a field of 16 bytes"),
        (b"\x0e\x00\x00\x00\x01\x02v\x20", 1, "16 headers"),
        (b"\x0e\x00\x00\x00\x01\x02v\x01", 1, "-1 headers"),
        (b"\x12\x00\x00\x00\x01\x02v\x02\x01\x01", 1, "without a key"),
        (b"\xff" * 11, 1, "longer than ten bytes"),
        (b"\x14\x00\x00\x00\x01\x02v\x02\x02\xff\x01", 1, "utf-8"),
    ],
)
def test_records_that_do_not_hold_together(payload: bytes, count: int, said: str | None) -> None:
    batch = with_payload(payload, count)
    if said is None:
        assert [r.value for r in decode_batch(batch)] == [b"v"]
        return
    with pytest.raises(InvalidRecordError, match=said):
        decode_batch(batch)


def test_a_batch_cut_short() -> None:
    with pytest.raises(InvalidRecordError, match="a batch of"):
        decode_batch(encode_batch(RECORDS, base_offset=10)[:-1])


def test_the_limit_holds_inside_batches() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(1_000_000))], compression=Codec.ZSTD)
    assert len(decode_batch(batch)) == 1
    for read in (decode_batch, lambda b, limit: list(decode_batches(b, limit))):
        with pytest.raises(MessageTooLargeError):
            read(batch, 10_000)
    with pytest.raises(MessageTooLargeError):
        recompress(batch, Codec.GZIP, 10_000)


def test_an_unknown_codec_and_wrong_data_for_a_codec() -> None:
    batch = encode_batch(RECORDS, base_offset=10)
    batch[22] = 7
    with pytest.raises(UnsupportedCompressionTypeError):
        decode_batch(batch)
    batch[22] = Codec.GZIP
    with pytest.raises(CorruptRecordError):
        decode_batch(batch)
