"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): there is no authorizer, and that is the answer.

Versions 1-3. As Apache Kafka answers without one: SECURITY_DISABLED, for the request or for each entry of it.
"""

from __future__ import annotations

from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.model.errors import SecurityDisabledError

_REFUSED = SecurityDisabledError("No Authorizer is configured on the broker")
_FIELDS = {"error_code": _REFUSED, "error_message": _REFUSED.message}


async def handle_describe_acls(ctx: RequestContext, request: Any) -> Any:
    """No access control lists."""
    return respond(ctx, **_FIELDS, resources=[])


async def handle_create_acls(ctx: RequestContext, request: Any) -> Any:
    """One refusal per entry."""
    return respond(ctx, results=[_FIELDS for _ in request.creations])


async def handle_delete_acls(ctx: RequestContext, request: Any) -> Any:
    """One refusal per filter."""
    return respond(ctx, filter_results=[{**_FIELDS, "matching_acls": []} for _ in request.filters])
