"""Protobuf messages behind a schema registry's prefix, with a registry that is served over real HTTP."""

import base64
import pickle
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from holdfast.records.typed.confluent_protobuf import RegistryProtobufDecoder
from holdfast.records.typed.protobuf import ProtobufDecoder
from holdfast.registry.client import RegistryError, SchemaRegistry
from tests.unit.records.protobuf_messages import FieldProto, descriptor_set
from tests.unit.registry.registry_server import Registered, serving

ID, NAME, NEW = ("id", 1, FieldProto.TYPE_INT64), ("name", 2, FieldProto.TYPE_STRING), ("new", 3, FieldProto.TYPE_BOOL)


def file_of(name: str = "orders.proto") -> Any:
    return descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3")


def add(messages: Any, name: str, *fields: tuple[str, int, int]) -> Any:
    message = messages.add(name=name)
    for field, number, kind in fields:
        message.field.add(name=field, number=number, type=kind, label=1)
    return message


def serialized(file: Any) -> dict[str, str]:
    """What a registry has of a file: no name, and the whole in base64."""
    nameless = descriptor_pb2.FileDescriptorProto()
    nameless.CopyFrom(file)
    nameless.ClearField("name")
    return {"schemaType": "PROTOBUF", "serialized": base64.b64encode(nameless.SerializeToString()).decode()}


def framed(number: int, index: bytes, message: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + index + message


def reader() -> ProtobufDecoder:
    file = file_of()
    add(file.message_type, "Order", ID, NAME)
    return ProtobufDecoder.parse(descriptor_set(file), "shop.Order")


@pytest.fixture
def server() -> Iterator[Registered]:
    first, second, nested = file_of(), file_of(), file_of()
    add(first.message_type, "Order", ID, NAME)
    add(second.message_type, "Other", ID)
    add(second.message_type, "Order", ID, NAME, NEW)
    outer = add(nested.message_type, "Outer")
    add(outer.nested_type, "Order", ID)
    with serving() as registered:
        registered.register(1, "s", "text", **serialized(first))
        registered.register(2, "s", "text", **serialized(second))
        registered.register(3, "s", "text", **serialized(nested))
        registered.register(4, "json", "{}", schemaType="JSON")
        registered.register(5, "odd", "text", schemaType="PROTOBUF", serialized="??")
        yield registered


def test_several_ids_and_messages_in_one_batch(server: Registered) -> None:
    order = b"\x08\x05\x12\x01A"
    values = [
        framed(1, b"\x00", order),
        framed(2, b"\x02\x02", order + b"\x18\x01"),
        framed(2, b"\x00", order),
        framed(3, b"\x04\x00\x00", order),
        None,
        framed(2, b"\x02\x04", order),
        framed(1, b"\x02\x00", order),
        framed(9, b"\x00", order),
        framed(4, b"\x00", order),
        framed(5, b"\x00", order),
        framed(1, b"\x04\x80", b""),
        framed(1, b"\x00", b"\x08"),
        b"\x00\x00",
        framed(1, b"", b""),
        framed(1, b"\x00", b""),
    ]
    decoder = pickle.loads(pickle.dumps(RegistryProtobufDecoder(reader(), SchemaRegistry(server.url).by_id)))
    decoded = decoder.decode(pa.array([b"", *values], pa.binary()).slice(1))
    good = {0: 5, 1: 5, 6: 5, 14: 0}
    assert decoded.columns["id"].to_pylist() == [good.get(row) for row in range(len(values))]
    assert {int(row): decoded.why(n) for n, row in enumerate(decoded.bad)} == {
        2: "schema 2: the value is a shop.Other, expected shop.Order",
        3: "schema 3: the value is a shop.Outer.Order, expected shop.Order",
        5: "schema 2: it has no message with the index 2",
        7: "the registry knows no schema 9",
        8: "schema 4: it is of type JSON, expected PROTOBUF",
        9: decoded.why(5),
        10: "there are no message indexes behind the schema id",
        11: "field 'id' at byte 0: the value ends before it does",
        12: "the value has 2 bytes: a schema id and the byte 0 before it have 5",
        13: "there are no message indexes behind the schema id",
    }
    assert decoded.why(5).startswith("schema 5: it is no FileDescriptorProto in base64")
    assert {name: (each.rows, each.type) for name, each in decoded.unknown.items()} == {"new": (1, pa.bool_())}
    narrow = decoder.narrowed(["name"]).decode(pa.array(values[:2], pa.binary()))
    assert narrow.columns["name"].to_pylist() == ["A", "A"] and narrow.unknown == {}


def test_files_that_a_schema_imports_are_found_by_their_name(server: Registered) -> None:
    money, order = file_of("shop/money.proto"), file_of()
    add(money.message_type, "Money", ("cents", 1, FieldProto.TYPE_INT64))
    order.dependency.extend(["shop/money.proto", "google/protobuf/timestamp.proto"])
    message = add(order.message_type, "Order")
    message.field.add(name="price", number=1, type=11, label=1, type_name=".shop.Money")
    message.field.add(name="at", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    server.register(21, "money", "text", **serialized(money))
    references = [{"name": "shop/money.proto", "subject": "money", "version": 1}]
    server.register(22, "orders", "text", references=references, **serialized(order))
    mine = ProtobufDecoder.parse(descriptor_set(money, order), "shop.Order")
    decoder = RegistryProtobufDecoder(mine, SchemaRegistry(server.url).by_id)
    decoded = decoder.decode(pa.array([framed(22, b"\x00", b"\x0a\x02\x08\x07\x12\x02\x10\x00")], pa.binary()))
    assert decoded.columns["price"].to_pylist() == [{"cents": 7}] and len(decoded.bad) == 0
    assert server.asked.count("/subjects/money/versions/1?format=serialized") == 1


def test_a_registry_that_cannot_be_asked_is_no_bad_row(server: Registered) -> None:
    server.answers["/schemas/ids/1"] = (503, {}, b"")
    decoder = RegistryProtobufDecoder(reader(), SchemaRegistry(server.url).by_id)
    with pytest.raises(RegistryError, match=server.url):
        decoder.decode(pa.array([framed(1, b"\x00", b"")], pa.binary()))


def test_no_rows_and_only_nulls_ask_nothing(server: Registered) -> None:
    decoder = RegistryProtobufDecoder(reader(), SchemaRegistry(server.url).by_id)
    assert decoder.decode(pa.array([], pa.binary())).columns["id"].to_pylist() == []
    assert decoder.decode(pa.array([None], pa.binary())).columns["id"].to_pylist() == [None]
    assert server.asked == []
