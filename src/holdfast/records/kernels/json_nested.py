"""What is in arrays that kernels/json_scan.py has found, to spans as it makes them.

Text ``row`` is ``source[ends[row] : ends[row + 1]]``; its grammar has been checked. ``out`` is (starts, ends, kinds,
row that it is in) of what is found.
"""

from typing import Any

from holdfast.records.kernels.jit import inline_jit, jit
from holdfast.records.kernels.json_scan import ESCAPED, STRING, next_value, past_blanks

__all__ = ["split_arrays"]


@inline_jit
def _put(starts: Any, ends: Any, kinds: Any, found: int, at: int, end: int, kind: int) -> None:
    quote = 1 if kind in (STRING, ESCAPED) else 0
    starts[found] = at + quote
    ends[found] = end - quote
    kinds[found] = kind


@inline_jit
def _past_comma(source: Any, at: int, stop: int) -> int:
    at = past_blanks(source, at, stop)
    return past_blanks(source, at + 1, stop) if source[at] == 44 else at


@jit
def split_arrays(source: Any, ends: Any, present: Any, offsets: Any, out: Any) -> int:
    """The items of arrays; those of array i begin at offsets[i]. Answers how many there are."""
    starts, stops, kinds, rows = out
    found = 0
    for row in range(len(present)):
        if present[row]:
            stop = int(ends[row + 1])
            at = past_blanks(source, int(ends[row]) + 1, stop)
            while source[at] != 93:
                end, kind, _code = next_value(source, at, stop)
                _put(starts, stops, kinds, found, at, end, kind)
                rows[found] = row
                found += 1
                at = _past_comma(source, end, stop)
        offsets[row + 1] = found
    return found
