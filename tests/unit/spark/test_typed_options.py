"""Typed reading: options, the columns that come out, and what is wrong with both, each by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, _parse_datatype_json_string

from holdfast.spark.options import OptionError, parse_read
from holdfast.spark.typed_columns import TypedColumns, check_typed_schema, schema_of, settled
from holdfast.spark.typed_options import parse_typed

BASE = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
JSON = {"value.format": "json", "value.schema": "id BIGINT, name STRING"}


def columns(given: dict[str, str], schema: StructType | None = None, *, streaming: bool = False) -> TypedColumns:
    typed = parse_typed(BASE | given, streaming=streaming)
    assert typed is not None
    found = settled(typed, parse_read(BASE | given, streaming=streaming), schema)
    if schema is not None:
        check_typed_schema(schema, found)
    return found


def kinds(given: dict[str, str], *, headers: bool = False) -> str:
    found = schema_of(columns(given), headers)
    return " ".join(f"{field.name}:{field.dataType.simpleString()}" for field in found.fields)


def struct(**kinds: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


PLACE = "topic:string partition:int offset:bigint timestamp:timestamp timestampType:int"


def test_raw_is_the_default_and_needs_none_of_it() -> None:
    assert parse_typed(BASE, streaming=False) is None
    assert parse_typed(BASE | {"value.format": "RAW", "key.format": "raw"}, streaming=True) is None


def test_the_columns_of_values_and_keys() -> None:
    assert kinds(JSON) == f"id:bigint name:string key:binary {PLACE}"
    assert kinds(JSON, headers=True).endswith(" headers:array<struct<key:string,value:binary>>")
    both = {**JSON, "key.format": "struct", "key.schema": "k:>i8, small:u1", "badRecords": "null"}
    corrupt = "_corrupt_record:binary _corrupt_key:binary"
    assert kinds(both) == f"id:bigint name:string key:struct<k:bigint,small:smallint> {PLACE} {corrupt}"
    nested = {**both, "value.as": "struct", "badRecords": "skip"}
    assert kinds(nested) == (f"key:struct<k:bigint,small:smallint> value:struct<id:bigint,name:string> {PLACE}")
    assert kinds({"key.format": "json", "key.schema": "user STRING"}) == f"key:struct<user:string> value:binary {PLACE}"


def test_a_schema_in_sparks_json_and_in_a_file(tmp_path: Path) -> None:
    text = struct(id=LongType(), tags=ArrayType(StringType())).json()
    file = tmp_path / "schema"
    file.write_text(text + "\n")
    expected = f"id:bigint tags:array<string> key:binary {PLACE}"
    assert kinds({"value.format": "json", "value.schema": text}) == expected
    assert kinds({"value.format": "json", "value.schema.file": str(file)}) == expected


def test_a_users_schema_is_a_projection_and_json_needs_no_other() -> None:
    asked = struct(offset=LongType(), name=StringType())
    assert columns(JSON, asked).value_fields.names == ["id", "name"]
    found = columns({"value.format": "json"}, asked, streaming=True)
    assert found.value_fields.names == ["name"]
    nested = struct(value=struct(offset=LongType()), key=struct(a=StringType()), offset=LongType())
    found = columns({"value.format": "json", "value.as": "struct", "key.format": "json"}, nested)
    assert (found.value_fields.names, found.key_fields.names) == (["offset"], ["a"])
    assert columns({"value.format": "json", "key.format": "json"}, asked).key_fields.names == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"value.format": "xml"}, "value.format='xml': expected raw, json, struct, avro, protobuf"),
        ({"value.format": "json"}, "value.schema is missing: expected Spark's DDL"),
        ({"value.format": "json", "value.schema": "id whole"}, "value.format=json: schema 'id whole': at position 3"),
        ({"value.format": "json", "value.schema": '{"type":"struct"}'}, "no schema in Spark's JSON"),
        ({"value.format": "json", "value.schema": "m MAP<STRING,INT>"}, "field m: no JSON is decoded into map"),
        ({**JSON, "value.schema.file": "x"}, "value.schema and value.schema.file are both given"),
        ({"value.format": "json", "value.schema.file": "nowhere"}, "value.schema.file='nowhere': No such file"),
        ({**JSON, "value.time.zone": "Mars"}, "value.time.zone='Mars'"),
        ({**JSON, "value.message": "a.B"}, "value.message is of protobuf: value.format is json"),
        ({"value.schema": "id INT"}, "value.schema is of json and struct and avro: value.format is raw"),
        ({**JSON, "badRecords": "drop"}, "badRecords='drop': expected fail, null or skip"),
        ({"badRecords": "skip"}, "badRecords='skip' needs a value.format"),
        ({**JSON, "value.as": "map"}, "value.as='map': expected columns or struct"),
        ({"value.as": "struct"}, "value.as='struct' needs a value.format"),
        ({"value.format": "struct"}, "value.schema is missing: expected the layout"),
        ({"value.format": "struct", "value.schema": "a:>u8"}, "field a is uint64, which Spark and tables have not"),
        ({"value.format": "struct", "value.schema": "a:i8"}, "value.format=struct: field 'a'"),
        ({"value.format": "avro"}, "value.schema or value.schema.file is missing, or value.schema.registry.url"),
        ({"value.format": "avro", "value.schema": "{"}, "value.format=avro: "),
        ({"key.format": "protobuf", "key.message": "a.B"}, "key.schema.file, a descriptor set, is missing"),
        ({"key.format": "avro", "key.schema.subject": "s"}, "key.schema.subject needs key.schema.registry.url"),
        ({"key.format": "avro", "key.schema.registry.user": "s"}, "registry.user needs key.schema.registry.url"),
    ],
)
def test_what_is_wrong_is_said_by_name(given: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        columns(given)


def test_settings_of_a_registry_go_together() -> None:
    avro = {"value.format": "avro", "value.schema.registry.url": "http://r:8081", "value.schema": '"long"'}
    start = "value.schema.registry."
    for more, words in (
        ({f"{start}user": "u"}, "registry.user and value.schema.registry.password: expected both"),
        ({f"{start}user": "u", f"{start}password": "p", f"{start}token": "t"}, "expected one of them"),
        ({f"{start}url": "r:8081"}, "registry.url: schema registry 'r:8081': expected http"),
        ({"value.schema.subject": "s"}, "value.schema or its file already says what is read"),
        ({f"{start}ca": "no PEM"}, "the registry's CA is no PEM text"),
    ):
        with pytest.raises(OptionError, match=words):
            columns({**avro, **more})
    found = columns({**avro, f"{start}token": "secret"})
    assert found.value is not None and "secret" not in repr(found)


def test_a_stream_infers_nothing() -> None:
    with pytest.raises(OptionError, match=r"value\.schema='infer' is not for a stream"):
        parse_typed(BASE | {"value.format": "json", "value.schema": "infer"}, streaming=True)


def test_names_that_clash_are_refused_where_they_are_asked_for() -> None:
    given = {"value.format": "json", "value.schema": "id BIGINT, Offset BIGINT"}
    with pytest.raises(OptionError, match=r"field Offset, which is also .* value.as=struct"):
        kinds(given)
    assert kinds({**given, "value.as": "struct"}).startswith("value:struct<id:bigint,Offset:bigint> key:binary")
    columns(given, struct(id=LongType()))
    with pytest.raises(OptionError, match="field Offset"):
        columns(given, struct(id=LongType(), offset=LongType()))
    with pytest.raises(OptionError, match="field _corrupt_record"):
        kinds({"value.format": "json", "value.schema": "_corrupt_record STRING", "badRecords": "null"})


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (StructType([]), "the schema has no columns"),
        (struct(colour=StringType()), "there is no column 'colour'; there are id, name, key, topic"),
        (struct(value=StringType()), "there is no column 'value'"),
        (struct(id=StringType()), "column id is bigint, not string"),
        (StructType([StructField("id", LongType(), False)]), "column id is NOT NULL"),
        (struct(key=struct(c=LongType())), "column key has no field 'c'; it has a, b"),
        (struct(key=struct(a=StringType())), "column key.a is bigint, not string"),
        (struct(key=StructType([])), "column key has no fields; there are a, b"),
        (struct(key=StructType([StructField("a", LongType(), False)])), "column key is NOT NULL"),
        (StructType([StructField("id", LongType())] * 2), "column id is there twice"),
    ],
)
def test_a_schema_of_other_columns_is_refused(asked: StructType, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        columns({**JSON, "key.format": "struct", "key.schema": "a:>i8, b:<f4"}, asked)


def test_a_schema_comes_back_from_spark_as_it_went() -> None:
    """Spark hands it to the reader as JSON."""
    given = {**JSON, "key.format": "json", "key.schema": "tags ARRAY<STRING>, who STRUCT<a: DECIMAL(9,2)>"}
    sent = schema_of(columns(given), True)
    back = _parse_datatype_json_string(sent.json())
    assert isinstance(back, StructType)
    columns(given, back)
