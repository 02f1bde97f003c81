"""Bytes to requests and responses to bytes: frames, headers, and kio for what is inside.

A frame is a 4-byte size and so many bytes: header, then body. Pure; sockets and buffers belong to the caller.
What a stranger sends is refused with InvalidRequestError or FrameError and nothing worse.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple, TypeAlias, cast

from kio.serial import entity_reader, entity_writer

from holdfast.model.errors import InvalidRequestError, RequestError
from holdfast.protocol import guard
from holdfast.protocol.apis import (
    is_flexible,
    request_type,
    response_header_version,
    response_type,
)
from holdfast.protocol.wire import skip_tags

Buffer: TypeAlias = bytes | bytearray | memoryview

SIZE: Final = Struct(">i")
_REQUEST: Final = Struct(">hhih")
_FRAMED_REQUEST: Final = Struct(">ihhih")
_FRAMED_RESPONSE: Final = Struct(">ii")
_REQUEST_FIXED: Final = _REQUEST.size


class FrameError(RequestError):
    """The size of a frame is not one that is served: the connection cannot go on."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"frame of {size} bytes: expected 1 to {limit}")
        self.size = size


@dataclass(slots=True)
class RequestHeader:
    """A request's header; ``body_offset`` is where in the frame (without its size) the body begins. Never changed: it
    is read a dozen times a request, and slots are what the interpreter reads fastest."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


class Frames(NamedTuple):
    """What was found in a buffer: whole frames without their sizes, how far they reach, and how many bytes
    from there on the next frame needs (None while its size is not known)."""

    frames: list[memoryview]
    consumed: int
    needed: int | None


def split_frames(buf: Buffer, limit: int, start: int = 0, end: int | None = None) -> Frames:
    """The whole frames of ``buf[start:end]``, as views. FrameError at a size that is not 1 to ``limit``."""
    view = memoryview(buf)
    stop = len(view) if end is None else end
    frames: list[memoryview] = []
    while stop - start >= 4:
        size: int = SIZE.unpack_from(view, start)[0]
        if not 0 < size <= limit:
            raise FrameError(size, limit)
        following = start + 4 + size
        if following > stop:
            return Frames(frames, start, 4 + size)
        frames.append(view[start + 4 : following])
        start = following
    return Frames(frames, start, None)


def parse_request_header(frame: Buffer) -> RequestHeader:
    """The header of a request of any API and version; whether it is spoken is the caller's question.

    InvalidRequestError if it does not hold together.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST.unpack_from(frame, 0)
        pos = _REQUEST_FIXED
        client_id = None
        if length >= 0:
            client_id = str(frame[pos : pos + length], "utf-8")
            pos += length
        if pos > len(frame):
            raise InvalidRequestError(f"client id of {length} bytes in a frame of {len(frame)}")
        if is_flexible(api_key, version):
            if frame[pos]:
                pos = skip_tags(frame, pos)
            else:
                pos += 1
    except (StructError, IndexError, ValueError) as e:
        raise InvalidRequestError(f"request header of a frame of {len(frame)} bytes: {e}") from None
    return RequestHeader(api_key, version, correlation_id, client_id, pos)


# -- requests ------------------------------------------------------------------------------------------------


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, entity: Any) -> bytes:
    """A request of a kio entity, its 4-byte size included."""
    return encode_request_raw(api_key, version, correlation_id, client_id, encode_body(entity))


def encode_request_raw(api_key: int, version: int, correlation_id: int, client_id: str | None, body: Buffer) -> bytes:
    """A request of an encoded body, its 4-byte size included."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if is_flexible(api_key, version) else b""
    size = _REQUEST_FIXED + len(name) + len(tags) + len(body)
    return b"".join((_FRAMED_REQUEST.pack(size, api_key, version, correlation_id, length), name, tags, body))


def decode_request(api_key: int, version: int, body: Buffer) -> Any:
    """The kio entity of a request body. InvalidRequestError if it is not one; KeyError if there is no such
    version. Bytes after the body are ignored, as Kafka does."""
    check_request(api_key, version, body)
    return decode_checked(api_key, version, body)


def check_request(api_key: int, version: int, body: Buffer, most: int | None = None) -> int:
    """How many elements the arrays of a request body have together, before anything is made of them.
    InvalidRequestError if it cannot be one, or has more than ``most``; KeyError if there is no such version."""
    return guard.check(request_type(api_key, version), body, most=most)


def decode_checked(api_key: int, version: int, body: Buffer) -> Any:
    """The kio entity of a request body that ``check_request`` has found to be one. InvalidRequestError."""
    return _decode(request_type(api_key, version), body)


# -- responses -----------------------------------------------------------------------------------------------


def encode_response(correlation_id: int, entity: Any) -> bytes:
    """A response of a kio entity, its 4-byte size included; API and version are the entity's."""
    return encode_response_raw(int(entity.__api_key__), int(entity.__version__), correlation_id, encode_body(entity))


def encode_response_raw(api_key: int, version: int, correlation_id: int, body: Buffer) -> bytes:
    """A response of an encoded body, its 4-byte size included."""
    if response_header_version(api_key, version):
        return b"".join((_FRAMED_RESPONSE.pack(5 + len(body), correlation_id), b"\0", body))
    return b"".join((_FRAMED_RESPONSE.pack(4 + len(body), correlation_id), body))


def parse_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """(correlation id, where the body begins) of a response frame without its size."""
    try:
        correlation_id: int = SIZE.unpack_from(frame, 0)[0]
        if not response_header_version(api_key, version):
            return correlation_id, 4
        return correlation_id, 5 if not frame[4] else skip_tags(frame, 4)
    except (StructError, IndexError, ValueError) as e:
        raise InvalidRequestError(f"response header of a frame of {len(frame)} bytes: {e}") from None


def decode_response(api_key: int, version: int, body: Buffer) -> Any:
    """The kio entity of a response body. InvalidRequestError if it is not one."""
    kind = response_type(api_key, version)
    guard.check(kind, body)
    return _decode(kind, body)


# -- entities ------------------------------------------------------------------------------------------------


def encode_body(entity: Any) -> bytes:
    """A kio entity without any header."""
    out = BytesIO()
    kind: Any = type(entity)
    _writer(kind)(out, entity)
    return out.getvalue()


def _decode(kind: Any, body: Buffer) -> Any:
    try:
        return _reader(kind)(body, 0)[0]
    except Exception as e:
        raise InvalidRequestError(f"{kind.__name__} cannot be decoded: {type(e).__name__}: {e}") from e


@cache
def _reader(kind: Any) -> Callable[[Buffer, int], tuple[Any, int]]:
    return cast("Callable[[Buffer, int], tuple[Any, int]]", entity_reader(kind))


@cache
def _writer(kind: Any) -> Callable[[BytesIO, Any], None]:
    return cast("Callable[[BytesIO, Any], None]", entity_writer(kind))
