"""The controller's requests: Kafka's fields in Kafka's order, ours as tagged fields, through kio's codec."""

import base64
import dataclasses
import datetime
import json
import re
import typing
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from holdfast.broker.entity import build
from holdfast.model.errors import InvalidRequestError
from holdfast.model.listeners import Endpoint, Endpoints
from holdfast.model.types import TopicPartition
from holdfast.protocol import interbroker as ib
from holdfast.protocol.apis import ApiKey, request_type, response_type
from holdfast.protocol.framing import decode_request, decode_response, encode_body

GOLDEN = Path(__file__).parents[2] / "golden/znodes"
RECORDED = [
    exchange
    for name in ("b_01_log_dir_dies_on_broker_1", "a_12_topic_deletion")
    for exchange in json.loads((GOLDEN / f"{name}.json").read_text())["broker_requests"]
]
TOPIC = UUID(int=7)


def snake(name: str) -> str:
    if name == "isKRaftController":
        return "is_kraft_controller"
    return re.sub(r"(?<!^)([A-Z])", lambda m: "_" + m[1].lower(), name)


def entity(kind: Any, value: dict[str, Any]) -> Any:
    """An entity from Kafka's JSON; the JSON must have our untagged fields in our order."""
    fields = {f.name: f for f in dataclasses.fields(kind)}
    untagged = [name for name, f in fields.items() if "tag" not in f.metadata]
    assert [snake(name) for name in value] == untagged, kind.__name__
    made: dict[str, Any] = {}
    for name, raw in value.items():
        field = fields[snake(name)]
        inner = typing.get_args(field.type)[0] if typing.get_origin(field.type) is tuple else field.type
        if isinstance(raw, list):
            raw = tuple(entity(inner, x) if isinstance(x, dict) else x for x in raw)
        elif field.metadata.get("kafka_type") == "uuid":
            raw = UUID(bytes=base64.urlsafe_b64decode(raw + "=="))
        elif field.metadata.get("kafka_type") == "error_code":
            raw = ErrorCode(raw)
        made[field.name] = raw
    return kind(**made)


@pytest.mark.parametrize("exchange", RECORDED, ids=lambda x: f"{x['api']}-{x['t_ms']}")
def test_recorded_requests_and_answers(exchange: dict[str, Any]) -> None:
    key, version = ApiKey[exchange["api"]], exchange["version"]
    request = entity(request_type(key, version), exchange["request"])
    assert decode_request(key, version, encode_body(request)) == request
    answer = entity(response_type(key, version), exchange["response"])
    assert decode_response(key, version, encode_body(answer)) == answer


def test_leader_and_isr_on_the_wire() -> None:
    state = ib.LeaderAndIsrPartitionState(
        partition_index=3,
        controller_epoch=2,
        leader=1,
        leader_epoch=5,
        isr=(1, 2),
        partition_epoch=6,
        replicas=(1, 2),
        is_new=True,
    )  # type: ignore[arg-type]
    request = ib.LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=2,
        broker_epoch=9,
        topic_states=(ib.LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC, partition_states=(state,)),),
    )  # type: ignore[arg-type]
    assert encode_body(request).hex() == (
        "00000001" "00" "00000002" "0000000000000009" "01"
        "02" "0274" "00000000000000000000000000000007"
        "02" "00000003" "00000002" "00000001" "00000005" "030000000100000002" "00000006" "030000000100000002"
        "01" "01" "01" "00" "00"
        "00" "01" "00"
    )  # fmt: skip
    assert list(ib.partition_states(request)) == [(TopicPartition("t", 3), TOPIC, state)]


def test_our_tagged_fields_are_absent_when_empty_and_there_when_not() -> None:
    plain = ib.UpdateMetadataRequest(controller_id=1, controller_epoch=2, topic_states=(), live_brokers=())  # type: ignore[arg-type]
    assert encode_body(plain).endswith(b"\1\1\0")
    full = dataclasses.replace(
        plain,
        type=ib.TYPE_FULL,
        cluster_id="c",
        metadata_offset=77,
        topic_configs=(ib.TopicOverrides(topic="t", configs=ib.config_pairs({"b": "2", "a": "1"})),),
        broker_configs=(ib.BrokerConfigs(broker=ib.DEFAULT_BROKER, configs=()),),
    )  # type: ignore[arg-type]
    decoded = decode_request(6, 8, encode_body(full))
    assert decoded == full
    assert [(p.key, p.value) for p in decoded.topic_configs[0].configs] == [("a", "1"), ("b", "2")]


def test_a_kafka_broker_would_skip_our_tagged_fields() -> None:
    """Their tags are far above Kafka's, and each says its size: reading past them needs no schema."""
    ours = (
        ib.LeaderAndIsrPartitionState, ib.LeaderAndIsrPartitionError, ib.BrokerRegistrationRequest, ib.PartitionData,
    )  # fmt: skip
    for kind in (ib.UpdateMetadataRequest, ib.UpdateMetadataBroker, ib.StopReplicaTopicState, *ours):
        tags = [f.metadata["tag"] for f in dataclasses.fields(kind) if "tag" in f.metadata]
        assert all(tag == 0 or tag >= 0x1000 for tag in tags)


def test_H_07_a_registration_says_what_became_of_replicas() -> None:
    values = {
        "broker_id": 3, "cluster_id": "c", "incarnation_id": TOPIC, "listeners": (), "features": (), "rack": None,
        "log_dirs": (TOPIC,), "previous_broker_epoch": 9,
    }  # fmt: skip
    plain = request_type(62, 4)(**values)
    kafkas = import_module("kio.schema.broker_registration.v4.request").BrokerRegistrationRequest(**values)
    assert encode_body(plain) == encode_body(kafkas)
    assert decode_request(62, 4, encode_body(kafkas)) == plain
    lost = ib.ReplicaFateState(fate=2, topic_name="t", partitions=(0, 5))  # type: ignore[arg-type]
    full = dataclasses.replace(plain, rest=0, fates=(lost,))
    assert decode_request(62, 4, encode_body(full)) == full


def test_H_07_an_answer_says_how_far_a_log_goes_that_nobody_leads() -> None:
    plain = ib.LeaderAndIsrPartitionError(partition_index=1, error_code=ErrorCode.none)  # type: ignore[arg-type]
    told = dataclasses.replace(plain, last_epoch=4, end_offset=70)  # type: ignore[arg-type]
    topic = ib.LeaderAndIsrTopicError(topic_id=TOPIC, partition_errors=(plain, told))
    answer = ib.LeaderAndIsrResponse(error_code=ErrorCode.none, topics=(topic,))
    assert decode_response(4, 7, encode_body(answer)) == answer
    assert encode_body(plain) == bytes.fromhex("00000001000000")


def test_H_07_eligible_replicas_go_with_every_isr() -> None:
    data = {"partition_index": 1, "error_code": ErrorCode.none, "leader_id": 2, "leader_epoch": 3, "isr": (2,)}
    partition = ib.PartitionData(**data, partition_epoch=4, eligible=(1,))  # type: ignore[arg-type]
    answer = response_type(56, 3)(
        throttle_time=datetime.timedelta(0),
        error_code=ErrorCode.none,
        topics=(ib.TopicData(topic_id=TOPIC, partitions=(partition,)),),
    )
    assert decode_response(56, 3, encode_body(answer)) == answer


def test_stop_replica_carries_the_topic_id() -> None:
    request = ib.StopReplicaRequest(
        controller_id=1,
        controller_epoch=2,
        topic_states=(
            ib.StopReplicaTopicState(
                topic_name="t",
                topic_id=TOPIC,
                partition_states=(ib.StopReplicaPartitionState(partition_index=1, delete_partition=True),),
            ),
        ),
    )  # type: ignore[arg-type]
    assert decode_request(5, 4, encode_body(request)) == request


def test_all_listeners_of_a_broker_travel_and_who_uses_which() -> None:
    wanted = Endpoints.of((Endpoint(name=n, host=n.lower(), port=ord(n)) for n in "ABC"), "B", "C")
    told = ib.UpdateMetadataBroker(
        id=3,
        endpoints=tuple(ib.UpdateMetadataEndpoint(port=e.port, host=e.host, listener=e.name) for e in wanted.listeners),
        **ib.listener_choice(wanted),
    )  # type: ignore[arg-type]
    request = ib.UpdateMetadataRequest(controller_id=1, controller_epoch=7, topic_states=(), live_brokers=(told,))  # type: ignore[arg-type]
    (broker,) = decode_request(6, 8, encode_body(request)).live_brokers
    assert ib.endpoints_of(broker, ((e.listener, e) for e in broker.endpoints)) == wanted
    registering = build(
        request_type(62, 4),
        {
            "broker_id": 3, "cluster_id": "c", "incarnation_id": TOPIC, "features": (), "rack": None,
            "listeners": [
                {"name": e.name, "host": e.host, "port": e.port, "security_protocol": 0} for e in wanted.listeners
            ],
            "log_dirs": (), **ib.listener_choice(wanted),
        },
    )  # fmt: skip
    request = decode_request(62, 4, encode_body(registering))
    assert ib.endpoints_of(request, ((e.name, e) for e in request.listeners)) == wanted


@pytest.mark.parametrize("bad", [{"inter_broker": "X"}, {"listeners": ()}])
def test_a_registration_without_the_listener_that_it_names_is_refused(bad: dict[str, Any]) -> None:
    values: dict[str, Any] = {"listeners": (SimpleNamespace(host="h", port=1, security_protocol=0),)}
    request = SimpleNamespace(**{**values, "inter_broker": "", "control_plane": "", **bad})
    with pytest.raises(InvalidRequestError, match="expected one"):
        ib.endpoints_of(request, (("A", e) for e in request.listeners))
