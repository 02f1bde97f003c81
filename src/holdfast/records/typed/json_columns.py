"""One member of many JSON objects as an Arrow column. What does not fit its type is found row by row, and only that.

Numbers and truth values are made by kernels; dates, decimals and what is nested by Arrow, all at once. Where that
fails, halves are tried, down to the rows that are to blame.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from holdfast.records.kernels import json_fill as fill
from holdfast.records.kernels import json_scan as k
from holdfast.records.typed.json_spans import Array, MemberSpans, spans_text

_POWERS: Final = np.array([float(10**n) for n in range(23)])
_ZONED: Final = r"[Tt ]\d.*([Zz]|[+-]\d{2}(:?\d{2})?)$"
_LONG_FRACTION: Final = r"(\.\d{6})\d+"


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
    if pa.types.is_nested(kind):
        return _halved(text, lambda some: _nested(kind, some), kind, spans, number)
    return _halved(text, lambda some: pc.cast(some, kind), kind, spans, number)


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
    column = pa.array(out, mask=kinds == k.ABSENT)
    return column if kind == pa.float64() else column.cast(kind)


def _times(kind: pa.DataType, text: pa.Array, spans: MemberSpans, number: int, time_zone: str) -> pa.Array:
    """With a zone of its own a time is one of UTC; without, it is in the decoder's zone. A column without a zone takes
    only times without."""
    text = pc.replace_substring_regex(text, _LONG_FRACTION, r"\1")
    zoned = pc.fill_null(pc.match_substring_regex(text, _ZONED), False)
    nothing = pa.scalar(None, pa.string())
    plain = pc.if_else(zoned, nothing, text)
    if kind.tz is None:
        spans.fail(np.flatnonzero(zoned.to_numpy(zero_copy_only=False)), k.CONVERSION, number)
        return _halved(plain, lambda some: pc.cast(some, kind), kind, spans, number)

    def local(some: pa.Array) -> pa.Array:
        return pc.assume_timezone(pc.cast(some, pa.timestamp("us")), time_zone, nonexistent="latest").cast(kind)

    there = pc.if_else(zoned, text, nothing)
    found = _halved(there, lambda some: pc.cast(some, kind), kind, spans, number)
    if plain.null_count == len(plain):
        return found
    return pc.coalesce(found, _halved(plain, local, kind, spans, number))


def _nested(kind: pa.DataType, text: pa.Array) -> pa.Array:
    """Of the texts of arrays or objects."""
    if not len(text):
        return pa.array([], kind)
    lines = pc.binary_join_element_wise(pa.scalar('{"x":'), pc.fill_null(text, "null"), pa.scalar("}\n"), "")
    _, offsets, data = lines.buffers()
    at = np.frombuffer(offsets, np.int32, len(lines) + 1, lines.offset * 4)
    buffer = data.slice(int(at[0]), int(at[-1] - at[0]))
    table = pj.read_json(
        pa.BufferReader(buffer),
        pj.ReadOptions(use_threads=False, block_size=buffer.size + 1),
        pj.ParseOptions(explicit_schema=pa.schema([("x", kind)]), unexpected_field_behavior="ignore"),
    )
    column = table.column(0).combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _halved(
    text: pa.Array, convert: Callable[[pa.Array], pa.Array], kind: pa.DataType, spans: MemberSpans, number: int
) -> pa.Array:
    """All at once; where that fails by halves, and what fails alone is bad."""
    bad: list[int] = []

    def piece(first: int, count: int) -> list[pa.Array]:
        try:
            return [convert(text.slice(first, count))]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if count == 1:
                bad.append(first)
                return [pa.nulls(1, kind)]
        half = count // 2
        return piece(first, half) + piece(first + half, count - half)

    pieces = piece(0, len(text))
    if bad:
        spans.fail(np.array(bad, np.int64), k.CONVERSION, number)
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


__all__: Final = ["Array", "converted"]
