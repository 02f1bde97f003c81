"""A format of keys or values, settled: what its columns are, and its decoder.

Owns which decoder a format has. Travels to executors by pickle, and is equal to another one that decodes the same, so
that an executor keeps its decoder for the tasks that follow. No Spark. Columns are known without loading a kernel:
planning decodes nothing.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pyarrow as pa

from holdfast.records.typed.decoding import ValueDecoder
from holdfast.records.typed.schema_error import SchemaError

if TYPE_CHECKING:
    from holdfast.registry.client import SchemaRegistry

FormatName: TypeAlias = Literal["json", "struct", "avro", "protobuf"]
MAX_DECODERS: Final = 16
"""That a process keeps, the latest used ones."""
_WIDER: Final = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Where a schema registry is, and who asks."""

    urls: str
    """Of the same registry, with commas between."""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca: str = field(default="", repr=False)
    """PEM text; empty for the system's authorities."""

    def client(self) -> "SchemaRegistry":
        """ValueError for settings that cannot be."""
        from holdfast.registry.client import BasicAuth, BearerAuth, SchemaRegistry

        auth: BasicAuth | BearerAuth | None = None
        if self.token:
            auth = BearerAuth(token=self.token)
        elif self.user:
            auth = BasicAuth(user=self.user, password=self.password)
        return SchemaRegistry(self.urls, auth=auth, ca=self.ca or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFormat:
    """How bytes become columns."""

    name: FormatName
    fields: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """Of ``json``."""
    time_zone: str = "UTC"
    """Of ``json``: of times that name none."""
    text: str = ""
    """The layout of ``struct``, the reader's schema of ``avro``."""
    descriptors: bytes = field(default=b"", repr=False)
    """Of ``protobuf``: a compiled descriptor set."""
    message: str = ""
    """Of ``protobuf``: a message's full name."""
    registry: RegistrySettings | None = None
    """Of ``avro`` and ``protobuf``: values begin with an id of it."""

    def columns(self) -> pa.Schema:
        """Of the decoder. SchemaError for a schema that is none, or has what no column holds."""
        match self.name:
            case "json":
                from holdfast.records.typed.json_targets import check_target

                for each in self.fields:
                    check_target(each)
                return self.fields
            case "struct":
                return self.decoder().schema
            case "avro":
                from holdfast.records.typed.avro_schema import arrow_type, parse

                return pa.schema([(each.name, arrow_type(each.type, each.name)) for each in parse(self.text).fields])
            case "protobuf":
                from holdfast.records.typed.protobuf_schema import field_type, message_of

                message = message_of(self.descriptors, self.message)
                return pa.schema([(each.name, field_type(each, each.name)) for each in message.fields])

    def decoder(self) -> ValueDecoder:
        """SchemaError for a schema that is none."""
        match self.name:
            case "json":
                from holdfast.records.typed.json import JsonDecoder

                return JsonDecoder(self.fields, time_zone=self.time_zone)
            case "struct":
                from holdfast.records.typed.fixed import FixedLayout

                return FixedLayout.parse(self.text)
            case "avro":
                return self._avro()
            case "protobuf":
                return self._protobuf()

    def _avro(self) -> ValueDecoder:
        from holdfast.records.typed.avro import AvroDecoder
        from holdfast.records.typed.confluent import RegistryAvroDecoder

        if self.registry is None:
            return AvroDecoder.parse(self.text)
        return RegistryAvroDecoder(self.text, self.registry.client().by_id)

    def _protobuf(self) -> ValueDecoder:
        from holdfast.records.typed.confluent_protobuf import RegistryProtobufDecoder
        from holdfast.records.typed.protobuf import ProtobufDecoder

        decoder = ProtobufDecoder.parse(self.descriptors, self.message)
        return decoder if self.registry is None else RegistryProtobufDecoder(decoder, self.registry.client().by_id)


@lru_cache(MAX_DECODERS)
def kept_decoder(form: ValueFormat, names: tuple[str, ...] | None = None) -> ValueDecoder:
    """Of these columns, or of all. Kept by the process with what a registry has told it, so that not every task asks
    again."""
    decoder = form.decoder()
    return decoder if names is None else decoder.narrowed(names)


def signed(column: pa.Field) -> pa.DataType:
    """What Spark and tables keep a column in: they have no unsigned numbers. SchemaError for one that no type holds."""
    if column.type == pa.uint64():
        raise SchemaError(
            f"field {column.name} is uint64, which Spark and tables have not: expected 8 bytes with a sign, as >i8"
        )
    return _WIDER.get(column.type, column.type)
