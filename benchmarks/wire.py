"""A client of a few lines for what must be timed without a client library: one socket, one request in flight.

Requests are kio's where time does not matter and ready-made bytes where it does.
"""

from __future__ import annotations

import datetime
import io
import socket
import struct
from collections.abc import Sequence
from typing import Any

import crc32c
from kio.schema.create_topics.v4.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.create_topics.v4.response import CreateTopicsResponse
from kio.schema.describe_log_dirs.v1.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v1.response import DescribeLogDirsResponse
from kio.schema.describe_quorum.v0.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v0.response import DescribeQuorumResponse
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i32Timedelta

PRODUCE, FETCH = 0, 1
PRODUCE_VERSION, FETCH_VERSION = 7, 11
TOPIC_ALREADY_EXISTS = 36
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


def fetch_frame(topic: str, partition: int, offset: int, wait_ms: int = 5_000, *, max_bytes: int = 1 << 20) -> bytes:
    body = struct.pack(">iiiibiii", -1, wait_ms, 1, 1 << 20, 0, 0, -1, 1) + text(topic)
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, max_bytes)
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

    def ask(self, request: Any, answer: type[Any]) -> Any:
        """A request and its answer as kio's entities."""
        body = io.BytesIO()
        entity_writer(type(request))(body, request)
        tags = b"\0" if request.__flexible__ else b""
        received = self.call(frame(request.__api_key__, request.__version__, tags + body.getvalue()))
        return entity_reader(answer)(received, 5 if tags else 4)[0]

    def create_topics(
        self, names: Sequence[str], partitions: int, copies: int, *, timeout_s: float = 15.0, **configs: str
    ) -> None:
        """Raises Refused unless all topics are there afterwards."""
        values = tuple(CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items())
        topics = tuple(
            CreatableTopic(
                name=TopicName(name),
                num_partitions=i32(partitions),
                replication_factor=i16(copies),
                assignments=(),
                configs=values,
            )
            for name in names
        )
        timeout = i32Timedelta.parse(datetime.timedelta(seconds=timeout_s))
        request = CreateTopicsRequest(topics=topics, timeout=timeout, validate_only=False)
        for topic in self.ask(request, CreateTopicsResponse).topics:
            code = int(topic.error_code)
            if code not in (0, TOPIC_ALREADY_EXISTS):
                raise Refused(f"creating topic {topic.name}", code)

    def create_topic(self, name: str, partitions: int, copies: int, *, timeout_s: float = 15.0, **configs: str) -> None:
        """Raises Refused unless the topic is there afterwards."""
        self.create_topics([name], partitions, copies, timeout_s=timeout_s, **configs)

    def active_controller(self) -> int:
        """The broker id of the active controller by DescribeQuorum: with KRaft, Kafka names any broker in Metadata."""
        place = PartitionData(partition_index=i32(0))
        request = DescribeQuorumRequest(
            topics=(TopicData(topic_name=TopicName("__cluster_metadata"), partitions=(place,)),)
        )
        [topic] = self.ask(request, DescribeQuorumResponse).topics
        [partition] = topic.partitions
        if int(partition.error_code) or partition.leader_id < 0:
            raise Refused("asking for the active controller", int(partition.error_code))
        return int(partition.leader_id)

    def replicas_on_disk(self) -> list[tuple[str, int]]:
        """Topic and partition of every replica in the broker's log directories."""
        response = self.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        return [
            (str(topic.name), int(partition.partition_index))
            for directory in response.results
            for topic in directory.topics
            for partition in topic.partitions
        ]
