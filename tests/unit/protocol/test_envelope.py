"""Envelopes: what a broker sends on for a client, and who asks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast.model.errors import ClusterAuthorizationFailedError, InvalidRequestError
from holdfast.protocol.envelope import answer_in, opened, seal, unseal
from holdfast.protocol.framing import encode_response, encode_response_raw

FRAME = b"\0\0\0\4abcd"


@pytest.mark.parametrize("host", ["127.0.0.1", "0:0:0:0:0:0:0:1", "2001:db8:0:0:0:0:0:1", ""])
@pytest.mark.parametrize("principal", [("User", "alice"), ("User", "a:b=c, é"), ("User", "")])
def test_who_asks_and_the_request_come_out_as_they_went_in(host: str, principal: tuple[str, str]) -> None:
    sealed = unseal(seal(principal, host, FRAME))
    assert (sealed.principal, sealed.host, bytes(sealed.request)) == (principal, host, b"abcd")


def test_what_is_no_address_of_the_internet_is_left_out() -> None:
    assert unseal(seal(("User", "a"), "a-name", FRAME)).host == ""


def test_the_principal_is_kafkas_default_principal_data() -> None:
    assert seal(("User", "bob"), "10.0.0.1", FRAME).request_principal == b"\0\0\5User\4bob\0\0"
    assert seal(("User", "bob"), "10.0.0.1", FRAME).client_host_address == b"\n\0\0\1"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request_principal", None),
        ("request_principal", b""),
        ("request_principal", b"\0\1\5User\4bob\0\0"),
        ("request_principal", b"\0\0\5User\4b"),
        ("request_principal", b"\0\0\x7fUser"),
        ("request_principal", b"\0\0\5U\xffer\4bob\0\0"),
        ("client_host_address", b"abc"),
        ("client_host_address", bytes(17)),
    ],
)
def test_one_that_does_not_hold_together_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError):
        unseal(dataclasses.replace(seal(("User", "bob"), "10.0.0.1", FRAME), **{field: value}))


def test_an_answer_comes_out_as_a_frame() -> None:
    inner = encode_response_raw(19, 7, 5, b"body")
    assert opened(encode_response(9, answer_in(inner))) == inner


def test_an_error_of_the_envelope_is_raised_and_an_empty_answer_is_one() -> None:
    with pytest.raises(ClusterAuthorizationFailedError):
        opened(encode_response(9, answer_in(None, ClusterAuthorizationFailedError("no"))))
    with pytest.raises(InvalidRequestError, match="is empty"):
        opened(encode_response(9, answer_in(None)))
