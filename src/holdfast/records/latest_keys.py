"""The records of a batch by their keys: which of them are the newest of theirs. What log compaction asks of a batch.

Owns two walks over the bytes of records, and the form in which keys are remembered. No object per record is made but
its key: a log has millions of them (records/record.py has the format of a record).
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from holdfast.model.errors import InvalidRecordError
from holdfast.model.types import Offset, TimestampMs

Latest = dict[bytes, Offset]
"""Key, as ``known_as`` gives it -> offset of its newest record."""

_SHORT: Final = 0x80
_NULL: Final = 1
"""The varint -1, as a byte."""
_LONG: Final = 40
_DIGEST: Final = 20
NO_TIMESTAMP_DELTA: Final = -(1 << 63)


def known_as(key: bytes) -> bytes:
    """How a key is remembered: a short one as it is, a long one by its hash of 160 bits, and so is one that is as long
    as a hash: no key has the form of another."""
    size = len(key)
    return blake2b(key, digest_size=_DIGEST).digest() if size > _LONG or size == _DIGEST else key


class Selection(NamedTuple):
    """What of a batch stays.

    ``spans``: (start, end) of runs of records in the payload. ``kept``: how many records. ``max_delta``: their largest
    timestamp delta. ``tombstones``: some of them have no value.
    """

    spans: list[tuple[int, int]]
    kept: int
    max_delta: int
    tombstones: bool


def note_keys(data: bytes, count: int, base_offset: Offset, first: Offset, latest: Latest) -> None:
    """Note the offset of each keyed record of the ``count`` in ``data``, but of none before offset ``first``.

    InvalidRecordError if the bytes are not so many records."""
    at = 0
    try:
        for _ in range(count):
            size = data[at]
            at += 1
            if size >= _SHORT:
                more = data[at]
                at += 1
                size = size & 0x7F | more << 7
                if more >= _SHORT:
                    size, at = _unsigned(data, at - 2)
            stop = at + (size >> 1)
            at += 1  # attributes
            while data[at] >= _SHORT:  # time
                at += 1
            at += 1
            delta = data[at]
            at += 1
            if delta >= _SHORT:
                more = data[at]
                at += 1
                delta = delta & 0x7F | more << 7
                if more >= _SHORT:
                    delta, at = _unsigned(data, at - 2)
            length = data[at]
            at += 1
            if length >= _SHORT:
                length, at = _unsigned(data, at - 1)
            if not length & 1:
                length >>= 1
                key = data[at : at + length]
                if length > _LONG or length == _DIGEST:
                    key = known_as(key)
                at += length
                offset = base_offset + (delta >> 1)
                if offset >= first:
                    latest[key] = offset
            if at >= stop or size & 1:
                raise ValueError("a record that ends within its key")
            at = stop
    except (IndexError, ValueError) as e:
        raise InvalidRecordError(f"the records of the batch at offset {base_offset}: {e}") from None
    _check_end(at, len(data), base_offset)


def note_keys_of_all(data: bytes, base_offset: Offset, end_offset: Offset, latest: Latest) -> None:
    """As ``note_keys``, of a batch that has a record at each offset from ``base_offset`` to before ``end_offset``: what
    a producer sent, and nothing of it is gone. InvalidRecordError."""
    at = 0
    try:
        for offset in range(base_offset, end_offset):
            size = data[at]
            at += 1
            if size >= _SHORT:
                more = data[at]
                at += 1
                size = size & 0x7F | more << 7
                if more >= _SHORT:
                    size, at = _unsigned(data, at - 2)
            stop = at + (size >> 1)
            at += 2  # attributes, and the first byte of the time
            while data[at - 1] >= _SHORT:
                at += 1
            at += 1  # offset
            while data[at - 1] >= _SHORT:
                at += 1
            length = data[at]
            at += 1
            if length >= _SHORT:
                length, at = _unsigned(data, at - 1)
            if not length & 1:
                length >>= 1
                if length > _LONG or length == _DIGEST:
                    latest[known_as(data[at : at + length])] = offset
                else:
                    latest[data[at : at + length]] = offset
                at += length
            if at >= stop or size & 1:
                raise ValueError("a record that ends within its key")
            at = stop
    except (IndexError, ValueError) as e:
        raise InvalidRecordError(f"the records of the batch at offset {base_offset}: {e}") from None
    _check_end(at, len(data), base_offset)


def pick(data: bytes, base_offset: Offset, count: int, wanted: Sequence[Offset], *, keep_tombstones: bool) -> Selection:
    """As ``select``, of a batch as in ``note_keys_of_all``: the records at the offsets ``wanted``, which ascend; those
    have keys. InvalidRecordError."""
    spans: list[tuple[int, int]] = []
    kept, max_delta, tombstones, at = 0, NO_TIMESTAMP_DELTA, False, 0
    upcoming = iter(wanted)
    following = next(upcoming, None)
    try:
        for offset in range(base_offset, base_offset + count):
            start = at
            size = data[at]
            at += 1
            if size >= _SHORT:
                more = data[at]
                at += 1
                size = size & 0x7F | more << 7
                if more >= _SHORT:
                    size, at = _unsigned(data, at - 2)
            stop = at + (size >> 1)
            if offset == following:
                following = next(upcoming, None)
                time, at = _unsigned(data, at + 1)
                _, at = _unsigned(data, at)
                length, at = _unsigned(data, at)
                is_tombstone = data[at + (length >> 1)] == _NULL
                if keep_tombstones or not is_tombstone:
                    kept += 1
                    tombstones = tombstones or is_tombstone
                    max_delta = max(max_delta, time >> 1 ^ -(time & 1))
                    if spans and spans[-1][1] == start:
                        spans[-1] = spans[-1][0], stop
                    else:
                        spans.append((start, stop))
            at = stop
    except (IndexError, ValueError) as e:
        raise InvalidRecordError(f"the records of the batch at offset {base_offset}: {e}") from None
    _check_end(at, len(data), base_offset)
    return Selection(spans, kept, max_delta, tombstones)


def _check_end(at: int, end: int, base_offset: Offset) -> None:
    if at != end:
        raise InvalidRecordError(f"the records of the batch at offset {base_offset} end at {at}: expected {end} bytes")


def select(data: bytes, count: int, base_offset: Offset, latest: Latest, *, keep_tombstones: bool) -> Selection:
    """The records that are the newest of their keys. Those without a key do not stay: nobody could ever replace them.

    InvalidRecordError as ``note_keys``."""
    spans: list[tuple[int, int]] = []
    newest = latest.get
    kept, run, max_delta, tombstones, at = 0, -1, NO_TIMESTAMP_DELTA, False, 0
    try:
        for _ in range(count):
            start = at
            size = data[at]
            at += 1
            if size >= _SHORT:
                more = data[at]
                at += 1
                size = size & 0x7F | more << 7
                if more >= _SHORT:
                    size, at = _unsigned(data, at - 2)
            stop = at + (size >> 1)
            at += 1  # attributes
            time = data[at]
            at += 1
            if time >= _SHORT:
                time, at = _unsigned(data, at - 1)
            delta = data[at]
            at += 1
            if delta >= _SHORT:
                more = data[at]
                at += 1
                delta = delta & 0x7F | more << 7
                if more >= _SHORT:
                    delta, at = _unsigned(data, at - 2)
            length = data[at]
            at += 1
            if length >= _SHORT:
                length, at = _unsigned(data, at - 1)
            stays = False
            if not length & 1:
                length >>= 1
                key = data[at : at + length]
                if length > _LONG or length == _DIGEST:
                    key = known_as(key)
                at += length
                found = newest(key)
                if found is None or found <= base_offset + (delta >> 1):
                    if data[at] != _NULL:
                        stays = True
                    elif keep_tombstones:
                        stays = tombstones = True
            if at >= stop or size & 1:
                raise ValueError("a record that ends within its key")
            at = stop
            if stays:
                kept += 1
                time = time >> 1 ^ -(time & 1)
                if time > max_delta:
                    max_delta = time
                if run < 0:
                    run = start
            elif run >= 0:
                spans.append((run, start))
                run = -1
    except (IndexError, ValueError) as e:
        raise InvalidRecordError(f"the records of the batch at offset {base_offset}: {e}") from None
    _check_end(at, len(data), base_offset)
    if run >= 0:
        spans.append((run, at))
    return Selection(spans, kept, max_delta, tombstones)


def keyless(data: bytes, count: int, most: int) -> tuple[int, list[int]]:
    """How many of the records have no key, and the numbers of the first ``most`` of them. InvalidRecordError."""
    found, at = 0, 0
    numbers: list[int] = []
    try:
        for number in range(count):
            size, at = _unsigned(data, at)
            stop = at + (size >> 1)
            at += 1  # attributes
            for _ in range(2):  # time and offset
                while data[at] >= _SHORT:
                    at += 1
                at += 1
            if data[at] & 1:
                found += 1
                if len(numbers) < most:
                    numbers.append(number)
            if at >= stop or size & 1:
                raise ValueError(f"record {number} of {count} ends before its key")
            at = stop
    except (IndexError, ValueError) as e:
        raise InvalidRecordError(f"{count} records in {len(data)} bytes: {e}") from None
    if at != len(data):
        raise InvalidRecordError(f"{count} records end at {at} of {len(data)} bytes")
    return found, numbers


def restamped(data: bytes, spans: list[tuple[int, int]], shift: TimestampMs, fixed: TimestampMs | None) -> bytearray:
    """The records of ``spans`` with ``shift`` added to each timestamp delta; ``fixed``: the delta of all of them."""
    out = bytearray()
    for at, end in spans:
        while at < end:
            size, at = _unsigned(data, at)
            stop = at + (size >> 1)
            time, rest = _unsigned(data, at + 1)
            delta = (time >> 1 ^ -(time & 1)) + shift if fixed is None else fixed
            body = bytearray((data[at],))
            put_varint(body, delta)
            body += data[rest:stop]
            put_varint(out, len(body))
            out += body
            at = stop
    return out


def put_varint(out: bytearray, value: int) -> None:
    """A signed number, zigzag."""
    value = value << 1 ^ value >> 63
    while value >= _SHORT:
        out.append(value & 0x7F | _SHORT)
        value >>= 7
    out.append(value)


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    """A varint of at most ten bytes as it stands, zigzag and all, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < _SHORT:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError(f"varint at byte {at} is longer than ten bytes")
