"""Connections of a broker through TLS, and the client's side of them, byte for byte in the test's hands."""

from __future__ import annotations

import asyncio
import hmac
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.broker.connection import Connection
from holdfast.broker.exchange import BufferPool, Exchange
from holdfast.broker.handshakes import Handshakes
from holdfast.security.principal import ANONYMOUS, Principal
from tests.certificates import Authority, Certificate
from tests.unit.broker.conftest import DEADLINE_S, EVERYTHING, until

MAX_FRAME = 8 << 20


class OneContext:
    """A listener with one certificate for ever."""

    name = "SSL"

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        return self.context.wrap_bio(incoming, outgoing, server_side=True)

    def principal(self, tls: ssl.SSLObject) -> Principal:
        return ANONYMOUS


def server_context(certificate: Certificate, directory: Path, trusted: str | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.write(directory / "server.pem"))
    if trusted is not None:
        context.load_verify_locations(cadata=trusted)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(authority: Authority, shown: str | None = None) -> ssl.SSLContext:
    """``shown``: the path of a keystore."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem)
    if shown is not None:
        context.load_cert_chain(shown)
    return context


class TlsPeer:
    """The client's side. ``piece``: how many bytes it sends at a time."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, piece: int = 1 << 20) -> None:
        self.sock = sock
        self.piece = piece
        self.requests: list[Exchange] = []
        self.closed = asyncio.Event()
        self.connection: Connection
        self.on_request: Callable[[Exchange], None] | None = None
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")

    def dispatch(self, exchange: Exchange) -> None:
        self.requests.append(exchange)
        if self.on_request is not None:
            self.on_request(exchange)

    def encrypted(self, data: bytes) -> bytes:
        """What would go over the wire."""
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view) :]
        return self._out.read()

    async def raw(self, data: bytes) -> None:
        """In pieces, between which the other side has its turn."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_S):
            for at in range(0, len(data), self.piece):
                await loop.sock_sendall(self.sock, data[at : at + self.piece])
                if self.piece < 100:
                    await asyncio.sleep(0)

    async def handshake(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.raw(self._out.read())
                await self.more()
            else:
                await self.raw(self._out.read())
                return

    async def more(self, most: int = 1 << 16) -> None:
        """Take what the wire has; EOFError at its end."""
        async with asyncio.timeout(DEADLINE_S):
            data = await asyncio.get_running_loop().sock_recv(self.sock, most)
        if not data:
            self._in.write_eof()
            raise EOFError
        self._in.write(data)

    async def send(self, data: bytes) -> None:
        await self.raw(self.encrypted(data))

    async def receive(self, size: int, most: int = 1 << 16) -> bytes:
        found = bytearray()
        while len(found) < size:
            try:
                data = self.tls.read(size - len(found))
            except ssl.SSLWantReadError:
                await self.more(most)
            else:
                assert data, f"ended after {len(found)} bytes"
                found += data
        return bytes(found)

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(condition)


class RecordsByHand:
    """What a client of TLS 1.3 sends after its handshake, of which the standard library makes no such records: requests
    for new keys, too. ``secrets``: what the handshake wrote there (SSLKEYLOGFILE); the client has sent nothing yet."""

    def __init__(self, tls: ssl.SSLObject, secrets: Path) -> None:
        lines = [line.split() for line in secrets.read_text().splitlines()]
        (secret,) = (fields[2] for fields in lines if fields[0] == "CLIENT_TRAFFIC_SECRET_0")
        self._secret = bytes.fromhex(secret)
        self._hash = "sha384" if len(self._secret) == 48 else "sha256"
        cipher = tls.cipher()
        assert cipher is not None and "GCM" in cipher[0]
        self._key_bytes = cipher[2] // 8
        self._begin()

    def _begin(self) -> None:
        self._cipher = AESGCM(self._expanded(b"key", self._key_bytes))
        self._iv, self._number = int.from_bytes(self._expanded(b"iv", 12)), 0

    def _expanded(self, label: bytes, size: int) -> bytes:
        """HKDF-Expand-Label (RFC 8446, 7.1), of no more than one hash."""
        label = b"tls13 " + label
        info = size.to_bytes(2) + bytes([len(label)]) + label + b"\0\1"
        return hmac.digest(self._secret, info, self._hash)[:size]

    def _record(self, kind: int, content: bytes) -> bytes:
        head = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2)
        nonce = (self._iv ^ self._number).to_bytes(12)
        self._number += 1
        return head + self._cipher.encrypt(nonce, content + bytes([kind]), head)

    def data(self, content: bytes) -> bytes:
        return self._record(23, content)

    def new_keys(self, *, of_both: bool = True) -> bytes:
        """KeyUpdate (RFC 8446, 4.6.3), and the client's own next keys."""
        record = self._record(22, bytes([24, 0, 0, 1, of_both]))
        self._secret = self._expanded(b"traffic upd", len(self._secret))
        self._begin()
        return record


def tls_peer(server: ssl.SSLContext, client: ssl.SSLContext, piece: int, handshakes: Handshakes) -> TlsPeer:
    """Both ends of a connection; the handshake is the test's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    peer = TlsPeer(ours, client, piece)
    peer.connection = Connection(
        theirs,
        ("local", 0),
        asyncio.get_running_loop(),
        BufferPool(),
        peer.dispatch,
        lambda _: peer.closed.set(),
        MAX_FRAME,
        EVERYTHING,
        None,
        (OneContext(server), handshakes),
    )
    return peer


@asynccontextmanager
async def tls_connected(
    server: ssl.SSLContext, client: ssl.SSLContext, *, piece: int = 1 << 20, handshakes: Handshakes | None = None
) -> AsyncIterator[TlsPeer]:
    """The same, ended with the test."""
    peer = tls_peer(server, client, piece, Handshakes() if handshakes is None else handshakes)
    try:
        yield peer
    finally:
        peer.connection.close(None)
        peer.sock.close()
