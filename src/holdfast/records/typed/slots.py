"""Slots of a schema: the buffers that a kernel fills, and the Arrow arrays that are made of them.

What a slot, a level and the arena are: records/kernels/walk.py. A compiler adds slots to a ``Layout`` while it walks a
schema, and keeps an ``Output`` for each column, which knows how its slots become an array.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.records.kernels import walk

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_ALIGN: Final = 64
_UNITS: Final = {walk.BYTE: 1, walk.WORD: 4, walk.LONG: 8}
GUESSED_BYTES: Final = 64 << 20
"""Of an arena whose columns of bytes each have room for all bytes of the values: more than this is counted first."""


@dataclass(slots=True)
class Layout:
    """The slots of one schema, in the order in which a compiler meets them: parents before their children."""

    rows: list[list[int]] = field(default_factory=list)
    levels: int = 1

    def add(self, level: int, kind: int, *, width: int = 0, child: int = -1, first: int = 0) -> int:
        """A new slot; answers its number."""
        self.rows.append([level, kind, 0, 0, 0, child, width, first])
        return len(self.rows) - 1

    def new_level(self) -> int:
        self.levels += 1
        return self.levels - 1

    def array(self) -> Array:
        return np.array(self.rows, np.int64).reshape(-1)

    @property
    def sized(self) -> int:
        """How many slots have items of any size."""
        return sum(row[walk.KIND] == walk.SIZED for row in self.rows)


class Arena:
    """All buffers of a layout, for so many items a level and so many bytes a slot."""

    def __init__(self, layout: Layout, counts: Sequence[int], sizes: Sequence[int]) -> None:
        self.slots = layout.array()
        table = self.slots.reshape(-1, walk.SLOT_FIELDS)
        at = 0
        for slot, row in enumerate(table):
            items, kind = int(counts[row[walk.LEVEL]]), int(row[walk.KIND])
            row[walk.VALID], at = at, _behind(at + items)
            if kind in (walk.SIZED, walk.LIST):
                row[walk.ENDS], at = at // 4, _behind(at + 4 * (items + 1))
            if kind == walk.SIZED:
                row[walk.DATA], at = at, _behind(at + int(sizes[slot]))
            elif kind in _UNITS:
                row[walk.DATA], at = at // _UNITS[kind], _behind(at + items * _UNITS[kind])
            elif kind == walk.FIXED:
                width = int(row[walk.WIDTH])
                row[walk.DATA] = -(-at // width)
                at = _behind((int(row[walk.DATA]) + items) * width)
        self.a8 = np.empty(at + _ALIGN, np.uint8)  # never empty: kernels know by that that there is one
        self.a32 = self.a8.view(np.int32)
        self.a64 = self.a8.view(np.int64)
        for row in table:
            if row[walk.KIND] in (walk.SIZED, walk.LIST):
                self.a32[row[walk.ENDS]] = 0
        self._table = table

    def valid(self, slot: int, items: int) -> tuple[pa.Buffer | None, int]:
        """The validity bitmap and the number of nulls."""
        start = int(self._table[slot, walk.VALID])
        flags = self.a8[start : start + items]
        nulls = items - int(np.count_nonzero(flags))
        return (pa.py_buffer(np.packbits(flags, bitorder="little")) if nulls else None), nulls

    def ends(self, slot: int, items: int) -> Array:
        start = int(self._table[slot, walk.ENDS])
        return self.a32[start : start + items + 1]

    def data(self, slot: int, items: int) -> Array:
        """The bytes of a slot's items."""
        row = self._table[slot]
        kind, start = int(row[walk.KIND]), int(row[walk.DATA])
        if kind == walk.SIZED:
            return self.a8[start : start + int(self.ends(slot, items)[items])]
        unit = int(row[walk.WIDTH]) if kind == walk.FIXED else _UNITS[kind]
        return self.a8[start * unit : (start + items) * unit]


def _behind(at: int) -> int:
    return -(-at // _ALIGN) * _ALIGN


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What a run of a kernel left: the arena and the number of items of each level."""

    arena: Arena
    counts: Array
    good: Array
    """bool, an item per row: the value is there and is not bad."""


class Output(Protocol):
    """How slots become an array."""

    @property
    def type(self) -> pa.DataType: ...

    def array(self, filled: Filled) -> pa.Array: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A column without parts."""

    slot: int
    level: int
    stored: pa.DataType
    """What the buffers are."""
    type: pa.DataType
    names: pa.Array | None = None
    """The items are indexes in it."""

    def array(self, filled: Filled) -> pa.Array:
        items = int(filled.counts[self.level])
        valid, nulls = filled.arena.valid(self.slot, items)
        data = filled.arena.data(self.slot, items)
        if self.stored == pa.bool_():
            data = np.packbits(data, bitorder="little")
        buffers = [valid, pa.py_buffer(data)]
        if self.stored in (pa.string(), pa.binary()):
            buffers.insert(1, pa.py_buffer(filled.arena.ends(self.slot, items)))
        found = pa.Array.from_buffers(self.stored, items, buffers, nulls)
        if self.names is not None:
            return self.names.take(found)
        return found if self.stored == self.type else found.cast(self.type, safe=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UuidLeaf:
    """16 bytes an item, as text with four dashes."""

    slot: int
    level: int
    type: pa.DataType = field(default_factory=pa.string)

    def array(self, filled: Filled) -> pa.Array:
        items = int(filled.counts[self.level])
        valid, nulls = filled.arena.valid(self.slot, items)
        pairs = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)
        digits = pairs[filled.arena.data(self.slot, items)].reshape(items, 32)
        text = np.full((items, 36), ord("-"), np.uint8)
        for start, stop, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
            text[:, at : at + stop - start] = digits[:, start:stop]
        ends = np.arange(items + 1, dtype=np.int32) * np.int32(36)
        return pa.Array.from_buffers(self.type, items, [valid, pa.py_buffer(ends), pa.py_buffer(text)], nulls)


@dataclass(frozen=True, slots=True, kw_only=True)
class StructOutput:
    slot: int
    level: int
    type: pa.DataType
    children: tuple[Output, ...]

    def array(self, filled: Filled) -> pa.Array:
        items = int(filled.counts[self.level])
        valid, nulls = filled.arena.valid(self.slot, items)
        children = [child.array(filled) for child in self.children]
        return pa.Array.from_buffers(self.type, items, [valid], nulls, children=children)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOutput:
    """A list, or a map: then ``items`` are its keys and values."""

    slot: int
    level: int
    child: int
    type: pa.DataType
    items: tuple[Output, ...]

    def array(self, filled: Filled) -> pa.Array:
        rows = int(filled.counts[self.level])
        valid, nulls = filled.arena.valid(self.slot, rows)
        children = [item.array(filled) for item in self.items]
        if pa.types.is_map(self.type):
            kind = pa.struct([self.type.key_field, self.type.item_field])
            count = int(filled.counts[self.child])
            children = [pa.Array.from_buffers(kind, count, [None], 0, children=children)]
        ends = pa.py_buffer(filled.arena.ends(self.slot, rows))
        return pa.Array.from_buffers(self.type, rows, [valid, ends], nulls, children=children)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A column of which the values say nothing: one value in all good rows."""

    level: int
    value: pa.Array
    """One item."""

    @property
    def type(self) -> pa.DataType:
        return self.value.type

    def array(self, filled: Filled) -> pa.Array:
        items = int(filled.counts[self.level])
        mask = ~filled.good if self.level == 0 else np.zeros(items, bool)
        return self.value.take(pa.array(np.zeros(items, np.int32), mask=mask))
