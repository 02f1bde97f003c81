"""ApiVersions (API 18): what this broker speaks.

An ApiVersions request of an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of
ApiVersions itself, so that any client can go on (KIP-511). Software names are checked as Kafka does.
"""

from __future__ import annotations

import re
import struct
from typing import Any

from holdfast.broker.handlers.base import RequestContext, respond
from holdfast.model.errors import InvalidRequestError, UnsupportedVersionError
from holdfast.protocol.apis import SPOKEN, ApiKey, advertised
from holdfast.protocol.error_codes import code_of

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle_api_versions(ctx: RequestContext, request: Any) -> Any:
    """The table of protocol/apis.py."""
    if ctx.version >= 3:
        for value in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(value):
                return respond(ctx, error_code=InvalidRequestError())
        ctx.connection.session["software"] = (request.client_software_name, request.client_software_version)
    keys = [{"api_key": int(key), "min_version": low, "max_version": high} for key, low, high in advertised()]
    return respond(ctx, api_keys=keys, finalized_features_epoch=-1)


def unsupported_version_answer(correlation_id: int) -> bytes:
    """The version 0 answer to an ApiVersions request of a version we do not know."""
    span = SPOKEN[ApiKey.API_VERSIONS]
    body = struct.pack(
        ">ihihhh", correlation_id, code_of(UnsupportedVersionError), 1, int(ApiKey.API_VERSIONS), span.min, span.max
    )
    return struct.pack(">i", len(body)) + body
