"""Columns to record batches: where each row goes, and its bytes as a record.

Mirrors kernels/decode.py. Targets are large enough by the caller's arithmetic (MAX_OVERHEAD per record and header
beside the content), so nothing is checked here.
"""

from typing import Any

from holdfast.records.kernels.jit import as_source, as_target, copy_bytes, inline_jit, jit

__all__ = ["as_source", "as_target", "encode_records", "group_rows", "partitions_of_keys"]

MAX_OVERHEAD = 40
"""More than the lengths, deltas and counts of a record, or the lengths of a header, take."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@jit
def partitions_of_keys(
    ends: Any, nulls: Any, data: Any, partitions: int, without_key: int, given: Any, out: Any
) -> None:
    """The partition of each row: the one given (-1: none), else the key's as Kafka's clients hash it (murmur2),
    else, for a null key, ``without_key``."""
    for row in range(len(out)):
        if len(given) > 0 and int(given[row]) >= 0:
            out[row] = int(given[row])
            continue
        if nulls[row]:
            out[row] = without_key
            continue
        at = int(ends[row])
        size = int(ends[row + 1]) - at
        hashed = (_SEED ^ size) & _MASK
        for _ in range(size // 4):
            word = int(data[at]) | int(data[at + 1]) << 8 | int(data[at + 2]) << 16 | int(data[at + 3]) << 24
            word = (word * _M) & _MASK
            word = ((word ^ (word >> 24)) * _M) & _MASK
            hashed = ((hashed * _M) & _MASK) ^ word
            at += 4
        if size % 4:
            for i in range(size % 4):
                hashed ^= int(data[at + i]) << (8 * i)
            hashed = (hashed * _M) & _MASK
        hashed = ((hashed ^ (hashed >> 13)) * _M) & _MASK
        hashed ^= hashed >> 15
        out[row] = (hashed & 0x7FFFFFFF) % partitions


@jit
def group_rows(homes: Any, starts: Any, out: Any) -> None:
    """The rows by their partition, each one's in their order: partition p has ``out[starts[p]:starts[p + 1]]``.
    ``starts`` is all 0, and one longer than there are partitions."""
    for row in range(len(homes)):
        starts[int(homes[row]) + 1] += 1
    for home in range(len(starts) - 1):
        starts[home + 1] += starts[home]
    for row in range(len(homes)):
        home = int(homes[row])
        out[int(starts[home])] = row
        starts[home] += 1
    for home in range(len(starts) - 1, 0, -1):
        starts[home] = starts[home - 1]
    starts[0] = 0


@inline_jit
def _put(target: Any, at: int, value: int) -> int:
    """A zigzag varint of a value that is not negative, or -1. Returns the position after it."""
    rest = value << 1 if value >= 0 else 1
    while rest >= 0x80:
        target[at] = (rest & 0x7F) | 0x80
        rest >>= 7
        at += 1
    target[at] = rest
    return at + 1


@inline_jit
def _size(value: int) -> int:
    """Bytes of ``_put``."""
    rest = value << 1 if value >= 0 else 1
    size = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


@inline_jit
def _length(ends: Any, nulls: Any, row: int) -> int:
    """Bytes of an item, -1 if it is null."""
    return -1 if nulls[row] else int(ends[row + 1]) - int(ends[row])


@inline_jit
def _put_item(target: Any, at: int, ends: Any, nulls: Any, data: Any, row: int) -> int:
    size = _length(ends, nulls, row)
    at = _put(target, at, size)
    if size > 0:
        copy_bytes(target, at, data, int(ends[row]), size)
        at += size
    return at


@jit
def _headers_size(headers: Any, row: int) -> int:
    starts, stops, (name_ends, name_nulls, _), (content_ends, content_nulls, _c) = headers
    size = _size(int(stops[row]) - int(starts[row]))
    for item in range(int(starts[row]), int(stops[row])):
        name = _length(name_ends, name_nulls, item)
        content = _length(content_ends, content_nulls, item)
        size += _size(name) + max(name, 0) + _size(content) + max(content, 0)
    return size


@jit
def _put_headers(target: Any, at: int, headers: Any, row: int) -> int:
    starts, stops, (name_ends, name_nulls, names), (content_ends, content_nulls, contents) = headers
    at = _put(target, at, int(stops[row]) - int(starts[row]))
    for item in range(int(starts[row]), int(stops[row])):
        at = _put_item(target, at, name_ends, name_nulls, names, item)
        at = _put_item(target, at, content_ends, content_nulls, contents, item)
    return at


@jit
def encode_records(
    rows: Any, first: int, limit: int, at: int, count: int, keys: Any, values: Any, headers: Any, target: Any
) -> tuple[int, int]:
    """Appends records of ``rows[first:]`` to the ``count`` that ``target[:at]`` has, until it has ``limit`` bytes or
    more: (row after the last, bytes in all).

    ``keys`` and ``values`` are (ends, nulls, data), ``headers`` (starts, stops, names, contents), empty when there
    are none. All timestamps are the batch's own.
    """
    key_ends, key_nulls, key_data = keys
    value_ends, value_nulls, value_data = values
    bare = len(headers[0]) == 0  # to ask for each record costs as much as all else
    index = first
    while index < len(rows) and at < limit:
        row = int(rows[index])
        delta = count + index - first
        key = _length(key_ends, key_nulls, row)
        value = _length(value_ends, value_nulls, row)
        size = 2 + _size(delta) + _size(key) + max(key, 0) + _size(value) + max(value, 0)
        size += 1 if bare else _headers_size(headers, row)
        at = _put(target, at, size)
        target[at] = 0  # attributes
        target[at + 1] = 0  # timestamp delta
        at = _put(target, at + 2, delta)
        at = _put_item(target, at, key_ends, key_nulls, key_data, row)
        at = _put_item(target, at, value_ends, value_nulls, value_data, row)
        if bare:
            target[at] = 0
            at += 1
        else:
            at = _put_headers(target, at, headers, row)
        index += 1
    return index, at
