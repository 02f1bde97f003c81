"""Envelope (58): what a broker sends on for a client, handled and judged as that client's (protocol/envelope.py).

Version 0, on the listener of brokers alone and for who may ClusterAction: whoever sends an envelope says who asks. Only
what brokers send on is taken. A broker that is not the controller any more sends it on in turn.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from holdfast.broker.entity import built
from holdfast.broker.handlers.base import Asker, RequestContext
from holdfast.broker.handlers.forwarding import FORWARDED
from holdfast.model.errors import HoldfastError, InvalidRequestError, UnknownServerError
from holdfast.protocol.apis import is_spoken
from holdfast.protocol.envelope import answer_in, unseal
from holdfast.protocol.framing import encode_response, parse_request_header
from holdfast.security.principal import Principal


async def handle_envelope(ctx: RequestContext, request: Any) -> Any:
    """The answer to what is inside, or why that cannot be answered."""
    try:
        inner = _opened(ctx, request)
        asked, is_large = await ctx.broker.dispatcher.large.decoded(inner.api_key, inner.version, inner.body)
    except HoldfastError as e:
        return answer_in(None, e)
    inner = dataclasses.replace(inner, is_large=is_large)
    response, code = await ctx.broker.dispatcher.response_to(inner, asked)
    if response is None:
        return answer_in(None, UnknownServerError(f"API key {inner.api_key} has failed with error {code}"))
    if isinstance(response, (bytes, bytearray)):
        return answer_in(response)
    encode = partial(_encoded, inner.correlation_id, response)
    return answer_in(await ctx.broker.dispatcher.large.beside(encode) if is_large else encode())


def _encoded(correlation_id: int, response: Any) -> bytes:
    return encode_response(correlation_id, built(response))


def _opened(ctx: RequestContext, request: Any) -> RequestContext:
    """The surroundings of the request inside: those of the envelope, but who asks. InvalidRequestError."""
    sealed = unseal(request)
    header = parse_request_header(sealed.request)
    key = header.api_key
    handler = ctx.broker.dispatcher.handler_of(key) if is_spoken(key, header.api_version) else None
    if handler is None or handler.__name__ not in FORWARDED:
        raise InvalidRequestError(f"API key {key} version {header.api_version} in an envelope: brokers send none on")
    body = bytes(sealed.request[header.body_offset :])
    return dataclasses.replace(
        ctx, api_key=key, version=header.api_version, correlation_id=header.correlation_id,
        client_id=header.client_id, body=body, asker=Asker(Principal(*sealed.principal), sealed.host),
    )  # fmt: skip
