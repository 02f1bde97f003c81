"""Requests that only the controller can decide: run here when we are it, else forwarded as they came."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from holdfast.broker.handlers.base import Handler, RequestContext
from holdfast.model.errors import NotControllerError

FORWARD_TIMEOUT_S = 30.0
TELL_TIMEOUT_S = 5.0
"""How long an answer waits for brokers that do not answer the controller."""


def at_controller(handler: Handler) -> Handler:
    """Decorates a handler that runs on the active controller; elsewhere the request is forwarded. So is one whose reign
    ends before it has decided: the answers of most APIs have no field to say so. What it did decide and could not
    record, or does not know to be recorded, the next controller decides again, as when a client asks again."""

    @functools.wraps(handler)
    async def run(ctx: RequestContext, request: Any) -> Any:
        while True:
            if reigns(ctx):
                with contextlib.suppress(NotControllerError):
                    return await handler(ctx, request)
            answer = await ctx.broker.membership.forward(
                ctx.api_key, ctx.version, ctx.correlation_id, ctx.body, FORWARD_TIMEOUT_S, is_here=lambda: reigns(ctx)
            )
            if answer is not None:
                return answer

    return run


def reigns(ctx: RequestContext) -> bool:
    """Whether this broker is the controller, and has not heard of its end."""
    controller = ctx.broker.controller
    return controller is not None and not controller.ended.is_set()
