"""DescribeConfigs (API 32), AlterConfigs (33), IncrementalAlterConfigs (44) and ListConfigResources (74).

DescribeConfigs 1-4. Keys that Holdfast does not have are absent from the answer, as unknown keys are in Kafka.
Broker configuration is described by that broker only. Changes go to the controller, so any broker takes those of
another (Kafka's does not), and refuses keys that no broker has (Kafka's keeps them).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.broker.handlers.config_operations import APPEND, SUBTRACT, given, override
from holdfast.broker.handlers.cordon_changes import check_right, cordons_checked
from holdfast.broker.handlers.forwarding import TELL_TIMEOUT_S, at_controller
from holdfast.broker.handlers.tls_changes import certificates_checked
from holdfast.broker.large_requests import paced
from holdfast.controller import events
from holdfast.controller.topics import check_name
from holdfast.model.config import ConfigType, UpdateMode, key_of
from holdfast.model.config_entries import ConfigEntry, ConfigSource, describe_broker, describe_topic
from holdfast.model.errors import (
    HoldfastError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from holdfast.security.resources import Operation

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
NOTHING_SET = (BROKER_LOGGER, CLIENT_METRICS, GROUP)
"""Resources of Kafka that have no keys here: described as empty."""
_REPLACED = (TOPIC, BROKER, CLIENT_METRICS, GROUP)
_CHANGED = (*_REPLACED, BROKER_LOGGER)
"""Resources for which AlterConfigs, and IncrementalAlterConfigs, ask for a right, as in Kafka; of others they say that
there is no such kind, to whoever asks."""
_WIRE_TYPE = {
    ConfigType.BOOLEAN: 1,
    ConfigType.STRING: 2,
    ConfigType.INT: 3,
    ConfigType.SHORT: 4,
    ConfigType.LONG: 5,
    ConfigType.DOUBLE: 6,
    ConfigType.LIST: 7,
    ConfigType.CLASS: 8,
    ConfigType.PASSWORD: 9,
}


async def handle_describe_configs(ctx: RequestContext, request: Any) -> Any:
    """The effective values with their sources, for each resource."""
    results = []
    async for resource in paced(request.resources):
        kind, name = resource.resource_type, resource.resource_name
        result: dict[str, Any] = {
            "resource_type": kind, "resource_name": name, "configs": [], "error_message": "",
        }  # fmt: skip
        try:
            check_right(ctx, Operation.DESCRIBE_CONFIGS, kind, name)
            wanted = set(resource.configuration_keys or ()) or None  # an empty list means all, too
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
        check_name(name)
        if name not in broker.metadata.topics:
            raise UnknownTopicOrPartitionError("")
        return describe_topic(broker.config, broker.metadata.topic_configs.get(name, {}))
    if kind == BROKER:
        if name and not name.lstrip("-").isdecimal():
            raise InvalidRequestError(f"Broker id must be an integer, but it is: {name}")
        if name not in ("", str(broker.broker_id)):
            raise InvalidRequestError(
                f"Unexpected broker id, expected {broker.broker_id} or empty string, but received {name}"
            )
        entries = describe_broker(broker.config)
        return entries if name else [e for entry in entries if (e := _default_of_brokers(entry)) is not None]
    if kind in NOTHING_SET:
        return []
    raise InvalidRequestError(f"resource type {kind}: expected {TOPIC} (topic) or {BROKER} (broker)")


def _default_of_brokers(entry: ConfigEntry) -> ConfigEntry | None:
    """The key as it is set for all brokers, whatever this one has of its own; None where it is not set so."""
    layers = tuple(s for s in entry.synonyms if s.source is ConfigSource.DYNAMIC_DEFAULT_BROKER)
    if not layers:
        return None
    return dataclasses.replace(entry, value=layers[0].value, source=layers[0].source, synonyms=layers)


def _entry(entry: ConfigEntry, synonyms: bool, documentation: bool) -> dict[str, Any]:
    return {
        "name": entry.key.name,
        "value": None if entry.key.sensitive else entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source.value,
        "is_sensitive": entry.key.sensitive,
        "is_default": entry.source is ConfigSource.DEFAULT,
        "synonyms": [
            {"name": s.name, "value": None if entry.key.sensitive else s.value, "source": s.source.value}
            for s in entry.synonyms
        ]
        if synonyms
        else [],
        "config_type": _WIRE_TYPE[entry.key.type],
        "documentation": entry.key.doc if documentation else None,
    }


async def handle_list_config_resources(ctx: RequestContext, request: Any) -> Any:
    """Versions 0-1: what DescribeConfigs can be asked about. Version 0 lists client metrics: there are none."""
    wanted = set(getattr(request, "resource_types", (CLIENT_METRICS,))) or {TOPIC, BROKER, BROKER_LOGGER}
    unknown = wanted - {TOPIC, BROKER, *NOTHING_SET}
    if unknown:
        raise UnsupportedVersionError(f"Unsupported resource type {min(unknown)}")
    brokers = [str(b) for b in sorted(ctx.broker.metadata.brokers)]
    names = {BROKER_LOGGER: brokers, BROKER: brokers, TOPIC: sorted(ctx.broker.metadata.topics)}
    found = [(name, kind) for kind in (BROKER_LOGGER, BROKER, TOPIC) if kind in wanted for name in names[kind]]
    return respond(ctx, config_resources=[{"resource_name": name, "resource_type": kind} for name, kind in found])


_Resource: TypeAlias = tuple[int, str]


@certificates_checked
@cordons_checked
@at_controller
async def handle_incremental_alter_configs(ctx: RequestContext, request: Any) -> Any:
    """Versions 0-1: set, delete, append to and subtract from single keys of topics and brokers. A list is worked out
    from what it is when those that were changed before it are in force."""

    def values(kind: int, name: str, configs: Iterable[Any]) -> _Values:
        return tuple(override(ctx.broker, kind, name, c) for c in configs)

    if not any(c.config_operation in (APPEND, SUBTRACT) for r in request.resources for c in r.configs):
        return await _alter(ctx, request, values)
    async with ctx.broker.list_changes:
        return await _alter(ctx, request, values)


@certificates_checked
@cordons_checked
@at_controller
async def handle_alter_configs(ctx: RequestContext, request: Any) -> Any:
    """Versions 0-2: all overrides of a resource anew; what is not named is removed."""

    def values(kind: int, name: str, configs: Iterable[Any]) -> _Values:
        return tuple((c.name, given(c)) for c in configs)

    return await _alter(ctx, request, values, replace_all=True)


_Values: TypeAlias = tuple[tuple[str, str | None], ...]


async def _alter(
    ctx: RequestContext,
    request: Any,
    values: Callable[[int, str, Iterable[Any]], _Values],
    *,
    replace_all: bool = False,
) -> Any:
    named: list[_Resource] = [(r.resource_type, r.resource_name) for r in request.resources]
    times = Counter(named)
    kinds = _REPLACED if replace_all else _CHANGED
    results: dict[_Resource, HoldfastError | None] = {}
    changes: list[events.ConfigChange] = []
    for resource, (kind, name) in zip(request.resources, named, strict=True):
        try:
            if times[kind, name] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            if kind not in kinds:
                raise InvalidRequestError(f"Unknown resource type {kind}")
            check_right(ctx, Operation.ALTER_CONFIGS, kind, name)
            new = values(kind, name, resource.configs)
            _check_resource(kind, name, new)
        except HoldfastError as e:
            results[kind, name] = e
            continue
        changes.append(events.ConfigChange(resource_type=kind, resource_name=name, values=new, replace_all=replace_all))
    reply = await ctx.submit(events.AlterConfigs(changes=tuple(changes), validate_only=request.validate_only))
    results |= {(r.resource_type, r.resource_name): r.error for r in reply.resources}
    if ctx.broker.controller is not None and not request.validate_only:
        await ctx.broker.controller.told_everybody(TELL_TIMEOUT_S)
    return respond(
        ctx,
        responses=[
            {
                "resource_type": kind,
                "resource_name": name,
                "error_code": error,
                "error_message": None if error is None else error.message,
            }
            for kind, name in named
            for error in (results.get((kind, name)),)
        ],
    )


def _check_resource(kind: int, name: str, values: _Values) -> None:
    """What the controller does not look at."""
    if kind == TOPIC and not name:
        raise InvalidRequestError("Default topic resources are not allowed.")
    if kind == BROKER and not name:
        keys = [key for k, v in values if v is not None and (key := key_of(k)) is not None]
        own = [key.name for key in keys if key.update is UpdateMode.PER_BROKER]
        if own:
            raise InvalidRequestError(
                f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(own)}]"
            )
