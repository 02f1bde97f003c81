"""The codecs, their framings, and bombs."""

import os
import zlib

import cramjam
import pytest

from holdfast.model.errors import CorruptRecordError, MessageTooLargeError, UnsupportedCompressionTypeError
from holdfast.records.compression import Codec, compress, decompress

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
INPUTS = [b"", b"x", b"the same again " * 20_000, os.urandom(200_000), bytes(65_536), bytes(32_768) + b"1"]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", INPUTS, ids=range(len(INPUTS)))
def test_there_and_back(codec: Codec, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert bytes(decompress(codec, packed)) == data
    assert bytes(decompress(codec, memoryview(b"!" + packed)[1:])) == data


def test_no_compression_is_no_copy() -> None:
    data = bytearray(b"x")
    assert decompress(Codec.NONE, data) is data


@pytest.mark.parametrize("codec", PACKING)
def test_a_bomb_is_refused_at_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(20_000_000))
    with pytest.raises(MessageTooLargeError, match="more than 1000000 bytes"):
        decompress(codec, bomb, limit=1_000_000)
    with pytest.raises(MessageTooLargeError):
        decompress(codec, bomb, limit=19_999_999)
    assert len(decompress(codec, bomb, limit=20_000_000)) == 20_000_000


def test_a_raw_snappy_bomb_is_refused_by_its_header() -> None:
    with pytest.raises(MessageTooLargeError):
        decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(30_000))), limit=1000)


def test_a_snappy_block_that_claims_more_than_it_can_make_gets_no_room() -> None:
    """cramjam makes room for what the header says, here 4 GiB, and the process ends when there is none."""
    for claim in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\x7f" + b"\x00a" * 10):
        with pytest.raises(CorruptRecordError, match="claims to make"):
            decompress(Codec.SNAPPY, claim)


@pytest.mark.parametrize("codec", PACKING)
def test_damage_is_corruption(codec: Codec) -> None:
    packed = compress(codec, INPUTS[2])
    for bad in (packed[: len(packed) // 2], b"plain bytes that nobody compressed", b"\xff" * 40):
        with pytest.raises(CorruptRecordError):
            decompress(codec, bad)


def test_snappy_is_written_in_blocks_and_read_raw_too() -> None:
    packed = compress(Codec.SNAPPY, bytes(100_000))
    assert packed.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"raw"))) == b"raw"


@pytest.mark.parametrize("tail", [b"\0\0", b"\0\0\1\0abc", b"\xff\xff\xff\xff"])
def test_snappy_blocks_that_do_not_fit(tail: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"abc") + tail)


def test_lz4_frames_are_what_java_reads() -> None:
    """Version 1, blocks independent and at most 64 KiB, no checksums; the descriptor's own checksum is right."""
    packed = compress(Codec.LZ4, b"abc" * 100_000)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    flags, block_size = packed[4], packed[5]
    assert flags >> 6 == 1
    assert flags & 0x20
    assert not flags & 0x1D
    assert block_size == 0x40
    assert bytes(cramjam.lz4.decompress(packed)) == b"abc" * 100_000
    assert packed.endswith(b"\0\0\0\0")


def test_lz4_stores_what_does_not_shrink() -> None:
    data = os.urandom(70_000)
    assert len(compress(Codec.LZ4, data)) == len(data) + 7 + 2 * 4 + 4


def test_gzip_is_gzip() -> None:
    assert zlib.decompress(compress(Codec.GZIP, b"abc"), wbits=31) == b"abc"


def test_several_members_and_frames() -> None:
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        assert bytes(decompress(codec, compress(codec, b"abc") + compress(codec, b"def"))) == b"abcdef"


def test_names_and_numbers() -> None:
    names = ("uncompressed", "none", "gzip", "snappy", "lz4", "zstd")
    assert [Codec.named(name) for name in names] == [0, 0, 1, 2, 3, 4]
    assert Codec.numbered(4) is Codec.ZSTD
    with pytest.raises(UnsupportedCompressionTypeError, match="brotli"):
        Codec.named("brotli")
    with pytest.raises(UnsupportedCompressionTypeError, match="7"):
        Codec.numbered(7)


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Codec.GZIP, (-1, 1, 9)),
        (Codec.LZ4, (1, 3, 9, 12, 17)),
        (Codec.ZSTD, (-131_072, -1, 1, 22)),
        (Codec.SNAPPY, (5,)),
    ],
)
def test_every_level_is_read_back(codec: Codec, levels: tuple[int, ...]) -> None:
    for level in levels:
        for data in INPUTS:
            assert bytes(decompress(codec, compress(codec, memoryview(data), level))) == data, level


def test_lz4_has_a_quick_compressor_at_level_9_and_a_thorough_one_at_any_other() -> None:
    data = b"".join(b'{"user":%d,"x":%d}' % (i * 7919 % 1000, i * i % 10007) for i in range(9000))
    quick, thorough = len(compress(Codec.LZ4, data)), len(compress(Codec.LZ4, data, 3))
    assert quick == len(compress(Codec.LZ4, data, 9)) > thorough > len(compress(Codec.LZ4, data, 12))
    assert len(compress(Codec.LZ4, data, 12)) == len(compress(Codec.LZ4, data, 17))
