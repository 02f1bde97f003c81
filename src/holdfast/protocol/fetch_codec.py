"""Fetch (API 1), versions 4 to 18, written by hand, for the leader and for the follower.

A response is a list of chunks: our bytes, and between them the records objects exactly as they were handed in,
which only need a length, so that a slice of a segment file can go to the socket without passing through here.
Decoded records are views of the frame. Equal to kio for every version (tests/property/test_protocol_fetch.py).
"""

from collections.abc import Sequence, Sized
from struct import Struct
from struct import error as StructError
from typing import Final, Generic, NamedTuple, TypeVar

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
    read_node_endpoints,
    read_string,
    read_tags,
    read_topic,
    skip_tags,
    tag_bytes,
    topic_bytes,
    uvarint,
    varint,
)

R = TypeVar("R", bound=Sized)

INTERBROKER_FETCH_VERSION: Final = 17
"""What a follower sends: topic ids, and its epoch beside its id."""

FLEXIBLE: Final = 12
"""First version with compact strings and tagged fields; also last_fetched_epoch and diverging_epoch."""
LOG_START_OFFSET: Final = 5
SESSIONS: Final = 7
LEADER_EPOCH: Final = 9
RACK: Final = 11
TOPIC_IDS: Final = 13
REPLICA_STATE: Final = 15
"""First version that has the replica's id and epoch in a tagged field."""
LEADER_HINT: Final = 16
"""First version that says where the current leader is (KIP-951)."""

_EMPTY: Final = memoryview(b"")
_TWO_LONGS: Final = Struct(">qq")
_EPOCH_AND_OFFSET: Final = Struct(">iq")
_REPLICA: Final = Struct(">iq")
_LEADER_AND_EPOCH: Final = Struct(">ii")

# Request: after the replica id; and one partition, by what the version has.
_LIMITS_4: Final = Struct(">iiib")
_LIMITS_7: Final = Struct(">iiibii")
_PARTITION_4: Final = Struct(">iqi")
_PARTITION_5: Final = Struct(">iqqi")
_PARTITION_9: Final = Struct(">iiqqi")
_PARTITION_12: Final = Struct(">iiqiqi")

# Response: head after the correlation id; and one partition up to its aborted transactions.
_HEAD_4: Final = Struct(">iii")
_HEAD_7: Final = Struct(">iiihi")
_HEAD_12: Final = Struct(">iibihi")
_THROTTLE_ERROR_SESSION: Final = Struct(">ihi")
_ANSWER_4: Final = Struct(">ihqq")
_ANSWER_5: Final = Struct(">ihqqq")


class FetchPartitionData(NamedTuple):
    """One partition of a request; -1 where the client has nothing to say."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchData(NamedTuple):
    """A Fetch request. ``replica_id`` is -1 for a consumer."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: Sequence[tuple[Topic, Sequence[FetchPartitionData]]]
    forgotten: Sequence[tuple[Topic, Sequence[int]]] = ()
    rack_id: str = ""


class FetchAnswer(NamedTuple, Generic[R]):
    """One partition of a response. Fields that the version does not have are left out."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: R
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, its end offset)"""
    current_leader: tuple[int, int] | None = None
    """(broker, leader epoch)"""
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) of aborted transactions; None where the reader did not ask for them."""
    preferred_read_replica: int = -1


class FetchResponsePartition(NamedTuple):
    """One partition of a response as its receiver sees it."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None
    records: memoryview
    aborted: list[tuple[int, int]] | None = None
    preferred_read_replica: int = -1


class FetchResponseData(NamedTuple):
    """A Fetch response as its receiver sees it."""

    error_code: int
    session_id: int
    topics: list[tuple[Topic, list[FetchResponsePartition]]]
    throttle_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


# -- the leader's side -------------------------------------------------------------------------------------


def decode_fetch_request(version: int, body: memoryview) -> FetchData:
    """The request of a body. InvalidRequestError if it is cut short or contradicts itself."""
    try:
        return _decode_request(version, body)
    except (StructError, IndexError, ValueError) as e:
        raise InvalidRequestError(f"Fetch request of {len(body)} bytes: {e}") from None


def _decode_request(version: int, body: memoryview) -> FetchData:
    flexible, by_id = version >= FLEXIBLE, version >= TOPIC_IDS
    replica_id, replica_epoch, session_id, session_epoch, pos = -1, -1, 0, -1, 0
    if version < REPLICA_STATE:
        replica_id, pos = INT.unpack_from(body, 0)[0], 4
    if version >= SESSIONS:
        wait, low, high, isolation, session_id, session_epoch = _LIMITS_7.unpack_from(body, pos)
        pos += 21
    else:
        wait, low, high, isolation = _LIMITS_4.unpack_from(body, pos)
        pos += 13
    topic_count, pos = read_count(body, pos, flexible)
    topics = []
    for _ in range(topic_count):
        topic, pos = read_topic(body, pos, flexible, by_id)
        count, pos = read_count(body, pos, flexible)
        partitions, pos = _decode_partitions(version, body, pos, count)
        if flexible:
            pos = skip_tags(body, pos) if body[pos] else pos + 1
        topics.append((topic, partitions))
    forgotten: list[tuple[Topic, Sequence[int]]] = []
    if version >= SESSIONS:
        count, pos = read_count(body, pos, flexible)
        for _ in range(count):
            topic, pos = read_topic(body, pos, flexible, by_id)
            indexes, pos = _read_ints(body, pos, flexible)
            forgotten.append((topic, indexes))
    rack_id = ""
    if version >= RACK:
        rack, pos = read_string(body, pos, flexible)
        rack_id = rack or ""
    if flexible:
        tags, pos = read_tags(body, pos)
        if version >= REPLICA_STATE and 1 in tags:
            replica_id, replica_epoch = _REPLICA.unpack_from(tags[1], 0)
    return FetchData(
        replica_id,
        replica_epoch,
        wait,
        low,
        high,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
    )


def _decode_partitions(version: int, body: memoryview, pos: int, count: int) -> tuple[list[FetchPartitionData], int]:
    found: list[FetchPartitionData] = []
    if version >= FLEXIBLE:
        make, unpack = FetchPartitionData._make, _PARTITION_12.unpack_from
        for _ in range(count):
            found.append(make(unpack(body, pos)))
            pos += 32
            pos = skip_tags(body, pos) if body[pos] else pos + 1
    elif version >= LEADER_EPOCH:
        for _ in range(count):
            index, epoch, offset, start, size = _PARTITION_9.unpack_from(body, pos)
            found.append(FetchPartitionData(index, epoch, offset, -1, start, size))
            pos += 28
    elif version >= LOG_START_OFFSET:
        for _ in range(count):
            index, offset, start, size = _PARTITION_5.unpack_from(body, pos)
            found.append(FetchPartitionData(index, -1, offset, -1, start, size))
            pos += 24
    else:
        for _ in range(count):
            index, offset, size = _PARTITION_4.unpack_from(body, pos)
            found.append(FetchPartitionData(index, -1, offset, -1, -1, size))
            pos += 16
    return found, pos


def _read_ints(body: memoryview, pos: int, flexible: bool) -> tuple[list[int], int]:
    """The partitions of one forgotten topic, and its tags."""
    count, pos = read_count(body, pos, flexible)
    end = pos + 4 * max(count, 0)
    numbers = [number for (number,) in INT.iter_unpack(body[pos:end])]
    if end > len(body):
        raise ValueError(f"{count} partitions at byte {pos} of {len(body)}")
    return numbers, skip_tags(body, end) if flexible else end


def encode_fetch_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[Topic, Sequence[FetchAnswer[R]]]],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[bytes | R]:
    """The whole response as chunks to be written in this order; the first begins with the 4-byte size. Records
    objects are in the list as they are, empty ones are not."""
    flexible = version >= FLEXIBLE
    chunks: list[bytes | R] = []
    out = [count_bytes(len(topics), flexible)]
    total = 0  # bytes of records so far
    for topic, answers in topics:
        out.append(topic_bytes(topic, flexible))
        out.append(count_bytes(len(answers), flexible))
        for answer in answers:
            out.append(_answer_start(version, flexible, answer))
            records = answer.records
            size = len(records)
            out.append(uvarint(size + 1) if flexible else INT.pack(size))
            if size:
                chunks.append(b"".join(out))
                chunks.append(records)
                total += size
                out = []
            if flexible:
                out.append(_answer_tags(answer))
        if flexible:
            out.append(b"\0")
    if flexible:
        out.append(node_endpoints_tags(node_endpoints) if version >= LEADER_HINT else b"\0")
    if out:
        chunks.append(b"".join(out))
    total += sum(len(chunk) for chunk in chunks[::2])
    first = chunks[0]
    assert isinstance(first, bytes)
    if flexible:
        head = _HEAD_12.pack(total + 15, correlation_id, 0, throttle_ms, error_code, session_id)
    elif version >= SESSIONS:
        head = _HEAD_7.pack(total + 14, correlation_id, throttle_ms, error_code, session_id)
    else:
        head = _HEAD_4.pack(total + 8, correlation_id, throttle_ms)
    chunks[0] = head + first
    return chunks


def _answer_start(version: int, flexible: bool, a: FetchAnswer[R]) -> bytes:
    """One partition up to the length of its records."""
    if version >= LOG_START_OFFSET:
        start = _ANSWER_5.pack(a[0], a[1], a[2], a[3], a[4])
    else:
        start = _ANSWER_4.pack(a[0], a[1], a[2], a[3])
    aborted = a.aborted
    if aborted is None:
        start += b"\0" if flexible else b"\xff\xff\xff\xff"
    elif not aborted:
        start += b"\1" if flexible else b"\0\0\0\0"
    else:
        end = b"\0" if flexible else b""
        start += count_bytes(len(aborted), flexible)
        start += b"".join(_TWO_LONGS.pack(*pair) + end for pair in aborted)
    return start + INT.pack(a.preferred_read_replica) if version >= RACK else start


def _answer_tags(answer: FetchAnswer[R]) -> bytes:
    """One partition's tagged fields: where the logs diverge, who leads now."""
    diverging, leader = answer.diverging_epoch, answer.current_leader
    if diverging is None and leader is None:
        return b"\0"
    tags = []
    if diverging is not None:
        tags.append(tag_bytes(0, _EPOCH_AND_OFFSET.pack(*diverging) + b"\0"))
    if leader is not None:
        tags.append(tag_bytes(1, leader_bytes(leader)))
    return uvarint(len(tags)) + b"".join(tags)


# -- the follower's side -----------------------------------------------------------------------------------


def encode_fetch_request(version: int, data: FetchData) -> bytes:
    """The body of a request. Fields that the version does not have are left out."""
    flexible = version >= FLEXIBLE
    out = [] if version >= REPLICA_STATE else [INT.pack(data.replica_id)]
    if version >= SESSIONS:
        out.append(_LIMITS_7.pack(*data[2:8]))
    else:
        out.append(_LIMITS_4.pack(*data[2:6]))
    out.append(count_bytes(len(data.topics), flexible))
    for topic, partitions in data.topics:
        out.append(topic_bytes(topic, flexible))
        out.append(count_bytes(len(partitions), flexible))
        if flexible:
            pack = _PARTITION_12.pack
            out += [pack(*p) + b"\0" for p in partitions]
            out.append(b"\0")
        elif version >= LEADER_EPOCH:
            out += [_PARTITION_9.pack(p[0], p[1], p[2], p[4], p[5]) for p in partitions]
        elif version >= LOG_START_OFFSET:
            out += [_PARTITION_5.pack(p[0], p[2], p[4], p[5]) for p in partitions]
        else:
            out += [_PARTITION_4.pack(p[0], p[2], p[5]) for p in partitions]
    if version >= SESSIONS:
        out.append(count_bytes(len(data.forgotten), flexible))
        for topic, indexes in data.forgotten:
            out.append(topic_bytes(topic, flexible))
            out.append(count_bytes(len(indexes), flexible))
            out += map(INT.pack, indexes)
            if flexible:
                out.append(b"\0")
    if version >= RACK:
        out.append((compact_string if flexible else legacy_string)(data.rack_id))
    if flexible:
        is_replica = version >= REPLICA_STATE and data[:2] != (-1, -1)
        state = tag_bytes(1, _REPLICA.pack(data[0], data[1]) + b"\0") if is_replica else b""
        out.append(b"\1" + state if state else b"\0")
    return b"".join(out)


def decode_fetch_response(version: int, body: memoryview) -> FetchResponseData:
    """The response of a body; records are views of it. InvalidRequestError if it is cut short or wrong."""
    try:
        return _decode_response(version, body)
    except (StructError, IndexError, ValueError) as e:
        raise InvalidRequestError(f"Fetch response of {len(body)} bytes: {e}") from None


def _decode_response(version: int, body: memoryview) -> FetchResponseData:
    flexible, by_id = version >= FLEXIBLE, version >= TOPIC_IDS
    error_code = session_id = 0
    if version >= SESSIONS:
        throttle_ms, error_code, session_id = _THROTTLE_ERROR_SESSION.unpack_from(body, 0)
        pos = 10
    else:
        throttle_ms, pos = INT.unpack_from(body, 0)[0], 4
    topic_count, pos = read_count(body, pos, flexible)
    topics: list[tuple[Topic, list[FetchResponsePartition]]] = []
    for _ in range(topic_count):
        topic, pos = read_topic(body, pos, flexible, by_id)
        count, pos = read_count(body, pos, flexible)
        partitions: list[FetchResponsePartition] = []
        for _ in range(count):
            partition, pos = _decode_partition(version, flexible, body, pos)
            partitions.append(partition)
        if flexible:
            pos = skip_tags(body, pos) if body[pos] else pos + 1
        topics.append((topic, partitions))
    nodes: Sequence[NodeEndpoint] = ()
    if flexible:
        tags, pos = read_tags(body, pos)
        if version >= LEADER_HINT and 0 in tags:
            nodes = read_node_endpoints(tags[0])
    return FetchResponseData(error_code, session_id, topics, throttle_ms, nodes)


def _decode_partition(version: int, flexible: bool, body: memoryview, pos: int) -> tuple[FetchResponsePartition, int]:
    start = -1
    if version >= LOG_START_OFFSET:
        index, error, high, stable, start = _ANSWER_5.unpack_from(body, pos)
        pos += 30
    else:
        index, error, high, stable = _ANSWER_4.unpack_from(body, pos)
        pos += 22
    aborted: list[tuple[int, int]] | None = None
    count, pos = read_count(body, pos, flexible)
    if count >= 0:
        aborted = []
        for _ in range(count):
            producer, first = _TWO_LONGS.unpack_from(body, pos)
            aborted.append((producer, first))
            pos = skip_tags(body, pos + 16) if flexible else pos + 16
    preferred = -1
    if version >= RACK:
        preferred = INT.unpack_from(body, pos)[0]
        pos += 4
    if flexible:
        size, pos = varint(body, pos)
        size -= 1
    else:
        size = INT.unpack_from(body, pos)[0]
        pos += 4
    records = _EMPTY
    if size > 0:
        after = pos + size
        if after > len(body):
            raise ValueError(f"records of {size} bytes at byte {pos} of {len(body)}")
        records, pos = body[pos:after], after
    diverging = leader = None
    if flexible:
        if body[pos]:
            tags, pos = read_tags(body, pos)
            diverging = _EPOCH_AND_OFFSET.unpack_from(tags[0]) if 0 in tags else None
            leader = _LEADER_AND_EPOCH.unpack_from(tags[1]) if 1 in tags else None
        else:
            pos += 1
    return (
        FetchResponsePartition(index, error, high, stable, start, diverging, leader, records, aborted, preferred),
        pos,
    )
