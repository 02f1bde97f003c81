"""The client's side of framing: entity -> request frame, response frame -> body or entity.

Thin over kio: nothing here knows an API by name, except that ApiVersions answers always have the old header.
"""

import struct
from functools import cache
from io import BytesIO
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

_HEAD = struct.Struct(">ihhih")
API_VERSIONS = 18


def encode_request_raw(
    api_key: int, version: int, correlation_id: int, client_id: str, body: bytes, flexible: bool | None = None
) -> bytes:
    """One frame, its 4-byte size included."""
    name = client_id.encode()
    tags = b"\0" if (is_flexible(api_key, version) if flexible is None else flexible) else b""
    size = 10 + len(name) + len(tags) + len(body)
    return b"".join((_HEAD.pack(size, api_key, version, correlation_id, len(name)), name, tags, body))


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str, entity: Any) -> bytes:
    body = BytesIO()
    entity_writer(type(entity))(body, entity)
    return encode_request_raw(
        api_key, version, correlation_id, client_id, body.getvalue(), type(entity).__flexible__
    )


def response_body(api_key: int, version: int, frame: memoryview) -> memoryview:
    """What follows the response header; ``frame`` begins with the correlation id."""
    if api_key == API_VERSIONS or not is_flexible(api_key, version):
        return frame[4:]
    if frame[4] == 0:
        return frame[5:]
    raise ValueError("tagged fields in a response header are not known")


def decode_response(api_key: int, version: int, body: memoryview) -> Any:
    entity, _size = _reader(api_key, version)(body, 0)
    return entity


@cache
def is_flexible(api_key: int, version: int) -> bool:
    return bool(load_response_schema(api_key, version).__flexible__)


@cache
def _reader(api_key: int, version: int) -> Any:
    return entity_reader(load_response_schema(api_key, version))
