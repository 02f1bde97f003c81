"""The newest record of each key of one partition of ``__consumer_offsets``, as bytes.

Nearly all of its records are alike: a batch of one commit of one partition, for which this takes about a microsecond.
``replay.py`` decodes what is left. Record kinds and value versions that are not ours are skipped: an older value stays.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from crc32c import crc32c

from holdfast.coordinators.newest import Newest, Pair, Rest, bad_crc, value_of
from holdfast.groups.offset_records import GROUP_KEY, OFFSET_KEY, OFFSET_KEY_OLD, OFFSET_VALUE
from holdfast.model.errors import CorruptRecordError
from holdfast.records.batch import CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, parse_header

_NO_VALUE: Final = 1
"""Zigzag of -1: the length of a value that is none."""
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


class NewestOfGroups(Newest):
    """See the module's docstring."""

    __slots__ = ()

    def feed(self, data: bytes) -> int:
        """The next batches of the log; a partial one at the end is left. How many bytes were whole batches.

        CorruptRecordError, InvalidRecordError.
        """
        pairs, fields, lengths, end = self.pairs, _PLAIN.unpack_from, _LENGTHS, len(data)
        waiting = self.open
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
                            raise bad_crc(parse_header(data, at))
                        pairs[data[key:value]] = data[value:stop]
                        if waiting:
                            self.overtake((data[key:value],))
                        at = stop
                        continue
            stop = self.batch(data, at)
            if stop > end:
                break
            at = stop
        return at

    def known(self, found: list[tuple[bytes | None, Rest]]) -> list[Pair]:
        """Those of kinds and versions that we know, their keys in the newer version."""
        pairs: list[Pair] = []
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
                pairs.append((key, rest))
        return pairs


def _is_known(data: bytes, at: int) -> bool:
    return data[at] == 0 and data[at + 1] <= OFFSET_VALUE


def _has_known_value(rest: Rest) -> bool:
    """Offsets and groups have values of versions 0 to 4."""
    value = value_of(rest)
    return value is None or len(value) < 2 or _is_known(value, 0)
