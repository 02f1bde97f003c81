"""Readers of values with a schema as typed columns: what is damaged is one value between two good ones."""

import json
from typing import Any

from tests.fuzz.reader import Reader, Run

AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "id", "type": "int"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {
            "name": "list",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "I",
                    "fields": [
                        {"name": "a", "type": "long"},
                        {"name": "inner", "type": {"type": "array", "items": ["null", "string"]}},
                        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
                    ],
                },
            },
        },
        {"name": "map", "type": {"type": "map", "values": {"type": "fixed", "name": "F", "size": 3}}},
        {"name": "gone", "type": ["int", "string", {"type": "array", "items": "double"}]},
    ],
}


def _between(decoder: Any, good: bytes) -> Run:
    """Good values are what they are alone, whatever is between them; a bad one is nulls, with a reason."""
    import pyarrow as pa

    alone = pa.table(dict(decoder.decode(pa.array([good], pa.binary())).columns)).to_pylist()[0]

    def run(data: bytes) -> Any:
        decoded = decoder.decode(pa.array([good, data, good], pa.binary()))
        for column in decoded.columns.values():
            column.validate(full=True)
        whole = pa.table({name: column.take(pa.array([0, 2])) for name, column in decoded.columns.items()})
        assert whole.to_pylist() == [alone, alone]
        if len(decoded.bad):
            assert list(decoded.bad) == [1] and decoded.why(0)
            assert not any(column[1].is_valid for column in decoded.columns.values())
            return decoded.why(0).rpartition(": ")[2]
        return len(decoded.unknown)

    return run


def _avro_corpus() -> list[bytes]:
    import io
    from decimal import Decimal

    import fastavro

    parsed = fastavro.parse_schema(AVRO)
    items = [{"a": n << 40, "inner": ["x", None, "ü" * n], "e": "AB"[n % 2]} for n in range(8)]
    found = []
    for n, gone in enumerate((1, "text", [0.5, 1.5])):
        row = {
            "flag": n == 1, "id": -n, "text": None if n else "abc", "when": n, "price": Decimal("-1.25"),
            "list": items * n, "map": {str(n): b"abc"} if n else {}, "gone": gone,
        }  # fmt: skip
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        found.append(out.getvalue())
    return found


def _make_avro() -> Run:
    from holdfast.records.typed.avro import AvroDecoder

    fields = [each for each in AVRO["fields"] if each["name"] != "gone"]
    decoder = AvroDecoder.parse(json.dumps(AVRO), json.dumps({"type": "record", "name": "R", "fields": fields}))
    return _between(decoder, _avro_corpus()[-1])


def _protobuf_file() -> Any:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="p", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="M")
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="numbers", number=1, type=17, label=3)
    inner.field.add(name="texts", number=2, type=9, label=3)
    for number, name, kind, label, of in (
        (1, "id", 3, 1, ""),
        (2, "text", 9, 1, ""),
        (3, "many", 11, 3, ".p.M.Inner"),
        (4, "one", 11, 1, ".p.M.Inner"),
        (5, "when", 11, 1, ".google.protobuf.Timestamp"),
        (6, "f", 2, 1, ""),
        (20, "raw", 12, 1, ""),
    ):
        message.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    message.oneof_decl.add(name="choice")
    for field in message.field:
        if field.name in ("one", "f"):
            field.oneof_index = 0
    return file


def _protobuf_corpus() -> list[bytes]:
    inner = b"\x0a\x03\x01\x02\x03\x12\x02de\x12\x00"
    part = bytes([len(inner)]) + inner
    return [
        b"\x08\x05\x12\x03abc" + (b"\x1a" + part) * 4 + b"\x22" + part + b"\x2a\x04\x08\x07\x10\x09\xa2\x01\x02xy",
        b"\x22" + part + b"\x35\x00\x00\x00\x3f\x22" + part + b"\x4b\x08\x01\x4c\x1a\x00",
        b"\x1a" + part + b"\x08\x01\x1a" + part + b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ]


def _make_protobuf() -> Run:
    from google.protobuf import descriptor_pb2

    from holdfast.records.typed.protobuf import ProtobufDecoder

    files = descriptor_pb2.FileDescriptorSet(file=[_protobuf_file()])
    return _between(ProtobufDecoder.parse(files.SerializeToString(), "p.M"), _protobuf_corpus()[0])


READERS = (
    Reader(
        name="avro",
        reads="Avro values as typed columns, between good ones",
        make=_make_avro,
        corpus=_avro_corpus,
        refusals=(),
        max_size=420,
        memory_base=8 << 20,
        headroom=2 << 30,
    ),
    Reader(
        name="protobuf",
        reads="Protobuf messages as typed columns, between good ones",
        make=_make_protobuf,
        corpus=_protobuf_corpus,
        refusals=(),
        max_size=420,
        memory_base=8 << 20,
        headroom=2 << 30,
    ),
)
