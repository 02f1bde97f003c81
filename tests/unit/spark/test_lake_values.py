"""The columns of a lake's table, and what a job asks of the source."""

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.records.typed.decoding import UnknownField
from holdfast.records.typed.schema_error import SchemaError
from holdfast.spark.lake import LakeJob
from holdfast.spark.lake_schema import given_schema
from holdfast.spark.lake_values import Values
from holdfast.spark.lake_write import joined_unknown
from holdfast.spark.options import parse_read


def texts(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in names])


def test_spark_D12_a_field_that_would_hide_a_column_is_refused_by_name() -> None:
    Values(format="json", fields=texts("batch", "value")).schema()
    for name in ("_offset", "_Topic", "_key"):
        with pytest.raises(SchemaError, match=f"field {name} has the name of a column that the lake adds"):
            Values(format="json", fields=texts(name)).schema()
    with pytest.raises(SchemaError, match="field value has the name"):
        Values(format="json", fields=texts("value"), keep_value=True).schema()


def test_a_schema_that_is_none_is_refused_in_words() -> None:
    with pytest.raises(SchemaError, match="is neither a file, nor DDL, nor Spark's JSON"):
        given_schema('{"type": "struct"}')
    with pytest.raises(SchemaError, match="field m: no JSON is decoded into map"):
        Values(format="json", fields=pa.schema([("m", pa.map_(pa.string(), pa.int32()))])).schema()


def test_columns_of_a_table_and_of_its_bad_records() -> None:
    fields = given_schema(
        '{"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}},'
        ' {"name": "at", "type": "timestamp", "nullable": true, "metadata": {}}]}'
    )
    values = Values(format="json", fields=fields, keep_value=True, headers=True, rest=True)
    place = ["_topic", "_partition", "_offset", "_timestamp", "_timestampType", "_key", "_headers"]
    assert values.schema().names == [*place, "id", "at", "_rest", "value"]
    assert values.schema().field("at").type == pa.timestamp("us", tz="UTC")
    assert values.bad_schema().names == [*place, "value", "reason"]
    assert Values(format="raw", fields=pa.schema([("value", pa.binary())])).schema().names == [*place[:-1], "value"]


def test_unsigned_numbers_are_kept_in_wider_ones() -> None:
    layout = Values(format="struct", fields=pa.schema([]), text="a:u1, b:>u4, c:<i2")
    assert [layout.schema().field(name).type for name in "abc"] == [pa.int16(), pa.int64(), pa.int16()]
    with pytest.raises(SchemaError, match="field d is uint64, which Spark and tables have not"):
        Values(format="struct", fields=pa.schema([]), text="d:>u8").schema()


def test_unknown_fields_of_several_tasks_are_one() -> None:
    one = joined_unknown(None, UnknownField(2, pa.int64()))
    assert joined_unknown(one, UnknownField(3, pa.float64())) == UnknownField(5, pa.float64())
    assert joined_unknown(one, UnknownField(3, pa.bool_())) == UnknownField(5, pa.string())
    within = UnknownField(1, pa.int64(), nested=True)
    assert joined_unknown(within, within) == UnknownField(2, pa.int64(), nested=True)


def test_spark_D11_a_lake_reads_committed_records_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    from holdfast.spark.lake import source_options

    job = LakeJob(bootstrap="b:9092", topic="t", to=f"{tmp_path}", checkpoint=tmp_path)
    assert parse_read(source_options(job), streaming=True).read_committed
    other = LakeJob(
        bootstrap="b:9092",
        topic="t",
        to="",
        checkpoint=job.checkpoint,
        options={"kafka.isolation.level": "read_uncommitted"},
    )
    assert not parse_read(source_options(other), streaming=True).read_committed


def test_a_process_keeps_its_decoder_with_what_a_registry_told_it() -> None:
    """Each task has values of its own, by pickle."""
    avro = Values(format="avro", fields=pa.schema([]), text='"long"', registry="http://127.0.0.1:1")
    assert pickle.loads(pickle.dumps(avro)).decoder() is avro.decoder()
    assert replace(avro, text='"int"').decoder() is not avro.decoder()
