"""Produce (API 0), versions 3 to 13, written by hand: the hottest request that there is.

Requests are decoded without copying records: they are views of the frame, valid as long as its buffer is. One
tuple per partition, nothing per record. Equal to kio for every version (tests/property/test_protocol_produce.py).
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from holdfast.model.errors import InvalidRequestError
from holdfast.protocol.wire import (
    INT,
    NodeEndpoint,
    Topic,
    compact_string,
    count_bytes,
    leader_bytes,
    legacy_string,
    node_endpoints_tags,
    read_count,
    read_string,
    read_topic,
    skip_tags,
    tag_bytes,
    topic_bytes,
    varint,
)

FLEXIBLE: Final = 9
"""First version with compact strings and tagged fields."""
LOG_START_OFFSET: Final = 5
RECORD_ERRORS: Final = 8
LEADER_HINT: Final = 10
"""First version that names the current leader (KIP-951)."""
TOPIC_IDS: Final = 13

_ACKS_TIMEOUT: Final = Struct(">hi")
_HEAD: Final = Struct(">ii")
_HEAD_FLEXIBLE: Final = Struct(">iib")
_ANSWER_3: Final = Struct(">ihqq")
_ANSWER_5: Final = Struct(">ihqqq")
# A partition without errors ends with: no record errors, no message, no tags.
_PLAIN_END_8: Final = b"\0\0\0\0\xff\xff"
_PLAIN_END_9: Final = b"\1\0\0"


class ProduceData(NamedTuple):
    """A Produce request. Records are None where the client sent null."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[Topic, list[tuple[int, memoryview | None]]]]


class ProduceAnswer(NamedTuple):
    """What became of one partition; -1 where there is no offset or time. Fields that the version of the answer
    does not have are left out."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    """(index of the batch's record, message)"""
    current_leader: tuple[int, int] | None = None
    """(broker, leader epoch)"""


def decode_produce_request(version: int, body: memoryview) -> ProduceData:
    """The request of a body. InvalidRequestError if it is cut short or contradicts itself."""
    try:
        return _decode_flexible(version, body) if version >= FLEXIBLE else _decode_legacy(body)
    except (StructError, IndexError, ValueError) as e:
        raise InvalidRequestError(f"Produce request of {len(body)} bytes: {e}") from None


def _decode_flexible(version: int, body: memoryview) -> ProduceData:
    # One-byte varints and empty tags are taken inline: nearly all are, and a call costs more than the test.
    end = len(body)
    by_id = version >= TOPIC_IDS
    transactional_id, pos = read_string(body, 0, True) if body[0] else (None, 1)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, pos)
    pos += 6
    count, pos = varint(body, pos) if body[pos] & 0x80 else (body[pos], pos + 1)
    topics: list[tuple[Topic, list[tuple[int, memoryview | None]]]] = []
    for _ in range(count - 1):
        topic, pos = read_topic(body, pos, True, by_id)
        count, pos = varint(body, pos) if body[pos] & 0x80 else (body[pos], pos + 1)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count - 1):
            index: int = INT.unpack_from(body, pos)[0]
            size, pos = varint(body, pos + 4)
            if size:
                after = pos + size - 1
                if after > end:
                    raise ValueError(f"records of {size - 1} bytes at byte {pos} of {end}")
                partitions.append((index, body[pos:after]))
                pos = after
            else:
                partitions.append((index, None))
            pos = skip_tags(body, pos) if body[pos] else pos + 1
        pos = skip_tags(body, pos) if body[pos] else pos + 1
        topics.append((topic, partitions))
    if body[pos]:
        skip_tags(body, pos)
    return ProduceData(transactional_id, acks, timeout_ms, topics)


def _decode_legacy(body: memoryview) -> ProduceData:
    end = len(body)
    transactional_id, pos = read_string(body, 0, False)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, pos)
    topic_count, pos = read_count(body, pos + 6, False)
    topics: list[tuple[Topic, list[tuple[int, memoryview | None]]]] = []
    for _ in range(topic_count):
        topic, pos = read_topic(body, pos, False, False)
        count, pos = read_count(body, pos, False)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            index, size = _HEAD.unpack_from(body, pos)
            pos += 8
            if size < 0:
                partitions.append((index, None))
                continue
            after = pos + size
            if after > end:
                raise ValueError(f"records of {size} bytes at byte {pos} of {end}")
            partitions.append((index, body[pos:after]))
            pos = after
        topics.append((topic, partitions))
    return ProduceData(transactional_id, acks, timeout_ms, topics)


def encode_produce_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[Topic, Sequence[ProduceAnswer]]],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The whole response, its 4-byte size included."""
    flexible = version >= FLEXIBLE
    out = [b"", count_bytes(len(topics), flexible)]
    for topic, answers in topics:
        out.append(topic_bytes(topic, flexible))
        out.append(count_bytes(len(answers), flexible))
        for a in answers:
            if version >= LOG_START_OFFSET:
                out.append(_ANSWER_5.pack(a[0], a[1], a[2], a[3], a[4]))
            else:
                out.append(_ANSWER_3.pack(a[0], a[1], a[2], a[3]))
            if version < RECORD_ERRORS:
                continue
            if a[5] is None and a[7] is None and not a[6]:
                out.append(_PLAIN_END_9 if flexible else _PLAIN_END_8)
            else:
                _append_errors(out, version, flexible, a)
        if flexible:
            out.append(b"\0")
    out.append(INT.pack(throttle_ms))
    if flexible:
        out.append(node_endpoints_tags(node_endpoints) if version >= LEADER_HINT else b"\0")
    size = sum(map(len, out))
    if flexible:
        out[0] = _HEAD_FLEXIBLE.pack(size + 5, correlation_id, 0)
    else:
        out[0] = _HEAD.pack(size + 4, correlation_id)
    return b"".join(out)


def _append_errors(out: list[bytes], version: int, flexible: bool, answer: ProduceAnswer) -> None:
    text = compact_string if flexible else legacy_string
    out.append(count_bytes(len(answer.record_errors), flexible))
    for index, message in answer.record_errors:
        out.append(INT.pack(index))
        out.append(text(message))
        if flexible:
            out.append(b"\0")
    out.append(text(answer.error_message))
    if not flexible:
        return
    if answer.current_leader is not None and version >= LEADER_HINT:
        out.append(b"\1" + tag_bytes(0, leader_bytes(answer.current_leader)))
    else:
        out.append(b"\0")
