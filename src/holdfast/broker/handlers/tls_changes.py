"""Changes of a broker's certificates, and of its listeners' keys, on their way to the controller: of AlterConfigs and
IncrementalAlterConfigs.

Only a broker itself can read its files, and knows all of its listeners. So a change of its own keys is tried by it
before the controller gets the request, as Kafka's brokers do; what could not be in force (certificates.py) is refused.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from holdfast.broker.handlers.base import Handler, RequestContext
from holdfast.broker.handlers.config_operations import DELETE
from holdfast.broker.handlers.cordon_changes import BROKER, check_right, was_checked, with_refused
from holdfast.model.config import LISTENER_PREFIX
from holdfast.model.errors import ConfigError, HoldfastError, InvalidRequestError
from holdfast.model.shown import shown
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.framing import encode_body
from holdfast.security.resources import Operation


def certificates_checked(handler: Handler) -> Handler:
    """Decorates a handler of configuration changes, outside ``cordons_checked``."""

    @functools.wraps(handler)
    async def run(ctx: RequestContext, request: Any) -> Any:
        own = str(ctx.broker.broker_id)
        refused: dict[int, HoldfastError] = {}
        if not was_checked(ctx):
            for i, resource in enumerate(request.resources):
                if resource.resource_type == BROKER and resource.resource_name == own and _is_of_listeners(resource):
                    try:
                        check_right(ctx, Operation.ALTER_CONFIGS, BROKER, own)
                        _check_listeners(ctx, resource)
                        if _is_of_tls(resource):
                            await _try(ctx, resource)
                    except HoldfastError as e:
                        refused[i] = e
        if not refused:
            return await handler(ctx, request)
        rest = dataclasses.replace(
            request, resources=tuple(each for i, each in enumerate(request.resources) if i not in refused)
        )
        answer = await handler(dataclasses.replace(ctx, body=encode_body(rest)), rest) if rest.resources else None
        return with_refused(ctx, request, answer, refused)

    return run


def _is_of_listeners(resource: Any) -> bool:
    return any(c.name.startswith(("ssl.", LISTENER_PREFIX)) for c in resource.configs)


def _check_listeners(ctx: RequestContext, resource: Any) -> None:
    """InvalidRequestError: a key of a listener that the broker does not have would be told, and do nothing."""
    names = [endpoint.name for endpoint in ctx.broker.config.listeners]
    for change in resource.configs:
        if change.name.startswith(LISTENER_PREFIX) and not _deletes(change):
            listener = change.name.removeprefix(LISTENER_PREFIX).partition(".")[0].upper()
            if listener not in names:
                raise InvalidRequestError(
                    f"{shown(change.name)}: broker {ctx.broker.broker_id} has no listener {shown(listener)}: expected "
                    f"one of {', '.join(names)}"
                )


def _deletes(change: Any) -> bool:
    return change.value is None or getattr(change, "config_operation", None) == DELETE


def _is_of_tls(resource: Any) -> bool:
    return any(
        c.name.startswith("ssl.") or (c.name.startswith(LISTENER_PREFIX) and ".ssl." in c.name)
        for c in resource.configs
    )


async def _try(ctx: RequestContext, resource: Any) -> None:
    """InvalidRequestError, as Kafka answers for every key of a broker that cannot be taken."""
    broker = ctx.broker
    dynamic = dict(broker.config.dynamic) if ctx.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS else {}
    for change in resource.configs:
        if _deletes(change):
            dynamic.pop(change.name, None)
        else:
            dynamic[change.name] = str(change.value)
    try:
        config = broker.config.with_dynamic(default=broker.config.dynamic_default, broker=dynamic)
        await broker.certificates.check(config)
    except ConfigError as e:
        raise InvalidRequestError(e.message) from e
