"""Protobuf messages as columns, against the library ``protobuf``; with compiled kernels and with plain ones."""

import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.records.typed.protobuf import MAX_UNKNOWN, ProtobufDecoder
from holdfast.records.typed.schema_error import SchemaError
from tests.unit.records.avro_schemas import from_arrow, same
from tests.unit.records.plain_kernels import load_plain
from tests.unit.records.protobuf_messages import FieldProto, descriptor_set, fill, message_class, plain, random_file

PLAIN = load_plain("walk", "protobuf")
KERNELS = pytest.mark.parametrize("kernels", [None, PLAIN], ids=["compiled", "plain"])
SLOW = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))


def rows_of(decoder: ProtobufDecoder, values: list[bytes | None]) -> list[dict[str, Any]]:
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert list(decoded.columns) == decoder.schema.names
    for column, field in zip(decoded.columns.values(), decoder.schema, strict=True):
        column.validate(full=True)
        assert column.type == field.type and len(column) == len(values)
    return pa.table(decoded.columns).to_pylist() if decoded.columns else [{} for _ in values]


def reasons(decoder: ProtobufDecoder, *values: bytes | None) -> dict[int, str]:
    decoded = decoder.decode(pa.array(values, pa.binary()))
    return {int(row): decoded.why(index) for index, row in enumerate(decoded.bad)}


@KERNELS
@pytest.mark.parametrize("syntax", ["proto3", "proto2"])
@SLOW
@given(st.data())
def test_equals_the_library_for_random_messages(kernels: Any, syntax: str, data: st.DataObject) -> None:
    """Two messages one behind the other are one: that is how a field comes twice, and a message in pieces."""
    file = random_file(data.draw, syntax)
    known = message_class(file)
    raw: list[bytes | None] = [None]
    for pieces in data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=4)):
        raw += [b"".join(fill(data.draw, known()).SerializeToString() for _ in range(pieces))]
    found = rows_of(ProtobufDecoder.parse(descriptor_set(file), "p.M", kernels), raw)
    assert found[0] == dict.fromkeys(found[0])
    for row, each in zip(found[1:], raw[1:], strict=True):
        wanted = plain(known.FromString(each))
        assert same(from_arrow(row), wanted), (row, wanted)


@KERNELS
@SLOW
@given(st.data())
def test_damaged_messages_are_bad_where_the_library_says_so(kernels: Any, data: st.DataObject) -> None:
    file = random_file(data.draw)
    known = message_class(file)
    raw = [fill(data.draw, known()).SerializeToString() for _ in range(data.draw(st.integers(1, 4)))]
    hit = data.draw(st.integers(0, len(raw) - 1))
    whole = bytearray(raw[hit])
    match data.draw(st.sampled_from(["cut", "longer", "changed", "random"])):
        case "cut":
            whole = whole[: data.draw(st.integers(0, len(whole)))]
        case "longer":
            whole += data.draw(st.binary(min_size=1, max_size=12))
        case "changed" if whole:
            whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        case _:
            whole = bytearray(data.draw(st.binary(max_size=40)))
    raw[hit] = bytes(whole)
    decoder = ProtobufDecoder.parse(descriptor_set(file), "p.M", kernels)
    decoded = decoder.decode(pa.array(raw, pa.binary()))
    found = rows_of(decoder, list(raw))
    for n, row in enumerate(found):
        if n != hit:
            assert same(from_arrow(row), plain(known.FromString(raw[n])))
    try:
        wanted = plain(known.FromString(raw[hit]))
    except (DecodeError, OverflowError):  # the second is a Timestamp that Python has no date for
        assert list(decoded.bad) == [hit]
    else:
        if len(decoded.bad):  # what the library takes and we do not: of a long number it drops the rest
            assert list(decoded.bad) == [hit]
            assert "its time is out of range" in (why := decoded.why(0)) or "its number has more than 64 bits" in why
        else:
            assert same(from_arrow(found[hit]), wanted)
    if len(decoded.bad):
        assert found[hit] == dict.fromkeys(found[hit])


def simple(*fields: tuple[str, int, int], syntax: str = "proto3", label: int = 1) -> Any:
    """A file with the message p.M: fields by name, number and type."""
    file = descriptor_pb2.FileDescriptorProto(name="simple.proto", package="p", syntax=syntax)
    message = file.message_type.add(name="M")
    for name, number, kind in fields:
        message.field.add(name=name, number=number, type=kind, label=label)
    return file


@KERNELS
def test_what_is_wrong_is_said_in_words(kernels: Any) -> None:
    file = simple(("id", 1, FieldProto.TYPE_INT64), ("name", 2, FieldProto.TYPE_STRING))
    inner = file.message_type[0].nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=FieldProto.TYPE_FIXED32, label=1)
    file.message_type[0].field.add(name="inner", number=3, type=11, label=1, type_name=".p.M.Inner")
    decoder = ProtobufDecoder.parse(descriptor_set(file), "p.M", kernels)
    good = b"\x08\x05\x12\x01A"
    bad = {
        b"\x08": "field 'id' at byte 0: the value ends before it does",
        b"\x08" + b"\xff" * 9 + b"\x02": "field 'id' at byte 0: its number has more than 64 bits",
        b"\x08\x05\x12\x02A": "field 'name' at byte 2: the value ends before it does",
        b"\x12\x01\xff": "field 'name' at byte 0: its bytes are not UTF-8",
        b"\x12" + b"\xff" * 9 + b"\x01": "field 'name' at byte 0: its length or count cannot be",
        b"\x1a\x03\x0d\x01": "field 'inner' at byte 0: the value ends before it does",
        b"\x1a\x03\x0d\x01\x02\x03": "field 'inner.x' at byte 2: the value ends before it does",
        b"\x1a\x01\x07": "field 'inner' at byte 2: there is no tag of a field",
        b"\x00\x01": "at byte 0: there is no tag of a field",
        b"\x4c": "at byte 0: a group ends that did not begin, or is nested too deep",
        b"\x4b\x54": "at byte 0: a group ends that did not begin, or is nested too deep",
        b"\x4b" * 101: "at byte 0: a group ends that did not begin, or is nested too deep",
        b"\x4b\x08\x01": "at byte 0: the value ends before it does",
    }
    assert reasons(decoder, good, None, b"", b"\x4b\x4b\x08\x01\x4c\x4c") == {}
    values = [each for pair in zip(bad, [good] * len(bad), strict=True) for each in pair]
    assert reasons(decoder, *values) == {2 * n: why for n, why in enumerate(bad.values())}
    found = rows_of(decoder, list(values))
    assert found[1::2] == [{"id": 5, "name": "A", "inner": None}] * len(bad)
    assert all(row == dict.fromkeys(row) for row in found[::2])


@KERNELS
def test_unknown_fields_are_counted_by_value(kernels: Any) -> None:
    file = simple(("id", 1, FieldProto.TYPE_INT64))
    inner = file.message_type[0].nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=FieldProto.TYPE_BOOL, label=1)
    file.message_type[0].field.add(name="list", number=3, type=11, label=3, type_name=".p.M.Inner")
    decoder = ProtobufDecoder.parse(descriptor_set(file), "p.M", kernels)
    values = [
        b"\x10\x01\x10\x02",  # field 2 twice
        b"\x1a\x02\x28\x01\x1a\x02\x28\x02",  # field 5 in both items of the list
        b"\x10\x01\x08",  # bad
        b"\x4a\x01A\x5d\x00\x00\x00\x00",  # 9 and 11
        b"\x0a\x00",  # the id as bytes: not that field
    ]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    assert {name: (each.rows, each.type) for name, each in decoded.unknown.items()} == {
        "field 2": (1, pa.int64()),
        "list.field 5": (1, pa.int64()),
        "field 9": (1, pa.binary()),
        "field 11": (1, pa.int32()),
        "field 1": (1, pa.binary()),
    }
    many = b"".join(bytes([(number << 3 | 0x80) & 0xFF, number >> 4, 1]) for number in range(16, 16 + 2 * MAX_UNKNOWN))
    assert len(decoder.decode(pa.array([many], pa.binary())).unknown) == MAX_UNKNOWN
    assert decoder.narrowed(["id"]).decode(pa.array(values, pa.binary())).unknown == {}


def test_a_required_field_that_is_missing_is_bad() -> None:
    file = simple(("id", 1, FieldProto.TYPE_INT64), ("name", 2, FieldProto.TYPE_STRING), syntax="proto2", label=2)
    decoder = ProtobufDecoder.parse(descriptor_set(file), "p.M")
    assert reasons(decoder, b"\x08\x01\x12\x00", b"\x08\x01") == {1: "at byte 2: it is required and missing"}
    assert reasons(decoder.narrowed(["id"]), b"\x08\x01") == {}


def test_unsigned_numbers_are_exact_and_unknown_enum_numbers_are_digits() -> None:
    file = simple(("big", 1, FieldProto.TYPE_UINT64), ("small", 2, FieldProto.TYPE_FIXED32))
    file.enum_type.add(name="E").value.add(name="ZERO", number=0)
    file.message_type[0].field.add(name="e", number=3, type=14, label=1, type_name=".p.E")
    decoder = ProtobufDecoder.parse(descriptor_set(file), "p.M")
    value = b"\x08" + b"\xff" * 9 + b"\x01" + b"\x15\xff\xff\xff\xff" + b"\x18\x07"
    assert rows_of(decoder, [value, b""]) == [
        {"big": Decimal(2**64 - 1), "small": 2**32 - 1, "e": "7"},
        {"big": Decimal(0), "small": 0, "e": "ZERO"},
    ]


@KERNELS
def test_numbers_of_64_bits_are_exact(kernels: Any) -> None:
    kinds = {"i": FieldProto.TYPE_INT64, "s": FieldProto.TYPE_SINT64, "f": FieldProto.TYPE_SFIXED64}
    file = simple(*((name, n, kind) for n, (name, kind) in enumerate(kinds.items(), 1)))
    known = message_class(file)
    numbers = [
        s * n + d for s in (1, -1) for n in (1 << 53, (1 << 63) - 1, 1 << 31) for d in (-1, 0, 1) if n * s + d < 1 << 63
    ]
    raw: list[bytes | None] = [known(**dict.fromkeys(kinds, n)).SerializeToString() for n in [*numbers, -(1 << 63)]]
    found = rows_of(ProtobufDecoder.parse(descriptor_set(file), "p.M", kernels), raw)
    assert found == [dict.fromkeys(kinds, n) for n in [*numbers, -(1 << 63)]]


def test_narrowed_and_in_another_process() -> None:
    file = simple(("a", 1, FieldProto.TYPE_INT64), ("b", 2, FieldProto.TYPE_STRING), ("c", 3, FieldProto.TYPE_BOOL))
    decoder = pickle.loads(pickle.dumps(ProtobufDecoder.parse(descriptor_set(file), "p.M").narrowed(["c", "a"])))
    assert rows_of(decoder, [b"\x18\x01\x12\x01\xff\x08\x02"]) == [{"c": True, "a": 2}]
    assert rows_of(decoder.narrowed([]), [b"\x08\x01", None]) == [{}, {}]
    with pytest.raises(KeyError, match="no field 'x'; it has a, b, c"):
        decoder.narrowed(["x"])


def test_what_has_no_columns_is_refused_by_name() -> None:
    file = simple(("a", 1, FieldProto.TYPE_INT64))
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=11, label=1, type_name=".p.Node")
    old = file.message_type.add(name="Old")
    old.nested_type.add(name="Part")
    old.field.add(name="part", number=1, type=10, label=1, type_name=".p.Old.Part")
    lost = descriptor_pb2.FileDescriptorProto(name="lost.proto", dependency=["gone.proto"])
    for raw, message, words in (
        (
            descriptor_set(file),
            "p.Node",
            "field 'next' is of type p.Node, which it is part of: recursion has no column",
        ),
        (descriptor_set(file), "p.Old", "field 'part' is a group, which has no column"),
        (descriptor_set(file), "p.X", "no message 'p.X'; it has p.M, p.Node, p.Old"),
        (b"\xff", "p.M", "no compiled descriptor set"),
        (descriptor_set(lost), "p.M", "file 'lost.proto' imports 'gone.proto', which is not there"),
    ):
        with pytest.raises(SchemaError) as caught:
            ProtobufDecoder.parse(raw, message)
        assert words in str(caught.value)


def test_random_bytes_are_judged_alike_by_checked_and_unchecked_kernels() -> None:
    """Compiled kernels check no index; the plain ones run on memoryviews, where Python checks each."""
    file = simple(
        ("id", 1, FieldProto.TYPE_SINT32), ("name", 2, FieldProto.TYPE_BYTES), ("f", 5, FieldProto.TYPE_FLOAT)
    )
    message = file.message_type[0]
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="list", number=1, type=FieldProto.TYPE_UINT32, label=3)
    inner.field.add(name="texts", number=2, type=FieldProto.TYPE_STRING, label=3)
    message.field.add(name="many", number=3, type=11, label=3, type_name=".p.M.Inner")
    message.field.add(name="one", number=4, type=11, label=1, type_name=".p.M.Inner")
    random = np.random.default_rng(4711)
    tags = np.array([0x08, 0x12, 0x1A, 0x22, 0x2D, 0x0A, 0x02, 0x01, 0x03, 0x05, 0x41, 0x4B, 0x4C, 0x00], np.uint8)
    values = [tags[random.integers(0, len(tags) - 1, size)].tobytes() for size in range(40)] * 20
    good = b"\x08\x05\x12\x03abc\x1a\x08\x0a\x02\x01\x02\x12\x02de\x22\x04\x08\x07\x08\x09\x2d\x00\x00\x00\x3f\x1a\x00"
    for _ in range(300):
        changed = bytearray(good)
        changed[random.integers(0, len(good))] ^= random.integers(0, 256)
        values.append(bytes(changed))
    array = pa.array(values, pa.binary())
    fast = ProtobufDecoder.parse(descriptor_set(file), "p.M").decode(array)
    slow = ProtobufDecoder.parse(descriptor_set(file), "p.M", PLAIN).decode(array)
    assert list(fast.bad) == list(slow.bad) and 200 < len(fast.bad) < len(values) - 50
    assert [fast.why(n) for n in range(len(fast.bad))] == [slow.why(n) for n in range(len(slow.bad))]
    assert fast.unknown == slow.unknown
    for name, column in fast.columns.items():
        column.validate(full=True)
        assert column.equals(slow.columns[name])
