"""Messages that claim more than they have are refused before kio makes room for it."""

import pytest

from holdfast.broker.entity import build
from holdfast.model.errors import InvalidRequestError
from holdfast.protocol.apis import request_type, response_type
from holdfast.protocol.framing import decode_request, encode_body
from holdfast.protocol.guard import check


@pytest.mark.parametrize(
    ("key", "version", "hexed"),
    [
        (3, 1, "40000000"),  # 2**30 topics
        (3, 9, "ffffffff0f"),  # the same, compact
        (3, 9, "ffffffffffffffff0f"),  # a varint without end
        (3, 1, "000000010008"),  # name cut short
        (3, 1, "ffff"),
        (19, 2, "00000000"),  # no timeout
        (2, 1, "ffffffff7fffffff"),
        (35, 1, "00000001000174000000ff"),  # 255 partitions in no bytes
        (18, 3, "020202020180"),  # tag without an end
        (18, 3, "0202020201000561"),  # tagged field cut short
        (18, 3, "02780278ff"),  # more tagged fields than bytes
        (6, 8, "00000001000000000200000000000000030101018020ffffff7f00"),
        (20, 4, "000000000000"),  # null topics, where there is no null
        (14, 0, "0001670000000000016dffffffff"),  # null assignments
    ],
)
def test_what_cannot_be_is_refused(key: int, version: int, hexed: str) -> None:
    with pytest.raises(InvalidRequestError):
        decode_request(key, version, bytes.fromhex(hexed))


def test_a_known_tagged_field_is_walked_too() -> None:
    """UpdateMetadata's topic_configs (tag 0x1002) claims 2**27 topics in a field of five bytes."""
    plain = encode_body(request_type(6, 8)(controller_id=1, controller_epoch=1, topic_states=(), live_brokers=()))
    field = b"\x82\x20\x05" + b"\xff\xff\xff\x3f\x00"
    with pytest.raises(InvalidRequestError):
        check(request_type(6, 8), plain[:-1] + b"\1" + field)


def test_a_tagged_field_that_is_longer_than_its_value() -> None:
    plain = encode_body(request_type(6, 8)(controller_id=1, controller_epoch=1, topic_states=(), live_brokers=()))
    with pytest.raises(InvalidRequestError, match="not as long"):
        check(request_type(6, 8), plain[:-1] + b"\1" + b"\x80\x20\x05" + b"\x02c\0\0\0")


def test_unknown_tagged_fields_are_let_through() -> None:
    check(request_type(18, 3), bytes.fromhex("0278027801630161"))


def test_nullable_structures() -> None:
    """DescribeTopicPartitions has a nullable cursor: -1 or 1 and then the structure."""
    from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest

    check(DescribeTopicPartitionsRequest, bytes.fromhex("0100000001ff00"))
    check(DescribeTopicPartitionsRequest, bytes.fromhex("01000000010102740000000000") + b"\0")
    with pytest.raises(InvalidRequestError):
        check(DescribeTopicPartitionsRequest, bytes.fromhex("010000000101027400000000"))


def test_legacy_bytes_and_strings_may_be_null() -> None:
    join = request_type(11, 0)
    check(join, bytes.fromhex("000167000000010000ffff") + b"\0\0\0\0")
    with pytest.raises(InvalidRequestError):
        check(join, bytes.fromhex("00016700000001000000006300000001000161000000ff"))
    check(response_type(8, 2), b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\0\0\0")


def test_the_elements_of_all_arrays_are_counted() -> None:
    """Those within others, of a fixed size, and of tagged fields too; the limit is told before they are walked."""
    topics = ({"name": f"t{i}", "partition_indexes": range(3)} for i in range(4))
    request = build(request_type(9, 7), {"group_id": "g", "topics": topics})
    body = encode_body(request)
    assert check(request_type(9, 7), body) == 4 + 4 * 3
    assert check(request_type(9, 7), body, most=16) == 16
    with pytest.raises(InvalidRequestError, match="OffsetFetchRequest names too much: expected 14 elements at most"):
        check(request_type(9, 7), body, most=14)
    assert check(request_type(18, 3), bytes.fromhex("0278027801630161")) == 0
