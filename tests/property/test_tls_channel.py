"""However a client cuts what it writes into records, and the network those into pieces: bytes arrive as they were."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker import channel
from holdfast.broker.channel import MANY, MOST_OF_RECORD, RECORD, TlsChannel
from tests.certificates import Authority
from tests.unit.broker.tls_peers import client_context, server_context

SIZES = st.integers(1, 300) | st.sampled_from([RECORD - 1, RECORD, RECORD + 1, 5_865]) | st.integers(1, 200_000)
MANY_SIZES = st.lists(SIZES, min_size=1, max_size=12)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority.make()
    directory: Path = tmp_path_factory.mktemp("keys")
    return server_context(authority.issue("broker"), directory), client_context(authority)


class Pair:
    """Both ends, beyond the handshake; the client's is in the test's hands."""

    def __init__(self, contexts: tuple[ssl.SSLContext, ssl.SSLContext], version: ssl.TLSVersion) -> None:
        server, client = contexts
        client.maximum_version = version
        to_server, to_client, self.incoming, self.outgoing = (ssl.MemoryBIO() for _ in range(4))
        tls = server.wrap_bio(to_server, to_client, server_side=True)
        self.client = client.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        done = 0
        while done < 2:
            done = 0
            for end in (self.client, tls):
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                    done += 1
                to_server.write(self.outgoing.read())
                self.incoming.write(to_client.read())
        self.sock, theirs = socket.socketpair()
        self.sock.setblocking(False)
        theirs.setblocking(False)
        self.channel = TlsChannel(theirs, tls, to_server, to_client)

    def close(self) -> None:
        self.channel.close()
        self.sock.close()


@given(
    writes=MANY_SIZES, pieces=MANY_SIZES, rooms=MANY_SIZES, seed=st.integers(0, 1 << 30),
    version=st.sampled_from([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]), a_turn=st.sampled_from([1, 3, 1024]),
)  # fmt: skip
def test_what_is_received_is_what_was_written(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    writes: list[int], pieces: list[int], rooms: list[int], seed: int, version: ssl.TLSVersion, a_turn: int,
) -> None:  # fmt: skip
    pair, chance, patched = Pair(contexts, version), random.Random(seed), pytest.MonkeyPatch()
    try:
        sent, wire = b"", b""
        patched.setattr(channel, "RECORDS_A_TURN", a_turn)
        for size in writes:
            sent += (data := chance.randbytes(size))
            pair.client.write(data)
            wire += pair.outgoing.read()
        found = bytearray()
        while len(found) < len(sent):
            if wire and (not pair.channel.has_more or chance.random() < 0.5):
                with contextlib.suppress(BlockingIOError):
                    wire = wire[pair.sock.send(wire[: chance.choice(pieces)]) :]
            room = memoryview(bytearray(min(chance.choice(rooms), len(sent) - len(found) + 1)))
            try:
                n = pair.channel.receive(room)
            except BlockingIOError:
                assert wire or not pair.channel.has_more
                continue
            assert 0 < n <= len(room)
            found += room[:n]
            assert len(pair.channel._rest) <= MANY + MOST_OF_RECORD
        assert bytes(found) == sent and not pair.channel.has_more and not wire
    finally:
        patched.undo()
        pair.close()


@given(segments=MANY_SIZES, takes=MANY_SIZES, seed=st.integers(0, 1 << 30), gathered=st.integers(1, 12))
def test_what_is_sent_arrives_in_order_however_slowly_it_is_taken(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], segments: list[int], takes: list[int], seed: int, gathered: int
) -> None:
    pair, chance = Pair(contexts, ssl.TLSVersion.TLSv1_3), random.Random(seed)
    try:
        pair.channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        queue: list[bytes | memoryview] = [chance.randbytes(size) for size in segments]
        sent, found = b"".join(queue), bytearray()
        while len(found) < len(sent):
            if queue:
                with contextlib.suppress(BlockingIOError):
                    n = pair.channel.send(queue[:gathered])
                    assert n > 0
                    while n:
                        head = queue.pop(0)
                        if n < len(head):
                            queue.insert(0, memoryview(head)[n:])
                            break
                        n -= len(head)
            with contextlib.suppress(BlockingIOError):
                pair.incoming.write(pair.sock.recv(chance.choice(takes)))
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:
                    found += pair.client.read(1 << 16)
        assert bytes(found) == sent
    finally:
        pair.close()
