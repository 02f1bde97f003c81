"""What a decoder of values answers: typed Arrow columns, the rows that are bad, the fields that have no column.

Owns the shapes that all formats share (fixed width, JSON, Avro, Protobuf), so that the Spark source and the lake take
any of them alike. Decodes nothing itself. Free of Spark and of I/O.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

RowNumbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field of values that the decoder's schema has no column for."""

    rows: int
    """How many values have it, not null."""
    type: pa.DataType
    """What a column for it would be."""
    nested: bool = False
    """It is within a field that has a column, and its name has that one's before it: no column can be added for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Rows of one Arrow batch. A bad row and a null value (a tombstone) are rows of nulls."""

    rows: int
    columns: Mapping[str, pa.Array]
    """``rows`` items each, in the order of the decoder's schema."""
    bad: RowNumbers
    """Row numbers of the values that are not what the schema says, ascending."""
    why: Callable[[int], str]
    """The reason of the bad row ``bad[index]``, in words."""
    unknown: Mapping[str, UnknownField] = field(default_factory=dict)
    """By name. What is in them is dropped, unless the decoder has a column for the rest."""


class ValueDecoder(Protocol):
    """Of one schema. Decoding is pure, but for what a registry is asked."""

    @property
    def schema(self) -> pa.Schema:
        """Of ``Decoded.columns``. Timestamps are timestamp[us] or timestamp[us, tz=UTC]."""
        ...

    def decode(self, values: pa.Array) -> Decoded:
        """Decodes a binary array (32-bit offsets, as records/columns.py makes it; slices too)."""
        ...

    def narrowed(self, names: Sequence[str]) -> "ValueDecoder":
        """One that answers these columns only, in this order, and does not spend time on others. ``bad`` may then be
        fewer rows: what is wrong in a field that nobody asked for need not be found. KeyError for a name that it has
        not."""
        ...
