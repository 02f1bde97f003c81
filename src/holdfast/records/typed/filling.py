"""Runs a kernel that walks values over a layout: counts first where it has to, then fills, and says what was wrong."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.records.kernels import walk
from holdfast.records.typed.decoding import Decoded, UnknownField
from holdfast.records.typed.slots import GUESSED_BYTES, Arena, Filled, Layout, Output
from holdfast.records.typed.spans import Spans

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_REASONS: Final = {
    walk.TRUNCATED: "the value ends before it does",
    walk.LONG_VARINT: "its number has more than 64 bits",
    walk.BAD_LENGTH: "its length or count cannot be",
    walk.NOT_UTF8: "its bytes are not UTF-8",
    walk.NOT_BOOLEAN: "its byte is neither 0 nor 1",
    walk.INT_RANGE: "its number has more than 32 bits",
    walk.BAD_BRANCH: "its union has no such branch",
    walk.BAD_SYMBOL: "its enum has no such number",
    walk.OTHER_SYMBOL: "the reader's schema does not know its symbol and has no default",
    walk.DECIMAL_RANGE: "its number has more digits than the schema says",
    walk.TIME_RANGE: "its time is out of range",
    walk.TRAILING: "there are bytes behind the value's end",
    walk.NULL_VALUE: "it is null, which the reader's schema does not take",
    walk.BAD_TAG: "there is no tag of a field",
    walk.BAD_GROUP: "a group ends that did not begin, or is nested too deep",
    walk.MISSING: "it is required and missing",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a kernel left."""

    filled: Filled
    faults: Array
    """int64, rows x 3: what is wrong (0: nothing), where in the program, at which byte of the value."""
    bad: Array
    unknown: Array
    """int64: as the kernel counts them."""


def fill(layout: Layout, spans: Spans, kernels: Any, unknown: Array, call: Callable[..., int]) -> Run:
    """``call(source, starts, stops, present, slots, counts, sizes, a8, a32, a64, unknown, faults)`` is the kernel.

    ``unknown`` is what its counters begin with.
    """
    rows = len(spans)
    view = kernels.as_target
    counts = np.zeros(layout.levels, np.int64)
    sizes = np.full(max(1, len(layout.rows)), spans.bytes, np.int64)
    faults = np.zeros(max(1, 3 * rows), np.int64)
    given = [kernels.as_source(spans.source), *map(view, (spans.starts, spans.stops, spans.present))]

    def run(slots: Array, arena: Sequence[Array]) -> Array:
        seen = unknown.copy()
        call(*given, view(slots), view(counts), view(sizes), *map(view, arena), view(seen), view(faults))
        return seen

    if layout.levels > 1 or layout.sized * spans.bytes > GUESSED_BYTES:
        sizes[:] = 0
        run(layout.array(), (np.empty(0, np.uint8), np.empty(0, np.int32), np.empty(0, np.int64)))
        counts[1:] += 1  # an item that a bad value began is not counted, but written until it is found to be bad
    counts[0] = rows
    arena = Arena(layout, counts.tolist(), sizes.tolist())
    counts[:] = 0
    seen = run(arena.slots, (arena.a8, arena.a32, arena.a64))
    counts[0] = rows
    table = faults[: 3 * rows].reshape(rows, 3)
    wrong = table[:, 0] != 0
    filled = Filled(arena=arena, counts=counts, good=(spans.present != 0) & ~wrong)
    return Run(filled=filled, faults=table, bad=np.flatnonzero(wrong).astype(np.int64), unknown=seen)


def decoded(
    run: Run, outputs: Mapping[str, Output], path: Callable[[int], str], unknown: Mapping[str, UnknownField]
) -> Decoded:
    """``path`` names the field of a place in the program."""

    def why(index: int) -> str:
        code, place, at = (int(each) for each in run.faults[run.bad[index]])
        name = path(place)
        return (f"field {name!r} at byte {at}: " if name else f"at byte {at}: ") + _REASONS[code]

    columns: dict[str, pa.Array] = {name: output.array(run.filled) for name, output in outputs.items()}
    return Decoded(rows=len(run.filled.good), columns=columns, bad=run.bad, why=why, unknown=unknown)
