"""What the sink takes, without a cluster: columns, and batches without rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from holdfast.spark.options import OptionError, parse_write
from holdfast.spark.writer import TaskWriter, check_schema

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.enable.idempotence": "false"}


def schema(**columns: type) -> StructType:
    return StructType([StructField(name, kind()) for name, kind in columns.items()])


def test_spark_D25_other_columns_are_left_out_and_told(caplog: pytest.LogCaptureFixture) -> None:
    check_schema(schema(id=LongType, value=StringType, day=StringType), parse_write(OPTIONS))
    assert "no record has a column id, day: not written" in caplog.text
    with pytest.raises(OptionError, match="there is no column value; there are id"):
        check_schema(schema(id=LongType), parse_write(OPTIONS))


def test_spark_D25_a_batch_without_rows_is_no_error() -> None:
    task = TaskWriter(parse_write(OPTIONS))
    empty = pa.RecordBatch.from_pydict({"value": pa.array([], pa.string())})
    task.add(empty)
    task.add(empty)
    assert task.finish() == 0
