"""What one broker says about the cluster, asked by a plain blocking socket.

Deliberately not our own client: what a test believes should not come through the code that it tests. One
Metadata request (version 8, the last one without flexible fields) per call, a new connection each time.
"""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kio.schema.metadata.v8.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v8.response import MetadataResponse
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer

METADATA, METADATA_VERSION = 3, 8


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


def ask(host: str, port: int, topics: Iterable[str] | None = None, *, timeout_s: float = 5.0) -> ClusterView:
    """The view of the broker at ``host:port``; all topics when ``topics`` is None. OSError if it does not
    answer."""
    wanted = None if topics is None else tuple(MetadataRequestTopic(name=TopicName(name)) for name in topics)
    request = MetadataRequest(
        topics=wanted,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    body = io.BytesIO()
    client = b"holdfast-testing"
    body.write(struct.pack(">hhih", METADATA, METADATA_VERSION, 1, len(client)) + client)
    entity_writer(MetadataRequest)(body, request)
    frame = body.getvalue()
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        answer = _receive(connection, size)
    response, _ = entity_reader(MetadataResponse)(answer, 4)
    return _view(response)


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
