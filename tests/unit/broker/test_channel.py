"""A connection through TLS keeps the promises of a plain one, however its bytes come, and whatever comes instead."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import weakref
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.broker import channel as channel_module
from holdfast.broker.channel import ENOUGH, RECORD
from holdfast.broker.exchange import Exchange, SendSlice
from holdfast.broker.handshakes import Handshakes
from holdfast.protocol.apis import ApiKey
from holdfast.storage.files import OsFiles
from holdfast.storage.log_dir import InlineQueue, LogDir
from holdfast.storage.log_view import FileSlice
from tests.certificates import Authority, expired
from tests.unit.broker.conftest import DEADLINE_S
from tests.unit.broker.test_connection import ColdFile, Owner, answer, connected, frame, on_a_loop
from tests.unit.broker.tls_peers import TlsPeer, client_context, server_context, tls_connected, tls_peer


@dataclass(frozen=True)
class Ends:
    """Contexts of both sides."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    authority: Authority


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Ends:
    authority = Authority.make()
    server = server_context(authority.issue("broker"), tmp_path_factory.mktemp("keys"))
    return Ends(server, client_context(authority), authority)


def echo(exchange: Exchange) -> None:
    exchange.finish([answer(exchange.header.correlation_id, bytes(exchange.body))])


async def all_but_its_end(peer: TlsPeer) -> None:
    """A handshake up to the client's last message, which goes with what it says next."""
    with contextlib.suppress(ssl.SSLWantReadError):
        peer.tls.do_handshake()
    await peer.raw(peer._out.read())
    await peer.more()
    peer.tls.do_handshake()


@on_a_loop
async def test_a_handshake_and_requests_may_come_byte_by_byte(ends: Ends) -> None:
    async with tls_connected(ends.server, ends.client, piece=1) as peer:
        peer.on_request = echo
        await peer.handshake()
        await peer.send(frame(ApiKey.METADATA, 1, b"one") + frame(ApiKey.METADATA, 2, b"two"))
        assert await peer.receive(22) == answer(1, b"one") + answer(2, b"two")
        assert peer.connection.is_open and peer.tls.version() == "TLSv1.3"


@on_a_loop
async def test_the_older_version_is_spoken_too(ends: Ends) -> None:
    client = client_context(ends.authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    async with tls_connected(ends.server, client, piece=7) as peer:
        peer.on_request = echo
        await peer.handshake()
        await peer.send(frame(ApiKey.METADATA, 1, b"one"))
        assert await peer.receive(11) == answer(1, b"one")
        assert peer.tls.version() == "TLSv1.2"


@on_a_loop
async def test_a_request_that_comes_with_the_end_of_the_handshake_waits_for_nothing(ends: Ends) -> None:
    async with tls_connected(ends.server, ends.client) as peer:
        peer.on_request = echo
        await all_but_its_end(peer)
        await peer.raw(peer.encrypted(frame(ApiKey.METADATA, 1, b"one")))
        assert await peer.receive(11) == answer(1, b"one")


@on_a_loop
async def test_what_is_decrypted_already_is_not_forgotten_while_the_socket_is_silent(ends: Ends) -> None:
    """More requests than the connection's buffer holds, in records of which each ends in the middle of one."""
    count, body = 300, bytes(1000)
    async with tls_connected(ends.server, ends.client) as peer:
        await peer.handshake()
        waiting: list[Exchange] = []
        peer.on_request = waiting.append
        sending = asyncio.create_task(peer.send(b"".join(frame(ApiKey.METADATA, i, body) for i in range(count))))
        for i in range(count):  # one at a time, with turns of the loop between
            await peer.until(lambda: bool(waiting))
            exchange = waiting.pop()
            assert exchange.header.correlation_id == i
            exchange.finish([answer(i)])
        assert await peer.receive(8 * count) == b"".join(answer(i) for i in range(count))
        await sending


@pytest.mark.parametrize("size", [65_000, 70_000, 1 << 20, 7 << 20])
@on_a_loop
async def test_large_frames_arrive_whole_both_ways(ends: Ends, size: int) -> None:
    body = os.urandom(size)
    async with tls_connected(ends.server, ends.client) as peer:
        peer.on_request = echo
        await peer.handshake()
        sending = asyncio.create_task(peer.send(frame(ApiKey.METADATA, 1, body)))
        assert await peer.receive(8 + size) == answer(1, body)
        await sending


@on_a_loop
async def test_a_slow_reader_gets_every_byte_in_order(ends: Ends, tmp_path: Path) -> None:
    """Answers of all sizes from memory and from files, hot and cold, come while those before them are not taken."""
    file = tmp_path / "00000000000000000000.log"
    content = os.urandom(3 << 20)
    file.write_bytes(content)
    owner = Owner(LogDir(str(tmp_path), OsFiles(), InlineQueue()))
    hot, cold = OsFiles().open(str(file)), ColdFile(str(file), os.open(file, os.O_RDONLY))
    sizes = [1, 100, RECORD - 1, RECORD, RECORD + 1, 40_000, 300_000]
    expected = bytearray()
    async with tls_connected(ends.server, ends.client) as peer:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await peer.handshake()
        count = 60
        await peer.send(b"".join(frame(ApiKey.PRODUCE, i) for i in range(count)))
        for i in range(count):
            await peer.until(lambda i=i: len(peer.requests) > i)  # type: ignore[misc]
            parts: list[bytes | SendSlice] = []
            for size in (sizes[i % 7], sizes[i * 3 % 7]):
                head = os.urandom(size)
                parts.append(head)
                expected += head
                begin = size * i % len(content)
                length = min(sizes[i * 5 % 7] * 2, len(content) - begin)
                parts.append(SendSlice(FileSlice(owner, cold if i % 5 == 0 else hot, begin, length, 0)))
                expected += content[begin : begin + length]
            peer.requests[i].finish(parts)
            if i % 3 == 0:
                taken = await peer.receive(min(9_000, len(expected)), 1000)
                assert taken == expected[: len(taken)]
                del expected[: len(taken)]
        assert await peer.receive(len(expected), 50_000) == expected
        assert peer.connection._sending.unsent == 0 and not peer.connection._sending.is_waiting


@on_a_loop
async def test_a_goodbye_behind_a_request_ends_the_connection(ends: Ends) -> None:
    async with tls_connected(ends.server, ends.client) as peer:
        peer.on_request = echo
        await peer.handshake()
        data = peer.encrypted(frame(ApiKey.METADATA, 1))
        with contextlib.suppress(ssl.SSLWantReadError):
            peer.tls.unwrap()
        await peer.raw(data + peer._out.read())
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
        assert len(peer.requests) == 1, "it had come before"


@on_a_loop
async def test_an_end_without_a_goodbye_is_an_ordinary_lost_connection(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    for handshakes_done in (False, True):
        async with tls_connected(ends.server, ends.client) as peer:
            if handshakes_done:
                await peer.handshake()
                await peer.until(lambda: peer.connection.is_open)
            peer.sock.close()
            async with asyncio.timeout(DEADLINE_S):
                await peer.closed.wait()
    assert not caplog.records, "nobody needs to hear of it"


@on_a_loop
async def test_a_record_that_was_changed_on_the_way_ends_the_connection(ends: Ends) -> None:
    async with tls_connected(ends.server, ends.client) as peer:
        peer.on_request = echo
        await peer.handshake()
        good, bad = peer.encrypted(frame(ApiKey.METADATA, 1)), bytearray(peer.encrypted(frame(ApiKey.METADATA, 2)))
        bad[-1] ^= 1
        await peer.raw(good + bad)
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
        assert [each.header.correlation_id for each in peer.requests] == [1]


@on_a_loop
async def test_plaintext_to_a_listener_of_tls_is_told_in_one_line(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    async with tls_connected(ends.server, ends.client) as peer:
        await peer.raw(frame(ApiKey.API_VERSIONS, 1))
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
    (line,) = caplog.messages
    assert line == (
        "connection of local:0 to listener SSL closed: it speaks no TLS: expected a client with security.protocol SSL "
        "or SASL_SSL"
    )


@on_a_loop
async def test_tls_to_a_listener_without_it_is_told_in_one_line(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as peer:
        client = TlsPeer(peer.sock, ends.client)
        with contextlib.suppress(ssl.SSLWantReadError):
            client.tls.do_handshake()
        await client.raw(client._out.read())
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
    (line,) = caplog.messages
    assert line.endswith("closed: it speaks TLS: expected a client of listener PLAINTEXT without it")


@pytest.mark.parametrize(
    "garbage", [b"\x16", b"\x16\x03\x01\xff\xff" + bytes(70_000), b"\x16\x03\x01\x00\x05\x0e\x00\x00\x01\x00"]
)
@on_a_loop
async def test_garbage_instead_of_a_handshake_ends_the_connection(ends: Ends, garbage: bytes) -> None:
    handshakes = Handshakes()
    async with tls_connected(ends.server, ends.client, handshakes=handshakes) as peer:
        with contextlib.suppress(ConnectionError):
            await peer.raw(garbage)
        if len(garbage) == 1:
            await peer.until(lambda: len(handshakes) == 1)
            peer.sock.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
    assert len(handshakes) == 0


@on_a_loop
async def test_certificates_that_are_not_taken_are_told(
    ends: Ends, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = server_context(ends.authority.issue("broker"), tmp_path, ends.authority.pem)
    shown = {
        "peer did not return a certificate": None,
        "certificate has expired": expired(ends.authority, "old"),
        "unable to get local issuer certificate": Authority.make("another").issue("foreign"),
    }
    for words, certificate in shown.items():
        caplog.clear()
        path = None if certificate is None else certificate.write(tmp_path / "client.pem")
        async with tls_connected(server, client_context(ends.authority, path)) as peer:
            await peer.handshake()
            async with asyncio.timeout(DEADLINE_S):
                await peer.closed.wait()
            with pytest.raises(ssl.SSLError, match="alert"):
                await peer.receive(1)
        assert words in caplog.messages[0]


@on_a_loop
async def test_a_turn_of_the_loop_does_a_few_steps_of_all_handshakes(ends: Ends) -> None:
    handshakes = Handshakes(per_turn=2)
    async with contextlib.AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(tls_connected(ends.server, ends.client, handshakes=handshakes))
            for _ in range(20)
        ]
        await asyncio.gather(*(peer.handshake() for peer in peers))
        for peer in peers:
            peer.on_request = echo
            await peer.send(frame(ApiKey.METADATA, 1))
        for peer in peers:
            assert await peer.receive(8) == answer(1)
        assert len(handshakes) == 0


@on_a_loop
async def test_handshakes_go_on_whatever_becomes_of_one(ends: Ends) -> None:
    """Their requests come with the ends of the handshakes, and what starts them raises: a bug of ours."""

    def broken(exchange: Exchange) -> None:
        raise RuntimeError("a bug")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    handshakes = Handshakes(per_turn=2)
    async with contextlib.AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(tls_connected(ends.server, ends.client, handshakes=handshakes))
            for _ in range(8)
        ]
        for peer in peers:
            peer.on_request = broken
            await all_but_its_end(peer)
        ends_and_requests = [peer.encrypted(frame(ApiKey.METADATA, 1)) for peer in peers]
        await asyncio.gather(*(peer.raw(data) for peer, data in zip(peers, ends_and_requests, strict=True)))
        for peer in peers:
            await peer.until(lambda peer=peer: bool(peer.requests) or peer.connection.closed)  # type: ignore[misc]
        assert len(handshakes) == 0


@on_a_loop
async def test_of_too_many_handshakes_the_oldest_goes(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    handshakes = Handshakes(most_begun=3)
    async with contextlib.AsyncExitStack() as stack:
        silent = await stack.enter_async_context(tls_connected(ends.server, ends.client, handshakes=handshakes))
        peers = [
            await stack.enter_async_context(tls_connected(ends.server, ends.client, handshakes=handshakes))
            for _ in range(4)
        ]
        for number, peer in enumerate(peers):
            await peer.raw(b"\x16")
            await peer.until(lambda n=number: len(handshakes) == min(n + 1, 3))  # type: ignore[misc]
        async with asyncio.timeout(DEADLINE_S):
            await peers[0].closed.wait()
        assert len(handshakes) == 3
        assert not any(peer.connection.closed for peer in (silent, *peers[1:])), "who sent nothing costs nothing"
    assert "3 handshakes are under way" in caplog.messages[0]


@pytest.mark.parametrize("stage", ["silent", "begun", "open", "lost", "asked"])
@on_a_loop
async def test_a_closed_connection_leaves_nothing_behind(ends: Ends, stage: str) -> None:
    """The collector of cycles comes late, and 14 KiB of each lost client would wait for it."""
    gc.collect()
    gc.disable()
    try:
        peer = tls_peer(ends.server, ends.client, 1 << 20, Handshakes())
        if stage == "begun":
            await peer.raw(b"\x16")
            await peer.until(lambda: has_begun(peer))
        elif stage != "silent":
            await peer.handshake()
            await peer.until(lambda: peer.connection.is_open)
        if stage == "asked":
            await peer.send(frame(ApiKey.METADATA, 1))
            await peer.until(lambda: len(peer.requests) == 1)
        opening = peer.connection._opening
        gone = weakref.ref(peer.connection._channel.sock if opening is None else opening._sock)
        del opening
        if stage == "lost":
            peer.sock.close()
            await peer.until(lambda: peer.connection.closed)
        else:
            peer.connection.close(None)
        peer.requests.clear()
        del peer.connection
        await asyncio.sleep(0)
        assert gone() is None
        peer.sock.close()
    finally:
        gc.enable()


def has_begun(peer: TlsPeer) -> bool:
    opening = peer.connection._opening
    return opening is not None and opening.has_begun


@pytest.mark.parametrize("garbage", [b"\x17\x03\x03\xff\xff", b"GET / HTTP/1.1\r\n\r\n"])
@on_a_loop
async def test_what_is_no_record_is_not_waited_for(ends: Ends, garbage: bytes) -> None:
    async with tls_connected(ends.server, ends.client) as peer:
        peer.on_request = echo
        await peer.handshake()
        await peer.raw(peer.encrypted(frame(ApiKey.METADATA, 1, b"one")) + garbage)
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
        assert [each.header.correlation_id for each in peer.requests] == [1]
        with pytest.raises(ssl.SSLError, match="alert"):
            await peer.receive(1)


@on_a_loop
async def test_within_a_large_request_nobody_is_woken_for_a_little(ends: Ends) -> None:
    def enough(peer: TlsPeer) -> int:
        return peer.connection._channel.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    for body in (os.urandom(2 << 20), os.urandom(3 << 20)):
        async with tls_connected(ends.server, ends.client) as peer:
            peer.on_request = echo
            await peer.handshake()
            data = peer.encrypted(frame(ApiKey.METADATA, 1, body))
            await peer.raw(data[:10])
            assert enough(peer) == 1
            await peer.raw(data[10:1_200_000])
            await peer.until(lambda peer=peer: enough(peer) >= ENOUGH // 2)  # type: ignore[misc]
            sending = asyncio.create_task(peer.raw(data[1_200_000:]))
            assert await peer.receive(8 + len(body)) == answer(1, body)
            await sending
            assert enough(peer) == 1, "the next request may be small"
            await peer.send(frame(ApiKey.METADATA, 2, b"two"))
            assert await peer.receive(11) == answer(2, b"two")


@on_a_loop
async def test_others_have_their_turn_within_a_request_of_small_records(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "RECORDS_A_TURN", 8)
    async with tls_connected(ends.server, ends.client) as peer:
        peer.on_request = echo
        await peer.handshake()
        body, before = os.urandom(100_000), 0
        request = frame(ApiKey.METADATA, 1, body)
        data = b"".join(peer.encrypted(request[at : at + 100]) for at in range(0, len(request), 100))
        sending, most = asyncio.create_task(peer.raw(data)), 0
        async with asyncio.timeout(DEADLINE_S):
            while not peer.requests:
                await asyncio.sleep(0)
                now = peer.connection.unfinished_bytes or 0
                most, before = max(most, now - before), now
        assert 800 <= most <= 3 * 800
        assert await peer.receive(8 + len(body)) == answer(1, body)
        await sending


@on_a_loop
async def test_a_client_that_dies_within_a_large_request_is_found_out(ends: Ends) -> None:
    async with tls_connected(ends.server, ends.client) as peer:
        await peer.handshake()
        await peer.raw(peer.encrypted(frame(ApiKey.METADATA, 1, bytes(2 << 20)))[: (1 << 20) + 100])
        await peer.until(lambda: (peer.connection.unfinished_bytes or 0) > 900_000)
        peer.sock.close()
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
