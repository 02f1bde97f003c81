"""What reaches no handler, and what handlers leave unsaid: the connection's fate, and a line in the log."""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import Records

from holdfast.broker import dispatch
from holdfast.broker.connection import Connection
from holdfast.broker.dispatch import HANDLERS, Dispatcher
from holdfast.broker.entity import build
from holdfast.broker.exchange import BufferPool
from holdfast.broker.metadata_cache import MetadataCache
from holdfast.model.group_errors import CoordinatorLoadInProgressError
from holdfast.protocol.apis import INTERNAL, SPOKEN, ApiKey, request_type
from holdfast.protocol.framing import decode_response, encode_request, encode_request_raw, parse_response_header

DEADLINE_S = 10


def on_a_loop(test: Callable[..., Any]) -> Callable[..., None]:
    """Run an async test to its end."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Client:
    """A client of a broker that has as much as the test says, and a dispatcher."""

    def __init__(self, sock: socket.socket, dispatcher: Dispatcher) -> None:
        self.sock = sock
        self.dispatcher = dispatcher

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
async def served(**broker: Any) -> AsyncIterator[Client]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    dispatcher = Dispatcher(SimpleNamespace(now_ms=lambda: 0, **broker))  # type: ignore[arg-type]
    connection = Connection(
        ours, ("127.0.0.1", 1), asyncio.get_running_loop(), BufferPool(), dispatcher.dispatch, lambda _: None, 1 << 20
    )
    try:
        yield Client(theirs, dispatcher)
    finally:
        connection.close(None)
        theirs.close()


def test_every_spoken_api_has_a_handler() -> None:
    without = {ApiKey.PRODUCE, ApiKey.FETCH}
    assert HANDLERS.keys() == (SPOKEN.keys() | INTERNAL.keys()) - without


@pytest.mark.parametrize(("api_key", "version"), [(200, 0), (-1, 0), (58, 0), (0, 2), (0, 99), (3, 99), (12, -1)])
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
    assert f"API key {api_key} version {version} from 127.0.0.1:1 cannot be handled" in caplog.text
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

    async with served(producer_ids=SimpleNamespace(next=none_left)) as client:
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
