"""Readers of envelopes: who asks, from where, and what is sent on for them; and the answer on its way back."""

from typing import Any

from holdfast.model.errors import RequestError
from tests.fuzz.reader import Reader, Run

_HOSTS = ("10.9.8.7", "2001:db8:0:0:0:0:0:1", "")
_PRINCIPALS = (("User", "alice"), ("User", "a=b,c:é"), ("User", ""))
_WORDS = (b"\x00\x00", b"\x00\x05User", b"\xff\xff\xff\xff\x0f", b"\x00\x01", bytes(16), bytes(4))


def _make_envelope() -> Run:
    """The body of an Envelope: what is taken out of it makes the same envelope again, and its request has a header or
    is refused."""
    from holdfast.model.errors import InvalidRequestError
    from holdfast.protocol.apis import ApiKey
    from holdfast.protocol.envelope import ENVELOPE_VERSION, seal, unseal
    from holdfast.protocol.framing import decode_request, parse_request_header

    def run(data: bytes) -> Any:
        sealed = unseal(decode_request(ApiKey.ENVELOPE, ENVELOPE_VERSION, data))
        again = unseal(seal(sealed.principal, sealed.host, bytes(4) + bytes(sealed.request)))
        assert (again.principal, again.host, bytes(again.request)) == (
            sealed.principal, sealed.host, bytes(sealed.request),
        )  # fmt: skip
        try:
            return parse_request_header(sealed.request).api_key & 7
        except InvalidRequestError:
            return "no header"

    return run


def _envelope_corpus() -> list[bytes]:
    from holdfast.protocol.envelope import seal
    from holdfast.protocol.framing import encode_body, encode_request_raw

    frame = encode_request_raw(19, 7, 5, "client", b"\x01\x00\x00\x00\x05\x00\x00")
    return [encode_body(seal(principal, host, frame)) for principal in _PRINCIPALS for host in _HOSTS]


def _make_answer() -> Run:
    """A frame with the answer to an Envelope: a frame of its own length comes out, or an error."""
    from holdfast.model.errors import HoldfastError
    from holdfast.protocol.envelope import opened
    from holdfast.protocol.framing import FrameError, InvalidRequestError

    def run(data: bytes) -> Any:
        try:
            frame = opened(data)
        except (FrameError, InvalidRequestError):
            raise
        except HoldfastError as e:
            return type(e).__name__
        assert len(frame) == 4 + int.from_bytes(frame[:4], "big")
        return len(frame) & 7

    return run


def _answer_corpus() -> list[bytes]:
    from holdfast.model.errors import ClusterAuthorizationFailedError
    from holdfast.protocol.envelope import answer_in
    from holdfast.protocol.framing import encode_response, encode_response_raw

    inner = encode_response_raw(19, 7, 5, b"\x00\x00\x00\x00\x01\x00")
    refused = answer_in(None, ClusterAuthorizationFailedError("no"))
    return [encode_response(9, answer_in(inner)), encode_response(9, refused), encode_response(9, answer_in(None))]


READERS = (
    Reader(
        name="envelopes",
        reads="what a broker sends on for a client",
        make=_make_envelope,
        corpus=_envelope_corpus,
        refusals=(RequestError,),
        tokens=_WORDS,
        max_size=600,
    ),
    Reader(
        name="envelope-answers",
        reads="the controller's answer to it",
        make=_make_answer,
        corpus=_answer_corpus,
        refusals=(RequestError,),
        tokens=_WORDS,
        max_size=300,
    ),
)
