"""Files of rows: names that say whose they are, types that every reader takes for the same."""

from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.lake.data_files import (
    Attempt,
    DataFile,
    FileRange,
    attempt_in,
    attempt_of,
    check_columns,
    check_schema,
    described,
    name_of,
    ranges_in,
    write_file,
)
from holdfast.lake.errors import AlreadyThereError, TableError
from holdfast.lake.local_store import LocalStore
from holdfast.lake.upkeep import groups_of

RANGE = FileRange(topic="t", topic_id=UUID(int=1), partition=3, start=10, end=20)
SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("local", pa.timestamp("us"))])


def rows(*numbers: int | None) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array(numbers, pa.int64()),
            pa.array([1] * len(numbers), SCHEMA.field("at").type),
            pa.array([None] * len(numbers), SCHEMA.field("local").type),
        ],
        schema=SCHEMA,
    )


def test_a_name_says_what_and_whose() -> None:
    attempt = Attempt(started_ms=1_700_000_000_123, token="0123456789ab")
    path = name_of((RANGE,), attempt, 2)
    assert path == "data/00000000000000000000000000000001-3-10-20-1700000000123-0123456789ab-2.parquet"
    assert attempt_in(path) == attempt_in(f"data/.{path[5:]}.00aa.partial") == attempt
    assert (
        attempt_in(name_of((FileRange(topic="t", topic_id=None, partition=0, start=0, end=1),), attempt, 0)) == attempt
    )
    for foreign in ("data/part-00000-x.parquet", "data/x.parquet", path + ".crc", "metadata/" + path[5:-8] + ".avro"):
        assert attempt_in(foreign) is None
    assert attempt_of(5).token != attempt_of(5).token


def test_spark_D17_timestamps_are_micros_and_never_int96(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert write_file(store, "data/a.parquet", SCHEMA, [rows(1, 2), rows(None)], ranges=(RANGE,)) == 3
    columns = pq.ParquetFile(tmp_path / "data/a.parquet").schema
    kinds = {columns.column(number).name: columns.column(number) for number in range(len(columns))}
    assert {kind.physical_type for kind in kinds.values()} == {"INT64"}
    assert "timeUnit=microseconds" in str(kinds["at"].logical_type)
    assert "isAdjustedToUTC=true" in str(kinds["at"].logical_type)
    assert "isAdjustedToUTC=false" in str(kinds["local"].logical_type)


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns"), pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="Europe/Vienna")]
)
def test_spark_D17_a_column_that_readers_would_take_for_another_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(TableError, match=r"lake/t: column at is timestamp.*, expected timestamp\[us\]"):
        check_schema(pa.schema([("at", kind)]), "lake/t")


def test_columns_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(TableError, match="columns named id more than once"):
        check_schema(pa.schema([("id", pa.int64()), ("ID", pa.int64())]), "lake/t")


def test_spark_D16_the_footer_says_rows_and_statistics(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    write_file(store, "data/a.parquet", SCHEMA, [rows(7, None), rows(-3)], ranges=(RANGE,))
    found = described(store, "data/a.parquet")
    assert (found.rows, found.size) == (3, (tmp_path / "data/a.parquet").stat().st_size)
    assert (found.least, found.greatest) == ({"n": -3}, {"n": 7}) and found.nulls == {"n": 1, "at": 0, "local": 3}
    assert ranges_in(store, "data/a.parquet") == (RANGE,)
    write_file(store, "data/empty.parquet", SCHEMA, [])
    assert (described(store, "data/empty.parquet").rows, ranges_in(store, "data/empty.parquet")) == (0, ())


def test_a_file_is_made_once_and_whole(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    write_file(store, "data/a.parquet", SCHEMA, [rows(1)])
    with pytest.raises(AlreadyThereError):
        write_file(store, "data/a.parquet", SCHEMA, [rows(2)])
    other = pa.record_batch({"n": ["text"], "at": ["x"], "local": ["y"]})
    with pytest.raises(pa.ArrowInvalid):
        write_file(store, "data/b.parquet", SCHEMA, [rows(1), other])
    assert [entry.path for entry in store.list("data")] == ["data/a.parquet"]
    assert described(store, "data/a.parquet").least == {"n": 1}


def test_columns_of_a_file_are_held_against_the_table() -> None:
    table = pa.schema([("a", pa.large_string()), ("l", pa.list_(pa.field("item", pa.int64()))), ("more", pa.int8())])
    alike = (pa.field("a", pa.string()), pa.field("l", pa.list_(pa.field("element", pa.int64()))))
    check_columns(DataFile(path="f", rows=1, size=1, columns=alike), table, "t")
    for column, words in (
        (pa.field("z", pa.int8()), "has column z as int8, the table has no such column"),
        (pa.field("a", pa.binary()), "has column a as binary, the table has it as large_string"),
        (pa.field("l", pa.list_(pa.int32())), "the table has it as list<item: int64>"),
    ):
        with pytest.raises(TableError, match=words):
            check_columns(DataFile(path="f", rows=1, size=1, columns=(column,)), table, "t")


def test_small_files_are_put_together_up_to_the_target() -> None:
    assert groups_of({}, 100) == [] and groups_of({"a": 10}, 100) == []
    assert groups_of({"c": 10, "a": 30, "b": 51, "d": 50, "e": 11}, 100) == [("a", "c", "d")]
    assert groups_of({f"f{number}": 40 for number in range(5)}, 100) == [("f0", "f1"), ("f2", "f3")]


def test_every_value_but_the_place_has_a_dictionary_and_a_batch_is_a_row_group(tmp_path: Path) -> None:
    text = pa.string()
    nested = {
        "headers": pa.list_(pa.struct([("key", text), ("value", pa.binary())])),
        "inner": pa.struct([("x", text), ("list", pa.list_(text))]),
        "map": pa.map_(text, pa.int64()),
    }
    schema = pa.schema([("_offset", pa.int64()), ("_key", pa.binary()), ("name", text), *nested.items()])
    row = {
        "_offset": 7,
        "_key": b"k",
        "name": "n",
        "headers": [{"key": "a", "value": b"b"}],
        "inner": {"x": "x", "list": ["l"]},
        "map": [("k", 1)],
    }
    one = pa.Table.from_pylist([row] * 3, schema=schema)
    both = pa.concat_tables([one, one])  # of two chunks
    assert write_file(LocalStore(str(tmp_path)), "data/a.parquet", schema, [both, one.to_batches()[0]]) == 9
    found = pq.ParquetFile(tmp_path / "data/a.parquet")
    assert found.metadata.num_row_groups == 2 and found.read().to_pylist() == [row] * 9
    group = found.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    plain = {each.path_in_schema for each in columns if "RLE_DICTIONARY" not in each.encodings}
    assert plain == {"_offset", "_key"} and len(columns) == 9
