"""Fixed-width values against Python's struct module, one record after the other."""

import struct

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.records.typed.fixed import FixedLayout
from holdfast.records.typed.schema_error import SchemaError

TEXT = "id:>i8, small:<u2, flag:u1, price:>f8"
REFERENCE = [("id", ">q"), ("small", "<H"), ("flag", "B"), ("price", ">d")]
WIDTH = 19


def reference(value: bytes | None) -> list[int | float] | None:
    """The fields of one value; None for a tombstone or a bad one."""
    if value is None or len(value) != WIDTH:
        return None
    fields, at = [], 0
    for _, code in REFERENCE:
        fields.append(struct.unpack_from(code, value, at)[0])
        at += struct.calcsize(code)
    return fields


VALUES = st.lists(
    st.one_of(st.none(), st.binary(max_size=24), st.binary(min_size=WIDTH, max_size=WIDTH)), min_size=0, max_size=40
)


@settings(deadline=None)  # pyarrow loads pandas at its first conversion
@given(VALUES, st.integers(0, 5))
@example([bytes(WIDTH)] * 3, 1)
def test_equals_the_struct_module(values: list[bytes | None], skipped: int) -> None:
    array = pa.array(values, pa.binary()).slice(skipped)
    values = values[skipped:]
    decoded = FixedLayout.parse(TEXT).decode(array)
    wanted = [reference(value) for value in values]
    for at, (name, code) in enumerate(REFERENCE):
        found = decoded.columns[name].to_pylist()
        assert len(found) == len(values)
        for one, fields in zip(found, wanted, strict=True):
            if fields is None:
                assert one is None
            else:  # by bytes, so that NaN equals itself; a signalling NaN may be made quiet by a conversion
                expected = fields[at]
                assert (one != one and expected != expected) or struct.pack(code, one) == struct.pack(code, expected)
    assert decoded.bad.tolist() == [
        row for row, value in enumerate(values) if value is not None and len(value) != WIDTH
    ]


def test_a_bad_value_has_a_reason_and_a_tombstone_is_a_row() -> None:
    decoded = FixedLayout.parse("a:>i4").decode(pa.array([b"\0\0\0\1", None, b"\0"], pa.binary()))
    assert decoded.columns["a"].to_pylist() == [1, None, None]
    assert decoded.bad.tolist() == [2]
    assert decoded.why(0) == "the value has 1 bytes, the layout has 4"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "expected name:type"),
        ("a:i8", ">i8 or <i8"),
        ("a:>i3", "a:>i3"),
        ("a:u1,a:u1", "twice"),
        ("a:<>i8", "<>i8"),
    ],
)
def test_a_wrong_layout_is_named(text: str, named: str) -> None:
    with pytest.raises(SchemaError, match=named):
        FixedLayout.parse(text)


def test_other_arrays_are_refused() -> None:
    with pytest.raises(TypeError, match="expected binary"):
        FixedLayout.parse("a:u1").decode(pa.array(["x"]))


def test_a_narrowed_layout_answers_the_columns_that_are_asked_for_in_that_order() -> None:
    layout = FixedLayout.parse("a:>i4, b:<f8, c:u1")
    narrow = layout.narrowed(["c", "a"])
    values = pa.array([struct.pack(">i", 7) + struct.pack("<d", 0.5) + b"\x09", b"short", None], pa.binary())
    found = narrow.decode(values)
    assert narrow.schema == pa.schema([("c", pa.uint8()), ("a", pa.int32())])
    assert {name: column.to_pylist() for name, column in found.columns.items()} == {
        "c": [9, None, None],
        "a": [7, None, None],
    }
    assert (found.bad.tolist(), found.why(0)) == ([1], "the value has 5 bytes, the layout has 13")
    with pytest.raises(KeyError, match="no field 'd'; it has a, b, c"):
        layout.narrowed(["d"])
