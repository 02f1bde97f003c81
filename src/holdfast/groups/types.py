"""What goes in and out of the group coordinator. No behaviour, no wire codes.

Absence is None: no member id yet, no generation (a commit of a consumer that is in no group), no offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from holdfast.model.errors import HoldfastError
from holdfast.model.types import LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition

GroupId: TypeAlias = str
MemberId: TypeAlias = str
InstanceId: TypeAlias = str
Generation: TypeAlias = int


# -- JoinGroup -------------------------------------------------------------------------------------------------


class Strategy(NamedTuple):
    """One assignment strategy that a member speaks, with what its leader needs to know for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A consumer wants to be a member."""

    group_id: GroupId
    member_id: MemberId | None
    instance_id: InstanceId | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Strategy, ...]
    must_know_id: bool = True
    """A dynamic member without id gets one and has to come again (v4+)."""
    may_skip_assignment: bool = True
    """A returning static leader can be told to leave the assignment as it is (v9+)."""


class JoinedMember(NamedTuple):
    """One member, as the leader is told of it."""

    member_id: MemberId
    instance_id: InstanceId | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """How joining ended. Without error every field but ``members`` (leader only) has a value."""

    error: HoldfastError | None = None
    member_id: MemberId = ""
    generation: Generation | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


JoinReply: TypeAlias = Callable[[JoinResult], None]


# -- SyncGroup -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings everybody's."""

    group_id: GroupId
    member_id: MemberId
    instance_id: InstanceId | None = None
    generation: Generation
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[tuple[MemberId, bytes]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """A member's assignment, or why it gets none."""

    error: HoldfastError | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


SyncReply: TypeAlias = Callable[[SyncResult], None]


# -- Heartbeat, LeaveGroup -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A member is alive."""

    group_id: GroupId
    member_id: MemberId
    instance_id: InstanceId | None = None
    generation: Generation


class Leaving(NamedTuple):
    """Who is to leave; an operator names a static member by its instance id alone."""

    member_id: MemberId | None
    instance_id: InstanceId | None = None


class Left(NamedTuple):
    """What became of one of them."""

    leaving: Leaving
    error: HoldfastError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveResult:
    """An error of the whole request, or one result for each member."""

    error: HoldfastError | None = None
    members: tuple[Left, ...] = ()


# -- offsets ---------------------------------------------------------------------------------------------------


class OffsetAndMetadata(NamedTuple):
    """Where a group is in one partition."""

    offset: Offset
    leader_epoch: LeaderEpoch | None
    metadata: str
    commit_ms: TimestampMs
    expire_ms: TimestampMs | None = None
    """Only commits before v5 can carry their own end of life."""
    topic_id: TopicId | None = None


class OffsetToCommit(NamedTuple):
    """One partition of a commit."""

    tp: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch | None = None
    metadata: str = ""
    topic_id: TopicId | None = None


class OffsetsTransaction(NamedTuple):
    """Of which offsets shall be a part. ``version``: that of its client's TxnOffsetCommit, which says what the client
    leaves to the broker and which errors it knows."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """Offsets to keep. A consumer outside any group brings neither member id nor generation. With a ``transaction``
    they count when it is committed."""

    group_id: GroupId
    member_id: MemberId | None = None
    instance_id: InstanceId | None = None
    generation: Generation | None = None
    retention_ms: int | None = None
    offsets: tuple[OffsetToCommit, ...]
    transaction: OffsetsTransaction | None = None
    knows_group_not_found: bool = True
    """From v9 on a generation of an unknown group is GROUP_ID_NOT_FOUND; older clients know it as
    ILLEGAL_GENERATION."""


CommitResult: TypeAlias = dict[TopicPartition, HoldfastError | None]
CommitReply: TypeAlias = Callable[[CommitResult], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffsets:
    """Committed offsets; None where there is none. ``unstable``: those that an open transaction may still change, where
    it was asked for."""

    error: HoldfastError | None = None
    offsets: dict[TopicPartition, OffsetAndMetadata | None]
    unstable: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResult:
    """An error of the whole group, or one result a partition."""

    error: HoldfastError | None = None
    partitions: dict[TopicPartition, HoldfastError | None]


# -- administration --------------------------------------------------------------------------------------------


class ListedGroup(NamedTuple):
    """One group in a list; ``state`` is Kafka's word for it."""

    group_id: GroupId
    protocol_type: str
    state: str
    group_type: str = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """The groups of this broker; an error when some are still being loaded."""

    error: HoldfastError | None = None
    groups: tuple[ListedGroup, ...] = ()


class DescribedMember(NamedTuple):
    """One member as an operator sees it; metadata only while the group is stable."""

    member_id: MemberId
    instance_id: InstanceId | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """One group as an operator sees it. A group that does not exist is Dead and has GroupIdNotFoundError."""

    group_id: GroupId
    error: HoldfastError | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
