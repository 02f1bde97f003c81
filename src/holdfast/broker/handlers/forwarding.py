"""Requests that only the controller can decide: run here when we are it, else forwarded as they came."""

from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any, Final

from holdfast.broker.handlers.base import Handler, RequestContext
from holdfast.model.errors import HoldfastError, NotControllerError, UnknownServerError
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.envelope import ENVELOPE_VERSION, opened, seal
from holdfast.protocol.framing import encode_body, encode_request_raw
from holdfast.security.principal import ANONYMOUS

log = logging.getLogger(__name__)

FORWARD_TIMEOUT_S = 30.0
TELL_TIMEOUT_S = 5.0
"""How long an answer waits for brokers that do not answer the controller."""

FORWARDED: Final[set[str]] = {"handle_describe_topic_partitions"}
"""Handlers of requests that brokers send on to the controller, as far as their modules are loaded."""


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
            answer = await forward(ctx, FORWARD_TIMEOUT_S)
            if answer is not None:
                return answer

    FORWARDED.add(handler.__name__)
    return run


async def forward(ctx: RequestContext, timeout_s: float) -> bytes | None:
    """The request to the controller, and its answer frame; None: this broker has become the controller, and it is to be
    handled here. RequestTimedOutError; UnknownServerError where the controller does not take envelopes of this broker.

    Where rights or quotas count it goes in an envelope that says who asks, and the controller judges that one. A
    cluster without logins, authorizer and quotas has nothing to say in one, and may have brokers that know of none.
    """
    membership, here = ctx.broker.membership, functools.partial(reigns, ctx)
    if not ctx.is_judged and ctx.principal == ANONYMOUS and not ctx.broker.quota_view.limits_clients:
        return await membership.forward(ctx.api_key, ctx.version, ctx.correlation_id, ctx.body, timeout_s, is_here=here)
    frame = encode_request_raw(ctx.api_key, ctx.version, ctx.correlation_id, ctx.client_id, ctx.body)
    envelope = seal((ctx.principal.kind, ctx.principal.name), ctx.host, frame)
    answer = await membership.forward(
        ApiKey.ENVELOPE, ENVELOPE_VERSION, ctx.correlation_id, encode_body(envelope), timeout_s, is_here=here
    )
    try:
        return None if answer is None else opened(answer)
    except HoldfastError as e:  # what this broker may not, or said wrongly: nothing that its client can mend
        log.error("the controller refuses what broker %d sends on: %s: %s", ctx.broker.broker_id, type(e).__name__, e)
        raise UnknownServerError("the controller does not take what this broker sends on") from e


def reigns(ctx: RequestContext) -> bool:
    """Whether this broker is the controller, and has not heard of its end."""
    controller = ctx.broker.controller
    return controller is not None and not controller.ended.is_set()
