"""LeaderAndIsr 7 and UpdateMetadata 8 to bytes, as fast as Python can: a dead broker is told of in all its partitions.

kio calls some functions for every field; here a partition is a few calls. Only the long part, the states of topics, is
written here; the rest is kio's, and the whole is tested to be what kio alone makes of it.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from holdfast.protocol.framing import encode_body
from holdfast.protocol.interbroker import (
    TAG_ELIGIBLE,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from holdfast.protocol.wire import uvarint

_STATE: Final = Struct(">iiii")
_EPOCH: Final = Struct(">i")
_NEW_AND_RECOVERY: Final = Struct(">?b")
_NO_TAGS: Final = b"\0"
_NO_ID: Final = bytes(16)
_ORDERS_AT: Final = 18
"""Where the topics of LeaderAndIsr begin, behind the fields of fixed size; those of UpdateMetadata a byte earlier."""
_METADATA_AT: Final = 17
_EMPTY: Final = 1
"""Bytes of an array without elements."""


def encode_order(request: Any) -> bytes:
    """The body of a request of the controller to a broker."""
    if isinstance(request, LeaderAndIsrRequest):
        at, topics = _ORDERS_AT, _array(map(_orders_topic, request.topic_states), len(request.topic_states))
    elif isinstance(request, UpdateMetadataRequest):
        at, topics = _METADATA_AT, _array(map(_metadata_topic, request.topic_states), len(request.topic_states))
    else:
        return encode_body(request)
    frame = encode_body(replace(request, topic_states=()))
    return b"".join((frame[:at], topics, frame[at + _EMPTY :]))


def _array(elements: Iterable[bytes], count: int) -> bytes:
    return uvarint(count + 1) + b"".join(elements)


@lru_cache(maxsize=4096)
def _ints(values: tuple[int, ...]) -> bytes:
    """A compact array of int32. There are few different ones: sets of replicas."""
    return uvarint(len(values) + 1) + Struct(f">{len(values)}i").pack(*values)


def _topic(name: str, topic_id: Any, partitions: Iterable[bytes], count: int) -> bytes:
    text = name.encode()
    identity = _NO_ID if topic_id is None else topic_id.bytes
    return b"".join((uvarint(len(text) + 1), text, identity, uvarint(count + 1), *partitions, _NO_TAGS))


def _orders_topic(topic: LeaderAndIsrTopicState) -> bytes:
    states = topic.partition_states
    return _topic(topic.topic_name, topic.topic_id, map(_order, states), len(states))


def _order(state: LeaderAndIsrPartitionState) -> bytes:
    return b"".join(
        (
            _STATE.pack(state.partition_index, state.controller_epoch, state.leader, state.leader_epoch),
            _ints(state.isr),
            _EPOCH.pack(state.partition_epoch),
            _ints(state.replicas),
            _ints(state.adding_replicas),
            _ints(state.removing_replicas),
            _NEW_AND_RECOVERY.pack(state.is_new, state.leader_recovery_state),
            _eligible(state.eligible) if state.eligible else _NO_TAGS,
        )
    )


def _eligible(values: tuple[int, ...]) -> bytes:
    field = _ints(values)
    return b"".join((uvarint(1), uvarint(TAG_ELIGIBLE), uvarint(len(field)), field))


def _metadata_topic(topic: UpdateMetadataTopicState) -> bytes:
    states = topic.partition_states
    return _topic(topic.topic_name, topic.topic_id, map(_metadata, states), len(states))


def _metadata(state: UpdateMetadataPartitionState) -> bytes:
    return b"".join(
        (
            _STATE.pack(state.partition_index, state.controller_epoch, state.leader, state.leader_epoch),
            _ints(state.isr),
            _EPOCH.pack(state.zk_version),
            _ints(state.replicas),
            _ints(state.offline_replicas),
            _NO_TAGS,
        )
    )
