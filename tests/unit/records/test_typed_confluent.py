"""Values behind a schema registry's prefix, with a registry that is served over real HTTP."""

import io
import json
import pickle
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.records.typed.avro import AvroDecoder
from holdfast.records.typed.avro_schema import joined, parse
from holdfast.records.typed.confluent import MAX_DECODERS, RegistryAvroDecoder, without_prefix
from holdfast.records.typed.registered import RegisteredSchema
from holdfast.records.typed.schema_error import SchemaError
from holdfast.registry.client import RegistryError, SchemaRegistry
from tests.unit.registry.registry_server import Registered, serving


def record(*fields: Any) -> str:
    return json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    )


FIRST = record(("id", "int"), ("name", "string"))
SECOND = record(("name", "string"), ("id", "long"), ("extra", ["null", "double"]))
THIRD = record(("name", "string"))
READER = record(("id", "long"), ("name", "string"))


def framed(number: int, schema: str, value: dict[str, Any]) -> bytes:
    out = io.BytesIO(struct.pack(">bI", 0, number))
    out.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


@pytest.fixture
def server() -> Iterator[Registered]:
    with serving() as registered:
        registered.register(11, "r", FIRST)
        registered.register(4_000_000, "r", SECOND)
        registered.register(13, "other", THIRD)
        registered.register(14, "json", "{}", schemaType="JSON")
        yield registered


def test_several_ids_in_one_batch(server: Registered) -> None:
    values = [
        framed(11, FIRST, {"id": 1, "name": "a"}),
        framed(4_000_000, SECOND, {"id": 2, "name": "b", "extra": 0.5}),
        None,
        b"\x01\x00\x00\x00\x0b\x02\x02a",
        b"\x00\x00\x00",
        framed(12, FIRST, {"id": 1, "name": "a"}),
        framed(4_000_000, SECOND, {"id": 1 << 40, "name": "c", "extra": None}),
        framed(13, THIRD, {"name": "d"}),
        framed(11, FIRST, {"id": 3, "name": "e"})[:-1],
        b"\x00\xff\xff\xff\xff\x02",
        framed(14, FIRST, {"id": 1, "name": "a"}),
        framed(11, FIRST, {"id": 4, "name": "f"}),
    ]
    decoder = RegistryAvroDecoder(READER, SchemaRegistry(server.url).by_id)
    decoded = decoder.decode(pa.array([b"x", *values], pa.binary()).slice(1))
    assert decoded.columns["id"].to_pylist() == [1, 2, *[None] * 4, 1 << 40, *[None] * 4, 4]
    assert decoded.columns["name"].to_pylist() == ["a", "b", *[None] * 4, "c", *[None] * 4, "f"]
    assert {int(row): decoded.why(n) for n, row in enumerate(decoded.bad)} == {
        3: "the value begins with the byte 1: expected 0 before a schema id",
        4: "the value has 3 bytes: a schema id and the byte 0 before it have 5",
        5: "the registry knows no schema 12",
        7: "schema 13: field 'id' is not in what was written, and the reader's schema has no default for it",
        8: "field 'name' at byte 1: the value ends before it does",
        9: "the schema id before the value is no positive number of 32 bits",
        10: "schema 14: it is of type JSON, expected AVRO",
    }
    assert {name: (each.rows, each.type) for name, each in decoded.unknown.items()} == {"extra": (1, pa.float64())}
    assert decoded.rows == len(values)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from([None, 11, 4_000_000, 13, 99]), max_size=12))
def test_rows_keep_their_order_whatever_is_mixed(ids: list[int | None]) -> None:
    schemas = {11: FIRST, 4_000_000: SECOND, 13: THIRD}
    values, wanted = [], []
    for n, number in enumerate(ids):
        schema = schemas.get(number or 0, FIRST)
        row = {"id": n, "name": "x" * n}
        values.append(None if number is None else framed(number, schema, row | {"extra": None}))
        wanted.append(row if number in (11, 4_000_000) else {"id": None, "name": None})
    known = {number: RegisteredSchema(kind="AVRO", text=text) for number, text in schemas.items()}
    decoder = RegistryAvroDecoder(READER, known.get)
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert pa.table(decoded.columns).to_pylist() == wanted
    assert list(decoded.bad) == [n for n, number in enumerate(ids) if number in (13, 99)]
    narrow = decoder.narrowed(["name"]).decode(pa.array(values, pa.binary()))
    # Nobody asked for the id, so schema 13, which has none, will do.
    names = ["x" * n if number in (11, 4_000_000, 13) else None for n, number in enumerate(ids)]
    assert list(narrow.columns) == ["name"] and narrow.columns["name"].to_pylist() == names


def test_names_that_other_schemas_define(server: Registered) -> None:
    address = '{"type": "record", "name": "Address", "namespace": "x", "fields": [{"name": "city", "type": "string"}]}'
    person = record(("home", "x.Address"))
    server.register(21, "address", address)
    server.register(22, "person", person, references=[{"name": "x.Address", "subject": "address", "version": 1}])
    reader = record(("home", json.loads(address)))
    decoder = RegistryAvroDecoder(reader, SchemaRegistry(server.url).by_id)
    decoded = decoder.decode(pa.array([b"\x00\x00\x00\x00\x16\x08Bern"], pa.binary()))
    assert decoded.columns["home"].to_pylist() == [{"city": "Bern"}]


def test_a_schema_and_what_it_refers_to_are_one_text_too() -> None:
    city = '{"type": "enum", "name": "City", "symbols": ["BERN"]}'
    address = record(("city", "City"), ("old", ["null", "City"])).replace('"R"', '"Address", "namespace": "x"')
    person = record(("home", "x.Address"), ("work", {"type": "array", "items": "x.Address"})).replace('"R"', '"n.R"')
    references = [("City", city), ("x.Address", address)]
    value = b"\x00\x02\x00\x02\x00\x00\x00"
    text = joined(person, references)
    assert parse(text) == parse(person, [each for _, each in references])
    home = {"city": "BERN", "old": "BERN"}
    found = AvroDecoder.parse(text).decode(pa.array([value], pa.binary()))
    assert pa.table(found.columns).to_pylist() == [{"home": home, "work": [home | {"old": None}]}]
    assert json.loads(joined(FIRST, references)) == json.loads(FIRST)


def test_a_registry_that_cannot_be_asked_is_no_bad_row(server: Registered) -> None:
    server.answers["/schemas/ids/11"] = (503, {}, b"")
    decoder = RegistryAvroDecoder(READER, SchemaRegistry(server.url).by_id)
    value = framed(11, FIRST, {"id": 1, "name": "a"})
    with pytest.raises(RegistryError, match=server.url):
        decoder.decode(pa.array([value], pa.binary()))
    del server.answers["/schemas/ids/11"]
    again = pickle.loads(pickle.dumps(decoder))
    assert again.decode(pa.array([value], pa.binary())).columns["id"].to_pylist() == [1]


def test_an_id_is_looked_up_once_and_compiled_decoders_are_bounded() -> None:
    asked = []

    def lookup(number: int) -> RegisteredSchema:
        asked.append(number)
        return RegisteredSchema(kind="AVRO", text='"int"')

    decoder = RegistryAvroDecoder('"int"', lookup)

    def decode(number: int) -> None:
        decoder.decode(pa.array([struct.pack(">bIb", 0, number, 2)] * 3, pa.binary()))

    decode(0)
    decode(0)
    assert asked == [0]
    for number in range(1, MAX_DECODERS + 1):
        decode(number)
    decode(MAX_DECODERS)
    decode(0)
    assert asked == [*range(MAX_DECODERS + 1), 0]


def test_a_reader_without_columns_is_refused() -> None:
    with pytest.raises(SchemaError, match="union of int, string"):
        RegistryAvroDecoder(record(("a", ["int", "string"])), lambda _: None)
    with pytest.raises(KeyError, match="no field 'x'; it has id, name"):
        RegistryAvroDecoder(READER, lambda _: None).narrowed(["x"])


def test_json_behind_a_prefix_is_stripped_and_nothing_is_asked() -> None:
    raw = [b"?", b'\x00\x00\x00\x00\x07{"a": 1}', None, b"{}", b"\x00\x00\x00\x00\x08"]
    stripped = without_prefix(pa.array(raw, pa.binary()).slice(1))
    assert stripped.values.to_pylist() == [b'{"a": 1}', None, None, b""]
    assert stripped.ids.tolist() == [7, -1, -1, 8] and list(stripped.bad) == [2]
    assert stripped.why(0) == "the value has 2 bytes: a schema id and the byte 0 before it have 5"
    assert without_prefix(pa.array([], pa.binary())).values.type == pa.binary()
