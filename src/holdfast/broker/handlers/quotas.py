"""DescribeClientQuotas (48) and DescribeUserScramCredentials (50): none are set, since none can be set.

Versions 0-1 and 0. Tools that describe a client or a user get an empty answer, as from a Kafka without any.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.model.errors import ResourceNotFoundError


async def handle_describe_client_quotas(ctx: RequestContext, request: Any) -> Any:
    """No entries."""
    return respond(ctx, error_message=None, entries=[])


async def handle_describe_user_scram_credentials(ctx: RequestContext, request: Any) -> Any:
    """No users; each that is named is not found."""
    results = []
    for user in request.users or ():
        error = ResourceNotFoundError(f"Attempt to describe a user credential that does not exist: {user.name}")
        results.append({"user": user.name, "error_code": error, "error_message": error.message, "credential_infos": []})
    return respond(ctx, error_message=None, results=results)
