"""Protobuf messages, walked by tables that a descriptor was compiled to.

A message is a *node*: the fields that have columns, by number. Each place where a message type is used has a node of
its own, since its fields have slots of their own. Fields come in any order and may come again: of a field that is not
repeated the last one counts, of a message all of them together. So an item's slots are all begun when its message
begins, and fields put over that what they say.

Nothing is read outside ``[start, stop)`` of a value, or of the message inside it. Without an arena (no bytes) a run
only counts what the buffers have to hold: each item of a list takes a byte of its value or more.
"""

from typing import Any

from holdfast.records.kernels.jit import as_source, as_target, inline_jit, jit
from holdfast.records.kernels.walk import (
    BAD_GROUP,
    BAD_LENGTH,
    BAD_TAG,
    DATA,
    ENDS,
    FIRST,
    LEVEL,
    LONG_VARINT,
    MISSING,
    NOT_UTF8,
    SLOT_FIELDS,
    TIME_RANGE,
    TRUNCATED,
    VALID,
    begin_item,
    is_utf8,
    put_bytes,
    put_fixed,
    put_number,
    take_back,
    zigzag,
)

__all__ = ["as_source", "as_target", "decode_messages"]

# A row of the table of nodes.
FIELDS_FROM = 0
FIELDS_TO = 1
SLOTS_FROM = 2  # of an item of its own level
SLOTS_TO = 3
NODE_LEVEL = 4
REQUIRED_FROM = 5  # in the table of numbers: slots
REQUIRED_TO = 6
NODE_FIELDS = 7

# A row of the table of fields, which are ordered by number within a node.
NUMBER = 0
OP = 1
WIRE = 2
SLOT = 3  # of the value; of a message the slot that says that it is there, -1 for none
NODE = 4  # of a message
LIST = 5  # slot of the list, -1 if it is not repeated
CHILD = 6  # level of the list's items
ONEOF_FROM = 7  # in the table of numbers: pairs of slots, from and up to, that this field makes empty
ONEOF_TO = 8
FIELD_FIELDS = 9

DROP = 0  # known, and nobody wants it
INT32 = 1
INT64 = 2  # uint64 too: the bits are the same
UINT32 = 3
SINT32 = 4
SINT64 = 5
BOOL = 6
FIXED32 = 7
COPY4 = 8  # sfixed32, float
COPY8 = 9  # fixed64, sfixed64, double
BYTES = 10
STRING = 11
TIMESTAMP = 12
MESSAGE = 13

VARINT = 0
I64 = 1
LEN = 2
GROUP = 3
END_GROUP = 4
I32 = 5

# A row of the table of unknown fields.
OF_NODE = 0
OF_NUMBER = 1
OF_WIRE = 2
ROWS = 3
LAST_ROW = 4
UNKNOWN_FIELDS = 5

FRAME_FIELDS = 3  # of the stack of messages: stop, node, field
MAX_GROUPS = 100
_LONG_MAX = (1 << 63) - 1  # its negative less one has 64 bits, which numba takes for unsigned, and sums for floats
_FIRST_SECOND = -62_135_596_800
_LAST_SECOND = 253_402_300_799


@inline_jit
def _varint(source: Any, at: int, stop: int) -> tuple[int, int]:
    """64 bits as a signed number: (value, position after it)."""
    value = 0
    shift = 0
    while True:
        if at >= stop:
            return 0, -TRUNCATED
        byte = int(source[at])
        at += 1
        if shift == 63:
            if byte > 1:
                return 0, -LONG_VARINT
            if byte == 1:
                value = value - _LONG_MAX - 1
            return value, at
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


@inline_jit
def _sized(source: Any, at: int, stop: int) -> tuple[int, int]:
    size, at = _varint(source, at, stop)
    if at >= 0:
        if size < 0:
            at = -BAD_LENGTH
        elif size > stop - at:
            at = -TRUNCATED
    return size, at


@inline_jit
def _tag(source: Any, at: int, stop: int) -> tuple[int, int, int]:
    """(number of the field, wire type, position after it)."""
    tag, at = _varint(source, at, stop)
    number = tag >> 3
    wire = tag & 7
    if at >= 0 and (number < 1 or number >= 1 << 29 or wire > I32):
        at = -BAD_TAG
    return number, wire, at


@inline_jit
def _skip_one(source: Any, at: int, stop: int, wire: int) -> int:
    """The position after a value that is no group."""
    if wire == VARINT:
        _, at = _varint(source, at, stop)
        return at
    if wire == LEN:
        size, at = _sized(source, at, stop)
        return at + size if at >= 0 else at
    size = 8 if wire == I64 else 4
    return at + size if size <= stop - at else -TRUNCATED


@jit
def _skip(source: Any, at: int, stop: int, wire: int, number: int, groups: Any) -> int:
    """The position after a value. ``groups`` has room for MAX_GROUPS numbers."""
    if wire == END_GROUP:
        return -BAD_GROUP
    if wire != GROUP:
        return _skip_one(source, at, stop, wire)
    groups[0] = number
    depth = 1
    while depth > 0:
        number, wire, at = _tag(source, at, stop)
        if at < 0:
            return at
        if wire == END_GROUP:
            depth -= 1
            if int(groups[depth]) != number:
                return -BAD_GROUP
        elif wire == GROUP:
            if depth == MAX_GROUPS:
                return -BAD_GROUP
            groups[depth] = number
            depth += 1
        else:
            at = _skip_one(source, at, stop, wire)
            if at < 0:
                return at
    return at


@inline_jit
def _int32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@jit
def _timestamp(source: Any, at: int, stop: int, groups: Any, before: int) -> tuple[int, int]:
    """A google.protobuf.Timestamp: (microseconds, position after it); less than one of them is cut off. ``before`` is
    what it was until now, which stays so where nothing else is said: a message that comes again is more of the same."""
    seconds = before // 1_000_000
    nanos = (before - seconds * 1_000_000) * 1000
    while at < stop:
        number, wire, at = _tag(source, at, stop)
        if at < 0:
            return 0, at
        if wire == VARINT and number <= 2:
            value, at = _varint(source, at, stop)
            if number == 1:
                seconds = value
            else:
                nanos = _int32(value)
        else:
            at = _skip(source, at, stop, wire, number, groups)
        if at < 0:
            return 0, at
    if seconds < _FIRST_SECOND or seconds > _LAST_SECOND or nanos < 0 or nanos > 999_999_999:
        return 0, -TIME_RANGE
    return seconds * 1_000_000 + nanos // 1000, at


@inline_jit
def _number(op: int, source: Any, at: int, stop: int) -> tuple[int, int]:
    """(a number, position after it)."""
    if op == FIXED32:
        if stop - at < 4:
            return 0, -TRUNCATED
        value = 0  # of this alone numba takes a number for signed; with an unsigned one elsewhere all would be floats
        for i in range(4):
            value |= int(source[at + i]) << (8 * i)
        return value, at + 4
    if op == SINT64:
        return zigzag(source, at, stop)
    value, at = _varint(source, at, stop)
    if op == INT32:
        value = _int32(value)
    elif op == UINT32:
        value &= 0xFFFFFFFF
    elif op == SINT32:
        value &= 0xFFFFFFFF
        value = (value >> 1) ^ -(value & 1)
    elif op == BOOL:
        value = 1 if value != 0 else 0
    return value, at


@inline_jit
def _said(slots: Any, slot: int, counts: Any, a8: Any, a64: Any) -> int:
    """The number that an item of a LONG slot has, 0 if it has none."""
    if len(a8) == 0:
        return 0
    base = slot * SLOT_FIELDS
    item = int(counts[slots[base + LEVEL]])
    return int(a64[int(slots[base + DATA]) + item]) if int(a8[int(slots[base + VALID]) + item]) != 0 else 0


@jit
def _scalar(
    op: int, slot: int, begun: bool, source: Any, at: int, stop: int, groups: Any,
    slots: Any, counts: Any, sizes: Any, a8: Any, a32: Any, a64: Any,
) -> int:  # fmt: skip
    """Reads one value that is no message with slots of its own, and puts it into its column. ``begun``: the item is."""
    if op <= FIXED32:
        value, at = _number(op, source, at, stop)
        if at >= 0:
            put_number(slots, slot, counts, a8, a32, a64, value)
        return at
    if op == COPY4 or op == COPY8:  # noqa: SIM109
        size = 4 if op == COPY4 else 8
        if size > stop - at:
            return -TRUNCATED
        put_fixed(slots, slot, counts, a8, source, at, size)
        return at + size
    size, at = _sized(source, at, stop)
    if at < 0:
        return at
    if op == TIMESTAMP:
        before = _said(slots, slot, counts, a8, a64) if begun else 0
        value, end = _timestamp(source, at, at + size, groups, before)
        if end >= 0:
            put_number(slots, slot, counts, a8, a32, a64, value)
        return end
    if op == STRING and not is_utf8(source, at, at + size):
        return -NOT_UTF8
    put_bytes(slots, slot, counts, sizes, a8, a32, source, at, size)
    return at + size


@inline_jit
def _find(fields: Any, first: int, behind: int, number: int, guess: int) -> int:
    """The row of a field, -1 if the node has none. ``guess`` is tried first: fields mostly come in order."""
    if first <= guess < behind and int(fields[guess * FIELD_FIELDS + NUMBER]) == number:
        return guess
    end = behind
    while first < end:
        middle = (first + end) // 2
        if int(fields[middle * FIELD_FIELDS + NUMBER]) < number:
            first = middle + 1
        else:
            end = middle
    if first < behind and int(fields[first * FIELD_FIELDS + NUMBER]) == number:
        return first
    return -1


@inline_jit
def _note(unknown: Any, node: int, number: int, wire: int, row: int) -> None:
    """Counts a row for an unknown field, once. Fields for which the table has no row any more are not counted."""
    for at in range(0, len(unknown), UNKNOWN_FIELDS):
        if int(unknown[at + OF_NUMBER]) == 0:
            unknown[at + OF_NODE] = node
            unknown[at + OF_NUMBER] = number
            unknown[at + OF_WIRE] = wire
        if int(unknown[at + OF_NODE]) == node and int(unknown[at + OF_NUMBER]) == number:
            if int(unknown[at + LAST_ROW]) != row:
                unknown[at + ROWS] += 1
                unknown[at + LAST_ROW] = row
            return


@inline_jit
def _begin(slots: Any, first: int, behind: int, level: int, counts: Any, a8: Any, a32: Any, a64: Any) -> None:
    """Begins an item in the slots of its level."""
    if len(a8) == 0:
        return
    item = int(counts[level])
    for slot in range(first, behind):
        if int(slots[slot * SLOT_FIELDS + LEVEL]) == level:
            begin_item(slots, slot, item, int(slots[slot * SLOT_FIELDS + FIRST]), a8, a32, a64)


@inline_jit
def _appended(slots: Any, slot: int, child: int, counts: Any, a8: Any, a32: Any) -> None:
    """An item of a list is whole."""
    counts[child] += 1
    if len(a8) > 0:
        base = slot * SLOT_FIELDS
        a32[int(slots[base + ENDS]) + int(counts[slots[base + LEVEL]]) + 1] = counts[child]


@inline_jit
def _missing(node: int, nodes: Any, numbers: Any, slots: Any, counts: Any, a8: Any) -> bool:
    """Whether a required field of a message was not there."""
    if len(a8) == 0:
        return False
    base = node * NODE_FIELDS
    item = int(counts[nodes[base + NODE_LEVEL]])
    for at in range(int(nodes[base + REQUIRED_FROM]), int(nodes[base + REQUIRED_TO])):
        if int(a8[int(slots[int(numbers[at]) * SLOT_FIELDS + VALID]) + item]) == 0:
            return True
    return False


@inline_jit
def _empty_others(
    fields: Any, base: int, level: int, numbers: Any, slots: Any, counts: Any, a8: Any, a32: Any, a64: Any
) -> None:
    """Of the fields of a oneof the last one counts."""
    if len(a8) == 0:
        return
    for at in range(int(fields[base + ONEOF_FROM]), int(fields[base + ONEOF_TO]), 2):
        take_back(slots, int(numbers[at]), int(numbers[at + 1]), level, counts, a8, a32, a64, 0)


@inline_jit
def _values(
    fields: Any, base: int, wire: int, source: Any, at: int, stop: int, groups: Any,
    slots: Any, counts: Any, sizes: Any, a8: Any, a32: Any, a64: Any,
) -> int:  # fmt: skip
    """One field's value, or many where they are packed."""
    op = int(fields[base + OP])
    slot = int(fields[base + SLOT])
    listed = int(fields[base + LIST])
    if wire == int(fields[base + WIRE]):
        at = _scalar(op, slot, listed < 0, source, at, stop, groups, slots, counts, sizes, a8, a32, a64)
        if at >= 0 and listed >= 0:
            _appended(slots, listed, int(fields[base + CHILD]), counts, a8, a32)
        return at
    size, at = _sized(source, at, stop)
    if at < 0:
        return at
    end = at + size
    while at < end:
        at = _scalar(op, slot, False, source, at, end, groups, slots, counts, sizes, a8, a32, a64)
        if at < 0:
            return at
        _appended(slots, listed, int(fields[base + CHILD]), counts, a8, a32)
    return at


@inline_jit
def _takes(fields: Any, base: int, wire: int) -> bool:
    """Whether a field can be of this wire type; what is not so is to be taken for an unknown field."""
    own = int(fields[base + WIRE])
    return own == wire or (wire == LEN and own != LEN and int(fields[base + LIST]) >= 0)


@jit
def _walk(
    source: Any, start: int, stop: int, row: int, nodes: Any, fields: Any, numbers: Any, stack: Any, groups: Any,
    slots: Any, counts: Any, sizes: Any, a8: Any, a32: Any, a64: Any, unknown: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """One value: (0 or what is wrong, field's row or -1 - node, position where it was to be read)."""
    at = start
    node = 0
    depth = 0
    guess = -1
    while True:
        if at == stop:
            if _missing(node, nodes, numbers, slots, counts, a8):
                return MISSING, -1 - node, at
            if depth == 0:
                return 0, 0, at
            depth -= 1
            guess = int(stack[depth * FRAME_FIELDS + 2])
            base = guess * FIELD_FIELDS
            if int(fields[base + LIST]) >= 0:
                _appended(slots, int(fields[base + LIST]), int(fields[base + CHILD]), counts, a8, a32)
            stop = int(stack[depth * FRAME_FIELDS])
            node = int(stack[depth * FRAME_FIELDS + 1])
            continue
        before = at
        number, wire, at = _tag(source, at, stop)
        if at < 0:
            return -at, -1 - node, before
        first = int(nodes[node * NODE_FIELDS + FIELDS_FROM])
        found = _find(fields, first, int(nodes[node * NODE_FIELDS + FIELDS_TO]), number, guess + 1)
        base = found * FIELD_FIELDS
        if found < 0 or int(fields[base + OP]) == DROP or not _takes(fields, base, wire):
            if found < 0 or int(fields[base + OP]) != DROP:
                _note(unknown, node, number, wire, row)
            at = _skip(source, at, stop, wire, number, groups)
            if at < 0:
                return -at, (found if found >= 0 else -1 - node), before
            continue
        guess = found
        _empty_others(fields, base, int(nodes[node * NODE_FIELDS + NODE_LEVEL]), numbers, slots, counts, a8, a32, a64)
        if int(fields[base + OP]) != MESSAGE:
            at = _values(fields, base, wire, source, at, stop, groups, slots, counts, sizes, a8, a32, a64)
            if at < 0:
                return -at, found, before
            continue
        size, at = _sized(source, at, stop)
        if at < 0:
            return -at, found, before
        stack[depth * FRAME_FIELDS] = stop
        stack[depth * FRAME_FIELDS + 1] = node
        stack[depth * FRAME_FIELDS + 2] = found
        depth += 1
        stop = at + size
        node = int(fields[base + NODE])
        level = int(nodes[node * NODE_FIELDS + NODE_LEVEL])
        guess = int(nodes[node * NODE_FIELDS + FIELDS_FROM]) - 1
        if int(fields[base + LIST]) >= 0:
            _begin(slots, int(nodes[node * NODE_FIELDS + SLOTS_FROM]), int(nodes[node * NODE_FIELDS + SLOTS_TO]),
                   level, counts, a8, a32, a64)  # fmt: skip
        elif len(a8) > 0:
            a8[int(slots[int(fields[base + SLOT]) * SLOT_FIELDS + VALID]) + int(counts[level])] = 1


@jit
def decode_messages(
    source: Any, starts: Any, stops: Any, present: Any, nodes: Any, fields: Any, numbers: Any, stack: Any, groups: Any,
    slots: Any, counts: Any, sizes: Any, a8: Any, a32: Any, a64: Any, unknown: Any, faults: Any,
) -> int:  # fmt: skip
    """Walks the values that are ``present`` and fills the slots, which get nulls for rows that are bad or not there.

    ``faults`` has three integers a row: what is wrong (0: nothing), in which field's row (or -1 - node), at which byte.
    Answers the number of bad rows. ``counts`` and ``sizes`` are added to.
    """
    bad = 0
    behind = len(slots) // SLOT_FIELDS
    for row in range(len(starts)):
        counts[0] = row
        code = 0
        if int(present[row]) != 0:
            _begin(slots, 0, behind, 0, counts, a8, a32, a64)
            code, place, at = _walk(
                source, int(starts[row]), int(stops[row]), row, nodes, fields, numbers, stack, groups,
                slots, counts, sizes, a8, a32, a64, unknown,
            )  # fmt: skip
            faults[3 * row] = code
            faults[3 * row + 1] = place
            faults[3 * row + 2] = at - int(starts[row])
            if code != 0:
                bad += 1
                for known in range(0, len(unknown), UNKNOWN_FIELDS):
                    if int(unknown[known + LAST_ROW]) == row:
                        unknown[known + ROWS] -= 1
                        unknown[known + LAST_ROW] = -2
        if (code != 0 or int(present[row]) == 0) and len(a8) > 0:
            take_back(slots, 0, behind, 0, counts, a8, a32, a64, 1)
    return bad
