"""Envelope (58), KIP-590: a client's request on its way from a broker to the controller, with who asks.

Inside are the request as it came, its header included; the principal as Kafka's DefaultPrincipalData, behind its
version; and the client's address. The answer has the answer to the request inside, its header included, or an error
that is the sender's own affair.
"""

from __future__ import annotations

import ipaddress
from functools import cache
from io import BytesIO
from struct import Struct
from typing import Any, Final, NamedTuple

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from holdfast.model.addresses import plain_address
from holdfast.model.errors import InvalidRequestError
from holdfast.protocol import guard
from holdfast.protocol.apis import ApiKey, request_type, response_type
from holdfast.protocol.error_codes import code_of, error_of
from holdfast.protocol.framing import SIZE, Buffer, decode_response, parse_response_header

ENVELOPE_VERSION: Final = 0
_VERSION: Final = Struct(">h")
_MAX_ADDRESS: Final = 16


class Sealed(NamedTuple):
    """What an envelope holds. ``principal``: type and name; ``host``: as plain_address spells it, empty
    where the client's address is none of the internet; ``request``: header and body."""

    principal: tuple[str, str]
    host: str
    request: memoryview


def seal(principal: tuple[str, str], host: str, frame: Buffer) -> Any:
    """The kio entity for a request frame, its size included."""
    out = BytesIO()
    out.write(_VERSION.pack(0))
    kind, name = principal
    entity_writer(DefaultPrincipalData)(out, DefaultPrincipalData(type_=kind, name=name, token_authenticated=False))
    request: Any = request_type(ApiKey.ENVELOPE, ENVELOPE_VERSION)
    return request(
        request_data=bytes(memoryview(frame)[SIZE.size :]),
        request_principal=out.getvalue(),
        client_host_address=_packed(host),
    )


def unseal(envelope: Any) -> Sealed:
    """InvalidRequestError for one without a principal, or that does not hold together."""
    wire = envelope.request_principal
    if wire is None or len(wire) < _VERSION.size:
        raise InvalidRequestError("an envelope without a principal: expected who asks")
    (version,) = _VERSION.unpack_from(wire)
    if version != 0:
        raise InvalidRequestError(f"an envelope with a principal of version {version}: expected 0")
    body = memoryview(wire)[_VERSION.size :]
    guard.check(DefaultPrincipalData, body)
    try:
        principal = _reader()(body, 0)[0]
        address = bytes(envelope.client_host_address)
        host = plain_address(str(ipaddress.ip_address(address))) if address else ""
    except Exception as e:
        raise InvalidRequestError(f"an envelope that cannot be opened: {type(e).__name__}: {e}") from e
    return Sealed((str(principal.type_), str(principal.name)), host, memoryview(envelope.request_data))


def answer_in(frame: Buffer | None, error: Exception | None = None) -> Any:
    """The kio entity of the answer: an answer frame, its size included, or why there is none."""
    response: Any = response_type(ApiKey.ENVELOPE, ENVELOPE_VERSION)
    code = ErrorCode.none if error is None else ErrorCode(code_of(error))  # type: ignore[arg-type]
    return response(response_data=None if frame is None else bytes(memoryview(frame)[SIZE.size :]), error_code=code)


def opened(frame: Buffer) -> bytes:
    """The answer frame that the frame of an envelope's answer has inside, both with their sizes. Raises the error that
    stands there instead."""
    view = memoryview(frame)[SIZE.size :]
    _, start = parse_response_header(ApiKey.ENVELOPE, ENVELOPE_VERSION, view)
    answer = decode_response(ApiKey.ENVELOPE, ENVELOPE_VERSION, view[start:])
    error = error_of(int(answer.error_code))
    if error is not None:
        raise error
    if answer.response_data is None:
        raise InvalidRequestError("the answer to an envelope is empty: expected an answer inside")
    return SIZE.pack(len(answer.response_data)) + bytes(answer.response_data)


def _packed(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed[:_MAX_ADDRESS]
    except ValueError:
        return b""


@cache
def _reader() -> Any:
    return entity_reader(DefaultPrincipalData)
