"""DescribeConfigs (API 32) and IncrementalAlterConfigs (API 44) of topics and of this broker.

DescribeConfigs 1-4. Keys that Holdfast does not have are absent from the answer, as unknown keys are in Kafka.
Broker configuration is described by that broker only. Changes go to the controller.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.metadata import legal_topic_name
from holdfast.model.config import ConfigEntry, ConfigSource, ConfigType, describe_broker, describe_topic
from holdfast.model.errors import (
    HoldfastError,
    InvalidRequestError,
    InvalidTopicError,
    UnknownTopicOrPartitionError,
)

TOPIC, BROKER = 2, 4
_WIRE_TYPE = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.SHORT: 4,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.PASSWORD: 9,
}


async def handle_describe_configs(ctx: RequestContext, request: Any) -> Any:
    """The effective values with their sources, for each resource."""
    results = []
    for resource in request.resources:
        kind, name = resource.resource_type, resource.resource_name
        result: dict[str, Any] = {
            "resource_type": kind, "resource_name": name, "configs": [], "error_message": "",
        }  # fmt: skip
        try:
            wanted = None if resource.configuration_keys is None else set(resource.configuration_keys)
            result["configs"] = [
                _entry(e, getattr(request, "include_synonyms", False), getattr(request, "include_documentation", False))
                for e in _entries(ctx, kind, name)
                if wanted is None or e.key.name in wanted
            ]
        except HoldfastError as e:
            result["error_code"], result["error_message"] = e, e.message
        results.append(result)
    return respond(ctx, results=results)


def _entries(ctx: RequestContext, kind: int, name: str) -> list[ConfigEntry]:
    broker = ctx.broker
    if kind == TOPIC:
        if not legal_topic_name(name):
            raise InvalidTopicError(f"Topic name is invalid: {name!r}: expected 1 to 249 of a-z A-Z 0-9 . _ -")
        if name not in broker.metadata.topics:
            raise UnknownTopicOrPartitionError("")
        return describe_topic(broker.config, broker.metadata.topic_configs.get(name, {}))
    if kind == BROKER:
        if name not in ("", str(broker.broker_id)):
            raise InvalidRequestError(
                f"Unexpected broker id, expected {broker.broker_id} or empty string, but received {name}"
            )
        entries = describe_broker(broker.config)
        if not name:
            return [e for e in entries if e.source is ConfigSource.DYNAMIC_DEFAULT_BROKER]
        return entries
    raise InvalidRequestError(f"resource type {kind}: expected {TOPIC} (topic) or {BROKER} (broker)")


def _entry(entry: ConfigEntry, synonyms: bool, documentation: bool) -> dict[str, Any]:
    return {
        "name": entry.key.name,
        "value": None if entry.key.sensitive else entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source.value,
        "is_sensitive": entry.key.sensitive,
        "is_default": entry.source is ConfigSource.DEFAULT,
        "synonyms": [{"name": s.name, "value": s.value, "source": s.source.value} for s in entry.synonyms]
        if synonyms
        else [],
        "config_type": _WIRE_TYPE[entry.key.type],
        "documentation": entry.key.doc if documentation else None,
    }
