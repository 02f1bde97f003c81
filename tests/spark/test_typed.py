"""Keys and values as typed columns, in batches and streams: what was written is what is read."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.records.typed.ddl import parse_ddl
from holdfast.registry.client import BasicAuth
from tests.spark import shop
from tests.unit.registry.registry_server import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.testing import Cluster

pytestmark = pytest.mark.spark

DDL = (
    "id BIGINT, price DECIMAL(9,2), at TIMESTAMP, day DATE, ok BOOLEAN, tags ARRAY<STRING>, "
    "`who is` STRUCT<name: STRING, age: INT>"
)


def test_json_of_every_kind_with_keys_headers_and_a_projection(
    spark: SparkSession, source: Any, produced: Any, topic: str
) -> None:
    ours, theirs = parse_ddl(DDL), StructType.fromDDL(DDL)
    assert isinstance(theirs, StructType)
    assert ours == pa.schema([(each.name, each.type) for each in to_arrow_schema(theirs, timezone="UTC")])
    values = [
        {"id": i, "price": i / 4, "at": f"2026-11-23T10:00:{i % 60:02d}", "day": "2026-11-23", "ok": i % 2 == 0,
         "tags": [f"t{i}", None], "who is": {"name": f"n{i}", "age": i}}
        for i in range(120)
    ]  # fmt: skip
    produced(topic, [*values, None], partitions=2)
    typed = source(subscribe=topic, includeHeaders="true").options(
        **{"value.format": "json", "value.schema": DDL, "value.time.zone": "Europe/Paris"}
    )
    frame = typed.load()
    assert frame.schema.fields[:7] == theirs.fields
    assert frame.columns[7:] == ["key", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    found = frame.withColumn("at", F.col("at").cast("long")).orderBy("id").collect()
    assert found[0].id is None and found[0].tags is None and found[0]["who is"] is None and found[0].key == b"k120"
    for i, row in enumerate(found[1:]):
        assert (row.id, row.price, row.ok, row.tags) == (i, Decimal(i) / 4, i % 2 == 0, [f"t{i}", None])
        assert (row["who is"].name, row["who is"].age, str(row.day)) == (f"n{i}", i, "2026-11-23")
        assert row["at"] == 1795424400 + i % 60 and row.topic == topic and row.key == f"k{i}".encode()
        assert (row.headers is not None) == (i % 3 == 0)
    narrow = typed.schema("offset BIGINT, id BIGINT").load().where("id < 4")
    assert sorted(tuple(row) for row in narrow.collect()) == [(0, 0), (0, 1), (1, 2), (1, 3)]
    inferred = source(subscribe=topic).options(**{"value.format": "json", "value.schema": "infer"}).load()
    assert inferred.schema["id"].dataType.simpleString() == "bigint"
    assert inferred.select(F.sum("who is.age")).first()[0] == sum(range(120))


def test_fixed_widths_in_keys_and_values_and_what_is_bad(source: Any, produced: Any, topic: str) -> None:
    values: list[bytes | None] = [struct.pack(">qdB", i, i / 2, i) for i in range(200)]
    produced(topic, [*values[:150], b"bad", *values[150:], None], partitions=1)
    layout = {"value.format": "struct", "value.schema": "id:>i8, half:>f8, small:u1"}
    typed = source(subscribe=topic).options(**layout)
    with pytest.raises(PySparkException) as raised:
        typed.load().count()
    assert f"topic {topic}, partition 0, offset 150: value: the value has 3 bytes, the layout has 17" in str(
        raised.value
    )
    skipped = typed.option("badRecords", "skip").load()
    assert skipped.agg(F.count("*"), F.sum("id"), F.sum("half"), F.sum("small")).first() == (201, 19900, 9950.0, 19900)
    kept = typed.option("badRecords", "null").load().where("_corrupt_record IS NOT NULL").collect()
    assert [(row.id, row.offset, row._corrupt_record) for row in kept] == [(None, 150, b"bad")]
    keyed = source(subscribe=topic).options(**{"key.format": "struct", "key.schema": "k:u1,d:u1", "badRecords": "skip"})
    assert keyed.load().agg(F.count("*"), F.min("key.d"), F.max("key.d")).first() == (10, 48, 57)


def test_a_stream_of_json_goes_on_where_it_was_and_ends_at_what_is_bad(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    produced(topic, [{"id": i} for i in range(100)], partitions=2)

    def run(**options: str) -> Any:
        reader = spark.readStream.format("holdfast").option("kafka.bootstrap.servers", cluster.bootstrap)
        reader = reader.options(
            **{"subscribe": topic, "startingOffsets": "earliest", "value.format": "json", **options}
        )
        rows = reader.schema("id BIGINT, partition INT, offset BIGINT").load()
        target = rows.writeStream.format("json").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = target.trigger(availableNow=True).start(str(tmp_path / "rows"))
        query.awaitTermination()
        return query

    run(maxOffsetsPerTrigger="60")
    produced(topic, [{"id": i} for i in range(100, 120)] + [b"[no object]"], partitions=2)
    with pytest.raises(PySparkException, match=f"topic {topic}, partition 0, offset 60: value: not a JSON object"):
        run()
    run(badRecords="skip")
    lines = [json.loads(line) for file in (tmp_path / "rows").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted((row["id"], row["partition"], row["offset"]) for row in lines) == [
        (i, i % 2, i // 2) for i in range(120)
    ]


def test_schemas_of_a_registry_and_of_files_in_keys_and_values(
    source: Any, produced: Any, topic: str, tmp_path: Path
) -> None:
    with serving() as registry:
        registry.authorization = BasicAuth(user="u", password="p w").header
        for version in (1, 2):
            registry.register(version, f"{topic}-value", shop.avsc(version))
            registry.register(
                10 + version, "orders", "text", schemaType="PROTOBUF", serialized=shop.serialized(version)
            )
        orders = [{"id": n, "name": f"n{n}"} | ({"price": n / 2} if n % 2 else {}) for n in range(50)]
        values = [shop.prefixed(1 + n % 2, shop.avro(1 + n % 2, order)) for n, order in enumerate(orders)]
        produced(topic, [*values, shop.prefixed(77, b"")], partitions=2)
        start = "value.schema.registry."
        access = {f"{start}url": registry.url, f"{start}user": "u", f"{start}password": "p w"}

        def typed(of: str, **more: str) -> Any:
            return source(subscribe=of).options(**{**access, **more})

        avro = typed(topic, **{"value.format": "avro", "badRecords": "skip"})
        assert avro.load().schema.fieldNames()[:4] == ["id", "name", "price", "key"]
        found = avro.schema("price DOUBLE, offset BIGINT, id BIGINT").load().orderBy("id").collect()
        assert [(row.id, row.price) for row in found] == [(n, n / 2 if n % 2 else 0.5) for n in range(50)]
        with pytest.raises(PySparkException, match="partition 0, offset 25: value: the registry knows no schema 77"):
            typed(topic, **{"value.format": "avro"}).load().count()
        with pytest.raises(PySparkException, match=r"answers /subjects/.*/versions/latest with 401 .authentication."):
            typed(topic, **{"value.format": "avro", f"{start}password": "other"}).load()

        other = f"{topic}-protobuf"
        produced(other, [shop.prefixed(11 + n % 2, b"\0" + shop.protobuf(1 + n % 2, orders[n])) for n in range(50)])
        message = {"value.format": "protobuf", "value.message": shop.MESSAGE}
        frame = typed(other, **message, **{"value.schema.subject": "orders"}).load()
        assert frame.agg(F.sum("id"), F.sum("price"), F.max("name")).first() == (1225, 312.5, "n9")
    file = tmp_path / "shop.desc"
    file.write_bytes(shop.descriptor_set(2))
    plain = f"{topic}-plain"
    produced(plain, [shop.protobuf(2, {"id": n, "price": n / 4}) for n in range(8)])
    frame = source(subscribe=plain).options(**message, **{"value.schema.file": str(file), "value.as": "struct"}).load()
    assert frame.agg(F.sum("value.id"), F.sum("value.price")).first() == (28, 7.0)
