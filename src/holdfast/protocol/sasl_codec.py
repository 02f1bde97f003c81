"""SaslHandshake and SaslAuthenticate by hand: the client's side before Spark's workers have loaded kio, the broker's
because a login is to cost little.

Reading raises InvalidRequestError for bytes that are none.
"""

from functools import lru_cache
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


# -- the broker's side -----------------------------------------------------------------------------------------------


def read_handshake(body: memoryview) -> str:
    """The mechanism that a client chooses, versions 0 and 1."""
    try:
        name, _ = read_string(body, 0, False)
    except (error, ValueError, IndexError) as e:
        raise InvalidRequestError(f"a SaslHandshake of {len(body)} bytes that cannot be read: {e}") from None
    return name or ""


@lru_cache(64)
def write_handshake_answer(code: int, mechanisms: tuple[str, ...]) -> bytes:
    """Versions 0 and 1. Of the few that a broker gives, each is made once."""
    names = b"".join(SHORT.pack(len(name)) + name.encode() for name in mechanisms)
    return SHORT.pack(code) + INT.pack(len(mechanisms)) + names


def read_authenticate(version: int, body: memoryview) -> bytes:
    """The token of a SaslAuthenticate, versions 0 to 2."""
    try:
        if version >= AUTHENTICATE_VERSIONS[1]:
            size, at = varint(body, 0)
            size -= 1
        else:
            (size,), at = INT.unpack_from(body, 0), 4
    except (error, ValueError, IndexError) as e:
        raise InvalidRequestError(f"a SaslAuthenticate of {len(body)} bytes that cannot be read: {e}") from None
    if not 0 <= size <= len(body) - at:
        raise InvalidRequestError(f"a SaslAuthenticate with a token of {size} bytes in {len(body)}")
    return bytes(body[at : at + size])


def write_authenticate_answer(version: int, code: int, message: str | None, token: bytes, lifetime_ms: int) -> bytes:
    said = None if message is None else message.encode()
    lifetime = _LONG.pack(lifetime_ms) if version >= AUTHENTICATE_VERSIONS[0] else b""
    if version < AUTHENTICATE_VERSIONS[1]:
        text = SHORT.pack(-1) if said is None else SHORT.pack(len(said)) + said
        return b"".join((SHORT.pack(code), text, INT.pack(len(token)), token, lifetime))
    text = b"\0" if said is None else uvarint(len(said) + 1) + said
    return b"".join((SHORT.pack(code), text, uvarint(len(token) + 1), token, lifetime, b"\0"))
