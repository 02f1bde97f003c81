"""Values behind a schema registry's prefix: a byte 0, and the id of the schema that they were written with, 4 bytes.

One batch may hold values of several schemas. Rows are grouped by id, each group is decoded by itself, and the columns
are put together in the order of the rows. What is behind an id is asked of a ``Lookup``; registry/client.py has the one
that asks over HTTP. A value without a prefix, or with an id that the registry does not know, is bad; a registry that
does not answer is an error of the lookup and not of the values.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from holdfast.records.typed.avro import AvroDecoder
from holdfast.records.typed.avro_schema import AvroType, arrow_type, parse
from holdfast.records.typed.decoding import Decoded, UnknownField
from holdfast.records.typed.registered import MAX_ID, PREFIX_BYTES, Lookup
from holdfast.records.typed.schema_error import SchemaError
from holdfast.records.typed.spans import Spans

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Why: TypeAlias = Callable[[int], str]
K = TypeVar("K")
V = TypeVar("V")

MAX_DECODERS: Final = 256
"""Compiled decoders that one decoder keeps, the latest used ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixed:
    """Values, and the ids before them."""

    spans: Spans
    """Behind the id; as they were where there is none."""
    ids: Array
    """int64; -1 where the value is null or bad."""
    bad: Array
    why: Why
    """As in Decoded."""

    @classmethod
    def of(cls, spans: Spans) -> "Prefixed":
        sizes = spans.stops - spans.starts
        present = spans.present != 0
        ids = np.full(len(spans), -1, np.int64)
        long = np.flatnonzero(present & (sizes >= PREFIX_BYTES))
        at = spans.starts[long]
        head = spans.source[at[:, None] + np.arange(PREFIX_BYTES)].astype(np.int64)
        number = (head[:, 1] << 24) | (head[:, 2] << 16) | (head[:, 3] << 8) | head[:, 4]
        good = (head[:, 0] == 0) & (number <= MAX_ID)
        ids[long[good]] = number[good]
        bad = np.flatnonzero(present & (ids < 0)).astype(np.int64)

        def why(index: int) -> str:
            row = int(bad[index])
            if sizes[row] < PREFIX_BYTES:
                return f"the value has {sizes[row]} bytes: a schema id and the byte 0 before it have {PREFIX_BYTES}"
            first = int(spans.source[spans.starts[row]])
            if first:
                return f"the value begins with the byte {first}: expected 0 before a schema id"
            return "the schema id before the value is no positive number of 32 bits"

        starts = np.where(ids >= 0, spans.starts + PREFIX_BYTES, spans.starts)
        within = Spans(source=spans.source, starts=starts, stops=spans.stops, present=(ids >= 0).astype(np.uint8))
        return cls(spans=within, ids=ids, bad=bad, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stripped:
    """Values without their prefixes, for a decoder that needs no schema, as that of JSON."""

    values: pa.Array
    """binary; null where the value is null or bad."""
    ids: Array
    bad: Array
    why: Why


def without_prefix(values: pa.Array) -> Stripped:
    """Takes the prefix off each value of a binary array. No registry is asked what is behind the id."""
    spans = Spans.of(values)
    found = Prefixed.of(spans)
    rows = len(values)
    # Prefixes and values as items of their own over the same bytes; every other one is taken.
    ends = np.zeros(2 * rows + 1, np.int32)
    ends[:-1:2], ends[1::2] = spans.starts, found.spans.starts
    ends[2::2] = spans.stops
    both = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(ends), values.buffers()[2]], 0)
    kept = both.take(pa.array(np.arange(1, 2 * rows, 2), mask=found.ids < 0))
    return Stripped(values=kept, ids=found.ids, bad=found.bad, why=found.why)


class SpanDecoder(Protocol):
    """Of values of one schema."""

    def decode_spans(self, spans: Spans) -> Decoded: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaGroup:
    rows: Array
    decoded: Decoded


@dataclass(slots=True)
class Together:
    """Columns of groups of rows, put together."""

    schema: pa.Schema
    rows: int
    groups: list[SchemaGroup]
    wrong: list[tuple[Array, Why]]
    """Rows that are bad for another reason than their decoder's."""

    def decoded(self) -> Decoded:
        wrong = [*self.wrong, *((each.rows[each.decoded.bad], each.decoded.why) for each in self.groups)]
        bad = np.concatenate([rows for rows, _ in wrong]) if wrong else np.empty(0, np.int64)
        owner = np.repeat(np.arange(len(wrong)), [len(rows) for rows, _ in wrong])
        within = np.concatenate([np.arange(len(rows)) for rows, _ in wrong]) if wrong else owner
        order = np.argsort(bad, kind="stable")

        def why(index: int) -> str:
            at = order[index]
            _, reason = wrong[int(owner[at])]
            return reason(int(within[at]))

        return Decoded(
            rows=self.rows, columns=self._columns(), bad=bad[order].astype(np.int64), why=why, unknown=self._unknown()
        )

    def _columns(self) -> Mapping[str, pa.Array]:
        if len(self.groups) == 1 and len(self.groups[0].rows) == self.rows:
            return self.groups[0].decoded.columns
        where = np.full(self.rows, -1, np.int64)
        filled = 0
        for each in self.groups:
            where[each.rows] = filled + np.arange(len(each.rows))
            filled += len(each.rows)
        taken = pa.array(where, mask=where < 0)
        columns = {}
        for field in self.schema:
            parts = [each.decoded.columns[field.name] for each in self.groups]
            columns[field.name] = (pa.concat_arrays(parts) if parts else pa.nulls(0, field.type)).take(taken)
        return columns

    def _unknown(self) -> Mapping[str, UnknownField]:
        found: dict[str, UnknownField] = {}
        for each in self.groups:
            for name, field in each.decoded.unknown.items():
                rows = field.rows + (found[name].rows if name in found else 0)
                found[name] = UnknownField(rows=rows, type=found.get(name, field).type)
        return found


class Latest(Generic[K, V]):
    """The MAX_DECODERS values that were used last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        self._kept[key] = value
        while len(self._kept) > MAX_DECODERS:
            self._kept.popitem(last=False)


def same_reason(reason: str, _index: int) -> str:
    return reason


class RegistryAvroDecoder:
    """Avro values of any schemas of a registry, read as one reader's schema."""

    def __init__(
        self, reader: str | AvroType, lookup: Lookup, names: Sequence[str] | None = None, kernels: Any = None
    ) -> None:
        """``reader`` is the schema of the columns. SchemaError if it has none."""
        self._reader = parse(reader) if isinstance(reader, str) else reader
        self._lookup, self._names, self._kernels = lookup, names, kernels
        types = {each.name: each.type for each in self._reader.fields}
        missing = [name for name in names or () if name not in types]
        if missing:
            raise KeyError(f"the schema has no field {missing[0]!r}; it has {', '.join(types)}")
        self.schema = pa.schema([(name, arrow_type(types[name], name)) for name in (types if names is None else names)])
        self._decoders: Latest[int, SpanDecoder | str] = Latest()

    def __reduce__(self) -> tuple[Any, ...]:
        return RegistryAvroDecoder, (self._reader, self._lookup, self._names)

    def decode(self, values: pa.Array) -> Decoded:
        """Decodes a binary array (32-bit offsets, as records/columns.py makes it; slices too).

        What the lookup raises is raised: then nothing is said of the values.
        """
        prefixed = Prefixed.of(Spans.of(values))
        together = Together(self.schema, len(values), [], [(prefixed.bad, prefixed.why)])
        for number in np.unique(prefixed.ids[prefixed.ids >= 0]).tolist():
            rows = np.flatnonzero(prefixed.ids == number)
            decoder = self._decoder(number)
            if isinstance(decoder, str):
                together.wrong.append((rows, partial(same_reason, decoder)))
            else:
                together.groups.append(SchemaGroup(rows=rows, decoded=decoder.decode_spans(prefixed.spans.rows(rows))))
        return together.decoded()

    def narrowed(self, names: Sequence[str]) -> "RegistryAvroDecoder":
        """One that answers these columns only. KeyError for a name that the schema has not."""
        return RegistryAvroDecoder(self._reader, self._lookup, names, self._kernels)

    def _decoder(self, number: int) -> SpanDecoder | str:
        """Of the values with this id, or why they are bad."""
        kept = self._decoders.get(number)
        if kept is not None:
            return kept
        found = self._lookup(number)
        if found is None:
            return f"the registry knows no schema {number}"  # not kept: it may be registered in a moment
        made: SpanDecoder | str
        try:
            if found.kind != "AVRO":
                raise SchemaError(f"it is of type {found.kind}, expected AVRO")
            written = parse(found.text, [text for _, text in found.references])
            made = AvroDecoder(written, self._reader, self._names, self._kernels)
        except SchemaError as error:
            made = f"schema {number}: {error}"
        self._decoders.put(number, made)
        return made
