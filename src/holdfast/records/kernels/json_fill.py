"""Spans of JSON members (kernels/json_scan.py) to column buffers: numbers, texts, and the rest as JSON."""

from typing import Any

from holdfast.records.kernels.jit import copy_bytes, jit
from holdfast.records.kernels.json_scan import ABSENT, ARRAY, ESCAPED, INTEGER, NUMBER, OBJECT, STRING, unescape

__all__ = ["fill_rest", "gather", "parse_floats", "parse_ints"]


@jit
def parse_ints(
    source: Any, starts: Any, ends: Any, kinds: Any, least: int, greatest: int, out: Any, failed: Any
) -> int:
    """Whole numbers into ``out``; ``failed`` is set where one is out of range. Answers how many are."""
    count = 0
    for row in range(len(kinds)):
        out[row] = 0
        if kinds[row] != INTEGER:
            continue
        at, stop = int(starts[row]), int(ends[row])
        negative = source[at] == 45
        if negative:
            at += 1
        good = stop - at <= 19
        value = 0  # kept negative: there is one more of those
        while good and at < stop:
            digit = int(source[at]) - 48
            if value < -922337203685477580 or (value == -922337203685477580 and digit > 8):
                good = False
            else:
                value = value * 10 - digit
            at += 1
        if good and not negative:
            if value == -9223372036854775807 - 1:
                good = False
            else:
                value = -value
        if good and least <= value <= greatest:
            out[row] = value
        else:
            failed[row] = 1
            count += 1
    return count


@jit
def parse_floats(source: Any, starts: Any, ends: Any, kinds: Any, powers: Any, out: Any, slow: Any) -> int:
    """Numbers into ``out`` where that is exact with one operation (at most 2**53 as digits, a power of ten up to 22);
    ``slow`` has the rows of the others. Answers how many those are."""
    count = 0
    for row in range(len(kinds)):
        out[row] = 0.0
        if kinds[row] != INTEGER and kinds[row] != NUMBER:
            continue
        at, stop = int(starts[row]), int(ends[row])
        negative = source[at] == 45
        if negative:
            at += 1
        digits = 0
        point = 0
        seen = False
        exact = True
        while at < stop:
            c = int(source[at])
            if 48 <= c <= 57:
                digits = digits * 10 + c - 48
                if digits > 9007199254740992:
                    exact = False
                    break
                if seen:
                    point -= 1
            elif c == 46:
                seen = True
            else:
                break
            at += 1
        if exact and at < stop:
            at += 1
            down = source[at] == 45
            if down or source[at] == 43:
                at += 1
            exponent = 0
            while at < stop and exponent < 1000:
                exponent = exponent * 10 + int(source[at]) - 48
                at += 1
            point += -exponent if down else exponent
        if not exact or point > 22 or point < -22:
            slow[count] = row
            count += 1
            continue
        value = float(digits)
        value = value * powers[point] if point >= 0 else value / powers[-point]
        out[row] = -value if negative else value
    return count


@jit
def gather(source: Any, starts: Any, ends: Any, kinds: Any, out: Any, out_ends: Any) -> int:
    """The texts of spans one after the other into ``out``, strings without their escapes; ``out_ends`` has where each
    ends, from a 0 on. Raw line feeds become tabs: both are whitespace, and lines are what some parsers split at."""
    at = 0
    out_ends[0] = 0
    for row in range(len(kinds)):
        kind = kinds[row]
        if kind == ESCAPED:
            at = unescape(source, int(starts[row]), int(ends[row]), out, at)
        elif kind != ABSENT:
            start = int(starts[row])
            size = int(ends[row]) - start
            copy_bytes(out, at, source, start, size)
            if kind in (OBJECT, ARRAY):
                for i in range(at, at + size):
                    if out[i] == 10 or out[i] == 13:
                        out[i] = 9
            at += size
        out_ends[row + 1] = at
    return at


@jit
def fill_rest(source: Any, unknown: Any, count: int, rows: int, out: Any, out_ends: Any, present: Any) -> int:
    """An object of the unknown members of each row, in ``out``; ``present`` is set for rows that have one."""
    at = 0
    index = 0
    out_ends[0] = 0
    for row in range(rows):
        first = True
        while index < count and unknown[index, 0] == row:
            out[at] = 123 if first else 44
            at += 1
            first = False
            name, name_end = int(unknown[index, 1]) - 1, int(unknown[index, 2]) + 1
            copy_bytes(out, at, source, name, name_end - name)
            at += name_end - name
            out[at] = 58
            at += 1
            start, end = int(unknown[index, 3]), int(unknown[index, 4])
            if unknown[index, 5] in (STRING, ESCAPED):
                start -= 1
                end += 1
            copy_bytes(out, at, source, start, end - start)
            at += end - start
            index += 1
        if not first:
            out[at] = 125
            at += 1
            present[row] = 1
        out_ends[row + 1] = at
    return at
