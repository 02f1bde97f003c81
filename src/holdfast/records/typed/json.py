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
* null and absent are null; a member that is there twice is bad
"""

import json
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.records.kernels import json_fill as fill
from holdfast.records.kernels import json_scan as k
from holdfast.records.kernels.jit import as_source, as_target
from holdfast.records.typed.decoding import Decoded, UnknownField
from holdfast.records.typed.json_columns import converted
from holdfast.records.typed.json_spans import JsonSchemaError, MemberSpans, accepted
from holdfast.records.typed.json_types import members_by_name, type_of

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
        """JsonSchemaError for a type that no JSON is decoded into, or an unknown time zone."""
        self._fields = [field for field in schema if not (rest and field.name == REST)]
        for field in self._fields:
            accepted(field)
        try:
            pc.assume_timezone(pa.array([0], pa.timestamp("us")), time_zone)
        except pa.ArrowInvalid as error:
            raise JsonSchemaError(f"time zone {time_zone!r}: {error}") from None
        self._time_zone = time_zone
        self._rest = rest
        names = [field.name for field in self._fields] + ([REST] if rest else [])
        self._wanted = list(names if columns is None else columns)
        for name in self._wanted:
            if name not in names:
                raise KeyError(f"there is no field {name!r}; there are {', '.join(names)}")
        encoded = [field.name.encode() for field in self._fields]
        self._names = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
        self._name_ends = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
        self._accepts = np.array([accepted(field) for field in self._fields], np.int64)

    @property
    def schema(self) -> pa.Schema:
        types = {field.name: field.type for field in self._fields} | {REST: pa.string()}
        return pa.schema([(name, types[name]) for name in self._wanted])

    def narrowed(self, names: Sequence[str]) -> "JsonDecoder":
        """One that answers these columns only. KeyError for a name that it has not."""
        return JsonDecoder(pa.schema(self._fields), time_zone=self._time_zone, rest=self._rest, columns=names)

    def decode(self, values: pa.Array) -> Decoded:
        """Decodes a binary array (32-bit offsets, slices too)."""
        if values.type != pa.binary():
            raise TypeError(f"values are {values.type}: expected binary")
        spans = self.scanned(values)
        columns: dict[str, pa.Array] = {}
        for name in self._wanted:
            if name == REST and self._rest:
                columns[name] = None  # when it is known which rows are bad
                continue
            number = next(i for i, field in enumerate(self._fields) if field.name == name)
            columns[name] = converted(self._fields[number].type, spans, number, self._time_zone)
        bad = np.flatnonzero(spans.status[:, 0]).astype(np.int64)
        if len(bad):
            # A conversion may have failed after other columns of the row were made.
            mask = pa.array(spans.status[:, 0] != 0)
            nothing = {name: pa.scalar(None, column.type) for name, column in columns.items() if column is not None}
            columns |= {name: pc.if_else(mask, null, columns[name]) for name, null in nothing.items()}
            spans = _without(spans, spans.status[:, 0] != 0)
        if REST in columns and self._rest:
            columns[REST] = _rest(spans, len(values))
        status = spans.status[bad]
        return Decoded(
            rows=len(values),
            columns=columns,
            bad=bad,
            why=lambda index: self._why(status[index], values[int(bad[index])].as_py()),
            unknown=unknown_of(spans),
        )

    def scanned(self, values: pa.Array) -> MemberSpans:
        """Where the members of the values are, and which values are bad by grammar, kind or text."""
        rows = len(values)
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32, rows + 1, values.offset * 4) if rows else np.zeros(1, np.int32)
        present = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.uint8)
        size = int(ends[-1]) - int(ends[0])
        source = as_source(data if data is not None and size else bytes(1))
        fields = len(self._fields)
        spans = MemberSpans(
            starts=np.empty((fields, rows), np.int32),
            ends=np.empty((fields, rows), np.int32),
            kinds=np.zeros((fields, rows), np.uint8),
            status=np.zeros((rows, 3), np.int64),
            # The shortest member and its comma, "":1, have five bytes. Pages that are not used cost nothing.
            unknown=np.empty((size // 5 + rows + 1, k.UNKNOWN_FIELDS), np.int32),
            source=source,
        )
        longest = int(np.diff(ends).max()) if rows else 0
        found = k.scan_objects(
            source,
            ends,
            present,
            self._names,
            self._name_ends,
            self._accepts,
            spans.starts,
            spans.ends,
            spans.kinds,
            spans.unknown,
            as_target(np.empty(longest + 1, np.uint8)),
            spans.status,
        )
        spans = MemberSpans(spans.starts, spans.ends, spans.kinds, spans.status, spans.unknown[:found], source)
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


def _without(spans: MemberSpans, bad: Array) -> MemberSpans:
    unknown = spans.unknown[~bad[spans.unknown[:, 0]]] if len(spans.unknown) else spans.unknown
    return MemberSpans(spans.starts, spans.ends, spans.kinds, spans.status, unknown, spans.source)


def _check_text(values: pa.Array, spans: MemberSpans) -> None:
    """Marks values that are not UTF-8. One look at all of them, which is enough if they are."""
    text = pa.Array.from_buffers(pa.string(), len(values), values.buffers(), offset=values.offset)
    try:
        text.validate(full=True)
        return
    except pa.ArrowInvalid:
        pass
    for row in _not_text(text, 0):
        try:
            values[row].as_py().decode()
        except UnicodeDecodeError as error:
            spans.status[row] = (k.NOT_UTF8, error.start, -1)
            spans.kinds[:, row] = k.ABSENT


def _not_text(text: pa.Array, first: int) -> list[int]:
    """The rows that are not UTF-8, by halves."""
    try:
        text.validate(full=True)
        return []
    except pa.ArrowInvalid:
        if len(text) == 1:
            return [first]
    half = len(text) // 2
    return _not_text(text.slice(0, half), first) + _not_text(text.slice(half), first + half)


def _rest(spans: MemberSpans, rows: int) -> pa.Array:
    unknown = spans.unknown
    # Name and value with quotes, colon, and comma or brace.
    size = int((unknown[:, 2] - unknown[:, 1] + unknown[:, 4] - unknown[:, 3] + 7).sum(dtype=np.int64)) + 1
    if size > 2**31 - 1:
        raise ValueError(f"{rows} values have {size} bytes that no column is for: decode fewer at a time")
    out, ends, present = np.empty(size, np.uint8), np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8)
    used = fill.fill_rest(spans.source, unknown, len(unknown), rows, as_target(out), ends, present)
    valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(out[:used])]
    return pa.Array.from_buffers(pa.string(), rows, buffers, rows - int(present.sum()))


def unknown_of(spans: MemberSpans) -> dict[str, UnknownField]:
    """What the members are that have no column; the first MOST_UNKNOWN names."""
    found: dict[str, UnknownField] = {}
    for name, members in members_by_name(spans).items():
        there = members[members[:, 5] != k.ABSENT]
        if len(there) and len(found) < MOST_UNKNOWN:
            found[name] = UnknownField(len(there), type_of(spans.source, there))
    return found


def _shown(value: bytes) -> str:
    text = value[: 4 * _SHOWN].decode(errors="replace")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _member(value: bytes, name: str) -> str:
    """For a message about a value whose grammar is right."""
    try:
        text = json.dumps(json.loads(value.decode("utf-8-sig")).get(name), ensure_ascii=False)
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
