"""SaslHandshake (17) and SaslAuthenticate (36) where nobody is to log in: on a listener without SASL, or once one has.

Versions 0-1 and 0-2. As Kafka answers them there: ILLEGAL_SASL_STATE. Logins are the gate's (broker/gate.py).
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.model.errors import IllegalSaslStateError

_TEXT = "SaslAuthenticate request received after successful authentication"


async def handle_sasl_handshake(ctx: RequestContext, request: Any) -> Any:
    """No mechanisms."""
    return respond(ctx, error_code=IllegalSaslStateError(), mechanisms=[])


async def handle_sasl_authenticate(ctx: RequestContext, request: Any) -> Any:
    """No token is taken."""
    return respond(ctx, error_code=IllegalSaslStateError(), error_message=_TEXT, auth_bytes=b"")
