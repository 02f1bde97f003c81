"""Blocking questions to one broker: which brokers does it see, and which partitions have no leader?

For `up`, whose parent process has no event loop and must not grow one. Everything else uses client/.
"""

import socket
import ssl
import struct
from typing import Any

from kio.schema.metadata.v12.request import MetadataRequest

from holdfast.model.errors import HoldfastError
from holdfast.model.types import TopicPartition
from holdfast.protocol.framing import decode_response, encode_request, parse_response_header

TIMEOUT_S = 2.0


def brokers_seen_by(host: str, port: int, tls: ssl.SSLContext | None = None) -> frozenset[int]:
    """Ids of the brokers in Metadata; empty while the broker does not answer or knows no controller."""
    answer = _metadata(host, port, (), tls)
    if answer is None or answer.controller_id < 0:
        return frozenset()
    return frozenset(int(broker.node_id) for broker in answer.brokers)


def leaderless(host: str, port: int, tls: ssl.SSLContext | None = None) -> list[TopicPartition]:
    """Partitions that have no leader, in order; none while the broker does not answer."""
    answer = _metadata(host, port, None, tls)
    return sorted(
        TopicPartition(str(topic.name), int(partition.partition_index))
        for topic in (() if answer is None else answer.topics)
        for partition in topic.partitions
        if partition.leader_id < 0
    )


def _metadata(host: str, port: int, topics: tuple[()] | None, tls: ssl.SSLContext | None) -> Any:
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    try:
        with _connected(host, port, tls) as sock:
            sock.sendall(encode_request(3, 12, 1, "holdfast-up", request))
            (size,) = struct.unpack(">i", _exactly(sock, 4))
            frame = _exactly(sock, size)
        return decode_response(3, 12, memoryview(frame)[parse_response_header(3, 12, frame)[1] :])
    except (OSError, HoldfastError, struct.error, ValueError):
        return None


def _connected(host: str, port: int, tls: ssl.SSLContext | None) -> socket.socket:
    connection = socket.create_connection((host, port), TIMEOUT_S)
    return connection if tls is None else tls.wrap_socket(connection, server_hostname=host)


def _exactly(sock: socket.socket, size: int) -> bytes:
    if not 0 <= size <= 1 << 24:
        raise ValueError(f"a frame of {size} bytes")
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionResetError("closed by the broker")
        data += part
    return bytes(data)
