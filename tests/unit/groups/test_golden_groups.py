"""Every group request that Apache Kafka 4.3.0 was sent, through our handlers: its answers, byte for byte."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from holdfast.broker.access import Access
from holdfast.broker.handlers import group_offsets
from holdfast.broker.handlers import groups as handlers
from holdfast.broker.handlers.base import RequestContext
from holdfast.broker.metadata_cache import MetadataCache, PartitionInfo
from holdfast.protocol.framing import (
    decode_request,
    decode_response,
    encode_response,
    parse_request_header,
    parse_response_header,
)

CASES = json.loads((Path(__file__).parents[2] / "golden/wire/4.3.0/groups.json").read_text())
HANDLERS = {
    8: group_offsets.handle_offset_commit,
    9: group_offsets.handle_offset_fetch,
    11: handlers.handle_join_group,
    12: handlers.handle_heartbeat,
    13: handlers.handle_leave_group,
    14: handlers.handle_sync_group,
    15: handlers.handle_describe_groups,
    16: handlers.handle_list_groups,
    42: handlers.handle_delete_groups,
    47: group_offsets.handle_offset_delete,
}
OF_ANOTHER_BROKER = {"heartbeat at a broker that is not the coordinator", "DescribeGroups at another broker"}
"""Names of cases that went to a broker which does not coordinate."""


class Recorded:
    """Two brokers as they were when the requests were recorded: one coordinates, the other does not."""

    def __init__(self, world: type[Any]) -> None:
        settings = {"offsets_partitions": 1, "initial_rebalance_delay_ms": 0}
        self.coordinating, self.other = world(**settings), world(lead=False, **settings)
        ids = iter([c["response"]["member_id"] for c in CASES if c["name"] in NEW_MEMBER])
        self.coordinating.suffixes = lambda: next(ids).split("-", 1)[1]
        self.metadata = MetadataCache()
        info = PartitionInfo(leader=1, leader_epoch=0, isr=(1,), replicas=(1,), offline=())
        self.metadata.topics = {"t1": {0: info, 1: info}, "__consumer_offsets": {0: info}}
        self.metadata.topic_ids = {"t1": UUID("f70ea7dc-5166-4292-8598-c433bc289997")}
        self.metadata.topic_names = {i: n for n, i in self.metadata.topic_ids.items()}

    def answer(self, case: dict[str, Any]) -> bytes:
        world = self.other if case["name"] in OF_ANOTHER_BROKER else self.coordinating
        frame = memoryview(bytes.fromhex(case["request_hex"]))
        header = parse_request_header(frame)
        body = bytes(frame[header.body_offset :])
        broker = SimpleNamespace(
            access=Access(),
            groups=world.coordinator,
            metadata=self.metadata,
            now_ms=lambda: world.now_ms,
            membership=SimpleNamespace(is_current=True),
        )
        ctx = RequestContext(
            broker=broker,  # type: ignore[arg-type]
            connection=SimpleNamespace(peer=("127.0.0.1", 1)),  # type: ignore[arg-type]
            api_key=header.api_key,
            version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            body=body,
        )
        request = decode_request(header.api_key, header.api_version, body)
        response = asyncio.run(asyncio.wait_for(HANDLERS[header.api_key](ctx, request), 5))
        return bytes(encode_response(header.correlation_id, response)[4:])


NEW_MEMBER = (
    "v9 without member id: 79 and an id",
    "v3 without member id: accepted at once",
    "static member, v9: no 79",
)


def unordered(value: Any) -> Any:
    """The answer without the order of groups, and without texts of errors."""
    if isinstance(value, tuple):
        return sorted((unordered(v) for v in value), key=repr)
    if hasattr(value, "__slots__") and hasattr(value, "__dataclass_fields__"):
        return {name: unordered(getattr(value, name)) for name in value.__dataclass_fields__ if name != "error_message"}
    return value


def entity(api_key: int, version: int, frame: bytes) -> Any:
    _, start = parse_response_header(api_key, version, frame)
    return decode_response(api_key, version, frame[start:])


def test_every_recorded_answer(world: Any) -> None:
    recorded = Recorded(type(world))
    compared = 0
    for case in CASES:
        if case["api_key"] not in HANDLERS:
            continue
        ours, theirs = recorded.answer(case), bytes.fromhex(case["response_hex"])
        key, version = case["api_key"], case["version"]
        if key in (15, 16, 42):
            assert unordered(entity(key, version, ours)) == unordered(entity(key, version, theirs)), case["name"]
        else:
            assert ours.hex() == theirs.hex(), case["name"]
        compared += 1
    assert compared == len([c for c in CASES if c["api"] != "find_coordinator"]) > 45
