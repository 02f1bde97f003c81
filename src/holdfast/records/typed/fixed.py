"""Values of one fixed width (format ``struct``) to typed Arrow columns, in bulk.

Owns the layout text, the widths, and which rows are bad. A value is good if it has exactly the layout's bytes; a
null value (a tombstone) is a row of nulls and is not bad.

    layout = FixedLayout.parse("id:>i8, price:>f8, flag:u1")
    decoded = layout.decode(columns.arrays["value"])
    decoded.columns["id"]         pyarrow int64, null where the value is null or bad
    decoded.bad                   row numbers of bad values, int64, ascending
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.records.typed.decoding import Decoded
from holdfast.records.typed.schema_error import SchemaError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_KINDS: Final = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")


@dataclass(frozen=True, slots=True)
class FixedLayout:
    """Fields in their order, without gaps between them."""

    kind: "np.dtype[Any]"
    names: tuple[str, ...]
    """The fields that are decoded, in the order of their columns."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.from_numpy_dtype(self.kind[name].newbyteorder("="))) for name in self.names])

    @classmethod
    def parse(cls, text: str) -> "FixedLayout":
        """``name:type, ...``; a type is ``<`` or ``>`` (byte order) and i, u or f with its bytes, as ``>i8``.

        One byte needs no order. SchemaError names the field that is wrong.
        """
        fields: dict[str, str] = {}
        for part in text.split(","):
            name, _, kind = (piece.strip() for piece in part.partition(":"))
            ordered = kind[:1] in ("<", ">")
            if not name or kind.lstrip("<>") not in _KINDS or len(kind) - ordered != 2:
                raise SchemaError(f"field {part.strip()!r}: expected name:type with a type like >i8, <f4 or u1")
            if not ordered and kind[1] != "1":
                raise SchemaError(f"field {name!r}: type {kind} needs its byte order, >{kind} or <{kind}")
            if name in fields:
                raise SchemaError(f"field {name!r} is there twice")
            fields[name] = kind
        return cls(np.dtype(list(fields.items())), tuple(fields))

    def decode(self, values: pa.Array) -> Decoded:
        """Decodes a binary array (32-bit offsets, as records/columns.py makes it; slices too)."""
        if values.type != pa.binary():
            raise TypeError(f"values are {values.type}: expected binary")
        rows, width = len(values), self.kind.itemsize
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32, rows + 1, values.offset * 4) if rows else np.zeros(1, np.int32)
        starts, sizes = ends[:-1].astype(np.int64), np.diff(ends)
        present = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)
        good = present & (sizes == width)
        bad = np.flatnonzero(present & ~good).astype(np.int64)
        if good.all() and rows:  # no gap between them: the buffer is the table
            table = np.frombuffer(data, self.kind, rows, int(starts[0]))
        else:
            table = np.zeros(rows, self.kind)
            if good.any():
                source = np.frombuffer(data, np.uint8)
                raw = table.view(np.uint8).reshape(rows, width)
                raw[good] = source[starts[good, None] + np.arange(width)]
        mask = None if good.all() else ~good
        columns = {}
        for name in self.names:
            column = table[name]
            native = np.ascontiguousarray(column, column.dtype.newbyteorder("="))
            columns[name] = pa.array(native, mask=mask)
        bad_sizes = sizes[bad]
        return Decoded(
            rows=rows,
            columns=columns,
            bad=bad,
            why=lambda index: f"the value has {bad_sizes[index]} bytes, the layout has {width}",
        )

    def narrowed(self, names: Sequence[str]) -> "FixedLayout":
        """One that answers these columns only. KeyError for a name that the layout has not."""
        missing = [name for name in names if name not in (self.kind.names or ())]
        if missing:
            raise KeyError(f"the layout has no field {missing[0]!r}; it has {', '.join(self.kind.names or ())}")
        return replace(self, names=tuple(names))
