"""Values behind a schema registry's prefix as JSON, for people: Avro by fastavro, Protobuf by its own library.

A registry is asked apart from decoding, off the loop: ``learn`` before records are shown, ``text_of`` while they are.
What a value cannot be decoded for is told beside its bytes. Nothing that a value says can cost more than its size: a
schema that refers to itself, or has arrays of items without a byte, is refused.
"""

import asyncio
import base64
import datetime
import decimal
import io
import json
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from holdfast.records.typed.protobuf_files import library, registered_message
from holdfast.records.typed.registered import PREFIX_BYTES, Lookup, RegisteredSchema
from holdfast.records.typed.schema_error import SchemaError

MOST_SCHEMAS: Final = 256
"""That are kept ready, the latest used ones."""
ASKED_AT_ONCE: Final = 20
"""Ids that one page asks a registry for, others with the next page."""
AGAIN_S: Final = 10.0
"""A registry that did not answer is not asked for the same id again within that time."""
MOST_BYTES: Final = 256 * 1024
"""A larger value is not decoded."""
MOST_INDEXES: Final = 32

Reader = Callable[[bytes], str]
"""JSON of what stands behind the id; any exception for a value that is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredText:
    """``id`` of its schema, whose ``kind`` is avro, protobuf or json. ``text``: JSON; where there is none, ``trouble``
    says why."""

    id: int
    kind: str = ""
    text: str | None = None
    trouble: str = ""


class RegisteredValues:
    """Of one registry. ``learn`` on the loop; ``text_of`` on any thread."""

    def __init__(self, lookup: Lookup, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._lookup, self._now_s = lookup, now_s
        self._known: OrderedDict[int, tuple[str, Reader] | str] = OrderedDict()
        """Kind and reader by id, or why there is none."""
        self._again_s: dict[int, float] = {}

    async def learn(self, values: Iterable[bytes | None]) -> None:
        """Asks the registry for the schemas of these values that are not known."""
        wanted = list(dict.fromkeys(number for each in values if (number := id_of(each)) is not None))
        now_s = self._now_s()
        missing = [n for n in wanted if n not in self._known or self._again_s.get(n, now_s + 1) <= now_s]
        for number in missing[:ASKED_AT_ONCE]:
            self._known[number] = await asyncio.to_thread(self._learned, number)
            if isinstance(self._known[number], str):
                self._again_s[number] = self._now_s() + AGAIN_S
            else:
                self._again_s.pop(number, None)
        for number in wanted:
            if number in self._known:
                self._known.move_to_end(number)
        while len(self._known) > MOST_SCHEMAS:
            self._again_s.pop(self._known.popitem(last=False)[0], None)

    def _learned(self, number: int) -> tuple[str, Reader] | str:
        try:
            found = self._lookup(number)
            if found is None:
                return "the registry has no such schema"
            return found.kind.lower(), reader_of(found)
        except Exception as e:  # of the registry, or of a library that cannot take the schema: it is told on the page
            return str(e) or type(e).__name__

    def text_of(self, data: bytes) -> RegisteredText | None:
        """None of what has no prefix, and of an id that nobody has asked for."""
        number = id_of(data)
        known = None if number is None else self._known.get(number)
        if number is None or known is None:
            return None
        if isinstance(known, str):
            return RegisteredText(id=number, trouble=known)
        kind, read = known
        if len(data) > MOST_BYTES:
            return RegisteredText(id=number, kind=kind, trouble=f"larger than {MOST_BYTES >> 10} KiB")
        try:
            return RegisteredText(id=number, kind=kind, text=read(data[PREFIX_BYTES:]))
        except Exception as e:  # whatever a library says of bytes that are not what they should be
            return RegisteredText(id=number, kind=kind, trouble=f"it cannot be read so: {e or type(e).__name__}")


def id_of(data: bytes | None) -> int | None:
    """Of the schema, by the prefix; None where there is none."""
    if data is None or len(data) < PREFIX_BYTES or data[0]:
        return None
    number = int.from_bytes(data[1:PREFIX_BYTES], "big", signed=True)
    return number if number >= 0 else None


def reader_of(schema: RegisteredSchema) -> Reader:
    """SchemaError, or what a library says of it."""
    match schema.kind:
        case "AVRO":
            return _avro(schema)
        case "PROTOBUF":
            return _protobuf(schema)
        case "JSON":
            return lambda data: _json(json.loads(data))
    raise SchemaError(f"schemas of type {schema.kind} are not known: expected AVRO, PROTOBUF or JSON")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case datetime.timedelta() | decimal.Decimal() | uuid.UUID():
            return str(value)
    return repr(value)


# -- Avro ----------------------------------------------------------------------------------------------------------


def _avro(schema: RegisteredSchema) -> Reader:
    try:
        fastavro = import_module("fastavro")
    except ImportError as error:
        raise SchemaError(f"Avro needs the package fastavro (pip install 'holdfast[schemas]'): {error}") from None
    named: dict[str, Any] = {}
    for _, text in schema.references:
        fastavro.parse_schema(json.loads(text), named_schemas=named)
    parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    refuse_unbounded(parsed, named)

    def read(data: bytes) -> str:
        source = io.BytesIO(data)
        value = fastavro.schemaless_reader(source, parsed, None)
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes are left over")
        return _json(value)

    return read


def refuse_unbounded(schema: Any, named: Mapping[str, Any]) -> None:
    """SchemaError for an Avro schema, as fastavro parses it, of which few bytes can be a value without end."""

    def least(node: Any, inside: tuple[str, ...]) -> int:
        """How many bytes a value has at least."""
        if isinstance(node, list):
            return 1 + min((least(each, inside) for each in node), default=0)
        if isinstance(node, str):
            if node not in named:
                return 0 if node == "null" else 1
            if node in inside:
                raise SchemaError(f"{node} refers to itself: its values are not decoded here")
            return least(named[node], inside)
        kind = node["type"]
        if kind in ("record", "error"):
            name = str(node.get("name", ""))
            return sum(least(field["type"], (*inside, name)) for field in node["fields"])
        if kind == "fixed":
            return int(node["size"])
        if kind in ("array", "map"):
            if least(node["items" if kind == "array" else "values"], inside) == 0 and kind == "array":
                raise SchemaError("an array of items without a byte: its values are not decoded here")
            return 1
        return least(kind, inside) if kind not in ("enum",) else 1

    least(schema, ())


# -- Protobuf ------------------------------------------------------------------------------------------------------


def _protobuf(schema: RegisteredSchema) -> Reader:
    form, factory = library("json_format"), library("message_factory")
    classes: dict[Sequence[int], Any] = {}

    def read(data: bytes) -> str:
        indexes, start = indexes_of(data)
        if indexes not in classes:
            if len(classes) >= MOST_INDEXES:
                classes.clear()
            message = registered_message(schema.text, schema.references, indexes)
            classes[indexes] = factory.GetMessageClass(message)
        found = classes[indexes]()
        found.ParseFromString(data[start:])
        return str(form.MessageToJson(found, preserving_proto_field_name=True, ensure_ascii=False))

    registered_message(
        schema.text, schema.references, (0,)
    )  # a schema that cannot be is told once, not with each value
    return read


def indexes_of(data: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of the file a value is, and where it begins. ValueError."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= MOST_INDEXES:
        raise ValueError(f"{count} message indexes: expected 1 to {MOST_INDEXES}")
    found = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        found.append(index)
    return tuple(found), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 63:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError("there are no message indexes behind the schema id")
