"""What a record's value becomes in a table of the lake: its columns, beside those that say where the record was.

Owns the columns that the lake adds, and which decoder a format has. Travels to executors by pickle. No Spark, no I/O.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from holdfast.lake.columns import PARTITIONS
from holdfast.records.typed.decoding import Decoded, ValueDecoder
from holdfast.records.typed.schema_error import SchemaError
from holdfast.spark.value_formats import RegistrySettings, ValueFormat, kept_decoder, signed

Format = Literal["json", "raw", "struct", "avro", "protobuf"]
NewFields = Literal["rest", "add", "drop", "fail"]

CORRUPT: Final = "reason"
VALUE: Final = "value"
PLACE: Final = {
    "_topic": ("topic", pa.string()),
    "_partition": ("partition", pa.int32()),
    "_kafka_partition": ("partition", pa.int32()),
    "_offset": ("offset", pa.int64()),
    "_timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "_timestampType": ("timestampType", pa.int32()),
    "_key": ("key", pa.binary()),
    "_headers": ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
}
"""Column of a table -> that of the source, and its type. A table has one of the two for the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawDecoder:
    """The value's bytes as they are; none is bad."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(VALUE, pa.binary())])

    def decode(self, values: pa.Array) -> Decoded:
        bad = np.zeros(0, np.int64)
        return Decoded(rows=len(values), columns={VALUE: values}, bad=bad, why=lambda _: "")

    def narrowed(self, names: Sequence[str]) -> "RawDecoder":
        for name in names:
            if name != VALUE:
                raise KeyError(f"raw values have one column, {VALUE!r}, not {name!r}")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """How values are decoded, and which columns a table of them has."""

    format: Format
    fields: pa.Schema
    """Of what is decoded."""
    keep_value: bool = False
    headers: bool = False
    partition: str = PARTITIONS[0]
    """Name of the column with the partition."""
    time_zone: str = "UTC"
    rest: bool = False
    text: str = ""
    """The layout of ``struct``, the schema of ``avro``."""
    descriptors: bytes = field(default=b"", repr=False)
    """Of ``protobuf``: a compiled descriptor set."""
    message: str = ""
    """Of ``protobuf``: a message's full name."""
    registry: str = ""
    """Of ``avro`` and ``protobuf``: addresses of the registry that values name their schemas in; without it values have
    no prefix."""

    def decoder(self) -> ValueDecoder:
        """SchemaError of the format for a text that is none."""
        if self.format == "raw":
            return RawDecoder()
        if self.format == "json":
            from holdfast.records.typed.json import JsonDecoder

            return JsonDecoder(self.fields, time_zone=self.time_zone, rest=self.rest)
        form = ValueFormat(
            name=self.format,
            text=self.text,
            descriptors=self.descriptors,
            message=self.message,
            registry=RegistrySettings(urls=self.registry) if self.registry else None,
        )
        return kept_decoder(form)

    def schema(self) -> pa.Schema:
        """Of a new table. SchemaError where a field would hide a column that the lake adds."""
        place = self._place()
        kept = [(VALUE, pa.binary())] if self.keep_value and self.format != "raw" else []
        fields = [pa.field(each.name, signed(each)) for each in self.decoder().schema]
        taken = {name.lower() for name, _ in [*place, *kept]} | {*PARTITIONS}
        for each in fields:
            if each.name.lower() in taken:
                raise SchemaError(
                    f"field {each.name} has the name of a column that the lake adds: give a schema without it"
                )
        return pa.schema([*place, *fields, *kept])

    def _place(self) -> list[tuple[str, pa.DataType]]:
        left_out = {*PARTITIONS, *(() if self.headers else ("_headers",))} - {self.partition}
        return [(name, kind) for name, (_, kind) in PLACE.items() if name not in left_out]

    def bad_schema(self) -> pa.Schema:
        """Of the table of what could not be decoded."""
        place = self._place()
        return pa.schema([*place, (VALUE, pa.binary()), (CORRUPT, pa.string())])
