"""JSON values to typed columns: the schema, and what is wrong with a record that does not fit it.

Owns inference from a sample, the file that keeps the schema beside a checkpoint, and the reasons of bad records.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.spark.landing import write_json

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

SCHEMA_FILE: Final = "holdfast-lake-schema.json"
CORRUPT: Final = "_corrupt"
PLACE_COLUMNS: Final = ("_topic", "_partition", "_offset", "_timestamp", "_key")
"""Columns that every landed row has beside those of its JSON: where it was in the log."""


class SchemaError(ValueError):
    """There is no usable schema for the values."""


def given_schema(text: str) -> "StructType":
    """A schema as a user gives it: DDL, JSON, or the path of a file with one of them."""
    from pyspark.sql.types import StructType

    path = Path(text)
    content = path.read_text() if "\n" not in text and len(text) < 4096 and path.is_file() else text
    content = content.strip()
    try:
        if content.startswith("{"):
            return StructType.fromJson(json.loads(content))
        parsed_ddl = StructType.fromDDL(content)
    except Exception as error:
        first = str(error).splitlines()[0]
        raise SchemaError(f"schema {text!r} is neither a file, nor DDL, nor Spark's JSON: {first}") from None
    if not isinstance(parsed_ddl, StructType):
        raise SchemaError(f"schema {text!r} is a single type: expected fields, like 'id BIGINT, name STRING'")
    return parsed_ddl


def kept_schema(checkpoint: Path, given: "StructType | None") -> "StructType | None":
    """The schema that an earlier run kept. SchemaError if another one is given now."""
    from pyspark.sql.types import StructType

    file = checkpoint / SCHEMA_FILE
    if not file.is_file():
        return None
    kept = StructType.fromJson(json.loads(file.read_text()))
    if given is not None and given != kept:
        raise SchemaError(
            f"checkpoint {checkpoint} was started with the schema {kept.simpleString()}: "
            "one directory has one schema; use a new checkpoint and a new directory for another"
        )
    return kept


def keep_schema(checkpoint: Path, schema: "StructType") -> None:
    checkpoint.mkdir(parents=True, exist_ok=True)
    write_json(checkpoint / SCHEMA_FILE, schema.jsonValue())


def inferred_schema(spark: "SparkSession", values: "DataFrame", topic: str) -> "StructType":
    """The schema of a sample: one column ``value`` of bytes. SchemaError if there is no JSON object in it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    lines = values.where(F.expr("is_valid_utf8(value)")).select(F.col("value").cast("string").alias("value"))
    # Objects over several lines are records of one value each, so one string is one document.
    found = spark.read.option("columnNameOfCorruptRecord", CORRUPT).json(lines.rdd.map(lambda row: row.value)).schema
    fields = [
        StructField(field.name, field.dataType if field.dataType.typeName() != "void" else StringType())
        for field in found.fields
        if field.name != CORRUPT
    ]
    if not fields:
        raise SchemaError(f"no JSON object among the first records of topic {topic}: give a schema")
    return StructType(fields)


def check_schema(schema: "StructType") -> None:
    """SchemaError if a field would hide a column of ours."""
    for name in schema.fieldNames():
        if name in PLACE_COLUMNS or name == CORRUPT:
            raise SchemaError(
                f"field {name} of the JSON has the name of a column that lake adds: give a schema without"
            )


def parsed(records: "DataFrame", schema: "StructType", *, keep_value: bool) -> "DataFrame":
    """Adds the fields of the JSON, and ``_corrupt``: null for a good record, else the bytes as text (or "")."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    with_corrupt = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    text = F.expr("CASE WHEN is_valid_utf8(value) THEN cast(value AS string) END")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    place: list[Column] = [F.col(name[1:]).alias(name) for name in PLACE_COLUMNS]
    rows = records.select(*place, "value", F.from_json(text, with_corrupt, options).alias("json"))
    # from_json answers a null struct for a null, and a struct of nulls for some values that are no objects.
    no_object = "ltrim(cast(value AS string)) NOT LIKE '{%'"
    bad = f"CASE WHEN json IS NULL OR {no_object} THEN coalesce(json.{CORRUPT}, '') ELSE json.{CORRUPT} END"
    kept = ["value"] if keep_value else []
    fields = [F.col("json")[name].alias(name) for name in schema.fieldNames()]
    return rows.select(*PLACE_COLUMNS, *fields, *kept, F.expr(bad).alias(CORRUPT), *([] if keep_value else ["value"]))


def why_bad(value: bytes | None, schema_json: str) -> str:
    """The reason in words; runs for bad records only."""
    if value is None:
        return "the value is null"
    try:
        text = bytes(value).decode()
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {error.start}"
    try:
        parsed_value = json.loads(text)
    except ValueError as error:
        return f"not JSON: {error}"
    if not isinstance(parsed_value, dict):
        return f"not a JSON object but {_kind(parsed_value)}"
    for field in json.loads(schema_json)["fields"]:
        found = parsed_value.get(field["name"])
        if found is not None and not _fits(found, field["type"]):
            shown = json.dumps(found)
            wanted = field["type"] if isinstance(field["type"], str) else field["type"].get("type")
            return f"field {field['name']}: expected {wanted}, found {shown if len(shown) < 80 else shown[:77] + '...'}"
    return "does not fit the schema"


_WHOLE: Final = {"byte": 1 << 7, "short": 1 << 15, "integer": 1 << 31, "long": 1 << 63}


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, dict):
        return isinstance(value, list if kind.get("type") == "array" else dict)
    if kind in _WHOLE:
        return type(value) is int and -_WHOLE[kind] <= value < _WHOLE[kind]
    if kind in ("double", "float"):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    # A date or time of the right form would not have been bad.
    return kind not in ("date", "timestamp", "timestamp_ntz")


def _kind(value: Any) -> str:
    return (
        "null" if value is None else {list: "an array", str: "a string", bool: "a boolean"}.get(type(value), "a number")
    )
