"""Any records survive any codec; any bytes are records or refused; stamping touches what it says."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.errors import RecordError
from holdfast.records.batch import (
    HEADER_SIZE,
    complete_size,
    crc_ok,
    iter_headers,
    parse_header,
    split,
    stamp,
    stamp_crc,
    stamp_log_append_time,
)
from holdfast.records.compression import Codec, compress, decompress
from holdfast.records.record import Record, decode_batch, decode_batches, encode_batch, recompress

field = st.none() | st.binary(max_size=100)
headers = st.lists(st.tuples(st.text(max_size=8), field), max_size=3)
times = st.integers(-1, 2**43)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Records of one batch: offsets ascend, with gaps as in a compacted log."""
    offset = draw(st.integers(0, 2**40))
    found = []
    for _ in range(draw(st.integers(1, 6))):
        found.append(Record(offset, draw(times), draw(field), draw(field), draw(headers)))
        offset += draw(st.integers(1, 5))
    return found


@settings(deadline=None)
@given(records=record_lists(), codec=st.sampled_from(Codec), other=st.sampled_from(Codec))
def test_records_survive(records: list[Record], codec: Codec, other: Codec) -> None:
    batch = encode_batch(records, base_offset=records[0].offset, compression=codec)
    header = parse_header(batch)
    assert crc_ok(batch, 0, header)
    assert header.size == len(batch)
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(r.timestamp for r in records)
    assert decode_batch(batch) == records
    assert decode_batch(recompress(batch, other)) == records


@settings(deadline=None)
@given(lists=st.lists(record_lists(), max_size=4), cut=st.integers(0, 2000))
def test_splitting_finds_the_whole_batches(lists: list[list[Record]], cut: int) -> None:
    batches = [bytes(encode_batch(records, base_offset=records[0].offset)) for records in lists]
    data = b"".join(batches)[:cut]
    whole = [bytes(part) for part in split(data)]
    assert whole == batches[: len(whole)]
    assert complete_size(data) == sum(map(len, whole))
    assert len(data) - complete_size(data) < len(batches[len(whole)]) if len(whole) < len(batches) else True
    assert [r for records in lists[: len(whole)] for r in records] == list(decode_batches(data))


@settings(deadline=None)
@given(records=record_lists(), offset=st.integers(0, 2**62), epoch=st.integers(-1, 2**31 - 1), now=times)
def test_stamps(records: list[Record], offset: int, epoch: int, now: int) -> None:
    batch = encode_batch(records, base_offset=records[0].offset)
    before = parse_header(batch)
    stamp(batch, 0, offset, epoch)
    assert parse_header(batch) == before._replace(base_offset=offset, partition_leader_epoch=epoch)
    assert crc_ok(batch, 0, parse_header(batch))
    stamp_log_append_time(batch, 0, now)
    assert crc_ok(batch, 0, parse_header(batch))
    assert {r.timestamp for r in decode_batch(batch)} == {now}


@settings(deadline=None)
@given(records=record_lists(), at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_any_changed_byte_is_noticed_or_harmless(records: list[Record], at: int, byte: int) -> None:
    """After the CRC every changed byte fails it; and even with a right CRC decoding only ever refuses."""
    batch = encode_batch(records, base_offset=records[0].offset)
    at %= len(batch)
    changed = batch[at] != byte
    batch[at] = byte
    if changed and at >= 17:
        assert not crc_ok(batch, 0, parse_header(batch))
    if at >= HEADER_SIZE:
        stamp_crc(batch, 0)
        assert crc_ok(batch, 0, parse_header(batch))
    with suppress(RecordError, OverflowError):
        decode_batch(batch, 1_000_000)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_batches_or_refused(data: bytes) -> None:
    for read in (lambda: list(iter_headers(data)), lambda: complete_size(data), lambda: list(decode_batches(data))):
        with suppress(RecordError):
            read()


@settings(max_examples=200, deadline=None)
@given(codec=st.sampled_from(Codec), data=st.binary(max_size=5000), noise=st.binary(max_size=200))
def test_codecs(codec: Codec, data: bytes, noise: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data), 5000)) == data
    with suppress(RecordError):
        assert len(decompress(codec, noise, 1000)) <= 1000
