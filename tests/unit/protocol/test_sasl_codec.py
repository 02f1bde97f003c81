"""By hand, and yet what kio makes of Kafka's definitions."""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO
from typing import Any

import kio.schema.sasl_authenticate.v1 as v1
import kio.schema.sasl_authenticate.v2 as v2
import pytest
from kio.schema.errors import ErrorCode
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.serial import entity_writer
from kio.static.primitive import i64Timedelta

from holdfast.model.errors import InvalidRequestError
from holdfast.protocol.sasl_codec import (
    Authenticated,
    decode_authenticate,
    decode_handshake,
    encode_authenticate,
    encode_handshake,
)


def packed(entity: Any) -> bytes:
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def test_the_handshake() -> None:
    assert encode_handshake("PLAIN") == packed(SaslHandshakeRequest(mechanism="PLAIN"))
    answer = SaslHandshakeResponse(error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=("A", "SCRAM-SHA-256"))
    assert decode_handshake(memoryview(packed(answer))) == (33, ("A", "SCRAM-SHA-256"))


@pytest.mark.parametrize(("version", "module"), [(1, v1), (2, v2)])
@pytest.mark.parametrize("size", [0, 1, 300])
@pytest.mark.parametrize("message", [None, "no"])
def test_the_login(version: int, module: Any, size: int, message: str | None) -> None:
    import importlib

    requests = importlib.import_module(f"{module.__name__}.request")
    responses = importlib.import_module(f"{module.__name__}.response")
    data = b"x" * size
    assert encode_authenticate(version, data) == packed(requests.SaslAuthenticateRequest(auth_bytes=data))
    answer = responses.SaslAuthenticateResponse(
        error_code=ErrorCode.sasl_authentication_failed,
        error_message=message,
        auth_bytes=data,
        session_lifetime=i64Timedelta.parse(timedelta(milliseconds=5000)),
    )
    body = packed(answer)
    assert decode_authenticate(version, memoryview(body)) == Authenticated(58, message, data, 5000)
    for end in range(len(body) - 1):  # the last byte of version 2 is that of tagged fields
        if version == 1 or end < len(body) - 1:
            with pytest.raises(InvalidRequestError, match="SaslAuthenticate answer of"):
                decode_authenticate(version, memoryview(body)[:end])


def test_a_handshake_that_ends_early_is_refused() -> None:
    body = packed(SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=("PLAIN",)))
    for end in range(len(body)):
        with pytest.raises(InvalidRequestError, match="SaslHandshake answer of"):
            decode_handshake(memoryview(body)[:end])
