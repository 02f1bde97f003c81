"""Which columns a typed read has: the value's fields, the key's in a column ``key``, and what a record has beside them.

Owns what comes out, in which order, and the words about names that clash. Plans only; typed_rows.py makes the columns.

    value.format            the value's fields are columns; with value.as=struct they are in one column ``value``
    key.format              the key's fields are in a struct ``key``
    topic, partition, offset, timestamp, timestampType, headers     as in a raw read
    badRecords=null         ``_corrupt_record`` and ``_corrupt_key``: the bytes that were no value, or no key

A schema of the user's is a projection: of JSON that names no schema it is also the schema.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.records.typed.schema_error import SchemaError
from holdfast.spark.options import OptionError, ReadOptions
from holdfast.spark.typed_options import BadRecords, FormatOptions, TypedOptions
from holdfast.spark.value_formats import ValueFormat, signed

CORRUPT: Final = {"value": "_corrupt_record", "key": "_corrupt_key"}
_HEADERS: Final = "headers"
_PLACE: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    _HEADERS: ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumns:
    """What a typed read can answer."""

    value: ValueFormat | None
    key: ValueFormat | None
    value_is_struct: bool
    bad: BadRecords
    value_fields: pa.Schema
    """As Spark has them: of signed numbers. Empty where values are raw."""
    key_fields: pa.Schema

    def structs(self) -> dict[str, pa.Schema]:
        """Columns that hold the fields of a key or value."""
        found = {}
        if self.key is not None:
            found["key"] = self.key_fields
        if self.value is not None and self.value_is_struct:
            found["value"] = self.value_fields
        return found

    def top(self) -> pa.Schema:
        """Fields of values that are columns themselves."""
        return self.value_fields if self.value is not None and not self.value_is_struct else pa.schema([])

    def others(self) -> dict[str, DataType]:
        """Columns that are no fields of keys and values."""
        forms = {"value": self.value, "key": self.key}
        raw: dict[str, DataType] = {of: BinaryType() for of in ("key", "value") if forms[of] is None}
        corrupt = {CORRUPT[of]: BinaryType() for of, form in forms.items() if form is not None and self.bad == "null"}
        return raw | _PLACE | corrupt

    def all(self) -> dict[str, DataType]:
        """Every column, in their order. OptionError for a name that is there twice."""
        self.check_names(self.top().names)
        return self.unambiguous()

    def check_names(self, asked: list[str]) -> None:
        """OptionError for a field of values that has the name of another column."""
        taken, wanted = self._taken(), {name.lower() for name in asked}
        for field in self.top():
            if field.name.lower() in taken & wanted:
                raise OptionError(
                    f"the value has a field {field.name}, which is also the name of a column of the record: with the "
                    "option value.as=struct the value's fields are in a column value"
                )

    def unambiguous(self) -> dict[str, DataType]:
        """All but those fields: who does not ask for them need not mind."""
        taken = self._taken()
        found = {each.name: from_arrow_type(each.type) for each in self.top() if each.name.lower() not in taken}
        found |= {name: _struct(fields) for name, fields in self.structs().items()}
        return found | self.others()

    def _taken(self) -> set[str]:
        return {name.lower() for name in (*self.structs(), *self.others())}


def _struct(fields: pa.Schema) -> StructType:
    return StructType([StructField(each.name, from_arrow_type(each.type)) for each in fields])


def schema_of(columns: TypedColumns, include_headers: bool) -> StructType:
    """All columns that there are when the user names none."""
    kinds = columns.all()
    return StructType([StructField(name, kinds[name]) for name in kinds if include_headers or name != _HEADERS])


def check_typed_schema(schema: StructType, columns: TypedColumns) -> None:
    """OptionError unless the user's schema takes columns that there are, with their types."""
    names = schema.fieldNames()
    if not names:
        raise OptionError("the schema has no columns")
    columns.check_names(names)
    kinds, others = columns.unambiguous(), columns.others()
    for field in schema.fields:
        known, kind = kinds.get(field.name), field.dataType
        if known is None:
            raise OptionError(f"schema: there is no column {field.name!r}; there are {', '.join(kinds)}")
        if names.count(field.name) > 1:
            raise OptionError(f"schema: column {field.name} is there twice")
        if field.name not in others and (not field.nullable or _needs_values(kind)):
            raise OptionError(f"schema: column {field.name} is NOT NULL: a record without a value is a row of nulls")
        if field.name in columns.structs() and isinstance(kind, StructType) and isinstance(known, StructType):
            _check_struct(field.name, kind, known)
        elif kind.simpleString() != known.simpleString():
            raise OptionError(f"schema: column {field.name} is {known.simpleString()}, not {kind.simpleString()}")


def _check_struct(name: str, kind: StructType, known: StructType) -> None:
    fields = {each.name: each.dataType.simpleString() for each in known.fields}
    if not kind.fields:
        raise OptionError(f"schema: column {name} has no fields; there are {', '.join(fields)}")
    for each in kind.fields:
        if each.name not in fields:
            raise OptionError(f"schema: column {name} has no field {each.name!r}; it has {', '.join(fields)}")
        if each.dataType.simpleString() != fields[each.name]:
            raise OptionError(
                f"schema: column {name}.{each.name} is {fields[each.name]}, not {each.dataType.simpleString()}"
            )


def _needs_values(kind: DataType) -> bool:
    """Something within it is NOT NULL."""
    if isinstance(kind, StructType):
        return any(not each.nullable or _needs_values(each.dataType) for each in kind.fields)
    if isinstance(kind, ArrayType):
        return not kind.containsNull or _needs_values(kind.elementType)
    return isinstance(kind, MapType) and (not kind.valueContainsNull or _needs_values(kind.valueType))


# -- settling ----------------------------------------------------------------------------------------------------------


def settled(options: TypedOptions, read: ReadOptions, given: StructType | None) -> TypedColumns:
    """What the options and the user's schema say, or a registry, or a sample of the newest records. OptionError names
    the option that is missing or wrong; RegistryError if a registry cannot be asked."""
    made: dict[str, ValueFormat | None] = {"key": None, "value": None}
    for each in (options.key, options.value):
        if each is None:
            continue
        try:
            made[each.of] = _format(each, options, read, given)
        except SchemaError as error:
            raise OptionError(f"option {each.of}.format={each.name}: {error}") from None
    key, value = made["key"], made["value"]
    columns = {of: _columns(of, form) for of, form in made.items()}
    return TypedColumns(
        value=value,
        key=key,
        value_is_struct=options.value_is_struct,
        bad=options.bad,
        value_fields=columns["value"],
        key_fields=columns["key"],
    )


def _columns(of: str, form: ValueFormat | None) -> pa.Schema:
    if form is None:
        return pa.schema([])
    try:
        return pa.schema([(each.name, signed(each)) for each in form.columns()])
    except SchemaError as error:
        raise OptionError(f"option {of}.format={form.name}: {error}") from None


def _format(each: FormatOptions, options: TypedOptions, read: ReadOptions, given: StructType | None) -> ValueFormat:
    match each.name:
        case "json":
            return ValueFormat(name="json", fields=_json_fields(each, options, read, given), time_zone=each.time_zone)
        case "struct":
            return ValueFormat(name="struct", text=each.schema or "")
        case "avro":
            return ValueFormat(name="avro", text=each.schema or _subject_text(each, read), registry=each.registry)
        case "protobuf":
            return ValueFormat(
                name="protobuf",
                descriptors=each.descriptors or _subject_descriptors(each, read),
                message=each.message or "",
                registry=each.registry,
            )


def _json_fields(each: FormatOptions, options: TypedOptions, read: ReadOptions, given: StructType | None) -> pa.Schema:
    if each.schema is not None and not each.inferred:
        return arrow_fields(each.schema)
    nested = each.of == "key" or options.value_is_struct
    if given is not None:
        return _given_fields(each.of, given, options, nested=nested)
    if each.inferred:
        return _inferred(each, read)
    raise OptionError(
        f"option {each.of}.schema is missing: expected Spark's DDL, as 'id BIGINT, name STRING', or "
        f"{each.of}.schema.file, or infer (in a batch read), or the columns that are wanted by .schema(...)"
    )


def _given_fields(of: str, given: StructType, options: TypedOptions, *, nested: bool) -> pa.Schema:
    """JSON's fields as the user's own schema has them."""
    if nested:
        field = next((field for field in given.fields if field.name == of), None)
        if field is None:
            return pa.schema([])
        if not isinstance(field.dataType, StructType):
            raise OptionError(
                f"schema: column {of} is a struct of the {of}'s fields, not {field.dataType.simpleString()}"
            )
        return _arrow(field.dataType)
    corrupt = CORRUPT.values() if options.bad == "null" else ()
    taken = {"key", *_PLACE, *corrupt}
    return _arrow(StructType([field for field in given.fields if field.name not in taken]))


def _arrow(kind: StructType) -> pa.Schema:
    return pa.schema([(each.name, each.type) for each in to_arrow_schema(kind, timezone="UTC")])


def arrow_fields(text: str) -> pa.Schema:
    """Of DDL, or of a schema in Spark's JSON. SchemaError for what is neither."""
    from holdfast.records.typed.ddl import parse_ddl

    if not text.startswith("{"):
        return parse_ddl(text)
    try:
        return _arrow(StructType.fromJson(json.loads(text)))
    except Exception as error:  # whatever Spark's classes meet in JSON that is no schema
        raise SchemaError(f"this is no schema in Spark's JSON: {str(error).splitlines()[:1]}") from None


def _inferred(each: FormatOptions, read: ReadOptions) -> pa.Schema:
    from holdfast.records.typed.json import inferred
    from holdfast.spark.sample import newest, sample
    from holdfast.spark.topics import Topics

    found = inferred(sample(newest(Topics(read)), read, each.of))
    if not len(found):
        raise OptionError(
            f"option {each.of}.schema=infer: there is no JSON object among the newest records of {read.subscription}"
        )
    return found


# -- registries --------------------------------------------------------------------------------------------------------


def _subject(each: FormatOptions, read: ReadOptions) -> str:
    if each.subject is not None:
        return each.subject
    topics = read.subscription.topics or tuple(read.subscription.assigned or ())
    if len(topics) != 1:
        raise OptionError(
            f"option {each.of}.schema.subject is missing: {read.subscription} is not of one topic, whose "
            "subject it would be"
        )
    return f"{topics[0]}-{each.of}"


def _newest(each: FormatOptions, read: ReadOptions, kind: str) -> Any:
    assert each.registry is not None, "typed_options.py asks for a schema or a registry"
    subject = _subject(each, read)
    found = each.registry.client().latest(subject)
    if found is None or found.schema.kind != kind:
        what = "no such subject" if found is None else f"it of type {found.schema.kind}"
        raise OptionError(
            f"option {each.of}.schema.subject: expected a schema of type {kind} as {subject}, the registry has {what}"
        )
    return found.schema


def _subject_text(each: FormatOptions, read: ReadOptions) -> str:
    from holdfast.records.typed.avro_schema import joined

    found = _newest(each, read, "AVRO")
    return joined(found.text, found.references)


def _subject_descriptors(each: FormatOptions, read: ReadOptions) -> bytes:
    from holdfast.records.typed.protobuf_files import registered_set

    found = _newest(each, read, "PROTOBUF")
    return registered_set(found.text, found.references)
