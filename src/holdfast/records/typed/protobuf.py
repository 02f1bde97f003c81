"""Protobuf messages to typed Arrow columns, in bulk.

    decoder = ProtobufDecoder.parse(Path("orders.desc").read_bytes(), "shop.Order")
    decoder.decode(columns.arrays["value"])        Decoded: a column for each field of the message

Types: protobuf_schema.py. A field that tells whether it is there (optional, a message, of a oneof, proto2's) is null
where it is not; of others what is not there is their default, 0 or empty. Behind a registry's prefix:
confluent_protobuf.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.records.kernels import protobuf as ops
from holdfast.records.kernels import walk
from holdfast.records.typed import protobuf_schema as types
from holdfast.records.typed.decoding import Decoded, UnknownField
from holdfast.records.typed.filling import decoded, fill
from holdfast.records.typed.protobuf_files import Descriptor
from holdfast.records.typed.protobuf_schema import Field, message_of, set_of
from holdfast.records.typed.schema_error import SchemaError
from holdfast.records.typed.slots import Filled, Layout, Leaf, ListOutput, Output, StructOutput
from holdfast.records.typed.spans import Spans

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

MAX_UNKNOWN: Final = 64
"""Different unknown fields that are counted in one batch; the first ones that come."""
_BY_WIRE: Final = {ops.VARINT: pa.int64(), ops.I64: pa.int64(), ops.I32: pa.int32()}

# How a type is read: instruction, wire type, kind of slot, what its buffers are.
_READ: Final = {
    types.DOUBLE: (ops.COPY8, ops.I64, walk.LONG, pa.float64()),
    types.FLOAT: (ops.COPY4, ops.I32, walk.WORD, pa.float32()),
    types.INT64: (ops.INT64, ops.VARINT, walk.LONG, pa.int64()),
    types.UINT64: (ops.INT64, ops.VARINT, walk.LONG, pa.uint64()),
    types.INT32: (ops.INT32, ops.VARINT, walk.WORD, pa.int32()),
    types.FIXED64: (ops.COPY8, ops.I64, walk.LONG, pa.uint64()),
    types.FIXED32: (ops.FIXED32, ops.I32, walk.LONG, pa.int64()),
    types.BOOL: (ops.BOOL, ops.VARINT, walk.BYTE, pa.bool_()),
    types.STRING: (ops.STRING, ops.LEN, walk.SIZED, pa.string()),
    types.BYTES: (ops.BYTES, ops.LEN, walk.SIZED, pa.binary()),
    types.UINT32: (ops.UINT32, ops.VARINT, walk.LONG, pa.int64()),
    types.ENUM: (ops.INT32, ops.VARINT, walk.WORD, pa.int32()),
    types.SFIXED32: (ops.COPY4, ops.I32, walk.WORD, pa.int32()),
    types.SFIXED64: (ops.COPY8, ops.I64, walk.LONG, pa.int64()),
    types.SINT32: (ops.SINT32, ops.VARINT, walk.WORD, pa.int32()),
    types.SINT64: (ops.SINT64, ops.VARINT, walk.LONG, pa.int64()),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumLeaf:
    """Numbers as the names of their values; a number without a name is its digits."""

    slot: int
    level: int
    names: Mapping[int, str]
    type: pa.DataType = field(default_factory=pa.string)

    def array(self, filled: Filled) -> pa.Array:
        items = int(filled.counts[self.level])
        valid, nulls = filled.arena.valid(self.slot, items)
        numbers = filled.arena.data(self.slot, items).view(np.int32)
        seen, index = np.unique(numbers, return_inverse=True)
        texts = pa.array([self.names.get(number, str(number)) for number in seen.tolist()], pa.string())
        buffers = [valid, pa.py_buffer(index.astype(np.int32))]
        return texts.take(pa.Array.from_buffers(pa.int32(), items, buffers, nulls))


@dataclass(slots=True)
class _Tables:
    """What the kernel goes by, and the outputs of its slots."""

    layout: Layout = field(default_factory=Layout)
    nodes: list[list[int]] = field(default_factory=list)
    fields: list[list[int]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    """Of each field."""
    places: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    """Of each node: its path, and the numbers of the fields that lead to it."""
    depth: int = 0

    def node(
        self,
        message: Descriptor,
        level: int,
        first: int,
        place: tuple[str, tuple[int, ...]],
        names: set[str] | None = None,
    ) -> tuple[int, dict[str, Output]]:
        """A message whose fields are of ``level``; its item begins at slot ``first``. With ``names`` only these of its
        fields have slots. Answers its number and the outputs of its fields."""
        path, way = place
        self.depth = max(self.depth, len(way))
        number = len(self.nodes)
        self.nodes.append([0] * ops.NODE_FIELDS)
        self.places.append(place)
        ordered = sorted(message.fields, key=lambda each: each.number)
        base = len(self.fields)
        self.fields += [[0] * ops.FIELD_FIELDS for _ in ordered]
        self.paths += [f"{path}{each.name}" for each in ordered]
        outputs: dict[str, Output] = {}
        spans: dict[str, tuple[int, int]] = {}
        for at, each in enumerate(ordered, base):
            if names is not None and each.name not in names:
                self.fields[at] = [each.number, ops.DROP, 0, -1, -1, -1, -1, 0, 0]
                continue
            start = len(self.layout.rows)
            outputs[each.name] = self._field(at, each, level, (f"{path}{each.name}", (*way, each.number)))
            spans[each.name] = (start, len(self.layout.rows))
        for at, each in enumerate(ordered, base):
            if each.name in spans and each.containing_oneof is not None:
                self.fields[at][ops.ONEOF_FROM] = len(self.numbers)
                for other in each.containing_oneof.fields:
                    if other.number != each.number and other.name in spans:
                        self.numbers += spans[other.name]
                self.fields[at][ops.ONEOF_TO] = len(self.numbers)
        required = [spans[each.name][0] for each in ordered if each.is_required and each.name in spans]
        self.numbers += required
        self.nodes[number] = [
            base, base + len(ordered), first, len(self.layout.rows), level,
            len(self.numbers) - len(required), len(self.numbers),
        ]  # fmt: skip
        return number, {each.name: outputs[each.name] for each in message.fields if each.name in outputs}

    def _field(self, at: int, each: Field, level: int, place: tuple[str, tuple[int, ...]]) -> Output:
        """Slots and the row of one field."""
        path, way = place
        listed, child = -1, level
        if each.is_repeated:
            child = self.layout.new_level()
            listed = self.layout.add(level, walk.LIST, child=child, first=1)
        first = int(each.is_repeated or not each.has_presence or _is_map_value(each))
        kind = types.field_type(each, path)
        node, op, wire = -1, ops.MESSAGE, ops.LEN
        items: tuple[Output, ...]
        if types.is_map(each):
            slot = -1
            node, inner = self.node(each.message_type, child, len(self.layout.rows), (f"{path}.", way))
            items = (inner["key"], inner["value"])
        elif each.type == types.MESSAGE and each.message_type.full_name != types.TIMESTAMP:
            slot = self.layout.add(child, walk.STRUCT, first=first)
            node, inner = self.node(each.message_type, child, slot, (f"{path}.", way))
            one = types.value_type(each, path)
            items = (StructOutput(slot=slot, level=child, type=one, children=tuple(inner.values())),)
        elif each.type == types.MESSAGE:
            op, slot = ops.TIMESTAMP, self.layout.add(child, walk.LONG, first=first)
            items = (Leaf(slot=slot, level=child, stored=types.UTC, type=types.UTC),)
        else:
            op, wire, slot_kind, stored = _READ[each.type]
            slot = self.layout.add(child, slot_kind, first=first)
            if each.type == types.ENUM:
                names = {value.number: value.name for value in reversed(list(each.enum_type.values))}
                items = (EnumLeaf(slot=slot, level=child, names=names),)
            else:
                items = (Leaf(slot=slot, level=child, stored=stored, type=types.value_type(each, path)),)
        self.fields[at] = [each.number, op, wire, slot, node, listed, child, 0, 0]
        if listed >= 0:
            return ListOutput(slot=listed, level=level, child=child, type=kind, items=items)
        return items[0]


def _is_map_value(each: Field) -> bool:
    return bool(each.containing_type is not None and each.containing_type.GetOptions().map_entry)


def _again(descriptor_set: bytes, message: str, names: Sequence[str] | None) -> "ProtobufDecoder":
    return ProtobufDecoder(message_of(descriptor_set, message), names)


class ProtobufDecoder:
    """Of values of one message. Pure; may be used by several threads at once."""

    def __init__(self, message: Descriptor, names: Sequence[str] | None = None, kernels: Any = None) -> None:
        """``message``: see protobuf_schema.py, which has checked it."""
        if kernels is None:
            from holdfast.records.kernels import protobuf as kernels
        self.message, self._names, self._kernels = message, names, kernels
        self._tables = tables = _Tables()
        _, outputs = tables.node(message, 0, 0, ("", ()), None if names is None else set(names))
        self._outputs = outputs if names is None else {name: outputs[name] for name in names}
        self.schema = pa.schema([(name, output.type) for name, output in self._outputs.items()])
        self._arrays = [
            np.array(table or [0], np.int64).reshape(-1) for table in (tables.nodes, tables.fields, tables.numbers)
        ]

    @classmethod
    def parse(cls, descriptor_set: bytes, message: str, kernels: Any = None) -> "ProtobufDecoder":
        """Of a message by its full name in a compiled descriptor set. SchemaError if it is not there or has no
        columns."""
        return cls(message_of(descriptor_set, message), kernels=kernels)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (set_of(self.message), self.message.full_name, self._names)

    def decode(self, values: pa.Array) -> Decoded:
        """Decodes a binary array (32-bit offsets, as records/columns.py makes it; slices too)."""
        return self.decode_spans(Spans.of(values))

    def decode_spans(self, spans: Spans, writer: Descriptor | None = None) -> Decoded:
        """``writer``, if it is known, gives names and types to what is not in our message."""
        tables, view = self._tables, self._kernels.as_target
        stack = view(np.zeros(ops.FRAME_FIELDS * (tables.depth + 1), np.int64))
        groups = view(np.zeros(ops.MAX_GROUPS, np.int64))
        fixed = [view(each) for each in self._arrays]

        def call(source: Any, starts: Any, stops: Any, present: Any, *filled: Any) -> int:
            done: int = self._kernels.decode_messages(source, starts, stops, present, *fixed, stack, groups, *filled)
            return done

        counters = np.tile(np.array([0, 0, 0, 0, -1], np.int64), MAX_UNKNOWN if self._names is None else 0)
        run = fill(tables.layout, spans, self._kernels, counters, call)
        unknown = {}
        for node, number, wire, rows, _ in run.unknown.reshape(-1, ops.UNKNOWN_FIELDS).tolist():
            if rows > 0:
                name, kind = self._unknown(node, number, wire, writer)
                unknown[name] = UnknownField(rows=rows, type=kind)
        return decoded(run, self._outputs, self._path, unknown)

    def narrowed(self, names: Sequence[str]) -> "ProtobufDecoder":
        """One that answers these columns only; other fields are skipped by their length, and unknown ones are not
        counted. KeyError for a name that the message has not."""
        known = [each.name for each in self.message.fields]
        missing = [name for name in names if name not in known]
        if missing:
            raise KeyError(f"the message has no field {missing[0]!r}; it has {', '.join(known)}")
        return ProtobufDecoder(self.message, names, self._kernels)

    def _path(self, place: int) -> str:
        return self._tables.paths[place] if place >= 0 else self._tables.places[-1 - place][0].rstrip(".")

    def _unknown(self, node: int, number: int, wire: int, writer: Descriptor | None) -> tuple[str, pa.DataType]:
        path, way = self._tables.places[node]
        for step in way:
            inner = writer.fields_by_number.get(step) if writer is not None else None
            writer = inner.message_type if inner is not None else None
        found = writer.fields_by_number.get(number) if writer is not None else None
        if found is None:
            return f"{path}field {number}", _BY_WIRE.get(wire, pa.binary())
        try:
            types.check(writer)
            return f"{path}{found.name}", types.field_type(found, found.name)
        except SchemaError:
            return f"{path}{found.name}", pa.binary()
