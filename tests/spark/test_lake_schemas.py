"""A lake of Protobuf and of a schema registry: columns follow the registry's newest schema, or the job ends by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.lake.opening import open_table
from holdfast.records.typed.schema_error import SchemaError
from holdfast.spark.lake import LakeJob, LakeResult, run
from tests.contracts.lake_tables import duckdb_rows, scan_of
from tests.spark import shop
from tests.unit.registry.registry_server import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.testing import Cluster

pytestmark = pytest.mark.spark


def rows_of(result: LakeResult, columns: str) -> list[tuple[Any, ...]]:
    table = open_table(result.to, result.format)
    assert table is not None
    return duckdb_rows(f"SELECT {columns} FROM {scan_of(table)} ORDER BY id")


def test_protobuf_by_a_descriptor_set_that_gets_a_field_more(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path
) -> None:
    def job(**given: Any) -> LakeJob:
        places = {"to": tmp_path / "table", "checkpoint": tmp_path / "checkpoint"}
        known = {"bootstrap": cluster.bootstrap, "topic": topic, "values": "protobuf", "message": shop.MESSAGE}
        return LakeJob(**{**known, **places, "new_fields": "add", "available_now": True, **given})

    file = tmp_path / "shop.desc"
    file.write_bytes(shop.descriptor_set(1))
    produced(topic, [shop.protobuf(1, {"id": n, "name": f"n{n}"}) for n in range(5)] + [b"\xff"])
    produced(topic, [shop.protobuf(2, {"id": 5, "name": "n5", "price": 2.5})])
    with pytest.raises(Exception, match=r"has no column for field 3, and neither has the schema that is read"):
        run(job(schema=str(file)), spark)
    file.write_bytes(shop.descriptor_set(2))
    result = run(job(schema=str(file)), spark)
    assert (result.records, result.bad) == (6, 1)
    assert rows_of(result, "id, name, price") == [*((n, f"n{n}", 0.0) for n in range(5)), (5, "n5", 2.5)]


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_a_registry_gets_a_new_version_while_a_lake_reads(
    spark: SparkSession, cluster: Cluster, produced: Any, topic: str, tmp_path: Path, form: Any
) -> None:
    def value(version: int, row: dict[str, Any]) -> bytes:
        if form == "avro":
            return shop.prefixed(version, shop.avro(version, row))
        return shop.prefixed(version, b"\0" + shop.protobuf(version, row))

    with serving() as registry:

        def register(version: int) -> None:
            more = {"schemaType": "PROTOBUF", "serialized": shop.serialized(version)} if form == "protobuf" else {}
            registry.register(version, f"{topic}-value", shop.avsc(version) if form == "avro" else "text", **more)

        def second(step: str, batch: int) -> None:
            """Is registered and written when the job has read the first one's records."""
            if (step, batch) == ("landed", 0):
                register(2)

        register(1)
        produced(topic, [value(1, {"id": n, "name": "x"}) for n in range(3)])
        produced(topic, [value(2, {"id": 3, "name": "y", "price": 4.5}), value(9, {"id": 4, "name": ""})])
        job = LakeJob(
            bootstrap=cluster.bootstrap,
            topic=topic,
            to=tmp_path / "table",
            checkpoint=tmp_path / "checkpoint",
            format="delta",
            values=form,
            message=shop.MESSAGE if form == "protobuf" else "",
            registry=registry.url,
            new_fields="add",
            available_now=True,
            max_offsets_per_batch=3,
            on_step=second,
        )
        result = run(job, spark)
    assert (result.records, result.bad, result.batches) == (4, 1, 2)
    assert rows_of(result, "id, name, price") == [(0, "x", None), (1, "x", None), (2, "x", None), (3, "y", 4.5)]


def test_what_a_lake_of_schemas_needs_is_said_by_name(tmp_path: Path) -> None:
    from holdfast.spark.lake_schema import newest_values

    def job(**given: Any) -> LakeJob:
        return LakeJob(bootstrap="a:1", topic="t", to=tmp_path, checkpoint=tmp_path, **given)

    for given, words in (
        ({"values": "protobuf"}, "need the full name of their message"),
        ({"values": "protobuf", "message": "a.B"}, "need a schema, a compiled descriptor set, or a registry"),
        ({"values": "protobuf", "message": "a.B", "schema": "nowhere"}, "schema 'nowhere': expected a compiled desc"),
        ({"values": "avro"}, "values of format avro need a schema or a registry"),
    ):
        with pytest.raises(SchemaError, match=words):
            newest_values(job(**given))
