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
from holdfast.model.features import SUPPORTED
from holdfast.protocol.apis import SPOKEN, ApiKey, advertised
from holdfast.protocol.error_codes import code_of
from holdfast.protocol.framing import SIZE, encode_response

_WITH_FEATURES = 3
_MAY_BE_ZERO = 4
"""Before, clients do not take a lowest level of 0: Kafka leaves such features out."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle_api_versions(ctx: RequestContext, request: Any) -> Any:
    """The table of protocol/apis.py; from version 3 on also features, and which levels are in force (KIP-584)."""
    return _refused(ctx, request) or _versions(ctx)


class VersionsAnswers:
    """Answers without a task, as it is asked on every new connection. What is answered is kept for each version until
    there is other metadata: features are a part of it."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, bytes]] = {}

    def answer(self, ctx: RequestContext, request: Any) -> tuple[bytes, int]:
        """The frame, and the error code in it."""
        refused = _refused(ctx, request)
        if refused is not None:
            return encode_response(ctx.correlation_id, refused), int(refused.error_code)
        offset = ctx.broker.metadata.offset if ctx.version >= _WITH_FEATURES else 0
        kept = self._kept.get(ctx.version)
        if kept is None or kept[0] != offset:
            kept = self._kept[ctx.version] = offset, encode_response(0, _versions(ctx))
        frame = kept[1]
        return b"".join((frame[:4], SIZE.pack(ctx.correlation_id), frame[8:])), 0


def _refused(ctx: RequestContext, request: Any) -> Any | None:
    """None: the client says who made it, or cannot in this version."""
    if ctx.version >= _WITH_FEATURES:
        for value in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(value):
                return respond(ctx, error_code=InvalidRequestError())
        ctx.connection.session.software = (request.client_software_name, request.client_software_version)
    return None


def _versions(ctx: RequestContext) -> Any:
    keys = [{"api_key": int(key), "min_version": low, "max_version": high} for key, low, high in advertised()]
    if ctx.version < _WITH_FEATURES:
        return respond(ctx, api_keys=keys)
    return respond(ctx, api_keys=keys, **_features(ctx))


def _features(ctx: RequestContext) -> dict[str, Any]:
    metadata = ctx.broker.metadata
    return {
        "supported_features": [
            {"name": name, "min_version": levels.min, "max_version": levels.max}
            for name, levels in SUPPORTED.items()
            if levels.min or ctx.version >= _MAY_BE_ZERO
        ],
        "finalized_features_epoch": metadata.offset,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in metadata.features.items()
        ],
    }


def unsupported_version_answer(correlation_id: int) -> bytes:
    """The version 0 answer to an ApiVersions request of a version we do not know."""
    span = SPOKEN[ApiKey.API_VERSIONS]
    body = struct.pack(
        ">ihihhh", correlation_id, code_of(UnsupportedVersionError), 1, int(ApiKey.API_VERSIONS), span.min, span.max
    )
    return struct.pack(">i", len(body)) + body
