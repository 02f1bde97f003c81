"""Avro schemas: the JSON text read into nodes, names resolved, and what Arrow type each is.

Recursive schemas, unions of more than one type beside null (where a column is wanted of them) and arrays whose items
may take no bytes are refused, by name: no column can hold the first, and the last lets a value of ten bytes say that it
has 2^60 items.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from holdfast.records.typed.schema_error import SchemaError

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
UTC: Final = pa.timestamp("us", tz="UTC")
LOCAL: Final = pa.timestamp("us")
MAX_PRECISION: Final = 38
MAX_DEPTH: Final = 64
MAX_TYPES: Final = 10_000
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): UTC,
    ("long", "timestamp-micros"): UTC,
    ("long", "local-timestamp-millis"): LOCAL,
    ("long", "local-timestamp-micros"): LOCAL,
    ("string", "uuid"): pa.string(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroField:
    name: str
    type: "AvroType"
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None
    """As the schema's JSON has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroType:
    """A node of a schema."""

    kind: str
    """A primitive type, or fixed, enum, array, map, record, union."""
    name: str = ""
    """With its namespace."""
    aliases: tuple[str, ...] = ()
    logical: str = ""
    """Empty too where a reader has to take it for its plain type, as the specification says of unknown ones."""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    items: "AvroType | None" = None
    """Of an array, or a map's values."""
    fields: tuple[AvroField, ...] = ()
    branches: "tuple[AvroType, ...]" = ()

    @property
    def least_bytes(self) -> int:
        """That a value takes; at most 1 is told."""
        match self.kind:
            case "null":
                return 0
            case "fixed":
                return 1
            case "record":
                return max((each.type.least_bytes for each in self.fields), default=0)
            case _:
                return 1

    @property
    def of_union(self) -> "tuple[AvroType, ...]":
        """What the value may be beside null."""
        if self.kind != "union":
            return () if self.kind == "null" else (self,)
        return tuple(branch for branch in self.branches if branch.kind != "null")

    @property
    def nullable(self) -> bool:
        return self.kind == "null" or any(branch.kind == "null" for branch in self.branches)


def arrow_type(node: AvroType, path: str) -> pa.DataType:
    """The type of a column. SchemaError for what has none, with the path."""
    match node.kind:
        case "union":
            branches = node.of_union
            if len(branches) > 1:
                kinds = ", ".join(branch.name or branch.kind for branch in branches)
                raise SchemaError(f"field {path!r} is a union of {kinds}: a column is of one type and null")
            return arrow_type(branches[0], path) if branches else pa.null()
        case "record":
            return pa.struct([(each.name, arrow_type(each.type, f"{path}.{each.name}")) for each in node.fields])
        case "array":
            assert node.items is not None
            return pa.list_(pa.field("element", arrow_type(node.items, f"{path}.element")))
        case "map":
            assert node.items is not None
            return pa.map_(pa.string(), arrow_type(node.items, f"{path}.value"))
        case "enum":
            return pa.string()
        case "bytes" | "fixed" if node.logical == "decimal":
            return pa.decimal128(node.precision, node.scale)
        case "fixed":
            return pa.string() if node.logical == "uuid" else pa.binary(node.size)
        case _:
            return _LOGICAL.get((node.kind, node.logical), _PLAIN[node.kind])


def told_type(node: AvroType, path: str) -> pa.DataType:
    """As ``arrow_type``, but for what nobody wants a column of: a union is a dense union."""
    if len(node.of_union) > 1:
        return pa.dense_union([pa.field(b.name or b.kind, told_type(b, path)) for b in node.of_union])
    try:
        return arrow_type(node, path)
    except SchemaError:
        return pa.binary()


def parse(text: str, references: Sequence[str] = ()) -> AvroType:
    """Reads a schema. ``references`` are texts of schemas whose names it uses, each after those that it uses itself.

    What is no record becomes a record with the one field ``value``, which has the same bytes.
    """
    reader = _Reader()
    for reference in references:
        reader.read(_json(reference), "", "", 0)
    node = reader.read(_json(text), "", "", 0)
    _bounded(node)
    if node.kind == "record":
        return node
    return AvroType(kind="record", name="value", fields=(AvroField(name="value", type=node),))


def joined(text: str, references: Sequence[tuple[str, str]]) -> str:
    """A schema as one text: what one of ``references`` (name, text) defines stands where its name is first used.

    SchemaError for what is not JSON.
    """
    left = {name: _json(each) for name, each in references}

    def walk(node: Any, namespace: str) -> Any:
        if isinstance(node, list):
            return [walk(each, namespace) for each in node]
        if isinstance(node, str):
            full = next((name for name in (_full(node, namespace), node) if name in left), None)
            if full is None:
                return node
            found = left.pop(full)
            outside = {"namespace": ""} if isinstance(found, dict) and "." not in str(found.get("name", "")) else {}
            return walk(outside | found, "") if isinstance(found, dict) else found
        if not isinstance(node, dict):
            return node
        if "name" in node and node.get("type") in ("record", "error", "enum", "fixed"):
            namespace = _full(str(node["name"]), node.get("namespace", namespace)).rpartition(".")[0]
        parts = {key: walk(node[key], namespace) for key in ("type", "items", "values") if key in node}
        if isinstance(node.get("fields"), list):
            parts["fields"] = [walk(each, namespace) for each in node["fields"]]
        return node | parts

    return json.dumps(walk(_json(text), ""))


def _bounded(root: AvroType) -> None:
    """Refuses what is too large with every name replaced by what it stands for: each layer may double it."""
    known: dict[int, tuple[int, int]] = {}

    def measure(node: AvroType) -> tuple[int, int]:
        if id(node) not in known:
            parts = [*node.branches, *(each.type for each in node.fields), *([node.items] if node.items else [])]
            inner = [measure(part) for part in parts]
            known[id(node)] = 1 + sum(count for count, _ in inner), 1 + max((deep for _, deep in inner), default=0)
        return known[id(node)]

    try:
        count, deep = measure(root)
    except RecursionError:
        count, deep = 0, 1 << 30
    if count > MAX_TYPES or deep > 2 * MAX_DEPTH:
        raise SchemaError(
            f"the schema has {count} types in {deep} levels: expected at most {MAX_TYPES}, {2 * MAX_DEPTH}"
        )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        stripped = text.strip()
        if _NAME.fullmatch(stripped):  # a bare name, as some tools write it
            return stripped
        raise SchemaError(f"the schema is not JSON: {error}") from None
    except RecursionError:
        raise SchemaError("the schema is nested too deep") from None


@dataclass(slots=True)
class _Reader:
    named: dict[str, AvroType | None] = field(default_factory=dict)
    """By full name; None while it is being read."""

    def read(self, node: Any, namespace: str, path: str, depth: int) -> AvroType:
        if depth > MAX_DEPTH:
            raise SchemaError(f"field {path!r} is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, str):
            return self._by_name(node, namespace, path)
        if isinstance(node, list):
            return self._union(node, namespace, path, depth)
        if not isinstance(node, dict) or "type" not in node:
            raise SchemaError(f"{_at(path)} is {json.dumps(node)[:80]}: expected a type")
        kind = node["type"]
        match kind:
            case "record" | "error" | "enum" | "fixed":
                return self._named(node, namespace, path, depth)
            case "array" | "map":
                inner = "items" if kind == "array" else "values"
                below = "element" if kind == "array" else "value"
                if inner not in node:
                    raise SchemaError(f"{_at(path)} is of type {kind}: expected {inner!r} in it")
                items = self.read(node[inner], namespace, f"{path}.{below}", depth + 1)
                if kind == "array" and items.least_bytes == 0:
                    raise SchemaError(f"{_at(path)} is an array whose items take no bytes: their number has no bound")
                return AvroType(kind=kind, items=items)
            case str() if kind in PRIMITIVES:
                return AvroType(kind=kind, **_logical(node, kind, 0, path))
            case _:  # a type in a type
                return self.read(kind, namespace, path, depth + 1)

    def _by_name(self, name: str, namespace: str, path: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(kind=name)
        for full in (_full(name, namespace), name):
            if full in self.named:
                found = self.named[full]
                if found is None:
                    raise SchemaError(f"{_at(path)} is of type {full}, which it is part of: recursion has no column")
                return found
        raise SchemaError(f"{_at(path)} is of type {name!r}, which is nowhere defined")

    def _union(self, node: list[Any], namespace: str, path: str, depth: int) -> AvroType:
        branches = tuple(self.read(branch, namespace, path, depth + 1) for branch in node)
        seen = [branch.name or branch.kind for branch in branches]
        twice = [kind for kind in seen if seen.count(kind) > 1]
        if twice or "union" in seen or not branches:
            raise SchemaError(f"{_at(path)} is a union of {', '.join(seen) or 'nothing'}: expected different types")
        return AvroType(kind="union", branches=branches)

    def _named(self, node: Mapping[str, Any], namespace: str, path: str, depth: int) -> AvroType:
        kind, name = node["type"], node.get("name")
        if not isinstance(name, str) or not all(_NAME.fullmatch(part) for part in name.split(".")):
            raise SchemaError(f"{_at(path)}: a {kind} has the name {name!r}: expected letters, digits and _")
        full = _full(name, node.get("namespace", namespace))
        if full in self.named:
            raise SchemaError(f"{_at(path)} defines {full}, which is defined already")
        inner = full.rpartition(".")[0]
        aliases = tuple(_full(alias, inner) for alias in node.get("aliases", ()))
        if kind == "fixed":
            size = node.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 1 << 31:
                raise SchemaError(f"{_at(path)}: fixed {full} has the size {size!r}: expected 1 or more")
            made = AvroType(kind=kind, name=full, aliases=aliases, size=size, **_logical(node, kind, size, path))
        elif kind == "enum":
            symbols, default = node.get("symbols"), node.get("default")
            if not isinstance(symbols, list) or not symbols or len(set(map(str, symbols))) != len(symbols):
                raise SchemaError(f"{_at(path)}: enum {full} has the symbols {symbols!r}: expected different names")
            if default is not None and default not in symbols:
                raise SchemaError(f"{_at(path)}: enum {full} has the default {default!r}, which is none of its symbols")
            made = AvroType(
                kind=kind, name=full, aliases=aliases, symbols=tuple(map(str, symbols)), default_symbol=default
            )
        else:
            self.named[full] = None
            made = AvroType(kind="record", name=full, aliases=aliases, fields=self._fields(node, inner, path, depth))
        self.named[full] = made
        return made

    def _fields(self, node: Mapping[str, Any], namespace: str, path: str, depth: int) -> tuple[AvroField, ...]:
        fields: dict[str, AvroField] = {}
        listed = node.get("fields")
        if not isinstance(listed, list):
            raise SchemaError(f"{_at(path)}: record {node['name']} has no list of fields")
        for each in listed:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or "type" not in each:
                raise SchemaError(f"{_at(path)}: {json.dumps(each)[:80]} is no field with a name and a type")
            if name in fields:
                raise SchemaError(f"{_at(path)}: field {name!r} is there twice")
            below = f"{path}.{name}" if path else name
            fields[name] = AvroField(
                name=name,
                type=self.read(each["type"], namespace, below, depth + 1),
                aliases=tuple(each.get("aliases", ())),
                has_default="default" in each,
                default=each.get("default"),
            )
        return tuple(fields.values())


def _at(path: str) -> str:
    return f"field {path!r}" if path else "the schema"


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _logical(node: Mapping[str, Any], kind: str, size: int, path: str) -> dict[str, Any]:
    """What a logical type says. One that is unknown or not well formed is none, as the specification says; a decimal
    with more digits than a column holds is refused, since its exact value would be lost."""
    logical = node.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
            return {}
        if precision > MAX_PRECISION:
            raise SchemaError(f"{_at(path)} is a decimal of {precision} digits: a column holds {MAX_PRECISION}")
        return {"logical": "decimal", "precision": precision, "scale": scale}
    if (kind, logical) in _LOGICAL or (kind == "fixed" and logical == "uuid" and size == 16):
        return {"logical": logical}
    return {}
