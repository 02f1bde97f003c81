"""A writer's schema and a reader's to a program for records/kernels/avro.py, and to the outputs of its slots.

The rules of schema resolution are those of Avro's specification: fields by name or by the reader's alias, numbers
promoted, string and bytes either way, the reader's default where the writer has no such field, an enum's default for
symbols that the reader does not know. Promotion is Arrow's cast of the finished column, so a program reads what was
written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from holdfast.records.kernels import avro as ops
from holdfast.records.kernels import walk
from holdfast.records.typed.avro_schema import AvroField, AvroType, arrow_type, told_type
from holdfast.records.typed.schema_error import SchemaError
from holdfast.records.typed.slots import Constant, Layout, Leaf, ListOutput, Output, StructOutput, UuidLeaf

_LONG_MAX: Final = (1 << 63) - 1
_DAY_MS: Final = 86_400_000
_PROMOTED: Final = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}
_FAMILY: Final = {
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp",
    "local-timestamp-micros": "timestamp",
    "time-millis": "time",
    "time-micros": "time",
    "date": "date",
}


@dataclass(slots=True)
class Program:
    """What a kernel needs, and what is made of what it leaves."""

    layout: Layout = field(default_factory=Layout)
    code: list[list[int]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    """Of each instruction: the field that it reads."""
    tables: list[int] = field(default_factory=list)
    depth: int = 0
    """Of lists in lists."""
    outputs: dict[str, Output] = field(default_factory=dict)
    """By column, in the order of the reader's schema."""
    unknown: dict[str, pa.DataType] = field(default_factory=dict)
    """Fields that are written and not read; nested ones by their path."""

    def emit(self, path: str, op: int, slot: int = -1, a: int = 0, b: int = 0, c: int = 0) -> int:
        """Adds an instruction; answers where it is."""
        self.code.append([op, slot, a, b, c])
        self.paths.append(path)
        return len(self.code) - 1

    @property
    def here(self) -> int:
        return len(self.code)


def compile_program(writer: AvroType, reader: AvroType, names: Sequence[str] | None = None) -> Program:
    """For values of ``writer``, read as ``reader``: two records. With ``names`` these columns of the reader only; what
    is behind the last of them in a value is not looked at, and unknown fields are not counted.

    SchemaError where the values can never be read so.
    """
    compiler = _Compiler(counting=names is None)
    program = compiler.program
    _same_name(writer, reader, "the value")
    wanted = [each for each in reader.fields if names is None or each.name in names]
    whole = compiler.fields(writer, wanted, "", 0, program.outputs, cut=names is not None)
    program.emit("", ops.END, a=int(whole))
    if names is not None:
        program.outputs = {name: program.outputs[name] for name in names}
    return program


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _same_name(writer: AvroType, reader: AvroType, what: str) -> None:
    names = {_short(reader.name), *(_short(alias) for alias in reader.aliases)}
    if _short(writer.name) not in names:
        raise SchemaError(f"{what} is written as {writer.kind} {writer.name} and read as {reader.name}: other names")


@dataclass(slots=True, kw_only=True)
class _Compiler:
    counting: bool
    """Whether unknown fields are counted."""
    program: Program = field(default_factory=Program)
    lists: int = 0
    """How many lists the instruction in hand is inside."""

    def fields(
        self,
        writer: AvroType,
        wanted: Sequence[AvroField],
        path: str,
        level: int,
        outputs: dict[str, Output],
        *,
        cut: bool = False,
    ) -> bool:
        """All fields of a written record. With ``cut`` only up to the last wanted one; answers whether that is all."""
        written = {each.name: each for each in writer.fields}
        takes: dict[str, AvroField] = {}
        for each in wanted:
            found = next((name for name in (each.name, *each.aliases) if name in written), None)
            if found is None:
                outputs[each.name] = _default(each, f"{path}{each.name}", level)
            else:
                takes[found] = each
                outputs[each.name] = Constant(level=level, value=pa.nulls(1))  # keeps the place in their order
        left = len(takes)
        for index, each in enumerate(writer.fields):
            if cut and left == 0:
                return index == len(writer.fields)
            below = f"{path}{each.name}"
            reader = takes.get(each.name)
            if reader is None:
                self.unwanted(each.type, below)
            else:
                left -= 1
                outputs[reader.name] = self.value(each.type, reader.type, below, level)
        return True

    def unwanted(self, node: AvroType, path: str) -> None:
        counter = -1
        if self.counting:
            counter = len(self.program.unknown)
            self.program.unknown[path] = told_type(node, path)
        self.skip(node, path, counter)

    def skip(self, node: AvroType, path: str, counter: int = -1) -> None:
        """Instructions that drop a value, and count it where ``counter`` is not -1 and it is not null."""
        program = self.program
        if node.kind == "union":
            self.branches(node, path, lambda branch: self.skip(branch, path, counter))
            return
        if counter >= 0 and node.kind != "null":
            program.emit(path, ops.COUNT, a=counter)
        match node.kind:
            case "null":
                pass
            case "record":
                for each in node.fields:
                    self.skip(each.type, f"{path}.{each.name}")
            case "array" | "map":
                assert node.items is not None
                start = self.open_list(path, -1, -1)
                if node.kind == "map":
                    program.emit(path, ops.BYTES)
                self.skip(node.items, path)
                self.close_list(start)
            case "enum":
                program.emit(path, ops.ENUM, a=len(node.symbols), b=-1)
            case "fixed":
                program.emit(path, ops.FIXED, a=node.size)
            case "float" | "double":
                program.emit(path, ops.FIXED, a=4 if node.kind == "float" else 8)
            case _:
                plain = {"boolean": ops.BOOLEAN, "int": ops.INT, "long": ops.LONG}
                program.emit(path, plain.get(node.kind, ops.BYTES))

    def branches(self, node: AvroType, path: str, branch: Callable[[AvroType], None]) -> None:
        """A union: for each of its types what ``branch`` emits."""
        program = self.program
        table = len(program.tables)
        program.tables += [0] * len(node.branches)
        program.emit(path, ops.UNION, a=len(node.branches), b=table)
        ends = []
        for index, each in enumerate(node.branches):
            program.tables[table + index] = program.here
            branch(each)
            ends.append(program.emit(path, ops.JUMP))
        for end in ends:
            program.code[end][ops.A] = program.here

    def open_list(self, path: str, slot: int, child: int) -> int:
        start = self.program.emit(path, ops.LIST, slot, child, self.lists)
        self.lists += 1
        self.program.depth = max(self.program.depth, self.lists)
        return start

    def close_list(self, start: int) -> None:
        _, slot, child, depth, _ = self.program.code[start]
        self.lists -= 1
        self.program.emit(self.program.paths[start], ops.NEXT, slot, child, depth, start + 1)
        self.program.code[start][ops.C] = self.program.here

    def value(self, writer: AvroType, reader: AvroType, path: str, level: int) -> Output:
        """Instructions that read a value of ``writer`` into new slots of a column for ``reader``."""
        kind = arrow_type(reader, path)
        if len(writer.of_union) > 1:
            arrow_type(writer, path)  # raises, with the names
        if not writer.of_union or not reader.of_union:
            if not reader.nullable or writer.of_union:
                raise _never(writer, reader, path)
            self.skip(writer, path)
            return Constant(level=level, value=pa.nulls(1, kind))
        wanted = reader.of_union[0]
        if writer.kind != "union":
            return self.present(writer, wanted, path, level)
        made: list[Output] = []
        first = len(self.program.layout.rows)
        nulls = []

        def branch(each: AvroType) -> None:
            if each.kind != "null":
                made.append(self.present(each, wanted, path, level))
            elif reader.nullable:
                nulls.append(self.program.emit(path, ops.NULL, first, 0, level))
            else:
                self.program.emit(path, ops.FAIL, a=walk.NULL_VALUE)

        self.branches(writer, path, branch)
        for null in nulls:
            self.program.code[null][ops.A] = len(self.program.layout.rows)
        return made[0]

    def present(self, writer: AvroType, reader: AvroType, path: str, level: int) -> Output:
        """As ``value``, of what cannot be null."""
        program, layout, kind = self.program, self.program.layout, arrow_type(reader, path)
        if reader.kind not in _PROMOTED.get(writer.kind, (writer.kind,)):
            raise _never(writer, reader, path)
        match writer.kind:
            case "record":
                _same_name(writer, reader, f"field {path!r}")
                slot = layout.add(level, walk.STRUCT)
                program.emit(path, ops.PRESENT, slot)
                children: dict[str, Output] = {}
                self.fields(writer, reader.fields, f"{path}.", level, children)
                return StructOutput(slot=slot, level=level, type=kind, children=tuple(children.values()))
            case "array" | "map":
                assert writer.items is not None and reader.items is not None
                child = layout.new_level()
                slot = layout.add(level, walk.LIST, child=child)
                start = self.open_list(path, slot, child)
                items: list[Output] = []
                if writer.kind == "map":
                    key = layout.add(child, walk.SIZED)
                    program.emit(f"{path}.key", ops.STRING, key)
                    items.append(Leaf(slot=key, level=child, stored=pa.string(), type=pa.string()))
                below = f"{path}.{'value' if items else 'element'}"
                items.append(self.value(writer.items, reader.items, below, child))
                self.close_list(start)
                return ListOutput(slot=slot, level=level, child=child, type=kind, items=tuple(items))
            case "enum":
                _same_name(writer, reader, f"field {path!r}")
                slot = layout.add(level, walk.WORD)
                other = -1 if reader.default_symbol is None else reader.symbols.index(reader.default_symbol)
                table = len(program.tables)
                numbers = {symbol: number for number, symbol in enumerate(reader.symbols)}
                program.tables += [numbers.get(symbol, other) for symbol in writer.symbols]
                program.emit(path, ops.ENUM, slot, len(writer.symbols), table)
                names = pa.array(reader.symbols, pa.string())
                return Leaf(slot=slot, level=level, stored=pa.int32(), type=kind, names=names)
            case "bytes" | "fixed" | "string":
                return self.bytes(writer, reader, path, level)
            case _:
                return self.number(writer, reader, path, level)

    def bytes(self, writer: AvroType, reader: AvroType, path: str, level: int) -> Output:
        program, layout, kind = self.program, self.program.layout, arrow_type(reader, path)
        if writer.kind == "fixed":
            _same_name(writer, reader, f"field {path!r}")
            if writer.size != reader.size:
                raise _never(writer, reader, path)
        if reader.logical == "decimal":
            digits = (writer.precision, writer.scale)
            if writer.kind == "string" or (writer.logical and digits != (reader.precision, reader.scale)):
                raise _never(writer, reader, path)
            slot = layout.add(level, walk.FIXED, width=16)
            size = writer.size if writer.kind == "fixed" else -1
            program.emit(path, ops.DECIMAL, slot, reader.precision, size)
            return Leaf(slot=slot, level=level, stored=kind, type=kind)
        if writer.kind == "fixed":
            slot = layout.add(level, walk.FIXED, width=writer.size)
            program.emit(path, ops.FIXED, slot, writer.size)
            if reader.logical == "uuid":
                return UuidLeaf(slot=slot, level=level)
            return Leaf(slot=slot, level=level, stored=kind, type=kind)
        slot = layout.add(level, walk.SIZED)
        program.emit(path, ops.STRING if reader.kind == "string" else ops.BYTES, slot)
        return Leaf(slot=slot, level=level, stored=kind, type=kind)

    def number(self, writer: AvroType, reader: AvroType, path: str, level: int) -> Output:
        program, layout, kind = self.program, self.program.layout, arrow_type(reader, path)
        unit = ""
        if reader.logical in _FAMILY:
            unit = writer.logical or reader.logical
            if _FAMILY.get(unit) != _FAMILY[reader.logical]:
                raise _never(writer, reader, path)
        slot_kind, stored, op, a, b, c = _numbers(writer.kind, unit)
        slot = layout.add(level, slot_kind)
        program.emit(path, op, slot, a, b, c)
        return Leaf(slot=slot, level=level, stored=kind if unit else stored, type=kind)


def _numbers(kind: str, unit: str) -> tuple[int, pa.DataType, int, int, int, int]:
    """How a number is read: kind of its slot, its type there, instruction, A, B, C."""
    match unit:
        case "timestamp-millis" | "local-timestamp-millis":
            most = _LONG_MAX // 1000 if kind == "long" else (1 << 31) - 1
            return walk.LONG, pa.int64(), ops.SCALED, 1000, most, -most
        case "time-millis":
            return walk.LONG, pa.int64(), ops.SCALED, 1000, _DAY_MS - 1, 0
        case "time-micros":
            return walk.LONG, pa.int64(), ops.SCALED, 1, _DAY_MS * 1000 - 1, 0
        case "timestamp-micros" | "local-timestamp-micros":
            return walk.LONG, pa.int64(), ops.LONG, 0, 0, 0
    match kind:
        case "boolean":
            return walk.BYTE, pa.bool_(), ops.BOOLEAN, 0, 0, 0
        case "int":
            return walk.WORD, pa.int32(), ops.INT, 0, 0, 0
        case "long":
            return walk.LONG, pa.int64(), ops.LONG, 0, 0, 0
        case "float":
            return walk.WORD, pa.float32(), ops.FIXED, 4, 0, 0
        case _:
            return walk.LONG, pa.float64(), ops.FIXED, 8, 0, 0


def _never(writer: AvroType, reader: AvroType, path: str) -> SchemaError:
    return SchemaError(f"field {path!r} is written as {_words(writer)} and read as {_words(reader)}: that cannot be")


def _words(node: AvroType) -> str:
    if node.kind == "union":
        return "union of " + ", ".join(_words(branch) for branch in node.branches)
    if node.logical == "decimal":
        return f"decimal({node.precision}, {node.scale}) in {node.kind}"
    size = f" of {node.size} bytes" if node.kind == "fixed" else ""
    return (node.logical and f"{node.logical} in ") + node.kind + size


def _default(each: AvroField, path: str, level: int) -> Output:
    if not each.has_default:
        raise SchemaError(f"field {path!r} is not in what was written, and the reader's schema has no default for it")
    kind = arrow_type(each.type, path)
    try:
        return Constant(level=level, value=pa.array([_literal(each.type, each.default)], kind))
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, pa.ArrowException) as error:
        raise SchemaError(f"field {path!r} has the default {each.default!r}, which is no {kind}: {error}") from None


def _literal(node: AvroType, value: Any) -> Any:
    """A default as the schema's JSON has it, as pyarrow takes it."""
    if node.kind in ("union", "null"):
        if value is None and node.nullable:
            return None
        return _literal(node.of_union[0], value)
    match node.kind:
        case "record":
            given = {each.name: value.get(each.name, each.default) for each in node.fields}
            missing = [each.name for each in node.fields if each.name not in value and not each.has_default]
            if missing:
                raise ValueError(f"nothing for {missing[0]}")
            return {each.name: _literal(each.type, given[each.name]) for each in node.fields}
        case "array":
            assert node.items is not None
            return [_literal(node.items, item) for item in value]
        case "map":
            assert node.items is not None
            return [(key, _literal(node.items, item)) for key, item in value.items()]
        case "bytes" | "fixed":
            raw = bytes(value.encode("latin-1"))
            if node.kind == "fixed" and len(raw) != node.size:
                raise ValueError(f"it has {len(raw)} bytes")
            if node.logical == "decimal":
                number = int.from_bytes(raw, "big", signed=True)
                return Decimal((number < 0, tuple(map(int, str(abs(number)))), -node.scale))
            return str(UUID(bytes=raw)) if node.logical == "uuid" else raw
        case "enum":
            if value not in node.symbols:
                raise ValueError("it is none of its symbols")
        case "int" | "long":
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError("expected a whole number")
            return value * 1000 if node.logical.endswith("-millis") else value
        case "float" | "double":
            return float(value)
        case "string" if not isinstance(value, str):
            raise TypeError("expected text")
        case "boolean" if not isinstance(value, bool):
            raise TypeError("expected true or false")
    return value
