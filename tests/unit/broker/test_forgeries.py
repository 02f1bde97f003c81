"""What was forged once, here or at Kafka, by who has a login and no right: each by its name. The brokers of these tests
have none of the parts that would do it."""

from __future__ import annotations

from typing import Any

import pytest
from kio.static.primitive import Records

from holdfast.broker.access import Access
from holdfast.broker.handlers.produce import ADMIN_CLIENT
from holdfast.broker.metadata_cache import MetadataCache
from holdfast.protocol.apis import ApiKey
from holdfast.protocol.framing import decode_response, encode_request, parse_response_header
from holdfast.records.record import Record, encode_batch
from holdfast.security.resources import Operation
from tests.unit.broker.rights import CLUSTER, TOPIC, TRANSACTIONAL_ID, granted
from tests.unit.broker.test_dispatch import Client, build, in_the_name_of, on_a_loop, request_type, served
from tests.unit.broker.test_refusals import codes_of

TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 29, 31, 53
RECORD = Record(offset=0, timestamp=1, key=None, value=b"v")
EVERYTHING_OF_TOPICS = [(operation, TOPIC, "t") for operation in Operation]


def produced(name: str, *batches: bytes | bytearray, transactional_id: str | None = None) -> dict[str, Any]:
    """A batch a partition."""
    data = [{"index": index, "records": Records(bytes(batch))} for index, batch in enumerate(batches)]
    topics = [{"name": name, "partition_data": data}]
    return {"transactional_id": transactional_id, "acks": -1, "timeout": 1000, "topic_data": topics}


def codes(answer: Any) -> list[int]:
    return [int(p.error_code) for topic in answer.responses for p in topic.partition_responses]


@pytest.mark.parametrize("version", [4, 11, 12])
@pytest.mark.parametrize("session", [(0, 0), (0, -1), (7, 3)])
@on_a_loop
async def test_CVE_2018_1288_a_replicas_fetch_needs_cluster_action(version: int, session: tuple[int, int]) -> None:
    """Who fetches in a replica's name says which records are acknowledged: reading the topic is not enough for that."""
    values = in_the_name_of(1, version) | {"session_id": session[0], "session_epoch": session[1]}
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 2, "partition_max_bytes": 100}
    values["topics"] = [{"topic": "t", "partitions": [partition | {"last_fetched_epoch": -1, "log_start_offset": 0}]}]
    async with served(access=Access(granted(*EVERYTHING_OF_TOPICS)), metadata=MetadataCache()) as client:
        answer = await client.ask(ApiKey.FETCH, version, values)
        assert set(codes_of(answer)) - {0} == {TOPIC_AUTHORIZATION_FAILED}
        assert getattr(answer, "session_id", 0) == 0


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("place", [0, 1])
@on_a_loop
async def test_CVE_2018_17196_a_forged_transactional_produce_is_refused_whole(version: int, place: int) -> None:
    """Whichever of its partitions has the records of a transaction, and whatever id it names, or none."""
    plain = encode_batch([RECORD])
    forged = encode_batch([RECORD], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    batches = [forged, plain] if place == 0 else [plain, forged]
    may = Access(granted(*EVERYTHING_OF_TOPICS, (Operation.WRITE, TRANSACTIONAL_ID, "mine")))
    async with served(access=may, metadata=MetadataCache()) as client:
        for name in ("others", None):
            answer = await client.ask(ApiKey.PRODUCE, version, produced("t", *batches, transactional_id=name))
            assert codes(answer) == [TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2


@on_a_loop
async def test_records_need_the_right_to_write_their_topic() -> None:
    async with served(access=Access(granted((Operation.READ, TOPIC, "t"))), metadata=MetadataCache()) as client:
        answer = await client.ask(ApiKey.PRODUCE, 9, produced("t", encode_batch([RECORD])))
        assert codes(answer) == [TOPIC_AUTHORIZATION_FAILED]
        assert answer.responses[0].partition_responses[0].error_message is None


async def as_admin_client(client: Client, values: dict[str, Any]) -> Any:
    request = build(request_type(ApiKey.PRODUCE, 9), values)
    await client.send(encode_request(ApiKey.PRODUCE, 9, 5, ADMIN_CLIENT, request))
    frame = await client.receive()
    _, start = parse_response_header(ApiKey.PRODUCE, 9, frame)
    return decode_response(ApiKey.PRODUCE, 9, frame[start:])


@on_a_loop
async def test_KIP_1246_the_client_id_of_kafkas_tools_is_no_right() -> None:
    """Forged groups and offsets: __consumer_offsets may be written by who says so and may ClusterAction."""
    cache = MetadataCache()
    cache.topics = {"__consumer_offsets": {}}
    write = (Operation.WRITE, TOPIC, "__consumer_offsets")
    async with served(access=Access(granted(write)), metadata=cache) as client:
        answer = await as_admin_client(client, produced("__consumer_offsets", encode_batch([RECORD])))
        assert codes(answer) == [17]


@pytest.mark.parametrize("key", [ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA])
@on_a_loop
async def test_forged_orders_of_a_later_controller_are_refused(key: ApiKey) -> None:
    """One of each epoch 2^31 - 1 made every order of the real controller stale."""
    async with served(access=Access(granted(*EVERYTHING_OF_TOPICS, (Operation.ALTER, CLUSTER)))) as client:
        version = {ApiKey.LEADER_AND_ISR: 7, ApiKey.STOP_REPLICA: 4, ApiKey.UPDATE_METADATA: 8}[key]
        answer = await client.ask(key, version, {"controller_id": 9, "controller_epoch": 2**31 - 1, "broker_epoch": 1})
        assert int(answer.error_code) == CLUSTER_AUTHORIZATION_FAILED
