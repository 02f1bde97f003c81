"""One member of many JSON objects as an Arrow column; what does not fit its type is noted for its row.

All is made by kernels, so that what is wrong with one costs nothing for the others, but for numbers that a double does
not have exactly: those are read by Arrow. What is nested is spans again, and their columns are made in the same way.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.records.kernels import json_fill as fill
from holdfast.records.kernels import json_nested as nested
from holdfast.records.kernels import json_scalars as scalars
from holdfast.records.kernels import json_scan as k
from holdfast.records.kernels.jit import as_source
from holdfast.records.typed.json_spans import Array, MemberSpans, ObjectFields, accepted, present_in, spans_text

_POWERS: Final = np.array([float(10**n) for n in range(23)])
_OVER: Final = 2.0**128 - 2.0**103
"""Half way from the largest float32 to what would be the next one: nearest to none, and so is all that is larger."""


def converted(kind: pa.DataType, spans: MemberSpans, number: int, time_zone: str) -> pa.Array:
    """The column of a field; rows that do not fit its type are null, and bad from now on."""
    starts, ends, kinds = spans.starts[number], spans.ends[number], spans.kinds[number]
    if pa.types.is_boolean(kind):
        return pa.array(kinds == k.TRUE, mask=kinds == k.ABSENT)
    if pa.types.is_integer(kind):
        return _ints(kind, spans, number)
    if pa.types.is_floating(kind):
        return _floats(kind, spans, number)
    text = spans_text(spans.source, starts, ends, kinds)
    if pa.types.is_string(kind):
        return text
    if pa.types.is_timestamp(kind):
        return _times(kind, text, spans, number, time_zone)
    if pa.types.is_struct(kind):
        return _structs(kind, text, spans, number, time_zone)
    if pa.types.is_list(kind):
        return _lists(kind, text, spans, number, time_zone)
    if pa.types.is_decimal(kind):
        return _decimals(kind, text, spans, number)
    return _scalars(kind, text, spans, number, np.zeros(len(text), np.int32), scalars.dates)[0]


def _ints(kind: pa.DataType, spans: MemberSpans, number: int) -> pa.Array:
    starts, ends, kinds = spans.starts[number], spans.ends[number], spans.kinds[number]
    limits = np.iinfo(kind.to_pandas_dtype())
    rows = len(kinds)
    out, failed = np.empty(rows, np.int64), np.zeros(rows, np.uint8)
    greatest = min(int(limits.max), 2**63 - 1)
    if fill.parse_ints(spans.source, starts, ends, kinds, int(limits.min), greatest, out, failed):
        spans.fail(np.flatnonzero(failed), k.RANGE, number)
    column = pa.array(out, mask=(kinds == k.ABSENT) | (failed != 0))
    return column if kind == pa.int64() else column.cast(kind)


def _floats(kind: pa.DataType, spans: MemberSpans, number: int) -> pa.Array:
    starts, ends, kinds = spans.starts[number], spans.ends[number], spans.kinds[number]
    rows = len(kinds)
    out, slow = np.empty(rows, np.float64), np.empty(rows, np.int64)
    count = fill.parse_floats(spans.source, starts, ends, kinds, _POWERS, out, slow)
    if count:
        some = slow[:count]
        texts = spans_text(spans.source, starts[some], ends[some], kinds[some])
        out[some] = pc.cast(texts, pa.float64()).to_numpy(zero_copy_only=False)
    if pa.types.is_float32(kind):
        out = _singles(spans.source, starts, ends, kinds, out)
    spans.fail(np.flatnonzero(np.isinf(out)), k.RANGE, number)
    return pa.array(out, mask=kinds == k.ABSENT)


def _singles(source: Any, starts: Array, ends: Array, kinds: Array, doubles: Array) -> Array:
    """The nearest float32. A double in the middle between two of them was perhaps rounded to there, so that the text
    decides; so it does where float32 has fewer digits."""
    with np.errstate(over="ignore", under="ignore"):
        out = doubles.astype(np.float32)
    size = np.abs(doubles)
    middle = (doubles.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    small = (size < 2.0**-126) & (size > 2.0**-149)
    unsure = np.flatnonzero((middle | small) & (size < _OVER))
    if len(unsure):
        texts = spans_text(source, starts[unsure], ends[unsure], kinds[unsure])
        out[unsure] = pc.cast(texts, pa.float32()).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(size == _OVER):
        if abs(Decimal(bytes(memoryview(source)[starts[row] : ends[row]]).decode())) < _OVER:
            out[row] = np.copysign(np.finfo(np.float32).max, doubles[row])
    return out


def _scalars(
    kind: pa.DataType, text: pa.Array, spans: MemberSpans, number: int, out: Array, read: Callable[..., None]
) -> tuple[pa.Array, Array]:
    """Texts as items of ``out``, by a kernel that says which are bad: the column, and the states of its rows."""
    rows = len(text)
    present, states = present_in(text), np.zeros(rows, np.uint8)
    _, offsets, data = text.buffers()
    read(as_source(memoryview(data).toreadonly()), np.frombuffer(offsets, np.int32, rows + 1), present, out, states)
    bad = states == scalars.BAD
    spans.fail(np.flatnonzero(bad), k.CONVERSION, number)
    valid = pa.py_buffer(np.packbits((present != 0) & ~bad, bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(out)]), states


def _decimals(kind: pa.DataType, text: pa.Array, spans: MemberSpans, number: int) -> pa.Array:
    def read(source: Any, ends: Array, present: Array, out: Array, states: Array) -> None:
        scalars.decimals(source, ends, present, kind.precision, kind.scale, out, states)

    return _scalars(kind, text, spans, number, np.zeros((len(text), 4), np.uint32), read)[0]


def _times(kind: pa.DataType, text: pa.Array, spans: MemberSpans, number: int, time_zone: str) -> pa.Array:
    """With a zone of its own a time is one of UTC; without, it is in the decoder's zone. A column without a zone takes
    only times without."""
    out = np.zeros(len(text), np.int64)
    column, states = _scalars(kind, text, spans, number, out, scalars.timestamps)
    zoneless = states == scalars.ZONELESS
    if kind.tz is None:
        zoned = np.asarray(column.is_valid().to_numpy(zero_copy_only=False)) & ~zoneless
        spans.fail(np.flatnonzero(zoned), k.CONVERSION, number)
    elif time_zone != "UTC" and zoneless.any():
        out[zoneless] = in_utc(out[zoneless], time_zone)  # which the column has as its buffer
    return column


def in_utc(micros: Array, time_zone: str) -> Array:
    """Microseconds on a zone's clock to those in UTC, as Java does it: of a time that is there twice the first, and a
    time that is left out is as much later as the clock was put forward."""
    local = pa.array(micros, pa.timestamp("us"))
    utc = pc.assume_timezone(local, time_zone, ambiguous="earliest", nonexistent="earliest")
    # Of a time that is left out this is the last moment before the gap, by the clock from before it.
    before = pc.local_timestamp(utc).cast(pa.int64()).to_numpy() - utc.cast(pa.int64()).to_numpy()
    return np.asarray(micros - before)


def _column(spans: MemberSpans, number: int) -> int:
    return spans.column if spans.owners is not None else number


def _structs(kind: pa.DataType, text: pa.Array, spans: MemberSpans, number: int, time_zone: str) -> pa.Array:
    inner = ObjectFields.of(kind).scan(
        text, f"{spans.path}{spans.names[number]}.", spans.within(), _column(spans, number)
    )
    spans.inner.append(inner)
    columns = [converted(each.type, inner, i, time_zone) for i, each in enumerate(kind)]
    spans.fail(np.flatnonzero(inner.status[:, 0]), k.CONVERSION, number)
    valid = pa.py_buffer(np.packbits(present_in(text), bitorder="little"))
    return pa.Array.from_buffers(kind, len(text), [valid], children=columns)


def _lists(kind: pa.DataType, text: pa.Array, spans: MemberSpans, number: int, time_zone: str) -> pa.Array:
    rows = len(text)
    present, (_, ends, data) = present_in(text), text.buffers()
    most = data.size // 2 + 1  # [1] is the shortest with an item, and each further one has a comma
    starts, stops, lists = np.empty((3, most), np.int32)
    kinds, offsets = np.empty(most, np.uint8), np.zeros(rows + 1, np.int32)
    source = as_source(memoryview(data).toreadonly())
    out = (starts, stops, kinds, lists)
    count = nested.split_arrays(source, np.frombuffer(ends, np.int32, rows + 1), present, offsets, out)
    kinds, lists = kinds[:count], lists[:count]
    items = MemberSpans(
        starts[None, :count], stops[None, :count], kinds[None, :], np.zeros((count, 3), np.int64),
        np.empty((0, k.UNKNOWN_FIELDS), np.int32), source, ("element",),
        path=f"{spans.path}{spans.names[number]}.", owners=spans.within(lists), column=_column(spans, number),
    )  # fmt: skip
    spans.inner.append(items)
    wrong = (kinds != k.ABSENT) & (accepted(pa.field("element", kind.value_type)) >> kinds.astype(np.int64) & 1 == 0)
    items.fail(np.flatnonzero(wrong), k.KIND, 0)
    kinds[wrong] = k.ABSENT
    column = converted(kind.value_type, items, 0, time_zone)
    spans.fail(np.unique(lists[items.status[:, 0] != 0]), k.CONVERSION, number)
    valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [valid, pa.py_buffer(offsets)], children=[column])
