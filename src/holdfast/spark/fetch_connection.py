"""An executor's connections to brokers: one per broker, used again by the next task of its worker process.

Owns sockets, TLS, the log-in, versions, and the order of requests and answers. Never decides what is fetched and never
decodes records. Synchronous: an executor has nothing else to do, and a wait for bytes frees the GIL.
"""

import math
import os
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, TypeAlias
from uuid import UUID

from holdfast.client.oauth import token_of
from holdfast.client.sasl import SaslSettings, authenticate_version, log_in
from holdfast.client.security import CLOSED_AT_ONCE, SecuritySettings, TlsNames, tls_context, tls_error
from holdfast.model.errors import HoldfastError, NetworkError, UnsupportedVersionError
from holdfast.protocol.fetch_codec import (
    FLEXIBLE,
    FetchData,
    FetchResponsePartition,
    decode_fetch_response,
    encode_fetch_request,
)
from holdfast.protocol.sasl_codec import AUTHENTICATE
from holdfast.protocol.wire import skip_tags
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import Leader

FETCH_KEY: Final = 1
BY_NAME: Final = 11
"""Every broker from Apache Kafka 2.3 on takes this version."""
BY_ID: Final = 13
"""The first that names topics by their ids (Apache Kafka 3.1): a topic that was made again is another one."""
API_VERSIONS_KEY: Final = 18
MAX_RESPONSE_BYTES: Final = 1 << 30
WAKE_BYTES: Final = 256 << 10
"""A reader of a large answer is not woken for less: docs/decisions/0042-what-a-task-costs.md."""

_REQUEST_HEAD: Final = struct.Struct(">ihhi")
_TWO_INTS: Final = struct.Struct(">ii")
_ERROR_AND_COUNT: Final = struct.Struct(">hi")
_VERSIONS: Final = struct.Struct(">hhh")


class FetchConnection:
    """One connection to one broker; requests go out in order, answers come back in that order.

    The buffer of an answer is used again for the next one: what is wanted longer must be copied.
    """

    def __init__(
        self, host: str, port: int, client_id: str, timeout_s: float, security: SecuritySettings | None = None
    ) -> None:
        self.address = f"{host}:{port}"
        self._client_id = client_id.encode()
        self._sent = 0
        self._received = 0
        self._under_way: deque[int] = deque()  # versions of what is not answered yet
        self._buffer = bytearray()
        self._woken_at = 1  # bytes that must have come before the socket counts as readable
        self._quiet_until_s = 0.0
        self._sasl = None if security is None else security.sasl
        self._tls_names = TlsNames() if security is None or security.tls is None else security.tls.names
        self._log_in_at_s = math.inf
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise NetworkError(f"cannot connect to broker {self.address}: {error}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security is not None and security.tls is not None:
                self._begin_tls(host, security)
            self._latest, log_in_version = self._ask_versions()
            if self._sasl is not None:
                self._log_in_version = authenticate_version(log_in_version, self.address)
                self._log_in(self._sasl)
        except BaseException:
            self._socket.close()
            raise

    def _begin_tls(self, host: str, security: SecuritySettings) -> None:
        assert security.tls is not None
        try:
            self._socket = tls_context(security.tls).wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            where = f" (in the TLS handshake: {CLOSED_AT_ONCE}; expected a listener with TLS)"
            raise self._broken(error, where) from None

    def _broken(self, error: OSError, where: str = "") -> HoldfastError:
        refused = tls_error(self.address, error, self._tls_names) if isinstance(error, ssl.SSLError) else None
        return refused or NetworkError(f"broker {self.address}: {error}{where}")

    @property
    def idle(self) -> bool:
        return self._sent == self._received

    @property
    def quiet_s(self) -> float:
        """How long the broker wants to hear nothing: it holds the reader to a quota."""
        return max(0.0, self._quiet_until_s - time.monotonic())

    def _ask_versions(self) -> tuple[int, int | None]:
        """The newest versions of Fetch and SaslAuthenticate that the broker takes, the second if it has any.
        UnsupportedVersionError if the first is too old."""
        self._put(API_VERSIONS_KEY, 0, b"")
        answer = self._frame()
        error, count = _ERROR_AND_COUNT.unpack_from(answer, 0)
        offered = {key: latest for key, _, latest in _VERSIONS.iter_unpack(answer[6 : 6 + 6 * count])}
        latest: int = offered.get(FETCH_KEY, 0)
        if error or latest < BY_NAME:
            raise UnsupportedVersionError(
                f"broker {self.address} takes Fetch up to version {latest}, expected {BY_NAME} at least "
                "(Apache Kafka 2.3 and newer)"
            )
        return latest, offered.get(AUTHENTICATE)

    def _log_in(self, sasl: SaslSettings) -> None:
        """Only while nothing is under way: a broker takes nothing else until it is done."""
        began_s = time.monotonic()
        steps = log_in(sasl, self.address, self._log_in_version, None if sasl.token is None else token_of(sasl.token))
        request = next(steps)
        while True:
            flexible = request.flexible
            self._put(request.api_key, request.version, request.body, flexible=flexible)
            body = self._frame()
            try:
                request = steps.send(body[skip_tags(body, 0) :] if flexible else body)
            except StopIteration as done:
                self._log_in_at_s = math.inf if done.value is None else began_s + done.value
                return

    def send(self, data: FetchData, topic_ids: Mapping[str, UUID]) -> None:
        """A fetch; of topics by their ids, where both sides know those of all."""
        if self._sasl is not None and self.idle and time.monotonic() >= self._log_in_at_s:
            self._log_in(self._sasl)
        version = BY_NAME
        if self._latest >= BY_ID and all(topic in topic_ids for topic, _ in data.topics):
            version = BY_ID
            data = data._replace(topics=[(topic_ids[str(topic)], parts) for topic, parts in data.topics])
        self._under_way.append(version)
        self._put(FETCH_KEY, version, encode_fetch_request(version, data), flexible=version >= FLEXIBLE)

    def _put(self, api_key: int, version: int, body: bytes, *, flexible: bool = False) -> None:
        self._sent += 1
        name = struct.pack(">h", len(self._client_id)) + self._client_id
        name += b"\0" if flexible else b""  # no tagged fields
        head = _REQUEST_HEAD.pack(8 + len(name) + len(body), api_key, version, self._sent)
        try:
            self._socket.sendall(head + name + body)
        except OSError as error:
            raise self._broken(error) from None

    def receive(self) -> dict[tuple[str | UUID, int], FetchResponsePartition]:
        """The next answer, by topic (as the request named it) and partition.

        Empty where the broker only says for how long it wants to hear nothing, as it does to a reader that is over its
        quota.
        """
        version = self._under_way.popleft()
        body = self._frame()
        response = decode_fetch_response(version, body[skip_tags(body, 0) :] if version >= FLEXIBLE else body)
        error = error_in(response.error_code, f"fetch from broker {self.address}")
        if error is not None:
            raise error
        if response.throttle_ms > 0:
            self._quiet_until_s = time.monotonic() + response.throttle_ms / 1000
        found = {(topic, part.partition): part for topic, parts in response.topics for part in parts}
        if not found and response.throttle_ms <= 0:
            raise NetworkError(f"broker {self.address} answered a fetch without the partition that was asked for")
        return found

    def leave_buffer(self) -> None:
        """The next answer gets a buffer of its own: what the last one brought is still wanted."""
        self._buffer = bytearray()

    def _frame(self) -> memoryview:
        """The next answer, from after its correlation id."""
        size, correlation = _TWO_INTS.unpack(self._read(8))
        self._received += 1
        if correlation != self._received or not 4 <= size <= MAX_RESPONSE_BYTES:
            raise NetworkError(f"broker {self.address} sent an answer of {size} bytes to request {correlation}")
        return self._read(size - 4)

    def _read(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = bytearray(size + size // 8)
        view = memoryview(self._buffer)[:size]
        at = 0
        try:
            while at < size:
                self._wake_at(size - at)
                try:
                    count = self._socket.recv_into(view[at:])
                except TimeoutError:
                    count = self._late(view[at:])
                if not count:
                    raise NetworkError(f"broker {self.address} closed the connection")
                at += count
        except OSError as error:
            raise self._broken(error) from None
        return view

    def _wake_at(self, left: int) -> None:
        """A read wakes up for WAKE_BYTES, or for what is left. Not with TLS, whose records are smaller."""
        wanted = WAKE_BYTES if left >= WAKE_BYTES else min(left, self._woken_at)
        if wanted != self._woken_at and not isinstance(self._socket, ssl.SSLSocket):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self._woken_at = wanted

    def _late(self, view: memoryview) -> int:
        """Takes what has come when the time is up, if a read did not wake up for it; TimeoutError for nothing."""
        if self._woken_at == 1:
            raise TimeoutError("timed out")
        timeout_s = self._socket.gettimeout()
        self._wake_at(1)
        self._socket.settimeout(0)
        try:
            return self._socket.recv_into(view)
        except BlockingIOError:
            raise TimeoutError("timed out") from None
        finally:
            self._socket.settimeout(timeout_s)

    def close(self) -> None:
        self._socket.close()


_Key: TypeAlias = tuple[int, str, int, str, SecuritySettings | None]
_idle: dict[_Key, FetchConnection] = {}
"""Connections between tasks; a worker process runs one task at a time. The process id guards against a fork."""


class Connections:
    """The connections of one task, taken from and given back to those of the process."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._used: dict[_Key, FetchConnection] = {}

    def _key(self, leader: Leader) -> _Key:
        return os.getpid(), leader.host, leader.port, self._options.client_id, self._options.security

    def to(self, leader: Leader) -> FetchConnection:
        key = self._key(leader)
        connection = self._used.get(key)
        if connection is None:
            connection = _idle.pop(key, None)
            if connection is None:
                timeout_s = self._options.request_timeout_s + self._options.fetch_wait_ms / 1000
                connection = FetchConnection(
                    leader.host, leader.port, self._options.client_id, timeout_s, self._options.security
                )
            self._used[key] = connection
        return connection

    def drop(self, leader: Leader) -> None:
        """After an error: what is on its way on this connection is of no use any more."""
        connection = self._used.pop(self._key(leader), None)
        if connection is not None:
            connection.close()

    def give_back(self) -> None:
        for key, connection in self._used.items():
            if connection.idle:
                _idle[key] = connection
            else:
                connection.close()
        self._used.clear()


def error_in(code: int, what: str) -> HoldfastError | None:
    """The error that a code of an answer stands for; None if it stands for none."""
    if not code:
        return None
    from holdfast.client.refused import refusal

    return refusal(code, None, what)
