"""One message in Protobuf and Avro for tests, in two versions: the second has a field more."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FieldProto = descriptor_pb2.FieldDescriptorProto
MESSAGE = "shop.Order"
_PROTOBUF = {"id": FieldProto.TYPE_INT64, "name": FieldProto.TYPE_STRING, "price": FieldProto.TYPE_DOUBLE}
_AVRO = {"id": "long", "name": "string", "price": "double"}


def fields(version: int) -> list[str]:
    return ["id", "name"] if version == 1 else ["id", "name", "price"]


def proto_file(version: int) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, name in enumerate(fields(version), 1):
        message.field.add(name=name, number=number, type=_PROTOBUF[name], label=FieldProto.LABEL_OPTIONAL)
    return file


def descriptor_set(version: int) -> bytes:
    return descriptor_pb2.FileDescriptorSet(file=[proto_file(version)]).SerializeToString()


def serialized(version: int) -> str:
    """As a registry has it."""
    return base64.b64encode(proto_file(version).SerializeToString()).decode()


def protobuf(version: int, row: dict[str, Any]) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(proto_file(version).SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(MESSAGE))(**row)
    return bytes(made.SerializeToString())


def avsc(version: int) -> str:
    named = [{"name": name, "type": _AVRO[name]} for name in fields(version)]
    if version > 1:
        named[-1]["default"] = 0.5  # type: ignore[assignment]
    return json.dumps({"type": "record", "name": "Order", "fields": named})


def avro(version: int, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(avsc(version))), row)
    return out.getvalue()


def prefixed(number: int, content: bytes) -> bytes:
    """Behind a registry's prefix."""
    return b"\0" + number.to_bytes(4, "big") + content
