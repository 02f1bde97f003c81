"""Entities of any version from one description of them."""

from __future__ import annotations

import datetime
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from holdfast.broker.entity import build, error_code
from holdfast.broker.handlers.base import error_response
from holdfast.model.errors import NotControllerError, UnknownTopicOrPartitionError
from holdfast.protocol.apis import INTERNAL, SPOKEN, request_type, response_type
from holdfast.protocol.framing import decode_response, encode_response, parse_response_header

EVERY = [
    (int(api), version)
    for ranges in (SPOKEN, INTERNAL)
    for api, span in ranges.items()
    for version in range(span.min, span.max + 1)
]


@pytest.mark.parametrize(("api", "version"), EVERY)
def test_what_was_not_said_is_empty_and_can_be_encoded(api: int, version: int) -> None:
    entity = build(response_type(api, version), {})
    frame = encode_response(3, entity)[4:]
    _, start = parse_response_header(api, version, frame)
    assert decode_response(api, version, frame[start:]) == entity


METADATA = {
    "throttle_time": 250,
    "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": None}],
    "cluster_id": "c",
    "controller_id": 1,
    "topics": [
        {
            "error_code": UnknownTopicOrPartitionError("gone"),
            "name": "t",
            "topic_id": UUID(int=7),
            "partitions": [{"error_code": None, "partition_index": 0, "replica_nodes": [1, 2], "isr_nodes": (1,)}],
        }
    ],
    "cluster_authorized_operations": 5,
}


def test_a_version_keeps_what_it_has() -> None:
    oldest = build(response_type(3, 0), METADATA)
    assert not hasattr(oldest, "controller_id")
    newest = build(response_type(3, 12), METADATA)
    assert newest.controller_id == 1
    assert newest.throttle_time == datetime.timedelta(milliseconds=250)
    for entity in (oldest, newest):
        [topic] = entity.topics
        assert topic.error_code is ErrorCode.unknown_topic_or_partition
        assert topic.name == "t"
        [partition] = topic.partitions
        assert partition.error_code is ErrorCode.none
        assert (partition.replica_nodes, partition.isr_nodes) == ((1, 2), (1,))
        assert partition.leader_id == 0
    assert newest.topics[0].topic_id == UUID(int=7)


def test_values_that_have_the_right_type_already_stay() -> None:
    wait = datetime.timedelta(seconds=2)
    assert build(response_type(3, 12), {"throttle_time": wait}).throttle_time is wait
    assert build(request_type(18, 3), {"client_software_name": "n"}).client_software_version == ""


def test_null_where_there_may_be_null() -> None:
    assert build(request_type(3, 12), {"topics": None}).topics is None
    [broker] = build(response_type(3, 12), METADATA).brokers
    assert broker.rack is None


@pytest.mark.parametrize(
    ("given", "code"), [(None, 0), (NotControllerError("x"), 41), (UnknownTopicOrPartitionError, 3)]
)
def test_codes_of_errors(given: Any, code: int) -> None:
    assert int(error_code(given)) == code


def test_an_error_for_a_whole_answer_where_it_has_a_place() -> None:
    answer = error_response(22, 4, NotControllerError("ask another"))
    assert int(answer.error_code) == 41
    assert error_response(3, 12, NotControllerError("x")) is None
    elected = error_response(60, 1, NotControllerError("ask another"))
    assert elected.error_message == "ask another"
