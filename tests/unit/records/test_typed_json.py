"""JSON values to columns against Python's json, one value after the other."""

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.records.typed.decoding import Decoded, UnknownField
from holdfast.records.typed.json import JsonDecoder, inferred
from holdfast.records.typed.schema_error import SchemaError

FIELDS = pa.schema(
    [("id", pa.int64()), ("small", pa.int8()), ("price", pa.float64()), ("ok", pa.bool_()), ("name", pa.string())]
)
UTC = datetime.UTC


def decoded(schema: pa.Schema, *values: bytes | None, **options: Any) -> Decoded:
    return JsonDecoder(schema, **options).decode(pa.array(values, pa.binary()))


def rows(found: Decoded) -> list[dict[str, Any]]:
    return pa.RecordBatch.from_pydict(dict(found.columns)).to_pylist()


def only(kind: pa.DataType, *texts: str, **options: Any) -> tuple[list[Any], list[int]]:
    """The column of one field ``x``, and the rows that are bad."""
    found = decoded(pa.schema([("x", kind)]), *(f'{{"x": {text}}}'.encode() for text in texts), **options)
    return found.columns["x"].to_pylist(), found.bad.tolist()


# -- against Python's json -----------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**64), 2**64) | st.integers(-(2**63), 2**63 - 1),
        "small": st.integers(-130, 130) | st.none(),
        "price": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**25), 10**25),
        "ok": st.booleans() | st.none(),
        "name": texts,
        "other": anything,
    },
)


def written(value: Any, style: int) -> bytes:
    """JSON of one value, in one of several spellings."""
    text = json.dumps(value, ensure_ascii=bool(style & 1), indent=[None, 1][style >> 1 & 1])
    text = text.replace("\n", "\r\n") if style & 4 else text
    return (b"\xef\xbb\xbf" if style & 8 else b"") + (b" \t" + text.encode() + b"\n" if style & 16 else text.encode())


def wanted(value: dict[str, Any]) -> dict[str, Any] | None:
    """The row of an object; None for a bad one."""
    row = {name: value.get(name) for name in FIELDS.names}
    if row["id"] is not None and not -(2**63) <= row["id"] < 2**63:
        return None
    if row["small"] is not None and not -128 <= row["small"] < 128:
        return None
    return row | {"price": None if row["price"] is None else float(row["price"])}


@settings(deadline=None, max_examples=300)
@given(st.lists(st.none() | st.tuples(objects, st.integers(0, 31)), max_size=12), st.integers(0, 3))
def test_objects_are_what_json_says(values: list[tuple[dict[str, Any], int] | None], skipped: int) -> None:
    array = pa.array([None if each is None else written(*each) for each in values], pa.binary()).slice(skipped)
    values = values[skipped:]
    found = JsonDecoder(FIELDS).decode(array)
    expected = [None if each is None else wanted(each[0]) for each in values]
    assert found.bad.tolist() == [i for i, each in enumerate(values) if each is not None and expected[i] is None]
    assert rows(found) == [each or dict.fromkeys(FIELDS.names) for each in expected]
    others = [
        each[0]["other"] for each, row in zip(values, expected, strict=True) if each and row and "other" in each[0]
    ]
    assert found.unknown.keys() == ({"other"} if any(each is not None for each in others) else set())
    if found.unknown:
        assert found.unknown["other"].rows == sum(each is not None for each in others)


def is_object(value: bytes) -> bool:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if "id" in names and names.count("id") > 1:
            raise ValueError("twice")
        return dict(pairs)

    try:
        text = value.decode("utf-8-sig")
        if text.startswith("\ufeff"):
            return False
        found = json.loads(text, parse_constant=no_constant, object_pairs_hook=once)
        text.encode().decode()
        json.dumps(found, ensure_ascii=False).encode()  # lone surrogates are no text
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict)


@settings(deadline=None, max_examples=500)
@given(
    objects, st.integers(0, 31), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3), st.data()
)
def test_damaged_values_are_bad_exactly_where_json_says_so(
    value: dict[str, Any], style: int, changes: list[tuple[int, int]], data: st.DataObject
) -> None:
    damaged = bytearray(written(value, style))
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    cut = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    good = written({"name": "good"}, 0)
    for each in (bytes(damaged), cut):
        found = decoded(pa.schema([("name", pa.string())]), good, each, good)
        assert (1 not in found.bad) == is_object(each) or b'"name"' in each, each
        assert {0, 2}.isdisjoint(found.bad.tolist())
        assert [rows(found)[row]["name"] for row in (0, 2)] == ["good", "good"], "what is wrong says nothing of others"
        assert all(found.why(index) for index in range(len(found.bad)))


# -- defects of before ---------------------------------------------------------------------------------------------


def test_spark_D13_a_value_is_one_object_and_nothing_else() -> None:
    found = decoded(FIELDS, b'{"id":1}{"id":2}', b'{"id":1} xx', b'{"id":1}')
    assert found.bad.tolist() == [0, 1] and found.columns["id"].to_pylist() == [None, None, 1]
    assert found.why(0) == 'not JSON: byte 8: there is more behind the object: {"id":2}'


def test_spark_D14_whitespace_and_a_byte_order_mark_are_no_part_of_a_value() -> None:
    found = decoded(FIELDS, b'\n{"id":1}', b'\t{"id":\n2}\r\n', b'\xef\xbb\xbf{"id":3}')
    assert not len(found.bad) and found.columns["id"].to_pylist() == [1, 2, 3]


def test_spark_D15_fields_that_have_no_column_are_counted_and_can_be_kept() -> None:
    values = (b'{"id":1,"new":{"a":[1, 2]},"n\\u0065w2":"x\\n"}', b'{"id":2}', b'{"new":null}', b'{"new":1}', b"bad")
    found = decoded(FIELDS, *values)
    assert found.unknown == {"new": UnknownField(2, pa.string()), "new2": UnknownField(1, pa.string())}
    kept = decoded(FIELDS, *values, rest=True)
    assert [None if each is None else json.loads(each) for each in kept.columns["_rest"].to_pylist()] == [
        {"new": {"a": [1, 2]}, "new2": "x\n"}, None, {"new": None}, {"new": 1}, None,
    ]  # fmt: skip


def test_spark_D15_decimals_are_exact() -> None:
    kind = pa.decimal128(20, 2)
    assert only(kind, "12345678901234567.89", '"1.1"', "-3", "1.005", '"x"', "1e400") == (
        [Decimal("12345678901234567.89"), Decimal("1.10"), Decimal("-3.00"), None, None, None],
        [3, 4, 5],
    )


def test_spark_D15_a_time_without_a_zone_is_in_the_decoders_zone() -> None:
    noon = datetime.datetime(2024, 7, 1, 12, tzinfo=UTC)
    ways = ('"2024-07-01T12:00:00Z"', '"2024-07-01 14:00:00+02:00"', '"2024-07-01T12:00:00.000000999Z"')
    there = '"2024-07-01T14:00:00"'
    times, bad = only(pa.timestamp("us", tz="UTC"), *ways, there, '"soon"', time_zone="Europe/Berlin")
    assert times == [noon] * 4 + [None] and bad == [4]
    assert only(pa.timestamp("us"), there, ways[0]) == (
        [datetime.datetime(2024, 7, 1, 14), None],
        [1],
    )
    with pytest.raises(SchemaError, match="time zone 'Nowhere'"):
        JsonDecoder(FIELDS, time_zone="Nowhere")


# -- types ---------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_its_column_is_bad_with_a_reason() -> None:
    found = decoded(
        FIELDS,
        b'{"id":"x"}', b'{"id":1.0}', b'{"small":300}', b'{"ok":1}', b'{"id":1,"id":2}', b"[1]", b"", b"null",
        b'{"id":9', b'{"id":01}', b"\xff", b'{"x":' + b"[" * 70 + b"]" * 70 + b"}",
    )  # fmt: skip
    assert [found.why(index) for index in range(len(found.bad))] == [
        'field id: expected int64, found "x"}',
        "field id: expected int64, found 1.0}",
        "field small: expected int8, found 300",
        "field ok: expected bool, found 1}",
        "field id is there twice",
        "not a JSON object: [1]",
        "not a JSON object: the value is empty",
        "not a JSON object: null",
        "not JSON: byte 7: it ends",
        "not JSON: byte 6: 01}",
        "not UTF-8: byte 0",
        "nested deeper than 61",
    ]


def test_a_string_column_takes_everything_as_its_text() -> None:
    assert only(pa.string(), '"a\\u00e9"', "1.50", "true", '{"b": [1]}', "null") == (
        ["a\u00e9", "1.50", "true", '{"b": [1]}', None],
        [],
    )


def test_nested_fields_and_dates() -> None:
    assert only(pa.list_(pa.int64()), "[1, 2]", "[]", '["a"]', "[\n3]") == ([[1, 2], [], None, [3]], [2])
    assert only(pa.struct([("a", pa.string())]), '{"a": "q", "b": 1}', "{}") == ([{"a": "q"}, {"a": None}], [])
    assert only(pa.date32(), '"2024-02-29"', '"2024-02-30"') == ([datetime.date(2024, 2, 29), None], [1])
    with pytest.raises(SchemaError, match="field x: no JSON is decoded into binary"):
        JsonDecoder(pa.schema([("x", pa.binary())]))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.decimals(allow_nan=False, allow_infinity=False)))
@settings(deadline=None)
def test_floats_are_those_that_python_reads(numbers: list[float | Decimal]) -> None:
    spelled = [str(each).lower() for each in numbers]
    assert only(pa.float64(), *spelled)[0] == [float(each) for each in spelled]


def test_narrowed_decodes_some_columns_in_the_order_that_is_asked_for() -> None:
    narrow = JsonDecoder(FIELDS, rest=True).narrowed(["_rest", "id"])
    found = narrow.decode(pa.array([b'{"id":1,"name":"a","new":2}'], pa.binary()))
    assert narrow.schema.names == list(found.columns) == ["_rest", "id"]
    assert rows(found) == [{"_rest": '{"new":2}', "id": 1}]
    with pytest.raises(KeyError, match="no field 'nix'; there are id"):
        narrow.narrowed(["nix"])


def test_a_schema_is_inferred_from_a_sample() -> None:
    sample = [
        b'{"id":1,"big":12345678901234567890,"price":1,"when":"2024-01-01","tags":["a"],"at":{"x":1},"mixed":1}',
        b'{"price":1.5,"none":null,"tags":[],"mixed":"a","at":{"y":"2024-01-01"},"ok":true}', b"bad", None,
    ]  # fmt: skip
    assert inferred(pa.array(sample, pa.binary())) == pa.schema(
        [
            ("id", pa.int64()),
            ("big", pa.decimal128(38, 0)),
            ("price", pa.float64()),
            ("when", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("at", pa.struct([("x", pa.int64()), ("y", pa.string())])),
            ("mixed", pa.string()),
            ("none", pa.string()),
            ("ok", pa.bool_()),
        ]
    )
    assert len(inferred(pa.array([b"[1]", None], pa.binary()))) == 0
