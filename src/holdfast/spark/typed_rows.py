"""An executor's part of a typed read: keys and values decoded, and what is done about bad ones.

Owns the batch that Spark gets. Nothing is decoded of which no column is wanted, and nothing of it is found to be bad.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.model.types import TopicPartition
from holdfast.records.typed.decoding import Decoded, ValueDecoder
from holdfast.spark.typed_columns import CORRUPT, TypedColumns
from holdfast.spark.value_formats import ValueFormat, kept_decoder

log = logging.getLogger(__name__)


class BadRecordError(Exception):
    """A key or value is not what its format says, and the query is to end then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoding:
    """Of keys, or of values."""

    of: str
    decoder: ValueDecoder


class TypedRows:
    """Of one task."""

    def __init__(self, columns: TypedColumns, schema: pa.Schema) -> None:
        """``schema``: of the batches, as Spark expects them."""
        self._columns, self._schema = columns, schema
        self._structs = columns.structs()
        self._fields = {field.name for field in columns.top()}
        self._decodings = [
            _Decoding(of=of, decoder=kept_decoder(form, names))
            for of, form in (("key", columns.key), ("value", columns.value))
            if form is not None and (names := self._wanted(of, form)) is not None
        ]
        of_record = set(columns.others()) - set(CORRUPT.values())
        wanted = {name for name in schema.names if name in of_record}
        wanted |= {each.of for each in self._decodings} | {"offset"}
        self.source_columns = tuple(sorted(wanted))
        """Columns of records that ``batches`` needs."""
        self._skipped = 0
        self._first_skipped = ""

    def _wanted(self, of: str, form: ValueFormat) -> tuple[str, ...] | None:
        """Fields to decode; None for none. Who asks for what was bad has all of it looked at."""
        if CORRUPT[of] in self._schema.names and self._columns.bad == "null":
            return tuple(form.columns().names)
        if of in self._structs:
            at = self._schema.get_field_index(of)
            return tuple(each.name for each in self._schema.field(at).type) if at >= 0 else None
        names = tuple(name for name in self._schema.names if name in self._fields)
        return names or None

    def batches(self, tp: TopicPartition, arrays: Mapping[str, pa.Array]) -> Iterator[pa.RecordBatch]:
        """One, or none if no record is left. BadRecordError where bad records are to end the query."""
        decoded = {each.of: each.decoder.decode(arrays[each.of]) for each in self._decodings}
        keep = None
        if any(len(each.bad) for each in decoded.values()):
            if self._columns.bad == "fail":
                raise BadRecordError(_told(tp, arrays["offset"], decoded) + " (badRecords=fail)")
            if self._columns.bad == "skip":
                keep = self._skip(tp, arrays, decoded)
        made = [self._column(field, arrays, decoded) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(made, schema=self._schema)
        if keep is not None:
            batch = batch.filter(pa.array(keep))
        if len(batch):
            yield batch

    def tell(self) -> None:
        """At the end of the task: what was left out."""
        if self._skipped:
            log.warning("badRecords=skip: %d records are left out; the first: %s", self._skipped, self._first_skipped)

    def _skip(self, tp: TopicPartition, arrays: Mapping[str, pa.Array], decoded: Mapping[str, Decoded]) -> Any:
        keep = np.ones(len(arrays["offset"]), bool)
        for each in decoded.values():
            keep[each.bad] = False
        if not self._skipped:
            self._first_skipped = _told(tp, arrays["offset"], decoded)
        self._skipped += int(len(keep) - keep.sum())
        return keep

    def _column(self, field: pa.Field, arrays: Mapping[str, pa.Array], decoded: Mapping[str, Decoded]) -> pa.Array:
        name = field.name
        found: pa.Array
        if name in self._structs:
            found = _struct(field.type, arrays[name], decoded[name])
        elif name in self._fields and "value" in decoded and name in decoded["value"].columns:
            found = decoded["value"].columns[name]
        elif name in CORRUPT.values():
            of = next(of for of, column in CORRUPT.items() if column == name)
            is_bad = _mask(decoded[of])
            found = pc.if_else(pa.array(is_bad), arrays[of], pa.scalar(None, pa.binary()))
        else:
            found = arrays[name]
        return found if found.type == field.type else found.cast(field.type)


def _mask(decoded: Decoded) -> Any:
    found = np.zeros(decoded.rows, bool)
    found[decoded.bad] = True
    return found


def _struct(kind: pa.DataType, raw: pa.Array, decoded: Decoded) -> pa.Array:
    """Null where there is no key or value, or a bad one."""
    children = [
        one if one.type == each.type else one.cast(each.type) for each in kind for one in [decoded.columns[each.name]]
    ]
    absent = raw.is_null().to_numpy(zero_copy_only=False) | _mask(decoded)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(absent))


def _told(tp: TopicPartition, offsets: pa.Array, decoded: Mapping[str, Decoded]) -> str:
    """The first bad record, by name."""
    row, of, why = min((int(each.bad[0]), of, each.why(0)) for of, each in decoded.items() if len(each.bad))
    return f"topic {tp.topic}, partition {tp.partition}, offset {offsets[row].as_py()}: {of}: {why}"
