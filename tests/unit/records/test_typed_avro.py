"""Avro's values as columns, against fastavro, one record after the other; with compiled kernels and with plain ones."""

import datetime
import decimal
import io
import json
import uuid
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.records.typed.avro import AvroDecoder
from holdfast.records.typed.decoding import ValueDecoder
from holdfast.records.typed.schema_error import SchemaError
from tests.unit.records.avro_schemas import comparable, from_arrow, records, same
from tests.unit.records.plain_kernels import load_plain

PLAIN = load_plain("walk", "avro")
KERNELS = pytest.mark.parametrize("kernels", [None, PLAIN], ids=["compiled", "plain"])
SLOW = settings(deadline=None, max_examples=50, suppress_health_check=list(HealthCheck))


def record(*fields: Any, name: str = "R", **more: Any) -> str:
    """The text of a schema; a field is (name, type) or (name, type, default)."""
    listed = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) > 2 else {})} for f in fields]
    return json.dumps({"type": "record", "name": name, "fields": listed, **more})


def written(schema: str, *values: Any) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(schema))
    found = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        found.append(out.getvalue())
    return found


def rows_of(decoder: ValueDecoder, values: list[bytes | None]) -> list[dict[str, Any]]:
    decoded = decoder.decode(pa.array(values, pa.binary()))
    for column, field in zip(decoded.columns.values(), decoder.schema, strict=True):
        column.validate(full=True)
        assert column.type == field.type and len(column) == len(values)
    assert list(decoded.columns) == decoder.schema.names
    return pa.table(decoded.columns).to_pylist() if decoded.columns else [{} for _ in values]


def reasons(decoder: ValueDecoder, values: list[bytes | None]) -> dict[int, str]:
    decoded = decoder.decode(pa.array(values, pa.binary()))
    return {int(row): decoded.why(index) for index, row in enumerate(decoded.bad)}


@KERNELS
@SLOW
@given(st.data())
def test_equals_fastavro_for_random_schemas(kernels: Any, data: st.DataObject) -> None:
    sample = data.draw(records())
    values = data.draw(st.lists(st.none() | sample.values, max_size=6))
    text = json.dumps(sample.schema)
    decoder = AvroDecoder.parse(text, kernels=kernels)
    found = rows_of(decoder, [None if value is None else written(text, value)[0] for value in values])
    for row, value in zip(found, values, strict=True):
        wanted = dict.fromkeys(row) if value is None else comparable(value)
        assert same(from_arrow(row), wanted), (row, wanted)


def read_by_fastavro(schema: Any, raw: bytes) -> Any:
    """None where the bytes are no value of the schema."""
    source = io.BytesIO(raw)
    try:
        found = fastavro.schemaless_reader(source, schema)
    except Exception:
        return None
    return found if source.tell() == len(raw) else None


@KERNELS
@SLOW
@given(st.data())
def test_damaged_values_are_bad_and_leave_their_neighbours_alone(kernels: Any, data: st.DataObject) -> None:
    sample = data.draw(records())
    text = json.dumps(sample.schema)
    values = data.draw(st.lists(sample.values, min_size=1, max_size=5))
    raw: list[bytes | None] = list(written(text, *values))
    hit = data.draw(st.integers(0, len(raw) - 1))
    whole = bytearray(raw[hit] or b"")
    match data.draw(st.sampled_from(["cut", "longer", "changed", "random"])):
        case "cut":
            whole = whole[: data.draw(st.integers(0, max(0, len(whole) - 1)))]
        case "longer":
            whole += data.draw(st.binary(min_size=1, max_size=3))
        case "changed" if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        case _:
            whole = bytearray(data.draw(st.binary(max_size=40)))
    raw[hit] = bytes(whole)
    decoder = AvroDecoder.parse(text, kernels=kernels)
    decoded = decoder.decode(pa.array(raw, pa.binary()))
    assert set(decoded.bad) <= {hit}
    for column in decoded.columns.values():
        column.validate(full=True)
    alone = decoder.decode(pa.array([each for n, each in enumerate(raw) if n != hit], pa.binary()))
    others = np.array([n for n in range(len(raw)) if n != hit], np.int64)
    for name, column in decoded.columns.items():
        assert column.take(pa.array(others)).equals(alone.columns[name])
        if len(decoded.bad):
            assert not column[hit].is_valid
    if len(decoded.bad):
        assert decoded.why(0)
        return
    # What is not bad reads as fastavro reads it, unless Python's dates do not reach it. A uuid is its text to us.
    wanted = None if "uuid" in text else read_by_fastavro(fastavro.parse_schema(sample.schema), bytes(whole))
    if wanted is not None:
        row = pa.table({name: column.slice(hit, 1) for name, column in decoded.columns.items()}).to_pylist()[0]
        assert same(from_arrow(row), comparable(wanted))


@KERNELS
def test_what_is_wrong_is_said_in_words(kernels: Any) -> None:
    text = record(
        ("id", "int"),
        ("flag", "boolean"),
        ("name", "string"),
        ("tags", {"type": "array", "items": "long"}),
        ("size", {"type": "enum", "name": "Size", "symbols": ["S", "L"]}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}),
        ("at", {"type": "long", "logicalType": "time-micros"}),
        ("when", {"type": "long", "logicalType": "timestamp-millis"}),
        ("more", ["null", "double"]),
    )
    good = bytes([2, 1, 2, 65, 2, 4, 0, 0, 2, 7, 8, 8, 0])
    bad = {
        b"": "field 'id' at byte 0: the value ends before it does",
        b"\x80" * 11: "field 'id' at byte 0: its number has more than 64 bits",
        b"\x80" * 9 + b"\x01": "field 'id' at byte 0: its number has more than 32 bits",
        b"\x80" * 9 + b"\x02": "field 'id' at byte 0: its number has more than 64 bits",
        good[:1] + b"\x02" + good[2:]: "field 'flag' at byte 1: its byte is neither 0 nor 1",
        good[:2] + b"\x01" + good[3:]: "field 'name' at byte 2: its length or count cannot be",
        good[:2] + b"\x7e" + good[3:]: "field 'name' at byte 2: the value ends before it does",
        good[:3] + b"\xff" + good[4:]: "field 'name' at byte 2: its bytes are not UTF-8",
        good[:4] + b"\x80" * 9 + b"\x01": "field 'tags' at byte 4: its length or count cannot be",
        good[:7] + b"\x04" + good[8:]: "field 'size' at byte 7: its enum has no such number",
        good[:8]
        + b"\x04\x03\xe8"
        + good[10:]: "field 'price' at byte 8: its number has more digits than the schema says",
        good[:8]
        + b"\x04\xfc\x18"
        + good[10:]: "field 'price' at byte 8: its number has more digits than the schema says",
        good[:10] + b"\x01" + good[11:]: "field 'at' at byte 10: its time is out of range",
        good[:11] + b"\xff" * 9 + b"\x01" + good[12:]: "field 'when' at byte 11: its time is out of range",
        good[:12] + b"\x04": "field 'more' at byte 12: its union has no such branch",
        good[:12] + b"\x01": "field 'more' at byte 12: its union has no such branch",
        good[:12] + b"\x02" + bytes(7): "field 'more' at byte 13: the value ends before it does",
        good + b"\x00": "at byte 13: there are bytes behind the value's end",
    }
    decoder = AvroDecoder.parse(text, kernels=kernels)
    assert reasons(decoder, [good, None]) == {}
    values: list[bytes | None] = [each for pair in zip(bad, [good] * len(bad), strict=True) for each in pair]
    assert reasons(decoder, values) == {2 * n: why for n, why in enumerate(bad.values())}
    found = rows_of(decoder, values)
    assert all(row == dict.fromkeys(row) for row in found[::2])
    assert [row["name"] for row in found[1::2]] == ["A"] * len(bad)
    assert found[1]["price"] == decimal.Decimal("0.7") and found[1]["tags"] == [2]


@KERNELS
def test_the_largest_decimals_are_exact(kernels: Any) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 5}
    text = record(("d", kind))
    limit = 10**38 - 1
    numbers = [limit, -limit, limit + 1, -limit - 1, 0, -1, 1 << 127, -(1 << 127)]

    def value(number: int) -> bytes:
        raw = number.to_bytes(20, "big", signed=True)
        return bytes([2 * len(raw)]) + raw

    decoder = AvroDecoder.parse(text, kernels=kernels)
    raw = [value(number) for number in numbers] + [b"\x00"]
    found = [row["d"] for row in rows_of(decoder, raw)]
    with decimal.localcontext(prec=60):
        exact = [each is None or int(each.scaleb(5)) for each in found]
    assert exact == [limit, -limit, True, True, 0, -1, True, True, 0]
    assert list(reasons(decoder, raw)) == [2, 3, 6, 7]


@KERNELS
def test_numbers_of_64_bits_are_exact(kernels: Any) -> None:
    numbers = [0, -1, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1, (1 << 63) - 1, -(1 << 63), (1 << 62) + 1]
    text = record(("n", "long"), ("t", {"type": "long", "logicalType": "timestamp-micros"}))
    raw = written(text, *({"n": n, "t": n} for n in numbers))
    decoded = AvroDecoder.parse(text, kernels=kernels).decode(pa.array(raw, pa.binary()))
    for column in decoded.columns.values():
        assert column.view(pa.int64()).to_pylist() == numbers


@KERNELS
def test_an_item_that_a_bad_value_began_has_room_of_its_own(kernels: Any) -> None:
    """64 items fill their buffers to the last byte; what a bad value puts behind them must not be another's."""
    item = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}]}
    text = record(("list", {"type": "array", "items": item}))
    row = {"list": [{"a": 7, "b": 8}] * 64}
    decoder = AvroDecoder.parse(text, kernels=kernels)
    assert rows_of(decoder, [*written(text, row), b"\x02\x12"]) == [row, {"list": None}]


def test_a_uuid_of_16_bytes_is_text() -> None:
    text = record(("u", {"type": "fixed", "size": 16, "name": "U", "logicalType": "uuid"}))
    wanted = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")
    assert rows_of(AvroDecoder.parse(text), [wanted.bytes, None]) == [{"u": str(wanted)}, {"u": None}]


@KERNELS
def test_written_and_read_by_two_schemas_as_fastavro_does(kernels: Any) -> None:
    inner = {
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "x", "type": "int"}, {"name": "gone", "type": "long"}],
    }
    inner_read = {
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "new", "type": "string", "default": "n"}, {"name": "x", "type": "double"}],
    }
    colours = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE", "GREEN"]}
    fewer = {"type": "enum", "name": "Colour", "symbols": ["GREEN", "OTHER"], "default": "OTHER"}
    writer = record(
        ("a", "int"), ("b", "int"), ("c", "long"), ("d", "float"), ("s", "string"), ("raw", "bytes"),
        ("dropped", {"type": "map", "values": {"type": "array", "items": "string"}}),
        ("maybe", ["null", "int"]), ("old", "string"), ("inner", {"type": "array", "items": inner}),
        ("colour", colours),
        ("choice", ["null", "int", "string", {"type": "array", "items": "int"}]), ("sure", "string"),
    )  # fmt: skip
    fields: list[Any] = [
        {"name": "renamed", "type": "string", "aliases": ["old"]},
        {"name": "a", "type": "long"}, {"name": "b", "type": "double"}, {"name": "c", "type": "float"},
        {"name": "d", "type": "double"}, {"name": "s", "type": "bytes"}, {"name": "raw", "type": "string"},
        {"name": "maybe", "type": ["long", "null"]}, {"name": "inner", "type": {"type": "array", "items": inner_read}},
        {"name": "colour", "type": fewer}, {"name": "sure", "type": ["null", "string"]},
        {"name": "nothing", "type": ["null", "string"], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 3},
        {"name": "list", "type": {"type": "array", "items": "long"}, "default": [1, 2]},
    ]  # fmt: skip
    reader = json.dumps({"type": "record", "name": "R", "fields": fields})
    base: dict[str, Any] = {
        "a": 1, "b": -2, "c": 3, "d": 0.5, "s": "ä", "raw": b"raw", "maybe": None, "old": "o",
        "dropped": {"k": ["v", "w"], "l": []}, "inner": [{"x": 7, "gone": 8}, {"x": 9, "gone": 10}],
        "colour": "GREEN", "choice": "text", "sure": "yes",
    }  # fmt: skip
    values = [
        base,
        base | {"maybe": 5, "colour": "RED", "choice": None, "dropped": {}},
        base | {"choice": [1], "inner": []},
    ]
    raw: list[bytes | None] = [*written(writer, *values), None, b"?"]
    decoder = AvroDecoder.parse(writer, reader, kernels=kernels)
    found = rows_of(decoder, raw)
    read: list[Any] = [
        fastavro.schemaless_reader(io.BytesIO(each), json.loads(writer), json.loads(reader)) for each in raw[:3] if each
    ]
    for row in read:
        row["day"] = datetime.date(1970, 1, 4)  # fastavro leaves a default as it stands in the schema
    assert [from_arrow(row) for row in found[:3]] == [comparable(row) for row in read]
    assert found[0]["day"] == datetime.date(1970, 1, 4)
    assert found[3] == found[4] == dict.fromkeys(found[0])
    unknown = decoder.decode(pa.array(raw, pa.binary())).unknown
    assert {name: each.rows for name, each in unknown.items()} == {"dropped": 3, "inner.element.gone": 2, "choice": 2}
    assert unknown["inner.element.gone"].type == pa.int64()
    assert unknown["dropped"].type == pa.map_(pa.string(), pa.list_(pa.field("element", pa.string())))
    assert pa.types.is_union(unknown["choice"].type)


@KERNELS
def test_a_bad_value_counts_for_no_unknown_field(kernels: Any) -> None:
    decoder = AvroDecoder.parse(record(("gone", "int"), ("name", "string")), record(("name", "string")), kernels)
    decoded = decoder.decode(pa.array([b"\x02\x02A", b"\x02\x04A", b"\x02\x02\xff"], pa.binary()))
    assert decoded.unknown["gone"].rows == 1 and list(decoded.bad) == [1, 2]


def test_null_where_the_reader_takes_none_is_bad() -> None:
    decoder = AvroDecoder.parse(record(("n", ["null", "int"])), record(("n", "int")))
    assert rows_of(decoder, [b"\x02\x04", b"\x00"]) == [{"n": 2}, {"n": None}]
    assert reasons(decoder, [b"\x00"]) == {
        0: "field 'n' at byte 1: it is null, which the reader's schema does not take"
    }


def test_a_symbol_that_the_reader_has_not_is_bad_without_a_default() -> None:
    decoder = AvroDecoder.parse(
        record(("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]})),
        record(("e", {"type": "enum", "name": "E", "symbols": ["B"]})),
    )
    assert rows_of(decoder, [b"\x02"]) == [{"e": "B"}]
    assert list(reasons(decoder, [b"\x02", b"\x00"])) == [1]


@KERNELS
def test_narrowed_reads_no_further_than_it_must(kernels: Any) -> None:
    text = record(("a", "int"), ("s", {"type": "array", "items": "string"}), ("b", "long"), ("c", "string"))
    raw = written(text, {"a": 1, "s": ["x", "y"], "b": 2, "c": "z"})
    decoder = AvroDecoder.parse(text, kernels=kernels).narrowed(["b", "a"])
    assert decoder.schema.names == ["b", "a"]
    assert rows_of(decoder, [raw[0], raw[0][:-2]]) == [{"b": 2, "a": 1}] * 2
    assert list(reasons(decoder, [raw[0][:3]])) == [0]
    assert rows_of(decoder.narrowed(["c"]), list(raw)) == [{"c": "z"}]
    assert rows_of(decoder.narrowed([]), [b"anything"]) == [{}]
    with pytest.raises(KeyError, match="no field 'x'; it has a, s, b, c"):
        decoder.narrowed(["x"])


def test_what_is_no_record_is_a_column_named_value() -> None:
    assert rows_of(AvroDecoder.parse('"long"'), [b"\x04", None]) == [{"value": 2}, {"value": None}]
    assert rows_of(AvroDecoder.parse('["null", "string"]'), [b"\x00"]) == [{"value": None}]
    assert AvroDecoder.parse('{"type": "array", "items": "int"}').schema.names == ["value"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        (record(("a", "strng")), "field 'a' is of type 'strng', which is nowhere defined"),
        (record(("a", ["null", "R"])), "field 'a' is of type R, which it is part of: recursion has no column"),
        (record(("a", ["int", "string"])), "field 'a' is a union of int, string: a column is of one type and null"),
        (record(("a", {"type": "array", "items": "null"})), "field 'a' is an array whose items take no bytes"),
        (record(("a", "int"), ("a", "int")), "field 'a' is there twice"),
        (record(("a", {"type": "fixed", "name": "F", "size": 0})), "fixed F has the size 0: expected 1 or more"),
        (record(("a", {"type": "enum", "name": "E", "symbols": ["A", "A"]})), "expected different names"),
        (record(("a", {"type": "enum", "name": "E", "symbols": ["A"], "default": "B"})), "none of its symbols"),
        (record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})), "a column holds 38"),
        (record(("a", {"type": "array"})), "expected 'items' in it"),
        (record(("a", ["int", "int"])), "expected different types"),
        (json.dumps({"type": "record", "name": "R"}), "record R has no list of fields"),
        (record(name="1"), "a record has the name '1'"),
    ],
)
def test_a_schema_without_columns_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        AvroDecoder.parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        (record(("a", "long")), record(("a", "int")), "field 'a' is written as long and read as int"),
        (record(("a", "int")), record(("b", "int")), "field 'b' is not in what was written"),
        (record(("a", "int"), name="S"), record(("a", "int")), "written as record S and read as R"),
        (record(("a", "int")), record(("a", "int"), ("b", "int", "x")), "field 'b' has the default 'x'"),
        (record(("a", "int")), record(("a", "null")), "field 'a' is written as int and read as null"),
        (record(("a", ["int", "string"])), record(("a", "string")), "field 'a' is a union of int, string"),
    ],
)
def test_schemas_that_do_not_go_together_are_refused_by_name(writer: str, reader: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        AvroDecoder.parse(writer, reader)
    assert message in str(caught.value)


def test_a_schema_that_grows_by_its_names_is_refused() -> None:
    layers: Any = {"type": "record", "name": "L0", "fields": [{"name": "x", "type": "int"}]}
    for n in range(1, 30):
        first = {"name": "a", "type": layers}
        layers = {"type": "record", "name": f"L{n}", "fields": [first, {"name": "b", "type": f"L{n - 1}"}]}
    with pytest.raises(SchemaError, match="expected at most 10000"):
        AvroDecoder.parse(json.dumps(layers))


def test_slices_and_more_rows_than_a_guess_has_room_for() -> None:
    text = record(*((f"s{n}", "string") for n in range(40)))
    value = written(text, {f"s{n}": "x" * 100 for n in range(40)})[0]
    array = pa.array([b"?", value, None] * 200, pa.binary()).slice(1)
    decoded = AvroDecoder.parse(text).decode(array)
    assert decoded.columns["s39"].to_pylist()[:3] == ["x" * 100, None, None]
    assert decoded.columns["s0"].null_count == len(array) - 200 and len(decoded.bad) == 199
    empty = AvroDecoder.parse(text).decode(pa.array([], pa.binary()))
    assert empty.rows == 0 and len(empty.columns["s0"]) == 0
    with pytest.raises(TypeError, match="expected binary"):
        AvroDecoder.parse(text).decode(pa.array(["x"]))


EVERYTHING = record(
    ("flag", "boolean"), ("small", "int"), ("f", "float"), ("list", {"type": "array", "items": ["null", "string"]}),
    ("map", {"type": "map", "values": {
        "type": "array", "items": {"type": "bytes", "logicalType": "decimal", "precision": 5}}}),
    ("inner", ["null", {"type": "record", "name": "I", "fields": [
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "deep", "type": {"type": "array", "items": {"type": "array", "items": "long"}}},
    ]}]),
    ("gone", {"type": "array", "items": {"type": "map", "values": ["null", "int", "string"]}}),
    ("when", {"type": "long", "logicalType": "timestamp-millis"}),
)  # fmt: skip


def test_random_bytes_are_judged_alike_by_checked_and_unchecked_kernels() -> None:
    """Compiled kernels check no index; the plain ones run on memoryviews, where Python checks each."""
    random = np.random.default_rng(4711)
    fields = json.loads(EVERYTHING)["fields"]
    reader = json.dumps({"type": "record", "name": "R", "fields": [each for each in fields if each["name"] != "gone"]})
    values = [random.integers(0, high, size, np.uint8).tobytes() for high in (3, 5, 9, 255) for size in range(60)]
    inner = {"e": "B", "fixed": b"abc", "deep": [[1, 2], [], [3]]}
    row = {
        "flag": True, "small": 7, "f": 0.5, "list": ["a", None, "b"], "map": {"k": [decimal.Decimal(5)], "l": []},
        "inner": inner, "gone": [{"x": None, "y": 1, "z": "text"}], "when": 5,
    }  # fmt: skip
    for raw in written(EVERYTHING, *[row, row | {"inner": None, "gone": [], "list": ["longer" * 9]}] * 200):
        changed = bytearray(raw)
        changed[random.integers(0, len(raw))] ^= random.integers(0, 256)
        values.append(bytes(changed))
    array = pa.array(values, pa.binary())
    fast = AvroDecoder.parse(EVERYTHING, reader).decode(array)
    slow = AvroDecoder.parse(EVERYTHING, reader, PLAIN).decode(array)
    assert list(fast.bad) == list(slow.bad) and 400 < len(fast.bad) < len(values) - 50
    assert [fast.why(n) for n in range(len(fast.bad))] == [slow.why(n) for n in range(len(slow.bad))]
    assert fast.unknown == slow.unknown
    for name, column in fast.columns.items():
        column.validate(full=True)
        assert column.equals(slow.columns[name])
