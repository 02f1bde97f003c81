"""Our Produce and Fetch codecs equal kio's, for every version and in both directions."""

import dataclasses
import datetime
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.static.primitive import Records

from holdfast.model.errors import InvalidRequestError
from holdfast.protocol.apis import SPOKEN, ApiKey, request_type, response_type
from holdfast.protocol.fetch_codec import (
    FetchAnswer,
    FetchData,
    FetchPartitionData,
    FetchResponsePartition,
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from holdfast.protocol.framing import encode_body, encode_response
from holdfast.protocol.produce_codec import (
    ProduceAnswer,
    ProduceData,
    decode_produce_request,
    encode_produce_response,
)

st.register_type_strategy(Records, st.binary(max_size=300).map(Records))

PRODUCE = range(SPOKEN[ApiKey.PRODUCE].min, SPOKEN[ApiKey.PRODUCE].max + 1)
FETCH = range(SPOKEN[ApiKey.FETCH].min, SPOKEN[ApiKey.FETCH].max + 1)
MS = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ZERO = UUID(int=0)

few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def topic_of(entity: Any, by_id: bool, name: str = "name") -> str | UUID:
    return (entity.topic_id or ZERO) if by_id else getattr(entity, name)


# -- Produce -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", PRODUCE)
@few
@given(data=st.data())
def test_produce_requests_are_read_as_kio_reads_them(version: int, data: st.DataObject) -> None:
    entity = data.draw(st.from_type(request_type(0, version)))
    body = encode_body(entity)
    ours = decode_produce_request(version, memoryview(body))
    assert ours == ProduceData(
        entity.transactional_id,
        entity.acks,
        entity.timeout // MS,
        [(topic_of(t, version >= 13), [(p.index, p.records) for p in t.partition_data]) for t in entity.topic_data],
    )


def leader_of(entity: Any) -> tuple[int, int] | None:
    leader = getattr(entity, "current_leader", None)
    if leader is None or (leader.leader_id, leader.leader_epoch) == (-1, -1):
        return None
    return leader.leader_id, leader.leader_epoch


@pytest.mark.parametrize("version", PRODUCE)
@few
@given(data=st.data(), correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_produce_responses_are_written_as_kio_writes_them(
    version: int, data: st.DataObject, correlation_id: int
) -> None:
    entity = data.draw(st.from_type(response_type(0, version)))
    topics = [
        (
            topic_of(t, version >= 13),
            [
                ProduceAnswer(
                    p.index,
                    p.error_code,
                    p.base_offset,
                    -1 if p.log_append_time is None else (p.log_append_time - EPOCH) // MS,
                    getattr(p, "log_start_offset", -1),
                    getattr(p, "error_message", None),
                    [(e.batch_index, e.batch_index_error_message) for e in getattr(p, "record_errors", ())],
                    leader_of(p),
                )
                for p in t.partition_responses
            ],
        )
        for t in entity.responses
    ]
    nodes = [(n.node_id, n.host, n.port, n.rack) for n in getattr(entity, "node_endpoints", ())]
    ours = encode_produce_response(version, correlation_id, topics, entity.throttle_time // MS, nodes)
    assert ours == encode_response(correlation_id, entity)


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@few
@given(data=st.data())
def test_a_produce_request_cut_short_is_refused(version: int, data: st.DataObject) -> None:
    body = encode_body(data.draw(st.from_type(request_type(0, version))))
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(InvalidRequestError):
        decode_produce_request(version, memoryview(body)[:cut])


# -- Fetch -------------------------------------------------------------------------------------------------


def plain_fetch_request(entity: Any, version: int) -> Any:
    """Without the tagged fields that our encoder never writes."""
    changes: dict[str, Any] = {}
    if version >= 12:
        changes["cluster_id"] = None
    if version >= 17:
        changes["topics"] = tuple(
            dataclasses.replace(
                t,
                partitions=tuple(
                    dataclasses.replace(
                        p,
                        replica_directory_id=None,
                        **({"high_watermark": 2**63 - 1} if version >= 18 else {}),
                    )
                    for p in t.partitions
                ),
            )
            for t in entity.topics
        )
    return dataclasses.replace(entity, **changes)


def fetch_data(entity: Any, version: int) -> FetchData:
    """kio's request as our decoder makes it."""
    by_id = version >= 13
    replica = (
        (entity.replica_state.replica_id, entity.replica_state.replica_epoch)
        if version >= 15
        else (entity.replica_id, -1)
    )
    return FetchData(  # type: ignore[call-arg]
        *replica,
        entity.max_wait // MS,
        entity.min_bytes,
        entity.max_bytes,
        entity.isolation_level,
        getattr(entity, "session_id", 0),
        getattr(entity, "session_epoch", -1),
        [
            (
                topic_of(t, by_id, "topic"),
                [
                    FetchPartitionData(
                        p.partition,
                        getattr(p, "current_leader_epoch", -1),
                        p.fetch_offset,
                        getattr(p, "last_fetched_epoch", -1),
                        getattr(p, "log_start_offset", -1),
                        p.partition_max_bytes,
                    )
                    for p in t.partitions
                ],
            )
            for t in entity.topics
        ],
        [(topic_of(t, by_id, "topic"), list(t.partitions)) for t in getattr(entity, "forgotten_topics_data", ())],
        getattr(entity, "rack_id", ""),
    )


@pytest.mark.parametrize("version", FETCH)
@few
@given(data=st.data())
def test_fetch_requests_are_read_and_written_as_by_kio(version: int, data: st.DataObject) -> None:
    entity = data.draw(st.from_type(request_type(1, version)))
    assert decode_fetch_request(version, memoryview(encode_body(entity))) == fetch_data(entity, version)
    plain = plain_fetch_request(entity, version)
    assert encode_fetch_request(version, fetch_data(plain, version)) == encode_body(plain)


def plain_fetch_response(entity: Any, version: int) -> Any:
    """Without snapshot ids, which only Kafka's own metadata log has, and with empty records where there are none."""
    kind = type(entity)
    module = __import__(kind.__module__, fromlist=["PartitionData"])
    topics = []
    for t in entity.responses:
        partitions = []
        for p in t.partitions:
            changes: dict[str, Any] = {"records": p.records or Records(b"")}
            if version >= 12:
                changes["snapshot_id"] = module.SnapshotId()
            partitions.append(dataclasses.replace(p, **changes))
        topics.append(dataclasses.replace(t, partitions=tuple(partitions)))
    return dataclasses.replace(entity, responses=tuple(topics))


def diverging_of(p: Any) -> tuple[int, int] | None:
    found = getattr(p, "diverging_epoch", None)
    if found is None or (found.epoch, found.end_offset) == (-1, -1):
        return None
    return found.epoch, found.end_offset


def aborted_of(p: Any) -> list[tuple[int, int]] | None:
    if p.aborted_transactions is None:
        return None
    return [(a.producer_id, a.first_offset) for a in p.aborted_transactions]


@pytest.mark.parametrize("version", FETCH)
@few
@given(data=st.data(), correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_fetch_responses_are_written_and_read_as_by_kio(version: int, data: st.DataObject, correlation_id: int) -> None:
    entity = plain_fetch_response(data.draw(st.from_type(response_type(1, version))), version)
    topics = [
        (
            topic_of(t, version >= 13, "topic"),
            [
                FetchAnswer(
                    partition=p.partition_index,
                    error_code=p.error_code,
                    high_watermark=p.high_watermark,
                    last_stable_offset=p.last_stable_offset,
                    log_start_offset=getattr(p, "log_start_offset", -1),
                    records=bytes(p.records),
                    diverging_epoch=diverging_of(p),
                    current_leader=leader_of(p),
                    aborted=aborted_of(p),
                    preferred_read_replica=getattr(p, "preferred_read_replica", -1),
                )
                for p in t.partitions
            ],
        )
        for t in entity.responses
    ]
    nodes = [(n.node_id, n.host, n.port, n.rack) for n in getattr(entity, "node_endpoints", ())]
    chunks = encode_fetch_response(
        version,
        correlation_id,
        getattr(entity, "error_code", 0),
        getattr(entity, "session_id", 0),
        topics,
        entity.throttle_time // MS,
        nodes,
    )
    assert b"".join(chunks) == encode_response(correlation_id, entity)
    records = [a.records for _, answers in topics for a in answers if a.records]
    assert all(chunk is given for chunk, given in zip(chunks[1::2], records, strict=True))

    read = decode_fetch_response(version, memoryview(encode_body(entity)))
    assert read.error_code == getattr(entity, "error_code", 0)
    assert read.session_id == getattr(entity, "session_id", 0)
    assert read.throttle_ms == entity.throttle_time // MS
    assert list(read.node_endpoints) == nodes
    assert read.topics == [
        (
            topic,
            [
                FetchResponsePartition(
                    a.partition,
                    a.error_code,
                    a.high_watermark,
                    a.last_stable_offset,
                    a.log_start_offset,
                    a.diverging_epoch,
                    a.current_leader,
                    memoryview(a.records),
                    a.aborted,  # type: ignore[arg-type]
                    a.preferred_read_replica,
                )
                for a in answers
            ],
        )
        for topic, answers in topics
    ]


@pytest.mark.parametrize("version", [4, 11, 12, 17])
@few
@given(data=st.data())
def test_fetch_messages_cut_short_are_refused(version: int, data: st.DataObject) -> None:
    request = encode_body(data.draw(st.from_type(request_type(1, version))))
    response = encode_body(data.draw(st.from_type(response_type(1, version))))
    with pytest.raises(InvalidRequestError):
        decode_fetch_request(version, memoryview(request)[: data.draw(st.integers(0, len(request) - 1))])
    with pytest.raises(InvalidRequestError):
        decode_fetch_response(version, memoryview(response)[: data.draw(st.integers(0, len(response) - 1))])


# -- any bytes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decode", [decode_produce_request, decode_fetch_request, decode_fetch_response])
@settings(max_examples=300, deadline=None)
@given(version=st.integers(4, 13), body=st.binary(max_size=80))
def test_random_bytes_are_read_or_refused(decode: Any, version: int, body: bytes) -> None:
    with suppress(InvalidRequestError):
        decode(version, memoryview(body))
