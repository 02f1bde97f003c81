"""Why a record is bad, in words; and schemas as users give them."""

import json
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from holdfast.spark.json_records import SchemaError, check_schema, given_schema, keep_schema, kept_schema, why_bad

FIELDS = "id BIGINT, ratio DOUBLE, ok BOOLEAN, small INT, day DATE, tags ARRAY<STRING>, inner STRUCT<x: BIGINT>"
SCHEMA = {"id": "long", "ratio": "double", "ok": "boolean", "small": "integer", "day": "date"}
SCHEMA_JSON = json.dumps(
    {
        "fields": [{"name": name, "type": kind} for name, kind in SCHEMA.items()]
        + [{"name": "tags", "type": {"type": "array"}}, {"name": "inner", "type": {"type": "struct"}}]
    }
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "the value is null"),
        (b"\xff\xfe", "not UTF-8: byte 0"),
        (b"nonsense", "not JSON: Expecting value"),
        (b'{"id": 1', "not JSON: "),
        (b"[1]", "not a JSON object but an array"),
        (b"7", "not a JSON object but a number"),
        (b"null", "not a JSON object but null"),
        (b'"x"', "not a JSON object but a string"),
        (b'{"id": "abc"}', 'field id: expected long, found "abc"'),
        (b'{"id": 1.5}', "field id: expected long, found 1.5"),
        (b'{"id": true}', "field id: expected long, found true"),
        (b'{"small": 3000000000}', "field small: expected integer, found 3000000000"),
        (b'{"ratio": "x"}', 'field ratio: expected double, found "x"'),
        (b'{"ok": 1}', "field ok: expected boolean, found 1"),
        (b'{"day": "never"}', 'field day: expected date, found "never"'),
        (b'{"tags": 1}', "field tags: expected array, found 1"),
        (b'{"inner": []}', "field inner: expected struct, found []"),
        (b'{"id": "' + b"y" * 200 + b'"}', "..."),
        (b'{"id": 1, "other": 2}', "does not fit the schema"),
    ],
)
def test_reasons(value: bytes | None, words: str) -> None:
    assert words in why_bad(value, SCHEMA_JSON)


def test_the_kept_schema_rules(tmp_path: Path) -> None:
    schema = StructType([StructField("id", LongType()), StructField("name", StringType())])
    assert kept_schema(tmp_path, None) is None
    keep_schema(tmp_path, schema)
    assert kept_schema(tmp_path, None) == schema
    assert kept_schema(tmp_path, schema) == schema
    with pytest.raises(SchemaError, match="one directory has one schema"):
        kept_schema(tmp_path, StructType([StructField("id", LongType())]))
    with pytest.raises(SchemaError, match="field _offset"):
        check_schema(StructType([StructField("_offset", LongType())]))


def test_a_schema_may_be_sparks_json_or_a_file_with_it(tmp_path: Path) -> None:
    schema = StructType([StructField("id", LongType())])
    assert given_schema(schema.json()) == schema
    (tmp_path / "schema.json").write_text(schema.json())
    assert given_schema(str(tmp_path / "schema.json")) == schema
    with pytest.raises(SchemaError, match="neither a file, nor DDL, nor Spark's JSON"):
        given_schema("{broken")
