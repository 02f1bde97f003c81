"""Where the members of JSON objects are in their bytes, and which of them a column takes.

Owns the arrays that the kernel fills (kernels/json_scan.py) and the text of what is in a span.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.records.kernels import json_fill as fill
from holdfast.records.kernels import json_scan as k
from holdfast.records.kernels.jit import as_target

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

MOST_BYTES: Final = 2**31 - 1
"""Of one column of one batch: Arrow's strings have 32-bit offsets."""


class JsonSchemaError(ValueError):
    """A schema that no JSON is decoded into."""


@dataclass(frozen=True, slots=True)
class MemberSpans:
    """Members by field and row (``starts``, ``ends``, ``kinds``), and those that no field is for."""

    starts: Array
    ends: Array
    kinds: Array
    status: Array
    """By row: code (0 is good), position of what is wrong, number of the field."""
    unknown: Array
    """Members x (row, start and end of the name, start, end and kind of the value)."""
    source: Any

    def fail(self, rows: Array, code: int, field: int) -> None:
        """The values of these rows are bad, unless something was found before."""
        fresh = rows[self.status[rows, 0] == k.GOOD]
        self.status[fresh] = (code, 0, field)


def accepted(field: pa.Field) -> int:
    """A bit for each kind of JSON that a column takes. JsonSchemaError for a type that none is decoded into."""
    kind = field.type
    strings = 1 << k.STRING | 1 << k.ESCAPED
    if pa.types.is_string(kind):
        return (1 << 16) - 1
    if pa.types.is_boolean(kind):
        return 1 << k.TRUE | 1 << k.FALSE
    if pa.types.is_integer(kind):
        return 1 << k.INTEGER
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return 1 << k.INTEGER | 1 << k.NUMBER
    if pa.types.is_decimal(kind):
        return 1 << k.INTEGER | 1 << k.NUMBER | strings
    if pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC")):
        return strings
    if pa.types.is_list(kind):
        accepted(kind.value_field)
        return 1 << k.ARRAY
    if pa.types.is_struct(kind):
        for each in kind:
            accepted(each)
        return 1 << k.OBJECT
    raise JsonSchemaError(
        f"field {field.name}: no JSON is decoded into {kind}; expected string, bool, a number, a decimal, date32, "
        "timestamp[us], timestamp[us, tz=UTC], or a list or struct of those"
    )


def spans_text(source: Any, starts: Array, ends: Array, kinds: Array) -> pa.Array:
    """The texts of spans as an Arrow array, strings without their escapes; null where there is none."""
    rows = len(kinds)
    starts, ends, kinds = (np.ascontiguousarray(each) for each in (starts, ends, kinds))
    there = kinds != k.ABSENT
    size = int((ends - starts)[there].sum(dtype=np.int64))
    if size > MOST_BYTES:
        raise ValueError(f"{rows} values have {size} bytes in one field: decode fewer at a time")
    out, out_ends = np.empty(size + 1, np.uint8), np.empty(rows + 1, np.int32)
    used = fill.gather(source, starts, ends, kinds, as_target(out), out_ends)
    valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    buffers = [valid, pa.py_buffer(out_ends), pa.py_buffer(out[:used])]
    return pa.Array.from_buffers(pa.string(), rows, buffers, rows - int(there.sum()))
