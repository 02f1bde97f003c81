"""The Arrow types of JSON that nobody has told the types of: of members without a column, and of a sample.

Whole numbers are int64, where one is larger a decimal of 38 digits; numbers with a point are float64, ISO dates stay
strings, objects are structs. Members of several types, and those that are always null, are strings: a column of strings
takes everything, as JSON text. Spark's inference has the same rules but for its order: here fields stand as they first
came.
"""

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from holdfast.records.kernels import json_scan as k
from holdfast.records.typed.json_spans import Array, MemberSpans, accepted, spans_text

MOST_LOOKED_AT: Final = 20_000
"""Values of one member that its type is taken from."""
WIDE: Final = pa.decimal128(38, 0)
_DIGITS: Final = 18
"""A whole number of so many fits into int64 for sure."""


def type_of(source: Any, members: Array) -> pa.DataType:
    """Of one field's members, none of which is null: rows of MemberSpans.unknown."""
    kinds = set(np.unique(members[:, 5]).tolist())
    if kinds <= {k.TRUE, k.FALSE}:
        return pa.bool_()
    if kinds == {k.INTEGER}:
        lengths = members[:, 4] - members[:, 3]
        if int(lengths.max()) <= _DIGITS or _fits(source, members, pa.int64()):
            return pa.int64()
        return WIDE if _fits(source, members, WIDE) else pa.string()
    if kinds <= {k.INTEGER, k.NUMBER}:
        return pa.float64()
    if kinds in ({k.OBJECT}, {k.ARRAY}):
        return _nested_type(source, members[:MOST_LOOKED_AT])
    return pa.string()


def _fits(source: Any, members: Array, kind: pa.DataType) -> bool:
    try:
        pc.cast(_texts(source, members), kind)
    except pa.ArrowInvalid:
        return False
    return True


def _texts(source: Any, members: Array) -> pa.Array:
    return spans_text(source, members[:, 3], members[:, 4], members[:, 5])


def _nested_type(source: Any, members: Array) -> pa.DataType:
    """What Arrow infers; a string if that is nothing that JSON is decoded into, as of arrays of several types."""
    lines = "".join(f'{{"x":{text}}}\n' for text in _texts(source, members).to_pylist()).encode()
    try:
        found = pj.read_json(pa.BufferReader(lines), pj.ReadOptions(block_size=len(lines) + 1)).schema.field("x").type
        kind = _settled(found)
        accepted(pa.field("x", kind))
    except (pa.ArrowInvalid, ValueError):
        return pa.string()
    return kind


def _settled(kind: pa.DataType) -> pa.DataType:
    """Without what Arrow guesses beyond JSON: times are strings, and so is what was always null."""
    if pa.types.is_null(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _settled(each.type)) for each in kind])
    return kind


def members_by_name(spans: MemberSpans) -> dict[str, Array]:
    """Rows of ``spans.unknown``, by name in the order in which the names first come."""
    members = spans.unknown
    if not len(members):
        return {}
    names = spans_text(spans.source, members[:, 1], members[:, 2], np.full(len(members), k.STRING, np.uint8))
    coded = names.dictionary_encode()
    indices = coded.indices.to_numpy()
    order = np.argsort(indices, kind="stable")
    ends = np.searchsorted(indices[order], np.arange(len(coded.dictionary) + 1))
    found: dict[str, Array] = {}
    for number, text in enumerate(coded.dictionary.to_pylist()):
        name = json.loads(f'"{text}"')  # one name may be written in several ways
        mine = members[order[ends[number] : ends[number + 1]]]
        found[name] = np.concatenate([found[name], mine]) if name in found else mine
    return found
