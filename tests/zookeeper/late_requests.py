"""What reaches a controller while it is frozen, and what one says whose epoch is over."""

from __future__ import annotations

import socket
import struct
from typing import Any
from uuid import UUID

from holdfast.broker.entity import build
from holdfast.protocol import interbroker
from holdfast.protocol.apis import ApiKey, request_type
from holdfast.protocol.framing import decode_response, encode_request, parse_response_header
from tests.system.test_between_brokers import order

VERSION = 7
ANSWER_S = 60.0


class Creation:
    """CreateTopics for a topic of one partition with one replica, over a connection that is there already."""

    def __init__(self, port: int, topic: str) -> None:
        self.topic = topic
        self.topic_id: UUID | None = None
        """Of the topic that was made, once that has been answered."""
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)

    def ask(self) -> None:
        """Does not wait."""
        values = {
            "topics": [{"name": self.topic, "num_partitions": 1, "replication_factor": 1}], "timeout": 5000,
            "validate_only": False,
        }  # fmt: skip
        request = build(request_type(ApiKey.CREATE_TOPICS, VERSION), values)
        self._socket.sendall(encode_request(int(ApiKey.CREATE_TOPICS), VERSION, 1, "late", request))

    def answer(self) -> int | None:
        """The topic's error code; None: the connection was closed instead."""
        with self._socket as connection, connection.makefile("rb") as stream:
            size = stream.read(4)
            if len(size) < 4:
                return None
            frame = stream.read(struct.unpack(">i", size)[0])
        _, begin = parse_response_header(int(ApiKey.CREATE_TOPICS), VERSION, frame)
        [topic] = decode_response(int(ApiKey.CREATE_TOPICS), VERSION, frame[begin:]).topics
        self.topic_id = topic.topic_id
        return int(topic.error_code)


def said_in(epoch: int, topic: str) -> list[Any]:
    """All that a controller of this epoch says to brokers: lead, go, and where everything is."""
    stop = {
        "topic_states": [
            {"topic_name": topic, "partition_states": [{"partition_index": 0, "delete_partition": True}]}
        ],
    }  # fmt: skip
    by_it = {"controller_id": 1, "controller_epoch": epoch, "broker_epoch": 2**40}
    return [
        order(topic, controller_epoch=epoch, broker_epoch=2**40),
        build(interbroker.StopReplicaRequest, by_it | stop),
        build(interbroker.UpdateMetadataRequest, by_it | {"topic_states": [], "live_brokers": []}),
    ]
