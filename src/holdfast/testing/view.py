"""What one broker says about the cluster, asked by a plain blocking socket.

Deliberately not our own client: what a test believes should not come through the code that it tests. One request
per call, a new connection each time.
"""

from __future__ import annotations

import io
import socket
import ssl
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse
from kio.schema.metadata.v8.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v8.response import MetadataResponse
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition as Metadata shows it; ``leader`` is None while there is none."""

    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]

    @property
    def is_full(self) -> bool:
        """Every replica is in sync and there is a leader."""
        return self.leader is not None and set(self.isr) == set(self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The cluster as one broker sees it at one moment."""

    controller_id: int | None
    brokers: dict[int, tuple[str, int]]
    partitions: dict[tuple[str, int], PartitionView]

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.partitions}

    @property
    def under_replicated(self) -> list[tuple[str, int]]:
        """Partitions without a leader or with a replica that is not in sync."""
        return sorted(place for place, partition in self.partitions.items() if not partition.is_full)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirView:
    """One log directory as DescribeLogDirs shows it: Kafka's error code, bytes by replica, -1 for bytes of the disk
    that are not known."""

    error: int
    replicas: dict[tuple[str, int], int]
    total_bytes: int
    usable_bytes: int


def ask(
    host: str,
    port: int,
    topics: Iterable[str] | None = None,
    *,
    timeout_s: float = 5.0,
    tls: ssl.SSLContext | None = None,
) -> ClusterView:
    """The view of the broker at ``host:port``; all topics when ``topics`` is None. OSError if it does not
    answer. ``tls``: of a listener that wants a certificate."""
    wanted = None if topics is None else tuple(MetadataRequestTopic(name=TopicName(name)) for name in topics)
    request = MetadataRequest(
        topics=wanted,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return _view(exchange(host, port, request, MetadataResponse, timeout_s=timeout_s, tls=tls))


def ask_log_dirs(
    host: str, port: int, *, timeout_s: float = 5.0, tls: ssl.SSLContext | None = None
) -> dict[str, DirView]:
    """Every log directory of the broker at ``host:port``, by path. OSError if it does not answer."""
    request = DescribeLogDirsRequest(topics=None)
    answer = exchange(host, port, request, DescribeLogDirsResponse, timeout_s=timeout_s, tls=tls)
    return {
        result.log_dir: DirView(
            error=int(result.error_code),
            replicas={(str(t.name), int(p.partition_index)): int(p.partition_size) for t in result.topics
                      for p in t.partitions if not p.is_future_key},
            total_bytes=int(result.total_bytes),
            usable_bytes=int(result.usable_bytes),
        )
        for result in answer.results
    }  # fmt: skip


def exchange(
    host: str,
    port: int,
    request: Any,
    answer_type: type[T],
    *,
    timeout_s: float = 5.0,
    tls: ssl.SSLContext | None = None,
) -> T:
    """One request (an entity of kio) over a connection of its own; its answer. OSError if there is none."""
    with ask_only(host, port, request, timeout_s=timeout_s, tls=tls) as connection:
        (size,) = struct.unpack(">i", _receive(connection, 4))
        answer = _receive(connection, size)
    entity, _ = entity_reader(answer_type)(answer, 5 if type(request).__flexible__ else 4)  # type: ignore[type-var]
    return entity


def ask_only(
    host: str, port: int, request: Any, *, timeout_s: float = 5.0, tls: ssl.SSLContext | None = None
) -> socket.socket:
    """Send one request over a connection of its own, which is the caller's to read from and to close."""
    connection = socket.create_connection((host, port), timeout=timeout_s)
    if tls is not None:
        connection = tls.wrap_socket(connection, server_hostname=host)
    connection.sendall(framed(request))
    return connection


def framed(request: Any) -> bytes:
    """A request (an entity of kio) as it goes over a connection."""
    kind, client = type(request), b"holdfast-testing"
    body = io.BytesIO()
    body.write(struct.pack(">hhih", kind.__api_key__, kind.__version__, 1, len(client)) + client)
    body.write(b"\0" * kind.__flexible__)
    entity_writer(kind)(body, request)
    frame = body.getvalue()
    return struct.pack(">i", len(frame)) + frame


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("the broker closed the connection before its answer was complete")
        received += chunk
    return bytes(received)


def _view(response: Any) -> ClusterView:
    partitions = {
        (str(topic.name), int(p.partition_index)): PartitionView(
            leader=None if p.leader_id < 0 else int(p.leader_id),
            replicas=tuple(map(int, p.replica_nodes)),
            isr=tuple(map(int, p.isr_nodes)),
            offline=tuple(map(int, p.offline_replicas)),
        )
        for topic in response.topics
        for p in topic.partitions
    }
    return ClusterView(
        controller_id=None if response.controller_id < 0 else int(response.controller_id),
        brokers={int(broker.node_id): (broker.host, int(broker.port)) for broker in response.brokers},
        partitions=partitions,
    )
