"""The newest record of each key of one partition of an internal topic, as bytes.

Owns a table of keys and what follows them in their records; decodes neither. A partition may have millions of records
and few keys: what is done for every record is done here, or in a kind of its own where most records have one form
(groups/newest.py). ``Replaying.unfold`` (tenant.py) decodes what is left.

Batches with a bad CRC end it. Records of a transaction count once its commit marker comes, and then as of where they
are in the log: one that was written after them to the same key, outside of any transaction or in one that has ended,
stays the newest; and a tombstone takes what is open with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, TypeAlias, TypeVar

from crc32c import crc32c

from holdfast.model.errors import CorruptRecordError, InvalidRecordError
from holdfast.records.batch import CRC_START, HEADER_SIZE, BatchHeader, parse_header
from holdfast.records.compression import DEFAULT_LIMIT, Codec, decompress

Rest: TypeAlias = bytes
"""What follows the key in a record: its value's length as a varint, the value, headers."""
Pair: TypeAlias = tuple[bytes, Rest]
OpenPairs: TypeAlias = dict[bytes, dict[int, Rest | None]]
"""By key, by producer id in the order of the log: what open transactions wrote. None: something newer was written."""

T = TypeVar("T")

_MARKER: Final = Struct(">hh")
_COMMIT: Final = 1
_NO_VALUE: Final = 1
"""Zigzag of -1: the length of a value that is none."""
_SHORT: Final = 0x80
"""Varints below it have one byte."""


class Newest:
    """See the module's docstring. ``pairs``: by key, in no order that matters."""

    __slots__ = ("_keys", "open", "pairs", "skipped")

    def __init__(self) -> None:
        self.pairs: dict[bytes, Rest] = {}
        self.open: OpenPairs = {}
        """Of transactions that have no marker yet."""
        self.skipped = 0
        """Records without a key, or of other kinds."""
        self._keys: dict[int, dict[bytes, None]] = {}
        """Those in ``open``, by producer id."""

    def feed(self, data: bytes) -> int:
        """The next batches of the log; a partial one at the end is left. How many bytes were whole batches.

        CorruptRecordError, InvalidRecordError.
        """
        at, end = 0, len(data)
        while at + HEADER_SIZE <= end and (stop := self.batch(data, at)) <= end:
            at = stop
        return at

    def batch(self, data: bytes, at: int) -> int:
        """The batch that begins at ``at``, of any form, if it is whole; where it ends."""
        header = parse_header(data, at)
        stop = at + header.size
        if stop <= len(data):
            self._take(header, data[at:stop])
        return stop

    def known(self, found: list[tuple[bytes | None, Rest]]) -> list[Pair]:
        """Those that count, of a batch's records; ``skipped`` grows by the others."""
        pairs = [(key, rest) for key, rest in found if key is not None]
        self.skipped += len(found) - len(pairs)
        return pairs

    def _take(self, header: BatchHeader, batch: bytes) -> None:
        if crc32c(batch[CRC_START:]) != header.crc:
            raise bad_crc(header)
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
            self._wait(header.producer_id, self.known(found))
        else:
            pairs = self.known(found)
            self.pairs.update(pairs)
            if self.open:
                self.overtake(key for key, rest in pairs if rest[0] != _NO_VALUE)
                self._forget(key for key, rest in pairs if rest[0] == _NO_VALUE)

    def _wait(self, producer_id: int, pairs: list[Pair]) -> None:
        keys = self._keys.setdefault(producer_id, {})
        for key, rest in pairs:
            keys[key] = None
            waiting = self.open.setdefault(key, {})
            waiting.pop(producer_id, None)  # the last one in the log is the last one here
            waiting[producer_id] = rest

    def _end_transaction(self, producer_id: int, markers: list[tuple[bytes | None, Rest]]) -> None:
        for marker, _ in markers:
            if marker is None or len(marker) < _MARKER.size:
                raise CorruptRecordError(f"a marker of producer {producer_id} has the key {marker!r}")
            for key in self._keys.pop(producer_id, ()):
                waiting = self.open[key]
                if _MARKER.unpack_from(marker)[1] == _COMMIT:
                    rest = overtaken(waiting, producer_id)
                    if rest is not None:
                        self.pairs[key] = rest
                del waiting[producer_id]
                if not waiting:
                    del self.open[key]

    def _forget(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            for producer_id in self.open.pop(key, ()):
                del self._keys[producer_id][key]

    def overtake(self, keys: Iterable[bytes]) -> None:
        """Newer records of these keys were seen: what is open now will not replace them."""
        for key in keys:
            waiting = self.open.get(key)
            if waiting:
                for producer_id in waiting:
                    waiting[producer_id] = None


def overtaken(waiting: dict[int, T | None], producer_id: int) -> T | None:
    """What this producer wrote, which counts from now on; what others wrote before it will not."""
    found = waiting[producer_id]
    for each in waiting:
        if each == producer_id or found is None:
            break
        waiting[each] = None
    return found


def value_of(rest: Rest) -> bytes | None:
    """The value in what follows a key; None for a tombstone. InvalidRecordError."""
    try:
        size, at = _varint(rest, 0)
    except IndexError:
        size, at = 0, len(rest) + 1
    if size < 0:
        return None
    if at + size > len(rest):
        raise InvalidRecordError(f"a record's value of {size} bytes in {len(rest)}")
    return rest[at : at + size]


def bad_crc(header: BatchHeader) -> CorruptRecordError:
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
