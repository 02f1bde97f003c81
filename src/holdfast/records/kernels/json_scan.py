"""JSON values to spans: checks each value's grammar (RFC 8259) and notes where the members of its object are.

A value is one object and nothing else but whitespace (and a byte order mark before it). Nothing is read outside
``[start, stop)`` of a value, so what one is like says nothing of its neighbours.
"""

from typing import Any

from holdfast.records.kernels.jit import as_word, inline_jit, jit, word_at

__all__ = ["hex_digits", "next_member", "next_value", "past_blanks", "scan_objects", "unescape"]

# What stands in a member's place; ABSENT is also an explicit null.
ABSENT = 0
STRING = 1
ESCAPED = 2  # a string with a backslash in it
INTEGER = 3
NUMBER = 4  # with a point or an exponent
TRUE = 5
FALSE = 6
OBJECT = 7
ARRAY = 8

# Why a value is bad.
GOOD = 0
NO_OBJECT = 1
SYNTAX = 2
TRAILING = 3
KIND = 4
TWICE = 5
DEEP = 6
RANGE = 7
CONVERSION = 8
NOT_UTF8 = 9

MOST_DEPTH = 60
UNKNOWN_FIELDS = 6  # row, start and end of the name, start, end and kind of the value

_QUOTE = 34
_BACKSLASH = 92
_ONES = as_word(0x0101010101010101)
_HIGH_BITS = as_word(0x8080808080808080)
_QUOTES = as_word(0x2222222222222222)
_BACKSLASHES = as_word(0x5C5C5C5C5C5C5C5C)
_BLANKS = as_word(0x2020202020202020)
_VALUE = 0  # what comes next in a container
_NAME = 1
_AFTER = 2


@inline_jit
def past_blanks(source: Any, at: int, stop: int) -> int:
    while at < stop and (source[at] == 32 or source[at] == 10 or source[at] == 9 or source[at] == 13):
        at += 1
    return at


@inline_jit
def hex_digits(source: Any, at: int) -> int:
    """The four digits as a number; -1 if they are not."""
    value = 0
    for i in range(4):
        c = int(source[at + i])
        if 48 <= c <= 57:
            digit = c - 48
        elif 97 <= c <= 102:
            digit = c - 87
        elif 65 <= c <= 70:
            digit = c - 55
        else:
            return -1
        value = value * 16 + digit
    return value


@inline_jit
def _special(c: int) -> int:
    """1 for a byte that ends a string or does not just stand for itself in it."""
    return (c == _QUOTE) | (c == _BACKSLASH) | (c < 32)


@inline_jit
def _plain(source: Any, at: int, stop: int) -> int:
    """The next special byte; ``stop`` if there is none."""
    while stop - at >= 8:  # eight at once: each mask has the high bit of a byte that is the quote, the backslash, < 32
        word = word_at(source, at)
        quote, backslash = word ^ _QUOTES, word ^ _BACKSLASHES
        found = ((quote - _ONES) & ~quote) | ((backslash - _ONES) & ~backslash) | ((word - _BLANKS) & ~word)
        if found & _HIGH_BITS:
            break
        at += 8
    while at < stop and not _special(int(source[at])):
        at += 1
    return at


@inline_jit
def _string(source: Any, at: int, stop: int) -> tuple[int, bool]:
    """From behind the quote to behind the closing one, and whether there is a backslash; -1 for a bad one.

    A surrogate has its other half, or there is no text that it stands for.
    """
    escaped = False
    while True:
        at = _plain(source, at, stop)
        if at >= stop:
            return -1, False
        c = source[at]
        if c == _QUOTE:
            return at + 1, escaped
        if c < 32:
            return -1, False
        at += 1
        escaped = True
        if at >= stop:
            return -1, False
        e = source[at]
        at += 1
        if e == 117:  # u
            if at + 4 > stop:
                return -1, False
            unit = hex_digits(source, at)
            at += 4
            if unit < 0 or 0xDC00 <= unit < 0xE000:
                return -1, False
            if 0xD800 <= unit < 0xDC00:
                if at + 6 > stop or source[at] != _BACKSLASH or source[at + 1] != 117:
                    return -1, False
                low = hex_digits(source, at + 2)
                if low < 0xDC00 or low >= 0xE000:
                    return -1, False
                at += 6
        elif not (e == 34 or e == 92 or e == 47 or e == 98 or e == 102 or e == 110 or e == 114 or e == 116):
            return -1, False


@jit
def _number(source: Any, at: int, stop: int) -> tuple[int, int]:
    """Behind the number, and its kind; -1 for a bad one."""
    kind = INTEGER
    if source[at] == 45:
        at += 1
    first = at
    while at < stop and 48 <= source[at] <= 57:
        at += 1
    if at == first or (at - first > 1 and source[first] == 48):
        return -1, kind
    if at < stop and source[at] == 46:
        kind = NUMBER
        first = at + 1
        at = first
        while at < stop and 48 <= source[at] <= 57:
            at += 1
        if at == first:
            return -1, kind
    if at < stop and (source[at] == 101 or source[at] == 69):
        kind = NUMBER
        at += 1
        if at < stop and (source[at] == 43 or source[at] == 45):
            at += 1
        first = at
        while at < stop and 48 <= source[at] <= 57:
            at += 1
        if at == first:
            return -1, kind
    return at, kind


@inline_jit
def _scalar(source: Any, at: int, stop: int) -> tuple[int, int]:
    """Behind the string, number or literal at ``at``, and its kind; -1 for a bad one."""
    c = source[at]
    if c == _QUOTE:
        end, escaped = _string(source, at + 1, stop)
        return end, ESCAPED if escaped else STRING
    if c == 45 or 48 <= c <= 57:
        return _number(source, at, stop)
    if at + 4 <= stop and c == 116 and source[at + 1] == 114 and source[at + 2] == 117 and source[at + 3] == 101:
        return at + 4, TRUE
    if at + 4 <= stop and c == 110 and source[at + 1] == 117 and source[at + 2] == 108 and source[at + 3] == 108:
        return at + 4, ABSENT
    if (
        at + 5 <= stop
        and c == 102
        and source[at + 1] == 97
        and source[at + 2] == 108
        and source[at + 3] == 115
        and source[at + 4] == 101
    ):
        return at + 5, FALSE
    return -1, ABSENT


@jit
def _nested(source: Any, at: int, stop: int) -> tuple[int, int]:
    """Behind the object or array at ``at``, and GOOD, SYNTAX or DEEP."""
    objects = 0  # a bit for each open container: whether it is an object
    depth = 0
    state = _VALUE
    while at < stop:
        c = source[at]
        if state == _VALUE:
            if c == 123 or c == 91:
                if depth >= MOST_DEPTH:
                    return at, DEEP
                depth += 1
                objects = (objects << 1) | (1 if c == 123 else 0)
                at = past_blanks(source, at + 1, stop)
                state = _NAME if c == 123 else _VALUE
                if at < stop and source[at] == (125 if c == 123 else 93):
                    state = _AFTER
            else:
                end, _ = _scalar(source, at, stop)
                if end < 0:
                    return at, SYNTAX
                at = past_blanks(source, end, stop)
                state = _AFTER
        elif state == _NAME:
            if c != _QUOTE:
                return at, SYNTAX
            end, _ = _string(source, at + 1, stop)
            if end < 0:
                return at, SYNTAX
            at = past_blanks(source, end, stop)
            if at >= stop or source[at] != 58:
                return at, SYNTAX
            at = past_blanks(source, at + 1, stop)
            state = _VALUE
        elif c == (125 if objects & 1 else 93):
            at += 1
            depth -= 1
            objects >>= 1
            if depth == 0:
                return at, GOOD
            at = past_blanks(source, at, stop)
        elif c == 44:
            at = past_blanks(source, at + 1, stop)
            state = _NAME if objects & 1 else _VALUE
        else:
            return at, SYNTAX
    return at, SYNTAX


@jit
def unescape(source: Any, start: int, stop: int, target: Any, at: int) -> int:
    """The text of a good string, as UTF-8; answers the end in ``target``. Never longer than what it is made of."""
    while start < stop:
        c = int(source[start])
        start += 1
        if c != _BACKSLASH:
            target[at] = c
            at += 1
            continue
        e = int(source[start])
        start += 1
        if e == 117:
            point = hex_digits(source, start)
            start += 4
            if 0xD800 <= point < 0xDC00:
                point = 0x10000 + ((point - 0xD800) << 10) + (hex_digits(source, start + 2) - 0xDC00)
                start += 6
            if point < 0x80:
                target[at] = point
                at += 1
            elif point < 0x800:
                target[at] = 0xC0 | (point >> 6)
                target[at + 1] = 0x80 | (point & 0x3F)
                at += 2
            elif point < 0x10000:
                target[at] = 0xE0 | (point >> 12)
                target[at + 1] = 0x80 | ((point >> 6) & 0x3F)
                target[at + 2] = 0x80 | (point & 0x3F)
                at += 3
            else:
                target[at] = 0xF0 | (point >> 18)
                target[at + 1] = 0x80 | ((point >> 12) & 0x3F)
                target[at + 2] = 0x80 | ((point >> 6) & 0x3F)
                target[at + 3] = 0x80 | (point & 0x3F)
                at += 4
            continue
        if e == 98:
            e = 8
        elif e == 102:
            e = 12
        elif e == 110:
            e = 10
        elif e == 114:
            e = 13
        elif e == 116:
            e = 9
        target[at] = e
        at += 1
    return at


@inline_jit
def _field(source: Any, start: int, size: int, names: Any, name_ends: Any, guess: int) -> int:
    """Number of the field with that name; -1 for none. Fields mostly come in order, so ``guess`` is tried first."""
    count = len(name_ends) - 1
    for i in range(count):
        number = guess + i
        if number >= count:
            number -= count
        first = name_ends[number]
        if name_ends[number + 1] - first != size:
            continue
        same = True
        for j in range(size):
            if source[start + j] != names[first + j]:
                same = False
                break
        if same:
            return number
    return -1


@inline_jit
def next_member(source: Any, at: int, stop: int) -> tuple[int, int, bool]:
    """Of the member at ``at``: where its value begins, where the name ends, and whether that has a backslash in it.

    For a bad one -1, and the position of what is wrong.
    """
    if at >= stop or source[at] != _QUOTE:
        return -1, at, False
    end, escaped = _string(source, at + 1, stop)
    if end < 0:
        return -1, at, False
    at = past_blanks(source, end, stop)
    if at >= stop or source[at] != 58:
        return -1, at, False
    at = past_blanks(source, at + 1, stop)
    if at >= stop:
        return -1, at, False
    return at, end - 1, escaped


@inline_jit
def next_value(source: Any, at: int, stop: int) -> tuple[int, int, int]:
    """Behind the value at ``at``, its kind, and GOOD, SYNTAX or DEEP; where what is wrong is, if it is bad."""
    c = source[at]
    if c == 123 or c == 91:
        end, code = _nested(source, at, stop)
        return end, OBJECT if c == 123 else ARRAY, code
    end, kind = _scalar(source, at, stop)
    if end < 0:
        return at, kind, SYNTAX
    return end, kind, GOOD


@inline_jit
def _begin(source: Any, at: int, stop: int) -> int:
    """Where the value begins."""
    if stop - at >= 3 and source[at] == 0xEF and source[at + 1] == 0xBB and source[at + 2] == 0xBF:
        at += 3
    return past_blanks(source, at, stop)


@jit
def scan_objects(
    source: Any, offsets: Any, present: Any, names: Any, name_ends: Any, accepts: Any, starts: Any, ends: Any,
    kinds: Any, unknown: Any, scratch: Any, status: Any,
) -> int:  # fmt: skip
    """Fills ``starts``, ``ends`` and ``kinds`` (fields x rows, zeros before), ``unknown`` (members x UNKNOWN_FIELDS)
    and ``status`` (rows x code, position, field, zeros before), and answers how many unknown members there are.
    ``accepts`` has a bit for each kind that a field takes; ``scratch`` as many bytes as the longest value.
    """
    found = 0
    for row in range(len(offsets) - 1):
        if not present[row]:
            continue
        stop = int(offsets[row + 1])
        at = _begin(source, int(offsets[row]), stop)
        kept, guess, code, field = found, 0, GOOD, -1
        for number in range(len(accepts)):
            starts[number, row] = -1
        if at >= stop or source[at] != 123:
            code = NO_OBJECT
        else:
            at = past_blanks(source, at + 1, stop)
        if code == GOOD and at < stop and source[at] == 125:
            at += 1
        else:
            while code == GOOD:
                name = at + 1
                at, name_end, escaped = next_member(source, at, stop)
                if at < 0:
                    at, code = name_end, SYNTAX
                    break
                start = at
                at, kind, code = next_value(source, at, stop)
                if code != GOOD:
                    break
                if escaped:
                    number = _field(scratch, 0, unescape(source, name, name_end, scratch, 0), names, name_ends, guess)
                else:
                    number = _field(source, name, name_end - name, names, name_ends, guess)
                quote = 1 if kind == STRING or kind == ESCAPED else 0  # noqa: SIM109
                if number < 0:
                    unknown[found, 0], unknown[found, 1], unknown[found, 2] = row, name, name_end
                    unknown[found, 3], unknown[found, 4], unknown[found, 5] = start + quote, at - quote, kind
                    found += 1
                elif starts[number, row] >= 0:
                    at, code, field = name, TWICE, number
                    break
                else:
                    starts[number, row], ends[number, row], kinds[number, row] = start + quote, at - quote, kind
                    guess = number + 1 if number + 1 < len(accepts) else 0
                    if kind != ABSENT and not (accepts[number] >> kind) & 1:
                        at, code, field = start, KIND, number
                        break
                at = past_blanks(source, at, stop)
                if at < stop and source[at] == 125:
                    at += 1
                    break
                if at >= stop or source[at] != 44:
                    code = SYNTAX
                    break
                at = past_blanks(source, at + 1, stop)
        if code == GOOD:
            at = past_blanks(source, at, stop)
            if at == stop:
                continue
            code = TRAILING
        found = kept
        for number in range(len(accepts)):
            kinds[number, row] = ABSENT
        status[row, 0], status[row, 1], status[row, 2] = code, at - int(offsets[row]), field
    return found
