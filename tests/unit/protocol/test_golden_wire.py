"""Produce and Fetch as Apache Kafka 4.3.0 was asked and answered, byte for byte."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.protocol.fetch_codec import (
    FetchAnswer,
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from holdfast.protocol.framing import (
    decode_response,
    encode_request_raw,
    parse_request_header,
    parse_response_header,
)
from holdfast.protocol.produce_codec import ProduceAnswer, decode_produce_request, encode_produce_response

GOLDEN = Path(__file__).parents[2] / "golden/wire/4.3.0"
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def cases(name: str, api_key: int) -> list[Any]:
    found = [c for c in json.loads((GOLDEN / f"{name}.json").read_text()) if c["api_key"] == api_key]
    assert len(found) > 50
    return [pytest.param(c, id=c["name"]) for c in found]


def produce_topics(response: Any, version: int) -> list[tuple[Any, list[ProduceAnswer]]]:
    """kio's response as our encoder takes it."""
    topics = []
    for topic in response.responses:
        answers = []
        for p in topic.partition_responses:
            time = p.log_append_time
            leader = getattr(p, "current_leader", None)
            answers.append(
                ProduceAnswer(
                    partition=p.index,
                    error_code=p.error_code,
                    base_offset=p.base_offset,
                    log_append_time_ms=-1 if time is None else (time - EPOCH) // datetime.timedelta(milliseconds=1),
                    log_start_offset=getattr(p, "log_start_offset", -1),
                    error_message=getattr(p, "error_message", None),
                    record_errors=[
                        (e.batch_index, e.batch_index_error_message) for e in getattr(p, "record_errors", ())
                    ],
                    current_leader=None
                    if leader is None or leader.leader_id == -1
                    else (leader.leader_id, leader.leader_epoch),
                )
            )
        topics.append((topic.topic_id if version >= 13 else topic.name, answers))
    return topics


@pytest.mark.parametrize("case", cases("produce", 0))
def test_produce(case: dict[str, Any]) -> None:
    version = case["version"]
    frame = memoryview(bytes.fromhex(case["request_hex"]))
    header = parse_request_header(frame)
    request = decode_produce_request(version, frame[header.body_offset :])
    told = case["request"]
    assert (request.acks, request.timeout_ms) == (told["acks"], told["timeout"])
    for (name, partitions), topic in zip(request.topics, told["topic_data"], strict=True):
        assert str(name) == topic["name" if version < 13 else "topic_id"]
        for (index, records), partition in zip(partitions, topic["partition_data"], strict=True):
            assert index == partition["index"]
            wanted = partition["records"]
            assert (None if records is None else {"hex": records.hex()}) == wanted
    if not case.get("response_hex"):
        return
    raw = bytes.fromhex(case["response_hex"])
    correlation_id, start = parse_response_header(0, version, raw)
    response = decode_response(0, version, raw[start:])
    nodes = [(n.node_id, n.host, n.port, n.rack) for n in getattr(response, "node_endpoints", ())]
    again = encode_produce_response(version, correlation_id, produce_topics(response, version), node_endpoints=nodes)
    assert again == len(raw).to_bytes(4, "big") + raw


@pytest.mark.parametrize("case", cases("fetch", 1))
def test_fetch(case: dict[str, Any]) -> None:
    version = case["version"]
    raw_request = bytes.fromhex(case["request_hex"])
    header = parse_request_header(raw_request)
    request = decode_fetch_request(version, memoryview(raw_request)[header.body_offset :])
    body = encode_fetch_request(version, request)
    assert encode_request_raw(1, version, header.correlation_id, header.client_id, body)[4:] == raw_request

    raw = bytes.fromhex(case["response_hex"])
    correlation_id, start = parse_response_header(1, version, raw)
    response = decode_fetch_response(version, memoryview(raw)[start:])
    topics = [
        (
            topic,
            [
                FetchAnswer(
                    partition=p.partition,
                    error_code=p.error_code,
                    high_watermark=p.high_watermark,
                    last_stable_offset=p.last_stable_offset,
                    log_start_offset=p.log_start_offset,
                    records=p.records,
                    diverging_epoch=p.diverging_epoch,
                    current_leader=p.current_leader,
                    aborted=p.aborted,
                    preferred_read_replica=p.preferred_read_replica,
                )
                for p in partitions
            ],
        )
        for topic, partitions in response.topics
    ]
    again = encode_fetch_response(
        version,
        correlation_id,
        response.error_code,
        response.session_id,
        topics,
        response.throttle_ms,
        response.node_endpoints,
    )
    assert b"".join(again) == len(raw).to_bytes(4, "big") + raw


def test_the_recordings_have_leader_hints_and_diverging_epochs() -> None:
    """Otherwise the two tests above would say nothing about these tagged fields."""
    text = (GOLDEN / "produce.json").read_text() + (GOLDEN / "fetch.json").read_text()
    seen = json.dumps(json.loads((GOLDEN / "produce.json").read_text()))
    assert '"node_endpoints": [{' in seen
    assert '"diverging_epoch"' in text
