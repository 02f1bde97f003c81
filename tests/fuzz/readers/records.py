"""Readers of record batches: as a leader and a follower take them, their records, the four decompressors."""

from contextlib import suppress
from typing import Any

from tests.fuzz import samples
from tests.fuzz.fixups import Fixup
from tests.fuzz.reader import Reader, Run

_NOW_MS = 1_700_000_600_000
_LIMIT = 1 << 16
"""What a reader here allows a batch to become."""


def _made_batches() -> list[bytes]:
    """Batches of our own with every codec, headers, nulls, a producer, control records."""
    from holdfast.records.compression import Codec
    from holdfast.records.record import Record, encode_batch

    some = [
        Record(0, _NOW_MS, b"k0", b"value-0"),
        Record(1, _NOW_MS + 5, None, b"", [("h", b"1"), ("name", None)]),
        Record(2, _NOW_MS - 5, b"", None),
    ]
    long = [Record(i, _NOW_MS, b"key", b"value " * 4 + str(i).encode()) for i in range(12)]
    found = []
    for codec in Codec:
        found.append(encode_batch(some, compression=codec))
        found.append(encode_batch(long, compression=codec, base_offset=0, leader_epoch=3))
    found.append(encode_batch(some, producer_id=7, producer_epoch=0, base_sequence=0))
    found.append(encode_batch(some, producer_id=7, producer_epoch=1, base_sequence=2**31 - 2, transactional=True))
    marker = [Record(0, _NOW_MS, b"\0\0\0\1", b"\0\0\0\0\0\0")]
    found.append(encode_batch(marker, producer_id=7, producer_epoch=1, transactional=True, control=True))
    return [bytes(batch) for batch in found]


def batches_corpus() -> list[bytes]:
    """Single batches and two or three in a row, their offsets one after the other."""
    from holdfast.records.batch import parse_header, stamp

    batches = _made_batches() + samples.recorded_batches()
    found = list(batches)
    for i in range(0, len(batches) - 2, 3):
        offset, run = 0, b""
        for batch in batches[i : i + 3]:
            one = bytearray(batch)
            stamp(one, 0, offset, i % 5)
            offset = parse_header(one).next_offset
            run += one
        if len(run) <= 900:
            found.append(run)
    return found


# -- as a log takes them -----------------------------------------------------------------------------------------


def _make_batches() -> Run:
    """What a leader appends (by the topic's configuration that the first byte chooses) or a follower fetched.

    What passes is stamped and then is whole batches with good CRCs, offsets without a gap.
    """
    from holdfast.model.config import LogConfig
    from holdfast.model.errors import CorruptRecordError
    from holdfast.model.types import TopicPartition
    from holdfast.records.batch import complete_size, crc_ok, iter_headers, split
    from holdfast.storage.validation import check_batches, place_fetched, place_produced

    tp = TopicPartition("t", 0)
    configs = (
        LogConfig(),
        LogConfig(message_timestamp_type="LogAppendTime"),
        LogConfig(cleanup_policy=frozenset({"compact"})),
        LogConfig(compression_type="lz4"),
        LogConfig(max_message_bytes=200, timestamp_before_max_ms=3_600_000),
        LogConfig(compression_type="uncompressed"),
        None,
        None,
    )

    def run(data: bytes) -> Any:
        if not data:
            return None
        config, rest = configs[data[0] & 7], bytearray(data[1:])
        if config is None:
            fetched = place_fetched(rest, 0, None, tp)
            end = sum(p.size for p in fetched.placed)
            if end < complete_size(rest):  # whole batches before one that is damaged
                with suppress(CorruptRecordError):
                    position, header = next(iter_headers(memoryview(rest)[end:]))
                    assert not crc_ok(memoryview(rest)[end:], position, header)
            return len(fetched.placed) & 3, len(fetched.epochs) & 3
        taken, checked = check_batches(rest, config, _NOW_MS, tp, trusted=bool(data[0] & 8))
        placed, _ = place_produced(taken, checked, 1000, 5)
        offset = 1000
        for (position, header), place in zip(iter_headers(taken), placed, strict=True):
            assert header.base_offset == offset and place.at == position
            assert crc_ok(taken, position, header)
            offset = header.next_offset
        assert sum(map(len, split(taken))) == complete_size(taken)
        return len(placed) & 3

    return run


def _append_corpus() -> list[bytes]:
    return [bytes((i & 15,)) + batch for i, batch in enumerate(batches_corpus())]


# -- records -----------------------------------------------------------------------------------------------------


def _make_records() -> Run:
    """The records of batches, one object each; as many as the headers say, and encoded again they are the same."""
    from holdfast.records.batch import iter_headers
    from holdfast.records.record import decode_batches, encode_batch

    def run(data: bytes) -> Any:
        records = list(decode_batches(data, _LIMIT))
        headers = [header for _, header in iter_headers(data)]
        assert len(records) == sum(h.record_count for h in headers if not h.is_control and h.record_count > 0)
        if len(headers) == 1 and records and not data[-1] & 15 and headers[0].base_offset >= 0:
            try:
                again = encode_batch(records, base_offset=headers[0].base_offset)
            except (ValueError, OverflowError):
                return "not in order"
            except Exception as e:
                if type(e).__name__ != "error":  # struct.error: a number that we would not write
                    raise
                return "not ours"
            assert [tuple(r[2:]) for r in decode_batches(again)] == [tuple(r[2:]) for r in records]
        return len(records) & 7

    return run


# -- decompressors -----------------------------------------------------------------------------------------------


def _make_codec(name: str) -> Run:
    from holdfast.records.compression import Codec, decompress

    codec = Codec.named(name)

    def run(data: bytes) -> Any:
        size = len(decompress(codec, data, _LIMIT))
        assert size <= _LIMIT
        return size.bit_length()

    return run


def _codec_corpus(name: str) -> list[bytes]:
    from holdfast.records.batch import HEADER_SIZE, parse_header
    from holdfast.records.compression import Codec, compress

    codec = Codec.named(name)
    plain = [b"", b"a", b"abc" * 40, bytes(range(256)), b"\0" * 3000, b"value " * 30 + b"end"]
    found = [compress(codec, data) for data in plain]
    found += [batch[HEADER_SIZE:] for batch in samples.recorded_batches() if parse_header(batch).compression == codec]
    if codec is Codec.SNAPPY:
        import cramjam

        found += [bytes(cramjam.snappy.compress_raw(data)) for data in plain]
        found += [bytes(cramjam.snappy.compress(data)) for data in plain]
    if codec is Codec.LZ4:
        import cramjam

        found += [bytes(cramjam.lz4.compress(data)) for data in plain]
    return [item for item in found if len(item) <= 600]


def _codec(name: str, tokens: tuple[bytes, ...]) -> Reader:
    return Reader(
        name=name,
        reads=f"{name} data of a batch",
        make=lambda: _make_codec(name),
        corpus=lambda: _codec_corpus(name),
        tokens=tokens,
        max_size=600,
        memory_base=1 << 20,
    )


READERS = (
    Reader(
        name="batches",
        reads="record batches as a leader appends and a follower fetches them",
        make=_make_batches,
        corpus=_append_corpus,
        fixup=Fixup.BATCHES,
        prefix=1,
        max_size=420,
        memory_base=160 << 20,
        headroom=512 << 20,
    ),
    Reader(
        name="records",
        reads="the records inside batches, all codecs",
        make=_make_records,
        corpus=batches_corpus,
        fixup=Fixup.BATCHES,
        max_size=360,
        memory_base=1 << 20,
    ),
    _codec("gzip", (b"\x1f\x8b\x08\0", b"\x1f\x8b\x08\x1c", b"\0\0\xff\xff")),
    _codec("snappy", (b"\x82SNAPPY\0", b"\0\0\0\1\0\0\0\1", b"\xff\x06\0\0sNaPpY", b"\xff\xff\xff\xff\x0f")),
    _codec("lz4", (b"\x04\x22\x4d\x18", b"\x60\x40\x82", b"\x64\x70\xb9", b"\0\0\0\x80", b"\x50\x2a\x4d\x18")),
    _codec("zstd", (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18", b"\xb8\xff\xff", b"\x03\0\x10", b"\xff\xff\x0f")),
)
