"""Values behind a schema registry's prefix as a page shows them, with a registry that is served over real HTTP."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from holdfast.console.record_text import LIST_BYTES, shown_bytes
from holdfast.console.registered_values import (
    AGAIN_S,
    ASKED_AT_ONCE,
    MOST_BYTES,
    MOST_SCHEMAS,
    RegisteredValues,
    refuse_unbounded,
)
from holdfast.records.typed.schema_error import SchemaError
from holdfast.registry.client import SchemaRegistry
from tests.unit.registry.registry_server import Registered, serving

ORDER: dict[str, Any] = {
    "type": "record", "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "who", "type": ["null", "shop.Person"]},
    ],
}  # fmt: skip
PERSON: dict[str, Any] = {"type": "record", "name": "shop.Person", "fields": [{"name": "name", "type": "string"}]}
TREE: dict[str, Any] = {
    "type": "record", "name": "Tree", "fields": [{"name": "below", "type": {"type": "array", "items": "Tree"}}]
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[Registered]:
    with serving() as registered:
        registered.register(1, "person", json.dumps(PERSON))
        reference = {"name": "shop.Person", "subject": "person", "version": 1}
        registered.register(2, "orders", json.dumps(ORDER), references=[reference])
        registered.register(3, "proto", "text", schemaType="PROTOBUF", serialized=proto())
        registered.register(4, "json", "{}", schemaType="JSON")
        registered.register(5, "tree", json.dumps(TREE))
        registered.register(6, "odd", "{", schemaType="AVRO")
        registered.register(7, "xml", "<a/>", schemaType="XML")
        yield registered


def proto() -> str:
    file = descriptor_pb2.FileDescriptorProto(package="shop", syntax="proto3")
    for name in ("First", "Second"):
        message = file.message_type.add(name=name)
        message.field.add(
            name=f"{name.lower()}_id", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64, label=1
        )
    return base64.b64encode(file.SerializeToString()).decode()


def framed(number: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + data


def avro(*schemas: dict[str, Any], value: Any) -> bytes:
    named: dict[str, Any] = {}
    parsed: Any = None
    for each in schemas:
        parsed = fastavro.parse_schema(each, named_schemas=named)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, value)
    return out.getvalue()


def shown(values: RegisteredValues, data: bytes) -> tuple[str, str, str]:
    asyncio.run(values.learn([data, None, b"plain"]))
    found = shown_bytes(data, "auto", LIST_BYTES, values.text_of)
    return found.text, found.form, found.note


def test_avro_protobuf_and_json_are_shown_by_their_schema(server: Registered) -> None:
    values = RegisteredValues(SchemaRegistry(server.url).by_id)
    row = {"id": 7, "at": 1_700_000_000_123, "raw": b"\xff\x00", "who": {"name": "é"}}
    text, form, note = shown(values, framed(2, avro(PERSON, ORDER, value=row)))
    assert (form, note) == ("avro", "schema 2")
    assert json.loads(text) == {"id": 7, "at": "2023-11-14T22:13:20.123000+00:00", "raw": "/wA=", "who": {"name": "é"}}
    assert shown(values, framed(3, b"\x00\x08\x05")) == ('{\n  "first_id": "5"\n}', "protobuf", "schema 3")
    assert shown(values, framed(3, b"\x02\x02\x08\x05")) == ('{\n  "second_id": "5"\n}', "protobuf", "schema 3")
    assert shown(values, framed(4, b'{"a":1}')) == ('{\n  "a": 1\n}', "json", "schema 4")
    asked = len(server.asked)
    shown(values, framed(4, b'{"a":2}'))
    assert len(server.asked) == asked, "what is known is not asked again"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (framed(99, b"x"), "the registry has no such schema"),
        (framed(1, b"\xff"), "it cannot be read so"),
        (framed(1, b"\x02ax"), "1 bytes are left over"),
        (framed(3, b"\x02"), "there are no message indexes"),
        (framed(3, b"\x02\x20\x08\x05"), "no message with the index 16"),
        (framed(4, b"{"), "it cannot be read so"),
        (framed(5, b"\x02" * 100_000), "Tree refers to itself"),
        (framed(6, b"\x00"), "Expecting property name"),
        (framed(7, b"\x00"), "schemas of type XML are not known"),
        (framed(1, b"\x00" * MOST_BYTES), "larger than 256 KiB"),
    ],
)
def test_what_cannot_be_decoded_is_shown_as_it_is_with_the_reason(server: Registered, data: bytes, why: str) -> None:
    text, form, note = shown(RegisteredValues(SchemaRegistry(server.url).by_id), data)
    assert form == "hex"
    assert text.startswith("00000000  00 00 00 00")
    assert why in note


@pytest.mark.parametrize("data", [b"", b"\x00\x00", b"text", b"\x00\xff\xff\xff\xff.", b'{"a":1}'])
def test_what_has_no_prefix_is_nobody_s_value(data: bytes) -> None:
    def lookup(number: int) -> None:
        raise AssertionError(f"asked for {number}")

    assert shown(RegisteredValues(lookup), data)[2] == ""


def test_a_registry_that_does_not_answer_is_asked_again_later(server: Registered) -> None:
    now = [100.0]
    values = RegisteredValues(SchemaRegistry(server.url).by_id, now_s=lambda: now[0])
    data = framed(1, avro(PERSON, value={"name": "x"}))
    server.authorization = "Bearer other"
    assert "401" in shown(values, data)[2]
    server.authorization = None
    assert "401" in shown(values, data)[2]
    now[0] += AGAIN_S + 1
    assert shown(values, data)[1:] == ("avro", "schema 1")


def test_what_is_asked_for_and_remembered_has_a_limit() -> None:
    asked: list[int] = []

    def lookup(number: int) -> None:
        asked.append(number)

    values = RegisteredValues(lookup)
    for first in range(0, 2 * MOST_SCHEMAS, 40):
        asyncio.run(values.learn([framed(first + n, b"x") for n in range(40)]))
        assert len(asked) <= ASKED_AT_ONCE * (first // 40 + 1)
    assert len(values._known) <= MOST_SCHEMAS
    assert len(values._again_s) <= MOST_SCHEMAS


@pytest.mark.parametrize(
    ("schema", "refused"),
    [
        (ORDER["fields"][1]["type"], False),
        ({"type": "array", "items": "null"}, True),
        ({"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}, True),
        ({"type": "array", "items": {"type": "fixed", "name": "None", "size": 0}}, True),
        ({"type": "array", "items": ["null", "int"]}, False),
        ({"type": "map", "values": "null"}, False),
        ({"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["a"]}}, False),
        ({"type": "array", "items": {"type": "record", "name": "Two", "fields": [
            {"name": "a", "type": "null"}, {"name": "b", "type": "boolean"}]}}, False),
        (TREE, True),
    ],
)  # fmt: skip
def test_a_schema_whose_values_could_be_without_end_is_refused(schema: dict[str, Any], refused: bool) -> None:
    named: dict[str, Any] = {}
    parsed = fastavro.parse_schema(schema, named_schemas=named)
    if refused:
        with pytest.raises(SchemaError, match="not decoded here"):
            refuse_unbounded(parsed, named)
    else:
        refuse_unbounded(parsed, named)
