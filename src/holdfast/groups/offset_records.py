"""The records of ``__consumer_offsets``: keys and values, byte for byte as Kafka 4.3 writes them.

    key 0, 1   group, topic, partition     value 0..4: a committed offset (we write 4, or 1 when it has its own end)
    key 2      group                       value 0..4: the group with its members (we write 3)
    key 3...   groups of the consumer protocol of KIP-848: not read here

A key without value is a tombstone. Writers and readers hold no state; bytes that make no sense are a
CorruptRecordError, record types that are not ours are None.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, pack
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from holdfast.coordinators.fields import FieldReader, uvarint
from holdfast.groups.types import Generation, GroupId, InstanceId, MemberId, OffsetAndMetadata
from holdfast.model.errors import CorruptRecordError
from holdfast.model.types import TimestampMs, TopicPartition

OFFSET_KEY_OLD: Final = 0
OFFSET_KEY: Final = 1
GROUP_KEY: Final = 2
OFFSET_VALUE: Final = 4
OFFSET_VALUE_WITH_END: Final = 1
GROUP_VALUE: Final = 3
_TOPIC_ID_TAG: Final = 0
_UUID_SIZE: Final = 16
MAX_TEXT: Final = 2**15 - 1
"""Bytes of the longest text that a key or a group's value can hold."""
_FIRST_FLEXIBLE: Final = 4
"""Both kinds of value are in the compact encoding from version 4 on."""

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")


class OffsetKey(NamedTuple):
    """Key of a committed offset."""

    group_id: GroupId
    tp: TopicPartition


class GroupKey(NamedTuple):
    """Key of a group's metadata."""

    group_id: GroupId


Key: TypeAlias = OffsetKey | GroupKey


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """One member in a group's record."""

    member_id: MemberId
    instance_id: InstanceId | None = None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A group as its last finished rebalance left it."""

    protocol_type: str
    generation: Generation
    protocol_name: str | None = None
    leader: MemberId | None = None
    state_ms: TimestampMs | None = None
    """When the group came into its state: an empty group's offsets age from here."""
    members: tuple[MemberRecord, ...] = ()


# -- writing ---------------------------------------------------------------------------------------------------


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return _I16.pack(len(raw)) + raw


def _bytes(raw: bytes) -> bytes:
    return _I32.pack(len(raw)) + raw


def encode_offset_key(group_id: GroupId, tp: TopicPartition) -> bytes:
    """Key of the offset of ``tp``."""
    return _I16.pack(OFFSET_KEY) + _string(group_id) + _string(tp.topic) + _I32.pack(tp.partition)


def encode_group_key(group_id: GroupId) -> bytes:
    """Key of the group's metadata."""
    return _I16.pack(GROUP_KEY) + _string(group_id)


def encode_offset(committed: OffsetAndMetadata) -> bytes:
    """Value of a committed offset."""
    if committed.expire_ms is not None:
        return (
            pack(">hq", OFFSET_VALUE_WITH_END, committed.offset)
            + _string(committed.metadata)
            + pack(">qq", committed.commit_ms, committed.expire_ms)
        )
    raw = committed.metadata.encode()
    epoch = -1 if committed.leader_epoch is None else committed.leader_epoch
    value = pack(">hqi", OFFSET_VALUE, committed.offset, epoch)
    value += uvarint(len(raw) + 1) + raw + _I64.pack(committed.commit_ms)
    if committed.topic_id is None:
        return value + b"\x00"
    return value + bytes((1, _TOPIC_ID_TAG, _UUID_SIZE)) + committed.topic_id.bytes


def encode_group(group: GroupRecord) -> bytes:
    """Value of a group's metadata."""
    parts = [
        _I16.pack(GROUP_VALUE),
        _string(group.protocol_type),
        _I32.pack(group.generation),
        _string(group.protocol_name),
        _string(group.leader),
        _I64.pack(-1 if group.state_ms is None else group.state_ms),
        _I32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


# -- reading ---------------------------------------------------------------------------------------------------


def decode_key(raw: bytes) -> Key | None:
    """What a record is about, or None when it is of a kind that is not ours."""
    reader = FieldReader(raw, "a group record")
    match reader.i16():
        case 0 | 1:
            group = reader.string()
            topic = reader.string()
            return OffsetKey(group, TopicPartition(topic, reader.i32()))
        case 2:
            return GroupKey(reader.string())
    return None


def decode_offset(raw: bytes) -> OffsetAndMetadata | None:
    """A committed offset, or None when its version is newer than what we know."""
    reader = FieldReader(raw, "a group record")
    version = reader.i16()
    if not 0 <= version <= OFFSET_VALUE:
        return None
    reader.compact = version >= _FIRST_FLEXIBLE
    offset = reader.i64()
    epoch = reader.i32() if version >= 3 else -1
    metadata = reader.string()
    commit_ms = reader.i64()
    expire_ms = reader.i64() if version == OFFSET_VALUE_WITH_END else -1
    topic_id = reader.tags().get(_TOPIC_ID_TAG)
    return OffsetAndMetadata(
        offset=offset,
        leader_epoch=None if epoch < 0 else epoch,
        metadata=metadata,
        commit_ms=commit_ms,
        expire_ms=None if expire_ms < 0 else expire_ms,
        topic_id=None if topic_id is None or not any(topic_id) else _uuid(topic_id),
    )


def _uuid(raw: bytes) -> UUID:
    if len(raw) != _UUID_SIZE:
        raise CorruptRecordError(f"a topic id has {len(raw)} bytes, expected {_UUID_SIZE}")
    return UUID(bytes=raw)


def decode_group(raw: bytes) -> GroupRecord | None:
    """A group, or None when its version is newer than what we know."""
    reader = FieldReader(raw, "a group record")
    version = reader.i16()
    if not 0 <= version <= _FIRST_FLEXIBLE:
        return None
    reader.compact = version >= _FIRST_FLEXIBLE
    protocol_type = reader.string()
    generation = reader.i32()
    protocol_name = reader.optional_string()
    leader = reader.optional_string()
    state_ms = reader.i64() if version >= 2 else -1
    members = tuple(_member(reader, version) for _ in range(reader.count()))
    reader.tags()
    return GroupRecord(
        protocol_type=protocol_type,
        generation=generation,
        protocol_name=protocol_name,
        leader=leader,
        state_ms=None if state_ms < 0 else state_ms,
        members=members,
    )


def _member(reader: FieldReader, version: int) -> MemberRecord:
    member_id = reader.string()
    instance_id = reader.optional_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.i32() if version >= 1 else None
    session_timeout_ms = reader.i32()
    subscription = reader.blob()
    assignment = reader.blob()
    reader.tags()
    return MemberRecord(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )
