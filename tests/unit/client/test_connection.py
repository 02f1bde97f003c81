import asyncio
import dataclasses
import datetime
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.static.primitive import i32Timedelta

from holdfast.client.connection import (
    SMALL_BUFFER_BYTES,
    BrokerConnection,
    BrokerUnreachable,
    ConnectionLost,
    MalformedResponse,
    RequestTimedOut,
    TooManyInFlight,
)
from holdfast.client.errors import AuthenticationError
from holdfast.client.security import TlsSettings, tls_context
from tests.certificates import Authority

NO_TIME = i32Timedelta.parse(datetime.timedelta(0))


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="t", client_software_version="1")


def api_versions_answer(version: int, request: Any) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.none, api_keys=(), throttle_time=NO_TIME)


def metadata_answer(version: int, request: Any) -> MetadataResponse:
    return MetadataResponse(throttle_time=NO_TIME, brokers=(), cluster_id="c", topics=())


async def opened(broker: Any, **options: Any) -> BrokerConnection:
    connection = BrokerConnection("127.0.0.1", broker.port, "test", **options)
    await connection.open(5)
    return connection


def run(main: Any) -> None:
    asyncio.run(asyncio.wait_for(main, 20))


def test_entities_travel_both_ways_with_old_and_new_headers(fakes: Any) -> None:
    async def main() -> None:
        async with fakes.FakeBroker({18: api_versions_answer, 3: metadata_answer}) as broker:
            connection = await opened(broker)
            answer = await connection.request(api_versions(), timeout_s=5)
            assert answer == api_versions_answer(3, None)
            request = MetadataRequest(
                topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
            )
            answer = await connection.request(request, timeout_s=5)
            assert answer.cluster_id == "c"
            assert broker.seen[1] == (3, 12, request)
            connection.close()

    run(main())


@pytest.mark.parametrize("size", [0, 1, SMALL_BUFFER_BYTES - 8, SMALL_BUFFER_BYTES - 7, SMALL_BUFFER_BYTES, 3_000_000])
def test_answers_of_every_size_arrive_whole_and_stay_the_callers(fakes: Any, size: int) -> None:
    bodies = [bytes([n]) * size for n in range(3)]
    answers = iter(bodies)

    async def main() -> None:
        async with fakes.FakeBroker({0: lambda version, request: next(answers)}) as broker:
            connection = await opened(broker)
            body = struct.pack(">hhii", -1, 1, 1000, 0)  # Produce v3: no transactional id, no topics
            got = await asyncio.gather(*(connection.request_raw(0, 3, body, timeout_s=10) for _ in bodies))
            assert [bytes(one) for one in got] == bodies
            connection.close()

    run(main())


@pytest.mark.parametrize("size", [100, SMALL_BUFFER_BYTES, 10 * SMALL_BUFFER_BYTES])
def test_entities_of_every_size_are_read(fakes: Any, size: int) -> None:
    def answer(version: int, request: Any) -> MetadataResponse:
        return dataclasses.replace(metadata_answer(version, request), cluster_id="c" * size)

    async def main() -> None:
        async with fakes.FakeBroker({3: answer}) as broker:
            connection = await opened(broker)
            request = MetadataRequest(
                topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
            )
            assert (await connection.request(request, timeout_s=5)).cluster_id == "c" * size
            connection.close()

    run(main())


def test_many_requests_in_flight_are_answered_each_with_its_own(fakes: Any) -> None:
    def echo(version: int, request: Any) -> bytes:
        return struct.pack(">i", round(request.timeout.total_seconds() * 1000))

    async def main() -> None:
        async with fakes.FakeBroker({0: echo}) as broker:
            connection = await opened(broker)
            bodies = [struct.pack(">hhii", -1, 1, n, 0) for n in range(2000)]
            got = await asyncio.gather(*(connection.request_raw(0, 3, b, timeout_s=10) for b in bodies))
            assert [struct.unpack(">i", one)[0] for one in got] == list(range(2000))
            assert connection.in_flight == 0
            connection.close()

    run(main())


def test_a_refused_port_is_told_apart_from_silence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        async def main() -> None:
            with pytest.raises(BrokerUnreachable) as caught:
                await BrokerConnection("127.0.0.1", port, "test").open(5)
            assert caught.value.refused
            assert f"127.0.0.1:{port}" in str(caught.value)
            with pytest.raises(BrokerUnreachable) as caught:
                await BrokerConnection("127.0.0.1", port, "test").open(0)
            assert not caught.value.refused

        run(main())


def test_no_answer_in_time_fails_that_request_only(fakes: Any) -> None:
    answers = iter([None, b"second"])

    async def main() -> None:
        async with fakes.FakeBroker({0: lambda version, request: next(answers)}) as broker:
            connection = await opened(broker)
            body = struct.pack(">hhii", -1, 1, 1, 0)
            with pytest.raises(RequestTimedOut):
                await connection.request_raw(0, 3, body, timeout_s=0.01)
            assert await connection.request_raw(0, 3, body, timeout_s=10) == b"second"
            connection.close()

    run(main())


def test_the_deadline_of_a_shorter_request_is_kept_behind_a_longer_one(fakes: Any) -> None:
    async def main() -> None:
        async with fakes.FakeBroker({0: lambda version, request: None}) as broker:
            connection = await opened(broker)
            body = struct.pack(">hhii", -1, 1, 1, 0)
            long = asyncio.ensure_future(connection.request_raw(0, 3, body, timeout_s=100))
            with pytest.raises(RequestTimedOut):
                await connection.request_raw(0, 3, body, timeout_s=0.01)
            assert connection.in_flight == 1
            connection.close()
            with pytest.raises(ConnectionLost):
                await long

    run(main())


def test_the_end_of_the_connection_fails_what_waits_and_is_told_once(fakes: Any) -> None:
    closed: list[Exception | None] = []

    async def main() -> None:
        async with fakes.FakeBroker({0: lambda version, request: broker.drop_all()}) as broker:
            connection = await opened(broker, on_close=closed.append)
            got: list[tuple[Any, Any]] = []
            body = struct.pack(">hhii", -1, 1, 1, 0)
            connection.request_raw_cb(0, 3, body, lambda b, e: got.append((b, e)), timeout_s=10)
            with pytest.raises(ConnectionLost):
                await connection.request_raw(0, 3, body, timeout_s=10)
            assert len(got) == 1 and got[0][0] is None and isinstance(got[0][1], ConnectionLost)
            assert not connection.is_open
            connection.close()
            with pytest.raises(ConnectionLost):
                await connection.request_raw(0, 3, body, timeout_s=10)
        assert len(closed) == 1 and closed[0] is not None

    run(main())


def test_closing_from_this_side_reports_no_error(fakes: Any) -> None:
    closed: list[Exception | None] = []

    async def main() -> None:
        async with fakes.FakeBroker({}) as broker:
            connection = await opened(broker, on_close=closed.append)
            connection.close()
            assert closed == [None]

    run(main())


def test_more_requests_than_allowed_are_refused_at_once(fakes: Any) -> None:
    async def main() -> None:
        async with fakes.FakeBroker({0: lambda version, request: None}) as broker:
            connection = await opened(broker, max_in_flight=1)
            body = struct.pack(">hhii", -1, 1, 1, 0)
            connection.request_raw_cb(0, 3, body, lambda b, e: None, timeout_s=10)
            with pytest.raises(TooManyInFlight):
                connection.request_raw_cb(0, 3, body, lambda b, e: None, timeout_s=10)
            connection.close()

    run(main())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP: expected a broker's port"),
        (b"SSH-2.0", "announced an answer"),
    ],
)
def test_a_frame_that_is_no_kafka_answer_ends_the_connection(answer: bytes, said: str) -> None:
    closed: list[Exception | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        connection = BrokerConnection("127.0.0.1", port, "test", on_close=closed.append)
        await connection.open(5)
        with pytest.raises(ConnectionLost, match=said):
            await connection.request(api_versions(), timeout_s=5)
        server.close()

    run(main())
    assert isinstance(closed[0], MalformedResponse)


def test_requests_without_an_answer_can_be_waited_for(fakes: Any) -> None:
    body = struct.pack(">hhii", -1, 0, 1000, 0)

    async def main() -> None:
        async with fakes.FakeBroker({0: lambda version, request: None}) as broker:
            connection = await opened(broker)
            for _ in range(50_000):  # more than socket buffers hold
                connection.send_raw(0, 3, body)
            await connection.drained()
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() == 0
            connection.close()
            with pytest.raises(ConnectionLost):
                await connection.drained()

    run(main())


def test_a_listener_of_tls_that_is_spoken_to_in_plaintext_is_named() -> None:
    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x28")  # handshake failure
        await writer.drain()

    async def main() -> None:
        async with await asyncio.start_server(alert, "127.0.0.1", 0) as server:
            connection = BrokerConnection("127.0.0.1", server.sockets[0].getsockname()[1], "test")
            await connection.open(5)
            with pytest.raises(ConnectionLost, match=r"it speaks TLS: expected security.protocol=SSL or SASL_SSL"):
                await connection.request(api_versions(), timeout_s=5)

    run(main())


CLOSED_IN_THE_HANDSHAKE = (
    r"closed the connection in the TLS handshake: too many connections \(max.connections.per.ip, max.connections\), or "
    "another protocol; expected a listener with TLS"
)


def test_a_listener_without_tls_is_named_when_it_answers_and_when_it_hangs_up() -> None:
    async def main() -> None:
        for answer, error, words in (
            (b"HTTP/1.1 400 Bad Request", AuthenticationError, "handshake failed .* expected a listener with TLS"),
            (b"", BrokerUnreachable, CLOSED_IN_THE_HANDSHAKE),
        ):

            async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes = answer) -> None:
                await reader.read(1 << 16)
                writer.write(answer)
                writer.close()

            async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
                port = server.sockets[0].getsockname()[1]
                connection = BrokerConnection("127.0.0.1", port, "test", ssl=tls_context(TlsSettings()))
                with pytest.raises(error, match=words):
                    await connection.open(5)

    run(main())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_server_hears_that_its_certificate_is_not_trusted(tmp_path: Path, version: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority.make().issue("broker").write(tmp_path / "server.pem"))

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            waiting = asyncio.get_running_loop().run_in_executor(None, handshake_of, listening, context)
            trusts = TlsSettings(trusted=Authority.make("another authority").pem, oldest=version, newest=version)
            connection = BrokerConnection("127.0.0.1", port, "test", ssl=tls_context(trusts))
            with pytest.raises(AuthenticationError, match="its certificate is not trusted"):
                await connection.open(5)
            assert "UNKNOWN_CA" in str((await waiting).reason)

    run(main())


def handshake_of(listening: socket.socket, context: ssl.SSLContext) -> ssl.SSLError:
    """What a server is told in the one that comes next."""
    raw, _ = listening.accept()
    with pytest.raises(ssl.SSLError) as failed:
        context.wrap_socket(raw, server_side=True)
    return failed.value
