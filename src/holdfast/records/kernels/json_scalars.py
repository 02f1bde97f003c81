"""Texts of JSON members to decimals, dates and times, as many as there are; and what is UTF-8 of them.

Text ``row`` is ``source[ends[row] : ends[row + 1]]``, where ``present`` is 1. Each function writes one item per text
and sets ``states`` where it is BAD (or ZONELESS): one text that does not fit costs no second look at others.
"""

from typing import Any

from holdfast.records.kernels.jit import inline_jit, jit

__all__ = ["dates", "decimals", "not_utf8", "timestamps"]

GOOD = 0
BAD = 1
ZONELESS = 2  # a time that says no zone

_LIMB = (1 << 32) - 1
_NO_DATE = -(1 << 31)


@inline_jit
def _exponent(source: Any, at: int, stop: int) -> int:
    """Of the digits behind an ``e``, at most 99999 either way."""
    negative = False
    if at < stop and (source[at] == 45 or source[at] == 43):
        negative = source[at] == 45
        at += 1
    value = 0
    while at < stop:
        value = min(99999, value * 10 + (int(source[at]) - 48))
        at += 1
    return -value if negative else value


@jit
def _decimal_shape(source: Any, at: int, stop: int) -> tuple[int, int, int]:
    """Of a number: (digits without zeros before, power of ten of the last one, where its digits end); end -1 if it is
    none. A string may have what JSON's numbers may not: a plus, zeros before, no digit on one side of the point."""
    if at < stop and (source[at] == 45 or source[at] == 43):
        at += 1
    digits = 0
    seen = 0
    exponent = 0
    fraction = False
    while at < stop:
        c = int(source[at])
        if c == 46 and not fraction:
            fraction = True
        elif 48 <= c <= 57:
            seen += 1
            if digits > 0 or c != 48:
                digits += 1
            if fraction:
                exponent -= 1
        else:
            break
        at += 1
    end = at if seen else -1
    if seen and at < stop:
        first = at + 1
        if int(source[at]) & 0xDF != 69:
            return 0, 0, -1
        if first < stop and (source[first] == 45 or source[first] == 43):
            first += 1
        if first >= stop:
            return 0, 0, -1
        for i in range(first, stop):
            if not 48 <= source[i] <= 57:
                return 0, 0, -1
        exponent += _exponent(source, at + 1, stop)
    return digits, exponent, end


@jit
def _decimal(source: Any, at: int, end: int, kept: int, zeros: int, out: Any, row: int) -> bool:
    """Writes the first ``kept`` digits and ``zeros`` behind them; False if a digit that is not kept is no zero."""
    negative = source[at] == 45
    low, mid, high, top = 0, 0, 0, 0
    count = 0
    while at < end or zeros > 0:
        digit = 0
        if at < end:
            digit = int(source[at]) - 48
            at += 1
            if digit < 0 or (count == 0 and digit == 0):  # a sign, the point, zeros before
                continue
            count += 1
            if count > kept:
                if digit != 0:
                    return False
                continue
        else:
            zeros -= 1
        low = low * 10 + digit
        mid = mid * 10 + (low >> 32)
        high = high * 10 + (mid >> 32)
        top = top * 10 + (high >> 32)
        low, mid, high = low & _LIMB, mid & _LIMB, high & _LIMB
    if negative:  # two's complement over four limbs
        low = (low ^ _LIMB) + 1
        mid = (mid ^ _LIMB) + (low >> 32)
        high = (high ^ _LIMB) + (mid >> 32)
        top = (top ^ _LIMB) + (high >> 32)
    out[row, 0] = low & _LIMB
    out[row, 1] = mid & _LIMB
    out[row, 2] = high & _LIMB
    out[row, 3] = top & _LIMB
    return True


@jit
def decimals(source: Any, ends: Any, present: Any, precision: int, scale: int, out: Any, states: Any) -> None:
    """Numbers into decimal128 as four uint32 each, low ones first. One that would have to be rounded is BAD."""
    for row in range(len(present)):
        if present[row]:
            at, stop = int(ends[row]), int(ends[row + 1])
            digits, exponent, end = _decimal_shape(source, at, stop)
            shift = exponent + scale
            fits = end >= 0 and (digits == 0 or digits + shift <= precision)
            zeros = shift if digits else 0
            if not fits or not _decimal(source, at, end, digits + min(shift, 0), zeros, out, row):
                states[row] = BAD


@inline_jit
def _two(source: Any, at: int) -> int:
    """Two digits; a large negative number if they are none."""
    high, low = int(source[at]) - 48, int(source[at + 1]) - 48
    return high * 10 + low if 0 <= high <= 9 and 0 <= low <= 9 else -100000


@jit
def _days(source: Any, at: int) -> int:
    """Days since 1970-01-01 of YYYY-MM-DD, proleptic Gregorian, years 1 to 9999; -(2^31) if it is no date."""
    year = _two(source, at) * 100 + _two(source, at + 2)
    month, day = _two(source, at + 5), _two(source, at + 8)
    if source[at + 4] != 45 or source[at + 7] != 45 or year < 1 or not 1 <= month <= 12 or day < 1:
        return _NO_DATE
    long = 31 - (month == 4 or month == 6 or month == 9 or month == 11)
    if month == 2:
        long = 29 if (year % 4 == 0 and year % 100 != 0) or year % 400 == 0 else 28
    if day > long:
        return _NO_DATE
    # Years begin in March, so that a leap day is their last; 400 of them have 146097 days.
    if month <= 2:
        year -= 1
        month += 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 719469


@jit
def dates(source: Any, ends: Any, present: Any, out: Any, states: Any) -> None:
    """YYYY-MM-DD into days since 1970-01-01."""
    for row in range(len(present)):
        if present[row]:
            at = int(ends[row])
            days = _days(source, at) if ends[row + 1] - at == 10 else _NO_DATE
            if days == _NO_DATE:
                states[row] = BAD
            else:
                out[row] = days


@inline_jit
def _zone(source: Any, at: int, stop: int) -> int:
    """Minutes east of Greenwich of Z, +HH, +HHMM or +HH:MM, up to 18 hours; 10000 if it is none."""
    size = stop - at
    if size == 1 and int(source[at]) & 0xDF == 90:
        return 0
    if (size != 3 and size != 5 and size != 6) or (source[at] != 43 and source[at] != 45):
        return 10000
    minutes = 0
    if size > 3:
        minutes = _two(source, stop - 2)
        if minutes < 0 or minutes > 59 or (size == 6 and source[at + 3] != 58):
            return 10000
    minutes += _two(source, at + 1) * 60
    if minutes < 0 or minutes > 18 * 60:
        return 10000
    return minutes if source[at] == 43 else -minutes


@jit
def _micros(source: Any, at: int, stop: int) -> tuple[int, int]:
    """Of a time of day with its zone: (microseconds since midnight in Greenwich, GOOD, ZONELESS or BAD)."""
    if stop - at < 5 or source[at + 2] != 58:
        return 0, BAD
    hour, minute = _two(source, at), _two(source, at + 3)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59:
        return 0, BAD
    micros = (hour * 60 + minute) * 60_000_000
    at += 5
    if at < stop and source[at] == 58:
        second = _two(source, at + 1) if stop - at >= 3 else -1
        if second < 0 or second > 59:
            return 0, BAD
        micros += second * 1_000_000
        at += 3
        if at < stop and source[at] == 46:
            at += 1
            first = at
            unit = 100_000
            while at < stop and 48 <= source[at] <= 57:
                micros += (int(source[at]) - 48) * unit
                unit //= 10
                at += 1
            if at == first or at - first > 9:
                return 0, BAD
    if at == stop:
        return micros, ZONELESS
    minutes = _zone(source, at, stop)
    if minutes == 10000:
        return 0, BAD
    return micros - minutes * 60_000_000, GOOD


@jit
def timestamps(source: Any, ends: Any, present: Any, out: Any, states: Any) -> None:
    """ISO 8601 into microseconds since 1970: a date, or a date, T or a blank, and a time. What says no zone is
    ZONELESS and counts as if in Greenwich. Digits behind the microseconds are cut off."""
    for row in range(len(present)):
        if not present[row]:
            continue
        at, stop = int(ends[row]), int(ends[row + 1])
        days = _days(source, at) if stop - at >= 10 else _NO_DATE
        micros, state = 0, ZONELESS
        if days == _NO_DATE:
            state = BAD
        elif stop - at > 10:
            state = BAD
            if source[at + 10] == 32 or int(source[at + 10]) & 0xDF == 84:
                micros, state = _micros(source, at + 11, stop)
        states[row] = state
        if state != BAD:
            out[row] = days * 86_400_000_000 + micros


@jit
def _character(source: Any, at: int, stop: int) -> int:
    """Behind the character of several bytes at ``at``; -1 if it is no UTF-8."""
    c = int(source[at])
    low, high = 0x80, 0xBF
    if 0xC2 <= c <= 0xDF:
        more = 1
    elif 0xE0 <= c <= 0xEF:
        more = 2
        if c == 0xE0:
            low = 0xA0
        elif c == 0xED:
            high = 0x9F
    elif 0xF0 <= c <= 0xF4:
        more = 3
        if c == 0xF0:
            low = 0x90
        elif c == 0xF4:
            high = 0x8F
    else:
        return -1
    if stop - at <= more or int(source[at + 1]) < low or int(source[at + 1]) > high:
        return -1
    for i in range(2, more + 1):
        if int(source[at + i]) & 0xC0 != 0x80:
            return -1
    return at + more + 1


@jit
def not_utf8(source: Any, ends: Any, present: Any, positions: Any) -> None:
    """The first byte of each text that is no UTF-8, from the text's start; -1 where all is."""
    for row in range(len(present)):
        positions[row] = -1
        at, stop = int(ends[row]), int(ends[row + 1])
        while present[row] and at < stop:
            following = at + 1 if source[at] < 128 else _character(source, at, stop)
            if following < 0:
                positions[row] = at - int(ends[row])
                break
            at = following
