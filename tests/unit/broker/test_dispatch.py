"""What reaches no handler, and what handlers leave unsaid: the connection's fate, and a line in the log."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import Records

from holdfast.broker import dispatch
from holdfast.broker.access import Access
from holdfast.broker.connection import Connection
from holdfast.broker.dispatch import HANDLERS, Dispatcher, is_taken
from holdfast.broker.entity import build
from holdfast.broker.exchange import BufferPool
from holdfast.broker.metadata_cache import LiveBroker, MetadataCache, PartitionInfo
from holdfast.broker.quota_view import QuotaView
from holdfast.coordinators.partitioning import partition_for
from holdfast.model.config import BrokerConfig
from holdfast.model.group_errors import CoordinatorLoadInProgressError
from holdfast.model.listeners import Endpoint, Endpoints, ListenerUse
from holdfast.protocol.apis import INTERNAL, SPOKEN, ApiKey, request_type
from holdfast.protocol.framing import decode_response, encode_request, encode_request_raw, parse_response_header
from tests.unit.broker.conftest import EVERYTHING

DEADLINE_S = 10


def on_a_loop(test: Callable[..., Any]) -> Callable[..., None]:
    """Run an async test to its end."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Client:
    """A client of a broker that has as much as the test says, and a dispatcher."""

    def __init__(self, sock: socket.socket, dispatcher: Dispatcher, connection: Connection) -> None:
        self.sock = sock
        self.dispatcher = dispatcher
        self.connection = connection
        """The broker's end."""

    async def send(self, data: bytes) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def receive(self) -> bytes:
        """One frame without its size; empty when the broker has closed the connection."""
        data = b""
        async with asyncio.timeout(DEADLINE_S):
            while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
                part = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
                if not part:
                    return data
                data += part
        return data[4:]

    async def ask(self, api_key: int, version: int, values: dict[str, Any]) -> Any:
        """The decoded answer, or None when the connection was closed."""
        await self.send(encode_request(api_key, version, 5, "t", build(request_type(api_key, version), values)))
        frame = await self.receive()
        if not frame:
            return None
        correlation_id, start = parse_response_header(api_key, version, frame)
        assert correlation_id == 5
        return decode_response(api_key, version, frame[start:])


@asynccontextmanager
async def served(listener: ListenerUse = EVERYTHING, **broker: Any) -> AsyncIterator[Client]:
    has: dict[str, Any] = {"now_ms": lambda: 0, "access": Access(), "quota_view": QuotaView()} | broker
    parts: Any = SimpleNamespace(**has)
    parts.dispatcher = Dispatcher(parts)
    async with served_by(parts.dispatcher, listener) as client:
        yield client


@asynccontextmanager
async def served_by(dispatcher: Dispatcher, listener: ListenerUse = EVERYTHING) -> AsyncIterator[Client]:
    """One more client of a broker."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    connection = Connection(
        ours,
        ("127.0.0.1", 1),
        asyncio.get_running_loop(),
        BufferPool(),
        dispatcher.dispatch,
        lambda _: None,
        1 << 20,
        listener,
    )
    try:
        yield Client(theirs, dispatcher, connection)
    finally:
        connection.close(None)
        theirs.close()


def test_every_spoken_api_has_a_handler() -> None:
    without = {ApiKey.PRODUCE, ApiKey.FETCH}
    assert HANDLERS.keys() == (SPOKEN.keys() | INTERNAL.keys()) - without


@pytest.mark.parametrize(("api_key", "version"), [(200, 0), (-1, 0), (58, 1), (0, 2), (0, 99), (3, 99), (12, -1)])
@on_a_loop
async def test_what_is_not_spoken_closes_the_connection(
    api_key: int, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with served() as client:
        await client.send(encode_request_raw(api_key, version, 1, "t", b""))
        assert await client.receive() == b""
    assert f"API key {api_key} version {version} is not spoken here" in caplog.text


@on_a_loop
async def test_a_client_cannot_write_to_the_groups_own_topic() -> None:
    """A record there that is no group's would keep every later coordinator from loading them (Kafka's answer, 17)."""
    cache = MetadataCache()
    cache.topics = {"__consumer_offsets": {}}
    partition = {"index": 0, "records": Records(bytes(70))}
    topics = [{"name": "__consumer_offsets", "partition_data": [partition]}]
    async with served(metadata=cache) as client:
        answer = await client.ask(0, 9, {"acks": 1, "timeout": 1000, "topic_data": topics})
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.invalid_topic_exception


@on_a_loop
async def test_a_request_that_would_become_too_many_objects_closes_the_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "MAX_DECODED_BYTES", 5_000)
    async with served() as client:
        await client.send(encode_request_raw(3, 9, 1, "t", b"\x91\x4e" + b"\1\0" * 10_000 + bytes(4)))
        assert await client.receive() == b""
    assert "expected 5000 at most for this API" in caplog.text


@pytest.mark.parametrize(
    ("api_key", "version"), [(0, 9), (0, 3), (1, 12), (1, 4), (3, 12), (3, 1), (19, 7), (11, 9), (4, 7), (6, 8)]
)
@on_a_loop
async def test_a_body_that_cannot_be_read_closes_the_connection(
    api_key: int, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    body = b"\x00" * (2 if version >= 9 else 0) + b"\x7f\xff\xff\xf0" * 3
    async with served() as client:
        await client.send(encode_request_raw(api_key, version, 1, "t", body))
        assert await client.receive() == b""
    assert f"127.0.0.1:1 closed: API key {api_key} version {version} cannot be handled: " in caplog.text
    assert "Traceback" not in caplog.text


@on_a_loop
async def test_api_versions_of_an_unknown_version_is_answered_in_version_0() -> None:
    async with served() as client:
        await client.send(encode_request_raw(18, 99, 7, "t", b""))
        span = SPOKEN[ApiKey.API_VERSIONS]
        assert await client.receive() == struct.pack(">ihihhh", 7, 35, 1, 18, span.min, span.max)
        answer = await client.ask(18, 0, {})
        assert {k.api_key for k in answer.api_keys} == {int(key) for key in SPOKEN}


@on_a_loop
async def test_an_error_of_a_handler_is_the_answers_error() -> None:
    async def none_left() -> int:
        raise CoordinatorLoadInProgressError("no block of ids")

    shell, membership = SimpleNamespace(next=none_left), SimpleNamespace(is_current=True)
    async with served(producer_ids=shell, membership=membership) as client:
        answer = await client.ask(22, 4, {"transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1})
        assert int(answer.error_code) == 14
        assert await client.ask(18, 0, {}), "the connection stays"


@on_a_loop
async def test_a_bug_of_a_handler_is_an_unknown_server_error_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as client:
        answer = await client.ask(22, 4, {"transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1})
        assert int(answer.error_code) == -1
        assert "API key 22 version 4 failed" in caplog.text
        assert await client.ask(18, 0, {})


@on_a_loop
async def test_a_bug_where_the_answer_has_no_error_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as client:
        assert await client.ask(3, 12, {"topics": None}) is None
    assert "API key 3 version 12 failed" in caplog.text


@on_a_loop
async def test_an_answer_that_cannot_be_encoded_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    cache = MetadataCache()
    cache.controller_id = 1 << 40
    async with served(metadata=cache, cluster_id="c") as client:
        assert await client.ask(3, 12, {"topics": ()}) is None
    assert "the answer cannot be encoded" in caplog.text


@on_a_loop
async def test_what_still_runs_ends_with_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    started = asyncio.Event()

    async def never() -> int:
        started.set()
        return await asyncio.get_running_loop().create_future()

    async with served(producer_ids=SimpleNamespace(next=never)) as client:
        asking = asyncio.create_task(
            client.ask(22, 4, {"transaction_timeout": 1, "producer_id": -1, "producer_epoch": -1})
        )
        await started.wait()
        await client.dispatcher.drain()
        assert await asking is None
    assert not caplog.records


CLIENTS = ListenerUse(name="CLIENTS", for_brokers=False, for_operators=False)


@pytest.mark.parametrize("api_key", sorted(INTERNAL))
@on_a_loop
async def test_what_brokers_say_closes_the_connection_on_a_listener_of_clients(
    api_key: ApiKey, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of the request is read: no handler is asked."""
    async with served(CLIENTS) as client:
        await client.send(encode_request_raw(api_key, INTERNAL[api_key].max, 1, "t", b""))
        assert await client.receive() == b""
    assert f"API key {int(api_key)} is not taken on listener CLIENTS" in caplog.text


def test_each_listener_takes_what_it_is_for() -> None:
    brokers = dataclasses.replace(CLIENTS, for_brokers=True, for_operators=True)
    operators = dataclasses.replace(CLIENTS, for_operators=True)
    for api_key in SPOKEN:
        assert all(is_taken(listener, api_key) for listener in (CLIENTS, brokers, operators))
    for api_key in INTERNAL:
        wanted = (False, True, api_key in (ApiKey.MANAGE_LOG_DIRS, ApiKey.MANAGE_BROKER_IDS))
        assert tuple(is_taken(listener, api_key) for listener in (CLIENTS, brokers, operators)) == wanted


def in_the_name_of(replica_id: int, version: int) -> dict[str, Any]:
    state = {"replica_id": replica_id, "replica_epoch": 1}
    name: dict[str, Any] = {"replica_state": state} if version >= 15 else {"replica_id": replica_id}
    return {
        "max_wait": 0, "min_bytes": 0, "max_bytes": 100, "session_id": 0, "session_epoch": 0, "topics": (),
        "forgotten_topics_data": (), **name,
    }  # fmt: skip


@pytest.mark.parametrize("version", [4, 11, 12, 17, 18])
@on_a_loop
async def test_a_fetch_in_a_replicas_name_closes_the_connection_on_a_listener_of_clients(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    values = in_the_name_of(2, version)
    known = {f.name for f in dataclasses.fields(request_type(ApiKey.FETCH, version))}
    async with served(CLIENTS) as client:
        assert await client.ask(ApiKey.FETCH, version, {k: v for k, v in values.items() if k in known}) is None
    assert "Fetch in the name of replica 2 on listener CLIENTS, which is not for brokers" in caplog.text


@pytest.mark.parametrize("version", [3, 4])
@on_a_loop
async def test_an_epoch_asked_for_in_a_replicas_name_closes_the_connection_on_a_listener_of_clients(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(CLIENTS) as client:
        assert await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, {"replica_id": 0, "topics": ()}) is None
        assert "OffsetForLeaderEpoch in the name of replica 0 on listener CLIENTS" in caplog.text
    async with served(CLIENTS) as client:
        answer = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, {"replica_id": -1, "topics": ()})
        assert answer.topics == ()


def several() -> MetadataCache:
    """Brokers 1 and 2 have both listeners, broker 3 has none for clients."""
    cache = MetadataCache()
    cache.cluster_id = "c"
    for number in (1, 2, 3):
        own = Endpoint(name="BROKERS", host="inside", port=9100 + number)
        outside = Endpoint(name="CLIENTS", host="outside", port=9000 + number)
        found = (own,) if number == 3 else (outside, own)
        cache.brokers[number] = LiveBroker(number, Endpoints.of(found, "BROKERS"), None)
    cache.topics["t"] = {
        number: PartitionInfo(leader=number + 1, leader_epoch=0, isr=(1, 2, 3), replicas=(1, 2, 3), offline=())
        for number in range(3)
    }
    cache.topics["__consumer_offsets"] = cache.topics["t"]
    cache.topic_ids = {name: UUID(int=len(name)) for name in cache.topics}
    return cache


@pytest.mark.parametrize(("version", "code"), [(5, 5), (6, 72), (12, 72)])
@on_a_loop
async def test_a_client_is_told_the_addresses_of_the_listener_it_came_by(version: int, code: int) -> None:
    """Of a broker that has no such listener nothing is told, and of its partitions that (Kafka: LISTENER_NOT_FOUND)."""
    config = BrokerConfig.parse({})
    for listener, ports in ((CLIENTS, {1: 9001, 2: 9002}), (INSIDE, {1: 9101, 2: 9102, 3: 9103})):
        async with served(listener, metadata=several(), config=config) as client:
            answer = await client.ask(ApiKey.METADATA, version, {"topics": None})
        assert {int(b.node_id): int(b.port) for b in answer.brokers} == ports
        topic = next(t for t in answer.topics if t.name == "t")
        told = {int(p.partition_index): (int(p.leader_id), int(p.error_code)) for p in topic.partitions}
        assert told == {0: (1, 0), 1: (2, 0), 2: (-1, code) if listener is CLIENTS else (3, 0)}


INSIDE = ListenerUse(name="BROKERS", for_brokers=True, for_operators=True)


@on_a_loop
async def test_a_described_cluster_and_coordinators_are_those_of_the_listener_too() -> None:
    config = BrokerConfig.parse({})
    keys = {partition_for(name, 3): name for name in ("a", "b", "c", "d", "e", "f", "g", "h")}
    assert sorted(keys) == [0, 1, 2]
    wanted = {"coordinator_keys": tuple(keys[n] for n in range(3)), "key_type": 0}
    membership = SimpleNamespace(is_current=True)
    for listener, ports in ((CLIENTS, [9001, 9002]), (INSIDE, [9101, 9102, 9103])):
        async with served(listener, metadata=several(), config=config, membership=membership, broker_id=1) as client:
            cluster = await client.ask(ApiKey.DESCRIBE_CLUSTER, 0, {})
            found = await client.ask(ApiKey.FIND_COORDINATOR, 4, wanted)
        assert [int(b.port) for b in cluster.brokers] == ports
        assert [int(c.port) for c in found.coordinators] == [*ports, -1][:3]
        assert [int(c.error_code) for c in found.coordinators] == [0, 0, 15 if listener is CLIENTS else 0]


def configured(text: str) -> BrokerConfig:
    """A broker with a secret in its file, and a throttle of its own over that of all."""
    key = "replica.alter.log.dirs.io.max.bytes.per.second"
    config = BrokerConfig.parse({"node.id": "1", "zookeeper.sasl.password": text})
    return config.with_dynamic(default={key: "7", "log.cleaner.threads": "2"}, broker={key: "5"})


async def configs_of(config: BrokerConfig, name: str) -> dict[str, Any]:
    """Key -> what DescribeConfigs tells of it, layers included."""
    resource = {"resource_type": 4, "resource_name": name, "configuration_keys": None}
    async with served(CLIENTS, metadata=several(), config=config, broker_id=1) as client:
        answer = await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": ({**resource},), "include_synonyms": True})
    (result,) = answer.results
    return {c.name: c for c in result.configs}


@on_a_loop
async def test_a_secret_is_told_in_no_layer() -> None:
    told = (await configs_of(configured("hunter2"), "1"))["zookeeper.sasl.password"]
    assert (told.is_sensitive, told.value, [s.value for s in told.synonyms]) == (True, None, [None])


@on_a_loop
async def test_the_default_of_brokers_is_told_by_one_that_has_its_own() -> None:
    told = await configs_of(configured("x"), "")
    assert {name: (c.value, int(c.config_source), [s.value for s in c.synonyms]) for name, c in told.items()} == {
        "replica.alter.log.dirs.io.max.bytes.per.second": ("7", 3, ["7"]),
        "log.cleaner.threads": ("2", 3, ["2"]),
    }
