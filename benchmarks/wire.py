"""A client of a few lines for what must be timed without a client library: one socket, one request in flight.

Requests are kio's where time does not matter and ready-made bytes where it does.
"""

from __future__ import annotations

import datetime
import io
import socket
import struct

import crc32c
from kio.schema.create_topics.v4.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.create_topics.v4.response import CreateTopicsResponse
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i32Timedelta

PRODUCE, FETCH, CREATE_TOPICS = 0, 1, 19
PRODUCE_VERSION, FETCH_VERSION, CREATE_TOPICS_VERSION = 7, 11, 4
CLIENT_ID = b"bench"


class Refused(Exception):
    """The broker answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: error code {code}")
        self.code = code


def frame(api: int, version: int, body: bytes) -> bytes:
    """A request with the header of the versions before flexible fields."""
    head = struct.pack(">hhih", api, version, 1, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def record_batch(value: bytes) -> bytes:
    """A batch of format v2 with one record without key, timestamp 1 ms after the epoch."""
    body = b"\x00\x00\x00\x01" + _varint(len(value)) + value + b"\x00"
    record = _varint(len(body)) + body
    checked = struct.pack(">hiqqqhii", 0, 0, 1, 1, -1, -1, -1, 1) + record
    crc = crc32c.crc32c(checked)
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc) + checked


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def produce_frame(topic: str, partition: int, value: bytes, acks: int, timeout_ms: int = 10_000) -> bytes:
    batch = record_batch(value)
    body = struct.pack(">hhii", -1, acks, timeout_ms, 1) + text(topic)
    return frame(PRODUCE, PRODUCE_VERSION, body + struct.pack(">iii", 1, partition, len(batch)) + batch)


def produce_result(answer: bytes) -> tuple[int, int]:
    """(error code, base offset) of the only partition in the answer."""
    (size,) = struct.unpack_from(">h", answer, 8)
    return struct.unpack_from(">hq", answer, 10 + size + 8)


def fetch_frame(topic: str, partition: int, offset: int, wait_ms: int = 5_000) -> bytes:
    body = struct.pack(">iiiibiii", -1, wait_ms, 1, 1 << 20, 0, 0, -1, 1) + text(topic)
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, 1 << 20)
    return frame(FETCH, FETCH_VERSION, body + struct.pack(">i", 0) + text(""))


def fetch_result(answer: bytes) -> tuple[int, int]:
    """(error code, bytes of records) of the only partition in the answer."""
    (size,) = struct.unpack_from(">h", answer, 18)
    at = 20 + size + 4
    error, aborted = struct.unpack_from(">4xh24xi", answer, at)
    at += 34 + 16 * max(0, aborted) + 4
    (records,) = struct.unpack_from(">i", answer, at)
    return error, records


class Connection:
    """A blocking socket to one broker."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 15.0) -> None:
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def receive(self) -> bytes:
        """The answer, from its correlation id on."""
        received = self.socket.recv(65536)
        while len(received) < 4 or len(received) < 4 + struct.unpack_from(">i", received)[0]:
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionResetError("the broker closed the connection")
            received += more
        return received[4:]

    def call(self, request: bytes) -> bytes:
        self.send(request)
        return self.receive()

    def create_topic(self, name: str, partitions: int, copies: int, **configs: str) -> None:
        """Raises Refused unless the topic is there afterwards."""
        request = CreateTopicsRequest(
            topics=(
                CreatableTopic(
                    name=TopicName(name),
                    num_partitions=i32(partitions),
                    replication_factor=i16(copies),
                    assignments=(),
                    configs=tuple(
                        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
                    ),
                ),
            ),
            timeout=i32Timedelta.parse(datetime.timedelta(seconds=15)),
            validate_only=False,
        )
        body = io.BytesIO()
        entity_writer(CreateTopicsRequest)(body, request)
        answer = self.call(frame(CREATE_TOPICS, CREATE_TOPICS_VERSION, body.getvalue()))
        response, _ = entity_reader(CreateTopicsResponse)(answer, 4)
        code = int(response.topics[0].error_code)
        if code not in (0, 36):
            raise Refused(f"creating topic {name}", code)
