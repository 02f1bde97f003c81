"""A cluster of one broker that refuses one API, with the same error code wherever an answer has room for one."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from holdfast.broker.entity import build
from holdfast.client.versions import API_VERSIONS, FIND_COORDINATOR, METADATA, PINNED

TOPIC, GROUP = "orders", "g1"
_ELECT_LEADERS = 43
_FILLED = {
    "name": TOPIC,
    "topic": TOPIC,
    "topic_name": TOPIC,
    "group_id": GROUP,
    "transaction_start_time": datetime.fromtimestamp(0, UTC),
}


def refused(kind: Any, code: int) -> dict[str, Any]:
    """The values of an answer: one of each thing that it has many of, all with the code."""
    hints, values = typing.get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        nested = _nested(hints[field.name])
        if field.name == "error_code":
            values[field.name] = ErrorCode(code)
        elif nested is not None:
            values[field.name] = [refused(nested, code)]
        elif field.name in _FILLED:
            values[field.name] = _FILLED[field.name]
    return values


def _nested(hint: Any) -> Any:
    """What the tuples of a field hold, if they hold entities."""
    for each in (hint, *typing.get_args(hint)):
        if typing.get_origin(each) is tuple and dataclasses.is_dataclass(typing.get_args(each)[0]):
            return typing.get_args(each)[0]
    return None


def handlers(key: int, code: int, port: Callable[[], int]) -> dict[int, Any]:
    """Of a FakeBroker with id 1, which leads, coordinates and controls. ``key``: the API that it refuses."""

    def answer(values: dict[str, Any], api: int) -> Any:
        return lambda version, request: build(load_response_schema(api, version), values)

    def metadata(version: int, request: Any) -> Any:
        partition = {"leader_id": 1, "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1]}
        brokers = [{"node_id": 1, "host": "127.0.0.1", "port": port()}]
        topics = [{"name": TOPIC, "partitions": [partition]}]
        values = {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": topics}
        return build(load_response_schema(METADATA, version), values)

    def refusing(version: int, request: Any) -> Any:
        kind = load_response_schema(key, version)
        return build(kind, refused(kind, code))

    def coordinator(version: int, request: Any) -> Any:
        values = {"coordinators": [{"node_id": 1, "host": "127.0.0.1", "port": port()}]}
        return build(load_response_schema(FIND_COORDINATOR, version), values)

    api_keys = [
        {"api_key": k, "min_version": min(v, 3), "max_version": v} for k, v in {**PINNED, _ELECT_LEADERS: 2}.items()
    ]
    made = {API_VERSIONS: answer({"api_keys": api_keys}, API_VERSIONS), METADATA: metadata}
    return made | {FIND_COORDINATOR: coordinator} | {key: refusing}
