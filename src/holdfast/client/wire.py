"""The client's side of framing, in the form that a connection wants it.

Thin over protocol/framing.py: a response frame becomes its body, errors become this floor's.
"""

from typing import Any

from holdfast.protocol.framing import (
    decode_response,
    encode_body,
    encode_request,
    encode_request_raw,
    parse_response_header,
)

__all__ = ["decode_response", "encode_body", "encode_request", "encode_request_raw", "error_name", "response_body"]


def response_body(api_key: int, version: int, frame: memoryview) -> memoryview:
    """What follows the response header; ``frame`` begins with the correlation id."""
    return frame[parse_response_header(api_key, version, frame)[1] :]


def error_name(error: Any) -> str:
    """Kafka's name of an error, for lines that a person reads: ``UNKNOWN_TOPIC_OR_PARTITION``."""
    from kio.schema.errors import ErrorCode

    from holdfast.protocol.error_codes import code_of

    return ErrorCode(code_of(error)).name.upper()
