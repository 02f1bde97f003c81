"""Changes of ``cordoned.log.dirs`` on their way to the controller (KIP-1066): of AlterConfigs, IncrementalAlterConfigs.

Only a broker itself knows its directories. So a change of its own is checked by it before the controller gets the
request; one of another broker may only take cordons off there, as at a controller of Kafka's. A request that another
broker has forwarded was checked there.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from holdfast.broker.entity import built
from holdfast.broker.handlers.base import Handler, RequestContext, respond
from holdfast.broker.membership import is_forwarded
from holdfast.model.config import CORDONED_LOG_DIRS, cordoned_entries
from holdfast.model.errors import ConfigError, HoldfastError
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.framing import decode_response, encode_body, parse_response_header
from holdfast.security.resources import Operation, ResourceKind

BROKER = 4
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3


def cordons_checked(handler: Handler) -> Handler:
    """Decorates a handler of configuration changes, outside ``at_controller``."""

    @functools.wraps(handler)
    async def run(ctx: RequestContext, request: Any) -> Any:
        if was_checked(ctx) or not any(_broker_of(r) is not None for r in request.resources):
            return await handler(ctx, request)
        resources, refused, own = [], {}, None
        for i, resource in enumerate(request.resources):
            try:
                changed, value = _checked(ctx, resource)
            except HoldfastError as e:
                refused[i] = e
                continue
            resources.append(changed)
            if value is not None and _broker_of(resource) == ctx.broker.broker_id:
                own = value
        if not resources:
            return with_refused(ctx, request, None, refused)
        rest = dataclasses.replace(request, resources=tuple(resources))
        inner = dataclasses.replace(ctx, body=encode_body(rest))
        if own is None or request.validate_only:
            return with_refused(ctx, request, await handler(inner, rest), refused)
        async with ctx.broker.cordons.changing(own):
            response = await handler(inner, rest)
        return with_refused(ctx, request, response, refused)

    return run


def was_checked(ctx: RequestContext) -> bool:
    """Whether another broker has forwarded it."""
    return ctx.asker is not None or is_forwarded(ctx.connection, ctx.client_id)


_OF_TOPIC, _OF_GROUP = 2, 32
_KINDS = {_OF_TOPIC: ResourceKind.TOPIC, _OF_GROUP: ResourceKind.GROUP}


def check_right(ctx: RequestContext, operation: Operation, resource_type: int, name: str) -> None:
    """Raises the error of who may not do this with a configuration: of a topic or a group it is a right to that, of all
    else one to the cluster."""
    kind = _KINDS.get(resource_type)
    denied = ctx.missing(operation, ResourceKind.CLUSTER) if kind is None else ctx.missing(operation, kind, name)
    if denied is not None:
        raise denied


def _broker_of(resource: Any) -> int | None:
    """The broker whose cordon a resource may change; None: of none."""
    name = resource.resource_name
    if resource.resource_type != BROKER or not (name.isascii() and name.isdigit() and len(name) <= 10):
        return None
    return int(name)


def _checked(ctx: RequestContext, resource: Any) -> tuple[Any, str | None]:
    """The resource as the controller is to get it, and the value that the broker will have then; None: as it was.

    InvalidRequestError, ConfigError. What is appended or taken away is worked out here: the controller does not know
    the properties file.
    """
    broker_id, broker = _broker_of(resource), ctx.broker
    if broker_id is None:
        return resource, None
    check_right(ctx, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
    is_own = broker_id == broker.broker_id
    named = [c for c in resource.configs if c.name == CORDONED_LOG_DIRS]
    if not named and ctx.api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
        return resource, None
    if not named:  # AlterConfigs: what is not named is removed
        return resource, broker.config.static.get(CORDONED_LOG_DIRS, "") if is_own else None
    wanted = named[-1]
    operation = getattr(wanted, "config_operation", _SET)
    if operation == _DELETE:
        return resource, broker.config.static.get(CORDONED_LOG_DIRS, "") if is_own else None
    if wanted.value is None or operation not in (_SET, _APPEND, _SUBTRACT):
        return resource, None  # refused by whoever takes it
    value = wanted.value if operation == _SET else ",".join(_worked_out(ctx, broker_id, operation, wanted.value))
    if is_own:
        broker.cordons.check(value)
    else:
        broker.cordons.check_elsewhere(broker_id, value)
    if operation == _SET:
        return resource, value
    plain = dataclasses.replace(wanted, config_operation=type(wanted.config_operation)(_SET), value=value)
    configs = tuple(plain if c is wanted else c for c in resource.configs)
    return dataclasses.replace(resource, configs=configs), value


def _worked_out(ctx: RequestContext, broker_id: int, operation: int, value: str) -> Iterator[str]:
    """The entries after an append or a subtraction. ConfigError."""
    broker = ctx.broker
    if broker_id == broker.broker_id:
        present = broker.config.list(CORDONED_LOG_DIRS)
    else:
        kept = broker.metadata.broker_configs.get(broker_id, {}).get(CORDONED_LOG_DIRS)
        if kept is None:  # what its properties file has would be taken off with the rest
            raise ConfigError(
                f"{CORDONED_LOG_DIRS} of broker {broker_id} is not kept by the cluster, so broker {broker.broker_id} "
                f"cannot add to it or take from it: expected a whole value, or the request at broker {broker_id} itself"
            )
        present = cordoned_entries(kept)
    given = cordoned_entries(value)
    if operation == _APPEND:
        return iter((*present, *(each for each in given if each not in present)))
    return (each for each in present if each not in given)


def with_refused(ctx: RequestContext, request: Any, response: Any, refused: dict[int, HoldfastError]) -> Any:
    """The answer with what was refused here in its place."""
    if not refused:
        return response
    if isinstance(response, (bytes, bytearray)):  # the controller's, as it came
        _, start = parse_response_header(ctx.api_key, ctx.version, memoryview(response)[4:])
        response = decode_response(ctx.api_key, ctx.version, memoryview(response)[4 + start :])
    response, ctx = built(response), dataclasses.replace(ctx, is_large=False)
    made = iter(() if response is None else response.responses)
    answers = []
    for i, resource in enumerate(request.resources):
        if i not in refused:
            answers.append(next(made))
            continue
        answers += respond(
            ctx,
            responses=[
                {
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                    "error_code": refused[i],
                    "error_message": refused[i].message,
                }
            ],
        ).responses
    return dataclasses.replace(response or respond(ctx, responses=[]), responses=tuple(answers))
