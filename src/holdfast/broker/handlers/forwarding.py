"""Requests that only the controller can decide: run here when we are it, else forwarded as they came."""

from __future__ import annotations

import functools
from typing import Any

from holdfast.broker.handlers.base import Handler, RequestContext
from holdfast.model.errors import NotControllerError

FORWARD_TIMEOUT_S = 30.0
TELL_TIMEOUT_S = 5.0
"""How long an answer waits for brokers that do not answer the controller."""


def at_controller(handler: Handler) -> Handler:
    """Decorates a handler that runs on the active controller; elsewhere the request is forwarded."""

    @functools.wraps(handler)
    async def run(ctx: RequestContext, request: Any) -> Any:
        if ctx.broker.controller is not None:
            try:
                return await handler(ctx, request)
            except NotControllerError:
                if ctx.broker.controller is not None:
                    raise
        return await ctx.broker.membership.forward(
            ctx.api_key, ctx.version, ctx.correlation_id, ctx.body, FORWARD_TIMEOUT_S
        )

    return run
