"""SaslHandshake v1 and SaslAuthenticate v1 and v2, the client's side: before Spark's workers have loaded kio.

Reading raises InvalidRequestError for bytes that are no answer.
"""

from struct import Struct, error
from typing import Final, NamedTuple

from holdfast.model.errors import InvalidRequestError
from holdfast.protocol.wire import INT, SHORT, read_count, read_string, uvarint, varint

HANDSHAKE: Final = 17
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE: Final = 36
AUTHENTICATE_VERSIONS: Final = (1, 2)
"""Oldest and newest that are spoken; 1 has the lifetime of a session (KIP-368), 2 is flexible."""
_LONG: Final = Struct(">q")


class Authenticated(NamedTuple):
    """One answer; ``lifetime_ms`` 0: the session does not end."""

    error_code: int
    message: str | None
    data: bytes
    lifetime_ms: int


def encode_handshake(mechanism: str) -> bytes:
    name = mechanism.encode()
    return SHORT.pack(len(name)) + name


def decode_handshake(body: memoryview) -> tuple[int, tuple[str, ...]]:
    """Error code, and the mechanisms that the broker has."""
    try:
        (code,) = SHORT.unpack_from(body, 0)
        count, at = read_count(body, 2, False)
        names = []
        for _ in range(count):
            name, at = read_string(body, at, False)
            names.append(name or "")
    except (error, ValueError, IndexError) as e:
        raise InvalidRequestError(f"a SaslHandshake answer of {len(body)} bytes that cannot be read: {e}") from None
    return code, tuple(names)


def encode_authenticate(version: int, data: bytes) -> bytes:
    if version < 2:
        return INT.pack(len(data)) + data
    return uvarint(len(data) + 1) + data + b"\0"


def decode_authenticate(version: int, body: memoryview) -> Authenticated:
    flexible = version >= 2
    try:
        (code,) = SHORT.unpack_from(body, 0)
        message, at = read_string(body, 2, flexible)
        if flexible:
            size, at = varint(body, at)
            size -= 1
        else:
            (size,), at = INT.unpack_from(body, at), at + 4
        data = bytes(body[at : at + size])
        (lifetime_ms,) = _LONG.unpack_from(body, at + max(size, 0))
    except (error, ValueError, IndexError) as e:
        raise InvalidRequestError(f"a SaslAuthenticate answer of {len(body)} bytes that cannot be read: {e}") from None
    return Authenticated(code, message, data, lifetime_ms)
