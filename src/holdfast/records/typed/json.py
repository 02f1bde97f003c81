"""Values of JSON to typed Arrow columns, in bulk: no Python object per record.

A value is good if all of it is one JSON object (RFC 8259), with whitespace around it or a byte order mark before it,
whose members are of the types that their columns have. Owns which JSON goes into which Arrow type, and the reasons of
bad values. A kernel checks the grammar and finds the members (kernels/json_scan.py); here columns are made of them.

    decoder = JsonDecoder(pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))]))
    decoded = decoder.decode(columns.arrays["value"])
    decoded.columns["id"], decoded.bad, decoded.unknown

* a whole number fits into any number, one with a point or an exponent into float and decimal only
* a decimal is exact, of a number or of a string; one that has not the room for it is bad
* a string column takes everything: what is no string stands in it as its JSON text
* dates and times are strings of ISO 8601; one without a zone is in the decoder's zone
* a number out of its type's range is bad, with a point too: none becomes infinity
* null and absent are null; a member that is there twice is bad
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.records.kernels import json_scalars as scalars
from holdfast.records.kernels import json_scan as k
from holdfast.records.typed.decoding import Decoded, UnknownField
from holdfast.records.typed.json_columns import converted
from holdfast.records.typed.json_rest import has_objects, rest_of
from holdfast.records.typed.json_spans import MemberSpans, ObjectFields, present_in
from holdfast.records.typed.json_types import members_by_name, type_of
from holdfast.records.typed.schema_error import SchemaError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

REST: Final = "_rest"
MOST_UNKNOWN: Final = 200
"""Names of members without a column that are told of in one batch."""
_SHOWN: Final = 60


class JsonDecoder:
    """Of one schema; see the module. ``rest`` adds a column ``_rest`` with the JSON of the members that have none."""

    def __init__(
        self, schema: pa.Schema, *, time_zone: str = "UTC", rest: bool = False, columns: Sequence[str] | None = None
    ) -> None:
        """SchemaError for a type that no JSON is decoded into, or an unknown time zone. With ``columns``, those of the
        schema that are answered, nothing is told of unknown fields."""
        self._fields = [field for field in schema if not (rest and field.name == REST)]
        if time_zone != "UTC":  # which needs no data of time zones, whose loading takes a second
            try:
                pc.assume_timezone(pa.array([0], pa.timestamp("us")), time_zone)
            except pa.ArrowInvalid as error:
                raise SchemaError(f"time zone {time_zone!r}: {error}") from None
        self._time_zone = time_zone
        self._rest = rest
        names = [field.name for field in self._fields] + ([REST] if rest else [])
        self._wanted = list(names if columns is None else columns)
        self._narrowed = columns is not None
        for name in self._wanted:
            if name not in names:
                raise KeyError(f"there is no field {name!r}; there are {', '.join(names)}")
        self._members = ObjectFields.of(self._fields)

    @property
    def schema(self) -> pa.Schema:
        types = {field.name: field.type for field in self._fields} | {REST: pa.string()}
        return pa.schema([(name, types[name]) for name in self._wanted])

    def narrowed(self, names: Sequence[str]) -> "JsonDecoder":
        """One that answers these columns only, and tells nothing of unknown fields. KeyError for a name that it has
        not."""
        return JsonDecoder(pa.schema(self._fields), time_zone=self._time_zone, rest=self._rest, columns=names)

    def decode(self, values: pa.Array) -> Decoded:
        """Decodes a binary array (32-bit offsets, slices too)."""
        if values.type != pa.binary():
            raise TypeError(f"values are {values.type}: expected binary")
        spans = self.scanned(values)
        rest = self._rest and REST in self._wanted
        made: dict[str, pa.Array] = {}
        for number, field in enumerate(self._fields):
            if field.name in self._wanted or (rest and has_objects(field.type)):
                made[field.name] = converted(field.type, spans, number, self._time_zone)
        is_bad = spans.status[:, 0] != 0
        bad = np.flatnonzero(is_bad).astype(np.int64)
        if len(bad):  # a conversion may have failed after other columns of the row were made
            mask = pa.array(is_bad)
            made = {name: pc.if_else(mask, pa.scalar(None, one.type), one) for name, one in made.items()}
        found = [replace(each, unknown=each.unknown_in(is_bad)) for each in spans.all()]
        if rest:
            made[REST] = rest_of(found)
        status = spans.status[bad]
        return Decoded(
            rows=len(values),
            columns={name: made[name] for name in self._wanted},
            bad=bad,
            why=lambda index: self._why(status[index], values[int(bad[index])].as_py()),
            unknown={} if self._narrowed else unknown_of(found),
        )

    def scanned(self, values: pa.Array) -> MemberSpans:
        """Where the members of the values are, and which values are bad by grammar, kind or text."""
        spans = self._members.scan(values)
        _check_text(values, spans)
        return spans

    def _why(self, status: Array, value: bytes) -> str:
        code, position, number = (int(each) for each in status)
        field = self._fields[number] if number >= 0 else None
        if code == k.NOT_UTF8:
            return f"not UTF-8: byte {position}"
        if code == k.NO_OBJECT:
            return f"not a JSON object: {_shown(value.strip()) or 'the value is empty'}"
        if code == k.SYNTAX:
            return f"not JSON: byte {position}: {_shown(value[position:]) or 'it ends'}"
        if code == k.TRAILING:
            return f"not JSON: byte {position}: there is more behind the object: {_shown(value[position:])}"
        if code == k.DEEP:
            return f"nested deeper than {k.MOST_DEPTH + 1}"
        assert field is not None, "all else is about a field"
        if code == k.TWICE:
            return f"field {field.name} is there twice"
        found = _shown(value[position:]) if code == k.KIND else _member(value, field.name)
        return f"field {field.name}: expected {field.type}, found {found}"


def _check_text(values: pa.Array, spans: MemberSpans) -> None:
    """Marks values that are not UTF-8. One look at all of them, which is enough if they are."""
    text = pa.Array.from_buffers(pa.string(), len(values), values.buffers(), offset=values.offset)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        positions = np.empty(len(values), np.int64)
        ends = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
        scalars.not_utf8(spans.source, ends, present_in(values), positions)
        bad = np.flatnonzero(positions >= 0)
        spans.status[bad] = k.NOT_UTF8, 0, -1
        spans.status[bad, 1] = positions[bad]
        spans.kinds[:, bad] = k.ABSENT


def unknown_of(found: list[MemberSpans]) -> dict[str, UnknownField]:
    """What the members are that have no column; the first MOST_UNKNOWN names. What is within others has their names
    before its own, with a dot between, as ``at.element.x``."""
    told: dict[str, UnknownField] = {}
    for spans in found:
        for name, members in members_by_name(spans).items():
            there = members[members[:, 5] != k.ABSENT]
            if len(there) and len(told) < MOST_UNKNOWN:
                before = told.get(spans.path + name)
                rows, kind = len(there), type_of(spans.source, there)
                if before is not None:  # a name with a dot in it reads as one that is within another
                    rows, kind = before.rows + rows, kind if kind == before.type else pa.string()
                told[spans.path + name] = UnknownField(rows, kind, nested=bool(spans.path))
    return told


def _shown(value: bytes) -> str:
    text = value[: 4 * _SHOWN].decode(errors="replace")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _float(text: str) -> float | str:
    """As it is written if no float64 is near."""
    return text if np.isinf(float(text)) else float(text)


def _member(value: bytes, name: str) -> str:
    """For a message about a value whose grammar is right."""
    try:
        found = json.loads(value.decode("utf-8-sig"), parse_float=_float)
        text = json.dumps(found.get(name), ensure_ascii=False)
    except ValueError:  # Python reads no whole number of some thousand digits
        return "a number of very many digits"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def inferred(values: pa.Array) -> pa.Schema:
    """The fields of a sample of values, binary; bad ones and nulls say nothing. Empty if there is no object in it."""
    spans = JsonDecoder(pa.schema([])).scanned(values)
    fields = []
    for name, members in members_by_name(spans).items():
        there = members[members[:, 5] != k.ABSENT]
        fields.append((name, type_of(spans.source, there) if len(there) else pa.string()))
    return pa.schema(fields)
