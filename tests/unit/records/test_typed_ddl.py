"""Spark's DDL without a JVM. That Spark reads the same is shown in tests/spark/test_typed.py."""

import pyarrow as pa
import pytest

from holdfast.records.typed.ddl import parse_ddl
from holdfast.records.typed.schema_error import SchemaError

UTC = pa.timestamp("us", tz="UTC")


def test_fields_of_every_kind() -> None:
    text = """id BIGINT NOT NULL, `a ``b` : string COMMENT 'it, is "a" name', price decimal(12, 2), plain DECIMAL,
      at timestamp, local timestamp_ntz, day Date, tags array<string>, ok boolean,
      who struct<name: string, age int, inner struct<x:array<double>>>, m map<string,array<int>>"""
    assert parse_ddl(text) == pa.schema(
        [
            ("id", pa.int64()),
            ("a `b", pa.string()),
            ("price", pa.decimal128(12, 2)),
            ("plain", pa.decimal128(10, 0)),
            ("at", UTC),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("tags", pa.list_(pa.field("element", pa.string()))),
            ("ok", pa.bool_()),
            (
                "who",
                pa.struct(
                    [
                        ("name", pa.string()),
                        ("age", pa.int32()),
                        ("inner", pa.struct([("x", pa.list_(pa.field("element", pa.float64())))])),
                    ]
                ),
            ),
            ("m", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int32())))),
        ]
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected the name of a field, found the end"),
        ("id", "at position 2 expected a type"),
        ("id number", "at position 3 expected a type, one of boolean, .*found 'number'"),
        ("id int name string", "expected a comma or the end, found 'name string'"),
        ("id int, id int", "field 'id' is there twice"),
        ("id array<int", "expected '>', found the end"),
        ("id decimal(39,0)", "1 to 38 digits, not decimal\\(39,0\\)"),
        ("id int not", "expected NULL"),
        ("id int comment 5", "expected a comment in quotes"),
        ("id int;", "expected a comma or the end, found ';'"),
        ("a " + "array<" * 60 + "int" + ">" * 60, "nested deeper than 50"),
        ("a " + "struct<a " * 60 + "int" + ">" * 60, "nested deeper than 50"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_ddl(text)
