"""JSON by type: what fits, what is bad, what is within, with compiled kernels and with plain ones."""

import importlib
import inspect
import math
import sys
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import holdfast.records.kernels
import holdfast.records.typed
from holdfast.records.typed.decoding import Decoded, UnknownField
from holdfast.records.typed.json import JsonDecoder

MODULES = ("jit", "json_scan", "json_fill", "json_scalars", "json_nested")
UTC = pa.timestamp("us", "UTC")


def plain_decoder() -> Any:
    """JsonDecoder as it is where numba is not installed."""
    packages = (holdfast.records.kernels, holdfast.records.typed)
    attributes = [(package, dict(vars(package))) for package in packages]
    ours = [f"holdfast.records.kernels.{each}" for each in MODULES]
    ours += [name for name in sys.modules if name.startswith("holdfast.records.typed.json")]
    hidden = {name: sys.modules.pop(name, None) for name in ("numba", *ours)}
    for name in ours:  # "from package import module" takes what the package has before it looks into sys.modules
        package, _, attribute = name.rpartition(".")
        vars(sys.modules[package]).pop(attribute, None)
    sys.modules["numba"] = None  # type: ignore[assignment]
    try:
        found = importlib.import_module("holdfast.records.typed.json").JsonDecoder
    finally:
        for name in {*hidden, *(each for each in sys.modules if each.startswith("holdfast.records.typed.json"))}:
            sys.modules.pop(name, None)
        sys.modules.update({name: module for name, module in hidden.items() if module is not None})
        for package, known in attributes:
            vars(package).update(known)
    assert inspect.isfunction(found.decode.__globals__["scalars"].not_utf8), "compiled"
    return found


DECODERS = pytest.mark.parametrize("decoder", [JsonDecoder, plain_decoder()], ids=["compiled", "plain"])


def decoded(decoder: Any, schema: pa.Schema, values: list[bytes | None], **options: Any) -> Decoded:
    """Of sound Arrow arrays only, and with null rows where rows are bad."""
    answer: Decoded = decoder(schema, **options).decode(pa.array(values, pa.binary()))
    for column in answer.columns.values():
        column.validate(full=True)
        assert len(column) == len(values)
        assert column.take(pa.array(answer.bad)).null_count == len(answer.bad)
    return answer


GOOD = [
    (pa.int8(), {"127": 127, "-128": -128, "-0": 0}),
    (pa.int64(), {"9223372036854775807": (1 << 63) - 1, "-9223372036854775808": -(1 << 63), "null": None}),
    (pa.float64(), {"1": 1.0, "1E+2": 100.0, "4e-324": 5e-324, "0.1234567890123456789": 0.12345678901234568}),
    (pa.float32(), {"0.1": 0.10000000149011612, "16777217": 16777216.0, "1e-45": 1.401298464324817e-45}),
    (
        pa.decimal128(20, 2),
        {
            "12345678901234567.89": Decimal("12345678901234567.89"),
            "-1.5e3": Decimal(-1500),
            '"+.5"': Decimal("0.5"),
            "0e99": Decimal(0),
            "0.010": Decimal("0.01"),
        },
    ),
    (pa.decimal128(38, 0), {"-" + "9" * 38: Decimal("-" + "9" * 38), "1e37": Decimal(10) ** 37}),
    (pa.string(), {'"a\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00"': 'a"\\/\b\f\n\r\té😀', '{"a": 1}': '{"a": 1}'}),
    (pa.string(), {'"' + "x" * n + '\\n"': "x" * n + "\n" for n in range(40)}),
    (pa.date32(), {'"2024-02-29"': "2024-02-29", '"0001-01-01"': "0001-01-01", '"9999-12-31"': "9999-12-31"}),
    (
        UTC,
        {
            '"2024-02-29T23:59:59.123456789+01:30"': "2024-02-29 22:29:59.123456",
            '"1969-12-31 23:59:59.5Z"': "1969-12-31 23:59:59.500000",
            '"2024-01-01"': "2024-01-01 00:00:00",
            '"2024-01-01T00:00-0330"': "2024-01-01 03:30:00",
            '"2024\\u002d01-01T00:00+01"': "2023-12-31 23:00:00",
        },
    ),
    (pa.timestamp("us"), {'"2024-01-01T12:34:56"': "2024-01-01 12:34:56"}),
    (pa.list_(pa.int32()), {"[]": [], "[1, null,\n2]": [1, None, 2], "null": None}),
    (pa.list_(pa.date32()), {"[]": [], "[null]": [None]}),
    (pa.struct([("a", pa.string()), ("b", pa.bool_())]), {'{"b":true,"a":1}': {"a": "1", "b": True}, "null": None}),
    (
        pa.list_(pa.list_(pa.struct([("a", pa.list_(pa.string()))]))),
        {'[[{"a":["x","\\u0079"]}],[],null]': [[{"a": ["x", "y"]}], [], None]},
    ),
]


@DECODERS
@pytest.mark.parametrize(("kind", "texts"), GOOD, ids=[str(kind) for kind, _ in GOOD])
def test_values_that_fit(decoder: Any, kind: pa.DataType, texts: dict[str, Any]) -> None:
    answer = decoded(decoder, pa.schema([("x", kind)]), [f'{{"x":{text}}}'.encode() for text in texts])
    assert [answer.why(index) for index in range(len(answer.bad))] == []
    found = answer.columns["x"].to_pylist()
    if pa.types.is_temporal(kind):
        found = [str(each).removesuffix("+00:00") for each in found]
    assert found == list(texts.values())


BAD = [
    (pa.int8(), ["128", "-129", "1.0", "1e2", '"1"', "true", "[]", "{}"]),
    (pa.int64(), ["9223372036854775808", "-9223372036854775809", "1" * 20]),
    (pa.float64(), ["1e309", "-1.8e308", "1e400", '"1.5"', "true", "1" * 400]),
    (pa.float32(), ["3.5e38", "1e300", "-1e400", "3.4028235677973367e38"]),
    (
        pa.decimal128(20, 2),
        ["1.005", "1234567890123456789", "1e18", '"1,5"', '""', '"1e"', '"e5"', '"."', "true", "1e99999999999"],
    ),
    (pa.date32(), ['"2023-02-29"', '"2024-13-01"', '"2024-00-01"', '"0000-01-01"', '"2024-1-1"', '"2024/01/01"', "1"]),
    (
        UTC,
        [
            '"2024-01-01T24:00"',
            '"2024-01-01T12:60"',
            '"2024-01-01T12:00:60"',
            '"2024-01-01T12:00:00.Z"',
            '"2024-01-01T12:00:00 Europe/Berlin"',
            '"2024-01-01T12:00+19:00"',
            '"2024-01-01T12:00+01-00"',
            '"2024-01-01T"',
            '"2024-01-01x12:00"',
            '"2024-02-30T12:00"',
            "1700000000",
        ],
    ),
    (pa.timestamp("us"), ['"2024-01-01T12:34:56Z"', '"soon"']),
    (pa.list_(pa.int32()), ["[1,2.5]", "1", "{}", "[[1]]", "[3000000000]"]),
    (pa.list_(pa.float64()), ["[1e400]", '["a"]']),
    (pa.struct([("a", pa.int64())]), ['{"a":"x"}', "[]", "1", '{"a":1,"a":2}']),
    (pa.list_(pa.struct([("a", pa.list_(pa.date32()))])), ['[{"a":["2024-02-28"]},{"a":["2024-02-30"]}]', "[1]"]),
]


@DECODERS
@pytest.mark.parametrize(("kind", "texts"), BAD, ids=[str(kind) for kind, _ in BAD])
def test_values_that_do_not_fit(decoder: Any, kind: pa.DataType, texts: list[str]) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", kind), ("after", pa.string())])
    values = [b'{"id":7,"after":"y"}', *(f'{{"id":1,"x":{text},"after":"z"}}'.encode() for text in texts)]
    answer = decoded(decoder, schema, [*values, None])
    assert list(answer.bad) == list(range(1, len(values)))
    assert answer.columns["id"].to_pylist() == [7] + [None] * len(values)
    assert answer.columns["after"].to_pylist() == ["y"] + [None] * len(values)
    assert all(answer.why(i).startswith(f"field x: expected {kind}, found ") for i in range(len(answer.bad)))


@DECODERS
def test_values_that_are_no_text_are_bad_where_they_are(decoder: Any) -> None:
    wrong = [
        b"\xff",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\xf0\x80\x80\x80",
        b"\xe0\x80\x80",
    ]
    good = ["é", "\u0800", "\ud7ff", "\U00010000", "\U0010ffff"]
    values = [b'{"x":"' + each + b'"}' for each in [*wrong, *(each.encode() for each in good)]]
    answer = decoded(decoder, pa.schema([("x", pa.string())]), [*values, None])
    assert list(answer.bad) == list(range(len(wrong)))
    assert {answer.why(index) for index in range(len(wrong))} == {"not UTF-8: byte 6"}
    assert answer.columns["x"].to_pylist()[len(wrong) : -1] == good


NESTED = pa.schema(
    [("id", pa.int64()), ("at", pa.struct([("x", pa.int64())])), ("moves", pa.list_(pa.struct([("to", pa.int32())])))]
)


@DECODERS
def test_spark_D15_what_is_unknown_within_fields_is_counted_and_kept(decoder: Any) -> None:
    values = [
        b'{"id":1,"at":{"x":1}}',
        b'{"at":{"x":1,"y":2.5},"moves":[{"to":1},{"to":2,"why":"w"}],"z":1}',
        b'{"at":{"y":null,"x":1}}',
        b'{"at":{"y":1,"x":"bad"}}',
        b'{"at":{"y":1}}',
        None,
    ]
    answer = decoded(decoder, NESTED, values, rest=True)
    assert answer.unknown == {
        "z": UnknownField(1, pa.int64()),
        "at.y": UnknownField(2, pa.float64(), nested=True),
        "moves.element.why": UnknownField(1, pa.string(), nested=True),
    }
    rest = [
        None,
        '{"z":1,"at":{"x":1,"y":2.5},"moves":[{"to":1},{"to":2,"why":"w"}]}',
        '{"at":{"y":null,"x":1}}',
        None,
        '{"at":{"y":1}}',
        None,
    ]
    assert answer.columns["_rest"].to_pylist() == rest
    narrow = decoder(NESTED, rest=True).narrowed(["_rest"]).decode(pa.array(values, pa.binary()))
    assert list(narrow.columns) == ["_rest"]
    assert narrow.columns["_rest"].to_pylist() == rest
    assert list(answer.bad) == [3]


@DECODERS
def test_spark_D15_times_on_a_zones_clock_are_as_in_java_within_fields_too(decoder: Any) -> None:
    times = ["2024-01-02 03:04:05", "2024-01-02T03:04:05z", "2024-03-31T02:30:00", "2024-10-27T02:30", "2024-07-01"]
    wanted = [
        "2024-01-02 02:04",
        "2024-01-02 03:04",
        "2024-03-31 01:30",  # half past two is left out: half past three
        "2024-10-27 00:30",  # half past two is there twice: the first
        "2024-06-30 22:00",
    ]
    schema = pa.schema([("x", UTC), ("many", pa.list_(pa.struct([("at", UTC)])))])
    values = [f'{{"x":"{time}","many":[{{"at":"{time}"}}]}}'.encode() for time in times]
    answer = decoded(decoder, schema, values, time_zone="Europe/Berlin")
    assert len(answer.bad) == 0
    assert [str(each)[:16] for each in answer.columns["x"].to_pylist()] == wanted
    assert [str(each[0]["at"])[:16] for each in answer.columns["many"].to_pylist()] == wanted


NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(NUMBERS, min_size=1, max_size=40))
@example(["1.7976931348623157e308", "1.7976931348623159e308", "4.9e-324", "2.4703282292062327e-324", "1e-400", "0e999"])
@example(["9007199254740993", "9007199254740992.5", "1e23", "8.5e22", "123456789012345678e-40", "1e-45", "7e-46"])
@example(["-0", "-0.0", "0." + "0" * 24 + "1", "3.4028235677973366e38", "16777217", "1.00000017881393432617187499"])
def test_numbers_are_the_nearest_ones_and_decimals_the_same(texts: list[str]) -> None:
    def column(kind: pa.DataType) -> list[Any]:
        values: list[bytes | None] = [f'{{"x":{text}}}'.encode() for text in texts]
        found: list[Any] = decoded(JsonDecoder, pa.schema([("x", kind)]), values).columns["x"].to_pylist()
        return found

    columns = [column(kind) for kind in (pa.float64(), pa.float32(), pa.decimal128(38, 12))]
    for text, double, single, number in zip(texts, *columns, strict=True):
        wanted = float(text)
        assert double == (None if math.isinf(wanted) else wanted), text
        assert double is None or math.copysign(1, double) == math.copysign(1, wanted)
        assert single == nearest_single(Decimal(text)), text
        assert number == (Decimal(text) if has_decimal(Decimal(text)) else None), text


def has_decimal(exact: Decimal) -> bool:
    """Whether decimal128(38, 12) has the number."""
    if not -13 < exact.adjusted() < 26:
        return not exact
    with localcontext() as context:
        context.prec = 400
        return exact.scaleb(12) == exact.scaleb(12).to_integral_value()


def nearest_single(exact: Decimal) -> float | None:
    """By comparing the neighbours with the exact number; half goes to the even one."""
    if abs(exact) >= Decimal(2**128 - 2**103):  # nearer to the power of two that float32 has no more
        return None
    with np.errstate(over="ignore"):
        near = np.float32(float(exact))
        if np.isinf(near):
            near = np.copysign(np.finfo(np.float32).max, near)
        around = [near, np.nextafter(near, np.float32(-math.inf)), np.nextafter(near, np.float32(math.inf))]
    with localcontext() as context:
        context.prec = 400
        finite = [each for each in around if np.isfinite(each)]
        _, _, best = min(
            (abs(Decimal(float(each)) - exact), int(each.view(np.int32)) & 1, float(each)) for each in finite
        )
    return best
