"""What a stranger sends is decoded or refused, for every API and version; it never ends the process."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.static.primitive import Records, i64Timedelta

from holdfast.model.errors import InvalidRequestError
from holdfast.protocol.apis import INTERNAL, SPOKEN, ApiKey, is_flexible, request_type, response_type
from holdfast.protocol.framing import (
    FrameError,
    decode_request,
    decode_response,
    encode_body,
    parse_request_header,
    split_frames,
)
from holdfast.protocol.guard import check

st.register_type_strategy(Records, st.binary(max_size=300).map(Records))
# The codec writes some milliseconds that it cannot read again: more than an int64 has of microseconds.
st.register_type_strategy(
    i64Timedelta, st.integers(0, 2**52).map(lambda ms: i64Timedelta.parse(timedelta(milliseconds=ms)))
)

# Of each API the first and last version, and the first one with compact fields.
ENDS = sorted(
    {
        (key, v)
        for table in (SPOKEN, INTERNAL)
        for key, span in table.items()
        for v in range(span.min, span.max + 1)
        if v in span[:2] or is_flexible(key, v) != is_flexible(key, v - 1)
    }
)
few = settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Some bytes changed to what breaks lengths most, perhaps the end cut off."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(
                st.sampled_from((0x00, 0x7F, 0x80, 0xFF)) | st.integers(0, 255)
            )
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@pytest.mark.parametrize(("key", "version"), ENDS, ids=lambda x: x.name if isinstance(x, ApiKey) else f"v{x}")
@few
@given(data=st.data())
def test_messages_go_there_and_back_and_damaged_ones_do_no_harm(key: ApiKey, version: int, data: st.DataObject) -> None:
    for kind, decode in (
        (request_type(key, version), decode_request),
        (response_type(key, version), decode_response),
    ):
        entity: Any = data.draw(st.from_type(kind))
        body = encode_body(entity)
        check(kind, body)
        assert encode_body(decode(key, version, body)) == body
        for _ in range(3):
            with suppress(InvalidRequestError):
                decode(key, version, data.draw(damaged(body)))


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_frames_or_refused(data: bytes) -> None:
    try:
        found = split_frames(data, 1000)
    except FrameError:
        return
    assert found.consumed + (len(data) - found.consumed) == len(data)
    for frame in found.frames:
        try:
            header = parse_request_header(frame)
        except InvalidRequestError:
            continue
        assert header.body_offset <= len(frame)


@settings(max_examples=200, deadline=None)
@given(frames=st.lists(st.binary(min_size=1, max_size=30), max_size=5), cut=st.integers(0, 200))
def test_frames_come_out_as_they_went_in(frames: list[bytes], cut: int) -> None:
    data = b"".join(len(f).to_bytes(4, "big") + f for f in frames)
    first = split_frames(data[:cut], 100)
    rest = split_frames(data[first.consumed :], 100)
    assert [bytes(f) for f in first.frames + rest.frames] == frames
    assert first.consumed + rest.consumed == len(data)
