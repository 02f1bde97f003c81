"""Frames and headers: what is whole, what needs more, what is refused."""

import datetime
import json
from pathlib import Path

import pytest
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v1.request import MetadataRequest as MetadataRequestV1
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.static.primitive import i32, i32Timedelta

from holdfast.model.errors import InvalidRequestError
from holdfast.protocol.framing import (
    FrameError,
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_request_raw,
    encode_response,
    encode_response_raw,
    parse_request_header,
    parse_response_header,
    split_frames,
)

GOLDEN = Path(__file__).parents[2] / "golden/wire/4.3.0"
LIMIT = 1000


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


# -- frames ------------------------------------------------------------------------------------------------


def test_whole_frames_are_split_and_the_rest_is_told() -> None:
    data = frame(b"one") + frame(b"two!") + frame(b"three")[:6]
    found = split_frames(data, LIMIT)
    assert [bytes(f) for f in found.frames] == [b"one", b"two!"]
    assert found.consumed == 15
    assert found.needed == 9


def test_a_size_that_is_not_there_yet() -> None:
    assert split_frames(b"\0\0\0", LIMIT) == ([], 0, None)
    assert split_frames(b"", LIMIT) == ([], 0, None)


def test_a_window_of_a_buffer() -> None:
    data = bytearray(b"xx" + frame(b"one") + b"yy")
    found = split_frames(data, LIMIT, 2, 9)
    assert [bytes(f) for f in found.frames] == [b"one"]
    assert found.consumed == 9


@pytest.mark.parametrize("size", [0, -1, LIMIT + 1, 2**31 - 1, 0x47455420])
def test_a_size_that_is_refused(size: int) -> None:
    with pytest.raises(FrameError, match=str(size)) as caught:
        split_frames(size.to_bytes(4, "big", signed=True), LIMIT)
    assert caught.value.size == size


# -- request headers ---------------------------------------------------------------------------------------


def test_request_headers_of_both_kinds() -> None:
    old = encode_request_raw(3, 1, 7, "me", b"body")[4:]
    assert parse_request_header(old) == RequestHeader(3, 1, 7, "me", 12)
    new = encode_request_raw(3, 12, 7, None, b"body")[4:]
    assert parse_request_header(memoryview(new)) == RequestHeader(3, 12, 7, None, 11)
    assert new[11:] == b"body"


def test_tagged_fields_in_a_request_header_are_skipped() -> None:
    head = bytes.fromhex("0003000c00000007ffff") + b"\x02\x05\x03abc\x06\x00"
    assert parse_request_header(head + b"body").body_offset == len(head)


def test_headers_of_unknown_apis_are_read_too() -> None:
    assert parse_request_header(bytes.fromhex("00c80000000000010001") + b"x").api_key == 200
    assert parse_request_header(bytes.fromhex("00120063000000010001") + b"x\0").api_version == 99


@pytest.mark.parametrize(
    "hexed",
    [
        "deadbeef",  # four bytes
        "001200000000000175306162",  # client id longer than the frame
        "0012000000000001000261ff",  # client id is not UTF-8
        "0003000c00000007ffff",  # no tagged fields
        "0003000c00000007ffff0105",  # tagged field without a size
        "0003000c00000007ffff01050900",  # tagged field longer than the frame
        "0003000c00000007ffffffffffffffff",  # count of tagged fields too long
    ],
)
def test_headers_that_do_not_hold_together(hexed: str) -> None:
    with pytest.raises(InvalidRequestError):
        parse_request_header(bytes.fromhex(hexed))


def test_recorded_protocol_errors() -> None:
    """What Kafka closes the connection for is refused here, by one of our two errors or as not spoken."""
    from holdfast.protocol.apis import is_spoken

    cases = json.loads((GOLDEN / "protocol_errors.json").read_text())
    seen = 0
    for case in cases:
        sent = bytes.fromhex(case["sent_hex"]) if "sent_hex" in case else frame(bytes.fromhex(case["request_hex"]))
        if not case["outcome"].startswith("connection closed") or "FIN" in case["name"]:
            continue
        seen += 1
        try:
            body = split_frames(sent, 104_857_600).frames[0]
            header = parse_request_header(body)
            if is_spoken(header.api_key, header.api_version):
                # LeaderAndIsr and its kin are ours; their recorded bodies are not whole.
                decode_request(header.api_key, header.api_version, body[header.body_offset :])
                pytest.fail(case["name"])
        except (FrameError, InvalidRequestError):
            pass
    assert seen > 15


# -- bodies ------------------------------------------------------------------------------------------------

REQUEST = MetadataRequest(topics=(), allow_auto_topic_creation=True, include_topic_authorized_operations=False)
RESPONSE = MetadataResponse(
    throttle_time=i32Timedelta.parse(datetime.timedelta(0)), brokers=(), cluster_id="c", controller_id=i32(1), topics=()
)  # type: ignore[arg-type]


def test_a_request_there_and_back() -> None:
    data = encode_request(3, 12, 5, "me", REQUEST)
    (whole,) = split_frames(data, LIMIT).frames
    header = parse_request_header(whole)
    assert header == RequestHeader(3, 12, 5, "me", 13)
    assert decode_request(3, 12, whole[header.body_offset :]) == REQUEST


def test_bytes_after_a_request_are_ignored() -> None:
    data = encode_request(3, 1, 5, "me", MetadataRequestV1(topics=None))
    assert decode_request(3, 1, data[16:] + b"12345") == MetadataRequestV1(topics=None)


def test_a_response_there_and_back() -> None:
    (whole,) = split_frames(encode_response(5, RESPONSE), LIMIT).frames
    assert parse_response_header(3, 12, whole) == (5, 5)
    assert decode_response(3, 12, whole[5:]) == RESPONSE


def test_api_versions_answers_in_the_old_header_always() -> None:
    answer = ApiVersionsResponse(
        error_code=ErrorCode.none, api_keys=(), throttle_time=i32Timedelta.parse(datetime.timedelta(0))
    )
    data = encode_response(5, answer)
    assert parse_response_header(18, 3, data[4:]) == (5, 4)
    assert data[8:10] == b"\0\0"
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    assert parse_request_header(encode_request(18, 3, 5, None, request)[4:]).body_offset == 11


def test_raw_responses_have_the_header_of_their_version() -> None:
    assert encode_response_raw(3, 1, 5, b"body") == frame(b"\0\0\0\5body")
    assert encode_response_raw(3, 12, 5, b"body") == frame(b"\0\0\0\5\0body")


def test_tagged_fields_in_a_response_header_are_skipped() -> None:
    assert parse_response_header(3, 12, b"\0\0\0\5\1\7\2abbody") == (5, 9)


@pytest.mark.parametrize("data", [b"\0\0", b"\0\0\0\5", b"\0\0\0\5\1\7\x7fab"])
def test_response_headers_that_do_not_hold_together(data: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        parse_response_header(3, 12, data)


def test_what_kio_refuses_is_an_invalid_request() -> None:
    wrong_name = b"\x02" + b"\0" * 16 + b"\x03\xff\xfe\0" + b"\0\0\0"
    with pytest.raises(InvalidRequestError, match="MetadataRequest"):
        decode_request(3, 12, wrong_name)
