"""A listener with TLS and SASL before brokers that have neither: frames are passed on, addresses in answers are the
front's own.

As Kafka's brokers it takes nothing but ApiVersions from a connection that has not logged in, nothing but a login from
one that has begun a login, and nothing but a login from one whose session is over. What it
lets in and refuses is compared with Apache Kafka in tests/spark/test_real_kafka.py.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import hmac
import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from kio.schema.api_versions.v0.response import ApiVersion as OldApiVersion
from kio.schema.api_versions.v3.response import ApiVersion
from kio.serial import entity_writer

from holdfast.protocol.apis import is_flexible, request_header_version
from holdfast.protocol.framing import decode_response
from holdfast.protocol.wire import skip_tags

METADATA, FIND_COORDINATOR, API_VERSIONS, HANDSHAKE, AUTHENTICATE = 3, 10, 18, 17, 36
UNSUPPORTED, ILLEGAL, FAILED = 33, 34, 58
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_INT = struct.Struct(">i")


@dataclass
class FakeSasl:
    """What the front lets in. ``users``: name -> password; ``token``: judges the token of OAUTHBEARER."""

    mechanisms: Sequence[str]
    users: dict[str, str] = field(default_factory=dict)
    token: Callable[[str], bool] = bool
    lifetime_ms: int = 0
    iterations: int = 4096
    knows_password: bool = True
    """A server that does not, signs wrongly."""
    logins: list[tuple[int, str]] = field(default_factory=list)
    """(number of the connection, user or mechanism) of each login that went well."""
    attempts: int = 0


class SecureFront:
    """``with SecureFront([("127.0.0.1", 9092)], tls=context) as front: front.bootstrap``; one port per broker."""

    def __init__(
        self, targets: Sequence[tuple[str, int]], *, tls: ssl.SSLContext | None = None, sasl: FakeSasl | None = None
    ) -> None:
        self.tls = tls
        self.sasl = sasl
        self.host = "localhost"
        self.accepted = 0
        self.trouble: list[str] = []
        """Why connections were ended by the front."""
        self._targets = list(targets)
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in targets]
        self.ports = {port: each.getsockname()[1] for (_, port), each in zip(targets, self._listeners, strict=True)}
        self._open: set[socket.socket] = set()

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{next(iter(self.ports.values()))}"

    def __enter__(self) -> SecureFront:
        for listener, target in zip(self._listeners, self._targets, strict=True):
            threading.Thread(target=self._accept, args=(listener, target), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):  # wakes the thread that accepts
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket, target: tuple[str, int]) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(client, target, self.accepted), daemon=True).start()

    def _serve(self, client: socket.socket, target: tuple[str, int], number: int) -> None:
        self._open.add(client)
        try:
            if self.tls is not None:
                client = self.tls.wrap_socket(client, server_side=True)
            with client, socket.create_connection(target) as broker:
                self._open |= {client, broker}
                _Connection(self, client, broker, number).run()
        except (OSError, EOFError) as error:
            self.trouble.append(str(error))
        finally:
            client.close()

    def moved(self, node: Any) -> Any:
        """A broker of an answer, at the address that it has here."""
        if int(node.port) not in self.ports:
            return node
        return dataclasses.replace(node, host=self.host, port=self.ports[int(node.port)])


class _Connection:
    """One client's; frames go both ways until one side ends."""

    def __init__(self, front: SecureFront, client: socket.socket, broker: socket.socket, number: int) -> None:
        self.front, self.client, self.broker, self.number = front, client, broker, number
        self.asked: dict[int, tuple[int, int]] = {}
        self.login: _Login | None = None
        self.until_s = 0.0 if front.sasl is not None else float("inf")

    def run(self) -> None:
        while True:
            waiting = isinstance(self.client, ssl.SSLSocket) and self.client.pending() > 0
            ready = [self.client] if waiting else select.select([self.client, self.broker], [], [])[0]
            if self.client in ready:
                self._asked(_frame(self.client))
            if self.broker in ready:
                frame = _frame(self.broker)
                key, version = self.asked.pop(_INT.unpack_from(frame)[0])
                _send(self.client, self._readdressed(key, version, frame))

    def _asked(self, frame: bytes) -> None:
        key, version, correlation_id, name = struct.unpack_from(">hhih", frame)
        if key in (HANDSHAKE, AUTHENTICATE) and self.front.sasl is not None:
            at = 10 + max(name, 0)
            if request_header_version(key, version) == 2:
                at = skip_tags(frame, at)
            head = _INT.pack(correlation_id) + (b"\0" if is_flexible(key, version) else b"")
            _send(self.client, head + self._log_in(self.front.sasl, key, version, frame[at:]))
            return
        if self.login is not None:
            raise EOFError(f"API {key} in the middle of a login")
        if time.monotonic() > self.until_s and key != API_VERSIONS:
            raise EOFError(f"API {key} without a session")
        self.asked[correlation_id] = key, version
        _send(self.broker, frame)

    def _log_in(self, sasl: FakeSasl, key: int, version: int, body: bytes) -> bytes:
        if key == HANDSHAKE:
            mechanism = body[2:].decode()
            names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in sasl.mechanisms)
            code = 0 if mechanism in sasl.mechanisms else UNSUPPORTED
            self.login = _Login(sasl, mechanism)
            return struct.pack(">hi", code, len(sasl.mechanisms)) + names
        code, data = ILLEGAL, b""
        if self.login is not None:
            sent = body[_varint(body)[1] : -1] if version >= 2 else body[4:]
            code, data = self.login.step(sent)
            if self.login.user is not None:
                sasl.logins.append((self.number, self.login.user))
                self.until_s = time.monotonic() + sasl.lifetime_ms / 1000 if sasl.lifetime_ms else float("inf")
                self.login = None
        message = b"no entry" if code else None
        lifetime = struct.pack(">q", sasl.lifetime_ms)
        if version >= 2:
            text = b"\0" if message is None else bytes([len(message) + 1]) + message
            return struct.pack(">h", code) + text + _uvarint(len(data) + 1) + data + lifetime + b"\0"
        text = struct.pack(">h", -1) if message is None else struct.pack(">h", len(message)) + message
        return struct.pack(">h", code) + text + _INT.pack(len(data)) + data + lifetime

    def _readdressed(self, key: int, version: int, frame: bytes) -> bytes:
        if key not in (METADATA, FIND_COORDINATOR, API_VERSIONS):
            return frame
        start = 4 + (is_flexible(key, version) and key != API_VERSIONS)
        answer = decode_response(key, version, memoryview(frame)[start:])
        if key == METADATA:
            answer = dataclasses.replace(answer, brokers=tuple(map(self.front.moved, answer.brokers)))
        elif key == FIND_COORDINATOR:
            answer = dataclasses.replace(answer, coordinators=tuple(map(self.front.moved, answer.coordinators)))
        elif self.front.sasl is not None:
            kind: Any = ApiVersion if version >= 3 else OldApiVersion
            more = tuple(kind(api_key=k, min_version=0, max_version=v) for k, v in ((HANDSHAKE, 1), (AUTHENTICATE, 2)))
            answer = dataclasses.replace(answer, api_keys=answer.api_keys + more)
        out = BytesIO()
        entity_writer(type(answer))(out, answer)
        return frame[:start] + out.getvalue()


class _Login:
    """One exchange; ``user`` is set when it went well."""

    def __init__(self, sasl: FakeSasl, mechanism: str) -> None:
        self.sasl, self.mechanism = sasl, mechanism
        self.user: str | None = None
        self._said: tuple[str, bytes, bytes] | None = None
        self._refused = False

    def step(self, sent: bytes) -> tuple[int, bytes]:
        """Error code and answer."""
        self.sasl.attempts += 1
        if self.mechanism == "PLAIN":
            _, user, password = sent.decode().split("\0")
            return self._end(user, self.sasl.users.get(user) == password, b"")
        if self.mechanism == "OAUTHBEARER":
            return self._bearer(sent)
        return self._scram_final(sent) if self._said else self._scram_first(sent)

    def _end(self, user: str, good: bool, answer: bytes) -> tuple[int, bytes]:
        if not good:
            return FAILED, b""
        self.user = user
        return 0, answer

    def _bearer(self, sent: bytes) -> tuple[int, bytes]:
        if self._refused:
            assert sent == b"\x01"
            return FAILED, b""
        head, auth, *_ = sent.split(b"\x01")
        assert head == b"n,," and auth.startswith(b"auth=Bearer ")
        if self.sasl.token(auth.removeprefix(b"auth=Bearer ").decode()):
            return self._end("OAUTHBEARER", True, b"")
        self._refused = True
        return 0, json.dumps({"status": "invalid_token"}).encode()

    def _scram_first(self, sent: bytes) -> tuple[int, bytes]:
        bare = sent.removeprefix(b"n,,")
        name, nonce = bare.split(b",")
        user = name[2:].decode().replace("=2C", ",").replace("=3D", "=")
        if user not in self.sasl.users:
            return FAILED, b""
        answer = nonce + b"-servers,s=" + base64.b64encode(b"salt") + f",i={self.sasl.iterations}".encode()
        self._said = user, bare, answer
        return 0, answer

    def _scram_final(self, sent: bytes) -> tuple[int, bytes]:
        assert self._said is not None
        user, bare, answer = self._said
        without, _, proof = sent.rpartition(b",p=")
        assert without.startswith(b"c=biws,r=")
        kind = HASHES[self.mechanism]
        salted = hashlib.pbkdf2_hmac(kind, self.sasl.users[user].encode(), b"salt", self.sasl.iterations)
        key = hmac.digest(salted, b"Client Key", kind)
        spoken = bare + b"," + answer + b"," + without
        mask = hmac.digest(hashlib.new(kind, key).digest(), spoken, kind)
        good = bytes(a ^ b for a, b in zip(mask, base64.b64decode(proof), strict=True)) == key
        server_key = hmac.digest(salted, b"Server Key" if self.sasl.knows_password else b"", kind)
        return self._end(user, good, b"v=" + base64.b64encode(hmac.digest(server_key, spoken, kind)))


def _frame(source: socket.socket) -> bytes:
    return _exactly(source, _INT.unpack(_exactly(source, 4))[0])


def _exactly(source: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        some = source.recv(size - len(found))
        if not some:
            raise EOFError("the other side ended")
        found += some
    return bytes(found)


def _send(target: socket.socket, frame: bytes) -> None:
    target.sendall(_INT.pack(len(frame)) + frame)


def _varint(data: bytes) -> tuple[int, int]:
    value, at = 0, 0
    while True:
        value |= (data[at] & 0x7F) << 7 * at
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
