"""Which columns a lake's table has: given, those of the table that is there, or inferred from the first records.

Owns the words of a schema that a user gives, and the sample. What a value of JSON is, is records/typed/'s.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from holdfast.lake.columns import partition_column
from holdfast.lake.data_files import plain
from holdfast.lake.table import Table
from holdfast.records.typed.json import REST
from holdfast.records.typed.registered import RegisteredSchema
from holdfast.records.typed.schema_error import SchemaError
from holdfast.spark.lake_job import LakeJob
from holdfast.spark.lake_values import PLACE, VALUE, Values
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import Range
from holdfast.spark.sample import sample
from holdfast.spark.topics import Topics

KEPT_FILE: Final = "holdfast-lake.json"
"""In the checkpoint: what all runs of a job must have in common and the table does not say."""
ADDED: Final = (*PLACE, REST)


def settled_values(job: LakeJob, table: Table | None, topics: Topics, options: ReadOptions) -> Values | None:
    """None if nothing says what the columns are: no schema, no table, and nothing in the topic to infer them from.

    SchemaError for a schema that is none, is not the table's, or has columns that the lake adds.
    """
    if job.registry and job.values not in ("avro", "protobuf"):
        raise SchemaError(f"a schema registry ({job.registry}) is for values of avro and protobuf, not of {job.values}")
    if job.message and job.values != "protobuf":
        raise SchemaError(f"a message ({job.message}) is of values of protobuf, not of {job.values}")
    if job.values in ("struct", "avro", "protobuf"):
        return _told(job, table)
    given = given_schema(job.schema) if job.schema is not None else None
    if job.values == "raw":
        if given is not None:
            raise SchemaError("raw values have no fields: a schema is for JSON")
        fields: pa.Schema | None = pa.schema([(VALUE, pa.binary())])
    elif table is not None:
        fields = _of_table(table, given, keep_value=job.keep_value)
    else:
        fields = given if given is not None else _inferred(job, topics, options)
    if fields is None:
        return None
    values = Values(
        format=job.values,
        fields=fields,
        keep_value=job.keep_value,
        headers=job.headers,
        partition=partition_column(job.format),
        time_zone=job.time_zone,
        rest=job.values == "json" and job.new_fields == "rest" and (table is None or REST in table.schema().names),
    )
    values.schema()  # fails here, before anything is made
    if job.values == "json":
        _keep_time_zone(job)
    return values


def _keep_time_zone(job: LakeJob) -> None:
    """SchemaError if the checkpoint was begun with another one: half of the times would be others than they say."""
    file = job.checkpoint / KEPT_FILE
    try:
        kept = json.loads(file.read_text())["time_zone"]
    except FileNotFoundError:
        job.checkpoint.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"time_zone": job.time_zone}))
        return
    except (ValueError, KeyError, TypeError):  # cut short by a crash, before anything was landed by it
        file.write_text(json.dumps({"time_zone": job.time_zone}))
        return
    if kept != job.time_zone:
        raise SchemaError(
            f"checkpoint {job.checkpoint} was begun with time zone {kept}, not {job.time_zone}: times without a zone "
            "in one table are all of one"
        )


def _told(job: LakeJob, table: Table | None) -> Values:
    """Of a format whose values say nothing of their fields."""
    values = newest_values(job)
    wanted = values.schema()
    if table is not None:
        for field in wanted:
            if field.name not in ADDED and job.new_fields != "add":
                _check_field(table, field)
    return values


def newest_values(job: LakeJob) -> Values:
    """As the job's schema says, or the newest one of its registry. SchemaError where neither says it."""
    values = Values(
        format=job.values,
        fields=pa.schema([]),
        text=_text(job) if job.values != "protobuf" else "",
        descriptors=_descriptors(job) if job.values == "protobuf" else b"",
        message=job.message,
        registry=job.registry,
        keep_value=job.keep_value,
        headers=job.headers,
        partition=partition_column(job.format),
    )
    return replace(values, fields=values.decoder().schema)


def _text(job: LakeJob) -> str:
    if job.schema is not None:
        return text_of(job.schema)
    if not job.registry:
        raise SchemaError(f"values of format {job.values} need a schema" + (" or a registry" * (job.values == "avro")))
    from holdfast.records.typed.avro_schema import joined

    found = _registered(job, "AVRO")
    return joined(found.text, found.references)


def _descriptors(job: LakeJob) -> bytes:
    if not job.message:
        raise SchemaError("values of format protobuf need the full name of their message, as shop.Order")
    if job.schema is not None:
        try:
            return Path(job.schema).read_bytes()
        except OSError as error:
            raise SchemaError(f"schema {job.schema!r}: expected a compiled descriptor set: {error.strerror}") from None
    if not job.registry:
        raise SchemaError("values of format protobuf need a schema, a compiled descriptor set, or a registry")
    from holdfast.records.typed.protobuf_files import registered_set

    found = _registered(job, "PROTOBUF")
    return registered_set(found.text, found.references)


def _registered(job: LakeJob, kind: str) -> RegisteredSchema:
    from holdfast.registry.client import SchemaRegistry

    subject = f"{job.topic}-value"
    newest = SchemaRegistry(job.registry).latest(subject)
    if newest is None or newest.schema.kind != kind:
        what = "no such subject" if newest is None else f"it of type {newest.schema.kind}"
        raise SchemaError(
            f"subject {subject} of {job.registry}: expected a schema of type {kind}, the registry has {what}"
        )
    return newest.schema


def text_of(given: str) -> str:
    """Of a schema as a user gives it: the text, or the path of a file with it."""
    path = Path(given)
    return (path.read_text() if "\n" not in given and len(given) < 4096 and path.is_file() else given).strip()


def given_schema(text: str) -> pa.Schema:
    """A schema as a user gives it: DDL, Spark's JSON, or the path of a file with one of them."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    content = text_of(text)
    try:
        found = StructType.fromJson(json.loads(content)) if content.startswith("{") else StructType.fromDDL(content)
    except Exception as error:
        first = str(error).splitlines()[0]
        raise SchemaError(f"schema {text!r} is neither a file, nor DDL, nor Spark's JSON: {first}") from None
    if not isinstance(found, StructType):
        raise SchemaError(f"schema {text!r} is a single type: expected fields, like 'id BIGINT, name STRING'")
    arrow: pa.Schema = to_arrow_schema(found, timezone="UTC")
    return pa.schema([(each.name, plain(each.type)) for each in arrow])


def _of_table(table: Table, given: pa.Schema | None, *, keep_value: bool) -> pa.Schema:
    """The table's own fields. SchemaError if others are given."""
    mine = {*ADDED, *([VALUE] if keep_value else [])}
    there = pa.schema([(each.name, plain(each.type)) for each in table.schema() if each.name not in mine])
    if given is None:
        return there
    for field in given:
        _check_field(table, field)
    return given


def _check_field(table: Table, field: pa.Field) -> None:
    there = table.schema()
    kind = plain(there.field(field.name).type) if field.name in there.names else None
    if kind != field.type:
        has = f"it as {kind}" if kind is not None else "no such column"
        raise SchemaError(
            f"the schema has field {field.name} as {field.type}, the table {table.store.location} has {has}"
        )


def _inferred(job: LakeJob, topics: Topics, options: ReadOptions) -> pa.Schema | None:
    """From the first records of each partition; waits for some unless the job reads only what is there."""
    from holdfast.records.typed.json import inferred

    while True:
        tps = topics.partitions()
        earliest, latest = topics.earliest(tps), topics.latest(tps)
        if any(latest[tp] > earliest[tp] for tp in tps):
            break
        if job.available_now or job.stop.is_set():
            return None
        topics.wait_beyond(latest)
    each = max(1, job.sample_records // len(tps))
    leaders, ids = topics.leaders(tps), topics.topic_ids({})
    ranges = tuple(
        Range(
            tp=tp,
            start=earliest[tp],
            end=min(latest[tp], earliest[tp] + each),
            leader=leaders.get(tp),
            topic_id=ids.get(tp.topic),
        )
        for tp in tps
        if latest[tp] > earliest[tp]
    )
    found = inferred(sample(ranges, options, VALUE))
    if not len(found):
        raise SchemaError(f"no JSON object among the first records of topic {job.topic}: give a schema")
    return found
