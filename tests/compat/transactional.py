"""The recording of transactions, replayed: which broker is asked what, and under which producer id.

In the recording broker 1 was everything: leader of t1-0, coordinator of the group and of the transactional id. Here the
topic of transactions is made before, with one partition, and whoever leads it is asked what its coordinator was asked.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from holdfast.broker.entity import build
from holdfast.protocol.apis import request_type
from holdfast.protocol.framing import (
    decode_request,
    decode_response,
    encode_body,
    encode_request,
    parse_request_header,
    parse_response_header,
)

OF_COORDINATOR = frozenset({
    "init_producer_id", "add_partitions_to_txn", "add_offsets_to_txn", "end_txn", "describe_transactions",
    "list_transactions",
})  # fmt: skip
OF_GROUP = frozenset({"txn_offset_commit", "offset_fetch"})
_FIND, _FIND_VERSION = 10, 6
_METADATA, _METADATA_VERSION = 3, 12
_TRANSACTION = 1


def coordinator(ask: Any, name: str = "tx-1", timeout_s: float = 10.0) -> int:
    """The broker that coordinates ``name`` and answers for it, once there is one. ``ask``: a frame to the frame of the
    answer."""
    request = build(request_type(_FIND, _FIND_VERSION), {"key_type": _TRANSACTION, "coordinator_keys": [name]})
    deadline = time.monotonic() + timeout_s
    while True:
        frame = ask(encode_request(_FIND, _FIND_VERSION, 1, "golden", request))
        _, start = parse_response_header(_FIND, _FIND_VERSION, frame)
        (found,) = decode_response(_FIND, _FIND_VERSION, frame[start:]).coordinators
        if found.node_id >= 0:
            return int(found.node_id)
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def leader(ask: Any, topic: str) -> int:
    """Who leads the first partition of ``topic``, which the controller has placed."""
    asked = build(request_type(_METADATA, _METADATA_VERSION), {"topics": [{"name": topic}]})
    frame = ask(encode_request(_METADATA, _METADATA_VERSION, 1, "golden", asked))
    _, start = parse_response_header(_METADATA, _METADATA_VERSION, frame)
    partitions = decode_response(_METADATA, _METADATA_VERSION, frame[start:]).topics[0].partitions
    return next(int(p.leader_id) for p in partitions if p.partition_index == 0)


def with_producer_ids(raw: bytes, ids: dict[int, int]) -> bytes:
    """The request with our producer ids in its fields."""
    header = parse_request_header(raw)
    entity = decode_request(header.api_key, header.api_version, raw[header.body_offset :])
    return raw[: header.body_offset] + encode_body(_replaced(entity, ids))


def _replaced(value: Any, ids: dict[int, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_replaced(v, ids) for v in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    new = {
        name: type(v)(ids.get(int(v), int(v))) if name.endswith("producer_id") else _replaced(v, ids)
        for name, v in fields.items()
    }
    return dataclasses.replace(value, **new)
