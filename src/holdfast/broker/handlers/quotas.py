"""DescribeClientQuotas (48) and AlterClientQuotas (49): how much users, clients and addresses may.

Versions 0-1. Any broker describes what it was told; the controller decides changes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any

from holdfast.broker.handlers.base import RequestContext, older_protocol, respond
from holdfast.broker.handlers.forwarding import TELL_TIMEOUT_S, at_controller
from holdfast.controller.user_events import AlterQuotas, QuotaChange
from holdfast.model.errors import HoldfastError
from holdfast.security.quota_entities import IP, EntityFilter

RESOLVE_TIMEOUT_S = 5.0
"""How long an answer waits for what a name server says of the hosts that it names."""


async def handle_describe_client_quotas(ctx: RequestContext, request: Any) -> Any:
    """What the filter finds."""
    try:
        components = [(c.entity_type, c.match_type, c.match) for c in request.components]
        wanted = EntityFilter(components, strict=request.strict)
    except HoldfastError as e:
        return respond(ctx, error_code=e, error_message=e.message, entries=None)
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "values": [{"key": key, "value": value} for key, value in sorted(values.items())],
        }
        for entity, values in ctx.broker.quota_view.matching(wanted)
    ]
    return respond(ctx, error_message="", entries=entries)


@at_controller
async def handle_alter_client_quotas(ctx: RequestContext, request: Any) -> Any:
    """One result for each entry."""
    changes = tuple(
        QuotaChange(
            entity=tuple((e.entity_type, e.entity_name) for e in entry.entity),
            values=tuple((op.key, None if op.remove else op.value) for op in entry.ops),
        )
        for entry in request.entries
    )
    hosts = {name for change in changes for kind, name in change.entity if kind == IP and name}
    if (older := older_protocol(ctx)) is not None:
        errors: tuple[HoldfastError | None, ...] = (older,) * len(changes)
    else:
        unknown = await _unknown_hosts(hosts)
        asked = AlterQuotas(changes=changes, validate_only=request.validate_only, unknown_hosts=unknown)
        errors = (await ctx.submit(asked)).errors
    if ctx.broker.controller is not None and not request.validate_only:
        await ctx.broker.controller.told_everybody(TELL_TIMEOUT_S)
    return respond(
        ctx,
        entries=[
            {
                "error_code": error,
                "error_message": None if error is None else error.message,
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in change.entity],
            }
            for change, error in zip(changes, errors, strict=True)
        ],
    )


async def _unknown_hosts(names: Iterable[str]) -> frozenset[str]:
    """Those that are no address, and that no name server knows. Kafka takes a host, too, and compares it with
    addresses; so does this."""
    asked = [name for name in names if not _is_address(name)]
    if not asked:
        return frozenset()
    loop = asyncio.get_running_loop()

    async def is_known(name: str) -> bool:
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                return bool(await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):  # and a TimeoutError, which is one
            return False

    known = [await is_known(name) for name in asked]
    return frozenset(name for name, there in zip(asked, known, strict=True) if not there)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
