"""The newest record of each key of one partition of ``__consumer_offsets``, as bytes.

Owns a table of keys and what follows them in their records; decodes neither. A partition has millions of records and
few keys, so what is done for every record is done here and is as little as can be: about a microsecond for a commit of
one partition. ``replay.py`` decodes what is left.

Batches with a bad CRC end it. Record kinds and value versions that are not ours are skipped: an older value stays.
Offsets committed in a transaction count once its commit marker comes, as Kafka's logs may have them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

from crc32c import crc32c

from holdfast.groups.offset_records import GROUP_KEY, OFFSET_KEY, OFFSET_KEY_OLD, OFFSET_VALUE
from holdfast.model.errors import CorruptRecordError, InvalidRecordError
from holdfast.records.batch import CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, parse_header
from holdfast.records.compression import DEFAULT_LIMIT, Codec, decompress

Rest: TypeAlias = bytes
"""What follows the key in a record: its value's length as a varint, the value, headers."""
Pair: TypeAlias = tuple[bytes, Rest]

_NO_VALUE: Final = 1
"""Zigzag of -1: the length of a value that is none."""
_MARKER: Final = Struct(">hh")
_COMMIT: Final = 1
_SHORT: Final = 0x80
"""Varints below it have one byte."""

_PLAIN: Final = Struct(">8xi4xbIH34xiHIH")
"""Of a batch: length, magic, CRC, attributes, number of records; of its first record: two bytes of its size;
attributes, deltas of time and offset, and size of the key in a byte each; the kind of the key."""
_PLAIN_SIZE: Final = _PLAIN.size
_NOT_PLAIN: Final = 0x00FFFF81
"""Bits of those four bytes that are 0 when the deltas are, and the key has 0 to 63 bytes."""
_FIRST_KEY: Final = 67
"""Where the first record's key begins in a batch, when the record's size has two bytes."""
_LENGTHS: Final = {
    (size << 1 & 0x7F | 0x80) << 8 | size >> 6: HEADER_SIZE - LENGTH_OVERHEAD + 2 + size for size in range(64, 1 << 13)
}
"""The length of a batch whose only record has a size of these two bytes."""


class Newest:
    """See the module's docstring. ``pairs``: by key, in no order that matters."""

    __slots__ = ("_open", "pairs", "skipped")

    def __init__(self) -> None:
        self.pairs: dict[bytes, Rest] = {}
        self.skipped = 0
        """Records of other kinds."""
        self._open: dict[int, list[Pair]] = {}
        """Of transactions that have no marker yet, by producer id."""

    def feed(self, data: bytes) -> int:
        """The next batches of the log; a partial one at the end is left. How many bytes were whole batches.

        CorruptRecordError, InvalidRecordError.
        """
        pairs, fields, lengths, end = self.pairs, _PLAIN.unpack_from, _LENGTHS, len(data)
        at = 0
        while at + HEADER_SIZE <= end:
            if at + _PLAIN_SIZE <= end:
                length, magic, crc, attributes, count, size, bits, kind = fields(data, at)
                # One commit of one partition, as nearly all of them are: no batch of another form passes all of this.
                if count == 1 and length == lengths.get(size) and not (bits & _NOT_PLAIN or attributes):
                    stop = at + LENGTH_OVERHEAD + length
                    key = at + _FIRST_KEY
                    value = key + (bits >> 1 & 0x3F)
                    if (
                        kind == OFFSET_KEY and magic == MAGIC and value + 3 <= stop <= end
                        and _NO_VALUE < data[value] < _SHORT and not data[value + 1] and data[value + 2] <= OFFSET_VALUE
                    ):  # fmt: skip
                        if crc32c(data[at + CRC_START : stop]) != crc:
                            raise _bad_crc(parse_header(data, at))
                        pairs[data[key:value]] = data[value:stop]
                        at = stop
                        continue
            header = parse_header(data, at)
            stop = at + header.size
            if stop > end:
                break
            self._take(header, data[at:stop])
            at = stop
        return at

    def _take(self, header: BatchHeader, batch: bytes) -> None:
        """A batch of any form."""
        if crc32c(batch[CRC_START:]) != header.crc:
            raise _bad_crc(header)
        payload = batch[HEADER_SIZE:]
        if header.compression:
            payload = bytes(decompress(Codec.numbered(header.compression), payload, DEFAULT_LIMIT))
        try:
            found = _pairs(payload, header.record_count)
        except (IndexError, ValueError) as e:
            raise InvalidRecordError(f"the records of the batch at offset {header.base_offset}: {e}") from None
        if header.is_control:
            self._end_transaction(header.producer_id, found)
        elif header.is_transactional:
            self._open.setdefault(header.producer_id, []).extend((k, r) for k, r in found if k is not None)
        else:
            self._keep(found)

    def _end_transaction(self, producer_id: int, markers: list[tuple[bytes | None, Rest]]) -> None:
        for key, _ in markers:
            waiting = self._open.pop(producer_id, [])
            if key is None or len(key) < _MARKER.size:
                raise CorruptRecordError(f"a marker of producer {producer_id} has the key {key!r}")
            if _MARKER.unpack_from(key)[1] == _COMMIT:
                self._keep(waiting)

    def _keep(self, found: list[tuple[bytes | None, Rest]] | list[Pair]) -> None:
        pairs = self.pairs
        for key, rest in found:
            if key is None:
                self.skipped += 1
                continue
            if len(key) < 2:
                raise CorruptRecordError(f"a group record has the key {key!r}: expected its kind in two bytes")
            kind = key[0] << 8 | key[1]
            if kind == OFFSET_KEY_OLD:  # the same thing as a key of the newer version
                key = bytes((0, OFFSET_KEY)) + key[2:]
            size = rest[0]
            is_known = _is_known(rest, 1) if 4 <= size < _SHORT and len(rest) > 2 else _has_known_value(rest)
            if kind > GROUP_KEY or not is_known:
                self.skipped += 1
            else:
                pairs[key] = rest


def value_of(rest: Rest) -> bytes | None:
    """The value in what follows a key; None for a tombstone. InvalidRecordError."""
    try:
        size, at = _varint(rest, 0)
    except IndexError:
        size, at = 0, len(rest) + 1
    if size < 0:
        return None
    if at + size > len(rest):
        raise InvalidRecordError(f"a group record's value of {size} bytes in {len(rest)}")
    return rest[at : at + size]


def _is_known(data: bytes, at: int) -> bool:
    return data[at] == 0 and data[at + 1] <= OFFSET_VALUE


def _has_known_value(rest: Rest) -> bool:
    """Offsets and groups have values of versions 0 to 4."""
    value = value_of(rest)
    return value is None or len(value) < 2 or _is_known(value, 0)


def _bad_crc(header: BatchHeader) -> CorruptRecordError:
    return CorruptRecordError(f"the batch at offset {header.base_offset} fails its CRC")


def _pairs(payload: bytes, count: int) -> list[tuple[bytes | None, Rest]]:
    """Key and rest of each record. IndexError or ValueError when they are not ``count`` records."""
    found: list[tuple[bytes | None, Rest]] = []
    append, at, end = found.append, 0, len(payload)
    for number in range(count):
        size = payload[at]
        at += 1
        if size >= _SHORT:
            size, at = _varint(payload, at - 1)
        else:
            size = size >> 1 ^ -(size & 1)
        stop = at + size
        if size < 0 or stop > end:
            raise ValueError(f"record {number} of {count} has {size} bytes where {end - at} are left")
        at += 1  # attributes
        while payload[at] >= _SHORT:  # time
            at += 1
        at += 1
        while payload[at] >= _SHORT:  # offset
            at += 1
        at += 1
        size = payload[at]
        at += 1
        if size >= _SHORT:
            size, at = _varint(payload, at - 1)
        else:
            size = size >> 1 ^ -(size & 1)
        if size < 0:
            append((None, payload[at:stop]))
        elif at + size >= stop:
            raise ValueError(f"record {number} of {count} has a key of {size} bytes where {stop - at} are left")
        else:
            append((payload[at : at + size], payload[at + size : stop]))
        at = stop
    if at != end:
        raise ValueError(f"{end - at} bytes after the {count} records")
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < _SHORT:
            return value >> 1 ^ -(value & 1), at
        if shift > 63:
            raise ValueError(f"varint at byte {at} is longer than ten bytes")
