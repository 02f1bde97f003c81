"""What kernels share that walk values of a schema: reading numbers, and appending to the buffers of columns.

Positions are in bytes into ``source``. What reads answers a position, or ``-code`` where the value is bad there.

Columns are *slots*: one row of SLOT_FIELDS integers each, in one flat array, parents before their children. A slot is
of a *level*: level 0 has an item per row, every list has a level of its own below it. ``counts[level]`` is the item
that is being filled. All buffers lie in one arena, seen as bytes (``a8``), int32 (``a32``) and int64 (``a64``); the
addresses in a slot count in the units of the view that it is for. Ends of lists, strings and bytes begin with a 0.
"""

from typing import Any

from holdfast.records.kernels.jit import copy_bytes, inline_jit

LEVEL = 0
KIND = 1
VALID = 2  # in bytes: one byte an item, 1 if it is not null
ENDS = 3  # in int32
DATA = 4  # in units of its kind
CHILD = 5  # the level of a list's items
WIDTH = 6  # bytes of a FIXED item
FIRST = 7  # what VALID is before anything was said of an item
SLOT_FIELDS = 8

STRUCT = 0
BYTE = 1
WORD = 2
LONG = 3
FIXED = 4
SIZED = 5
LIST = 6

TRUNCATED = 1
LONG_VARINT = 2
BAD_LENGTH = 3
NOT_UTF8 = 4
NOT_BOOLEAN = 5
INT_RANGE = 6
BAD_BRANCH = 7
BAD_SYMBOL = 8
OTHER_SYMBOL = 9
DECIMAL_RANGE = 10
TIME_RANGE = 11
TRAILING = 12
NULL_VALUE = 13
BAD_TAG = 14
BAD_GROUP = 15
MISSING = 16


@inline_jit
def zigzag(source: Any, at: int, stop: int) -> tuple[int, int]:
    """A zigzag varint of up to 64 bits: (value, position after it).

    Sign and magnitude are taken apart, so that no intermediate needs a 64th bit.
    """
    if at >= stop:
        return 0, -TRUNCATED
    byte = int(source[at])
    at += 1
    sign = byte & 1
    magnitude = (byte & 0x7F) >> 1
    shift = 6
    while byte & 0x80:
        if shift > 62:
            return 0, -LONG_VARINT
        if at >= stop:
            return 0, -TRUNCATED
        byte = int(source[at])
        at += 1
        if shift == 62 and byte > 1:
            return 0, -LONG_VARINT
        magnitude |= (byte & 0x7F) << shift
        shift += 7
    return magnitude ^ -sign, at


@inline_jit
def is_utf8(source: Any, at: int, stop: int) -> bool:
    """Whether these bytes are UTF-8 as RFC 3629 has it: no surrogates, nothing longer than it has to be."""
    seen = 0
    for i in range(at, stop):
        seen |= int(source[i])
    if seen < 0x80:
        return True
    while at < stop:
        byte = int(source[at])
        at += 1
        if byte < 0x80:
            continue
        least, most = 0x80, 0xBF  # of the second byte
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                least = 0xA0
            elif byte == 0xED:
                most = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                least = 0x90
            elif byte == 0xF4:
                most = 0x8F
        else:
            return False
        if more > stop - at:
            return False
        for _i in range(more):
            byte = int(source[at])
            at += 1
            if byte < least or byte > most:
                return False
            least, most = 0x80, 0xBF
    return True


@inline_jit
def put_bytes(
    slots: Any, slot: int, counts: Any, sizes: Any, a8: Any, a32: Any, source: Any, at: int, size: int
) -> None:
    """Makes ``size`` bytes the item of a SIZED slot. Without an arena only its size is counted."""
    if len(a8) == 0:
        sizes[slot] += size
        return
    base = slot * SLOT_FIELDS
    item = int(counts[slots[base + LEVEL]])
    ends = int(slots[base + ENDS]) + item
    start = int(a32[ends])
    copy_bytes(a8, int(slots[base + DATA]) + start, source, at, size)
    a32[ends + 1] = start + size
    a8[int(slots[base + VALID]) + item] = 1


@inline_jit
def put_fixed(slots: Any, slot: int, counts: Any, a8: Any, source: Any, at: int, size: int) -> None:
    """Makes ``size`` bytes the item of a slot whose items have that many; its DATA counts in these units."""
    if len(a8) == 0:
        return
    base = slot * SLOT_FIELDS
    item = int(counts[slots[base + LEVEL]])
    copy_bytes(a8, (int(slots[base + DATA]) + item) * size, source, at, size)
    a8[int(slots[base + VALID]) + item] = 1


@inline_jit
def put_number(slots: Any, slot: int, counts: Any, a8: Any, a32: Any, a64: Any, value: int) -> None:
    """Makes a number the item of a BYTE, WORD or LONG slot."""
    if len(a8) == 0:
        return
    base = slot * SLOT_FIELDS
    item = int(counts[slots[base + LEVEL]])
    at = int(slots[base + DATA]) + item
    kind = int(slots[base + KIND])
    if kind == LONG:
        a64[at] = value
    elif kind == WORD:
        a32[at] = value
    else:
        a8[at] = value
    a8[int(slots[base + VALID]) + item] = 1


@inline_jit
def begin_item(slots: Any, slot: int, item: int, valid: int, a8: Any, a32: Any, a64: Any) -> None:
    """Makes an item what it is before anything was said of it: null or zero, no bytes, no items."""
    base = slot * SLOT_FIELDS
    kind = int(slots[base + KIND])
    a8[int(slots[base + VALID]) + item] = valid
    at = int(slots[base + DATA]) + item
    if kind == LONG:
        a64[at] = 0
    elif kind == WORD:
        a32[at] = 0
    elif kind == BYTE:
        a8[at] = 0
    elif kind == FIXED:
        width = int(slots[base + WIDTH])
        for i in range(at * width, at * width + width):
            a8[i] = 0
    elif kind in (SIZED, LIST):
        ends = int(slots[base + ENDS]) + item
        a32[ends + 1] = a32[ends]


@inline_jit
def put_null(slots: Any, first: int, behind: int, level: int, counts: Any, a8: Any, a32: Any, a64: Any) -> None:
    """Makes null the items of those slots in ``[first, behind)`` that are of this level."""
    if len(a8) == 0:
        return
    item = int(counts[level])
    for slot in range(first, behind):
        if int(slots[slot * SLOT_FIELDS + LEVEL]) == level:
            begin_item(slots, slot, item, 0, a8, a32, a64)


@inline_jit
def take_back(
    slots: Any, first: int, behind: int, level: int, counts: Any, a8: Any, a32: Any, a64: Any, null: int
) -> None:
    """Undoes what was said of this level's item in the slots ``[first, behind)``, and the items of its lists with it.

    With ``null`` the item is null after that, else as it begins.
    """
    item = int(counts[level])
    for slot in range(first, behind):
        base = slot * SLOT_FIELDS
        own = int(slots[base + LEVEL])
        if own == level:
            begin_item(slots, slot, item, 0 if null else int(slots[base + FIRST]), a8, a32, a64)
        if int(slots[base + KIND]) == LIST:
            # Ends of what is whole are untouched; the item in hand ends where it began.
            at = int(slots[base + ENDS]) + int(counts[own])
            counts[slots[base + CHILD]] = a32[at]


@inline_jit
def fits_decimal(source: Any, at: int, size: int, limits: Any, precision: int) -> bool:
    """Whether a big-endian two's complement number has no more digits than ``precision``.

    ``limits`` has 32 bytes for each precision from 0: 10^p - 1 and 10^p - 2, big-endian, 16 bytes each. A negative
    number is compared by its complement, which is one less than its magnitude.
    """
    if size == 0:
        return True
    flip = 0xFF if int(source[at]) >= 0x80 else 0
    while size > 16:
        if int(source[at]) != flip:
            return False
        at += 1
        size -= 1
    limit = precision * 32 + (16 if flip else 0)
    for i in range(16):
        most = int(limits[limit + i])
        digit = 0 if i < 16 - size else int(source[at + i - 16 + size]) ^ flip
        if digit != most:
            return digit < most
    return True


@inline_jit
def put_decimal(slots: Any, slot: int, counts: Any, a8: Any, source: Any, at: int, size: int) -> None:
    """Makes a big-endian two's complement number that fits the item of a slot of 16 bytes, little-endian."""
    if len(a8) == 0:
        return
    base = slot * SLOT_FIELDS
    item = int(counts[slots[base + LEVEL]])
    target = (int(slots[base + DATA]) + item) * 16
    fill = 0xFF if size > 0 and int(source[at]) >= 0x80 else 0
    for i in range(16):
        a8[target + i] = int(source[at + size - 1 - i]) if i < size else fill
    a8[int(slots[base + VALID]) + item] = 1


@inline_jit
def note_unknown(unknown: Any, which: int, row: int) -> None:
    """Counts a row for an unknown field, once: ``unknown`` has for each its rows and the last row that had it."""
    if int(unknown[2 * which + 1]) != row:
        unknown[2 * which] += 1
        unknown[2 * which + 1] = row


@inline_jit
def forget_unknown(unknown: Any, row: int) -> None:
    """Takes back what a bad row has counted."""
    for at in range(0, len(unknown), 2):
        if int(unknown[at + 1]) == row:
            unknown[at] -= 1
            unknown[at + 1] = -1
