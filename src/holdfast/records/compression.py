"""The four codecs of record batches, each in the framing that Kafka's clients read.

Owns bytes in, bytes out; knows no batch. ``decompress`` never makes more than ``limit`` bytes, whatever the input
claims: a few hundred bytes can otherwise ask for gigabytes.

* gzip: members as gzip writes them.
* snappy: written in the blocks of snappy-java (Java and librdkafka read them), read in these and raw.
* lz4: the frame format with independent blocks of 64 KiB, which is all that the Java client reads; cramjam's own
  frames have dependent blocks, so the frame is written here around its block compressor. That one knows no levels:
  with a level, each block is the only one of a frame that cramjam makes at it.
* zstd: frames.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Final, TypeAlias

import cramjam

from holdfast.model.errors import CorruptRecordError, MessageTooLargeError, UnsupportedCompressionTypeError

Buffer: TypeAlias = bytes | bytearray | memoryview

DEFAULT_LIMIT: Final = 128 * 1024 * 1024
"""Bytes that one batch may decompress to when the caller has no limit of its own."""


class Codec(IntEnum):
    """The numbers in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> "Codec":
        """The codec of a value of compression.type; ``producer`` has none."""
        try:
            return cls.NONE if name in ("uncompressed", "none") else cls[name.upper()]
        except KeyError:
            raise UnsupportedCompressionTypeError(
                f"compression type {name!r}: expected uncompressed, gzip, snappy, lz4 or zstd"
            ) from None

    @classmethod
    def numbered(cls, number: int) -> "Codec":
        try:
            return cls(number)
        except ValueError:
            raise UnsupportedCompressionTypeError(f"compression codec {number}: expected 0 to 4") from None


_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEAD: Final = Struct(">8sii")
_XERIAL_BLOCK: Final = 32 * 1024
_BLOCK_SIZE: Final = Struct(">i")
_SNAPPY_RATIO: Final = 22
"""No snappy block makes more than this per byte: three bytes copy 64 at most."""

# Frame version 1, independent blocks of at most 64 KiB, no checksums; the last byte is the header's own checksum.
_LZ4_HEAD: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_SIZE: Final = Struct("<I")
_LZ4_STORED: Final = 0x80000000
_LZ4_END: Final = b"\0\0\0\0"
_LZ4_FAST: Final = 9
"""The level that means the quick compressor, as in Kafka; any other one is of the slow one, which knows 3 to 12."""
_LZ4_SLOWEST: Final = 12
_LZ4_FIRST_BLOCK: Final = 7
"""Where the first block begins in one of cramjam's frames."""

_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3
_FIRST_GUESS: Final = 16 * 1024


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """``data`` by ``codec``. ``level``: a value of compression.CODEC.level (KIP-390); None: Kafka's default."""
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL if level is None or level < 0 else level))
    if codec is Codec.SNAPPY:
        return _compress_snappy(data)
    if codec is Codec.LZ4:
        return _compress_lz4(data, _LZ4_FAST if level is None else level)
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))


def decompress(codec: Codec, data: Buffer, limit: int = DEFAULT_LIMIT) -> Buffer:
    """What was compressed. CorruptRecordError if it cannot be read, MessageTooLargeError beyond ``limit``."""
    if codec is Codec.NONE:
        return data
    try:
        if codec is Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        return _decompress_growing(codec, data, limit)
    except (cramjam.DecompressionError, StructError) as e:
        raise CorruptRecordError(f"{codec.name.lower()} data of {len(data)} bytes: {e}") from None


def _decompress_growing(codec: Codec, data: Buffer, limit: int) -> Buffer:
    """Into a buffer of a guessed size, four times as large after each miss, up to the limit."""
    module = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[codec]
    source = memoryview(data)
    room = min(limit, max(_FIRST_GUESS, 4 * len(source)))
    while True:
        out = bytearray(room)
        try:
            size: int = module.decompress_into(source, out)
            return memoryview(out)[:size].toreadonly()
        except cramjam.DecompressionError as e:
            # The only message that means "more room": everything else is bad input.
            if "write whole buffer" not in str(e):
                raise
        if room >= limit:
            raise _too_large(codec, len(source), limit)
        room = min(limit, room * 4)


def _too_large(codec: Codec, size: int, limit: int) -> MessageTooLargeError:
    return MessageTooLargeError(f"{codec.name.lower()} data of {size} bytes decompresses to more than {limit} bytes")


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    out = [_XERIAL_HEAD.pack(_XERIAL_MAGIC, 1, 1)]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(out)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    out: list[bytes] = []
    made = 0
    for block in _snappy_blocks(memoryview(data)):
        # A block's header says what it makes; nothing is made before that is known to fit.
        made += snappy_size(block)
        if made > limit:
            raise _too_large(Codec.SNAPPY, len(data), limit)
        out.append(bytes(cramjam.snappy.decompress_raw(block)))
    return b"".join(out)


def snappy_size(block: memoryview) -> int:
    """What the header of a raw block says that it makes. CorruptRecordError if no block of this size can make it: room
    is made for what a header claims."""
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_RATIO * len(block):
        raise CorruptRecordError(f"a snappy block of {len(block)} bytes claims to make {size}")
    return size


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    if bytes(view[:8]) != _XERIAL_MAGIC:
        yield view
        return
    pos, end = _XERIAL_HEAD.size, len(view)
    while pos < end:
        size: int = _BLOCK_SIZE.unpack_from(view, pos)[0]
        pos += 4
        if not 0 <= size <= end - pos:
            raise CorruptRecordError(f"a snappy block of {size} bytes where {end - pos} are left")
        yield view[pos : pos + size]
        pos += size


def _compress_lz4(data: Buffer, level: int) -> bytes:
    view = memoryview(data)
    out = [_LZ4_HEAD]
    for start in range(0, len(view), _LZ4_BLOCK):
        plain = view[start : start + _LZ4_BLOCK]
        if level == _LZ4_FAST:
            block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        else:
            block = _lz4_block(plain, min(level, _LZ4_SLOWEST))
        if len(block) < len(plain):
            out += (_LZ4_SIZE.pack(len(block)), block)
        else:
            out += (_LZ4_SIZE.pack(len(plain) | _LZ4_STORED), bytes(plain))
    out.append(_LZ4_END)
    return b"".join(out)


def _lz4_block(plain: memoryview, level: int) -> bytes:
    """One block at a level of the slow compressor; as it is if that does not make it smaller."""
    frame = memoryview(cramjam.lz4.compress(plain, level=max(level, 3)))
    size: int = _LZ4_SIZE.unpack_from(frame, _LZ4_FIRST_BLOCK)[0] & ~_LZ4_STORED
    start = _LZ4_FIRST_BLOCK + _LZ4_SIZE.size
    return bytes(frame[start : start + size])
