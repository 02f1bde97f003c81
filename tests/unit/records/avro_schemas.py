"""Random Avro schemas with values for them, as hypothesis strategies."""

import datetime
import decimal
import uuid
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Json = Any


@dataclass(frozen=True)
class Sample:
    """A type of a schema, and what its values are, as fastavro writes and reads them."""

    schema: Json
    values: st.SearchStrategy[Any]


def int_of(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def float32() -> st.SearchStrategy[float]:
    return st.floats(width=32, allow_nan=False)


UTC = datetime.UTC
MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
MILLIS = MOMENTS.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000))
TIMES = st.times()
PRIMITIVES = [
    Sample("boolean", st.booleans()),
    Sample("int", int_of(32)),
    Sample("long", int_of(64)),
    Sample("float", float32()),
    Sample("double", st.floats(allow_nan=False)),
    Sample("bytes", st.binary(max_size=12)),
    Sample("string", st.text(max_size=12)),
    Sample({"type": "int", "logicalType": "date"}, st.dates()),
    Sample({"type": "long", "logicalType": "timestamp-micros"}, MOMENTS.map(lambda each: each.replace(tzinfo=UTC))),
    Sample({"type": "long", "logicalType": "timestamp-millis"}, MILLIS.map(lambda each: each.replace(tzinfo=UTC))),
    Sample({"type": "long", "logicalType": "local-timestamp-micros"}, MOMENTS),
    Sample({"type": "long", "logicalType": "local-timestamp-millis"}, MILLIS),
    Sample({"type": "long", "logicalType": "time-micros"}, TIMES),
    Sample(
        {"type": "int", "logicalType": "time-millis"},
        TIMES.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)),
    ),
    Sample({"type": "string", "logicalType": "uuid"}, st.uuids()),
]


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda n: decimal.Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)))


@st.composite
def decimal_types(draw: st.DrawFn) -> Sample:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    kind: dict[str, Json] = {"logicalType": "decimal", "precision": precision, "scale": scale}
    if draw(st.booleans()):
        kind |= {"type": "fixed", "name": name(draw), "size": draw(st.integers(17, 20))}
    else:
        kind |= {"type": "bytes"}
    return Sample(kind, decimals(precision, scale))


def name(draw: st.DrawFn) -> str:
    return f"N{draw(st.uuids()).hex}"


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> Sample:
    """Any type that has a column."""
    shape = draw(
        st.sampled_from(["plain"] * 4 + ["decimal", "fixed", "enum"] + ["array", "map", "record"] * (depth > 0))
    )
    if shape == "plain":
        found = draw(st.sampled_from(PRIMITIVES))
    elif shape == "decimal":
        found = draw(decimal_types())
    elif shape == "fixed":
        size = draw(st.integers(1, 20))
        found = Sample({"type": "fixed", "name": name(draw), "size": size}, st.binary(min_size=size, max_size=size))
    elif shape == "enum":
        symbols = draw(st.lists(st.sampled_from("ABCDEFGH"), min_size=1, unique=True))
        found = Sample({"type": "enum", "name": name(draw), "symbols": symbols}, st.sampled_from(symbols))
    elif shape == "record":
        found = draw(records(depth - 1))
    else:
        inner = draw(types(depth - 1))
        if shape == "array":
            found = Sample({"type": "array", "items": inner.schema}, st.lists(inner.values, max_size=4))
        else:
            values = st.dictionaries(st.text(max_size=4), inner.values, max_size=3)
            found = Sample({"type": "map", "values": inner.schema}, values)
    match draw(st.integers(0, 3)):
        case 0:
            return Sample(["null", found.schema], st.none() | found.values)
        case 1:
            return Sample([found.schema, "null"], st.none() | found.values)
        case _:
            return found


@st.composite
def records(draw: st.DrawFn, depth: int = 2, most: int = 4) -> Sample:
    fields = draw(st.lists(types(depth), min_size=1, max_size=most))
    schema = {
        "type": "record",
        "name": name(draw),
        "fields": [{"name": f"f{n}", "type": each.schema} for n, each in enumerate(fields)],
    }
    return Sample(schema, st.fixed_dictionaries({f"f{n}": each.values for n, each in enumerate(fields)}))


def comparable(value: Any) -> Any:
    """What fastavro reads, as Arrow has it."""
    match value:
        case dict():
            return {key: comparable(item) for key, item in value.items()}
        case list():
            return [comparable(item) for item in value]
        case uuid.UUID():
            return str(value)
        case decimal.Decimal():
            return value.normalize(decimal.Context(prec=60))
        case _:
            return value


def from_arrow(value: Any) -> Any:
    """What Arrow's to_pylist has, in the same form: maps as dictionaries."""
    match value:
        case list() if value and all(isinstance(each, tuple) for each in value):
            return {key: from_arrow(item) for key, item in value}
        case list():
            return [from_arrow(item) for item in value]
        case dict():
            return {key: from_arrow(item) for key, item in value.items()}
        case decimal.Decimal():
            return value.normalize(decimal.Context(prec=60))
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case _:
            return value


def same(found: Any, wanted: Any) -> bool:
    """An empty map of Arrow is an empty list."""
    if isinstance(wanted, dict) and found == []:
        return not wanted
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(same, found, wanted))
    return bool(found == wanted) or (found != found and wanted != wanted)  # NaN
