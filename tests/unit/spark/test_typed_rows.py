"""What an executor makes of keys and values: Arrow batches as Spark expects them, and what becomes of bad ones."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.model.types import TopicPartition
from holdfast.spark.options import parse_read
from holdfast.spark.typed_columns import schema_of, settled
from holdfast.spark.typed_options import parse_typed
from holdfast.spark.typed_rows import BadRecordError, TypedRows

BASE = {
    "kafka.bootstrap.servers": "a:1",
    "subscribe": "t",
    "value.format": "json",
    "value.schema": "id BIGINT, n STRING",
}
KEYS = {"key.format": "struct", "key.schema": "a:>i4, b:u1"}
TP = TopicPartition("t", 3)
ARRAYS = {
    "key": pa.array([b"\0\0\0\1\2", None, b"longer", b"\0\0\0\4\xff"], pa.binary()),
    "value": pa.array([b'{"id":1,"n":"x"}', None, b'{"id":3}', b'{"id":"four"}'], pa.binary()),
    "offset": pa.array([7, 8, 9, 12], pa.int64()),
    "partition": pa.array([3, 3, 3, 3], pa.int32()),
}


def rows(given: dict[str, str], *names: str) -> TypedRows:
    typed = parse_typed(BASE | given, streaming=False)
    assert typed is not None
    columns = settled(typed, parse_read(BASE | given, streaming=False), None)
    fields = schema_of(columns, False)
    schema = StructType([fields[name] for name in names])
    return TypedRows(pickle.loads(pickle.dumps(columns)), to_arrow_schema(schema, timezone="UTC"))


def read(made: TypedRows) -> list[dict[str, Any]]:
    return [row for batch in made.batches(TP, ARRAYS) for row in batch.to_pylist()]


def test_bad_values_and_keys_are_null_and_their_bytes_kept() -> None:
    made = rows(KEYS | {"badRecords": "null"}, "n", "id", "key", "offset", "_corrupt_record", "_corrupt_key")
    assert read(made) == [
        {"n": "x", "id": 1, "key": {"a": 1, "b": 2}, "offset": 7, "_corrupt_record": None, "_corrupt_key": None},
        {"n": None, "id": None, "key": None, "offset": 8, "_corrupt_record": None, "_corrupt_key": None},
        {"n": None, "id": 3, "key": None, "offset": 9, "_corrupt_record": None, "_corrupt_key": b"longer"},
        {"n": None, "id": None, "key": {"a": 4, "b": 255}, "offset": 12, "_corrupt_record": b'{"id":"four"}',
         "_corrupt_key": None},
    ]  # fmt: skip


def test_bad_records_end_the_query_by_name() -> None:
    with pytest.raises(BadRecordError) as raised:
        read(rows(KEYS, "id", "key"))
    assert str(raised.value) == (
        "topic t, partition 3, offset 9: key: the value has 6 bytes, the layout has 5 (badRecords=fail)"
    )
    with pytest.raises(
        BadRecordError, match='topic t, partition 3, offset 12: value: field id: expected int64, found "f'
    ):
        read(rows({}, "id"))


def test_bad_records_are_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    made = rows(KEYS | {"badRecords": "skip"}, "id", "key", "partition")
    with caplog.at_level(logging.WARNING):
        assert [row["id"] for row in read(made)] == [1, None]
        read(made)
        made.tell()
    [record] = caplog.records
    assert record.getMessage().startswith(
        "badRecords=skip: 4 records are left out; the first: topic t, partition 3, offset 9: key: the value has 6 bytes"
    )
    none = rows({"badRecords": "skip"}, "id")
    bad = {name: array.slice(3) for name, array in ARRAYS.items()}
    assert list(none.batches(TP, bad)) == []


def test_narrow_queries_decode_what_is_asked_for_and_nothing_else() -> None:
    assert rows(KEYS, "n").source_columns == ("offset", "value")
    assert [row["n"] for row in read(rows(KEYS | {"badRecords": "null"}, "n"))] == ["x", None, None, None]
    only = rows(KEYS, "offset", "partition")
    assert only.source_columns == ("offset", "partition") and len(read(only)) == 4  # bad ones too
    # Whoever asks for what is bad has all of it looked at.
    found = read(rows({"badRecords": "null"}, "_corrupt_record"))
    assert [row["_corrupt_record"] for row in found] == [None, None, None, b'{"id":"four"}']


def test_values_as_one_column() -> None:
    found = read(rows({"value.as": "struct", "badRecords": "null"}, "value", "key"))
    assert [row["value"] for row in found] == [{"id": 1, "n": "x"}, None, {"id": 3, "n": None}, None]
    assert found[2]["key"] == b"longer"
