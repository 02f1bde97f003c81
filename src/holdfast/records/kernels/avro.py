"""Avro's binary values, walked by a program that the schemas were compiled to.

A program is OP_FIELDS integers per instruction, in one flat array; a position in it counts instructions. SLOT is -1
where an item is read and dropped. Without an arena (no bytes) a run only counts what its buffers have to hold.

Nothing is read outside ``[start, stop)`` of a value. Nothing is written outside the buffers: each item of a list takes
a byte of its value or more (the compiler refuses other lists), so a first run with the same values counts them all.
"""

from typing import Any

from holdfast.records.kernels.jit import as_source, as_target, inline_jit, jit
from holdfast.records.kernels.walk import (
    BAD_BRANCH,
    BAD_LENGTH,
    BAD_SYMBOL,
    DECIMAL_RANGE,
    ENDS,
    INT_RANGE,
    LEVEL,
    NOT_BOOLEAN,
    NOT_UTF8,
    OTHER_SYMBOL,
    SLOT_FIELDS,
    TIME_RANGE,
    TRAILING,
    TRUNCATED,
    VALID,
    fits_decimal,
    forget_unknown,
    is_utf8,
    note_unknown,
    put_bytes,
    put_decimal,
    put_fixed,
    put_null,
    put_number,
    take_back,
    zigzag,
)

__all__ = ["as_source", "as_target", "decode_values"]

SLOT = 1
A = 2
B = 3
C = 4
OP_FIELDS = 5

# Values without parts.
BOOLEAN = 0
INT = 1
LONG = 2
SCALED = 3  # A: factor, B: greatest value before it, C: least
FIXED = 4  # A: bytes
BYTES = 5
STRING = 6
ENUM = 7  # A: symbols, B: where their numbers for the reader are in the tables, -1 for none
DECIMAL = 8  # A: precision, B: bytes, -1 if they are told
LAST_SCALAR = 8
# What a program does beside.
END = 16  # A: 1 if nothing may follow
UNION = 17  # A: branches, B: where their instructions are told in the tables
JUMP = 18  # A: instruction
NULL = 19  # slots from SLOT up to A, of level B
PRESENT = 20
LIST = 21  # A: level of the items, B: depth, C: instruction after it
NEXT = 22  # A, B as LIST, C: first instruction of an item
COUNT = 23  # A: number of the unknown field
FAIL = 24  # A: code


@inline_jit
def _sized(source: Any, at: int, stop: int) -> tuple[int, int]:
    """The length before bytes: (length, position of the bytes)."""
    size, at = zigzag(source, at, stop)
    if at >= 0:
        if size < 0:
            at = -BAD_LENGTH
        elif size > stop - at:
            at = -TRUNCATED
    return size, at


@inline_jit
def _block(source: Any, at: int, stop: int) -> tuple[int, int]:
    """The head of a block of an array or map: (items, position of the first)."""
    count, at = zigzag(source, at, stop)
    if at < 0:
        return 0, at
    if count < 0:
        size, at = zigzag(source, at, stop)
        if at < 0:
            return 0, at
        if size < 0 or size > stop - at or count < -(1 << 62):
            return 0, -BAD_LENGTH
        count = -count
    if count > stop - at:
        return 0, -BAD_LENGTH
    return count, at


@inline_jit
def _number(op: int, a: int, b: int, c: int, source: Any, at: int, stop: int, tables: Any) -> tuple[int, int]:
    """A value that is a number to its column: (number, position after it)."""
    if op == BOOLEAN:
        if at >= stop:
            return 0, -TRUNCATED
        byte = int(source[at])
        if byte > 1:
            return 0, -NOT_BOOLEAN
        return (1 if byte == 1 else 0), at + 1  # not the byte: numba has it unsigned, and would make all numbers floats
    value, at = zigzag(source, at, stop)
    if at < 0 or op == LONG:
        return value, at
    if op == INT:
        if value < -(1 << 31) or value >= 1 << 31:
            at = -INT_RANGE
    elif op == SCALED:
        if value > b or value < c:
            return 0, -TIME_RANGE
        value *= a
    elif value < 0 or value >= a:
        at = -BAD_SYMBOL
    elif b >= 0:
        value = int(tables[b + value])
        if value < 0:
            at = -OTHER_SYMBOL
    return value, at


@inline_jit
def _scalar(
    op: int, slot: int, a: int, b: int, c: int, source: Any, at: int, stop: int, tables: Any, limits: Any,
    slots: Any, counts: Any, sizes: Any, a8: Any, a32: Any, a64: Any,
) -> int:  # fmt: skip
    """Reads one value without parts and puts it into its column. Answers the position after it."""
    if op <= SCALED or op == ENUM:
        value, at = _number(op, a, b, c, source, at, stop, tables)
        if at >= 0 and slot >= 0:
            put_number(slots, slot, counts, a8, a32, a64, value)
        return at
    size = a
    if op == DECIMAL:
        size = b
    if op in (BYTES, STRING) or size < 0:
        size, at = _sized(source, at, stop)
        if at < 0:
            return at
    elif size > stop - at:
        return -TRUNCATED
    if op == STRING:
        if not is_utf8(source, at, at + size):
            return -NOT_UTF8
    elif op == DECIMAL and not fits_decimal(source, at, size, limits, a):
        return -DECIMAL_RANGE
    if slot >= 0:
        if op == FIXED:
            put_fixed(slots, slot, counts, a8, source, at, size)
        elif op == DECIMAL:
            put_decimal(slots, slot, counts, a8, source, at, size)
        else:
            put_bytes(slots, slot, counts, sizes, a8, a32, source, at, size)
    return at + size


@inline_jit
def _end_list(slots: Any, slot: int, child: int, counts: Any, a8: Any, a32: Any) -> None:
    if slot >= 0 and len(a8) > 0:
        base = slot * SLOT_FIELDS
        item = int(counts[slots[base + LEVEL]])
        a32[int(slots[base + ENDS]) + item + 1] = counts[child]
        a8[int(slots[base + VALID]) + item] = 1


@inline_jit
def _walk(
    source: Any, start: int, stop: int, row: int, program: Any, tables: Any, limits: Any,
    slots: Any, counts: Any, sizes: Any, a8: Any, a32: Any, a64: Any, left: Any, unknown: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """One value: (0 or what is wrong, instruction, position where it was to be read)."""
    at = start
    pc = 0
    while True:
        base = pc * OP_FIELDS
        op = int(program[base])
        slot = int(program[base + SLOT])
        a = int(program[base + A])
        b = int(program[base + B])
        c = int(program[base + C])
        before = at
        pc += 1
        if op <= LAST_SCALAR:
            at = _scalar(op, slot, a, b, c, source, at, stop, tables, limits, slots, counts, sizes, a8, a32, a64)
        elif op == UNION:
            branch, at = zigzag(source, at, stop)
            if at >= 0:
                if branch < 0 or branch >= a:
                    at = -BAD_BRANCH
                else:
                    pc = int(tables[b + branch])
        elif op == JUMP:
            pc = a
        elif op == NULL:
            put_null(slots, slot, a, b, counts, a8, a32, a64)
        elif op == PRESENT:
            if len(a8) > 0:
                level = int(slots[slot * SLOT_FIELDS + LEVEL])
                a8[int(slots[slot * SLOT_FIELDS + VALID]) + int(counts[level])] = 1
        elif op in (LIST, NEXT):
            count = 0
            if op == NEXT:
                if slot >= 0:
                    counts[a] += 1
                count = int(left[b]) - 1
            if count == 0:
                count, at = _block(source, at, stop)
            if at >= 0:
                left[b] = count
                if count == 0:
                    _end_list(slots, slot, a, counts, a8, a32)
                if (op == NEXT) == (count > 0):  # a list goes into its items, NEXT to the next of them
                    pc = c
        elif op == COUNT:
            note_unknown(unknown, a, row)
        elif op == END:
            return (TRAILING if a == 1 and at < stop else 0), pc - 1, at
        else:
            at = -a
        if at < 0:
            return -at, pc - 1, before


@jit
def decode_values(
    source: Any, starts: Any, stops: Any, present: Any, program: Any, tables: Any, limits: Any,
    slots: Any, counts: Any, sizes: Any, a8: Any, a32: Any, a64: Any, left: Any, unknown: Any, faults: Any,
) -> int:  # fmt: skip
    """Walks the values that are ``present`` and fills the slots, which get nulls for rows that are bad or not there.

    ``faults`` has three integers a row: what is wrong (0: nothing), in which instruction, at which byte of the value.
    Answers the number of bad rows. ``counts`` and ``sizes`` are added to; ``unknown``: see note_unknown.
    """
    bad = 0
    behind = len(slots) // SLOT_FIELDS
    for row in range(len(starts)):
        counts[0] = row
        code = 0
        if int(present[row]) != 0:
            code, pc, at = _walk(
                source, int(starts[row]), int(stops[row]), row, program, tables, limits,
                slots, counts, sizes, a8, a32, a64, left, unknown,
            )  # fmt: skip
            faults[3 * row] = code
            faults[3 * row + 1] = pc
            faults[3 * row + 2] = at - int(starts[row])
            if code != 0:
                bad += 1
                forget_unknown(unknown, row)
        if (code != 0 or int(present[row]) == 0) and len(a8) > 0:
            take_back(slots, 0, behind, 0, counts, a8, a32, a64, 1)
    return bad
