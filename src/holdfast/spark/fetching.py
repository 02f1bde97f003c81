"""An executor's fetches: one bare connection per leader, the next fetch on its way while this one is decoded.

Owns sockets, their reuse between tasks of one worker process, and what to do when a leader has moved. Never decodes
records. Synchronous: an executor has nothing else to do, and a wait for bytes frees the GIL.
"""

import math
import os
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from holdfast.client.oauth import token_of
from holdfast.client.sasl import SaslSettings, authenticate_version, log_in
from holdfast.client.security import SecuritySettings, tls_context, tls_error
from holdfast.model.errors import (
    HoldfastError,
    NetworkError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnsupportedVersionError,
)
from holdfast.model.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from holdfast.protocol.fetch_codec import (
    FLEXIBLE,
    FetchData,
    FetchedPartition,
    FetchPartitionData,
    decode_fetch_response,
    encode_fetch_request,
)
from holdfast.protocol.sasl_codec import AUTHENTICATE
from holdfast.protocol.wire import skip_tags
from holdfast.records.columns import AbortedTransaction, Chunk
from holdfast.spark.options import ReadOptions
from holdfast.spark.ranges import Leader, Range

FETCH_KEY: Final = 1
BY_NAME: Final = 11
"""Every broker from Apache Kafka 2.3 on takes this version."""
BY_ID: Final = 13
"""The first that names topics by their ids (Apache Kafka 3.1): a topic that was made again is another one."""
API_VERSIONS_KEY: Final = 18
MAX_RESPONSE_BYTES: Final = 1 << 30
LEAST_FETCH_BYTES: Final = 64 << 10
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5

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
        self._quiet_until_s = 0.0
        self._sasl = None if security is None else security.sasl
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
            raise self._broken(error, " (in the TLS handshake; expected a listener with TLS)") from None

    def _broken(self, error: OSError, where: str = "") -> HoldfastError:
        refused = tls_error(self.address, error) if isinstance(error, ssl.SSLError) else None
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

    def send(self, data: FetchData, topic_id: UUID | None) -> None:
        """A fetch of one topic, by its id where both sides know of ids."""
        if self._sasl is not None and self.idle and time.monotonic() >= self._log_in_at_s:
            self._log_in(self._sasl)
        version = BY_NAME
        if topic_id is not None and self._latest >= BY_ID:
            version, data = BY_ID, data._replace(topics=[(topic_id, parts) for _, parts in data.topics])
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

    def receive(self) -> FetchedPartition | None:
        """The one partition of the next answer; None where the broker only says for how long it wants to hear nothing,
        as it does to a reader that is over its quota."""
        version = self._under_way.popleft()
        body = self._frame()
        response = decode_fetch_response(version, body[skip_tags(body, 0) :] if version >= FLEXIBLE else body)
        error = _error(response.error_code, f"fetch from broker {self.address}")
        if error is not None:
            raise error
        if response.throttle_ms > 0:
            self._quiet_until_s = time.monotonic() + response.throttle_ms / 1000
        for _, partitions in response.topics:
            return partitions[0]
        if response.throttle_ms > 0:
            return None
        raise NetworkError(f"broker {self.address} answered a fetch without the partition that was asked for")

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
                count = self._socket.recv_into(view[at:])
                if not count:
                    raise NetworkError(f"broker {self.address} closed the connection")
                at += count
        except OSError as error:
            raise self._broken(error) from None
        return view

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Batches of one partition with the wanted ``start <= offset < end``. Valid until the next is asked for."""

    tp: TopicPartition
    chunk: Chunk
    start: Offset
    end: Offset
    aborted: tuple[AbortedTransaction, ...]


class Guide(Protocol):
    """Who is asked when things are not as they were planned."""

    def leader(self, tp: TopicPartition) -> Leader:
        """The partition's leader now."""

    def broker(self, broker_id: BrokerId, epoch: LeaderEpoch | None) -> Leader | None:
        """A replica that is nearer than the leader; None if its broker is not known."""

    def bounds(self, tp: TopicPartition) -> tuple[Offset, Offset]:
        """Where the partition's log starts and ends now."""

    def is_gone(self, tp: TopicPartition, topic_id: UUID) -> bool:
        """Whether the partition's topic has another id by now."""

    def data_loss(self, text: str) -> None:
        """Raises if lost records end the read."""


class RangeFetcher:
    """Fetches ranges one after the other; iterate once."""

    def __init__(self, ranges: tuple[Range, ...], options: ReadOptions, guide: Guide) -> None:
        self._ranges = ranges
        self._options = options
        self._guide = guide
        self._connections = Connections(options)
        self._leaders: dict[TopicPartition, Leader] = {
            each.tp: each.leader for each in ranges if each.leader is not None
        }
        self._bytes_per_record: float | None = None

    def __iter__(self) -> Iterator[Fetched]:
        try:
            sent = None  # the range and offset that a fetch is on its way for
            for index, wanted in enumerate(self._ranges):
                following = self._ranges[index + 1] if index + 1 < len(self._ranges) else None
                offset = wanted.start
                while offset < wanted.end:
                    part = self._fetch(wanted, offset, sent_already=sent == (index, offset))
                    sent = None
                    if isinstance(part, int):  # the log starts there now
                        offset = min(part, wanted.end)
                        continue
                    chunk = Chunk.scan(part.records)
                    start, offset = offset, self._next_offset(wanted, offset, chunk)
                    if offset < wanted.end:
                        sent = (index, offset) if self._send_ahead(wanted, offset) else None
                    elif following is not None and self._send_ahead(following, following.start):
                        sent = (index + 1, following.start)
                    aborted = tuple(AbortedTransaction(producer_id=p, first_offset=o) for p, o in part.aborted or ())
                    yield Fetched(tp=wanted.tp, chunk=chunk, start=start, end=wanted.end, aborted=aborted)
        finally:
            self._connections.give_back()

    def _next_offset(self, wanted: Range, offset: Offset, chunk: Chunk) -> Offset:
        after = chunk.next_offset
        if after is None or after <= offset:
            raise HoldfastError(
                f"partition {wanted.tp}: the leader answered a fetch at offset {offset} with records up to {after}"
            )
        self._bytes_per_record = chunk.size / (after - offset)
        return after

    def _request(self, wanted: Range, offset: Offset) -> FetchData:
        size = self._options.fetch_bytes
        if self._bytes_per_record is not None:  # towards the end of a range, little of what is beyond it
            size = min(size, max(LEAST_FETCH_BYTES, int((wanted.end - offset) * self._bytes_per_record * 1.05)))
        leader = self._leaders.get(wanted.tp)
        epoch = -1 if leader is None or leader.epoch is None else leader.epoch
        part = FetchPartitionData(wanted.tp.partition, epoch, offset, -1, -1, size)
        isolation = 1 if self._options.read_committed else 0
        wait_ms = self._options.fetch_wait_ms
        topics = [(wanted.tp.topic, [part])]
        return FetchData(-1, -1, wait_ms, 1, size, isolation, 0, -1, topics, rack_id=self._options.rack)

    def _send_ahead(self, wanted: Range, offset: Offset) -> bool:
        leader = self._leaders.get(wanted.tp)
        if leader is None:
            return False
        try:
            connection = self._connections.to(leader)
            if not connection.idle or connection.quiet_s:
                return False
            connection.send(self._request(wanted, offset), wanted.topic_id)
        except NetworkError:
            self._connections.drop(leader)
            return False
        return True

    def _fetch(self, wanted: Range, offset: Offset, *, sent_already: bool) -> FetchedPartition | Offset:
        """An answer with records; or the offset to go on at where ``offset`` is gone. Tries until the time is up.

        Time for which a broker throttles does not count: that is no silence.
        """
        limit = time.monotonic() + self._options.poll_timeout_s
        pause_s = FIRST_PAUSE_S
        error: HoldfastError = HoldfastError("no records came")
        while True:
            try:
                connection = self._connections.to(self._leader(wanted.tp))
                if not sent_already:
                    quiet_s = connection.quiet_s
                    time.sleep(quiet_s)
                    limit += quiet_s
                    connection.send(self._request(wanted, offset), wanted.topic_id)
                sent_already = False
                part = connection.receive()
                if part is None:
                    continue
                problem = _error(part.error_code, f"fetch of {wanted.tp} at offset {offset} from {connection.address}")
                if problem is None and len(part.records):
                    return part
                if isinstance(problem, UnknownTopicIdError) and self._made_again(wanted, offset):
                    return wanted.end
                if problem is not None and not isinstance(problem, OffsetOutOfRangeError):
                    raise problem
                elsewhere = None if self._go_nearer(wanted.tp, part) else self._elsewhere(wanted, offset)
                if elsewhere is not None:
                    return elsewhere
                if problem is not None:  # what was out of range is there: by now, or at another broker
                    error = problem
                    self._leaders.pop(wanted.tp, None)
            except HoldfastError as raised:
                if not raised.retriable:
                    raise
                error = raised
                sent_already = False
                stale = self._leaders.pop(wanted.tp, None)
                if stale is not None:
                    self._connections.drop(stale)
            if time.monotonic() > limit:
                raise HoldfastError(
                    f"partition {wanted.tp}: no records at offset {offset} (of {wanted.start} to {wanted.end}) within "
                    f"{self._options.poll_timeout_s:g} s (option kafkaConsumer.pollTimeoutMs): {error}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _go_nearer(self, tp: TopicPartition, part: FetchedPartition) -> bool:
        """True if the leader has named a replica that is nearer to the reader's rack (KIP-392): fetches go there, until
        one of them fails. Then the leader is asked again."""
        leader = self._leaders.get(tp)
        if part.error_code or part.preferred_read_replica < 0 or len(part.records) or leader is None:
            return False
        nearer = self._guide.broker(part.preferred_read_replica, leader.epoch)
        if nearer is None or nearer == leader:
            return False
        self._leaders[tp] = nearer
        return True

    def _made_again(self, wanted: Range, offset: Offset) -> bool:
        """True if what is left of the range went with its topic, and that may be; a broker that only does not know of
        the topic yet is asked again."""
        if wanted.topic_id is None or not self._guide.is_gone(wanted.tp, wanted.topic_id):
            return False
        self._guide.data_loss(
            f"partition {wanted.tp}: the topic with id {wanted.topic_id} was deleted and another one made; it was to be"
            f" read from {offset} to {wanted.end}"
        )
        return True

    def _leader(self, tp: TopicPartition) -> Leader:
        leader = self._leaders.get(tp)
        if leader is None:
            leader = self._leaders[tp] = self._guide.leader(tp)
        return leader

    def _elsewhere(self, wanted: Range, offset: Offset) -> Offset | None:
        """Where to go on if the log does not hold ``offset`` (loss of data); None if it does: asking again may help.

        Asked when a fetch is out of range, and also when it is answered with nothing: a log that ends before the
        planned end was cut, or belongs to a topic that was made again, and nothing may ever come.
        """
        start, end = self._guide.bounds(wanted.tp)
        if offset < start:
            self._guide.data_loss(f"partition {wanted.tp}: offset {offset} is gone, the log starts at {start}")
            return start
        if offset < end:
            return None
        self._guide.data_loss(
            f"partition {wanted.tp}: the log ends at {end}, offset {offset} is not there; it was to be read up to "
            f"{wanted.end} (was the topic deleted and made again, or the log cut?)"
        )
        return wanted.end


def _error(code: int, what: str) -> HoldfastError | None:
    if not code:
        return None
    from holdfast.protocol.error_codes import error_of

    return error_of(code, what)
