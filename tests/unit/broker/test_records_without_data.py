"""Records of TLS without data, as those by which a client asks for new keys: each costs the broker as much as sixty
others, and who sends nothing else has not come to use it."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.broker.channel import GIVEN_RECORDS, MOST_WITHOUT_DATA, WITH_DATA
from holdfast.protocol.apis import ApiKey
from tests.certificates import Authority
from tests.unit.broker.conftest import DEADLINE_S
from tests.unit.broker.test_channel import echo
from tests.unit.broker.test_connection import answer, frame, on_a_loop
from tests.unit.broker.tls_peers import RecordsByHand, TlsPeer, client_context, server_context, tls_connected


@asynccontextmanager
async def by_hand(directory: Path) -> AsyncIterator[tuple[TlsPeer, RecordsByHand]]:
    authority = Authority.make()
    client = client_context(authority)
    client.keylog_filename = str(directory / "secrets")
    async with tls_connected(server_context(authority.issue("broker"), directory), client) as peer:
        peer.on_request = echo
        await peer.handshake()
        await peer.until(lambda: peer.connection.is_open)
        yield peer, RecordsByHand(peer.tls, directory / "secrets")


async def is_answered(peer: TlsPeer, number: int) -> None:
    assert await peer.receive(8) == answer(number)


@on_a_loop
async def test_a_client_that_asks_for_new_keys_now_and_then_goes_on(tmp_path: Path) -> None:
    """Of its own and of both sides, before, between and behind its requests."""
    async with by_hand(tmp_path) as (peer, records):
        count = 3 * WITH_DATA
        for number in range(count):
            asks = not number % WITH_DATA
            before = records.new_keys(of_both=False) if asks else b""
            said = records.data(frame(ApiKey.METADATA, number))
            await peer.raw(before + said + (records.new_keys() if asks else b""))
            await is_answered(peer, number)
        for number in range(MOST_WITHOUT_DATA + 3 - 6):
            await peer.raw(records.new_keys() + records.data(frame(ApiKey.METADATA, count + number)))
            await is_answered(peer, count + number)
        assert peer.connection.is_open


@pytest.mark.parametrize("data_between", [False, True])
@on_a_loop
async def test_a_client_that_asks_for_new_keys_and_for_little_else_is_closed_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data_between: bool
) -> None:
    async with by_hand(tmp_path) as (peer, records):
        for number in range(MOST_WITHOUT_DATA):
            await peer.raw(records.new_keys())
            if data_between:
                await peer.raw(records.data(frame(ApiKey.METADATA, number)))
                await is_answered(peer, number)
        last = frame(ApiKey.METADATA, MOST_WITHOUT_DATA)
        await peer.raw(records.data(last[:5]))
        await peer.raw(records.data(last[5:]))
        await is_answered(peer, MOST_WITHOUT_DATA)
        await peer.raw(records.new_keys() + records.data(frame(ApiKey.METADATA, 1000)))
        async with asyncio.timeout(DEADLINE_S):
            await peer.closed.wait()
    asked, answered = MOST_WITHOUT_DATA + 1, MOST_WITHOUT_DATA * data_between + 3
    (line,) = caplog.messages
    assert line == (
        f"connection of local:0 closed: {asked} records of TLS without data, such as updates of keys, and {answered} "
        "with data: expected 16 at most, and one more for every 256 with data"
    )


@pytest.mark.parametrize("empty", [False, True])
@on_a_loop
async def test_a_turn_of_the_loop_takes_few_of_such_records(tmp_path: Path, empty: bool) -> None:
    """However many have come at once."""
    async with by_hand(tmp_path) as (peer, records):
        peer.sock.setblocking(True)
        made = [records.data(b"") if empty else records.new_keys() for _ in range(200)]
        peer.sock.sendall(b"".join(made))
        channel, before, most = peer.connection._channel, 0, 0
        while not peer.connection.closed:
            await asyncio.sleep(0)
            now = channel._without_data  # type: ignore[attr-defined]
            most, before = max(most, now - before), now
        assert 0 < most <= GIVEN_RECORDS
        assert before <= MOST_WITHOUT_DATA + GIVEN_RECORDS


@on_a_loop
async def test_a_request_comes_whole_between_such_records(tmp_path: Path) -> None:
    """Large, with new keys within it: what has come of it is not lost by the ends of turns."""
    body = os.urandom(3 << 20)
    async with by_hand(tmp_path) as (peer, records):
        request, made = frame(ApiKey.METADATA, 1, body), list[bytes]()
        for at in range(0, len(request), 16_000):
            made.append(records.data(request[at : at + 16_000]))
            if at % 256_000 == 0:
                made.append(records.new_keys())
        sending = asyncio.create_task(peer.raw(b"".join(made)))
        assert await peer.receive(8 + len(body)) == answer(1, body)
        await sending
        assert isinstance(peer.tls, ssl.SSLObject) and peer.connection.is_open
