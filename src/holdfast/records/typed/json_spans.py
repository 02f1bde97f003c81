"""Where the members of JSON objects are in their bytes, and which of them a column takes.

Owns the arrays that the kernel fills (kernels/json_scan.py) and the text of what is in a span.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.records.kernels import json_fill as fill
from holdfast.records.kernels import json_scan as k
from holdfast.records.kernels.jit import as_source, as_target
from holdfast.records.typed.json_targets import check_target

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

MOST_BYTES: Final = 2**31 - 1
"""Of one column of one batch: Arrow's strings have 32-bit offsets."""


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
    names: tuple[str, ...]
    """Of the fields."""
    inner: list["MemberSpans"] = field(default_factory=list)
    """Of objects within these, as columns of them were made."""
    path: str = ""
    """Of the objects within the values, with a dot behind it."""
    owners: "Array | None" = None
    """The row of the batch that each object is in; None for values themselves."""
    column: int = -1
    """Number of the values' field that these objects are in."""

    def all(self) -> Iterator["MemberSpans"]:
        """These and what is within."""
        yield self
        for each in self.inner:
            yield from each.all()

    def unknown_in(self, bad: Array) -> Array:
        """``unknown`` without what is in rows of the batch for which ``bad`` is true."""
        if not len(self.unknown) or not bad.any():
            return self.unknown
        return np.asarray(self.unknown[~bad[self.within(self.unknown[:, 0])]])

    def within(self, items: "Array | None" = None) -> Array:
        """Owners of what is in these objects, or in those of them that ``items`` names, one for each."""
        if items is None:
            return self.owners if self.owners is not None else np.arange(len(self.status))
        return items if self.owners is None else np.asarray(self.owners[items])

    def fail(self, rows: Array, code: int, field: int) -> None:
        """The values of these rows are bad, unless something was found before."""
        fresh = rows[self.status[rows, 0] == k.GOOD]
        self.status[fresh] = (code, 0, field)


def accepted(column: pa.Field) -> int:
    """A bit for each kind of JSON that a column takes. SchemaError for a type that none is decoded into."""
    check_target(column)
    kind = column.type
    strings = 1 << k.STRING | 1 << k.ESCAPED
    if pa.types.is_string(kind):
        return (1 << 16) - 1
    if pa.types.is_boolean(kind):
        return 1 << k.TRUE | 1 << k.FALSE
    if pa.types.is_integer(kind):
        return 1 << k.INTEGER
    if pa.types.is_floating(kind):
        return 1 << k.INTEGER | 1 << k.NUMBER
    if pa.types.is_decimal(kind):
        return 1 << k.INTEGER | 1 << k.NUMBER | strings
    if pa.types.is_list(kind):
        return 1 << k.ARRAY
    return 1 << k.OBJECT if pa.types.is_struct(kind) else strings


@dataclass(frozen=True, slots=True)
class ObjectFields:
    """The fields of one kind of object, in the form in which the kernel looks for them."""

    names: tuple[str, ...]
    text: Array
    """Names as UTF-8 one after the other."""
    ends: Array
    accepts: Array
    """``accepted`` of each."""

    @classmethod
    def of(cls, fields: Iterable[pa.Field]) -> "ObjectFields":
        """SchemaError for a type that no JSON is decoded into."""
        fields = list(fields)
        encoded = [each.name.encode() for each in fields]
        return cls(
            names=tuple(each.name for each in fields),
            text=np.frombuffer(b"".join(encoded) or b"\0", np.uint8),
            ends=np.cumsum([0, *map(len, encoded)]).astype(np.int64),
            accepts=np.array([accepted(each) for each in fields], np.int64),
        )

    def scan(self, values: pa.Array, path: str = "", owners: "Array | None" = None, column: int = -1) -> MemberSpans:
        """Where the members of the values (binary or string, slices too) are, and which values are bad."""
        rows, fields = len(values), len(self.names)
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32, rows + 1, values.offset * 4) if rows else np.zeros(1, np.int32)
        size = int(ends[-1]) - int(ends[0])
        longest = int(np.diff(ends).max()) if rows else 0
        # Read-only whatever it was, since kernels are compiled for each kind of array.
        source = as_source(memoryview(data).toreadonly() if data is not None and size else bytes(1))
        # The shortest member and its comma, "":1, have five bytes. Pages that are not used cost nothing.
        unknown = np.empty((size // 5 + rows + 1, k.UNKNOWN_FIELDS), np.int32)
        starts, stops = np.empty((2, fields, rows), np.int32)
        kinds, status = np.zeros((fields, rows), np.uint8), np.zeros((rows, 3), np.int64)
        scratch = as_target(np.empty(longest + 1, np.uint8))
        found = k.scan_objects(
            source, ends, present_in(values), self.text, self.ends, self.accepts, starts, stops, kinds, unknown,
            scratch, status,
        )  # fmt: skip
        return MemberSpans(
            starts, stops, kinds, status, unknown[:found], source, self.names, path=path, owners=owners, column=column
        )


def present_in(values: pa.Array) -> Array:
    """uint8 per row: 0 where it is null."""
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.uint8)


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
