"""The group coordinator: every group whose partition of ``__consumer_offsets`` this broker leads.

Sends each request to the partition of its group; the first tenant of the coordinator host (coordinators/tenant.py).
Knows no wire, no clock and no disk: time comes in with every call, records go out through ``GroupLog``, answers
go out through ``reply`` (called once, at once or later).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from holdfast.coordinators.deadlines import Deadlines
from holdfast.coordinators.shards import Shards
from holdfast.groups.group import Group
from holdfast.groups.group_journal import GroupLog
from holdfast.groups.offset_records import MAX_TEXT
from holdfast.groups.replay import Replay
from holdfast.groups.settings import GroupSettings
from holdfast.groups.shard import Shard
from holdfast.groups.states import GroupState
from holdfast.groups.types import (
    CommitReply,
    CommitRequest,
    DescribedGroup,
    DescribedMember,
    FetchedOffsets,
    GroupId,
    GroupList,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    JoinResult,
    LeaveResult,
    Leaving,
    ListedGroup,
    OffsetDeleteResult,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from holdfast.model.errors import HoldfastError, InvalidRequestError
from holdfast.model.group_errors import (
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    RebalanceInProgressError,
)
from holdfast.model.internal_topics import OFFSETS_TOPIC
from holdfast.model.types import LeaderEpoch, TimestampMs, TopicPartition
from holdfast.records.batch import Buffer

_CLASSIC = "classic"


class GroupCoordinator:
    """See the module's docstring."""

    __slots__ = ("_deadlines", "_shards")

    topic: Final = OFFSETS_TOPIC
    reader: Final = "groups"

    def __init__(self, settings: GroupSettings, log: GroupLog, *, new_member_suffix: Callable[[], str]) -> None:
        self._deadlines = Deadlines()

        def make(partition: int, _leader_epoch: LeaderEpoch) -> Shard:
            return Shard(
                partition,
                settings=settings,
                log=log,
                deadlines=self._deadlines,
                new_member_suffix=new_member_suffix,
                clock=lambda: self._shards.now_ms,
            )

        self._shards = Shards(make, partition_count=settings.offsets_partitions, noun="group")

    @property
    def partition_count(self) -> int:
        """Partitions of ``__consumer_offsets``; a topic that exists may have another number than the setting."""
        return self._shards.partition_count

    @partition_count.setter
    def partition_count(self, count: int) -> None:
        self._shards.partition_count = count

    # -- leadership ------------------------------------------------------------------------------------------

    def on_elected(self, partition: int, leader_epoch: LeaderEpoch) -> None:
        """This broker leads the partition: its groups answer that they load until ``serve``."""
        self._shards.on_elected(partition, leader_epoch)

    def replay(self) -> Replay:
        """What reads a partition's log."""
        return Replay()

    def load(self, partition: int, leader_epoch: LeaderEpoch, chunks: Iterable[Buffer], now_ms: TimestampMs) -> None:
        """Read the partition's log (whole batches) and serve its groups."""
        replay = Replay()
        for chunk in chunks:
            replay.feed(chunk)
        self.install(partition, leader_epoch, replay, now_ms)

    def install(self, partition: int, leader_epoch: LeaderEpoch, replay: Replay, now_ms: TimestampMs) -> None:
        """Serve what was read; without effect if this broker no longer leads in that epoch."""
        self.add(partition, leader_epoch, replay.groups(), now_ms)
        self.serve(partition, leader_epoch, now_ms)

    def add(self, partition: int, leader_epoch: LeaderEpoch, groups: dict[GroupId, Group], now_ms: TimestampMs) -> None:
        """Some of the groups that were read; they are served once all are there (``serve``)."""
        self._shards.add(partition, leader_epoch, groups, now_ms)

    def serve(self, partition: int, leader_epoch: LeaderEpoch, now_ms: TimestampMs) -> None:
        """All groups of the partition are there."""
        self._shards.serve(partition, leader_epoch, now_ms)

    def on_resigned(self, partition: int) -> None:
        """Another broker leads the partition."""
        self._shards.on_resigned(partition)

    def on_topics_deleted(self, topics: Collection[str], now_ms: TimestampMs) -> None:
        """Offsets in these topics go."""
        self._shards.see(now_ms)
        for shard in self._shards.active():
            shard.offsets.forget_topics(frozenset(topics), now_ms)

    def next_deadline_ms(self) -> TimestampMs | None:
        """When to call ``tick`` next; may be early."""
        return self._deadlines.next_ms()

    def tick(self, now_ms: TimestampMs) -> None:
        """Run what is due."""
        self._shards.see(now_ms)
        self._deadlines.run_due(now_ms)

    # -- members ---------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, now_ms: TimestampMs, reply: JoinReply) -> None:
        """JoinGroup: see membership.py."""
        found = self._route(request.group_id, now_ms)
        names = (request.member_id, request.instance_id, request.protocol_type, *(s.name for s in request.protocols))
        if isinstance(found, HoldfastError):
            reply(JoinResult(error=found, member_id=request.member_id or ""))
        elif any(name is not None and _is_too_long(name) for name in names):
            why = f"a name of the member has more than {MAX_TEXT} bytes"
            reply(JoinResult(error=InvalidRequestError(why), member_id=request.member_id or ""))
        else:
            found.members.join(request, now_ms, reply)

    def sync(self, request: SyncRequest, now_ms: TimestampMs, reply: SyncReply) -> None:
        """SyncGroup. While the group loads its rebalance is lost anyway: the member is told to join again."""
        found = self._route(request.group_id, now_ms)
        if isinstance(found, CoordinatorLoadInProgressError):
            reply(SyncResult(error=RebalanceInProgressError(str(found))))
        elif isinstance(found, HoldfastError):
            reply(SyncResult(error=found))
        else:
            found.members.sync(request, now_ms, reply)

    def heartbeat(self, request: HeartbeatRequest, now_ms: TimestampMs) -> HoldfastError | None:
        """Heartbeat. While the group loads nothing is known against the member."""
        found = self._route(request.group_id, now_ms)
        if isinstance(found, CoordinatorLoadInProgressError):
            return None
        return found if isinstance(found, HoldfastError) else found.members.heartbeat(request, now_ms)

    def leave(self, group_id: GroupId, leaving: Sequence[Leaving], now_ms: TimestampMs) -> LeaveResult:
        """LeaveGroup."""
        found = self._route(group_id, now_ms)
        if isinstance(found, HoldfastError):
            return LeaveResult(error=found)
        return found.members.leave(group_id, tuple(leaving), now_ms)

    # -- offsets ---------------------------------------------------------------------------------------------

    def commit(self, request: CommitRequest, now_ms: TimestampMs, reply: CommitReply) -> None:
        """OffsetCommit; the empty group id is allowed, as it always was."""
        found = self._route(request.group_id, now_ms, named=False)
        if isinstance(found, HoldfastError):
            reply(dict.fromkeys((o.tp for o in request.offsets), found))
        else:
            found.offsets.commit(request, now_ms, reply)

    def commit_within(self, request: CommitRequest, now_ms: TimestampMs, reply: CommitReply) -> None:
        """TxnOffsetCommit; ``request`` has a transaction."""
        found = self._route(request.group_id, now_ms)
        if isinstance(found, HoldfastError):
            reply(dict.fromkeys((o.tp for o in request.offsets), found))
        else:
            found.offsets.commit(request, now_ms, reply)

    def complete_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """The marker of a producer's transaction is committed in the partition: its offsets count, or do not. To be
        called in the order of the markers, before anything that the producer writes after them is answered."""
        shard = self._shards.led(partition)
        if shard is not None:
            shard.complete_transaction(producer_id, committed)

    def fetch_offsets(
        self,
        group_id: GroupId,
        partitions: Iterable[TopicPartition] | None,
        now_ms: TimestampMs,
        *,
        require_stable: bool = False,
    ) -> FetchedOffsets:
        """OffsetFetch of one group; all partitions with None. ``require_stable``: tell which may still change."""
        found = self._route(group_id, now_ms, named=False)
        if isinstance(found, HoldfastError):
            return FetchedOffsets(error=found, offsets={})
        return found.offsets.fetch(group_id, partitions, require_stable=require_stable)

    def delete_offsets(
        self,
        group_id: GroupId,
        partitions: Sequence[TopicPartition],
        now_ms: TimestampMs,
        reply: Callable[[OffsetDeleteResult], None],
    ) -> None:
        """OffsetDelete."""
        found = self._route(group_id, now_ms)
        if isinstance(found, HoldfastError):
            reply(OffsetDeleteResult(error=found, partitions={}))
        else:
            found.offsets.delete(group_id, tuple(partitions), now_ms, reply)

    # -- administration --------------------------------------------------------------------------------------

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> GroupList:
        """Groups in any of these states and of these types; of all, where nothing is said."""
        wanted = {s.lower() for s in states}
        groups = [
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value)
            for shard in self._shards.active()
            for group in shard.groups.values()
            if not wanted or group.state.value.lower() in wanted
        ]
        if types and _CLASSIC not in {t.lower() for t in types}:
            groups = []
        error = CoordinatorLoadInProgressError("some groups are still being read") if self._shards.loads else None
        return GroupList(error=error, groups=tuple(sorted(groups)))

    def describe_group(self, group_id: GroupId, now_ms: TimestampMs) -> DescribedGroup:
        """DescribeGroups of one group."""
        found = self._route(group_id, now_ms, named=False)
        if isinstance(found, HoldfastError):
            return DescribedGroup(group_id=group_id, error=found)
        group = found.groups.get(group_id)
        if group is None or group.is_in(GroupState.DEAD):
            error = GroupIdNotFoundError(f"Group {group_id} not found.")
            return DescribedGroup(group_id=group_id, error=error, state=GroupState.DEAD.value)
        return _described(group)

    def delete_group(
        self, group_id: GroupId, now_ms: TimestampMs, reply: Callable[[HoldfastError | None], None]
    ) -> None:
        """DeleteGroups of one group."""
        found = self._route(group_id, now_ms, named=False)
        if isinstance(found, HoldfastError):
            reply(found)
        else:
            found.offsets.delete_group(group_id, now_ms, reply)

    # -- inside ----------------------------------------------------------------------------------------------

    def _route(self, group_id: GroupId, now_ms: TimestampMs, *, named: bool = True) -> Shard | HoldfastError:
        self._shards.see(now_ms)
        if named and not group_id:
            return InvalidGroupIdError("the group id is empty")
        if _is_too_long(group_id):
            return InvalidGroupIdError(f"the group id has more than {MAX_TEXT} bytes")
        return self._shards.route(group_id)


def _is_too_long(text: str) -> bool:
    """Newer requests carry texts that the group's records cannot."""
    return len(text) > MAX_TEXT // 4 and len(text.encode()) > MAX_TEXT


def _described(group: Group) -> DescribedGroup:
    stable = group.is_in(GroupState.STABLE)
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if stable else "",
        members=tuple(
            DescribedMember(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.metadata(group.protocol_name) if stable else b"",
                m.assignment,
            )
            for m in group.members.values()
        ),
    )
