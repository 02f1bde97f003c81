"""Many mutants of a corpus at once, in compiled code: a mutant costs less than the call that reads it.

Owns the operators and the random numbers. One call fills a buffer with a chunk of mutants one after the other; all it
does follows from the corpus and the state of the generator, so a seed gives the same inputs again. Knows the few
things of our formats without which a mutant never gets past the first check: the CRC of a batch and of a snapshot,
the size of a frame, and archives, in which one input stands for several files.
"""

from typing import Any, Final

import numpy as np
from numba import njit

MAX_STACKED: Final = 6
_FRESH: Final = 64
_HEAD: Final = 80
_OPERATORS: Final = 14
_INTERESTING: Final = np.array([0, 1, 2, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF, 0x3F, 0x40, 0x20], np.uint8)


def _crc_table() -> Any:
    table = np.zeros((8, 256), np.uint32)
    for i in range(256):
        crc = i
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table[0, i] = crc
    for k in range(1, 8):
        for i in range(256):
            before = int(table[k - 1, i])
            table[k, i] = int(table[0, before & 0xFF]) ^ (before >> 8)
    return table


_CRC: Final = _crc_table()


@njit(cache=True)
def _crc32c(data, start, end):
    crc = np.uint32(0xFFFFFFFF)
    i = start
    while end - i >= 8:
        low = crc ^ (
            np.uint32(data[i])
            | (np.uint32(data[i + 1]) << np.uint32(8))
            | (np.uint32(data[i + 2]) << np.uint32(16))
            | (np.uint32(data[i + 3]) << np.uint32(24))
        )
        crc = (
            _CRC[7, low & np.uint32(0xFF)]
            ^ _CRC[6, (low >> np.uint32(8)) & np.uint32(0xFF)]
            ^ _CRC[5, (low >> np.uint32(16)) & np.uint32(0xFF)]
            ^ _CRC[4, low >> np.uint32(24)]
            ^ _CRC[3, data[i + 4]]
            ^ _CRC[2, data[i + 5]]
            ^ _CRC[1, data[i + 6]]
            ^ _CRC[0, data[i + 7]]
        )
        i += 8
    while i < end:
        crc = _CRC[0, (crc ^ np.uint32(data[i])) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
        i += 1
    return crc ^ np.uint32(0xFFFFFFFF)


@njit(cache=True)
def _next(state):
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64(x >> np.uint64(2))


@njit(cache=True)
def _below(state, n):
    return _next(state) % n


@njit(cache=True)
def _get32(data, at):
    return (
        (np.int64(data[at]) << 24)
        | (np.int64(data[at + 1]) << 16)
        | (np.int64(data[at + 2]) << 8)
        | np.int64(data[at + 3])
    )


@njit(cache=True)
def _put(data, at, value, size):
    """``value`` big-endian in ``size`` bytes."""
    for i in range(size):
        data[at + i] = np.uint8((value >> (8 * (size - 1 - i))) & 0xFF)


@njit(cache=True)
def _number(state, room):
    """A number that lengths, counts and offsets go wrong with."""
    choice = _below(state, 12)
    if choice == 0:
        return np.int64(-1)
    if choice == 1:
        return np.int64(0)
    if choice == 2:
        return np.int64(0x7FFFFFFF)
    if choice == 3:
        return np.int64(-0x80000000)
    if choice == 4:
        return np.int64(0x7FFFFFFFFFFFFFFF)
    if choice == 5:
        return np.int64(-0x8000000000000000)
    if choice == 6:
        return np.int64(1) << _below(state, 63)
    if choice == 7:
        return (np.int64(1) << _below(state, 63)) - 1
    if choice == 8:
        return -(np.int64(1) << _below(state, 63))
    if choice == 9:
        return np.int64(room) + _below(state, 9) - 4
    if choice == 10:
        return np.int64(_below(state, 20)) - 4
    return np.int64(_below(state, 1 << 20))


@njit(cache=True)
def _shift(data, base, size, at, by, limit):
    """Open (or close) a gap of ``by`` bytes at ``at``; the new size, at most ``limit``."""
    if by > 0:
        by = min(by, limit - size)
        for i in range(size - 1, at - 1, -1):
            data[base + i + by] = data[base + i]
    else:
        by = max(by, at - size)
        for i in range(at, size + by):
            data[base + i] = data[base + i - by]
    return size + by


@njit(cache=True)
def _position(state, prefix, size):
    """A place in the input; every other time near its start, where headers are."""
    span = size - prefix
    if span <= 1:
        return prefix
    if span > _HEAD and _next(state) & 1:
        span = _HEAD
    return prefix + _below(state, span)


@njit(cache=True)
def _varint(state, data, base, size, at, limit, zigzag):
    """Put an unsigned (or zigzag) varint of a bad number in place of the byte at ``at``."""
    number = _number(state, size - at)
    value = np.uint64(number)
    if zigzag:
        value = np.uint64((number << 1) ^ (number >> 63))
    elif number >= 0 and _next(state) & 1:
        value += np.uint64(1)  # compact lengths count from one
    if not zigzag and _next(state) & 1:
        value &= np.uint64(0xFFFFFFFF)
    count = 1
    rest = value >> np.uint64(7)
    while rest:
        count += 1
        rest >>= np.uint64(7)
    if size + count - 1 > limit:
        return size
    size = _shift(data, base, size, at, count - 1, limit)
    for i in range(count):
        low = np.uint8(value & np.uint64(0x7F))
        value >>= np.uint64(7)
        data[base + at + i] = low | np.uint8(0x80) if value else low
    return size


@njit(cache=True)
def _repeat(state, data, base, size, at, limit, prefix):
    """A block of the input once or many times more."""
    length = 1 + _below(state, max(1, min(64, size - at)))
    if at + length > size:
        length = size - at
    times = 1 + (_below(state, 4) if _next(state) & 3 else _below(state, 64))
    gap = min(length * times, limit - size)
    if gap <= 0 or length <= 0:
        return size
    size = _shift(data, base, size, at, gap, limit)
    for i in range(gap):
        data[base + at + i] = data[base + at + gap + (i % length)]
    return size


@njit(cache=True)
def _splice(state, data, base, size, at, limit, source, start, end):
    """The end of another input, or a piece of it over this one."""
    other = end - start
    if other <= 0:
        return size
    first = _below(state, other)
    if _next(state) & 1:
        length = min(other - first, limit - at)
        for i in range(length):
            data[base + at + i] = source[start + first + i]
        return at + length
    length = min(min(1 + _below(state, 64), other - first), size - at)
    for i in range(length):
        data[base + at + i] = source[start + first + i]
    return size


@njit(cache=True)
def _token(state, data, base, size, at, limit, tokens, token_ends):
    """A word of the reader's own over or into the input."""
    which = _below(state, len(token_ends) - 1)
    start, end = token_ends[which], token_ends[which + 1]
    length = end - start
    if _next(state) & 1:
        if size + length > limit:
            return size
        size = _shift(data, base, size, at, length, limit)
    length = min(length, limit - at)
    for i in range(length):
        data[base + at + i] = tokens[start + i]
    return max(size, at + length)


@njit(cache=True)
def _mutate(state, data, base, size, limit, prefix, source, ends, tokens, token_ends):
    """One operator on the input of ``size`` bytes at ``base``; the new size."""
    at = _position(state, prefix, size)
    if size <= prefix:  # nothing is left: some bytes to begin with
        count = min(1 + _below(state, 8), limit - size)
        for i in range(count):
            data[base + size + i] = np.uint8(_below(state, 256))
        return size + count
    operator = _below(state, _OPERATORS)
    if operator == 0:
        data[base + at] ^= np.uint8(1 << _below(state, 8))
    elif operator == 1:
        data[base + at] = np.uint8(_below(state, 256))
    elif operator == 2:
        data[base + at] = _INTERESTING[_below(state, len(_INTERESTING))]
    elif operator == 3:
        data[base + at] = np.uint8((np.int64(data[base + at]) + _below(state, 33) - 16) & 0xFF)
    elif operator == 4:
        width = 2 << _below(state, 3)
        if at + width <= size:
            _put(data, base + at, _number(state, size - at), width)
    elif operator == 5:
        return _varint(state, data, base, size, at, limit, _next(state) & 1)
    elif operator == 6:
        return at
    elif operator == 7:
        return _shift(data, base, size, at, -(1 + _below(state, 24)), limit)
    elif operator == 8:
        return _repeat(state, data, base, size, at, limit, prefix)
    elif operator == 9:
        which = _below(state, len(ends) - 1)
        return _splice(state, data, base, size, at, limit, source, ends[which] + prefix, ends[which + 1])
    elif operator == 10:
        if len(token_ends) > 1:
            return _token(state, data, base, size, at, limit, tokens, token_ends)
    elif operator == 11:
        if at + 4 <= size:
            _put(data, base + at, _get32(data, base + at) + _below(state, 17) - 8, 4)
    elif operator == 12:
        length = min(1 + _below(state, 16), size - at)
        value = _INTERESTING[_below(state, len(_INTERESTING))]
        for i in range(length):
            data[base + at + i] = value
    else:
        length = min(1 + _below(state, 12), limit - size)
        size = _shift(data, base, size, at, length, limit)
        for i in range(length):
            data[base + at + i] = np.uint8(_below(state, 256))
    return size


@njit(cache=True)
def _fix_batches(state, data, start, end):
    at = start
    while end - at >= 61:
        if _next(state) & 7:
            data[at + 16] = 2
        total = _get32(data, at + 8) + 12
        if (total < 61 or total > end - at) and _next(state) & 7:
            total = end - at
            _put(data, at + 8, total - 12, 4)
        if total < 61 or total > end - at:
            return
        _put(data, at + 17, np.int64(_crc32c(data, at + 21, at + total)), 4)
        at += total


@njit(cache=True)
def _fix_snapshot(state, data, start, end):
    if end - start < 10:
        return
    rows = (end - start - 10) // 46
    if (end - start - 10) % 46 == 0 and _next(state) & 7:
        _put(data, start + 6, rows, 4)
    _put(data, start + 2, np.int64(_crc32c(data, start + 6, end)), 4)


@njit(cache=True)
def _fix(state, data, start, end, kind, prefix):
    if kind == 0 or _next(state) & 15 == 0:
        return
    if kind == 1:
        _fix_batches(state, data, start + prefix, end)
    elif kind == 2:
        _fix_snapshot(state, data, start + prefix, end)
    elif kind == 3:
        if end - start - prefix >= 4 and _next(state) & 1:
            _put(data, start + prefix, end - start - prefix - 4, 4)
    else:
        at = start + prefix
        while end - at >= 3:
            file_kind = data[at]
            size = min((np.int64(data[at + 1]) << 8) | np.int64(data[at + 2]), end - at - 3)
            at += 3
            if file_kind & 7 == 0:
                _fix_batches(state, data, at, at + size)
            elif file_kind & 7 == 1:
                _fix_snapshot(state, data, at, at + size)
            at += size


@njit(cache=True)
def mutants(state, source, ends, tokens, token_ends, out, offsets, limit, prefix, fixup):
    """Fill ``out`` with ``len(offsets) - 1`` mutants; number i is ``out[offsets[i]:offsets[i + 1]]``.

    ``source[ends[i]:ends[i + 1]]`` are the parents, at most ``limit`` bytes each, as the mutants are.
    """
    parents = len(ends) - 1
    base = 0
    for number in range(len(offsets) - 1):
        offsets[number] = base
        if _next(state) & 1 and parents > _FRESH:
            parent = parents - 1 - _below(state, _FRESH)  # what was found last leads on most often
        else:
            parent = _below(state, parents)
        start = ends[parent]
        size = ends[parent + 1] - start
        for i in range(size):
            out[base + i] = source[start + i]
        changes = 1
        while changes < MAX_STACKED and _next(state) & 1:
            changes += 1
        for _ in range(changes):
            size = _mutate(state, out, base, size, limit, prefix, source, ends, tokens, token_ends)
        if prefix and _next(state) & 31 == 0:
            for i in range(min(prefix, size)):
                out[base + i] = np.uint8(_below(state, 256))
        _fix(state, out, base, base + size, fixup, prefix)
        base += size
    offsets[len(offsets) - 1] = base
